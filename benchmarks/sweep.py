"""A study of 24 small fits: one job beside two, and processes beside Ray, whose files are the same."""

import os
import resource
import shutil
import tempfile
import time
import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.results_file import Row, interleaved, machine, write
from secret_rl import sweep
from secret_rl.sweep import LOCAL, Cell, Workers

JOBS, ROUNDS = 2, 3
FULL: dict[str, Any] = {"episodes": 1_000, "steps": 300}


def study(size: Mapping[str, Any], seeds: int = 8) -> list[Cell]:
    """Three widths of the model, with every seed."""
    settings = [{**size, "units": units, "seed": seed} for seed in range(seeds) for units in (16, 24, 32)]
    return [Cell(f"units {each['units']}, seed {each['seed']}", each, partial(fit, **each)) for each in settings]


def fit(*, episodes: int, steps: int, units: int, seed: int) -> dict[str, Any]:
    """A fit of SECRET to random play: how well it predicts, and the losses on the way."""
    import secret_rl as srl

    maze = {"size": 6, "triggers": 1, "prizes": 1}
    data = srl.collect(
        "secret_rl/Triggers-v0", episodes, seed=seed, success_share=0.25, env_options=maze, progress=False
    )
    secret = srl.Secret(seed=seed, units=units, steps=steps, batch_size=32, device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # so short a fit learns little
        secret.fit(data, progress=False)
    assert secret.report is not None
    report = secret.report.to_json()
    return {name: report[name] for name in ("verdict", "gain", "validation", "curve")}


def run() -> None:
    """Measure in turn and write the medians down."""
    contents: dict[str, dict[str, bytes]] = {}
    used: dict[str, float] = {}
    contenders = {"one job": Workers(1), "two jobs": Workers(JOBS), "Ray, two workers": Workers(JOBS, LOCAL)}
    seconds = interleaved(
        {name: partial(_timed, name, how, contents, used) for name, how in contenders.items()}, ROUNDS
    )
    same = all(files == contents["one job"] for files in contents.values())
    rows = [Row(f"{len(study(FULL))} cells, {name}", value, "s") for name, value in seconds.items()]
    rows += [
        Row("two jobs over one", seconds["one job"] / seconds["two jobs"], "x", ">= 1.7x on two cores"),
        Row("processor time of two jobs over one", used["two jobs"] / used["one job"], "x"),
        Row("Ray over one job, its start and end included", seconds["one job"] / seconds["Ray, two workers"], "x"),
        Row("programs that wanted a core meanwhile (load average, 1 minute)", os.getloadavg()[0]),
        Row("files of all three are the same bytes", same, asked="yes"),
    ]
    about = machine()["machine"].replace("one used", "two used")
    write("sweep", "A study of 24 cells, in processes and on Ray", rows, {"machine": about})


def _timed(name: str, workers: Workers, contents: dict[str, dict[str, bytes]], used: dict[str, float]) -> float:
    """Seconds on the clock; also the files, and the processor time of the workers that this process waited for."""
    folder = Path(tempfile.mkdtemp(prefix="secret-rl-sweep-"))
    started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    _, failures = sweep.run(study(FULL), folder, workers, progress=False)
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    used[name] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if failures:
        raise RuntimeError("; ".join(map(str, failures)))
    contents[name] = content_of(folder)
    shutil.rmtree(folder)
    return seconds


def content_of(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
