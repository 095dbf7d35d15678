"""Events, functions, and a potential that changes between episodes: no policy becomes better or worse."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.shaping.mdps import MdpEnv, is_clear, measure, random_mdp
from tests.shaping.playing import MODES, changed_states, compare_wrappers

from secret_rl.shaping import (
    ChangingPotential,
    EventCredit,
    GridKey,
    NoPotential,
    PotentialShaping,
    ReplayShaping,
    TablePotential,
)
from secret_rl.testing.shaping import EveryEnding, Everything, OneEnvironment
from secret_rl.trajectories import Recorder

CELLS = GridKey((0.4, 0.4, 1), keys=("place", "cue"))
seeds = st.integers(0, 2**32 - 1)


def places(seed):
    values = np.random.default_rng(seed).normal(size=(18, 18, 4))
    return TablePotential({(x - 9, y - 9, c): values[x, y, c] for x, y, c in np.ndindex(18, 18, 4)}, state=CELLS)


POTENTIALS = [*map(places, range(3)), Everything(), lambda observation, info: info["state"][0] / 3, NoPotential()]


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


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=15)
@given(seeds, st.integers(1, 4), st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), max_size=8))
def test_side_by_side_each_environment_goes_over_at_its_own_start(mode, seed, n, swaps):
    changing = ChangingPotential(POTENTIALS[0])

    def swap(step):
        for when, which in swaps:
            if when == step:
                changing.swap(POTENTIALS[which])

    compare_wrappers(EveryEnding, lambda: changing, mode, seed % 2**31, n=n, steps=30, before_step=swap)


def test_what_does_not_fit_is_refused(tmp_path):
    changing = ChangingPotential(places(0).save(tmp_path / "table.json"))
    PotentialShaping(EveryEnding(), changing, 0.9)
    with pytest.raises(ValueError, match="GridKey.* does not fit"):
        changing.swap(TablePotential({(0, 0): 1.0}, state=GridKey(1.0)))
    with pytest.raises(TypeError, match="is not a potential"):
        changing.swap(3)
    for wrong in (changing.swap, ChangingPotential):
        with pytest.raises(TypeError, match="changes on its own"):
            wrong(changing)
    assert changing.swaps == 0 and changing.present.values == places(0).values


@settings(max_examples=60)
@given(seeds, st.floats(0.3, 0.95), st.integers(2, 4))
def test_optimal_actions_are_the_same_whatever_version_an_episode_has(seed, discount, states):
    """A state of the learner is then (state, version): within an episode the version stays."""
    mdp = random_mdp(seed, states=states, actions=2)
    assume(is_clear(mdp, discount))
    rng = np.random.default_rng(seed)
    versions = [TablePotential(dict(enumerate(rng.normal(0, 2, states).tolist()))) for _ in range(3)]
    changing = ChangingPotential(NoPotential())
    env = PotentialShaping(MdpEnv(mdp), changing, discount)
    for version in versions:
        changing.swap(version)
        assert changed_states(mdp, env, discount) == 0
        met = measure(env)
        expected = version.lookup(np.arange(states))[met.behind]
        q, plain = met.mdp.q_values(discount), mdp.q_values(discount)[met.behind]
        running = ~met.mdp.terminal
        np.testing.assert_allclose(q[running], plain[running] - expected[running, None], atol=1e-8)


def test_events_add_up_to_just_under_the_reward():
    potential = EventCredit("found", amount=0.25)
    phi, other = OneEnvironment(potential), OneEnvironment(potential)
    assert phi.start(0, {}) == 0
    found = [True, False, np.True_, 1, 0, True, True]
    assert [phi.step(0, 0, 0.0, {"found": f}) for f in found] == [0.25, 0.25, 0.5, 0.75, 0.75, 0.95, 0.95]
    assert other.start(0, {}) == 0 and other.step(0, 0, 0.0, {"found": True}) == 0.25
    assert phi.start(0, {}) == 0 and phi.step(0, 0, 9.0, {"found": True}) == 0.25
    with pytest.raises(ValueError, match=r"info has no entry 'found' \(it has \['lost', 'state'\]\)"):
        phi.step(0, 0, 0.0, {"state": 3, "lost": True})
    for options in ({"amount": 0}, {"amount": 1}, {"amount": float("nan")}, {"reward": 0}, {"reward": float("inf")}):
        with pytest.raises(ValueError, match="must be (between 0 and the reward of 1.0|a positive number)"):
            EventCredit("found", **options)
