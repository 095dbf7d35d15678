"""Stored steps are paid what the wrapper paid for them, to the bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.shaping.playing import PLACES, STATES

from secret_rl.shaping import (
    NoPotential,
    ObservationKey,
    PotentialRangeWarning,
    PotentialShaping,
    ReplayShaping,
    TablePotential,
    replay,
)
from secret_rl.testing.shaping import EveryEnding, Everything
from secret_rl.trajectories import Recorder, Trajectories
from secret_rl.trajectories.nested import stack

FUNCTION = TablePotential({0: 1.0, 1: -0.3, 2: 0.7}, state=lambda observation, info: int(observation["cue"]))
terms_of_shaping = {
    "discount": st.floats(0.1, 1),
    "scale": st.sampled_from([1.0, 0.3]),
    "truncation": st.sampled_from(["keep", "zero"]),
}


def played(env, potential, seed, episodes, *, cut=None, **terms):
    """Trajectories of random play, with what the wrapper paid; every third episode is left after ``cut`` steps."""
    recorder = Recorder(env)
    shaped = PotentialShaping(recorder, potential, **terms)
    shaped.action_space.seed(seed)
    paid = []
    for number in range(episodes):
        shaped.reset(seed=seed + number)
        over, steps = False, 0
        while not over and (cut is None or number % 3 or steps < cut):
            _, _, terminated, truncated, info = shaped.step(shaped.action_space.sample())
            paid.append(info["shaping_reward"])
            over, steps = terminated or truncated, steps + 1
    recorder.reset()
    return recorder.trajectories(), np.array(paid)


POTENTIALS = [TablePotential(STATES), PLACES, FUNCTION, Everything(), NoPotential()]


@pytest.mark.parametrize("potential", POTENTIALS, ids=lambda potential: type(potential).__name__)
@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**31),
    episodes=st.integers(1, 12),
    cut=st.none() | st.integers(1, 3),
    at_a_time=st.sampled_from([1, 3, 4096]),
    **terms_of_shaping,
)
def test_trajectories_are_paid_what_the_wrapper_paid(potential, seed, episodes, cut, at_a_time, **terms):
    data, paid = played(EveryEnding(), potential, seed, episodes, cut=cut, **terms)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "_EPISODES_AT_A_TIME", at_a_time)
        np.testing.assert_array_equal(ReplayShaping(potential, **terms).over(data), paid, strict=True)


def transitions(make, seed, n, steps):
    """Random play in n environments that reset on their own, as (started, arguments of a step) one after the other."""
    envs, rng = [make() for _ in range(n)], np.random.default_rng(seed)
    space = envs[0].observation_space
    seen = [env.reset(seed=seed + i)[0] for i, env in enumerate(envs)]
    started = np.ones(n, bool)
    for _ in range(steps):
        actions = rng.integers(0, int(envs[0].action_space.n), n)
        results = [env.step(int(action)) for env, action in zip(envs, actions, strict=True)]
        following, rewards, terminated, truncated, infos = (list(column) for column in zip(*results, strict=True))
        ends = np.array(terminated), np.array(truncated)
        yield started, stack(space, seen), actions, stack(space, following), np.array(rewards, float), *ends, infos
        started = ends[0] | ends[1]
        seen = [env.reset()[0] if over else new for env, over, new in zip(envs, started, following, strict=True)]


WITHOUT_INFOS = [PLACES, FUNCTION, Everything(()), NoPotential()]


@pytest.mark.parametrize("potential", WITHOUT_INFOS, ids=lambda potential: type(potential).__name__)
@settings(max_examples=25)
@given(seed=st.integers(0, 2**31), n=st.integers(1, 4), listed=st.booleans(), **terms_of_shaping)
def test_transitions_are_paid_as_they_arrive(potential, seed, n, listed, **terms):
    ours = ReplayShaping(potential, **terms)
    theirs = [PotentialShaping(EveryEnding(), potential, **terms) for _ in range(n)]
    for i, env in enumerate(theirs):
        env.reset(seed=seed + i)
    for started, *step, infos in transitions(EveryEnding, seed, n, 30):
        paid = ours.step(started, *step, infos if listed else {})
        results = [env.step(int(action)) for env, action in zip(theirs, step[1], strict=True)]
        np.testing.assert_array_equal(paid, [result[4]["shaping_reward"] for result in results])
        for env, result in zip(theirs, results, strict=True):
            if result[2] or result[3]:
                env.reset()


def test_a_clone_pays_with_another_potential_and_the_same_terms():
    data, _ = played(EveryEnding(), PLACES, 1, 8, discount=0.9)
    first = ReplayShaping(PLACES, 0.9, scale=0.5, truncation="zero")
    other = first.clone_with(FUNCTION)
    expected = ReplayShaping(FUNCTION, 0.9, scale=0.5, truncation="zero")
    np.testing.assert_array_equal(other.over(data), expected.over(data))
    assert (other.discount, other.scale, other.potential) == (0.9, 0.5, FUNCTION)
    assert not np.array_equal(other.over(data), first.over(data))
    large, small = (TablePotential({0: value}, state=ObservationKey(), reward_bound=1.0) for value in (4.0, 1.0))
    fitted = ReplayShaping(large, 0.9, scale="fit")
    assert (fitted.scale, fitted.clone_with(small).scale) == (0.25, 1.0)


def test_what_cannot_be_known_is_refused():
    none = np.zeros(2, bool)
    step = (np.zeros(2, int), np.zeros(2, int), np.ones(2, int), np.zeros(2), none, none)
    with pytest.raises(ValueError, match="state= made of observations"):
        ReplayShaping(TablePotential({0: 1.0}), 0.9).step(~none, *step)
    shaping = ReplayShaping(TablePotential({0: 1.0}, state=ObservationKey()), 0.9)
    with pytest.raises(ValueError, match="no episode has begun in environment 1"):
        shaping.step([True, False], *step)
    shaping.step(~none, *step[:-2], np.array([True, False]), none)
    with pytest.raises(ValueError, match="no episode has begun in environment 0"):
        shaping.step(none, *step)
    with pytest.raises(ValueError, match="discount must be"):
        ReplayShaping(PLACES, 1.5)
    with pytest.raises(TypeError, match="is not a potential"):
        ReplayShaping(PLACES, 0.9).clone_with(0.3)
    with pytest.warns(PotentialRangeWarning) as warned:
        ReplayShaping(TablePotential({0: 2.0}, reward_bound=1.0), 0.9)
    assert warned[0].filename == __file__


def test_missing_ends_matter_only_where_potentials_do():
    def data(terminated, truncated=False):
        episode = {
            "observations": np.array([0, 1, 2]), "actions": np.zeros(3, int), "rewards": np.zeros(3),
            "states": np.array([0, 1, 2]), "terminated": terminated, "truncated": truncated,
        }  # fmt: skip
        return Trajectories.from_episodes([episode])

    values = {0: 0.25, 1: 0.5, 2: 1.0}
    observed = ReplayShaping(TablePotential(values, state=ObservationKey()), 1.0)
    for shaping in (observed, ReplayShaping(TablePotential(values), 1.0)):
        assert shaping.over(data(True)).tolist() == [0.25, 0.5, -1.0]
        with pytest.raises(ValueError, match="no final observations, and episode 0 did not terminate"):
            shaping.over(data(False))
    cut = ReplayShaping(observed.potential, 1.0, truncation="zero")
    assert cut.over(data(False, truncated=True)).tolist() == [0.25, 0.5, -1.0]
