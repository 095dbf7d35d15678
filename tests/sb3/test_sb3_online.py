"""Online SECRET beside agents of Stable-Baselines3: what reaches them, and that nothing is paid twice or mixed."""

import gymnasium as gym
import numpy as np
import pytest
from tests.quick import quick_fits

sb3 = pytest.importorskip("stable_baselines3")

from stable_baselines3.common.callbacks import BaseCallback  # noqa: E402
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize  # noqa: E402
from tests.experimental.lever import SMALL_FIT, Lever  # noqa: E402
from tests.sb3 import deep_tasks  # noqa: E402
from tests.sb3.deep_tasks import MAZE, TRIGGERS, Interrupt, Interrupted  # noqa: E402

import secret_rl as srl  # noqa: E402
from secret_rl.experimental import OnlineSecret  # noqa: E402
from secret_rl.files import ResumeError  # noqa: E402
from secret_rl.sb3 import ShapedReplayBuffer, train  # noqa: E402
from secret_rl.sb3.callbacks import OnlineSecretCallback  # noqa: E402
from secret_rl.sb3.shaping import shape_with  # noqa: E402
from secret_rl.shaping import ChangingPotential, NoPotential, ReplayShaping  # noqa: E402
from secret_rl.testing.shaping import Everything, OneEnvironment  # noqa: E402

SMALL = deep_tasks.SMALL | {"evaluate_every": 0}
REPLAYED = {
    "learning_starts": 20, "buffer_size": 160, "batch_size": 8, "n_envs": 3, "replay_buffer_class": ShapedReplayBuffer,
    "exploration_final_eps": 0.7, **SMALL,
}  # fmt: skip
ROLLED_OUT = {"n_steps": 8, "batch_size": 8, "n_epochs": 1, "n_envs": 3, **SMALL}


class Marked(Everything):
    """A potential of the whole history that differs from others of another number."""

    def __init__(self, number):
        super().__init__((), seed=number)
        self.number = number


def marked(growth=1.0, last=None, **options):
    """Another potential at every episode, or nearly, without any model."""
    numbers = iter(range(1, 10**6))
    return OnlineSecret(
        lambda secret, data: Marked(next(numbers)), use_credit=False, first=10, growth=growth, last=last,
        min_successes=0, **options,
    )  # fmt: skip


class Remembering(ShapedReplayBuffer):
    """Keeps what it was given, so that another buffer can be given the same."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.given = []
        self.made_with = args, kwargs

    def add(self, *transition):
        self.given.append(tuple(np.array(part) if isinstance(part, np.ndarray) else part for part in transition))
        super().add(*transition)


class AtRolloutEnds(BaseCallback):
    def __init__(self, look):
        super().__init__()
        self.look = look

    def _on_step(self):
        return True

    def _on_rollout_end(self):
        self.look(self.model)


def test_a_replay_buffer_never_holds_two_shapings():
    """Whenever the agent may learn, it is as if the present potential had always been there."""
    online, compared, running = marked(growth=1.1), [], []

    def look(model):
        buffer = model.replay_buffer
        if online.present is None:
            assert not buffer.terms.any()
            return
        assert buffer.shaping.potential is online.present and buffer.shaping.discount == 0.9
        if len(buffer.given) > buffer.buffer_size or len(compared) > 150:
            return  # histories miss what was overwritten
        args, kwargs = buffer.made_with
        other = ShapedReplayBuffer(*args, **kwargs, shaping=ReplayShaping(online.present, 0.9))
        for transition in buffer.given:
            other.add(*transition)
        np.testing.assert_array_equal(buffer.terms, other.terms)
        np.testing.assert_array_equal(buffer._shaped_rewards, other._shaped_rewards)
        np.testing.assert_array_equal(buffer.rewards, other.rewards)
        compared.append(online.present.number)
        running.append(int((buffer.dones[buffer.pos - 1] == 0).sum()))

    callback = OnlineSecretCallback(online)
    options = REPLAYED | {"replay_buffer_class": Remembering, "buffer_size": 600, "train_freq": 1}
    train(
        sb3.DQN, TRIGGERS, 420, env_options=MAZE, gamma=0.9, callback=[callback, AtRolloutEnds(look)], **options
    )  # fmt: skip
    assert len(set(compared)) > 5 and max(running) == 3, "several potentials, and swaps within episodes"
    assert online.history[-1].accepted and callback.history is online.history


def test_shaping_within_an_episode_telescopes_under_swaps():
    online, changing = marked(), ChangingPotential(NoPotential())
    episodes, running = [], [changing.present]

    class Watch(BaseCallback):
        def _on_step(self):
            info = self.locals["infos"][0]
            running.append(info["shaping_reward"])
            if self.locals["dones"][0]:
                episodes.append((running[0], running[1:], info["TimeLimit.truncated"], online.trajectories[-1]))
                running[:] = [changing.present]
            return True

    # The rewards of an episode that are kept are unshaped, or its potential would be another.
    train(
        sb3.PPO, TRIGGERS, 300, env_options=MAZE, shaping=shape_with(changing), gamma=0.9,
        callback=[OnlineSecretCallback(online, changing=changing), Watch()], **ROLLED_OUT | {"n_envs": 1},
    )  # fmt: skip
    assert len({potential.number for potential, *_ in episodes if isinstance(potential, Marked)}) > 8
    assert {truncated for _, _, truncated, _ in episodes} == {True, False}
    for potential, terms, truncated, episode in episodes:
        phi = OneEnvironment(potential)
        first = phi.start(episode.observations[0], {})
        following = [*episode.observations[1:], episode.final_observation]
        steps = zip(episode.actions, following, episode.rewards.tolist(), strict=True)
        last = [phi.step(*step, {}) for step in steps][-1]
        end = 0.9 ** len(terms) * last if truncated else 0.0
        assert sum(0.9**t * term for t, term in enumerate(terms)) == pytest.approx(end - first)
        assert set(episode.rewards.tolist()) <= {-1.0, 0.0, 1.0}


@pytest.mark.parametrize("way", ["replay", "rollouts"])
def test_episodes_are_those_that_were_played(way):
    """All of them, from each environment, states and ends included; also when ``learn`` is called again."""
    online, played = marked(growth=50), []

    class Played(BaseCallback):
        def _on_step(self):
            played.extend(info["episode"] for info in self.locals["infos"] if "episode" in info)
            return True

    callbacks = [OnlineSecretCallback(online, changing=changing(way)), Played()]
    model, _ = train(*agent(way), 150, env_options=MAZE, gamma=0.9, callback=callbacks, **shaped(way, callbacks[0]))
    model.learn(60, callbacks, reset_num_timesteps=False)  # the episodes that were running go on
    data = online.trajectories
    assert data.lengths.tolist() == [int(e["l"]) for e in played]
    assert data.returns.tolist() == [float(e["r"]) for e in played]
    assert (data.terminated | data.truncated)[data.offsets[1:] - 1].all()
    assert data.truncated.any() and data.terminated.any()
    assert data.states is not None
    env = srl.Recorder(gym.make(TRIGGERS, **MAZE))
    for episode in data:  # the maze and its start are always the same: playing the actions again gives the rest
        env.reset()
        for action in episode.actions.tolist():
            env.step(action)
    again = env.trajectories()
    np.testing.assert_array_equal(again.observations, data.observations)
    np.testing.assert_array_equal(again.final_observations, data.final_observations)
    np.testing.assert_array_equal(again.states, data.states)
    np.testing.assert_array_equal(again.final_states, data.final_states)
    np.testing.assert_array_equal(again.rewards, data.rewards)


@pytest.mark.parametrize("way", ["replay", "rollouts"])
def test_credit_is_learned_from_scratch_while_an_agent_learns(way, monkeypatch, tmp_path):
    quick_fits(monkeypatch, updates=300, batch=512)
    kind = "learned" if way == "replay" else "pending"
    options = {"potential_options": {"steps": 60}} if way == "replay" else {}
    online = OnlineSecret(kind, first=150, growth=10, secret_options=SMALL_FIT, **options)
    callback = OnlineSecretCallback(online, changing=changing(way))
    more = shaped(way, callback) | ({"exploration_final_eps": 1.0} if way == "replay" else {"ent_coef": 10.0})
    algorithm, _ = agent(way)
    model, _ = train(
        algorithm, lambda: Lever(vector=True), 900, gamma=0.9, callback=callback, tensorboard=tmp_path, **more
    )
    [refit] = callback.history
    assert refit.accepted and refit.history_gain > 0.2
    assert callback._installed() is online.present
    logged = model.logger.name_to_value
    assert logged["secret/refits"] == 1 or any(tmp_path.iterdir())
    if way == "replay":
        assert (model.replay_buffer.terms != 0).any() and model.replay_buffer.shaping_discount == 0.9


@pytest.mark.parametrize("way", ["replay", "rollouts"])
def test_an_interrupted_training_goes_on_with_the_credit_it_had(way, tmp_path):
    kind = "learned value" if way == "replay" else "value"
    small = {"potential_options": {"steps": 20}} if way == "replay" else {}

    def go(name, *more):
        online = OnlineSecret(kind, first=10, growth=1.4, min_successes=1, keep=40, **small)
        callback = OnlineSecretCallback(online, changing=changing(way), folder=tmp_path / f"{name}-credit")
        model, curve = train(
            *agent(way), 432, env_options=MAZE, gamma=0.9, folder=tmp_path / name, checkpoint_every=144,
            callback=[callback, *more], **shaped(way, callback) | {"evaluate_every": 72},
        )  # fmt: skip
        return model, curve, callback

    whole, curve, watched = go("whole")
    for step in (192, 384):
        with pytest.raises(Interrupted):
            go("parts", Interrupt(step))
    again, other, resumed = go("parts")
    assert sum(refit.accepted for refit in watched.history) > 3

    histories = [[(r.episodes, r.successes, r.accepted, r.reason) for r in c.history] for c in (watched, resumed)]
    assert histories[0] == histories[1]
    for name, tensor in whole.policy.state_dict().items():
        assert (tensor == again.policy.state_dict()[name]).all(), name
    np.testing.assert_array_equal(curve.returns, other.returns)
    np.testing.assert_array_equal(curve.training_shaped_returns, other.training_shaped_returns)
    if way == "replay":
        np.testing.assert_array_equal(whole.replay_buffer.terms, again.replay_buffer.terms)


def test_a_folder_of_another_training_is_refused(tmp_path):
    def go(folder, first=10):
        online = OnlineSecret("learned value", first=first, potential_options={"steps": 5}, min_successes=0)
        callback = OnlineSecretCallback(online, folder=tmp_path / folder)
        return train(
            sb3.DQN, TRIGGERS, 144, env_options=MAZE, folder=tmp_path / "agent", checkpoint_every=72,
            callback=[callback, *([Interrupt(120)] if folder == "one" else [])], **REPLAYED,
        )  # fmt: skip

    with pytest.raises(Interrupted):
        go("one")
    with pytest.raises(ResumeError, match="nothing of 72 steps"):
        go("other")
    (tmp_path / "one").rename(tmp_path / "two")
    with pytest.raises(ResumeError, match="first was 10, now 20"):
        go("two", first=20)
    go("two")
    with pytest.raises(TypeError, match="cannot be kept in a folder"):
        train(
            sb3.DQN, TRIGGERS, 150, env_options=MAZE, gamma=0.9,
            callback=OnlineSecretCallback(marked(), folder=tmp_path / "three"), **REPLAYED,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "given", "words"),
    [
        ({"replay_buffer_class": None}, {}, "ReplayBuffer, keeps rewards.*ShapedReplayBuffer"),
        ({"shaping": shape_with(NoPotential())}, {}, "environments are shaped, and the replay buffer would be too"),
        ({}, {"changing": ChangingPotential(NoPotential())}, "not shaped: give shaping=shape_with"),
        ({}, {"online": OnlineSecret("pending")}, 'table over info."state".*potential="learned"'),
        ({"shaping": lambda envs, _: VecNormalize(envs)}, {}, "VecNormalize changes what the agent observes"),
    ],
)
def test_what_is_not_set_up_is_named(options, given, words):
    callback = OnlineSecretCallback(**{"online": marked(), **given})
    with pytest.raises(ValueError, match=words):
        train(sb3.DQN, TRIGGERS, 30, env_options=MAZE, callback=callback, **REPLAYED | options)


def test_what_is_not_set_up_without_a_replay_buffer_is_named():
    with pytest.raises(ValueError, match="cannot reach the agent.*shape_with\\(changing\\)"):
        train(sb3.PPO, TRIGGERS, 30, env_options=MAZE, callback=OnlineSecretCallback(marked()), **ROLLED_OUT)
    with pytest.raises(TypeError, match="must be a ChangingPotential"):
        OnlineSecretCallback(marked(), changing=NoPotential())
    potential = ChangingPotential(NoPotential())
    envs = shape_with(potential)(DummyVecEnv([Lever]), 0.5)
    model = sb3.PPO("MlpPolicy", envs, n_steps=8, batch_size=8, gamma=0.9, device="cpu")
    with pytest.raises(ValueError, match="another discount than the agent's, 0.9"):
        model.learn(8, OnlineSecretCallback(marked(), changing=potential))


def changing(way):
    return None if way == "replay" else ChangingPotential(NoPotential())


def agent(way):
    return (sb3.DQN if way == "replay" else sb3.PPO), TRIGGERS


def shaped(way, callback):
    return REPLAYED if way == "replay" else ROLLED_OUT | {"shaping": shape_with(callback.changing)}
