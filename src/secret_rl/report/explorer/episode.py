"""An episode as plain numbers for the page: rewards, predictions, attention, annotations, actions, observations."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secret_rl.credit import RewardClasses
from secret_rl.trajectories import Episode, Trajectories
from secret_rl.trajectories.nested import map_arrays, named_arrays

MOST_ROWS = 40
"""Rows of attention stored for an episode; tasks that pay at every step would fill the page with attention."""
_MOST_WEIGHTS, _LEAST_WEIGHT = 60, 0.002  # of a row
_WEIGHT_UNIT, _PROBABILITY_UNIT = 10_000, 255  # weights and probabilities are stored as whole numbers
_EVENT_SHARE = 0.1
"""An annotation that is set in at most this share of steps marks events; in more, it is a state."""
_MOST_NAMES, _LONGEST_TEXT = 12, 120  # of annotations
_MOST_NUMBERS, _MOST_COLUMNS = 4_000, 12  # of the observations of an episode


def describe(
    episode: Episode,
    probabilities: NDArray[np.float32],
    classes: RewardClasses,
    inferred: Sequence[str],
    credited: NDArray[np.bool_],
    attention: Callable[[NDArray[np.int64]], NDArray[np.float32]],
) -> dict[str, Any]:
    """Rewards, predictions, attention and actions.

    Args:
        episode: The episode.
        probabilities: (steps, class) of the model.
        classes: Its classes of reward.
        inferred: Names of those that it predicts without evidence for them.
        credited: (steps,) whether a reward has an attribution.
        attention: Gives (rows, steps) attention of the steps it is called with.
    """
    rewards = np.asarray(episode.rewards, np.float64)
    predicted = probabilities.argmax(1)
    right = predicted == classes.index(rewards)
    shown, total = _attention_steps(rewards, classes.signs[predicted])
    rows: Iterable[NDArray[np.float32]] = attention(shown) if len(shown) else ()
    without_evidence = np.isin(classes.names, inferred)[predicted]
    predicted_rightly = np.where(credited, np.where(without_evidence, "inferred", "right"), "decided")
    kinds = np.where(right, predicted_rightly, np.where(rewards, "missed", "false alarm"))
    return {
        "steps": len(episode),
        "return": short(rewards.sum()),
        "successful": bool((rewards > 0).any()),
        "ended": "terminated" if episode.terminated else "truncated" if episode.truncated else "open",
        "rewards": [[int(t), short(rewards[t])] for t in np.flatnonzero(rewards)],
        "predicted": predicted.tolist(),
        "wrong": np.flatnonzero(~right).tolist(),
        "chances": np.rint(probabilities.T * _PROBABILITY_UNIT).astype(int).tolist(),
        "attention": [
            {"step": t, "kind": str(kinds[t]), **_weights(row[: t + 1])}
            for t, row in zip(shown.tolist(), rows, strict=True)
        ],
        "rows_left_out": total - len(shown),
        "actions": _actions(episode),
    }


def annotation_names(data: Trajectories) -> tuple[list[str], list[str]]:
    """Annotations that mark events (bools and whole numbers that are seldom set), and others that fit in a line."""
    events, others = [], []
    for name, values in data.annotations.items():
        rows = np.asarray(values)
        if rows.ndim == 1 and rows.dtype.kind in "biu" and 0 < np.count_nonzero(rows) <= _EVENT_SHARE * len(rows):
            events.append(name)
        elif rows.dtype.kind in "biufU" and np.prod(rows.shape[1:]) <= 4:
            others.append(name)
    return events[:_MOST_NAMES], others[:_MOST_NAMES]


def annotations(episode: Episode, events: Sequence[str], others: Sequence[str]) -> dict[str, Any]:
    """The steps that each event marks; of the others, the distinct texts and which of them each step has."""
    known = {}
    for name in others:
        texts = [_text(row) for row in np.asarray(episode.annotations[name])]
        distinct = {text: i for i, text in enumerate(dict.fromkeys(texts))}
        known[name] = {"texts": list(distinct), "at": [distinct[text] for text in texts]}
    return {"truth": {name: np.flatnonzero(episode.annotations[name]).tolist() for name in events}, "known": known}


def observed_numbers(episode: Episode) -> dict[str, Any]:
    """The first numbers of each observation by name, before the first step and after each; long episodes show fewer."""
    columns: list[tuple[str, NDArray[Any]]] = []
    for path, rows in named_arrays("observation", with_final(episode)):
        flat = np.asarray(rows).reshape(len(rows), -1)
        name = path.removeprefix("observation/")
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


def _attention_steps(rewards: NDArray[np.float64], predicted_signs: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """Steps whose attention is stored (rewards, the largest first, then false alarms), and how many there would be."""
    rewarded = np.flatnonzero(rewards)
    alarms = np.flatnonzero((predicted_signs != 0) & (rewards == 0))
    total = len(rewarded) + len(alarms)
    if len(rewarded) > MOST_ROWS:
        sizes = np.abs(rewards[rewarded])
        largest = np.argsort(-sizes, kind="stable")[:MOST_ROWS]
        spread = np.linspace(0, len(rewarded) - 1, MOST_ROWS).astype(int)  # where all are alike
        rewarded = rewarded[largest if 0 < (sizes > np.median(sizes)).sum() <= MOST_ROWS else spread]
    return np.sort(np.concatenate([rewarded, alarms[: MOST_ROWS - len(rewarded)]])), total


def _weights(row: NDArray[np.float32]) -> dict[str, list[int]]:
    """The steps with most attention, in order, and their shares in units of 1/10,000."""
    strongest = np.argsort(-row, kind="stable")[:_MOST_WEIGHTS]
    kept = np.sort(strongest[row[strongest] >= _LEAST_WEIGHT])
    return {"to": kept.tolist(), "weights": np.rint(row[kept] * _WEIGHT_UNIT).astype(int).tolist()}


def _actions(episode: Episode) -> list[Any]:
    """Discrete actions as numbers, others as short texts."""
    rows = episode.actions
    if isinstance(rows, np.ndarray) and rows.ndim == 1 and rows.dtype.kind in "iu":
        return [int(action) for action in rows]
    flat = np.concatenate([np.asarray(array).reshape(len(episode), -1) for _, array in named_arrays("", rows)], axis=1)
    return [" ".join(f"{number:.3g}" for number in row[:6]) + (" …" if len(row) > 6 else "") for row in flat]


def _text(row: Any) -> str:
    if np.ndim(row):
        return ", ".join(_text(part) for part in np.ravel(row))
    return f"{row:.4g}" if isinstance(row, np.floating | float) else str(row)[:_LONGEST_TEXT]
