"""Credit against the truth (paper, section 3.1 and appendix A)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secret_rl.trajectories import Trajectories

if TYPE_CHECKING:
    from secret_rl.credit import Attributions

_FARTHEST = 10


@dataclass(frozen=True)
class CreditQuality:
    """How well attention finds the steps that truly matter."""

    precision: float
    """Of the steps credited (attention above the threshold), the share that are true events; all rows pooled."""
    recall: float
    """Of the true events before each reward, the share that are credited; all rows pooled."""
    row_precision: float
    """The same, averaged over rows; a row that credits nothing counts 0."""
    row_recall: float
    attention_on_events: float
    """Mean attention on true events."""
    coverage: float
    """Share of rewards predicted correctly, and so attributed."""
    rows: int
    """Rewards judged: attributed, with at least one true event before them."""
    threshold: float
    concentration: Mapping[int, float]
    """Mean attention by signed distance to the nearest true event (negative: before it)."""

    def to_json(self) -> dict[str, Any]:
        """Every number by name."""
        return {**asdict(self), "concentration": {str(d): v for d, v in self.concentration.items()}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "CreditQuality":
        """The inverse of ``to_json``."""
        return cls(**{**data, "concentration": {int(d): float(v) for d, v in data["concentration"].items()}})

    def __str__(self) -> str:
        return (
            f"precision {self.precision:.3f}, recall {self.recall:.3f} at attention > {self.threshold:g} "
            f"({self.rows:,} rewards, {self.coverage:.1%} of them predicted, "
            f"{self.attention_on_events:.1%} of attention on true events)"
        )


def credit_quality(
    attributions: "Attributions",
    truth: Trajectories | NDArray[np.bool_],
    threshold: float = 0.2,
    *,
    annotation: str | None = None,
    rewards: str = "positive",
) -> CreditQuality:
    """Compare attention with true events.

    ``truth`` is the trajectories that were attributed, with a boolean annotation that marks the events (its name is
    needed only if there are several), or a flat boolean array of their steps. As in the paper, rows of positive
    rewards are judged unless told otherwise, at an attention threshold of 0.2.
    """
    if not 0 <= threshold < 1:
        raise ValueError(f"threshold must lie in [0, 1), got {threshold}")
    events = _events(truth, annotation)
    starts = np.concatenate([[0], np.cumsum(attributions.lengths)])
    if len(events) != starts[-1]:
        raise ValueError(f"{len(events)} steps of truth, but the attributions are of {starts[-1]} steps")
    signs = {"positive": (1,), "negative": (-1,), "all": (-1, 1)}
    if rewards not in signs:
        raise ValueError(f"rewards must be one of {sorted(signs)}, got {rewards!r}")
    hits = credited = true = rows = 0
    row_precision = row_recall = mass = 0.0
    concentration = np.zeros(2 * _FARTHEST + 1)
    for r in np.flatnonzero(np.isin(np.sign(attributions.reward), signs[rewards])).tolist():
        weights = attributions.row(r)
        first = starts[attributions.episode[r]]
        marked = events[first : first + len(weights)]
        count = int(np.count_nonzero(marked))
        if not count:
            continue
        chosen = weights > threshold
        both = int(np.count_nonzero(chosen & marked))
        picked = int(np.count_nonzero(chosen))
        hits, credited, true, rows = hits + both, credited + picked, true + count, rows + 1
        row_precision += both / picked if picked else 0.0
        row_recall += both / count
        mass += float(weights[marked].sum())
        distance = _signed_distance(marked)
        near = np.abs(distance) <= _FARTHEST
        concentration += np.bincount(distance[near] + _FARTHEST, weights=weights[near], minlength=len(concentration))
    per_row = max(rows, 1)
    return CreditQuality(
        precision=hits / credited if credited else 0.0,
        recall=hits / true if true else 0.0,
        row_precision=row_precision / per_row,
        row_recall=row_recall / per_row,
        attention_on_events=mass / per_row,
        coverage=attributions.coverage,
        rows=rows,
        threshold=threshold,
        concentration={d - _FARTHEST: float(v) / per_row for d, v in enumerate(concentration)},
    )


def _signed_distance(marked: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(steps,) step minus the nearest event; the earlier one of two equally near."""
    where = np.flatnonzero(marked)
    steps = np.arange(len(marked))
    nearest = np.abs(steps[:, None] - where).argmin(1)
    return np.asarray(steps - where[nearest], np.int64)


def _events(truth: Trajectories | NDArray[np.bool_], annotation: str | None) -> NDArray[np.bool_]:
    if not isinstance(truth, Trajectories):
        return np.asarray(truth, np.bool_)
    names = [name for name, array in truth.annotations.items() if array.dtype == np.bool_]
    if annotation is None:
        if len(names) != 1:
            raise ValueError(
                f"the truth must be named: these trajectories hold the boolean annotations {names}; "
                "pass annotation=..., or an array of bools"
            )
        annotation = names[0]
    if annotation not in truth.annotations:
        raise ValueError(f"no annotation {annotation!r}: these trajectories hold {sorted(truth.annotations)}")
    return np.asarray(truth.annotations[annotation], np.bool_)
