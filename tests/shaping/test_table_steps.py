"""The short way for tables over whole numbers: what the long way pays, to the bit, and only where it may be taken."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import given
from hypothesis import strategies as st

from secret_rl.envs.triggers import TriggersVectorEnv
from secret_rl.shaping import CoverageWarning, Observed, TablePotential, VectorPotentialShaping
from secret_rl.shaping.side_by_side import SideBySide
from secret_rl.shaping.table_steps import TableSteps
from secret_rl.shaping.terms import Terms, agree

SPACES = gym.spaces.Discrete(3), gym.spaces.Discrete(2)
EXTREME = [-(2**63), -(2**62), -1, 0, 1, 2**31, 2**62, 2**63 - 1]
states = st.one_of(st.integers(-6, 6), st.sampled_from(EXTREME))
endings = st.sampled_from(["on", "terminated", "truncated", "both"])


def terms(table, **options):
    table.watching = False
    settings = {"discount": 0.9, "scale": 0.7, "truncation": "keep", **options}
    return agree(table, **settings, observation_space=SPACES[0], action_space=SPACES[1])


@given(
    table=st.dictionaries(st.integers(-4, 5), st.floats(-2, 2), min_size=1),
    steps=st.lists(
        st.lists(st.tuples(states, states, endings), min_size=3, max_size=3),
        min_size=1, max_size=6,
    ),
    masked=st.booleans(),
    truncation=st.sampled_from(["keep", "zero"]),
    seed=st.integers(0, 100),
)  # fmt: skip
def test_the_short_way_pays_what_the_long_way_does(table, steps, masked, truncation, seed):
    made = terms(TablePotential(table), truncation=truncation)
    short, long = (
        SideBySide(made, 3, gym.spaces.MultiDiscrete([3] * 3), gym.spaces.MultiDiscrete([2] * 3)) for _ in "ab"
    )
    everywhere, rng = np.ones(3, bool), np.random.default_rng(seed)
    for one in (short, long):
        one.begin(everywhere, None, {"state": np.array([0, 1, 2])})
    for step in steps:
        now, last = (np.array([entry[k] for entry in step], np.int64) for k in (0, 1))
        terminated = np.array([entry[2] in ("terminated", "both") for entry in step])
        truncated = np.array([entry[2] in ("truncated", "both") for entry in step])
        ended, rewards = terminated | truncated, rng.normal(size=3)
        infos = {"state": now, **({"_state": everywhere} if masked else {})}
        if ended.any():
            infos["final_info"] = {"state": np.where(ended, last, 99), "_state": ended.copy()}
        paid = short.step_at_once(rewards, terminated, truncated, infos)
        after = long.step(everywhere, None, None, rewards, {"state": np.where(ended, last, now)})
        shaping = long.pay(everywhere, after, terminated, truncated)
        long.begin(ended, None, infos)
        np.testing.assert_array_equal(paid.shaping, shaping)
        np.testing.assert_array_equal(paid.rewards, rewards + shaping)
        for mask, part in ((~ended, paid.going_on), (ended, paid.over)):
            assert (part is None) == (not mask.any())
            if part is not None:
                np.testing.assert_array_equal(part, [mask, np.where(mask, rewards, 0), np.where(mask, shaping, 0)])
        np.testing.assert_array_equal(short._before, long._before)


class Doubled(TablePotential):
    """Answers something else than its table."""


@pytest.mark.parametrize(
    ("potential", "scale"),
    [
        (Doubled({0: 1.0}), 1.0),
        (TablePotential({0: 1.0}, state=Observed()), 1.0),
        (TablePotential({"a": 1.0}), 1.0),
        (TablePotential({0: 1.0, 2**40: 2.0}), 1.0),
        (TablePotential({0: 1e308}), 10.0),  # the long way reports it
    ],
)
def test_other_potentials_go_the_long_way(potential, scale):
    assert TableSteps.of(Terms(potential, 0.9, scale, True)) is None
    assert TableSteps.of(Terms(TablePotential({0: 1.0}), 0.9, 1.0, True)) is not None


@pytest.mark.parametrize(
    "infos",
    [
        {},
        {"state": [0, 1, 2]},
        {"state": np.array([0.0, 1, 2])},
        {"state": np.array([0, 1, 2], np.int32)},
        {"state": np.arange(6)[::2]},
        {"state": np.zeros((3, 2), np.int64)},
        {"state": np.arange(3), "_state": np.array([True, True, False])},
        {"state": np.arange(3), "shaping_reward": np.zeros(3)},
    ],
)
def test_other_infos_go_the_long_way(infos):
    shaping = SideBySide(terms(TablePotential({0: 1.0})), 3, *SPACES)
    none = np.zeros(3, bool)
    assert shaping.step_at_once(np.zeros(3), none, none, infos) is None
    told = {"state": np.arange(3)}
    assert shaping.step_at_once(np.zeros(3), none, none, told) is not None
    ended = np.array([False, True, False])
    assert shaping.step_at_once(np.zeros(3), ended, none, told) is None, "the last states are not told"
    told["final_info"] = {"state": np.arange(3), "_state": np.array([True, False, True])}
    assert shaping.step_at_once(np.zeros(3), ended, none, told) is None


def test_tables_of_another_environment_are_still_reported():
    envs = TriggersVectorEnv(4, size=4, triggers=1, autoreset_mode=AutoresetMode.SAME_STEP)
    env = VectorPotentialShaping(envs, TablePotential({10**6: 1.0}), 0.9)
    env.reset(seed=0)
    for _ in range(6):
        env.step(np.zeros(4, np.int64))
    with pytest.warns(CoverageWarning, match="none of the first"):
        [env.step(np.zeros(4, np.int64)) for _ in range(6)]
