"""Wrap then vectorise is vectorise then wrap, to the bit and to the last info, in all three autoreset modes."""

import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.shaping.playing import compare

import secret_rl  # noqa: F401
from secret_rl.envs.triggers import TriggersEnv, TriggersVectorEnv
from secret_rl.shaping import (
    Cells,
    CoverageWarning,
    NoPotential,
    Observed,
    PotentialShaping,
    TablePotential,
    VectorPotentialShaping,
)
from secret_rl.testing.shaping import EveryEnding, Everything, RunningSum
from secret_rl.testing.strategies import triggers_options

MODES = list(AutoresetMode)
NORMAL = np.random.default_rng(0).normal(size=4096).tolist()
PLACES = TablePotential(
    {(x, y, cue): NORMAL[x * 64 + y * 8 + cue] for x in range(-9, 9) for y in range(-9, 9) for cue in range(4)},
    state=Cells((0.4, 0.4, 1), keys=("place", "cue")),
)
STATES = {(cue, x, y): NORMAL[cue * 99 + x * 10 + y] for cue in range(4) for x in range(-3, 3) for y in range(-3, 3)}


def lake():
    return gym.make("FrozenLake-v1", max_episode_steps=7)


class Both(gym.Env):
    """Tuple observations, a box of actions, and array states."""

    observation_space = gym.spaces.Tuple((gym.spaces.Discrete(5), gym.spaces.Box(0, 1, (2, 2), np.float64)))
    action_space = gym.spaces.Box(-1, 1, (2,), np.float32)

    def _seen(self):
        number = int(self.np_random.integers(5))
        return (number, self.np_random.random((2, 2))), {"state": np.array([number, number // 2])}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._seen()

    def step(self, action):
        observation, info = self._seen()
        over = self.np_random.random() < 0.2
        return observation, float(action.sum()), over, False, info


WORLDS = {
    "every ending": (EveryEnding, [TablePotential(STATES), PLACES, Everything(("state", "luck"))]),
    "lake": (
        lake,
        [
            TablePotential(dict(enumerate(NORMAL[:16])), state=Observed()),
            TablePotential({-4: 1.0, **dict(enumerate(NORMAL[:9]))}, state=Observed()),
            TablePotential({0: 0.5, 4: 1.0, 1: -1.0}, state=lambda observation, info: int(observation)),
            lambda observation, info: float(observation) * ("prob" in info),
            Everything(()),
            NoPotential(),
        ],
    ),
    "both": (Both, [TablePotential({(n, n // 2): NORMAL[n] for n in range(5)}), Everything()]),
}


settings_of_shaping = {
    "seed": st.integers(0, 2**31),
    "mode": st.sampled_from(MODES),
    "n": st.integers(1, 4),
    "discount": st.floats(0.1, 1),
    "scale": st.sampled_from([1.0, 0.3]),
    "truncation": st.sampled_from(["keep", "zero"]),
    "masks": st.sets(st.integers(0, 30), max_size=2),
}


@pytest.mark.parametrize(
    ("world", "number"), [(world, number) for world in WORLDS for number in range(len(WORLDS[world][1]))]
)
@settings(max_examples=30)
@given(**settings_of_shaping)
def test_wrap_then_vectorise_is_vectorise_then_wrap(world, number, seed, mode, n, masks, **terms):
    make, potentials = WORLDS[world]
    terms = (potentials[number], terms.pop("discount")), terms
    ours = VectorPotentialShaping(SyncVectorEnv([make] * n, autoreset_mode=mode), *terms[0], **terms[1])
    theirs = SyncVectorEnv([lambda: PotentialShaping(make(), *terms[0], **terms[1])] * n, autoreset_mode=mode)
    compare(ours, theirs, seed, 35, mode, masks)


@settings(max_examples=60)
@given(options=triggers_options(), kind=st.sampled_from(["table", "history", "sum", "cells"]), **settings_of_shaping)
def test_the_compiled_mazes_are_shaped_alike(options, kind, seed, mode, n, masks, discount, scale, truncation):
    every = range(options.num_states)
    potential = {
        "table": lambda: TablePotential({state: NORMAL[state % 4096] for state in every}),
        "history": Everything,
        "sum": lambda: RunningSum({(state, state % 4): 0.25 for state in every}, cap=0.9),
        "cells": lambda: TablePotential({(0,) * 3: 1.0}, state=lambda seen, info: tuple(seen[0, 0].tolist())),
    }[kind]()
    terms = {"discount": discount, "scale": scale, "truncation": truncation}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)
        ours = TriggersVectorEnv(n, **vars(options), autoreset_mode=mode)
        theirs = SyncVectorEnv(
            [lambda: PotentialShaping(TriggersEnv(**vars(options)), potential, **terms)] * n, autoreset_mode=mode
        )
        compare(VectorPotentialShaping(ours, potential, **terms), theirs, seed, 40, mode, masks)


@pytest.mark.parametrize("mode", MODES)
def test_these_comparisons_meet_every_kind_of_end(mode):
    envs = SyncVectorEnv([EveryEnding] * 4, autoreset_mode=mode)
    envs.reset(seed=1)
    met = set()
    for _ in range(60):
        _, _, terminated, truncated, _ = envs.step(envs.action_space.sample())
        met |= set(zip(terminated.tolist(), truncated.tolist(), strict=True))
        if mode is AutoresetMode.DISABLED and (terminated | truncated).any():
            envs.reset(options={"reset_mask": terminated | truncated})
    assert len(met) == 4


@pytest.mark.parametrize("mode", MODES)
def test_shapings_stack(mode):
    first, second = TablePotential(STATES), Everything(("luck",))

    def make():
        return PotentialShaping(PotentialShaping(EveryEnding(), first, 0.9), second, 0.9)

    plain = SyncVectorEnv([EveryEnding] * 3, autoreset_mode=mode)
    half = SyncVectorEnv([lambda: PotentialShaping(EveryEnding(), first, 0.9)] * 3, autoreset_mode=mode)
    stacked = VectorPotentialShaping(VectorPotentialShaping(plain, first, 0.9), second, 0.9)
    assert compare(stacked, SyncVectorEnv([make] * 3, autoreset_mode=mode), 5, 40, mode)[0] > 3
    mixed = VectorPotentialShaping(half, second, 0.9)
    assert compare(mixed, SyncVectorEnv([make] * 3, autoreset_mode=mode), 5, 40, mode)[0] > 3


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_environments_in_other_processes(mode):
    ours = VectorPotentialShaping(
        AsyncVectorEnv([EveryEnding] * 2, autoreset_mode=mode, context="fork"), TablePotential(STATES), 0.9
    )
    theirs = SyncVectorEnv(
        [lambda: PotentialShaping(EveryEnding(), TablePotential(STATES), 0.9)] * 2, autoreset_mode=mode
    )
    try:
        assert compare(ours, theirs, 3, 40, mode)[0] > 3
    finally:
        ours.close()


def test_the_reset_step_pays_nothing():
    envs = TriggersVectorEnv(2, size=8, max_steps=2, triggers=1)
    envs = VectorPotentialShaping(envs, TablePotential(dict(enumerate(NORMAL[:256]))), 0.9)
    envs.reset(seed=0)
    rewards, told = zip(*((step[1], step[4]) for step in (envs.step(np.zeros(2, int)) for _ in range(6))), strict=True)
    assert (np.array(rewards)[[2, 5]] == 0).all()
    assert (np.array(rewards)[[0, 1, 3, 4]] != 0).all()
    assert "env_reward" not in told[2] and told[3]["_env_reward"].all()


def test_float32_rewards_are_shaped_exactly():
    class Rewards32(TriggersVectorEnv):
        def step(self, actions):
            observations, rewards, *rest = super().step(actions)
            return observations, (rewards + 0.1).astype(np.float32), *rest

    envs = VectorPotentialShaping(Rewards32(2, max_steps=5), TablePotential(dict(enumerate(NORMAL[:1024]))), 0.9)
    envs.reset(seed=0)
    _, rewards, _, _, infos = envs.step(np.zeros(2, int))
    assert rewards.dtype == infos["env_reward"].dtype == np.float64
    np.testing.assert_array_equal(rewards, infos["env_reward"] + infos["shaping_reward"])
    np.testing.assert_array_equal(infos["env_reward"], np.float64(np.float32(0.1)))


def test_bad_input_is_named():
    envs = TriggersVectorEnv(2, max_steps=1, autoreset_mode="SameStep")
    with pytest.raises(ValueError, match=r"discount must be"):
        VectorPotentialShaping(envs, NoPotential(), 1.5)
    with pytest.raises(ValueError, match=r"27 dimensions"):
        VectorPotentialShaping(envs, TablePotential({(0, 0): 1.0}, state=Cells((1, 1))), 0.9)
    lakes = VectorPotentialShaping(SyncVectorEnv([lake] * 2), TablePotential({0: 1.0}), 0.9)
    with pytest.raises(ValueError, match=r'info has no "state" .*\[\'prob\'\]'):
        lakes.reset(seed=0)

    class NoFinal(gym.vector.VectorWrapper):
        def step(self, actions):
            *rest, infos = self.env.step(actions)
            return *rest, {name: value for name, value in infos.items() if "final" not in name}

    silent = VectorPotentialShaping(NoFinal(envs), TablePotential({0: 1.0}), 0.9)
    silent.reset(seed=0)
    with pytest.raises(ValueError, match=r'SAME_STEP mode without infos\["final_obs"\]'):
        silent.step(np.zeros(2, int))

    class Nonsense(NoPotential):
        def step(self, carry, batch):
            return carry, np.where(batch.steps, np.nan, 0)

    broken = VectorPotentialShaping(TriggersVectorEnv(2), Nonsense(), 0.9)
    broken.reset(seed=0)
    with pytest.raises(ValueError, match=r"answered Phi = nan after .* in environment 0"):
        broken.step(np.zeros(2, int))

    class Short(NoPotential):
        def step(self, carry, batch):
            return carry, np.zeros(1)

    with pytest.raises(ValueError, match=r"values of shape \(1,\), expected \(2,\): one for each"):
        VectorPotentialShaping(TriggersVectorEnv(2), Short(), 0.9).reset(seed=0)

    class Lenient(TriggersVectorEnv):
        def step(self, actions):
            return None, np.zeros(2), np.zeros(2, bool), np.zeros(2, bool), {}

    with pytest.raises(gym.error.ResetNeeded, match="call reset"):
        VectorPotentialShaping(Lenient(2), NoPotential(), 0.9).step(np.zeros(2, int))
