"""A fit that two processes share over Gloo, beside one process: seconds, and how alike the loss curves are."""

import os
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces

import secret_rl as srl
from benchmarks.fit_gpu import MODELS, drawn
from benchmarks.results_file import Row, interleaved, machine, write
from secret_rl.processes import WorkerPool

EPISODES, UPDATES, ROUNDS = 1_000, 150, 3
ENV_OPTIONS = {"triggers": 3, "prizes": 1}
WORKLOADS = {"equal steps encoded once": "default", "pictures of 48x48": "pictures"}
CONTENDERS = {"one process, one thread": (1, 1), "one process, two threads": (1, 2), "two processes": (2, 1)}


class Fit(NamedTuple):
    """Of one process: seconds on the clock and of its processor, and the curve."""

    seconds: float
    busy: float
    curve: list[dict[str, float]]


def run() -> None:
    """Measure every contender in turn and write the medians down."""
    rows, load = [], os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for workload, model in WORKLOADS.items():
            _data(model).save(folder / model)
            fits: dict[str, list[Fit]] = {}

            def measure(name: str, model: str = model, fits: dict[str, list[Fit]] = fits) -> float:
                fits[name] = fitted(folder, model, *CONTENDERS[name])
                return max(fit.seconds for fit in fits[name])

            seconds = interleaved({name: lambda name=name: measure(name) for name in CONTENDERS}, ROUNDS)  # type: ignore[misc]
            one, threads, two = seconds.values()
            rows += [Row(f"{workload}: {name}", value, "s") for name, value in seconds.items()]
            rows += [
                Row(f"{workload}: processor time, {name}", sum(fit.busy for fit in fits[name]), "s") for name in fits
            ]
            rows += [
                Row(f"{workload}: one process over two processes", one / two, "x"),
                Row(f"{workload}: one process with two threads over two processes", threads / two, "x"),
            ]
            start, *others = (fits[name][0].curve for name in CONTENDERS)
            for name, curve in zip(list(CONTENDERS)[1:], others, strict=True):
                asked = "<= 1e-4" if name == "two processes" else ""
                rows.append(
                    Row(f"{workload}: loss curve, {name}: largest difference", _apart(start, curve), "e-6", asked)
                )
    rows.append(Row("programs that wanted a core meanwhile (load average, 1 minute, at the start)", load))
    all_cores = {"machine": machine()["machine"].replace("one used", "all used")}
    title = f"A fit shared by two processes over Gloo: {EPISODES:,} Triggers episodes, {UPDATES} updates of 64"
    write("distributed", title, rows, all_cores)


def _apart(one: list[dict[str, float]], other: list[dict[str, float]]) -> float:
    """The largest difference of losses, in millionths."""
    names = ("loss", "validation_loss")
    return 1e6 * max(abs(a[name] - b[name]) for a, b in zip(one, other, strict=True) for name in names)


def fitted(folder: Path, model: str, processes: int, threads: int) -> list[Fit]:
    """A fit by fresh processes."""
    with tempfile.TemporaryDirectory(dir=folder) as meet, WorkerPool(processes) as pool:
        calls = [
            pool.submit(_fit, folder / model, MODELS[model], rank, processes, threads, meet)
            for rank in range(processes)
        ]
        return [call.result() for call in calls]


def _fit(path: Path, options: dict[str, Any], rank: int, processes: int, threads: int, meet: str) -> Fit:
    torch.set_num_threads(threads)
    if processes > 1:
        torch.distributed.init_process_group("gloo", f"file://{meet}/file", rank=rank, world_size=processes)
    data, busy = srl.Trajectories.load(path), time.process_time()
    fit = srl.Secret(seed=0, steps=UPDATES, device="cpu", **options).fit(data, progress=False)
    assert fit.report is not None
    return Fit(fit.report.seconds, time.process_time() - busy, [dict(entry) for entry in fit.report.curve])


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
