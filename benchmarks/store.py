"""Writing and reading 40,000 episodes of 50 steps: ours beside Minari's HDF5, and what opening and memory cost."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import secret_rl as srl
from benchmarks.bounds import read_seconds
from benchmarks.results_file import Row, write

EPISODES = 40_000
BATCH = 64
MINARI_ROUND_TRIP = 4_000
ENV = "secret_rl/Triggers-v0"


def run() -> None:
    """Measure and write down."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MINARI_DATASETS_PATH"] = f"{folder}/minari"
        rows = measure(Path(folder))
    write("store", "Writing and reading 40,000 episodes of 50 steps", rows)


def measure(folder: Path) -> list[Row]:
    """Every figure of this benchmark."""
    srl.collect(ENV, 10, out=folder / "warm")  # compile
    # fixed length, as the comparison asks: mazes in which random play never finishes
    options = {"triggers": 3, "prizes": 40 - 3, "size": 8}
    start = time.process_time()
    srl.collect(ENV, EPISODES, env_options={"triggers": 3, "prizes": 1}, out=folder / "random")
    collected = time.process_time() - start
    data = srl.collect(ENV, EPISODES, env_options=options)
    assert data.steps == EPISODES * 50, data.steps

    start = time.perf_counter()
    data.save(folder / "ours")
    written = time.perf_counter() - start
    opened = best(lambda: srl.Trajectories.load(folder / "ours", verify=False), 20)
    small = data[: EPISODES // 1000].save(folder / "small")
    opened_small = best(lambda: srl.Trajectories.load(small, verify=False), 20)
    stored = srl.Trajectories.load(folder / "ours")
    parts = np.array_split(np.random.default_rng(0).permutation(EPISODES), -(-EPISODES // BATCH))
    read = best(lambda: [touch_ours(stored[part]) for part in parts], 5)
    in_order = read_seconds((folder / "ours").glob("*.npy"))

    start = time.perf_counter()
    dataset = srl.minari.to_minari(data, "triggers/bench-v0")
    minari_written = time.perf_counter() - start
    start = time.perf_counter()
    touch_minari(dataset)
    minari_read = time.perf_counter() - start

    part = data[:MINARI_ROUND_TRIP]
    srl.minari.to_minari(part, "triggers/part-v0")
    equal = srl.minari.from_minari("triggers/part-v0").equals(part)
    return [
        Row("collect and save 40,000 random 3T1P episodes, CPU time", collected, "s", "< 1 s"),
        Row("ours: write", written, "s"),
        Row("ours: read all, shuffled batches of 64", read, "s", bound=in_order, bound_by="the same files in order"),
        Row("ours: open", opened * 1e3, "ms"),
        Row("ours: open a store 1,000 times smaller", opened_small * 1e3, "ms"),
        Row("Minari HDF5: write", minari_written, "s"),
        Row("Minari HDF5: read all, shuffled batches of 64", minari_read, "s"),
        Row("writing, ours over Minari", minari_written / written, "x"),
        Row("reading, ours over Minari", minari_read / read, "x", ">= 1,000x"),
        Row("Minari round trip of 4,000 episodes equal bit for bit", equal, asked="yes"),
        *bounded_memory(folder / "ours"),
    ]


def best(work: Any, times: int) -> float:
    """The shortest of several runs, in seconds."""
    shortest = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        work()
        shortest = min(shortest, time.perf_counter() - start)
    return shortest


def touch_ours(batch: srl.Trajectories) -> int:
    """A batch is gathered when it is made: look at every array to be sure."""
    return sum(len(array) for array in batch.columns().values())


def touch_minari(dataset: Any) -> int:
    """The same fields of the same shuffled batches."""
    total = 0
    order = np.random.default_rng(0).permutation(EPISODES)
    for first in range(0, EPISODES, BATCH):
        for episode in dataset.iterate_episodes(order[first : first + BATCH]):
            total += len(episode.observations) + len(episode.actions) + len(episode.rewards)
            total += len(episode.terminations) + len(episode.truncations) + len(episode.infos)
    return total


def bounded_memory(path: Path) -> list[Row]:
    """Read a whole store in a process that may hold less memory of its own than the store is large."""
    limit = 48 << 20
    code = (
        "import resource, sys, numpy as np, secret_rl as srl\n"
        "data = srl.Trajectories.load(sys.argv[1], verify=False)\n"
        "parts = np.array_split(np.random.default_rng(0).permutation(len(data)), -(-len(data) // 64))\n"
        "data[parts[0]]\n"
        "used = int(open('/proc/self/status').read().split('VmData:')[1].split()[0]) * 1024\n"
        f"resource.setrlimit(resource.RLIMIT_DATA, (used + {limit},) * 2)\n"
        "print(sum(data[part].steps for part in parts))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    size = sum(file.stat().st_size for file in path.glob("*.npy"))
    assert int(done.stdout) == EPISODES * 50
    return [
        Row("store size", size / 1e6, "MB"),
        Row("whole store read within this much further memory (limit enforced)", limit / 1e6, "MB"),
    ]
