"""Whether ratios have got worse: ``python -m benchmarks check [NAME ...]`` measures them again and writes nothing.

Ratios are rows in ``x``, and in ``%`` where something adds so much; both sides of one are measured in the same run, so
that a faster or busier machine matters little. One that is more than 20 % worse than the committed one is measured
again, and counts if it is so each time. ``QUICK`` is checked unless benchmarks are named: it needs no peer that is
installed for benchmarks alone, and none that takes minutes, as Minari in ``store``.
"""

import json
import sys
from collections.abc import Iterable
from importlib import import_module
from types import ModuleType

from benchmarks.results_file import RESULTS, Row, unwritten

WORST, TRIES = 0.2, 3
QUICK = {  # how often each contender is measured: other settings would be other rows
    "training": {"ROUNDS": 3},
    "attribution": {"ROUNDS": 3},
    "q_learning": {"ROUNDS": 3},
}


def check(names: Iterable[str]) -> list[str]:
    """Measure; print each ratio beside the committed one; what is worse, a line for each row."""
    worse = []
    for name in names:
        module = import_module(f"benchmarks.{name}")
        for option, value in QUICK.get(name, {}).items():
            setattr(module, option, value)
        print(name, flush=True)
        committed, found = _committed(name), {}
        for _ in range(TRIES):
            for what, row in _measured(name, module).items():
                found[what] = max(found.get(what, row), row, key=_speed)
            if not (left := compare(committed, found)):
                break
        for what, row in committed.items():
            print(f"  {what:<64}{row.shown():>12}{found[what].shown() if what in found else 'missing':>12}")
        worse += [f"{name}: {line}" for line in left]
    return worse


def compare(committed: dict[str, Row], measured: dict[str, Row]) -> list[str]:
    """What is worse than it was, or is missing."""
    lines = []
    for what, row in committed.items():
        if what not in measured:
            lines.append(f"{what}: {row.shown()} committed, but no longer measured")
        elif (kept := _speed(measured[what]) / _speed(row)) < 1 - WORST:
            shown = f"{row.shown()} committed, {measured[what].shown()} measured"
            lines.append(f"{what}: {shown}: {1 - kept:.0%} worse, at most {WORST:.0%} is allowed")
    return lines


def ratios(rows: Iterable[Row]) -> dict[str, Row]:
    """The rows that are ratios, by what they are of."""
    return {row.what: row for row in rows if row.unit in ("x", "%")}


def _speed(row: Row) -> float:
    """A ratio so that more is better."""
    ratio = row.value if row.unit == "x" else 1 + row.value / 100
    return 1 / ratio if row.unit == "%" or row.asked.startswith("<") else ratio


def _committed(name: str) -> dict[str, Row]:
    path = RESULTS / f"{name}.json"
    if not path.is_file():
        sys.exit(f"{path} is missing: python -m benchmarks {name} writes it")
    found = ratios(Row(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))["rows"])
    if not found:
        sys.exit(f"{name} has no ratios to check: choose others")
    return found


def _measured(name: str, module: ModuleType) -> dict[str, Row]:
    with unwritten() as written:
        module.run()
    return ratios(written[name])


def run(names: list[str]) -> None:
    """Check, and exit with what is worse."""
    if worse := check(names or QUICK):
        sys.exit("\n".join(["worse than committed:", *worse]))
    print("no ratio is more than 20 % worse than the committed one")
