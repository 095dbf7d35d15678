"""Triggers, the paper's gridworld (Ferret et al., 2019): random play in random mazes; switches earn the prizes."""

from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from secret_rl.tasks.task import Data, Task
from secret_rl.trajectories import collect

_TRUTH = "trigger_activated"
_FIRST_MAZE = 2_110_000  # of the mazes that agents learn in


def _mazes(size: int, triggers: int, prizes: int, success_share: float | None, episodes: int, seed: int) -> Data:
    options = {"size": size, "triggers": triggers, "prizes": prizes}
    data = collect(
        "secret_rl/Triggers-v0", episodes, seed=seed, success_share=success_share, env_options=options, progress=False
    )
    return Data(replace(data, annotations={}), np.asarray(data.annotations[_TRUTH], np.bool_))


def _maze(size: int, triggers: int, prizes: int, number: int) -> gym.Env[Any, Any]:
    options: dict[str, Any] = {"size": size, "triggers": triggers, "prizes": prizes}
    return gym.make("secret_rl/Triggers-v0", layout_seed=_FIRST_MAZE + number, **options)


def _task(size: int, triggers: int, prizes: int, episodes: int, success_share: float | None = None) -> Task:
    switches = "the switch was" if triggers == 1 else f"all {triggers} switches were"
    return Task(
        name=f"triggers_{size}x{size}_{triggers}t{prizes}p",
        source=f"secret_rl/Triggers-v0, size {size}, {triggers} switches, {prizes} prizes",
        description=f"A prize pays 1 if {switches} activated before, else it costs 1.",
        make=partial(_mazes, size, triggers, prizes, success_share),
        episodes=episodes,
        quick=2_000,
        judged="positive",
        instance=partial(_maze, size, triggers, prizes),
        practice=1_200,
    )


# Random play finds one prize in 20 episodes with a switch, one in 500 with three: there, a share must be successes.
TASKS = [
    _task(8, 1, 1, 10_000),
    _task(8, 1, 2, 10_000),
    _task(8, 2, 2, 10_000, 0.1),
    _task(8, 3, 1, 20_000, 0.25),
    _task(12, 1, 1, 10_000, 0.1),
]
