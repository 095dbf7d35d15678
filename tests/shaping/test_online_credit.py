"""Potentials of the history: credit added up step by step, alone or side by side, stepped or compiled."""

import json
import warnings
import zlib
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.quick import quick_fits
from tests.sealing import change_json

import secret_rl as srl
from secret_rl.agents import QLearning, learn_many
from secret_rl.credit import NotFittedError, Secret
from secret_rl.credit.secret.readout import Queries
from secret_rl.envs.tabular import tabular_of
from secret_rl.envs.triggers import TriggersEnv, TriggersVectorEnv
from secret_rl.files import FileFormatError
from secret_rl.shaping import (
    CoverageWarning,
    EventCredit,
    NoCreditPaidWarning,
    NotCreditWarning,
    Observed,
    OnlineCredit,
    PotentialShaping,
    TablePotential,
    VectorPotentialShaping,
    pairs,
)
from secret_rl.shaping.states import canonical
from secret_rl.testing.shaping import EveryEnding
from secret_rl.testing.strategies import trajectories, triggers_options
from secret_rl.trajectories.nested import map_arrays

MODES = list(AutoresetMode)


def plain(nest):
    """An element of a space as a key, whatever its dtypes and the order of its entries."""
    if isinstance(nest, dict):
        return tuple((name, plain(nest[name])) for name in sorted(nest))
    return tuple(map(plain, nest)) if isinstance(nest, tuple) else canonical(nest)


def row(nest, i):
    return map_arrays(lambda array: array[i], nest)


class HashedCredit:
    """Credit that any pair has, in sixteenths from 0 to 15/16, and how often it was asked for."""

    def __init__(self):
        self.asked = []  # rows of each call

    def of(self, observation, action):
        return self.of_keys(plain(observation), plain(action))

    def of_keys(self, observation, action):
        return zlib.crc32(repr((observation, action)).encode()) % 16 / 16

    def step_credit(self, observations, actions):
        leaf = actions
        while not isinstance(leaf, np.ndarray):
            leaf = next(iter(leaf.values())) if isinstance(leaf, dict) else leaf[0]
        self.asked.append(len(leaf))
        return np.array([self.of(row(observations, i), row(actions, i)) for i in range(len(leaf))])


class Arrays(gym.Env):
    """Tuple observations and a box of actions; it writes every observation into the same arrays."""

    observation_space = gym.spaces.Tuple((gym.spaces.Discrete(2), gym.spaces.Box(0, 1, (2,), np.float64)))
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self):
        self._seen = np.zeros(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._seen[:] = self.np_random.integers(0, 2, 2)
        return (int(self.np_random.integers(2)), self._seen), {}

    def step(self, action):
        observation, info = self.reset()
        reward, over = self.np_random.integers(-1, 2), self.np_random.random() < 0.1
        return observation, float(reward), bool(over), False, info


def maze(**options):
    return TriggersEnv(**{"size": 4, "triggers": 2, "layout_seed": 3, "max_steps": 25, **options})


WORLDS = {"dict": EveryEnding, "arrays": Arrays, "maze": maze}
OPTIONS = {
    "threshold": st.sampled_from([0.0, 0.1, 0.5]),
    "scale": st.sampled_from([0.3, 0.07, 1.0]),
    "reward": st.sampled_from([1.0, 2.5, 0.1]),
    "cap": st.sampled_from([0.95, 0.4, 1.0]),
    "reset_on_reward": st.booleans(),
    "repeat": st.booleans(),
}
options_of_credit = st.fixed_dictionaries(OPTIONS)


def expected(credit, steps, threshold, scale, reward, cap=0.95, reset_on_reward=False, repeat=False):
    """Phi after each of some (observation, action, reward) steps, written out."""
    total, answers, earned = 0.0, [], set()
    for observation, action, paid in steps:
        share = credit(observation, action)
        if share > threshold and (repeat or (observation, action) not in earned):
            total += scale * reward * share
            earned.add((observation, action))
        if reset_on_reward and paid > 0:
            total = 0.0
            earned.clear()
        answers.append(min(total, cap * reward))
    return answers


def play(env, potential, seed, length):
    """The steps of one episode, and what the potential answered; the first is what it answered at the start."""
    observation, info = env.reset(seed=seed)
    env.action_space.seed(seed)
    steps, answers = [], [potential.begin(observation, info)]
    for _ in range(length):
        before, action = plain(observation), env.action_space.sample()
        observation, reward, terminated, truncated, info = env.step(action)
        steps.append((before, plain(action), float(reward)))
        answers.append(potential.step(action, observation, float(reward), info))
        if terminated or truncated:
            break
    return steps, answers


@pytest.fixture(scope="module")
def secret():
    """A real model of a real maze, small and quickly trained; it finds switches more often than not."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    data = srl.collect(
        "secret_rl/Triggers-v0", 600, env_options={"triggers": 1, "size": 5}, success_share=0.5, seed=0
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        quick_fits(patch)
        fitted = Secret(units=32, steps=250, batch_size=64, evaluate_every=125, learning_rate=3e-3, device="cpu").fit(
            data
        )
    torch.set_num_threads(threads)
    return fitted


@pytest.mark.parametrize("world", WORLDS)
@settings(max_examples=60)
@given(options=options_of_credit, seed=st.integers(0, 2**31))
def test_phi_is_the_credit_so_far_scaled_and_capped(world, options, seed):
    credit = HashedCredit()
    potential = OnlineCredit(credit, **options)
    for episode in range(2):  # nothing is left of the first in the second
        steps, (first, *answers) = play(WORLDS[world](), potential, seed + episode, 30)
        assert first == 0
        assert answers == expected(credit.of_keys, steps, **options), "bit for bit"
        assert max(answers) <= options["cap"] * options["reward"] == potential.bound
    assert potential.reward_bound == options["reward"]


class Says:
    """Always the same credit."""

    def __init__(self, value):
        self.value = value

    def step_credit(self, observations, actions):
        return np.full(len(actions), self.value)


def after_steps(potential, count, reward=0.0):
    """The same pair again and again."""
    potential.begin(0, {})
    return [potential.step(0, 0, reward, {}) for _ in range(count)]


def test_worked_by_hand():
    def repeating(credit, **options):
        return OnlineCredit(Says(credit), repeat=True, **options)

    assert after_steps(repeating(0.5, scale=0.5), 5) == [0.25, 0.5, 0.75, 0.95, 0.95]
    assert after_steps(repeating(0.5, scale=0.5, cap=0.5, reward=2), 3) == [0.5, 1.0, 1.0]
    assert after_steps(repeating(0.1), 2) == [0, 0], "what is not above the threshold is dropped"
    assert after_steps(repeating(0.11, scale=1), 2) == [0.11, 0.22]
    assert after_steps(repeating(0.0, threshold=0), 2) == [0, 0]
    potential = repeating(0.5, scale=0.5, reset_on_reward=True)
    assert after_steps(potential, 2) == [0.25, 0.5]
    assert [potential.step(0, 0, r, {}) for r in (0.0, 1.0, -1.0, 0.0)] == [0.75, 0, 0.25, 0.5]
    assert after_steps(repeating(0.5, scale=0.5), 2, reward=1.0) == [0.25, 0.5]


def test_a_pair_earns_once_an_episode():
    potential = OnlineCredit(Says(0.5), scale=0.5)
    assert after_steps(potential, 3) == after_steps(potential, 3) == [0.25] * 3, "and again in the next episode"
    assert potential.step(1, 0, 0.0, {}) == 0.5, "another action is another pair"
    assert [potential.step(0, seen, 0.0, {}) for seen in (7, 0, 7)] == [0.5, 0.75, 0.75], "so is another observation"
    anew = OnlineCredit(Says(0.5), scale=0.5, reset_on_reward=True)
    assert after_steps(anew, 2) == [0.25, 0.25]
    assert [anew.step(0, 0, r, {}) for r in (1.0, 0.0, 0.0)] == [0, 0.25, 0.25], "once between two rewards"


def test_what_never_repeats_is_paid_each_time_unless_a_view_drops_it():
    """A clock makes every pair a new one; without it, they repeat."""
    for view, answers in ((None, [0.25, 0.5, 0.75]), (srl.DropView(("clock",), squeeze=True), [0.25] * 3)):
        potential = OnlineCredit(Says(0.5), scale=0.5, observation=view)
        potential.begin({"place": 3, "clock": 0}, {})
        assert [potential.step(0, {"place": 3, "clock": t}, 0.0, {}) for t in (1, 2, 3)] == answers


def test_the_defaults_keep_the_total_under_the_reward():
    assert OnlineCredit(Says(1.0)).options == {
        "threshold": 0.1, "scale": 0.3, "reward": 1.0, "cap": 0.95, "reset_on_reward": False, "repeat": False,
        "warn_after": 100,
    }  # fmt: skip
    assert max(after_steps(OnlineCredit(Says(1.0), repeat=True), 900)) == 0.95
    assert repr(OnlineCredit(Says(1.0), scale=0.2)).startswith("OnlineCredit(threshold=0.1, scale=0.2, reward=1.0")


def test_a_fresh_one_has_a_memory_of_its_own():
    credit = HashedCredit()
    options = {"threshold": 0.0, "scale": 0.02, "cap": 0.5, "reward": 2.0}
    first = OnlineCredit(credit, **options)
    second, alone = first.fresh(), OnlineCredit(credit, **options)
    assert second is not first and (second.options, second.bound) == (first.options, first.bound)
    for potential in (first, second, alone):
        potential.begin(0, {})
    mine = []
    for t in range(20):
        first.step(t % 3, t, 0.0, {})
        mine.append(second.step(1, t * t, 0.0, {}))
    assert mine == [alone.step(1, t * t, 0.0, {}) for t in range(20)]
    with pytest.raises(RuntimeError, match=r"no episode has begun: .* begin\(observation, info\)"):
        first.fresh().step(0, 0, 0.0, {})


def test_what_a_pair_is_worth_does_not_hang_on_the_order_of_its_entries():
    """An environment may list the entries of a dict otherwise than its space does; batches follow the space."""
    credit = HashedCredit()
    potential = OnlineCredit(credit, threshold=0, scale=0.1)
    potential.begin({"b": 1, "a": 2}, {})
    assert potential.step(0, {"b": 1, "a": 2}, 0.0, {}) == 0.1 * credit.of({"a": 2, "b": 1}, 0)
    other = potential.fresh()
    other.begin({"a": 1, "b": 2}, {})
    assert other.step(0, {"a": 1, "b": 2}, 0.0, {}) == 0.1 * credit.of({"a": 1, "b": 2}, 0)
    assert credit.of({"a": 1, "b": 2}, 0) != credit.of({"a": 2, "b": 1}, 0)


def assert_same_play(ours, theirs, seed, steps, mode):
    """Rewards and what infos say of them are the same, to the bit; how many episodes ended."""
    assert ours.metadata["autoreset_mode"] is mode
    for env in (ours, theirs):
        env.reset(seed=seed)
    ours.action_space.seed(seed)
    ended, paid = 0, 0.0
    for _ in range(steps):
        actions = ours.action_space.sample()
        (_, mine, over, cut, infos), (_, other, *_, other_infos) = ours.step(actions), theirs.step(actions)
        np.testing.assert_array_equal(mine, other)
        for name in ("shaping_reward", "env_reward", "_shaping_reward"):
            assert (name in infos) == (name in other_infos)
            if name in infos:
                np.testing.assert_array_equal(infos[name], other_infos[name])
        paid += np.abs(infos.get("shaping_reward", 0)).sum()
        ended += int((over | cut).sum())
        if mode is AutoresetMode.DISABLED and (over | cut).any():
            for env in (ours, theirs):
                env.reset(options={"reset_mask": (over | cut).copy()})
    return ended, paid


shaping = {"seed": st.integers(0, 2**31), "n": st.integers(1, 4), "truncation": st.sampled_from(["keep", "zero"])}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("world", WORLDS)
@settings(max_examples=8)
@given(options=options_of_credit, **shaping)
def test_side_by_side_is_one_by_one(world, mode, options, seed, n, truncation):
    make, terms = WORLDS[world], {"discount": 0.9, "truncation": truncation}
    theirs = SyncVectorEnv(
        [lambda: PotentialShaping(make(), OnlineCredit(HashedCredit(), **options), **terms)] * n, autoreset_mode=mode
    )
    ours = SyncVectorEnv([make] * n, autoreset_mode=mode)
    ours = VectorPotentialShaping(ours, OnlineCredit(HashedCredit(), **options), **terms)
    assert_same_play(ours, theirs, seed, 40, mode)


def test_environments_that_show_the_same_array_again_and_again():
    options = {"threshold": 0.0, "scale": 0.05}
    ours = VectorPotentialShaping(SyncVectorEnv([maze] * 3, copy=False), OnlineCredit(HashedCredit(), **options), 0.9)
    theirs = SyncVectorEnv([lambda: PotentialShaping(maze(), OnlineCredit(HashedCredit(), **options), 0.9)] * 3)
    assert assert_same_play(ours, theirs, 4, 60, AutoresetMode.NEXT_STEP)[1] > 1


def test_only_the_environments_that_are_asked_about_count():
    """Rows outside of the mask hold leftovers."""
    sums = OnlineCredit(Says(0.5), scale=0.5, reset_on_reward=True, repeat=True).vector(3)
    rows, everyone = np.zeros(3, int), np.ones(3, bool)
    assert sums.begin(everyone, rows, {}).tolist() == [0, 0, 0]
    assert sums.step(everyone, rows, rows, np.zeros(3), {}).tolist() == [0.25] * 3
    answers = sums.step(np.array([True, False, False]), rows, rows, np.array([0.0, 1.0, 0.0]), {})
    assert answers[0] == 0.5
    assert sums.step(everyone, rows, rows, np.zeros(3), {}).tolist() == [0.75, 0.5, 0.5]
    sums.begin(np.array([False, True, False]), rows, {})
    assert sums.step(everyone, rows, rows, np.array([0.0, 0.0, 1.0]), {}).tolist() == [0.95, 0.25, 0.0]


def test_environments_remember_each_their_own_pairs():
    sums = OnlineCredit(Says(0.5), scale=0.5).vector(3)
    rows, everyone = np.zeros(3, int), np.ones(3, bool)
    sums.begin(everyone, rows, {})
    one = np.array([False, True, False])
    assert sums.step(one, rows, rows, np.zeros(3), {})[1] == 0.25
    assert sums.step(everyone, rows, rows, np.zeros(3), {}).tolist() == [0.25] * 3
    sums.begin(one, rows, {})
    assert sums.step(everyone, rows, rows, np.zeros(3), {}).tolist() == [0.25] * 3
    assert sums.step(everyone, np.array([0, 0, 1]), rows, np.zeros(3), {}).tolist() == [0.25, 0.25, 0.5]


@pytest.mark.parametrize("mode", MODES)
def test_a_real_model_side_by_side_is_one_by_one(secret, mode):
    options = {"size": 5, "triggers": 1, "max_steps": 30}
    potential = OnlineCredit(secret, threshold=0.02)
    theirs = SyncVectorEnv(
        [lambda: PotentialShaping(TriggersEnv(**options), OnlineCredit(secret, threshold=0.02), 0.99)] * 5,
        autoreset_mode=mode,
    )
    ours = VectorPotentialShaping(TriggersVectorEnv(5, **options, autoreset_mode=mode), potential, 0.99)
    ended, paid = assert_same_play(ours, theirs, 7, 100, mode)
    assert ended > 10 and paid > 1


def test_observations_from_a_function_are_asked_for_one_at_a_time():
    credit = HashedCredit()

    def potential():
        return OnlineCredit(credit, threshold=0, observation=lambda observation, info: (observation["cue"],))

    steps, (_, *answers) = play(EveryEnding(), potential(), 3, 20)
    of_cues = [((dict(observation)["cue"],), action, reward) for observation, action, reward in steps]
    assert answers == expected(credit.of_keys, of_cues, 0.0, 0.3, 1.0)
    assert potential().vector(3) is None
    for mode in MODES:
        ours = VectorPotentialShaping(SyncVectorEnv([EveryEnding] * 3, autoreset_mode=mode), potential(), 0.9)
        theirs = SyncVectorEnv(
            [lambda: PotentialShaping(EveryEnding(), potential(), 0.9)] * 3, autoreset_mode=mode
        )  # fmt: skip
        assert assert_same_play(ours, theirs, 5, 40, mode)[0] > 3


def assert_same_curve(one, other):
    np.testing.assert_array_equal(one.curve.returns, other.curve.returns)
    np.testing.assert_array_equal(one.curve.lengths, other.curve.lengths)


@settings(max_examples=15)
@given(
    triggers_options(fixed=True),
    st.fixed_dictionaries({**OPTIONS, "reset_on_reward": st.just(False)}),
    st.sampled_from([1.0, 0.3, 0.77]),
    st.sampled_from(["keep", "zero"]),
    st.integers(0, 2**32),
)
def test_a_compiled_learner_learns_what_a_stepping_one_does(options, credit, scale, truncation, seed):
    shaped = PotentialShaping(
        TriggersEnv(**vars(options)), OnlineCredit(HashedCredit(), **credit), 0.97, scale=scale, truncation=truncation
    )
    stepped = gym.Wrapper(shaped)  # may change anything, for all the learner knows
    assert tabular_of(shaped) is not None and tabular_of(stepped) is None
    learner = QLearning(seed=seed, discount=0.97, learning_rate=0.3)
    assert_same_curve(learner.learn(shaped, 10), learner.learn(stepped, 10))
    assert_same_values(shaped, 10, seed)


def assert_same_values(shaped, episodes, seed):
    """What is learned of each state is the same to the bit: curves tell of it only where another action is chosen."""
    learner = QLearning(seed=seed, learning_rate=0.3, discount=shaped.shaping_discount)
    compiled, stepping = learner.learn(shaped, episodes), learner.learn(gym.Wrapper(shaped), episodes)
    for state, values in stepping.q.items():
        np.testing.assert_array_equal(compiled.q[state], values)


@pytest.mark.parametrize("repeat", [False, True])
def test_a_real_model_teaches_a_compiled_learner_what_it_teaches_a_stepping_one(secret, repeat):
    env = TriggersEnv(size=5, triggers=1, layout_seed=4)
    for scale in (1.0, 0.3):
        shaped = PotentialShaping(env, OnlineCredit(secret, threshold=0.02, repeat=repeat), 0.99, scale=scale)
        agent = QLearning(seed=1).learn(shaped, 60)
        assert_same_curve(agent, QLearning(seed=1).learn(gym.Wrapper(shaped), 60))
        assert_same_values(shaped, 30, seed=2)
    unshaped = QLearning(seed=1).learn(env, 60)
    assert not np.array_equal(agent.curve.returns, unshaped.curve.returns), "the shaping matters"


@pytest.mark.parametrize("repeat", [False, True])
def test_many_compiled_learners_remember_each_their_own_pairs(repeat):
    """Beside tasks without such a memory."""
    envs = [maze(layout_seed=seed, max_steps=60) for seed in range(4)]
    shaped = [
        PotentialShaping(env, OnlineCredit(HashedCredit(), scale=0.1, repeat=repeat if i else not repeat), 0.97)
        for i, env in enumerate(envs)
    ]
    models, shapings = zip(*map(tabular_of, (*shaped, envs[0])), strict=True)
    curves, _ = learn_many(models, range(9), 12, shapings, discount=0.97, learning_rate=0.3)
    for env, curve in zip((*shaped, envs[0]), curves, strict=True):
        for seed in range(9):
            learner = QLearning(seed=seed, discount=0.97, learning_rate=0.3)
            np.testing.assert_array_equal(curve[seed], learner.learn(gym.Wrapper(env), 12).curve.returns)


@pytest.mark.parametrize("repeat", [False, True])
def test_pairs_share_rows_of_credit_in_compiled_learners(repeat):
    potential = OnlineCredit(HashedCredit(), repeat=repeat)
    model, shaping = tabular_of(PotentialShaping(maze(max_steps=5000), potential, 0.9, scale=0.5))
    assert shaping.pairs.shape == model.next_states.shape and shaping.cap == 0.95 and shaping.scale == 0.5
    assert shaping.once is not repeat
    if repeat:
        assert len(shaping.credit) <= 16, "pairs of the same credit share a row"
    else:
        assert 16 < len(shaping.credit) < shaping.pairs.size, "equal pairs share a row"
        assert (shaping.credit[1:] > 0).all(), "and all that earn nothing"


def test_no_arrays_of_sums_that_start_anew_or_of_observations_from_a_function():
    for potential in (
        OnlineCredit(HashedCredit(), reset_on_reward=True),
        OnlineCredit(HashedCredit(), observation=lambda observation, info: info["state"]),
    ):
        shaped = PotentialShaping(maze(), potential, 0.99)
        with pytest.raises(AttributeError, match="no form as arrays"):
            shaped.tabular_shaping(maze().tabular())
        assert tabular_of(shaped) is None
        assert len(QLearning().learn(shaped, 3).curve.returns) == 3


@pytest.mark.filterwarnings("ignore::secret_rl.shaping.CoverageWarning")
@settings(max_examples=40)
@given(trajectories(), options_of_credit, st.sampled_from(["states", "function"]))
def test_the_table_is_the_mean_over_visits(data, options, source):
    assume(data.states is not None or source == "function")
    credit = HashedCredit()
    potential = OnlineCredit(credit, **options)
    state = None if source == "states" else lambda observation, info: len(repr(plain(observation))) % 3
    found = {}
    for episode in data:
        running = potential.fresh()
        seen = [row(episode.observations, t) for t in range(len(episode))]
        last = episode.final_observation if state or episode.final_state is not None else None
        states = [] if state else [*episode.states.tolist(), *([] if last is None else [episode.final_state])]
        seen += [] if last is None else [last]
        for t, observation in enumerate(seen):
            if t == 0:
                phi = running.begin(observation, {})
            else:
                phi = running.step(row(episode.actions, t - 1), observation, float(episode.rewards[t - 1]), {})
            found.setdefault(state(observation, {}) if state else states[t], []).append(phi)
    table = potential.table(data, state=state)
    assert isinstance(table, TablePotential) and table.reward_bound == options["reward"]
    assert dict(table.values) == pytest.approx({key: np.mean(v) for key, v in found.items()}, abs=1e-9)


def test_a_table_needs_trajectories_but_no_rewards():
    data = srl.collect("secret_rl/Triggers-v0", 5, env_options={"layout_seed": 1}, seed=0)
    potential = OnlineCredit(HashedCredit(), threshold=0)
    table = potential.table(data)
    unpaid = srl.Trajectories(**{**vars(data), "rewards": np.zeros(data.steps)})
    assert potential.table(unpaid).values == table.values and table.bound > 0
    with pytest.raises(ValueError, match="no trajectories were given"):
        potential.table(data[:0])
    with pytest.raises(ValueError, match="hold no states"):
        potential.table(srl.Trajectories(**{**vars(data), "states": None, "final_states": None}))


@settings(max_examples=30)
@given(options_of_credit, st.integers(0, 2**31), st.floats(0.5, 1))
def test_over_an_episode_shaping_adds_up_to_nothing(options, seed, discount):
    env = PotentialShaping(EveryEnding(), OnlineCredit(HashedCredit(), **options), discount, truncation="zero")
    env.reset(seed=seed)
    env.action_space.seed(seed)
    total, t, over = 0.0, 0, False
    while not over:
        _, _, terminated, truncated, info = env.step(env.action_space.sample())
        total += discount**t * info["shaping_reward"]
        t, over = t + 1, terminated or truncated
    assert total == pytest.approx(0, abs=1e-9), "Phi is 0 at both ends"


def test_a_step_costs_the_same_whatever_came_before():
    """Each new pair is asked for once and alone; no step makes the model look at earlier ones."""
    credit = HashedCredit()
    potential = OnlineCredit(credit)
    rng = np.random.default_rng(0)
    potential.begin(rng.random(3), {})
    for _ in range(900):
        potential.step(0, rng.random(3), 0.0, {})
    assert credit.asked == [1] * 900
    known = rng.random(3)
    potential.begin(known, {})
    for _ in range(900):
        potential.step(0, known, 0.0, {})
    assert credit.asked == [1] * 901


def test_pairs_that_come_again_are_not_asked_for_again():
    credit = HashedCredit()
    env = PotentialShaping(maze(max_steps=900), OnlineCredit(credit), 0.99)
    pairs = set()
    observation, _ = env.reset(seed=0)
    env.action_space.seed(0)
    for _ in range(2000):
        action = int(env.action_space.sample())
        pairs.add((observation.tobytes(), action))
        observation, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            observation, _ = env.reset()
    assert sum(credit.asked) == len(pairs) < 300


def test_side_by_side_asks_once_a_step_and_for_equal_pairs_once():
    credit = HashedCredit()
    envs = VectorPotentialShaping(
        TriggersVectorEnv(50, size=4, triggers=2, layout_seed=3), OnlineCredit(credit), 0.99
    )  # fmt: skip
    envs.reset(seed=0)
    for step in range(30):
        envs.step(np.full(50, step % 4))
        assert len(credit.asked) <= step + 1
    assert credit.asked[0] == 1, "all start alike in a fixed maze"


def test_no_more_pairs_than_there_is_room_for_are_remembered(monkeypatch):
    monkeypatch.setattr(pairs, "_REMEMBERED", 7)
    for world, make in WORLDS.items():
        credit = HashedCredit()
        potential = OnlineCredit(credit, threshold=0, scale=0.01)
        steps, (_, *answers) = play(make(), potential, 11, 40)
        assert answers == expected(credit.of_keys, steps, 0.0, 0.01, 1.0), world
        assert len(potential._known.known) <= 7
    ours = VectorPotentialShaping(SyncVectorEnv([maze] * 4), OnlineCredit(HashedCredit()), 0.9)
    theirs = SyncVectorEnv([lambda: PotentialShaping(maze(), OnlineCredit(HashedCredit()), 0.9)] * 4)
    assert_same_play(ours, theirs, 3, 60, AutoresetMode.NEXT_STEP)


def test_pictures_are_not_kept_whole():
    potential = OnlineCredit(HashedCredit())
    rng = np.random.default_rng(0)
    potential.begin(rng.integers(0, 255, (84, 84, 3), np.uint8), {})
    for _ in range(5):
        potential.step(0, rng.integers(0, 255, (84, 84, 3), np.uint8), 0.0, {})
    assert len(potential._known.known) == 5
    assert sum(map(len, potential._known.known)) < 1000


def test_options_come_back_from_a_file(tmp_path):
    options = {
        "threshold": 0.25, "scale": 0.5, "reward": 3.0, "cap": 0.5, "reset_on_reward": True, "repeat": True,
        "warn_after": None,
    }  # fmt: skip
    credit = HashedCredit()
    path = OnlineCredit(credit, **options).save(tmp_path / "online.json")
    again = OnlineCredit.load(path, credit)
    assert again.options == options and again.bound == 1.5
    assert again._secret is credit
    assert json.loads(path.read_text())["options"] == options
    assert [p.name for p in tmp_path.iterdir()] == ["online.json"]
    with pytest.raises(ValueError, match="cannot be saved: keep it in your code"):
        OnlineCredit(credit, observation=lambda observation, info: observation).save(tmp_path / "no.json")


CANNOT = r"online\.json cannot be read as 'secret-rl online credit': "


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "secret-rl table potential"}, "it says format 'secret-rl table potential'"),
        ({"version": 2}, "it has format version 2, this library reads 1"),
        ({"version": None}, "it has format version None"),
        ({"options": None}, "not iterable"),
        ({"options": [1]}, r"it has the options \[1\]"),
        ({"options": {"threshold": 0.2}}, "it has the options"),
        ({"observation": "os.system"}, ""),
        *(
            ({"options": {**OnlineCredit(Says(1)).options, **change}}, message)
            for change, message in (
                ({"layers": 3}, "it has the options .*'layers'"),
                ({"secret": None}, "it has the options .*'secret'"),
                ({"observation": "os.system"}, "it has the options .*'observation'"),
                ({"threshold": "0.1"}, "'0.1' is not a finite number"),
                ({"threshold": None}, "None is not a finite number"),
                ({"scale": 10**400}, "too large"),
                ({"reward": [1]}, r"\[1\] is not a finite number"),
                ({"reward": -1}, "reward must be a positive number"),
                ({"cap": 2}, "cap must lie"),
                ({"cap": True}, "True is not a finite number"),
                ({"reset_on_reward": "no"}, "reset_on_reward is 'no'"),
                ({"reset_on_reward": 1}, "reset_on_reward is 1"),
                ({"repeat": None}, "repeat is None"),
                ({"warn_after": 0}, "warn_after must be"),
                ({"warn_after": 2.5}, "warn_after must be"),
                ({"warn_after": True}, "warn_after must be"),
            )
        ),
    ],
)
def test_tampered_files_are_refused(tmp_path, change, message):
    """Also where the checksum is made to match."""
    path = OnlineCredit(Says(1.0)).save(tmp_path / "online.json")
    change_json(path, lambda content: content.update(change))
    with pytest.raises(FileFormatError, match=CANNOT + f".*{message}"):
        OnlineCredit.load(path, Says(1.0))


@pytest.mark.parametrize("entry", ["options", "observation"])
def test_files_that_lack_an_entry_are_refused(tmp_path, entry):
    path = OnlineCredit(Says(1.0)).save(tmp_path / "online.json")
    change_json(path, lambda content: content.pop(entry))
    with pytest.raises(FileFormatError, match=CANNOT + f".*{entry}"):
        OnlineCredit.load(path, Says(1.0))


@pytest.mark.parametrize(("name", "number"), [("scale", "NaN"), ("reward", "Infinity"), ("cap", "-Infinity")])
def test_numbers_that_are_none_are_refused(tmp_path, name, number):
    path = OnlineCredit(Says(1.0)).save(tmp_path / "online.json")
    content = json.loads(path.read_text())
    content["options"][name] = float(number)
    path.write_text(json.dumps(content))
    with pytest.raises(FileFormatError, match=CANNOT + f"it holds the number {number}"):
        OnlineCredit.load(path, Says(1.0))


def test_what_was_changed_by_accident_is_refused(tmp_path):
    path = OnlineCredit(Says(1.0)).save(tmp_path / "online.json")
    path.write_text(path.read_text().replace("0.95", "0.85"))
    with pytest.raises(FileFormatError, match=CANNOT + "it does not match its checksum"):
        OnlineCredit.load(path, Says(1.0))


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe\x00", b"[]", b"3", b"null", b"[" * 100_000, b"{}", b"1" * 5000]
)
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "online.json"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=CANNOT):
        OnlineCredit.load(path, Says(1.0))


def test_every_truncated_file_is_refused(tmp_path):
    path = OnlineCredit(Says(1.0)).save(tmp_path / "online.json")
    whole = path.read_bytes()
    for length in range(len(whole) - 1):  # the last one is a line break
        path.write_bytes(whole[:length])
        with pytest.raises(FileFormatError, match=CANNOT):
            OnlineCredit.load(path, Says(1.0))


def test_missing_and_other_potentials_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.json"):
        OnlineCredit.load(tmp_path / "nowhere.json", Says(1.0))
    path = TablePotential({0: 1.0}).save(tmp_path / "table.json")
    with pytest.raises(FileFormatError, match="secret-rl table potential"):
        OnlineCredit.load(path, Says(1.0))
    with pytest.raises(FileFormatError, match="secret-rl online credit"):
        TablePotential.load(OnlineCredit(Says(1.0)).save(path))


def test_other_spaces_are_refused_when_an_environment_is_wrapped(secret):
    potential = OnlineCredit(secret)
    PotentialShaping(TriggersEnv(size=9), potential, 0.99)  # another maze, the same view
    with pytest.raises(ValueError, match=r"fitted on observations of .*\[3, 3, 3\].* there are .*\[5, 5, 3\]"):
        PotentialShaping(TriggersEnv(window=5), potential, 0.99)
    with pytest.raises(ValueError, match="fitted on observations"):
        VectorPotentialShaping(TriggersVectorEnv(2, window=5), potential, 0.99)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        PotentialShaping(TriggersEnv(), OnlineCredit(Secret(device="cpu")), 0.99)
    middle = OnlineCredit(secret, observation=lambda observation, info: observation[1:-1, 1:-1])
    env = PotentialShaping(TriggersEnv(window=5, layout_seed=2), middle, 0.99)
    same = PotentialShaping(TriggersEnv(window=3, layout_seed=2), OnlineCredit(secret), 0.99)
    for shaped in (env, same):
        shaped.reset(seed=0)
    assert [env.step(a % 4)[1] for a in range(20)] == [same.step(a % 4)[1] for a in range(20)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 1}, r"threshold must lie in \[0, 1\), got 1"),
        ({"threshold": -0.1}, "got -0.1"),
        ({"threshold": float("nan")}, "got nan"),
        ({"scale": 0}, "scale must be a positive number, got 0"),
        ({"scale": float("inf")}, "scale must be a positive number, got inf"),
        ({"reward": -1}, "reward must be a positive number, got -1"),
        ({"reward": float("nan")}, "got nan"),
        ({"cap": 0}, r"cap must lie in \(0, 1\]: a share of the reward, got 0"),
        ({"cap": 1.1}, "got 1.1"),
        ({"warn_after": 0}, "warn_after must be an integer of at least 1, got 0"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        OnlineCredit(Says(1.0), **options)


def test_something_that_gives_no_credit_is_refused():
    for other in (None, "model.safetensors", object()):
        with pytest.raises(TypeError, match="expected a fitted Secret, or an object with step_credit"):
            OnlineCredit(other)


def episodes_of(potential, count, steps=3):
    """Warnings that so many episodes give."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(count):
            after_steps(potential, steps)
        potential.begin(0, {})
    return [str(w.message) for w in caught if w.category is NoCreditPaidWarning]


def test_a_potential_that_pays_nothing_says_so_once():
    potential = OnlineCredit(Says(0.0625))
    assert episodes_of(potential, 99) == []
    [message] = episodes_of(potential, 1)
    assert message == (
        "no step of the first 100 episodes (300 steps) earned anything, so nothing is shaped: the largest step credit "
        "is 0.0625, and what is not above the threshold of 0.1 is dropped; see in secret.report whether the model "
        "learned credit, give with observation= the view that it was fitted on, or lower threshold"
    )
    assert episodes_of(potential, 300) == episodes_of(potential.fresh(), 300) == []
    assert len(episodes_of(OnlineCredit(Says(0.0), warn_after=7), 7)) == 1
    assert episodes_of(OnlineCredit(Says(0.0), warn_after=None), 300) == []
    assert episodes_of(OnlineCredit(Says(0.5)), 300) == []
    assert episodes_of(OnlineCredit(Says(0.0)), 300, steps=0) == [], "nothing was played"


def test_copies_count_together():
    potential = OnlineCredit(Says(0.0), warn_after=10)
    copies = [potential.fresh() for _ in range(3)]
    assert [len(episodes_of(copy, 4)) for copy in copies] == [0, 0, 1]
    paid = OnlineCredit(Says(0.5), warn_after=10)
    after_steps(paid.fresh(), 1)
    assert not paid._watch.on


def test_environments_side_by_side_count_together():
    potential = OnlineCredit(Says(0.0), warn_after=5)
    sums, rows, everyone = potential.vector(2), np.zeros(2, int), np.ones(2, bool)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):  # the third goes on
            sums.begin(everyone, rows, {})
            sums.step(everyone, rows, rows, np.zeros(2), {})
            sums.step(np.array([True, False]), rows, rows, np.zeros(2), {})
    with pytest.warns(NoCreditPaidWarning, match=r"first 5 episodes \(8 steps\)"):
        sums.begin(np.array([True, False]), rows, {})
    assert episodes_of(potential, 9) == []
    paying = OnlineCredit(Says(0.5), warn_after=5)
    sums = paying.vector(2)
    sums.begin(everyone, rows, {})
    sums.step(everyone, rows, rows, np.zeros(2), {})
    assert not paying._watch.on


@pytest.mark.parametrize("mode", MODES)
def test_a_wrapped_environment_counts_its_episodes(mode):
    envs = TriggersVectorEnv(4, size=4, triggers=2, max_steps=5, autoreset_mode=mode)
    envs = VectorPotentialShaping(envs, OnlineCredit(Says(0.0), warn_after=30), 0.9)
    envs.reset(seed=0)
    ended = 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        while not caught:
            over = np.logical_or(*envs.step(envs.action_space.sample())[2:4])
            before, ended = ended, ended + int(over.sum())
            if mode is AutoresetMode.DISABLED and over.any():
                envs.reset(options={"reset_mask": over.copy()})
    assert before <= 30 + 4 and ended >= 30


def test_a_finite_task_in_which_no_pair_pays_is_noticed_at_once():
    potential = OnlineCredit(Says(0.05))
    shaped = PotentialShaping(maze(), potential, 0.99)
    with pytest.warns(NoCreditPaidWarning, match=r"none of the [\d,]+ pairs of this task earns .* is 0\.05"):
        tabular_of(shaped)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tabular_of(shaped)
        tabular_of(PotentialShaping(maze(), OnlineCredit(HashedCredit()), 0.99))


class Judged(Says):
    def __init__(self, verdict):
        super().__init__(0.5)
        self.report = SimpleNamespace(verdict=verdict)


@pytest.mark.parametrize("verdict", ["not learned", "past not needed"])
def test_a_model_that_did_not_learn_credit_gives_a_warning(tmp_path, verdict):
    with pytest.warns(NotCreditWarning, match=f"verdict on this model is '{verdict}'.* read secret.report, fit again"):
        potential = OnlineCredit(Judged(verdict))
    path = potential.save(tmp_path / "online.json")
    with pytest.warns(NotCreditWarning):
        OnlineCredit.load(path, Judged(verdict))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        potential.fresh()
        for fine in (Judged("credit"), Says(0.5), SimpleNamespace(step_credit=Says(1).step_credit, report=None)):
            OnlineCredit(fine)


def test_events_add_up_to_just_under_the_reward():
    potential = EventCredit("found", amount=0.25)
    assert potential.begin(None, {}) == 0
    found = [True, False, np.True_, 1, 0, True, True]
    assert [potential.step(0, None, 0.0, {"found": f}) for f in found] == [0.25, 0.25, 0.5, 0.75, 0.75, 0.95, 0.95]
    other = potential.fresh()
    assert other.begin(None, {}) == 0 and other.step(0, None, 0.0, {"found": True}) == 0.25
    assert potential.step(0, None, 0.0, {"found": False}) == 0.95, "the other one counts for itself"
    assert potential.begin(None, {}) == 0 and potential.step(0, None, 9.0, {"found": True}) == 0.25
    rich = EventCredit("found", amount=2, reward=4)
    assert (rich.bound, rich.reward_bound, rich.fresh().bound) == (3.8, 4.0, 3.8)
    with pytest.raises(ValueError, match=r"info tells nothing of 'found' \(it has \['lost', 'state'\]\)"):
        potential.step(0, None, 0.0, {"state": 3, "lost": True})


@pytest.mark.parametrize("amount", [0, -1, 1, 2, float("nan"), float("inf")])
def test_an_event_is_worth_less_than_the_reward(amount):
    with pytest.raises(ValueError, match="amount must lie between 0 and the reward of 1.0"):
        EventCredit("found", amount=amount)


@pytest.mark.parametrize("reward", [0, -1, float("nan"), float("inf")])
def test_the_reward_of_events_is_a_number(reward):
    with pytest.raises(ValueError, match="reward"):
        EventCredit("found", amount=0.1, reward=reward)


@pytest.mark.parametrize("mode", MODES)
def test_events_side_by_side_are_one_by_one(mode):
    options = {"size": 4, "triggers": 2, "max_steps": 20}
    potential = EventCredit("trigger_activated", amount=0.4)
    ours = VectorPotentialShaping(TriggersVectorEnv(4, **options, autoreset_mode=mode), potential, 0.9)
    theirs = SyncVectorEnv(
        [lambda: PotentialShaping(TriggersEnv(**options), potential, 0.9)] * 4, autoreset_mode=mode
    )  # fmt: skip
    ended, paid = assert_same_play(ours, theirs, 2, 80, mode)
    assert ended > 8 and paid > 2


def test_a_table_over_observations_knows_where_they_come_from(secret):
    maze_options = {"size": 5, "triggers": 1, "layout_seed": 4}
    data = srl.collect("secret_rl/Triggers-v0", 30, env_options=maze_options, seed=0)
    table = OnlineCredit(secret).table(data, state=Observed())
    assert isinstance(table.state, Observed)
    env = PotentialShaping(TriggersEnv(size=5, triggers=1, layout_seed=4), table, 0.99)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CoverageWarning)
        env.reset(seed=0)
        assert all(np.isfinite(env.step(a % 4)[1]) for a in range(40))


class HashedTransitions(HashedCredit):
    """Credit that depends on what a step led to as well."""

    transitions = True

    def step_credit(self, observations, actions, next_observations):
        seen = map_arrays(lambda one, then: np.stack([one, then], 1), observations, next_observations)
        return super().step_credit(seen, actions)


@pytest.mark.parametrize("repeat", [False, True])
def test_a_model_of_transitions_is_given_what_steps_led_to(repeat):
    potential = OnlineCredit(HashedTransitions(), threshold=0.3, scale=0.05, repeat=repeat)
    shaped = PotentialShaping(maze(), potential, 0.97)
    learner = QLearning(seed=1, discount=0.97, learning_rate=0.3)
    assert_same_curve(learner.learn(shaped, 10), learner.learn(gym.Wrapper(shaped), 10))
    assert_same_values(shaped, 10, seed=1)
    data = srl.collect(maze(), 6, seed=2, progress=False)
    paid = srl.ReplayShaping(potential, 0.97).over(data)  # side by side
    found = {}
    for e, episode in enumerate(data):
        alone, seen = potential.fresh(), [*episode.observations, episode.final_observation]
        states = [*episode.states.tolist(), episode.final_state]
        phis = [alone.begin(seen[0], {})]
        for t in range(len(episode)):
            phis.append(alone.step(episode.actions[t], seen[t + 1], float(episode.rewards[t]), {}))
        for state, phi in zip(states, phis, strict=True):
            found.setdefault(state, []).append(phi)
        after = [*phis[1:-1], 0.0 if episode.terminated else phis[-1]]
        terms = 0.97 * np.array(after) - np.array(phis[:-1])
        np.testing.assert_allclose(paid[data.offsets[e] : data.offsets[e + 1]], terms, atol=1e-12)
    assert max(map(max, found.values())) > 0
    table = potential.table(data).values
    assert {k: table[k] for k in found} == pytest.approx({k: np.mean(v) for k, v in found.items()}, abs=1e-9)


@pytest.mark.filterwarnings("ignore::UserWarning")  # so short a fit is warned of
def test_a_fitted_model_of_transitions_shapes(monkeypatch):
    quick_fits(monkeypatch)
    data = srl.collect("secret_rl/Triggers-v0", 60, env_options={"triggers": 1, "size": 3}, success_share=0.5, seed=0)
    secret = Secret(transitions=True, steps=40, units=16, learning_rate=0.01, device="cpu").fit(data, progress=False)
    if secret.queries is None:
        secret.queries = Queries(torch.ones(1, 16), torch.zeros(1))
    shaped = PotentialShaping(TriggersEnv(size=3, triggers=1, layout_seed=1), OnlineCredit(secret, threshold=0), 0.99)
    assert_same_curve(QLearning(seed=1).learn(shaped, 5), QLearning(seed=1).learn(gym.Wrapper(shaped), 5))
