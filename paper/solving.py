"""How soon agents solve tasks: the numbers of their runs, and a table of conditions. Needs no compiled code."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secret_rl.evaluation import LearningCurves, curves, statistics
from secret_rl.evaluation.comparison import Table

SOLVED = 0.8  # of the best return
_HEADER = ("condition", "mean return", "in the end", "P(improvement)", "solved", "steps to solve")


def runs_of(learned: LearningCurves, label: str, test_every: int) -> dict[str, Any]:
    """(mazes, seeds) of each: mean return over training and in the end, steps until it was solved, None for never."""
    tests = curves.episodes_to_threshold(learned[label], fraction=SOLVED, optimal=learned.optimal, window=1)
    steps = (tests - 1) * test_every  # the first test is before the first step
    return {
        "area": curves.area_under_curve(learned[label]).round(4).tolist(),
        "final": curves.final_performance(learned[label]).round(4).tolist(),
        "steps": [[int(one) if np.isfinite(one) else None for one in row] for row in steps],
    }


def section(found: Mapping[str, Mapping[str, Any] | None], baseline: str, size: str) -> list[str] | None:
    """The table of entries by condition, beside the baseline; None if there is none."""
    if not any(found.values()):
        return None
    rows = [_row(label, entry, found[baseline]) for label, entry in found.items()]
    bootstrap = statistics.BOOTSTRAP
    notes = [
        f"{size}; unshaped discounted return, mean over training (*in the end*: over the last tenth), then over "
        "agents.",
        f"*solved*: agents that came to {SOLVED:.0%} of the best return in a test; *steps to solve*: median over all "
        "agents, those that never did included.",
        f"{bootstrap.confidence:.0%} bootstrap intervals over mazes and seeds ({bootstrap.draws:,} draws); "
        f"P(improvement) paired with {baseline}.",
    ]
    return [Table(list(_HEADER), rows, notes).to_markdown().rstrip(), ""]


def _row(label: str, entry: Mapping[str, Any] | None, baseline: Mapping[str, Any] | None) -> list[str]:
    if entry is None:
        return [label, "not run", *[""] * (len(_HEADER) - 2)]
    runs = entry["runs"]
    steps = np.array(runs["steps"], np.float64)
    steps[np.isnan(steps)] = np.inf  # null is NaN
    better = ""
    if baseline is not None and baseline is not entry:
        better = f"{statistics.probability_of_improvement(runs['area'], baseline['runs']['area']):.2f}"
    means = [f"{statistics.mean(runs[name]):.3f}" for name in ("area", "final")]
    return [label, *means, better, f"{statistics.mean(np.isfinite(steps)):.0%}", median(steps)]


def median(steps: NDArray[np.float64]) -> str:
    """The median of (mazes, seeds) steps, infinite for never, with its interval."""
    bootstrap = statistics.BOOTSTRAP
    point, draws = statistics.draw(medians, steps[..., None], bootstrap)
    tail = (1 - bootstrap.confidence) / 2
    ends = np.quantile(draws[:, 0], (tail, 1 - tail), method="inverted_cdf")  # nothing between a number and never
    value, low, high = (f"{one:,.0f}" if np.isfinite(one) else "never" for one in (point[0], *ends))
    return value if low == high else f"{value} [{low}, {high}]"


def medians(counts: NDArray[np.float64], columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """(draws, columns) medians, from counts (draws, runs) and columns (runs, columns)."""
    runs = len(columns)
    found = np.empty((len(counts), columns.shape[1]))
    for number, column in enumerate(columns.T):
        order = column.argsort()
        ranks = counts[:, order].cumsum(1)
        middle = [(ranks > rank).argmax(1) for rank in ((runs - 1) // 2, runs // 2)]
        found[:, number] = column[order][middle].mean(0)
    return found
