"""Wrap then vectorise is vectorise then wrap, to the bit and to the last info, in all three autoreset modes."""

from functools import cache
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.shaping.playing import MODES, NORMAL, PLACES, STATES, Arrays, compare, compare_wrappers

import secret_rl as srl
from secret_rl.envs.triggers import TriggersEnv, TriggersVectorEnv
from secret_rl.shaping import (
    EventCredit,
    GridKey,
    NoPotential,
    ObservationKey,
    OnlineCredit,
    PotentialShaping,
    TablePotential,
    VectorPotentialShaping,
)
from secret_rl.testing.shaping import EveryEnding, Everything, RunningSum
from secret_rl.testing.strategies import triggers_options
from secret_rl.views import DropView


def lake():
    return gym.make("FrozenLake-v1", max_episode_steps=7)


class CueCredit:
    """Credit of the cue alone."""

    def step_credit(self, observations, actions):
        return (observations + actions) % 4 / 4


@cache
def learned():
    data = srl.collect(EveryEnding, 40, seed=0, progress=False)
    return srl.learn_potential(data, kind="value", rewards="all", steps=30, threshold=0.0, progress=False)


def of_the_cue():
    return OnlineCredit(CueCredit(), threshold=0, scale=0.05, observation=DropView(("place",), squeeze=True))


WORLDS = {
    "every ending": (EveryEnding, [TablePotential(STATES), PLACES, Everything(("state", "luck")), learned, of_the_cue]),
    "lake": (
        lake,
        [
            TablePotential(dict(enumerate(NORMAL[:16])), state=ObservationKey()),
            TablePotential({-4: 1.0, **dict(enumerate(NORMAL[:9]))}, state=ObservationKey()),
            TablePotential({0: 0.5, 4: 1.0, 1: -1.0}, state=lambda observation, info: int(observation)),
            lambda observation, info: float(observation) * ("prob" in info),
            Everything(()),
            NoPotential(),
        ],
    ),
    "arrays": (Arrays, [TablePotential({(n, n // 2): NORMAL[n] for n in range(5)}), Everything()]),
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
def test_wrap_then_vectorise_is_vectorise_then_wrap(world, number, **terms):
    make, potentials = WORLDS[world]
    potential = potentials[number]
    compare_wrappers(make, potential if potential in (learned, of_the_cue) else lambda: potential, steps=35, **terms)


@pytest.mark.filterwarnings("ignore::secret_rl.shaping.CoverageWarning")
@settings(max_examples=75)
@given(
    options=triggers_options(), kind=st.sampled_from(["table", "history", "sum", "cells", "event"]),
    **settings_of_shaping,
)  # fmt: skip
def test_the_compiled_mazes_are_shaped_alike(options, kind, mode, n, **terms):
    every = range(options.num_states)
    potential = {
        "table": lambda: TablePotential({state: NORMAL[state % 4096] for state in every}),
        "history": Everything,
        "sum": lambda: RunningSum({(state, state % 4): 0.25 for state in every}, cap=0.9),
        "cells": lambda: TablePotential({(0,) * 3: 1.0}, state=lambda seen, info: tuple(seen[0, 0].tolist())),
        "event": lambda: EventCredit("trigger_activated", amount=0.4),
    }[kind]()
    envs = TriggersVectorEnv(n, **vars(options), autoreset_mode=mode)
    compare_wrappers(lambda: TriggersEnv(**vars(options)), lambda: potential, mode, n=n, envs=envs, **terms)


@pytest.mark.parametrize("mode", MODES)
def test_shapings_stack(mode):
    first, second = TablePotential(STATES), Everything(("luck",))

    def make():
        return PotentialShaping(PotentialShaping(EveryEnding(), first, 0.9), second, 0.9)

    plain = SyncVectorEnv([EveryEnding] * 3, autoreset_mode=mode)
    half = SyncVectorEnv([lambda: PotentialShaping(EveryEnding(), first, 0.9)] * 3, autoreset_mode=mode)
    for inner in (VectorPotentialShaping(plain, first, 0.9), half):
        stacked = VectorPotentialShaping(inner, second, 0.9)
        assert compare(stacked, SyncVectorEnv([make] * 3, autoreset_mode=mode), 5, 40, mode)[0] > 3


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_environments_in_other_processes(mode):
    envs = AsyncVectorEnv([EveryEnding] * 2, autoreset_mode=mode, context="fork")
    assert compare_wrappers(EveryEnding, lambda: TablePotential(STATES), mode, 3, n=2, envs=envs)[0] > 3


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
    with pytest.raises(ValueError, match=r"27 numbers"):
        VectorPotentialShaping(envs, TablePotential({(0, 0): 1.0}, state=GridKey((1, 1))), 0.9)
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

    broken = VectorPotentialShaping(TriggersVectorEnv(2), lambda observation, info: np.nan, 0.9)
    broken.reset(seed=0)
    with pytest.raises(ValueError, match=r"answered Phi = nan after .* in environment 0"):
        broken.step(np.zeros(2, int))
    short = SimpleNamespace(init=lambda n: None, step=lambda carry, batch: (carry, np.zeros(1)))
    with pytest.raises(ValueError, match=r"values of shape \(1,\), expected \(2,\): one for each"):
        VectorPotentialShaping(TriggersVectorEnv(2), short, 0.9).reset(seed=0)
