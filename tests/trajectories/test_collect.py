"""Collecting: a function of its seed, whatever the workers, the blocks and the interruptions."""

import itertools
import tracemalloc
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import secret_rl as srl
from secret_rl.atomic import InUseError
from secret_rl.envs.triggers import TriggersEnv
from secret_rl.seeding import episode_seeds, first_vector_seed
from secret_rl.trajectories import TooFewSuccessesError, rollouts, store

ID = "secret_rl/Triggers-v0"


def replay_episode(env, episode, observation, info):
    """The recorded actions, played again after a reset, give the recorded episode."""
    for t in range(len(episode)):
        np.testing.assert_array_equal(observation, episode.observations[t])
        assert episode.states is None or info["state"] == episode.states[t]
        observation, reward, terminated, truncated, info = env.step(episode.actions[t])
        assert reward == episode.rewards[t]
        assert all(info[name] == rows[t] for name, rows in episode.annotations.items())
    np.testing.assert_array_equal(observation, episode.final_observation)
    assert (terminated, truncated) == (episode.terminated, episode.truncated)


def replay(env, data):
    """Resets with the recorded seeds give the recorded episodes."""
    for episode in data:
        replay_episode(env, episode, *env.reset(seed=int(episode.episode_annotations["seed"])))


def biased(observation, rng):
    return int(rng.random() < 0.8)


def with_reset_noise():
    return gym.make("FrozenLake-v1", is_slippery=True)


class Upright:
    """Pushes a pole the way it falls, which it reads from inside its environment."""

    def __init__(self, env, noise=0.1):
        self._env, self._noise = env.unwrapped, noise

    def begin(self, seed):
        self._rng = np.random.default_rng(seed)

    def __call__(self, observation):
        return int((self._env.state[2] > 0) != (self._rng.random() < self._noise))


class Large(gym.Env):
    """Episodes of 8 MB."""

    observation_space = gym.spaces.Box(0, 255, (1 << 17,), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._left = 63
        return self.observation_space.low, {}

    def step(self, action):
        self._left -= 1
        return self.observation_space.low, 0.0, False, self._left == 0, {}


def test_episode_seeds_never_repeat_and_do_not_depend_on_blocks():
    seeds, others = (episode_seeds(seed, 0, 100_000) for seed in (12345678901234567890, 0))
    assert len(np.unique(seeds)) == 100_000 and seeds.max() < 2**32
    np.testing.assert_array_equal(others[777:900], episode_seeds(0, 777, 123))
    assert len(np.intersect1d(seeds, others)) < 30  # chance alone gives 2.3
    with pytest.raises(ValueError, match="distinct episodes"):
        episode_seeds(0, 2**32 - 5, 6)


def test_triggers_takes_the_compiled_path_and_it_is_what_the_env_does(monkeypatch):
    monkeypatch.setattr(rollouts, "_player", None)
    data = srl.collect(ID, 40, seed=3, env_options={"triggers": 1})
    replay(gym.make(ID, triggers=1), data)
    for env in (TriggersEnv(triggers=1), gym.make(ID, triggers=1), gym.make_vec(ID, 3, triggers=1)):
        assert srl.collect(env, 40, seed=3).equals(data)


def test_any_gymnasium_env_with_its_seeds_and_wrappers():
    env = gym.wrappers.TransformReward(gym.make(ID, triggers=1), lambda r: 5 * r)
    data = srl.collect(env, 30, seed=3)
    assert set(np.unique(data.rewards)) <= {-5.0, 0.0, 5.0} and (data.rewards != 0).any()
    assert data.meta["wrappers"] == ["TransformReward"]
    replay(env, data)
    replay(with_reset_noise(), srl.collect("FrozenLake-v1", 20, seed=5))
    data = srl.collect(gym.make("CartPole-v1"), 20, biased, seed=5)
    replay(gym.make("CartPole-v1"), data)
    assert 0.7 < data.actions.mean() < 0.9 and data.meta["policy"] == "function"


@pytest.mark.parametrize(
    ("env", "policy", "options"),
    [
        (ID, "random", {"success_share": 0.02}),
        (ID, "random", {}),
        pytest.param("CartPole-v1", biased, {}, marks=pytest.mark.slow),
        pytest.param("CartPole-v1", partial(Upright, noise=0.3), {}, marks=pytest.mark.slow),
        (with_reset_noise, "random", {"success_share": 0.2}),
    ],
)
def test_the_number_of_workers_changes_nothing(tmp_path, env, policy, options):
    alone = srl.collect(env, 30, policy, seed=1, out=tmp_path / "alone", **options)
    together = srl.collect(env, 30, policy, seed=1, workers=3, out=tmp_path / "together", **options)
    assert contents(tmp_path / "alone") == contents(tmp_path / "together")
    assert alone.meta["drawn"] == together.meta["drawn"]
    assert srl.collect(env, 30, policy, seed=1, **options).equals(alone)
    assert not srl.collect(env, 30, policy, seed=2, **options).equals(alone)


def test_a_class_is_made_with_the_environment_it_plays():
    env = gym.make("CartPole-v1")
    noisy = srl.collect(env, 10, partial(Upright, noise=0.3), seed=4)
    assert noisy.equals(srl.collect(env, 10, Upright(env, noise=0.3), seed=4))
    assert noisy.meta["policy"] == "Upright(noise=0.3)"


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_memory_does_not_grow_with_the_episodes(tmp_path, workers):
    """24 episodes of 8 MB on their way to disk: few of them are in memory at any time."""
    tracemalloc.start()
    try:
        data = srl.collect(Large, 24, workers=workers, out=tmp_path / "data", progress=False)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert data.observations.nbytes > 190e6
    assert peak < (80e6 if workers == 1 else 160e6)


@pytest.mark.parametrize("share", [0.05, 0.25, 1.0])
def test_the_share_is_kept_in_every_prefix_whatever_the_blocks(monkeypatch, share):
    options = {"env_options": {"triggers": 2}, "seed": 5}
    data = srl.collect(ID, 300, success_share=share, **options)
    successes = np.cumsum(data.successful)
    assert (successes >= share * np.arange(1, 301) - 1e-6).all()
    drawn = srl.collect(ID, data.meta["drawn"], **options)
    assert drawn.successful.sum() == successes[-1], "a success is never thrown away"
    monkeypatch.setattr(rollouts, "_SCAN", 33)
    assert srl.collect(ID, 300, success_share=share, **options).equals(data)


def test_an_impossible_share_ends_with_an_explanation(tmp_path):
    def pay_nothing():
        return gym.wrappers.TransformReward(gym.make("CartPole-v1"), lambda _: 0.0)

    with pytest.raises(TooFewSuccessesError, match=r"0 of those kept hold a positive reward.*raise max_draws"):
        srl.collect(pay_nothing, 10, success_share=0.5, max_draws=40, out=tmp_path / "data")
    assert list(tmp_path.iterdir()) == []


def test_vector_envs_give_every_sub_env_its_share():
    """Also sub-envs whose episodes differ in length by a factor of ten."""
    makers = [lambda n=n: gym.make("CartPole-v1", max_episode_steps=n) for n in (3, 30)]
    data, again = (srl.collect(gym.vector.SyncVectorEnv(makers), 11, lambda _: np.zeros(2, int)) for _ in range(2))
    assert len(data) == 11 and again.equals(data)
    assert (data.lengths[::2] == 3).all() and (data.lengths[1::2] > 3).all()
    assert data.truncated[data.offsets[1::2] - 1].all()


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_vector_episodes_are_those_of_the_single_env(mode):
    """No step of a reset leaks into an episode, in any autoreset mode."""
    envs = gym.make_vec(ID, 3, autoreset_mode=mode, triggers=1, max_steps=9)
    data = srl.collect(envs, 12, lambda o: np.full(3, 1), seed=4)
    for number, episode in enumerate(data):
        env = TriggersEnv(triggers=1, max_steps=9)
        begun = env.reset(seed=first_vector_seed(4) + number % 3)
        for _ in range(number // 3):
            begun = env.reset()
        assert (episode.actions == 1).all() and "trigger_activated" in episode.annotations
        replay_episode(env, episode, *begun)


def test_annotations_are_chosen_declared_or_missed_by_name_and_episodes_can_be_cut():
    env = gym.make("FrozenLake-v1")
    data = srl.collect(env, 5, annotations=["prob"], seed=0)
    np.testing.assert_allclose(data.annotations["prob"], 1 / 3)
    assert srl.collect(env, 5).annotations == {}
    with pytest.raises(ValueError, match=r'info\["luck"\] is missing at step 1.*prob'):
        srl.collect(env, 5, annotations=["luck"])
    env = gym.make("CartPole-v1", max_episode_steps=10_000)
    data = srl.collect(env, 4, lambda o: int(o[2] > 0), max_episode_steps=7)
    assert (data.lengths <= 7).all() and data.truncated.any()


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("env", "options"),
    [
        (ID, {"success_share": 0.25}),
        ("CartPole-v1", {}),
        ("FrozenLake-v1", {"env_options": {"desc": ("SFF", "FHF", "FFG")}}),  # JSON has no tuples
    ],
)
def test_an_interrupted_collection_goes_on_to_the_same_bytes(tmp_path, monkeypatch, env, options):
    """And nobody else writes there meanwhile. ``tests/attack`` kills it anywhere."""
    out, options = tmp_path / "data", {"seed": 8, **options}
    real, commits = store.ResumableStore.commit, itertools.count(1)

    def interrupted(self, meta):
        real(self, meta)
        if next(commits) == 2:
            with pytest.raises(InUseError, match="data is being written by another process.*wait for it to end"):
                srl.collect(env, 400, out=out, **options)
            raise KeyboardInterrupt

    monkeypatch.setattr(rollouts, "_SCAN", 256)
    monkeypatch.setattr(rollouts, "_BLOCK_BYTES", 4_000)
    with monkeypatch.context() as patch:
        patch.setattr(store, "_SECONDS_BETWEEN_COMMITS", 0.0)
        patch.setattr(store.ResumableStore, "commit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            srl.collect(env, 400, out=out, **options)
    assert not out.exists()
    with (tmp_path / "data.partial" / "rewards.npy").open("ab") as file:
        file.write(b"half-written rows after the last commit")
    array = {"env_options": {"desc": np.array([list("SFF"), list("FFG")], dtype="c")}}  # nor arrays
    other = array if env == "FrozenLake-v1" else {"seed": 9}
    with pytest.raises(srl.files.ResumeError, match=f"unfinished collection with another {next(iter(other))}"):
        srl.collect(env, 400, out=out, **options | other)
    with pytest.raises(srl.files.ResumeError, match="unfinished collection"):  # which begins anew elsewhere
        srl.collect(gym.make_vec("CartPole-v1", 2), 3, out=out)
    resumed = srl.collect(env, 400, out=out, **options)
    srl.collect(env, 400, out=tmp_path / "undisturbed", **options)
    assert contents(out) == contents(tmp_path / "undisturbed") and not (tmp_path / "data.partial").exists()
    assert srl.Trajectories.load(out, verify=True).equals(resumed)


def test_sb3_models_collect_reproducibly():
    sb3, contrib = pytest.importorskip("stable_baselines3"), pytest.importorskip("sb3_contrib")
    model = sb3.PPO("MlpPolicy", "CartPole-v1", n_steps=64, seed=0, device="cpu")
    recurrent = contrib.RecurrentPPO("MlpLstmPolicy", "CartPole-v1", n_steps=32, seed=0, device="cpu")
    for player in (model, recurrent):
        data = srl.collect("CartPole-v1", 6, player, seed=2)
        assert srl.collect("CartPole-v1", 6, player, seed=2).equals(data)
        assert data.meta["policy"] == type(player).__name__
        assert 0 < data.actions.mean() < 1, "the policy samples"
    assert len(srl.collect(gym.make_vec("CartPole-v1", 2), 4, model, seed=2)) == 4


def test_recorder_keeps_what_the_user_plays():
    env, plain = srl.Recorder(gym.make(ID, triggers=1, max_steps=6)), gym.make(ID, triggers=1, max_steps=6)
    for action in range(4):
        env.reset(seed=action)
        while not any(env.step(action)[2:4]):
            pass
    env.reset(seed=9)
    env.step(0)
    env.reset(seed=10)
    data = env.trajectories()
    for action, episode in enumerate(data[:4]):
        assert (episode.actions == action).all()
        replay_episode(plain, episode, *plain.reset(seed=action))
    assert len(data) == 5 and data.lengths[4] == 1
    assert not (data[4].terminated or data[4].truncated), "left in the middle"
    assert data.states is not None and "trigger_activated" in data.annotations
    assert data.meta["env_options"] == {"triggers": 1, "max_steps": 6}


def test_progress_is_shown_on_request(capsys):
    for progress, shown in ((True, "50/50"), (False, "")):
        srl.collect(ID, 50, success_share=0.1, progress=progress)
        error = capsys.readouterr().err
        assert shown in error and bool(error) is progress


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((ID, 0), {}, ValueError, "episodes must be at least 1, got 0"),
        ((ID, 5, "greedy"), {}, ValueError, "policy must be \"random\".*got 'greedy'"),
        ((ID, 5, 3.5), {}, TypeError, "policy must be .* got float"),
        ((ID, 5, "random", -1), {}, ValueError, "seed must be a non-negative integer, got -1"),
        ((ID, 5, "random", 0, 1.5), {}, ValueError, r"success_share must lie in \(0, 1\], got 1.5"),
        ((7, 5), {}, TypeError, "env must be an id.*got int"),
        (("Nowhere-v0", 5), {}, gym.error.NameNotFound, "Nowhere"),
        ((ID, 5), {"workers": 0}, ValueError, "workers must be at least 1"),
        ((TriggersEnv(), 5), {"env_options": {"size": 4}}, ValueError, "only apply to an environment id"),
        ((gym.make_vec("CartPole-v1", 2), 5), {"workers": 2}, ValueError, "vector env shares out its own work"),
        ((Large(), 5), {"workers": 2}, ValueError, "can be made again"),
    ],
)
def test_bad_arguments_are_named(arguments, options, error, message):
    with pytest.raises(error, match=message):
        srl.collect(*arguments, **options)
