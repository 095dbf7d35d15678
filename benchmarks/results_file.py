"""Timings of several contenders in turn, and where they are written down."""

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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
    "ray",
)


@dataclass(frozen=True)
class Row:
    """One line of a results table."""

    what: str
    value: float | bool
    unit: str = ""
    asked: str = ""
    bound: float | None = None
    """What the machine would allow at best, in the same unit."""
    bound_by: str = ""
    """What that is, in words."""

    def shown(self) -> str:
        """The value as people read it."""
        return _shown(self.value, self.unit)

    def shown_bound(self) -> str:
        """The bound, whose it is, and how near the value comes to it."""
        if not self.bound or not self.value:
            return ""
        near = min(self.value / self.bound, self.bound / self.value)
        return f"{_shown(self.bound, self.unit)}: {self.bound_by} ({near:.0%} of it)"


def _shown(value: float | bool, unit: str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 10 else 3
    return f"{value:,.{digits}f}{'x' if unit == 'x' else ' ' + unit if unit else ''}"


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


def per_second(work: Callable[[], int], seconds: float = 1.0, clock: Callable[[], float] = time.perf_counter) -> float:
    """How many units ``work`` does in a second, repeating it for about ``seconds``.

    Of what one thread does in this process, ``time.process_time`` hardly depends on what else the machine does.
    """
    done, start = 0, clock()
    while clock() - start < seconds:
        done += work()
    return done / (clock() - start)


def write(name: str, title: str, rows: list[Row], more: Mapping[str, Any] | None = None) -> None:
    """Write results (and ``more``, beside the table) with the command, machine, versions and date they came from."""
    if _kept is not None:
        _kept[name] = rows
        return
    for row in rows:
        asked = f" (asked: {row.asked})" if row.asked else ""
        bound = f" (bound: {row.shown_bound()})" if row.shown_bound() else ""
        print(f"  {row.what:<64}{row.shown():>16}{asked}{bound}")
    record = {
        "title": title,
        "command": f"python -m benchmarks {name}",
        "date": datetime.now(UTC).date().isoformat(),
        **machine(),
        "rows": [{name: value for name, value in asdict(row).items() if value is not None} for row in rows],
        **(more or {}),
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    _write_tables()


_kept: dict[str, list[Row]] | None = None  # instead of being written


@contextmanager
def unwritten() -> Iterator[dict[str, list[Row]]]:
    """What benchmarks measure meanwhile, by name; no file is written."""
    global _kept
    _kept = {}
    try:
        yield _kept
    finally:
        _kept = None


def _write_tables() -> None:
    """All results as one page."""
    lines = [
        "# Measured results",
        "",
        "Written by `make bench` from the JSON files beside it. `make bench-check` measures",
    ]
    lines += ["ratios (x) again, and fails where one is more than 20 % worse. A bound is what the machine would allow,"]
    lines += ["measured in the same run.", ""]
    told: dict[str, str] = {}  # versions, by the command that they stand beside
    for path in sorted(RESULTS.glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        versions = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
        rows = [Row(**entry) for entry in record["rows"]]
        bounded = any(row.shown_bound() for row in rows)
        head, rule = (" bound |", " --- |") if bounded else ("", "")
        lines += [f"## {record['title']}", "", f"| what | measured | asked |{head}", f"| --- | ---: | ---: |{rule}"]
        for row in rows:
            bound = f" {row.shown_bound()} |" if bounded else ""
            lines.append(f"| {row.what} | {row.shown()} | {row.asked} |{bound}")
        lines += ["", f"`{record['command']}`, {record['date']}, {record['machine']}, Python {record['python']};"]
        lines += [f"packages as for `{told[versions]}`." if versions in told else f"{versions}.", ""]
        told.setdefault(versions, record["command"])
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
