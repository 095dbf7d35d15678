"""Many episodes of the 3D world in one process: does memory grow, and is anything left at the end?"""

import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from benchmarks.processes import descendants, left_of, resident
from benchmarks.results_file import Row, machine, write

EPISODES = 10_000
MAX_STEPS = 30
SAMPLES = 100
WARM_UP = 0.2  # share of the episodes after which memory has to stay level
MOST_GROWTH = 8.0  # MB over the episodes after that


@dataclass(frozen=True)
class Sample:
    """Memory and files at one time; ``engines_mb`` counts engines and their guards."""

    episode: int
    python_mb: float
    engines_mb: float
    shared_memory_files: int


def run() -> None:
    """The whole soak, written down; exits with an error where memory grows or something is left."""
    start = time.perf_counter()
    samples, left = soak(EPISODES)
    grown = growth(samples)
    rows = [
        Row("episodes, seeds 0 and up", EPISODES),
        Row("minutes", (time.perf_counter() - start) / 60),
        Row("Python at the end", samples[-1].python_mb, "MB"),
        Row("engines at the end, one for each preset", samples[-1].engines_mb, "MB"),
        Row("Python grew after the warm-up by", grown["python_mb"], "MB", f"<= {MOST_GROWTH:.0f} MB"),
        Row("engines grew after the warm-up by", grown["engines_mb"], "MB", f"<= {MOST_GROWTH:.0f} MB"),
        Row("most files in shared memory at a time", max(sample.shared_memory_files for sample in samples)),
        Row("processes, files and folders left after close", len(left), asked="0"),
    ]
    more = {
        "machine": machine()["machine"].removesuffix(", one used"),  # Python and engines share out the cores
        "samples": [asdict(sample) for sample in samples],
        "left": left,
    }
    write("soak", "A soak of the 3D world: random maps of all presets in one process", rows, more)
    problems = faults(samples, left)
    if problems:
        sys.exit("; ".join(problems))


def soak(episodes: int, samples: int = SAMPLES) -> tuple[list[Sample], list[str]]:
    """Play random maps of all presets in turn, at random and by a wanderer: samples, and what is left after close."""
    from secret_rl.envs.keys_doors import PRESETS, Wanderer

    envs = [gym.make("secret_rl:secret_rl/KeysDoors-v0", preset=preset, max_steps=MAX_STEPS) for preset in PRESETS]
    players: list[list[Any]] = [[Wanderer(env, astray=1.0), Wanderer(env)] for env in envs]
    before, taken = set(descendants()), []
    try:
        for env in envs:
            env.reset(seed=0)
        traces = [env.unwrapped.engine_traces for env in envs]  # type: ignore[attr-defined]
        for episode in range(episodes):
            turn = episode % len(envs)
            player = players[turn][episode // len(envs) % 2]
            player.begin(episode)
            observation, _ = envs[turn].reset(seed=episode)
            over = False
            while not over:
                observation, _, terminated, truncated, _ = envs[turn].step(player(observation))
                over = terminated or truncated
            if (episode + 1) % max(1, episodes // samples) == 0:
                taken.append(_sample(episode + 1, before, traces))
    finally:
        for env in envs:
            env.close()
    return taken, [trace for engine in traces for trace in left_of(*engine)]


def faults(samples: list[Sample], left: list[str]) -> list[str]:
    """What went wrong: memory that grew after the warm-up, shared memory that piled up, things left behind."""
    found = [f"{name} grew by {mb:.1f} MB" for name, mb in growth(samples).items() if mb > MOST_GROWTH]
    files = [sample.shared_memory_files for sample in samples]
    if max(files) > files[0]:
        found.append(f"files in shared memory went from {files[0]} to {max(files)}")
    return [*found, *(f"{trace} was left" for trace in left)]


def growth(samples: list[Sample]) -> dict[str, float]:
    """MB by which a straight line through the samples after the warm-up rises from its first to its last."""
    steady = [sample for sample in samples if sample.episode >= WARM_UP * samples[-1].episode]
    episodes = np.array([sample.episode for sample in steady], float)
    rises = {}
    for name in ("python_mb", "engines_mb"):
        slope, _ = np.polyfit(episodes, [getattr(sample, name) for sample in steady], 1)
        rises[name] = float(slope * np.ptp(episodes))
    return rises


def _sample(episode: int, before: set[int], traces: list[tuple[str, str]]) -> Sample:
    engines = [pid for pid in descendants() if pid not in before]
    files = sum(len(list(Path("/dev/shm").glob(f"*{instance}*"))) for instance, _ in traces)
    return Sample(episode, resident(os.getpid()) / 1e6, sum(map(resident, engines)) / 1e6, files)
