"""Conditions beside a baseline: one table of what was learned, how fast, and how certain that is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from textwrap import wrap
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from secret_rl.display import table_html
from secret_rl.evaluation import curves as measures
from secret_rl.evaluation import statistics
from secret_rl.evaluation.curves import LearningCurves
from secret_rl.evaluation.statistics import BOOTSTRAP, Bootstrap, Estimate, draw, estimates_of
from secret_rl.files import plain


@dataclass(frozen=True)
class Table:
    """Text cells with notes below, as plain text and as Markdown; the report renders it as HTML."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    def to_text(self, width: int = 80) -> str:
        """Aligned columns; those that do not fit the width go below, beside the first again.

        >>> print(Table(["name", "x"], [["longer", "1"], ["b", "20"]]).to_text())
        name    x
        ------  --
        longer  1
        b       20
        <BLANKLINE>
        """
        cells = list(zip(*[self.header, *self.rows], strict=True))  # by column
        sizes = [max(map(len, column)) for column in cells]
        blocks = [[0]]
        for column in range(1, len(cells)):
            if sum(sizes[at] + 2 for at in blocks[-1]) + sizes[column] > width and len(blocks[-1]) > 1:
                blocks.append([0])
            blocks[-1].append(column)
        lines: list[str] = []
        for block in blocks:
            for row in zip(*[(cells[at][0], "-" * sizes[at], *cells[at][1:]) for at in block], strict=True):
                lines.append("  ".join(map(str.ljust, row, (sizes[at] for at in block))).rstrip())
            lines.append("")
        return "\n".join([*lines, *(line for note in self.notes for line in wrap(note, width))])

    def to_markdown(self) -> str:
        """A Markdown table."""
        cells = [self.header, ["---"] * len(self.header), *self.rows]
        lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells]
        return "\n".join([*lines, "", *self.notes, ""])


@dataclass(frozen=True)
class ComparedCondition:
    """One condition: estimates over its runs, and what sets it apart from the baseline (None for the baseline)."""

    name: str
    area: Estimate
    """Mean over runs of the mean return over training."""
    area_iqm: Estimate
    """Interquartile mean over runs of the same."""
    final: Estimate
    """Mean over runs of the mean return over the last tenth of training."""
    ratio: Estimate | None
    """``area`` over that of the baseline."""
    difference: Estimate | None
    """``area`` minus that of the baseline."""
    improvement: Estimate | None
    """Probability that a run has a larger area than the baseline's on the same maze with the same seed."""
    share_reached: float | None = None
    """Share of runs that reached the threshold; None without a threshold, as all that follows."""
    episodes_to_threshold: float | None = None
    """Median over all runs; None where half of them or more did not reach it."""
    total_episodes: float | None = None
    """The same plus the target trajectories collected beforehand."""

    def __repr__(self) -> str:
        ratio = "" if self.ratio is None else f", ratio {self.ratio:.2f}"
        return f"ComparedCondition({self.name!r}, mean return {self.area:.3f}{ratio})"


@dataclass(frozen=True)
class Comparison:
    """Every condition beside the baseline; ``comparison["pending"].ratio.value``, or print it."""

    conditions: Mapping[str, ComparedCondition]
    baseline: str
    mazes: int
    seeds: int
    episodes: int
    threshold: str | None
    """In words; None if there is none."""
    bootstrap: Bootstrap
    unit: str = "episodes"
    """What the points of a learning curve are."""

    def __getitem__(self, name: str) -> ComparedCondition:
        if name not in self.conditions:
            raise KeyError(f"no condition {name!r}: compared were {', '.join(map(repr, self.conditions))}")
        return self.conditions[name]

    def to_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it; null for what is undefined, unbounded or not known."""
        return dict(plain(asdict(self)))

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Comparison":
        """The inverse of ``to_json``; an unbounded interval is infinite on both sides."""

        def read(part: Any) -> Any:
            return Estimate.from_json(part) if isinstance(part, Mapping) else part

        conditions = {
            name: ComparedCondition(**{key: read(part) for key, part in row.items()})
            for name, row in content["conditions"].items()
        }
        return cls(**{**content, "conditions": conditions, "bootstrap": Bootstrap(**content["bootstrap"])})

    def table(self) -> Table:
        """The cells and notes that text, Markdown and HTML show."""
        columns: dict[str, Callable[[ComparedCondition], str]] = {
            "condition": lambda row: row.name,
            "mean return": lambda row: f"{row.area:.3f}",
            "IQM": lambda row: f"{row.area_iqm:.3f}",
            f"ratio to {self.baseline}": lambda row: "" if row.ratio is None else f"{row.ratio:.2f}",
            "P(improvement)": lambda row: "" if row.improvement is None else f"{row.improvement:.2f}",
        }
        if self.threshold is not None:
            columns["reached"] = lambda row: f"{row.share_reached:.0%}"
            columns["episodes to threshold"] = lambda row: _time(row.episodes_to_threshold)
            if any(row.total_episodes != row.episodes_to_threshold for row in self.conditions.values()):
                columns["with those collected"] = lambda row: _time(row.total_episodes)
        rows = [[cell(row) for cell in columns.values()] for row in self.conditions.values()]
        drawn = {"both": "mazes and seeds", "mazes": "mazes", "seeds": "seeds within mazes"}[self.bootstrap.resample]
        notes = [
            f"{self.mazes:,} mazes x {self.seeds:,} seeds x {self.episodes:,} {self.unit}; "
            "unshaped discounted return, mean over training, then over runs.",
            f"{self.bootstrap.confidence:.0%} bootstrap intervals over {drawn} ({self.bootstrap.draws:,} draws); "
            f"ratio and P(improvement) paired with {self.baseline} over mazes and seeds.",
        ]
        if self.threshold is not None:
            notes.append(f"Threshold: {self.threshold}; median over all runs, those that never reach it included.")
        return Table(list(columns), rows, notes)

    def __str__(self) -> str:
        return self.table().to_text()

    def __repr__(self) -> str:
        return f"Comparison of {', '.join(map(repr, self.conditions))}: {self.mazes:,} mazes x {self.seeds:,} seeds"

    def _repr_html_(self) -> str:
        table = self.table()
        return table_html(table.header, table.rows, table.notes)

    def to_markdown(self) -> str:
        """A table with what its numbers mean below."""
        return self.table().to_markdown()


def compare(
    curves: LearningCurves,
    baseline: str = "none",
    *,
    threshold: ArrayLike | None = None,
    fraction: float | None = None,
    window: int = 10,
    bootstrap: Bootstrap = BOOTSTRAP,
    unit: str = "episodes",
) -> Comparison:
    """Put every condition beside the baseline.

    >>> rng = np.random.default_rng(0)
    >>> slow, fast = (rng.normal(level, 0.1, (30, 5, 100)) for level in (0.2, 0.6))
    >>> comparison = compare(LearningCurves({"none": slow, "pending": fast}, optimal=1.0), fraction=0.5)
    >>> print(f"{comparison['pending'].ratio:.1f}, reached {comparison['pending'].share_reached:.0%}")
    3.0 [3.0, 3.0], reached 100%

    Args:
        curves: The learning curves of all conditions.
        baseline: The condition that the others are compared with.
        threshold: A return, one for all mazes or one per maze: the table then says how long each condition takes to
            reach it.
        fraction: The same as a fraction of ``curves.optimal``.
        window: The number of episodes whose mean return must reach the threshold.
        bootstrap: How intervals are made.
        unit: What the points of the curves are, where they are not episodes.
    """
    if baseline not in curves.returns:
        raise ValueError(f"no condition {baseline!r} to compare with: pass baseline=, one of {list(curves.names)}")
    rows = _estimates(curves, baseline, bootstrap)
    words = None
    if threshold is not None or fraction is not None:
        for name in curves:
            goal = {"fraction": fraction, "optimal": curves.optimal, "window": window}
            times = measures.episodes_to_threshold(curves[name], threshold, **goal)
            rows[name] |= {
                "share_reached": measures.share_reached(times),
                "episodes_to_threshold": measures.median_time(times),
                "total_episodes": measures.median_time(times + curves.collected[name][:, None]),
            }
        levels = np.asarray(threshold, np.float64)
        level = "a return set for each maze" if levels.ndim else f"a return of {levels:g}"
        level = level if fraction is None else f"{fraction:.0%} of the optimal return"
        words = f"{level} in the mean over {window:,} episode{'s' * (window > 1)}"
    conditions = {name: ComparedCondition(name, **row) for name, row in rows.items()}
    return Comparison(conditions, baseline, curves.mazes, curves.seeds, curves.episodes, words, bootstrap, unit)


def _estimates(curves: LearningCurves, baseline: str, bootstrap: Bootstrap) -> dict[str, dict[str, Any]]:
    """All conditions at once, so that the runs are drawn twice and not again for every number."""
    areas = np.stack([measures.area_under_curve(curves[name]) for name in curves], -1)  # (mazes, seeds, conditions)
    finals = np.stack([measures.final_performance(curves[name]) for name in curves], -1)
    base, count = curves.names.index(baseline), len(curves)
    theirs, confidence = areas[..., base, None], bootstrap.confidence
    better = statistics.improvements(areas, theirs)
    kinds = {"area": areas, "final": finals, "difference": areas - theirs, "improvement": better}
    point, draws = draw(statistics.means, np.concatenate(list(kinds.values()), -1), bootstrap)
    every = estimates_of(point, draws, confidence)
    columns: dict[str, list[Estimate]] = {kind: every[i * count : (i + 1) * count] for i, kind in enumerate(kinds)}
    columns["area_iqm"] = estimates_of(*draw(statistics.trimmed_means, areas, bootstrap), confidence)
    columns["ratio"] = [
        statistics.ratio_estimate(point[i], point[base], draws[:, i], draws[:, base], confidence) for i in range(count)
    ]
    relative = ("ratio", "difference", "improvement")
    return {
        name: {kind: None if i == base and kind in relative else column[i] for kind, column in columns.items()}
        for i, name in enumerate(curves)
    }


def _time(median: float | None) -> str:
    return "not reached" if median is None else f"{median:,.0f}"
