"""A potential that changes between episodes: one function within each, and no policy becomes better or worse."""

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from secret_rl.agents import QLearning
from secret_rl.envs.tabular import best_return, tabular_of
from secret_rl.envs.triggers import TriggersEnv
from secret_rl.shaping import (
    Cells,
    ChangingPotential,
    NoPotential,
    Observed,
    PotentialShaping,
    ReplayShaping,
    TablePotential,
    VectorPotentialShaping,
)
from secret_rl.testing.mdps import MdpEnv, is_clear, measure, optimal_actions, random_mdp
from secret_rl.testing.shaping import EveryEnding, Everything, RunningSum
from secret_rl.trajectories import Recorder

NORMAL = np.random.default_rng(0).normal(size=4096).tolist()
CELLS = Cells((0.4, 0.4, 1), keys=("place", "cue"))
seeds = st.integers(0, 2**32 - 1)


def places(seed):
    values = np.random.default_rng(seed).normal(size=(18, 18, 4))
    return TablePotential({(x - 9, y - 9, c): values[x, y, c] for x, y, c in np.ndindex(18, 18, 4)}, state=CELLS)


class PerFunction(TablePotential):
    """A table that is asked for one state at a time."""

    def vector(self, n):
        return None


POTENTIALS = [places(0), places(1), places(2), Everything(), PerFunction(places(3).values, state=CELLS), NoPotential()]


@settings(max_examples=40)
@given(seeds, st.lists(st.tuples(st.integers(0, 60), st.integers(0, 5)), max_size=8), st.floats(0.5, 1))
def test_within_an_episode_it_is_one_function(seed, swaps, discount):
    changing = ChangingPotential(POTENTIALS[0])
    recorder = Recorder(EveryEnding())
    env = PotentialShaping(recorder, changing, discount)
    env.action_space.seed(seed)
    paid, began_with, steps = [], [], 0
    for number in range(12):
        env.reset(seed=seed + number)
        began_with.append(changing.present)
        over = False
        while not over:
            for when, which in swaps:
                if when == steps:
                    changing.swap(POTENTIALS[which])
            _, _, terminated, truncated, info = env.step(env.action_space.sample())
            paid.append(info["shaping_reward"])
            over, steps = terminated or truncated, steps + 1
    data = recorder.trajectories()
    for number, potential in enumerate(began_with):
        steps = slice(*data.offsets[number : number + 2])
        expected = ReplayShaping(potential, discount).over(data[number : number + 1])
        np.testing.assert_array_equal(paid[steps], expected)
        # and so it adds up along the episode: what it pays depends on the two ends alone
        total = sum(discount**t * term for t, term in enumerate(paid[steps]))
        own, episode = potential.fresh(), data[number]
        rows = [{name: part[t] for name, part in episode.observations.items()} for t in range(len(episode))]
        rows.append(episode.final_observation)
        infos = [{"state": state} for state in [*episode.states, episode.final_state]]
        values = [own.begin(rows[0], infos[0])]
        for t in range(len(episode)):
            values.append(own.step(episode.actions[t], rows[t + 1], float(episode.rewards[t]), infos[t + 1]))
        end = 0.0 if episode.terminated else discount ** len(episode) * values[-1]
        assert total == pytest.approx(end - values[0], abs=1e-9)


@pytest.mark.parametrize("mode", list(AutoresetMode))
@settings(max_examples=25)
@given(seeds, st.integers(1, 4), st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), max_size=8))
def test_side_by_side_each_environment_goes_over_at_its_own_start(mode, seed, n, swaps):
    first, second = ChangingPotential(POTENTIALS[0]), ChangingPotential(POTENTIALS[0])
    ours = VectorPotentialShaping(SyncVectorEnv([EveryEnding] * n, autoreset_mode=mode), first, 0.9)
    theirs = SyncVectorEnv([lambda: PotentialShaping(EveryEnding(), second, 0.9)] * n, autoreset_mode=mode)
    ours.action_space.seed(seed % 2**31)
    for envs in (ours, theirs):
        envs.reset(seed=seed % 2**31)
    for step in range(30):
        for when, which in swaps:
            if when == step:
                first.swap(POTENTIALS[which])
                second.swap(POTENTIALS[which])
        actions = ours.action_space.sample()
        mine, other = ours.step(actions), theirs.step(actions)
        np.testing.assert_array_equal(mine[1], other[1])
        ended = mine[2] | mine[3]
        if mode is AutoresetMode.DISABLED and ended.any():
            for envs in (ours, theirs):
                envs.reset(options={"reset_mask": ended.copy()})


def test_episodes_that_began_before_and_after_a_swap_run_beside_each_other():
    one, other = (TablePotential({0: 0.0, 1: value}, state=Observed()) for value in (1.0, 2.0))
    changing = ChangingPotential(one)
    changing.check_spaces(gym.spaces.Discrete(2), gym.spaces.Discrete(2))
    several = changing.vector(3)
    first, second = np.array([True, True, False]), np.array([False, False, True])
    several.begin(first, np.zeros(3, int), {})
    changing.swap(other)
    assert several.begin(second, np.ones(3, int), {})[2] == 2.0
    step = np.zeros(3, int), np.ones(3, int), np.zeros(3), {}
    assert several.step(first | second, *step).tolist() == [1.0, 1.0, 2.0]
    several.begin(np.array([True, False, False]), np.zeros(3, int), {})
    assert several.step(first | second, *step).tolist() == [2.0, 1.0, 2.0]
    changing.swap(one)  # back again: the episodes of its first time go on beside those of the second
    several.begin(second, np.zeros(3, int), {})
    assert several.step(first | second, *step).tolist() == [2.0, 1.0, 1.0]
    several.begin(first, np.zeros(3, int), {})
    assert several.step(first | second, *step).tolist() == [1.0, 1.0, 1.0]
    assert len(several._groups) == 1, "potentials that no episode is shaped with any more are let go"
    fresh = changing.vector(2)
    fresh.begin(np.array([True, False]), np.zeros(2, int), {})
    with pytest.raises(RuntimeError, match="no episode has begun"):
        fresh.step(np.array([True, True]), np.zeros(2, int), np.ones(2, int), np.zeros(2), {})


def test_all_copies_follow():
    changing = ChangingPotential(TablePotential({0: 1.0}))
    copies = [changing.fresh(), changing.fresh().fresh()]
    copies[0].begin(None, {"state": 0})
    copies[1].swap(TablePotential({0: 3.0}, reward_bound=4.0))
    assert copies[0].step(0, None, 0.0, {"state": 0}) == 1.0
    assert [one.begin(None, {"state": 0}) for one in (changing, *copies)] == [3.0] * 3
    assert [(one.bound, one.reward_bound, one.swaps) for one in (changing, *copies)] == [(3.0, 4.0, 1)] * 3
    assert "swapped 1 times" in repr(changing)


def test_memories_are_not_shared():
    changing = ChangingPotential(RunningSum({(0, 0): 0.25}, cap=1.0))
    one, other = changing.fresh(), changing.fresh()
    for potential in (one, other):
        potential.begin(None, {"state": 0})
    assert [one.step(0, None, 0.0, {"state": 0}) for _ in range(2)] == [0.25, 0.5]
    assert other.step(0, None, 0.0, {"state": 0}) == 0.25


def test_what_does_not_fit_is_refused(tmp_path):
    changing = ChangingPotential(places(0).save(tmp_path / "table.json"))
    PotentialShaping(EveryEnding(), changing, 0.9)
    with pytest.raises(TypeError, match="Cells.* does not fit"):
        changing.swap(TablePotential({(0, 0): 1.0}, state=Cells(1.0)))
    with pytest.raises(TypeError, match="is not a potential"):
        changing.swap(3)
    with pytest.raises(TypeError, match="changes on its own"):
        changing.swap(changing.fresh())
    with pytest.raises(TypeError, match="changes already"):
        ChangingPotential(changing)
    assert changing.swaps == 0 and changing.present.values == places(0).values
    with pytest.raises(RuntimeError, match="no episode has begun"):
        changing.step(0, {"place": np.zeros(2), "cue": 0}, 0.0, {})


def test_it_has_no_form_as_arrays():
    env = TriggersEnv(size=3, triggers=0, layout_seed=1)
    assert tabular_of(PotentialShaping(env, TablePotential({0: 1.0}), 0.9)) is not None
    assert tabular_of(PotentialShaping(env, ChangingPotential(TablePotential({0: 1.0})), 0.9)) is None


class Versioned(gym.Wrapper):
    """Every episode begins with the version of the potential that ``options`` names, or with the next one."""

    def __init__(self, env, changing, versions):
        super().__init__(env)
        self.changing, self.versions, self.version = changing, versions, 0

    def reset(self, *, seed=None, options=None):
        self.version = (options or {}).get("version", 0)
        self.changing.swap(self.versions[self.version])
        return self.env.reset(seed=seed, options=options)


@settings(max_examples=60)
@given(seeds, st.floats(0.3, 0.95), st.integers(2, 4))
def test_optimal_actions_are_the_same_whatever_version_an_episode_has(seed, discount, states):
    """A state of the learner is then (state, version): within an episode the version stays."""
    mdp = random_mdp(seed, states=states, actions=2)
    assume(is_clear(mdp, discount))
    rng = np.random.default_rng(seed)
    versions = [TablePotential(dict(enumerate(rng.normal(0, 2, states).tolist()))) for _ in range(3)]
    changing = ChangingPotential(versions[0])
    for version in range(3):
        env = Versioned(PotentialShaping(MdpEnv(mdp), changing, discount), changing, versions)
        env.reset = partial(lambda reset, version, *, options: reset(options={**options, "version": version}),
                            env.reset, version)  # fmt: skip
        met = measure(env)
        np.testing.assert_array_equal(optimal_actions(met.mdp, discount), optimal_actions(mdp, discount)[met.behind])
        expected = versions[version].lookup(np.arange(states))[met.behind]
        q, plain = met.mdp.q_values(discount), mdp.q_values(discount)[met.behind]
        running = ~met.mdp.terminal
        np.testing.assert_allclose(q[running], plain[running] - expected[running, None], atol=1e-8)


class Clock:
    """Phi of the state and of the time in the episode: another function at each visit (Devlin and Kudenko 2012)."""

    bound = reward_bound = None

    def __init__(self, values):
        self.values, self.time = values, 0

    def begin(self, observation, info):
        self.time = 0
        return float(self.values[0, info["state"]])

    def step(self, action, observation, reward, info):
        self.time = min(self.time + 1, len(self.values) - 1)
        return float(self.values[self.time, info["state"]])

    def fresh(self):
        return Clock(self.values)


@settings(max_examples=60)
@given(seeds, st.floats(0.3, 0.95), st.integers(2, 4))
def test_optimal_actions_are_the_same_with_the_potential_at_the_time_of_each_visit(seed, discount, states):
    """The most general change: the time is part of the state, and stops at the last version."""
    mdp = random_mdp(seed, states=states, actions=2)
    assume(is_clear(mdp, discount))
    env = PotentialShaping(MdpEnv(mdp), Clock(np.random.default_rng(seed).normal(0, 2, (3, states))), discount)
    met = measure(env, lambda: env.potential.time)
    np.testing.assert_array_equal(optimal_actions(met.mdp, discount), optimal_actions(mdp, discount)[met.behind])


@pytest.mark.parametrize("seed", range(3))
def test_a_learner_finds_the_optimum_once_the_potential_rests(seed):
    """Q-learning while potentials come and go, wild ones too, and then stay: it does what is best in the end."""
    base = TimeLimit(MdpEnv(mdp := random_mdp(seed, states=5, actions=3)), max_episode_steps=30)
    rng = np.random.default_rng(seed)
    changing = ChangingPotential(TablePotential(dict(enumerate(rng.normal(0, 2, 5).tolist()))))

    class Swapping(gym.Wrapper):
        episodes = 0

        def reset(self, *, seed=None, options=None):
            self.episodes += 1
            if self.episodes < 1_500 and self.episodes % 50 == 0:
                changing.swap(TablePotential(dict(enumerate(rng.normal(0, 2, 5).tolist()))))
            # anywhere: a learner has to meet a state to learn it
            first = int(rng.choice(np.flatnonzero(~mdp.terminal)))
            return self.env.reset(seed=seed, options={"state": first})

    learner = QLearning(seed=seed, learning_rate=0.05, epsilon=0.4, discount=0.8)
    agent = learner.learn(Swapping(PotentialShaping(base, changing, 0.8)), 6_000)
    assert changing.swaps == 29
    best = mdp.q_values(0.8)
    for state, values in agent.q.items():
        if not mdp.terminal[state]:
            chosen = int(values.argmax())
            assert best[state, chosen] > best[state].max() - 0.1, (state, values, best[state])


def test_a_maze_is_learned_while_the_potential_changes_and_after():
    env = TriggersEnv(size=4, triggers=1, layout_seed=3)
    plain = env.tabular()
    rng = np.random.default_rng(0)
    changing = ChangingPotential(NoPotential())
    shaped = PotentialShaping(env, changing, 0.99)

    class Swapping(gym.Wrapper):
        episodes = 0

        def reset(self, *, seed=None, options=None):
            self.episodes += 1
            if self.episodes <= 300 and self.episodes % 20 == 0:
                states = range(len(plain.next_states))
                changing.swap(TablePotential({state: float(rng.uniform(0, 0.5)) for state in states}))
            return self.env.reset(seed=seed, options=options)

    curve = QLearning(seed=1, epsilon=0.05).learn(Swapping(shaped), 1_500).curve
    assert changing.swaps == 15
    assert curve.returns[-200:].mean() > 0.85 * best_return(plain, 0.99)
