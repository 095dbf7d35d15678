"""Credit against the truth (paper, section 3.1 and appendix A)."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from secret_rl.trajectories import Trajectories

if TYPE_CHECKING:
    from secret_rl.credit import Attributions

_FARTHEST = 20
_WEIGHTS_AT_A_TIME = 1 << 20  # bounds memory whatever the number of rewards


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
    row_precision: float
    """Precision averaged over rows; a row that credits nothing counts 0."""
    row_recall: float
    """Recall averaged over rows."""
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

    def __str__(self) -> str:
        within = f" within {self.tolerance} steps" if self.tolerance else ""
        return (
            f"precision {self.precision:.3f}, recall {self.recall:.3f} at attention > {self.threshold:g}{within}, "
            f"average precision {self.average_precision:.3f}, {self.attention_on_events:.1%} of attention on events "
            f"(evenly spread {self.uniform_share:.1%}); {self.rows:,} rewards, {self.coverage:.1%} predicted"
        )


def credit_quality(
    attributions: "Attributions",
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
    known = _Truth(attributions, _array(truth, annotation))
    judged = np.flatnonzero(_of_kind(attributions.reward, rewards) & (known.count > 0))
    blocks = list(_blocks(judged, np.diff(attributions.offsets))) or [judged]
    parts = [_judge(attributions, known, block, threshold, tolerance, events) for block in blocks]
    row = {name: np.concatenate([part[name] for part, _ in parts]) for name in parts[0][0]}
    concentration = np.sum([distances for _, distances in parts], axis=0) / max(len(judged), 1)
    return CreditQuality(
        precision=_ratio(row["right"].sum(), row["credited"].sum()),
        recall=_ratio(row["found"].sum(), row["wanted"].sum()),
        average_precision=_mean(row["average_precision"]),
        strongest=_mean(row["strongest"]),
        row_precision=_mean(row["right"] / np.maximum(row["credited"], 1)),
        row_recall=_mean(row["found"] / row["wanted"]),
        attention_on_events=_mean(row["attention"]),
        uniform_share=_mean(row["uniform"]),
        coverage=attributions.coverage,
        rows=len(judged),
        threshold=threshold,
        tolerance=tolerance,
        events=events,
        concentration={d - _FARTHEST: float(v) for d, v in enumerate(concentration)},
    )


def _ratio(part: int, whole: int) -> float:
    return float(part / whole) if whole else 0.0


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else 0.0


class _Truth:
    """The true events of each row, from marked steps or from causes."""

    def __init__(self, attributions: "Attributions", truth: NDArray[Any]) -> None:
        starts = np.concatenate([[0], np.cumsum(attributions.lengths)])
        if truth.shape != (starts[-1],):
            raise ValueError(f"truth of shape {truth.shape}, but the attributions are of {starts[-1]} steps")
        self._marks = truth.dtype == np.bool_
        self._first = starts[attributions.episode]  # (rows,)
        if self._marks:
            self._marked = np.flatnonzero(truth)
            last = self._first + np.diff(attributions.offsets)
            self._from, to = np.searchsorted(self._marked, self._first), np.searchsorted(self._marked, last)
            self.count = to - self._from  # (rows,)
        else:
            within = np.arange(starts[-1]) - np.repeat(starts[:-1], attributions.lengths)
            wrong = np.flatnonzero((truth >= within) | (truth < -1))
            if len(wrong):
                raise ValueError(
                    f"the cause of step {within[wrong[0]]} is step {truth[wrong[0]]}: it must be an earlier one, or -1 "
                    "(to mark events, pass booleans)"
                )
            self._cause = truth[self._first + attributions.step].astype(np.int64)
            self.count = (self._cause >= 0).astype(np.int64)

    def of(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(events,) the row, as a place in ``rows``, and the step of each event, in order."""
        if not self._marks:
            return np.arange(len(rows)), self._cause[rows]
        row, place = _ragged(self.count[rows])
        return row, self._marked[self._from[rows][row] + place] - self._first[rows][row]


def _judge(
    attributions: "Attributions", truth: _Truth, rows: NDArray[np.int64], threshold: float, tolerance: int, events: str
) -> tuple[dict[str, NDArray[Any]], NDArray[np.float64]]:
    """Measures of some rows, (rows,) each, and their attention by distance, summed over rows."""
    sizes = np.diff(attributions.offsets)[rows]
    starts = np.cumsum(sizes) - sizes
    row, step = _ragged(sizes)  # (pairs,) all pairs of a row and a step of it
    weights = attributions.weights[attributions.offsets[rows][row] + step].astype(np.float32)
    if not (weights >= 0).all():
        wrong = int(np.argmin(weights >= 0))
        raise ValueError(f"the attention of row {rows[row[wrong]]} on step {step[wrong]} is {weights[wrong]}")
    event_row, event_step = truth.of(rows)  # (events,)
    distance = _signed_distance(row, step, event_row, event_step)
    near, credited = np.abs(distance) <= tolerance, weights > threshold
    score = _event_scores(weights, starts[event_row], sizes[event_row], event_step, tolerance)

    def count(of_row: NDArray[np.int64], values: NDArray[Any] | None = None) -> NDArray[Any]:
        return np.bincount(of_row, values, minlength=len(rows))

    found, wanted = count(event_row[score > threshold]), truth.count[rows]
    in_row = score >= 0
    precision, precision_row = _precision_at_events(
        (event_row[in_row], score[in_row]), (row[~near], weights[~near]), first_only=events == "any"
    )
    if events == "any":
        found, wanted = np.minimum(found, 1), np.ones_like(wanted)
    largest = weights == np.maximum.reduceat(weights, starts)[row] if len(rows) else near
    close = np.abs(distance) <= _FARTHEST
    distances = np.bincount(distance[close] + _FARTHEST, weights[close], minlength=2 * _FARTHEST + 1)
    return {
        "right": count(row[credited & near]),
        "credited": count(row[credited]),
        "found": found,
        "wanted": wanted,
        "average_precision": count(precision_row, precision) / wanted,
        "strongest": count(row[largest & near]) / count(row[largest]),
        "attention": count(row[near], weights[near]),
        "uniform": count(row[near]) / sizes,
    }, distances.astype(np.float64)


def _event_scores(
    weights: NDArray[np.float32],
    start: NDArray[np.int64],
    size: NDArray[np.int64],
    step: NDArray[np.int64],
    tolerance: int,
) -> NDArray[np.float32]:
    """(events,) the largest weight within the tolerance of each event; -1 if no step of the row is.

    ``start`` and ``size`` say where the weights of its row lie. A row may end before its event if its reward was
    predicted early.
    """
    high = np.minimum(step + tolerance + 1, size)
    low = np.minimum(np.maximum(step - tolerance, 0), high)
    windows = np.stack([start + low, start + high], 1).ravel()
    largest = np.maximum.reduceat(np.append(weights, np.float32(0)), windows)[::2] if len(step) else weights
    return np.where(low < high, largest, np.float32(-1))


def _precision_at_events(
    events: tuple[NDArray[np.int64], NDArray[np.float32]],
    others: tuple[NDArray[np.int64], NDArray[np.float32]],
    *,
    first_only: bool,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """(events,) the share of events among the items of a row down to each event, and its row.

    Items are pairs of a row and a score, ranked from the largest score; of equal ones, events come last. With
    ``first_only``, the best event of each row alone.
    """
    row, score = np.concatenate([events[0], others[0]]), np.concatenate([events[1], others[1]])
    # Floats that are not negative sort as their bits do: (row, score downwards, event) in one integer sorts fastest.
    key = (row << 33) | ((0x7FFFFFFF - (score + np.float32(0)).view(np.int32).astype(np.int64)) << 1)  # -0.0 + 0 is 0.0
    key[: len(events[0])] |= 1
    key.sort()
    row, place = key >> 33, np.flatnonzero(key & 1)
    first = np.searchsorted(row, row[place])  # of its row
    number = np.arange(len(place)) - np.searchsorted(place, first) + 1  # among the events of its row
    precision = number / (place - first + 1)
    kept = number == 1 if first_only else slice(None)
    return precision[kept], row[place][kept]


def _signed_distance(
    row: NDArray[np.int64], step: NDArray[np.int64], event_row: NDArray[np.int64], event_step: NDArray[np.int64]
) -> NDArray[np.int64]:
    """(pairs,) step minus the nearest event of its row; the earlier one of two equally near."""
    apart = 2 * max(step.max(initial=0), event_step.max(initial=0)) + 2  # so that events of other rows are farther
    events = event_row * apart + event_step
    events = np.concatenate([[-apart], events, [(row.max(initial=0) + 2) * apart]])
    place = row * apart + step
    after = np.searchsorted(events, place)
    back, ahead = place - events[after - 1], events[after] - place
    return np.asarray(np.where(back <= ahead, back, -ahead), np.int64)


def _ragged(sizes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(sum of sizes,) the row of each item, and its place in that row."""
    row = np.repeat(np.arange(len(sizes)), sizes)
    return row, np.arange(len(row)) - (np.cumsum(sizes) - sizes)[row]


def _blocks(rows: NDArray[np.int64], sizes: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Runs of rows with a bounded number of weights, at least one row each."""
    ends = np.cumsum(sizes[rows])
    first = 0
    while first < len(rows):
        done = ends[first - 1] if first else 0
        last = max(int(np.searchsorted(ends, done + _WEIGHTS_AT_A_TIME, side="right")), first + 1)
        yield rows[first:last]
        first = last


def _of_kind(reward: NDArray[np.float64], rewards: str) -> NDArray[np.bool_]:
    """(rows,) whether each is of the kind to be judged."""
    kinds = {"positive": reward > 0, "negative": reward < 0, "all": np.ones(len(reward), np.bool_)}
    if rewards not in kinds:
        raise ValueError(f"rewards must be one of {sorted(kinds)}, got {rewards!r}")
    return kinds[rewards]


def _array(truth: Trajectories | NDArray[Any], annotation: str | None) -> NDArray[Any]:
    """(steps,) booleans or whole numbers."""
    if isinstance(truth, Trajectories):
        names = [name for name, array in truth.annotations.items() if array.dtype == np.bool_]
        if annotation is None:
            if len(names) != 1:
                raise ValueError(
                    f"the truth must be named: these trajectories hold the boolean annotations {names}; "
                    "pass annotation=..., or an array with one entry per step"
                )
            annotation = names[0]
        if annotation not in truth.annotations:
            raise ValueError(f"no annotation {annotation!r}: these trajectories hold {sorted(truth.annotations)}")
        truth = truth.annotations[annotation]
    elif annotation is not None:
        raise ValueError(f"annotation={annotation!r} names an annotation of trajectories, but the truth is an array")
    truth = np.asarray(truth)
    if truth.dtype.kind not in "biu":
        raise ValueError(f"the truth holds {truth.dtype} values: expected booleans (events) or integers (causes)")
    return truth
