"""What a method says of many episodes at once: how good its credit is, how far back it lies, what is mispredicted."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from secret_rl.credit.attributions import Attributions
from secret_rl.credit.base import CreditMethod, inspector
from secret_rl.credit.report import FitReport
from secret_rl.evaluation import credit_quality
from secret_rl.progress import Tick
from secret_rl.report.runs import doubt_of, verdict_of
from secret_rl.trajectories import Trajectories
from secret_rl.trajectories.nested import arrays_of

_MOST, _MOST_BYTES, _MOST_WEIGHTS = 1_000, 64 << 20, 20_000_000  # episodes counted, their observations, their credit


def survey(method: CreditMethod, data: Trajectories, annotation: str | None, tick: Tick) -> dict[str, Any]:
    """Numbers of the whole data set, or, where that takes long, of episodes spread evenly over it.

    ``confusion[i][j]``: steps whose reward is of class i and predicted to be of class j. ``distances``: for each bin of
    steps before the reward (``from``, ``to``), the share of the credit for positive rewards and for negative ones.
    """
    counted = _counted(data)
    pool, report = data[counted], method.report
    assert report is not None
    found, inspected = method.attribute(pool, progress=False), inspector(method, pool)
    confusion = np.zeros((len(report.classes), len(report.classes)), np.int64)
    for i in range(len(pool)):
        actual = report.classes.index(np.asarray(pool[i].rewards, np.float64))
        np.add.at(confusion, (actual, inspected.probabilities(i).argmax(1)), 1)
        tick("surveyed", i + 1, len(pool))
    # What is predicted where nothing else is found has no credit.
    inferred = np.isin(report.classes.names, report.inferred)[report.classes.index(found.reward)]
    credited = found[~inferred]
    return {
        "counted": len(pool),
        "rows": len(credited),
        "seen": found.rewards_seen,
        "confusion": confusion.tolist(),
        "distances": distances(credited),
        "quality": quality_of(found, pool, annotation),
    }


def about(report: FitReport | None, name: str) -> dict[str, Any]:
    """The method, the verdict on it, its history gain, and why its attention is not credit, if it is not."""
    doubt = doubt_of(report)
    return {
        "method": name,
        "verdict": "" if report is None else verdict_of(report),
        "gain": None if report is None or report.gain is None else float(report.history_gain),
        "doubt": None if report is None or doubt is None else f"{report.verdict}: {doubt}.",
    }


def about_beside(
    name: str, other: CreditMethod | Attributions, data: Trajectories, annotation: str | None
) -> dict[str, Any]:
    """The same of another method, and how good its credit is, by the same episodes."""
    counted = _counted(data)
    if isinstance(other, Attributions):
        found, truth, known = other[np.isin(other.episode, counted)], data, about(None, name)
    else:
        truth = data[counted]
        found, known = other.attribute(truth, progress=False), about(other.report, other.name)
    return {**known, "quality": quality_of(found, truth, annotation)}


def quality_of(found: Attributions, truth: Trajectories, annotation: str | None) -> dict[str, Any] | None:
    """Credit quality, where the data knows what earned the rewards; None where it does not."""
    names = [name for name, rows in truth.annotations.items() if rows.dtype == np.bool_ and rows.ndim == 1]
    if annotation is None and len(names) != 1:
        return None
    quality = credit_quality(found, truth, annotation=annotation or names[0])
    if not quality.rows:
        return None
    wanted = ("average_precision", "precision", "recall", "attention_on_events", "uniform_share", "rows", "threshold")
    return {"truth": annotation or names[0], **{name: round(getattr(quality, name), 4) for name in wanted}}


def distances(found: Attributions) -> list[dict[str, Any]]:
    """Credit by how many steps it lies before the reward; bins grow with the distance."""
    row, _ = found.places()
    back = found.step[row] - (np.arange(len(row)) - found.offsets[row])
    edges = _edges(int(back.max(initial=0)))
    place = np.searchsorted(edges, back, side="right") - 1
    shares: dict[str, NDArray[Any]] = {
        name: np.bincount(place, found.weights * (np.sign(found.reward[row]) == sign), len(edges) - 1)
        for name, sign in (("positive", 1), ("negative", -1))
    }
    total = max(len(found), 1)
    return [
        {"from": low, "to": high - 1, **{name: round(float(share[i]) / total, 5) for name, share in shares.items()}}
        for i, (low, high) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
    ]


def _edges(farthest: int) -> NDArray[np.int64]:
    """0, 1, 2, 3, 5, 9, 17, ...: each bin from 2 steps on is twice as wide as the one before."""
    edges = [0, 1, 2]
    while edges[-1] <= farthest:
        edges.append(2 * edges[-1] - 1 if edges[-1] > 2 else 3)
    return np.array(edges)


def _counted(data: Trajectories) -> NDArray[np.int64]:
    """Episodes that are counted, in order, spread evenly."""
    size = sum(array.nbytes for array in arrays_of(data.observations)) // len(data) + 1
    weights = int(np.count_nonzero(data.rewards) * data.lengths.mean() / len(data)) + 1
    count = max(1, min(len(data), _MOST, _MOST_BYTES // size, _MOST_WEIGHTS // weights))
    return np.linspace(0, len(data) - 1, count).astype(np.int64)
