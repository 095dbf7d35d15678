"""Environment steps into Stable-Baselines3, beside ``DummyVecEnv`` of single environments and of MiniGrid's.

All take random steps turn and turn about, and then those of PPO and DQN, whose networks are the same for all. Then
what shaping costs: steps alone, and as part of what the algorithms do to collect. Nothing is learned meanwhile.
"""

import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import VectorWrapper
from minigrid.wrappers import ImgObsWrapper
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.type_aliases import TrainFreq, TrainFrequencyUnit
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecMonitor

from benchmarks.results_file import Row, interleaved, write
from secret_rl.envs.triggers import TriggersVectorEnv
from secret_rl.sb3.envs import GymnasiumVecEnv, sb3_envs
from secret_rl.sb3.shaping import PotentialShapingVecEnv
from secret_rl.shaping import TablePotential, VectorPotentialShaping

SIZES = (8, 64, 256)
VECTORS = (256, 4096)
ROUNDS = 11
STEPS = 4096  # of all environments together, in each round
TRIGGERS = "secret_rl/Triggers-v0"
FULL_STATE = {"window": None, "layout_seed": 1}
POTENTIAL = TablePotential({state: state / 1024 for state in range(1024)})
DISCOUNT = 0.99


def run() -> None:
    """Measure and write down."""
    torch.set_num_threads(1)
    rows = [
        *feeding("random steps", steps_per_second),
        *feeding("PPO collecting", ppo_steps_per_second),
        *feeding("DQN collecting", dqn_steps_per_second),
        *vector_shaping(),
        *shaping("random steps", steps_per_second),
        *shaping("PPO collecting", ppo_steps_per_second),
        *shaping("DQN collecting", dqn_steps_per_second),
    ]
    write("sb3", "Environment steps into Stable-Baselines3, one core", rows)


def feeding(what: str, measure: Callable[[VecEnv], Callable[[], float]]) -> list[Row]:
    """The bridge beside single environments, and beside MiniGrid's of the same size."""
    rows = []
    asked = ">= 5x" if measure is steps_per_second else ""
    for n in SIZES:
        contenders = {
            "bridge": measure(sb3_envs(TRIGGERS, n, env_options=FULL_STATE)),
            "single": measure(DummyVecEnv([lambda: gym.make(TRIGGERS, **FULL_STATE)] * n)),
            "minigrid": measure(DummyVecEnv([lambda: ImgObsWrapper(gym.make("MiniGrid-Empty-8x8-v0"))] * n)),
        }
        measured = interleaved(contenders, ROUNDS)
        rows += [
            Row(f"{what}, {n} envs: Triggers 8x8 through the bridge", measured["bridge"], "steps/s"),
            Row(f"{what}, {n} envs: Triggers 8x8, DummyVecEnv", measured["single"], "steps/s"),
            Row(f"{what}, {n} envs: MiniGrid Empty 8x8, DummyVecEnv", measured["minigrid"], "steps/s"),
            Row(f"{what}, {n} envs: bridge over single envs", measured["bridge"] / measured["single"], "x", asked),
            Row(f"{what}, {n} envs: bridge over MiniGrid", measured["bridge"] / measured["minigrid"], "x", asked),
        ]
    return rows


def vector_shaping() -> list[Row]:
    """A table potential on the vector environment itself, outside of Stable-Baselines3."""
    rows = []
    for n in VECTORS:
        measured = interleaved(
            {
                "plain": vector_seconds_per_step(VectorWrapper(vector_env(n))),
                "shaped": vector_seconds_per_step(VectorPotentialShaping(vector_env(n), POTENTIAL, DISCOUNT)),
            },
            ROUNDS,
        )
        more = 100 * (measured["shaped"] / measured["plain"] - 1)
        rows += [
            Row(f"vector steps, {n} envs: unshaped, all of them", measured["plain"] * 1e6, "us"),
            Row(f"vector steps, {n} envs: shaping adds", more, "%", "<= 15 %"),
        ]
    return rows


def shaping(what: str, measure: Callable[[VecEnv], Callable[[], float]]) -> list[Row]:
    """A table potential, inside the bridge and outside of it, with the monitor that logs unshaped returns."""
    rows = []
    for n in SIZES:
        inside = GymnasiumVecEnv(VectorPotentialShaping(vector_env(n), POTENTIAL, DISCOUNT))
        outside = PotentialShapingVecEnv(VecMonitor(GymnasiumVecEnv(vector_env(n))), POTENTIAL, DISCOUNT)
        measured = interleaved(
            {
                "plain": measure(GymnasiumVecEnv(vector_env(n))),
                "inside": measure(inside),
                "monitored": measure(VecMonitor(GymnasiumVecEnv(vector_env(n)))),
                "outside": measure(outside),
            },
            ROUNDS,
        )
        for name, shaped, unshaped in (
            ("in the vector env", "inside", "plain"),
            ("outside of VecMonitor", "outside", "monitored"),
        ):
            more = 100 * (measured[unshaped] / measured[shaped] - 1)
            rows.append(Row(f"{what}, {n} envs: shaping {name} adds", more, "%", "<= 15 %"))
    return rows


def vector_env(n: int) -> TriggersVectorEnv:
    """The compiled mazes, full state, resetting within the step."""
    return TriggersVectorEnv(n, **FULL_STATE, autoreset_mode="SameStep")  # type: ignore[arg-type]


def vector_seconds_per_step(envs: Any) -> Callable[[], float]:
    """Random steps of a vector environment."""
    actions = np.random.default_rng(0).integers(0, 4, (100, envs.num_envs))

    def measure() -> float:
        envs.reset(seed=0)
        start = time.perf_counter()
        for row in actions:
            envs.step(row)
        return (time.perf_counter() - start) / len(actions)

    return measure


def steps_per_second(env: VecEnv) -> Callable[[], float]:
    """Random steps of all environments together."""
    actions = np.random.default_rng(0).integers(0, 4, (STEPS // env.num_envs, env.num_envs))

    def measure() -> float:
        env.seed(0)
        env.reset()
        start = time.perf_counter()
        for row in actions:
            env.step(row)
        return actions.size / (time.perf_counter() - start)

    return measure


def ppo_steps_per_second(env: VecEnv) -> Callable[[], float]:
    """What PPO does to fill its buffer."""
    steps = STEPS // env.num_envs
    model = PPO("MlpPolicy", env, n_steps=steps, batch_size=STEPS, gamma=DISCOUNT, seed=0, device="cpu")
    _, callback = model._setup_learn(STEPS)
    assert model.env is not None

    def measure() -> float:
        start = time.perf_counter()
        model.collect_rollouts(model.env, callback, model.rollout_buffer, steps)
        return STEPS / (time.perf_counter() - start)

    return measure


def dqn_steps_per_second(env: VecEnv) -> Callable[[], float]:
    """What DQN does to fill its buffer, hardly ever exploring."""
    model = DQN(
        "MlpPolicy", env, buffer_size=2 * STEPS, gamma=DISCOUNT, seed=0, device="cpu",
        exploration_initial_eps=0.05, exploration_final_eps=0.05,
    )  # fmt: skip
    _, callback = model._setup_learn(STEPS)
    assert model.env is not None
    assert model.replay_buffer is not None
    often = TrainFreq(STEPS // env.num_envs, TrainFrequencyUnit.STEP)

    def measure() -> float:
        start = time.perf_counter()
        model.collect_rollouts(model.env, callback, often, model.replay_buffer)
        return STEPS / (time.perf_counter() - start)

    return measure
