"""Credit against the truth (paper, section 3.1 and appendix A)."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from secret_rl.credit.attributions import Attributions, of_kind
from secret_rl.display import table_html
from secret_rl.trajectories import Trajectories

_FARTHEST = 20


@dataclass(frozen=True)
class CreditQuality:
    """How well attention finds the steps that truly matter; steps within ``tolerance`` of a true event are right."""

    precision: float
    """Of the steps credited (attention above the threshold), the share that are right; all rows pooled."""
    recall: float
    """Of the true events before each reward, the share with a credited step within the tolerance; all rows pooled."""
    average_precision: float
    """The mean over rows of the average precision of the steps ranked by attention; it needs no threshold.

    The score of an event is the largest weight within the tolerance of it; every step that is near no event is a wrong
    item. Equal weights count as wrong first. 1.0: every event comes before every wrong step.
    """
    strongest: float
    """Share of rows whose largest weight is right (of several equal ones, the share that are)."""
    attention_on_events: float
    """Mean share of a row's attention that is right."""
    uniform_share: float
    """The same of rows that spread their attention evenly."""
    coverage: float
    """Share of rewards predicted correctly, and so attributed."""
    rows: int
    """Rewards judged: attributed, with at least one true event before them."""
    threshold: float
    tolerance: int
    events: str
    """Whether a row should find ``"all"`` of its events or ``"any"``."""
    concentration: Mapping[int, float]
    """Mean attention by signed distance to the nearest true event (negative: before it)."""

    def to_json(self) -> dict[str, Any]:
        """Every number by name."""
        return {**asdict(self), "concentration": {str(d): v for d, v in self.concentration.items()}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "CreditQuality":
        """The inverse of ``to_json``."""
        return cls(**{**data, "concentration": {int(d): float(v) for d, v in data["concentration"].items()}})

    def __repr__(self) -> str:
        return f"CreditQuality({self})"

    def _repr_html_(self) -> str:
        if not self.rows:
            return table_html((), [["quality", str(self)]])
        shares = {
            "precision": self.precision, "recall": self.recall, "average precision": self.average_precision,
            "attention on events": self.attention_on_events, "spread evenly": self.uniform_share,
            "rewards predicted": self.coverage,
        }  # fmt: skip
        rows = [[name, f"{value:.3f}"] for name, value in shares.items()]
        return table_html((), rows, caption=f"{self.rows:,} rewards, attention > {self.threshold:g}")

    def __str__(self) -> str:
        if not self.rows:
            return "nothing to judge: no attributed reward of this kind has a true event before it"
        within = f" within {self.tolerance} steps" if self.tolerance else ""
        return (
            f"precision {self.precision:.3f}, recall {self.recall:.3f} at attention > {self.threshold:g}{within}, "
            f"average precision {self.average_precision:.3f}, {self.attention_on_events:.1%} of attention on events "
            f"(evenly spread {self.uniform_share:.1%}); {self.rows:,} rewards, {self.coverage:.1%} predicted"
        )


def credit_quality(
    attributions: Attributions,
    truth: Trajectories | NDArray[np.bool_] | NDArray[np.integer[Any]],
    threshold: float = 0.2,
    *,
    tolerance: int = 0,
    events: Literal["all", "any"] = "all",
    annotation: str | None = None,
    rewards: str = "positive",
) -> CreditQuality:
    """Compare attention with the steps that truly earned each reward.

    As in the paper, rows of positive rewards are judged by default, at an attention threshold of 0.2.

    Args:
        attributions: What ``Secret.attribute`` returned.
        truth: A flat array with one entry per step of the attributed trajectories. Booleans mark the true events.
            Integers are causes: the step of the same episode that earned this step's reward, or -1 for rewards that are
            not to be judged. Or the trajectories themselves, with such an array as annotation.
        threshold: Attention above which a step is credited.
        tolerance: A credited step is right within so many steps of a true event.
        events: ``"any"`` where each event is evidence enough, such as every step at which a cue was in view: a row has
            full recall if it finds one event, and its average precision is 1 / rank of its best event.
        annotation: The name of the annotation; needed unless exactly one is boolean.
        rewards: The rows to judge, ``"positive"``, ``"negative"`` or ``"all"``: every row, whatever its reward.
    """
    threshold = float(threshold)
    if not 0 <= threshold < 1:
        raise ValueError(f"threshold must lie in [0, 1), got {threshold}")
    if tolerance < 0:
        raise ValueError(f"tolerance must not be negative, got {tolerance}")
    if events not in ("all", "any"):
        raise ValueError(f"events must be 'all' or 'any', got {events!r}")
    true_steps = _true_steps(attributions, _array(truth, annotation))
    concentration = np.zeros(2 * _FARTHEST + 1)
    rows = []
    for row in np.flatnonzero(of_kind(attributions.reward, rewards)).tolist():
        if len(true := true_steps(row)):
            weights = attributions.row(row)
            if not (weights >= 0).all():
                wrong = int(np.argmin(weights >= 0))
                raise ValueError(f"the attention of row {row} on step {wrong} is {weights[wrong]}")
            rows.append(_judge(weights, true, threshold, tolerance, events == "any", concentration))
    right, credited, found, wanted, *others = np.array(rows or [(0.0,) * 8], np.float64).T
    average_precision, strongest, attention_on_events, uniform_share = (float(values.mean()) for values in others)
    return CreditQuality(
        precision=float(right.sum() / max(credited.sum(), 1)),
        recall=float(found.sum() / max(wanted.sum(), 1)),
        average_precision=average_precision,
        strongest=strongest,
        attention_on_events=attention_on_events,
        uniform_share=uniform_share,
        coverage=attributions.coverage,
        rows=len(rows),
        threshold=threshold,
        tolerance=tolerance,
        events=events,
        concentration={d - _FARTHEST: float(v) / max(len(rows), 1) for d, v in enumerate(concentration)},
    )


def _judge(
    weights: NDArray[np.float32],
    true: NDArray[np.int64],
    threshold: float,
    tolerance: int,
    any_event: bool,
    concentration: NDArray[np.float64],
) -> tuple[float, ...]:
    """Measures of one row with attention ``weights`` (steps,) and ``true`` (events,) steps.

    Adds its attention to ``concentration``, by distance to the nearest event.
    """
    steps = np.arange(len(weights))
    far = 2 * (len(weights) + int(true[-1]) + 1)  # farther than any event
    before, after = np.concatenate([[-far], true]), np.append(true, far)
    place = np.searchsorted(true, steps, side="right")
    back, ahead = steps - before[place], after[place] - steps
    distance = np.where(back <= ahead, back, -ahead)  # (steps,) to the nearest event, the earlier one of two
    close = np.abs(distance) <= _FARTHEST
    concentration += np.bincount(distance[close] + _FARTHEST, weights[close], minlength=len(concentration))

    near, credited, largest = np.abs(distance) <= tolerance, weights > threshold, weights == weights.max()
    # A row ends before an event if its reward was predicted early: such an event scores -1.
    windows = (weights[max(step - tolerance, 0) : step + tolerance + 1] for step in true)
    scores = np.sort([window.max(initial=-1) for window in windows])[::-1]
    found, wanted = int((scores > threshold).sum()), len(true)
    # Ranked by score, events last among equals: before the k-th event come k - 1 events and all others of that score.
    scores, others = scores[scores >= 0], np.sort(weights[~near])
    ahead_of = len(others) - np.searchsorted(others, scores)
    number = np.arange(1, len(scores) + 1)
    precision = number / (number + ahead_of)
    if any_event:
        found, wanted, precision = min(found, 1), 1, precision[:1]
    return (
        (credited & near).sum(),
        credited.sum(),
        found,
        wanted,
        precision.sum() / wanted,
        (largest & near).sum() / largest.sum(),
        weights[near].sum(dtype=np.float64),
        near.mean(),
    )


def _true_steps(attributions: Attributions, truth: NDArray[Any]) -> Callable[[int], NDArray[np.int64]]:
    """The steps of the true events of a row, from marked steps or from causes."""
    starts = np.concatenate([[0], np.cumsum(attributions.lengths)])
    if truth.shape != (starts[-1],):
        raise ValueError(f"truth of shape {truth.shape}, but the attributions are of {starts[-1]} steps")
    first, sizes = starts[attributions.episode], np.diff(attributions.offsets)  # (rows,)
    if truth.dtype == np.bool_:
        return lambda row: np.flatnonzero(truth[first[row] : first[row] + sizes[row]])
    within = np.arange(starts[-1]) - np.repeat(starts[:-1], attributions.lengths)
    wrong = np.flatnonzero((truth >= within) | (truth < -1))
    if len(wrong):
        raise ValueError(
            f"the cause of step {within[wrong[0]]} is step {truth[wrong[0]]}: it must be an earlier one, or -1 "
            "(to mark events, pass booleans)"
        )
    cause = truth[first + attributions.step].astype(np.int64)
    return lambda row: cause[row : row + 1][cause[row : row + 1] >= 0]


def _array(truth: Trajectories | NDArray[Any], annotation: str | None) -> NDArray[Any]:
    """(steps,) booleans or whole numbers."""
    if isinstance(truth, Trajectories):
        names = [name for name, array in truth.annotations.items() if array.dtype == np.bool_]
        if annotation is None and len(names) != 1:
            raise ValueError(f"the truth must be named: pass annotation=..., one of {sorted(truth.annotations)}")
        name = names[0] if annotation is None else annotation
        if name not in truth.annotations:
            raise ValueError(f"no annotation {name!r}: these trajectories hold {sorted(truth.annotations)}")
        truth = truth.annotations[name]
    elif annotation is not None:
        raise ValueError(f"annotation={annotation!r} names an annotation of trajectories, but the truth is an array")
    truth = np.asarray(truth)
    if truth.dtype.kind not in "biu":
        raise ValueError(f"the truth holds {truth.dtype} values: expected booleans (events) or integers (causes)")
    return truth
