"""Events, functions, and a potential that changes between episodes: no policy becomes better or worse."""

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.shaping.playing import compare

from secret_rl.agents import QLearning
from secret_rl.envs.tabular import best_return, tabular_of
from secret_rl.envs.triggers import TriggersEnv, TriggersVectorEnv
from secret_rl.shaping import (
    Batch,
    Cells,
    ChangingPotential,
    EventCredit,
    NoPotential,
    Observed,
    PotentialShaping,
    ReplayShaping,
    TablePotential,
    VectorPotentialShaping,
)
from secret_rl.shaping.core import load_potential
from secret_rl.testing.mdps import MdpEnv, is_clear, measure, optimal_actions, random_mdp
from secret_rl.testing.shaping import EveryEnding, Everything, OneEnvironment
from secret_rl.trajectories import Recorder

NORMAL = np.random.default_rng(0).normal(size=4096).tolist()
CELLS = Cells((0.4, 0.4, 1), keys=("place", "cue"))
seeds = st.integers(0, 2**32 - 1)


def places(seed):
    values = np.random.default_rng(seed).normal(size=(18, 18, 4))
    return TablePotential({(x - 9, y - 9, c): values[x, y, c] for x, y, c in np.ndindex(18, 18, 4)}, state=CELLS)


POTENTIALS = [
    places(0),
    places(1),
    places(2),
    Everything(),
    lambda observation, info: info["state"][0] / 3,
    NoPotential(),
]


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
        own, episode = OneEnvironment(load_potential(potential)), data[number]
        rows = [{name: part[t] for name, part in episode.observations.items()} for t in range(len(episode))]
        rows.append(episode.final_observation)
        infos = [{"state": state} for state in [*episode.states, episode.final_state]]
        values = [own.start(rows[0], infos[0])]
        for t in range(len(episode)):
            values.append(own.step(episode.actions[t], rows[t + 1], float(episode.rewards[t]), infos[t + 1]))
        end = 0.0 if episode.terminated else discount ** len(episode) * values[-1]
        assert total == pytest.approx(end - values[0], abs=1e-9)


@pytest.mark.parametrize("mode", list(AutoresetMode))
@settings(max_examples=15)
@given(seeds, st.integers(1, 4), st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), max_size=8))
def test_side_by_side_each_environment_goes_over_at_its_own_start(mode, seed, n, swaps):
    first, second = ChangingPotential(POTENTIALS[0]), ChangingPotential(POTENTIALS[0])
    ours = VectorPotentialShaping(SyncVectorEnv([EveryEnding] * n, autoreset_mode=mode), first, 0.9)
    theirs = SyncVectorEnv([lambda: PotentialShaping(EveryEnding(), second, 0.9)] * n, autoreset_mode=mode)

    def swap(step):
        for when, which in swaps:
            if when == step:
                first.swap(POTENTIALS[which])
                second.swap(POTENTIALS[which])

    compare(ours, theirs, seed % 2**31, 30, mode, before_step=swap)


def test_episodes_that_began_before_and_after_a_swap_run_beside_each_other():
    one, other = (TablePotential({0: 0.0, 1: value}, state=Observed()) for value in (1.0, 2.0))
    changing = ChangingPotential(one)
    carry, none = changing.init(3), np.zeros(3, bool)

    def ask(starts):
        nonlocal carry
        starts = np.isin(np.arange(3), starts)
        carry, _ = changing.step(carry, Batch(starts, none, np.zeros(3, int)))
        carry, phi = changing.step(carry, Batch(none, ~none, np.ones(3, int)))
        return phi.tolist()

    assert ask([0, 1, 2]) == [1.0, 1.0, 1.0]
    changing.swap(other)
    assert ask([2]) == [1.0, 1.0, 2.0]
    assert ask([0]) == [2.0, 1.0, 2.0]
    changing.swap(one)  # back again: the episodes of its first time go on beside those of the second
    assert ask([2]) == [2.0, 1.0, 1.0]
    assert ask([0, 1]) == [1.0, 1.0, 1.0]
    assert len(carry) == 1, "potentials that no episode is shaped with any more are let go"
    assert (changing.bound, changing.reward_bound, changing.swaps) == (1.0, None, 2)
    assert "swapped 2 times" in repr(changing)


def test_what_does_not_fit_is_refused(tmp_path):
    changing = ChangingPotential(places(0).save(tmp_path / "table.json"))
    PotentialShaping(EveryEnding(), changing, 0.9)
    with pytest.raises(TypeError, match="Cells.* does not fit"):
        changing.swap(TablePotential({(0, 0): 1.0}, state=Cells(1.0)))
    with pytest.raises(TypeError, match="is not a potential"):
        changing.swap(3)
    for wrong in (changing.swap, ChangingPotential):
        with pytest.raises(TypeError, match="changes on its own"):
            wrong(changing)
    assert changing.swaps == 0 and changing.present.values == places(0).values


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

    def __init__(self, values):
        self.values = values

    def init(self, n):
        return np.zeros(n, int)

    def step(self, carry, batch):
        carry = np.where(batch.starts, 0, np.minimum(carry + batch.steps, len(self.values) - 1))
        return carry, self.values[carry, batch.entry("state").astype(int)]


@settings(max_examples=60)
@given(seeds, st.floats(0.3, 0.95), st.integers(2, 4))
def test_optimal_actions_are_the_same_with_the_potential_at_the_time_of_each_visit(seed, discount, states):
    """The most general change: the time is part of the state, and stops at the last version."""
    mdp = random_mdp(seed, states=states, actions=2)
    assume(is_clear(mdp, discount))
    env = PotentialShaping(MdpEnv(mdp), Clock(np.random.default_rng(seed).normal(0, 2, (3, states))), discount)
    met = measure(env, lambda: int(env._shaper._carry[0]))
    np.testing.assert_array_equal(optimal_actions(met.mdp, discount), optimal_actions(mdp, discount)[met.behind])


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


def test_events_add_up_to_just_under_the_reward():
    potential = EventCredit("found", amount=0.25)
    phi, other = OneEnvironment(potential), OneEnvironment(potential)
    assert phi.start(0, {}) == 0
    found = [True, False, np.True_, 1, 0, True, True]
    assert [phi.step(0, 0, 0.0, {"found": f}) for f in found] == [0.25, 0.25, 0.5, 0.75, 0.75, 0.95, 0.95]
    assert other.start(0, {}) == 0 and other.step(0, 0, 0.0, {"found": True}) == 0.25
    assert phi.step(0, 0, 0.0, {"found": False}) == 0.95, "the other one counts for itself"
    assert phi.start(0, {}) == 0 and phi.step(0, 0, 9.0, {"found": True}) == 0.25
    rich = EventCredit("found", amount=2, reward=4)
    assert (rich.bound, rich.reward_bound) == (3.8, 4.0)
    with pytest.raises(ValueError, match=r"info says nothing of 'found' \(it has \['lost', 'state'\]\)"):
        phi.step(0, 0, 0.0, {"state": 3, "lost": True})
    for amount in (0, -1, 1, 2, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="amount must lie between 0 and the reward of 1.0"):
            EventCredit("found", amount=amount)
    for reward in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="reward"):
            EventCredit("found", amount=0.1, reward=reward)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_events_side_by_side_are_one_by_one(mode):
    options = {"size": 4, "triggers": 2, "max_steps": 20}
    potential = EventCredit("trigger_activated", amount=0.4)
    ours = VectorPotentialShaping(TriggersVectorEnv(4, **options, autoreset_mode=mode), potential, 0.9)
    theirs = SyncVectorEnv([lambda: PotentialShaping(TriggersEnv(**options), potential, 0.9)] * 4, autoreset_mode=mode)
    ended, paid = compare(ours, theirs, 2, 80, mode)
    assert ended > 8 and paid > 2
