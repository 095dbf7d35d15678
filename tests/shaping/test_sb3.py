"""Stable-Baselines3: its vector environments shaped as single ones are, and its algorithms at work through them."""

import numpy as np
import pytest
from tests.shaping.playing import NORMAL, PLACES, assert_same

from secret_rl.envs.triggers import TriggersEnv
from secret_rl.shaping import PotentialShaping, TablePotential
from secret_rl.testing.shaping import EveryEnding, Everything, RunningSum

sb3 = pytest.importorskip("stable_baselines3")

from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack  # noqa: E402

from secret_rl.sb3.shaping import PotentialShapingVecEnv  # noqa: E402

MAZE = {"size": 3, "triggers": 1, "layout_seed": 4, "max_steps": 9}

WORLDS = {
    "maze, sum": (lambda: TriggersEnv(**MAZE), RunningSum({(s, s % 4): 0.25 for s in range(36)}, cap=0.9)),
    "every ending, cells": (EveryEnding, PLACES),
    "every ending, function": (
        EveryEnding,
        TablePotential({0: 1.0, 1: 0.5}, state=lambda seen, info: int(seen["cue"]) % 2 + 2 * ("luck" in info)),
    ),
    "every ending, history": (EveryEnding, Everything(("state", "luck"))),
}


# the environments' rewards go through 32 bits before they are shaped, or after
ROUNDING = {"rtol": 1e-5, "atol": 1e-6}


def compare(ours, theirs, steps, n):
    for env in (ours, theirs):
        env.seed(7)
    assert_same(ours.reset(), theirs.reset(), "reset", **ROUNDING)
    ours.action_space.seed(0)
    ended = truncated = 0
    for step in range(steps):
        actions = np.array([ours.action_space.sample() for _ in range(n)])
        mine, other = ours.step(actions), theirs.step(actions)
        assert_same(mine, other, f"step {step}", **ROUNDING)
        assert mine[1].dtype == np.float32
        ended += int(mine[2].sum())
        truncated += sum(info["TimeLimit.truncated"] for info in mine[3])
    return ended, truncated


@pytest.mark.parametrize("truncation", ["keep", "zero"])
@pytest.mark.parametrize("name", WORLDS)
def test_wrap_then_vectorise_is_vectorise_then_wrap(name, truncation):
    make, potential = WORLDS[name]
    terms = {"discount": 0.9, "scale": 0.5, "truncation": truncation}
    ours = PotentialShapingVecEnv(DummyVecEnv([make] * 3), potential, **terms)
    theirs = DummyVecEnv([lambda: PotentialShaping(make(), potential, **terms)] * 3)
    ended, truncated = compare(ours, theirs, 80, 3)
    assert ended > truncated > 0


def test_stacked_frames_are_seen_whole_at_the_end():
    """The last observation of an episode is the one the wrapper inside gives, not the bare environment's."""

    class Shapes(Everything):
        def step(self, carry, batch):
            shapes.add(batch.observations.shape)
            return super().step(carry, batch)

    shapes = set()
    env = VecFrameStack(DummyVecEnv([lambda: TriggersEnv(**MAZE)]), 2)
    env = PotentialShapingVecEnv(env, Shapes(), 0.9)
    env.reset()
    for _ in range(20):
        env.step(np.array([0]))
    assert shapes == {(1, 3, 3, 6)}


def test_shapings_stack():
    (make, history), potential = WORLDS["maze, sum"], TablePotential(dict(enumerate(NORMAL[:36])))
    inside = DummyVecEnv([lambda: PotentialShaping(make(), potential, 0.9)] * 2)
    theirs = DummyVecEnv([lambda: PotentialShaping(PotentialShaping(make(), potential, 0.9), history, 0.9)] * 2)
    compare(PotentialShapingVecEnv(inside, history, 0.9), theirs, 40, 2)
