"""Updates that two processes share over Gloo, beside one process: seconds, and how alike the losses are."""

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from gymnasium import spaces

import secret_rl as srl
from benchmarks.fit_gpu import MODELS, drawn, trainer_of
from benchmarks.results_file import Row, machine, write
from secret_rl.processes import WorkerPool

EPISODES, ROUNDS = 300, 3
WARM_UP, CHUNKS = 1, 5  # updates, and losses
CHUNK = {"default": 12, "pictures": 2}  # updates whose mean loss is one
ENV_OPTIONS = {"triggers": 3, "prizes": 1}
WORKLOADS = {"equal steps encoded once": "default", "pictures of 48x48": "pictures"}
ONE, THREADS, TWO = "one process, one thread", "one process, two threads", "two processes, one thread each"
CONTENDERS = {ONE: (1, 1), THREADS: (1, 2), TWO: (2, 1)}  # processes and threads


class Updates(NamedTuple):
    """Of one process."""

    clock: float
    """Seconds of an update."""
    busy: float
    """Seconds of processor time of an update."""
    losses: list[float]


def run() -> None:
    """Measure every contender in turn and write the medians down."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        rows = [row for workload, model in WORKLOADS.items() for row in _rows(workload, model, Path(folder))]
    rows.append(Row("programs that wanted a core meanwhile (load average, 1 minute, at the start)", load))
    all_cores = {"machine": machine()["machine"].replace("one used", "all used")}
    write("distributed", "Updates of 64 Triggers episodes, shared by two processes over Gloo", rows, all_cores)


def _rows(workload: str, model: str, folder: Path) -> list[Row]:
    _data(model).save(folder / model)
    found: dict[str, list[list[Updates]]] = {name: [] for name in CONTENDERS}
    for _ in range(ROUNDS):
        for name, (processes, threads) in CONTENDERS.items():
            found[name].append(measured(folder, model, processes, threads))
    clock = {name: statistics.median(max(part.clock for part in run) for run in runs) for name, runs in found.items()}
    busy = {name: statistics.median(sum(part.busy for part in run) for run in runs) for name, runs in found.items()}
    rows = [Row(f"{workload}: an update, {name}", 1e3 * seconds, "ms") for name, seconds in clock.items()]
    rows += [Row(f"{workload}: processor time of it, {name}", 1e3 * seconds, "ms") for name, seconds in busy.items()]
    rows += [Row(f"{workload}: {name}, over two processes", clock[name] / clock[TWO], "x") for name in (ONE, THREADS)]
    start = np.array(found[ONE][0][0].losses)
    for name, asked in ((THREADS, ""), (TWO, "<= 100 e-6")):
        apart = 1e6 * np.abs(np.array(found[name][0][0].losses) / start - 1).max()
        rows.append(
            Row(
                f"{workload}: losses of {CHUNKS * CHUNK[model]} updates, {name}: apart by a share of",
                apart,
                "e-6",
                asked,
            )
        )
    return rows


def measured(folder: Path, model: str, processes: int, threads: int) -> list[Updates]:
    """Updates by fresh processes, those of each."""
    with tempfile.TemporaryDirectory(dir=folder) as meet, WorkerPool(processes) as pool:
        calls = [pool.submit(_updates, folder / model, model, n, processes, threads, meet) for n in range(processes)]
        return [call.result() for call in calls]


def _updates(path: Path, model: str, rank: int, processes: int, threads: int, meet: str) -> Updates:
    torch.set_num_threads(threads)
    if processes > 1:
        torch.distributed.init_process_group("gloo", f"file://{meet}/file", rank=rank, world_size=processes)
    data, device = srl.Trajectories.load(path), torch.device("cpu")
    trainer = trainer_of(data, device, "float32", processes > 1, **MODELS[model])
    trainer.train(WARM_UP)
    start, busy = time.perf_counter(), time.process_time()
    losses = [trainer.train(CHUNK[model]) for _ in range(CHUNKS)]
    updates = CHUNKS * CHUNK[model]
    return Updates((time.perf_counter() - start) / updates, (time.process_time() - busy) / updates, losses)


def _data(model: str) -> srl.Trajectories:
    """Triggers episodes, as they are or drawn."""
    env = "secret_rl/Triggers-v0"
    data = srl.collect(env, EPISODES, seed=0, success_share=0.25, env_options=ENV_OPTIONS, progress=False)
    if model != "pictures":
        return data
    pictures = drawn(np.asarray(data.observations))
    return srl.Trajectories(
        observations=pictures, actions=data.actions, rewards=data.rewards, terminated=data.terminated,
        truncated=data.truncated, offsets=data.offsets, action_space=data.action_space,
        observation_space=spaces.Box(0, 255, pictures.shape[1:], np.uint8),
    )  # fmt: skip
