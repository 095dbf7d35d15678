"""Timings of several contenders in turn, and where they are written down."""

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
_PACKAGES = (
    "secret-rl",
    "numpy",
    "numba",
    "gymnasium",
    "minigrid",
    "jax",
    "xminigrid",
    "navix",
    "gymnax",
    "minari",
    "h5py",
    "torch",
    "stable-baselines3",
    "vizdoom",
    "miniworld",
    "plotly",
    "playwright",
)


@dataclass(frozen=True)
class Row:
    """One line of a results table."""

    what: str
    value: float | bool
    unit: str = ""
    asked: str = ""

    def shown(self) -> str:
        """The value as people read it."""
        if isinstance(self.value, bool):
            return "yes" if self.value else "no"
        digits = 0 if abs(self.value) >= 1000 else 1 if abs(self.value) >= 10 else 3
        return f"{self.value:,.{digits}f}{'x' if self.unit == 'x' else ' ' + self.unit if self.unit else ''}"


def use_one_core() -> None:
    """Pin this process, and everything it starts, to one core."""
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ["NUMBA_NUM_THREADS"] = "1"
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def interleaved(contenders: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """The median of what each contender measures of itself, all of them once per round."""
    measured: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, measure in contenders.items():
            measured[name].append(measure())
    return {name: statistics.median(values) for name, values in measured.items()}


def per_second(work: Callable[[], int], seconds: float = 1.0) -> float:
    """How many units ``work`` does in a second, repeating it for about ``seconds``."""
    done, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        done += work()
    return done / (time.perf_counter() - start)


def write(name: str, title: str, rows: list[Row], more: Mapping[str, Any] | None = None) -> None:
    """Write results (and ``more``, beside the table) with the command, machine, versions and date they came from."""
    for row in rows:
        asked = f" (asked: {row.asked})" if row.asked else ""
        print(f"  {row.what:<64}{row.shown():>16}{asked}")
    record = {
        "title": title,
        "command": f"python -m benchmarks {name}",
        "date": datetime.now(UTC).date().isoformat(),
        **machine(),
        "rows": [asdict(row) for row in rows],
        **(more or {}),
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    _write_tables()


def _write_tables() -> None:
    """All results as one page."""
    lines = ["# Measured results", "", "Written by `make bench` from the JSON files beside it.", ""]
    for path in sorted(RESULTS.glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        versions = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
        lines += [f"## {record['title']}", "", "| what | measured | asked |", "| --- | ---: | ---: |"]
        for entry in record["rows"]:
            row = Row(**entry)
            lines.append(f"| {row.what} | {row.shown()} | {row.asked} |")
        lines += ["", f"`{record['command']}`, {record['date']}, {record['machine']}, Python {record['python']};"]
        lines += [f"{versions}.", ""]
    (RESULTS / "README.md").write_text("\n".join(lines), encoding="utf-8")


def machine() -> dict[str, Any]:
    """The processor and the versions of everything measured."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "machine": f"{_processor()}, {os.cpu_count()} cores, one used",
        "python": platform.python_version(),
        "versions": versions,
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.processor() or platform.machine()
