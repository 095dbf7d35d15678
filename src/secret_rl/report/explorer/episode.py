"""An episode as plain numbers for the page: rewards, predictions, attention, actions, observations."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from secret_rl.credit import Attributions
from secret_rl.credit.base import Inspector
from secret_rl.credit.report import FitReport
from secret_rl.trajectories import Episode, Trajectories
from secret_rl.trajectories.nested import arrays_of, map_arrays, named_arrays

MOST_ROWS, _MOST_WRONG = 40, 12  # of attention: tasks that pay at every step would fill the page; of mispredicted ones
_MOST_WEIGHTS, _LEAST_WEIGHT = 60, 0.002  # of a row of attention
_WEIGHT_UNIT, _PROBABILITY_UNIT = 10_000, 255  # weights and probabilities are stored as whole numbers
_EVENT_SHARE = 0.1  # an annotation that is set in at most this share of steps marks events; in more, it is a state
_MOST_EVENTS = 12  # kinds of them
_MOST_NUMBERS, _MOST_COLUMNS = 4_000, 12  # of the observations of an episode


def describe(episode: Episode, report: FitReport, inspected: Inspector, found: Attributions) -> dict[str, Any]:
    """Rewards, predictions, attention and actions.

    Args:
        episode: The episode.
        report: Of the model.
        inspected: What the model says of trajectories of this episode alone.
        found: Attributions of the same.
    """
    rewards, probabilities = np.asarray(episode.rewards, np.float64), inspected.probabilities(0)
    predicted = probabilities.argmax(1)
    actual = report.classes.index(rewards)
    right = predicted == actual
    ordered = _attention_steps(rewards, (report.classes.signs[predicted] != 0) & (rewards == 0), right)
    shown = np.sort(ordered[:MOST_ROWS])
    lost = np.count_nonzero(rewards[ordered[MOST_ROWS:]])
    inferred = np.isin(report.classes.names, report.inferred)[predicted]  # without evidence for it
    kinds = np.where(np.isin(np.arange(len(episode)), found.step), np.where(inferred, "inferred", "right"), "decided")
    kinds = np.where(right, kinds, np.where(rewards, "missed", "false alarm"))
    rows = inspected.attention(0, shown) if len(shown) else np.zeros((0, 0), np.float32)
    return {
        "steps": len(episode),
        "return": short(rewards.sum()),
        "successful": bool((rewards > 0).any()),
        "ended": "terminated" if episode.terminated else "truncated" if episode.truncated else "open",
        "rewards": [[int(t), short(rewards[t])] for t in np.flatnonzero(rewards)],
        "actual": actual.tolist(),
        "predicted": predicted.tolist(),
        "left_out": {"rewards": int(lost), "alarms": max(0, len(ordered) - MOST_ROWS) - int(lost)},
        "wrong": np.flatnonzero(~right).tolist(),
        "chances": np.rint(probabilities.T * _PROBABILITY_UNIT).astype(int).tolist(),
        "attention": [
            {"step": t, "kind": str(kinds[t]), **credit_shares(row[: t + 1])}
            for t, row in zip(shown.tolist(), rows, strict=True)
        ],
        "actions": _actions(episode),
    }


def event_names(data: Trajectories) -> list[str]:
    """Annotations that mark events: bools and whole numbers that are seldom set."""
    flags = {name: rows for name, rows in data.annotations.items() if rows.ndim == 1 and rows.dtype.kind in "biu"}
    seldom = [name for name, rows in flags.items() if 0 < np.count_nonzero(rows) <= _EVENT_SHARE * len(rows)]
    return seldom[:_MOST_EVENTS]


def observed_numbers(episode: Episode) -> dict[str, Any]:
    """The first numbers of each observation by name, before the first step and after each; long episodes show fewer."""
    columns: list[tuple[str, NDArray[Any]]] = []
    for path, rows in named_arrays("observation", with_final(episode)):
        flat, name = rows.reshape(len(rows), -1), path.removeprefix("observation/")
        columns += [(name if flat.shape[1] == 1 else f"{name}[{i}]", flat[:, i]) for i in range(flat.shape[1])]
    most = max(1, min(_MOST_COLUMNS, _MOST_NUMBERS // (len(episode) + 1)))
    return {
        "names": [name for name, _ in columns[:most]],
        "rows": [[short(number) for number in column] for _, column in columns[:most]],
        "left_out": max(0, len(columns) - most),
    }


def with_final(episode: Episode) -> Any:
    """Observations and the final one, one row more than there are steps; the last is repeated where it is not known."""
    last = episode.final_observation
    if last is None:
        last = map_arrays(lambda rows: rows[-1], episode.observations)
    return map_arrays(lambda rows, end: np.append(rows, np.asarray([end], rows.dtype), 0), episode.observations, last)


def short(number: Any) -> float:
    """A number with as many digits as anyone reads."""
    return float(f"{float(number):.5g}")


def _attention_steps(
    rewards: NDArray[np.float64], alarms: NDArray[np.bool_], right: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Steps that have attention to show, in the order in which they are kept.

    Some mispredicted ones; then rewards, the largest first and spread evenly where alike; then false alarms.
    """
    rewarded = np.flatnonzero(rewards)
    sizes, spread = np.abs(rewards[rewarded]), np.arange(len(rewarded)) * 0.618 % 1  # the golden ratio spreads evenly
    wrong = np.flatnonzero(~right & ((rewards != 0) | alarms))[:_MOST_WRONG]
    order = np.concatenate([wrong, rewarded[np.lexsort((spread, -sizes))], np.flatnonzero(alarms)])
    return order[np.sort(np.unique(order, return_index=True)[1])]


def credit_shares(row: NDArray[np.float32]) -> dict[str, list[int]]:
    """The steps with most attention, in order, and their shares in units of 1/10,000."""
    strongest = np.argsort(-row, kind="stable")[:_MOST_WEIGHTS]
    kept = np.sort(strongest[row[strongest] >= _LEAST_WEIGHT])
    return {"to": kept.tolist(), "weights": np.rint(row[kept] * _WEIGHT_UNIT).astype(int).tolist()}


def _actions(episode: Episode) -> list[Any]:
    """Discrete actions as numbers, others as short texts."""
    rows = episode.actions
    if isinstance(rows, np.ndarray) and rows.ndim == 1 and rows.dtype.kind in "iu":
        return list(rows.tolist())
    flat = np.concatenate([np.asarray(array).reshape(len(episode), -1) for array in arrays_of(rows)], axis=1)
    return [" ".join(f"{number:.3g}" for number in row[:6]) + (" …" if len(row) > 6 else "") for row in flat]
