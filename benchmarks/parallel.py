"""Steps per second of all cores in the 3D world: played alone, and with PPO that learns from what is played."""

import os
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from paper.keys_doors_bonus import FOUR_ROOMS
from paper.keys_doors_credit import DEVELOPMENT_MAPS
from paper.parallel_envs import ParallelVectorEnv
from paper.pixel_ppo import PixelOptions, pixel_ppo

from benchmarks.keys_doors import Contender, EngineAlone
from benchmarks.results_file import Row, interleaved, machine, per_second, write
from secret_rl.envs import KEYS_DOORS_ID

ENVS, ROUNDS, SECONDS = 16, 5, 2.0
ROLLOUTS = 6
LEARNERS, LEARNERS_OF_A_GPU = 8, 64
OPTIONS = PixelOptions(filters=16)
OURS, PEER = "ParallelVectorEnv, pinned", "AsyncVectorEnv"  # Gymnasium's, with shared memory


def run() -> None:
    """Measure every contender in turn and write the medians down."""
    make = _maker(0)
    made: dict[str, VectorEnv[Any, Any, Any]] = {
        "SyncVectorEnv": SyncVectorEnv([make] * ENVS),
        PEER: AsyncVectorEnv([make] * ENVS, context="spawn"),
        "ParallelVectorEnv": ParallelVectorEnv(make, ENVS),
        OURS: ParallelVectorEnv(make, ENVS, pin=True),
    }
    played = interleaved({name: _playing(envs) for name, envs in made.items()}, ROUNDS)
    for envs in made.values():
        envs.close()
    torch.set_num_threads(os.cpu_count() or 1)
    on_gpu = torch.cuda.is_available()
    learners, each = LEARNERS_OF_A_GPU if on_gpu else LEARNERS, OPTIONS.rollout * OPTIONS.side_by_side
    makers, learned, playing = [_maker(number) for number in range(learners)], [], []
    for progress in pixel_ppo(makers, ROLLOUTS * each, OPTIONS, success="goal_reached"):
        learned.append(learners * each / progress.seconds)
        playing.append(progress.played / progress.seconds)
    bound = _engine_alone(make) * (os.cpu_count() or 1)
    by = "engine alone x cores"
    rows = [Row(f"{name}, {ENVS} environments", speed, "steps/s", "", bound, by) for name, speed in played.items()]
    rows.append(Row("ours over AsyncVectorEnv", played[OURS] / played[PEER], "x"))
    where, asked = ("a GPU", ">= 25,000 with 16 cores") if on_gpu else ("the same cores", ">= 2,500 with 2 cores")
    what = f"PPO on {where}, {learners} x {OPTIONS.side_by_side} environments"
    rows.append(Row(what, float(np.median(learned[1:])), "steps/s", asked, bound, by))
    rows.append(Row("share of that time spent playing", float(np.median(playing[1:])), ""))
    used = machine()["machine"].replace("one used", "all used")
    used += f", and {torch.cuda.get_device_name()}" if on_gpu else ""
    all_cores = {"machine": used, "command": "python -m benchmarks parallel"}
    name, beside = ("parallel_gpu", " and a GPU") if on_gpu else ("parallel", "")
    write(name, f"The 3D world on all cores{beside}: 40x30, an action held for 8 tics", rows, all_cores)


def _engine_alone(make: Callable[[], gym.Env[Any, Any]]) -> float:
    """Steps per second on one core, which both it and its caller are kept to: so it is woken in time."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        alone = Contender(EngineAlone(make()))
        speed = statistics.median(alone.speeds()[1] for _ in range(ROUNDS))
        alone.env.close()
    finally:
        os.sched_setaffinity(0, cores)
    return speed


def _maker(number: int) -> Callable[[], gym.Env[Any, Any]]:
    """Of a development map; workers import the library alone."""
    return partial(gym.make, f"secret_rl:{KEYS_DOORS_ID}", **FOUR_ROOMS, layout_seed=DEVELOPMENT_MAPS + number)


def _playing(envs: VectorEnv[Any, Any, Any]) -> Callable[[], float]:
    envs.reset(seed=0)
    actions = np.random.default_rng(0).integers(0, 4, (1_000, ENVS))
    position = iter(range(10**9))

    def play() -> int:
        envs.step(actions[next(position) % len(actions)])
        return ENVS

    return lambda: per_second(play, SECONDS)
