"""Credit against the one step that truly earned each reward, where that step is known."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from secret_rl.credit import Attributions

_FARTHEST = 20


@dataclass(frozen=True)
class CauseQuality:
    """How well attention finds the step that earned each reward; steps within ``tolerance`` of it count as found.

    Frames that follow each other look alike: at a few steps a second nobody can tell which of them took the key.
    """

    share: float
    """Mean share of a row's attention that lies within the tolerance of its cause."""
    uniform_share: float
    """The same of rows that spread their attention evenly."""
    strongest: float
    """Share of rows whose largest weight lies within the tolerance of the cause."""
    precision: float
    """Of the steps with attention above the threshold, the share within the tolerance of the cause; rows pooled."""
    recall: float
    """Share of rows in which a step within the tolerance of the cause is above the threshold."""
    predicted: float
    """Share of the rewards with a known cause that are predicted, and so attributed."""
    rows: int
    """Rewards judged: attributed, with a known cause."""
    threshold: float
    tolerance: int
    concentration: Mapping[int, float]
    """Mean attention by signed distance to the cause (negative: before it)."""

    def to_json(self) -> dict[str, Any]:
        """Every number by name."""
        return {**asdict(self), "concentration": {str(d): v for d, v in self.concentration.items()}}

    def __str__(self) -> str:
        return (
            f"{self.share:.1%} of attention within {self.tolerance} steps of the cause (a uniform row: "
            f"{self.uniform_share:.1%}), the strongest step is there in {self.strongest:.1%} of rows; precision "
            f"{self.precision:.3f}, recall {self.recall:.3f} at attention > {self.threshold:g} "
            f"({self.rows:,} rewards, {self.predicted:.1%} predicted)"
        )


def cause_quality(
    attributions: "Attributions", causes: NDArray[np.int64], *, threshold: float = 0.2, tolerance: int = 5
) -> CauseQuality:
    """Compare attention with the step that earned each reward.

    ``causes`` holds, for each step of the trajectories that were attributed, laid end to end, the step of the same
    episode that earned its reward, or -1 where there is none to be found: rewards with -1 are not judged.
    """
    if not 0 <= threshold < 1:
        raise ValueError(f"threshold must lie in [0, 1), got {threshold}")
    if tolerance < 0:
        raise ValueError(f"tolerance must not be negative, got {tolerance}")
    causes = np.asarray(causes)
    starts = np.concatenate([[0], np.cumsum(attributions.lengths)])
    if causes.shape != (starts[-1],):
        raise ValueError(f"causes of shape {causes.shape}, but the attributions are of {starts[-1]} steps")
    within = np.arange(starts[-1]) - np.repeat(starts[:-1], attributions.lengths)
    if (causes >= within).any():
        wrong = int(np.argmax(causes >= within))
        raise ValueError(f"the cause of step {within[wrong]} is step {causes[wrong]}: it must be an earlier one, or -1")
    cause = causes[starts[attributions.episode] + attributions.step]  # (all rows,)
    judged = np.flatnonzero(cause >= 0)
    rows = len(judged)
    wanted = int((causes >= 0).sum())
    sizes = np.diff(attributions.offsets)
    of_row = np.repeat(np.arange(len(attributions)), sizes)
    kept = cause[of_row] >= 0
    of_row, weights = of_row[kept], attributions.weights[kept].astype(np.float64)
    distance = (np.arange(attributions.offsets[-1]) - np.repeat(attributions.offsets[:-1], sizes))[kept] - cause[of_row]
    near = np.abs(distance) <= tolerance
    credited = weights > threshold
    best = np.full(len(attributions), -1.0)
    np.maximum.at(best, of_row, weights)
    best_near = np.full(len(attributions), -2.0)
    np.maximum.at(best_near, of_row[near], weights[near])
    close = np.abs(distance) <= _FARTHEST
    counted = np.bincount(distance[close] + _FARTHEST, weights=weights[close], minlength=2 * _FARTHEST + 1)
    per_row = max(rows, 1)
    return CauseQuality(
        share=float(weights[near].sum()) / per_row,
        uniform_share=float((np.bincount(of_row[near], minlength=len(sizes)) / np.maximum(sizes, 1)).sum()) / per_row,
        strongest=float((best_near == best)[judged].sum()) / per_row,
        precision=float((credited & near).sum() / credited.sum()) if credited.any() else 0.0,
        recall=len(np.unique(of_row[credited & near])) / per_row,
        predicted=rows / wanted if wanted else 0.0,
        rows=rows,
        threshold=threshold,
        tolerance=tolerance,
        concentration={d - _FARTHEST: float(v) / per_row for d, v in enumerate(counted)},
    )
