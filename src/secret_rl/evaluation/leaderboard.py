"""What the cells of a benchmark come to: one row for each method on each task, and how the methods rank."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from secret_rl.evaluation.benchmark import Cell, agreement, outcome_of
from secret_rl.evaluation.statistics import BOOTSTRAP, Bootstrap, Estimate, mean

BOUNDS = ("oracle",)
"""Methods that are given the truth: they are shown, and not ranked."""
NUMBERS = ("attributed_precision", "attributed", "precision", "recall", "deletion")
"""Means over seeds that a row has beside its average precision."""
_DIGITS = 2  # of average precision, that ranks look at


@dataclass(frozen=True)
class Row:
    """One method on one task."""

    method: str
    task: str
    seeds: int
    average_precision: Estimate | None
    """Over all rewards that are judged, 0 for those the method does not attribute; with the interval over seeds."""
    verdicts: Mapping[str, int]
    numbers: Mapping[str, float | None]
    """``NUMBERS``, ``agreement`` of seeds, ``fit_seconds``, ``attribution_seconds`` and ``megabytes``."""
    refused: str | None = None
    """Why the method cannot read the task."""

    def to_json(self) -> dict[str, Any]:
        """Every number by name."""
        found = None if self.average_precision is None else self.average_precision.to_json()
        return {**vars(self), "average_precision": found}


@dataclass(frozen=True)
class Standing:
    """One method over all tasks."""

    method: str
    average_precision: Estimate
    """Mean over tasks; the interval is over tasks and seeds."""
    rank: float
    """Mean of ``ranks``."""
    ranks: tuple[float, ...]
    """On each task that is judged, 1 for the best; values that are equal to the hundredth share their ranks."""
    first: int
    """Tasks on which it is first, or within the interval of the first."""
    tasks: int


@dataclass(frozen=True)
class Leaderboard:
    """Rows, in the order of the cells, and standings, best first."""

    methods: tuple[str, ...]
    tasks: tuple[str, ...]
    rows: Mapping[tuple[str, str], Row]
    standings: tuple[Standing, ...]

    def __repr__(self) -> str:
        best = f", best: {self.standings[0].method}" if self.standings else ""
        return f"Leaderboard({len(self.methods)} methods, {len(self.tasks)} tasks{best})"

    def score(self, method: str, task: str) -> float:
        """The average precision of a method on a task; NaN where there is none."""
        row = self.rows.get((method, task))
        return np.nan if row is None or row.average_precision is None else row.average_precision.value


def leaderboard(folder: Path, cells: Sequence[Cell]) -> Leaderboard:
    """The leaderboard of the cells that were run."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.method, cell.task), []).append(cell)
    rows, scores = {}, {}
    for place, group in groups.items():
        outcomes = [(cell, outcome) for cell in group if (outcome := outcome_of(folder, cell)) is not None]
        if outcomes:
            rows[place] = _row(folder, *place, outcomes)
            scores[place] = [o["average_precision"] for _, o in outcomes if "average_precision" in o]
    names, tasks = (tuple(dict.fromkeys(place[i] for place in rows)) for i in (0, 1))
    return Leaderboard(names, tasks, rows, _standings(names, tasks, rows, scores))


def _row(folder: Path, method: str, task: str, outcomes: Sequence[tuple[Cell, Mapping[str, Any]]]) -> Row:
    refused = next((outcome["refused"] for _, outcome in outcomes if "refused" in outcome), None)
    if refused is not None:
        return Row(method, task, len(outcomes), None, {}, {}, refused)
    verdicts = [outcome["verdict"] for _, outcome in outcomes]
    judged = [outcome for _, outcome in outcomes if "average_precision" in outcome]

    def average(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return float(np.mean(known)) if known else None

    numbers = {name: average([outcome[name] for outcome in judged]) for name in NUMBERS}
    numbers["agreement"] = agreement(folder, [cell for cell, _ in outcomes])
    numbers["fit_seconds"] = average([outcome["fit"]["seconds"] for _, outcome in outcomes])
    numbers["attribution_seconds"] = average([outcome["reading"]["seconds"] for outcome in judged])
    numbers["megabytes"] = average([outcome["fit"]["megabytes"] for _, outcome in outcomes])
    precision = _estimate([[outcome["average_precision"] for outcome in judged]]) if judged else None
    counts = {verdict: verdicts.count(verdict) for verdict in dict.fromkeys(verdicts)}
    return Row(method, task, len(outcomes), precision, counts, numbers)


def _estimate(values: Sequence[Sequence[float]]) -> Estimate:
    """The mean over (tasks, seeds), with an interval where there is more than one run to draw from."""
    if len(values) == len(values[0]) == 1:
        return Estimate(values[0][0], -np.inf, np.inf)
    return mean(values, Bootstrap("seeds") if len(values) == 1 else BOOTSTRAP)


def _standings(
    methods: Sequence[str],
    tasks: Sequence[str],
    rows: Mapping[tuple[str, str], Row],
    scores: Mapping[tuple[str, str], Sequence[float]],
) -> tuple[Standing, ...]:
    """Methods that were run on every task that can be judged; one that cannot read a task has 0 there."""
    judged = [task for task in tasks if any(scores.get((method, task)) for method in methods)]
    seeds = min((len(values) for values in scores.values() if values), default=0)
    refused = {place: [0.0] * seeds for place, row in rows.items() if row.refused is not None}
    scores = {**scores, **refused}
    complete = [m for m in methods if m not in BOUNDS and judged and all(scores.get((m, task)) for task in judged)]
    if not complete:
        return ()
    # A difference of less than a hundredth says nothing, however little three seeds differ.
    values = np.array([[np.mean(scores[method, task]) for task in judged] for method in complete]).round(_DIGITS)
    above = (values[None] > values[:, None]).sum(1)
    equal = (values[None] == values[:, None]).sum(1)
    ranks = 1 + above + (equal - 1) / 2  # (method, task)
    best = [rows[complete[int(values[:, j].argmax())], task].average_precision for j, task in enumerate(judged)]
    lowest = np.array([np.inf if e is None else e.low if np.isfinite(e.low) else e.value for e in best]).round(_DIGITS)
    found = [
        Standing(
            method,
            _estimate([scores[method, task][:seeds] for task in judged]),
            float(ranks[i].mean()),
            tuple(ranks[i].tolist()),
            int((values[i] >= lowest - 1e-9).sum()),
            len(judged),
        )
        for i, method in enumerate(complete)
    ]
    return tuple(sorted(found, key=lambda standing: (-standing.average_precision.value, standing.rank)))
