"""An episode in plain numbers: rewards, what the model said, where it looked, what is true, what shaping pays."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secret_rl.credit import RewardClasses
from secret_rl.credit.outlook import Outlook
from secret_rl.trajectories import Episode, Trajectories

_MOST_ROWS = 40
"""Rows of attention kept of an episode: pages of tasks that pay at every step would be all attention."""
_MOST_WEIGHTS = 60
_LEAST_WEIGHT = 0.002
_WEIGHT_UNIT = 10_000
_CHANCE_UNIT = 255
_RARE = 0.1
"""An annotation that is set in at most this share of steps marks events; in more, it is a state."""
_LONGEST_TEXT = 120
_MOST_NAMES = 12


def describe(
    episode: Episode,
    number: int,
    probabilities: NDArray[np.float32],
    classes: RewardClasses,
    credited: NDArray[np.bool_],
    outlook: Outlook,
    place: int,
) -> dict[str, Any]:
    """What is known without pictures.

    ``probabilities`` (steps, class) are the model's. ``credited`` (steps,) says which rewards it credits: those that it
    predicts and the present leaves open. ``place`` is that of the episode in the trajectories of ``outlook``.
    """
    rewards = np.asarray(episode.rewards, np.float64)
    actual, predicted = classes.index(rewards), probabilities.argmax(1)
    looked = _looked_at(rewards, classes.signs[predicted])
    rows: Iterable[NDArray[np.float32]] = outlook.attention(place, looked) if len(looked) else ()
    interesting = (rewards != 0) | (classes.signs[predicted] != 0)
    return {
        "episode": int(number),
        "steps": len(episode),
        "return": short(rewards.sum()),
        "successful": bool((rewards > 0).any()),
        "ended": "terminated" if episode.terminated else "truncated" if episode.truncated else "open",
        "rewards": [[int(t), short(rewards[t])] for t in np.flatnonzero(rewards)],
        "predicted": predicted.tolist(),
        "wrong": np.flatnonzero(predicted != actual).tolist(),
        "chances": np.rint(probabilities.T * _CHANCE_UNIT).astype(int).tolist(),
        "attention": [
            {
                "step": int(t),
                "kind": _kind(float(rewards[t]), bool(predicted[t] == actual[t]), bool(credited[t])),
                **_weights(row[: int(t) + 1]),
            }
            for t, row in zip(looked, rows, strict=True)
        ],
        "rows_left_out": int(np.count_nonzero(interesting) - len(looked)),
    }


def truth_names(data: Trajectories) -> list[str]:
    """Annotations that mark events: bools and whole numbers, one a step, that are seldom set."""
    names = []
    for name, rows in data.annotations.items():
        rows = np.asarray(rows)
        if rows.ndim == 1 and rows.dtype.kind in "biu" and 0 < np.count_nonzero(rows) <= _RARE * len(rows):
            names.append(name)
    return names[:_MOST_NAMES]


def truth(episode: Episode, names: list[str]) -> dict[str, list[int]]:
    """The steps that each annotation marks."""
    return {name: np.flatnonzero(episode.annotations[name]).tolist() for name in names}


def known_names(data: Trajectories, events: list[str]) -> list[str]:
    """Other annotations that fit in a line: one or a few numbers a step, or a text."""
    few = [
        name
        for name, rows in data.annotations.items()
        if name not in events and np.asarray(rows).dtype.kind in "biufU" and np.prod(np.shape(rows)[1:]) <= 4
    ]
    return few[:_MOST_NAMES]


def known(episode: Episode, names: list[str]) -> dict[str, Any]:
    """Texts of each step: the distinct ones, and which of them each step has."""
    told = {}
    for name in names:
        texts = [_text(row) for row in np.asarray(episode.annotations[name])]
        distinct = {text: i for i, text in enumerate(dict.fromkeys(texts))}
        told[name] = {"texts": list(distinct), "at": [distinct[text] for text in texts]}
    return told


def short(number: Any) -> float:
    """A number with as many digits as anyone reads."""
    return float(f"{float(number):.5g}")


def _looked_at(rewards: NDArray[np.float64], predicted_signs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Steps whose attention is kept: rewards, the largest first, then false alarms."""
    rewarded = np.flatnonzero(rewards)
    if len(rewarded) > _MOST_ROWS:
        order = np.argsort(-np.abs(rewards[rewarded]), kind="stable")
        large = np.abs(rewards[rewarded]) > np.median(np.abs(rewards[rewarded]))
        # Where all are alike, some from all over the episode.
        spread = rewarded[np.linspace(0, len(rewarded) - 1, _MOST_ROWS).astype(int)]
        rewarded = rewarded[order[:_MOST_ROWS]] if 0 < large.sum() <= _MOST_ROWS else spread
    alarms = np.flatnonzero((predicted_signs != 0) & (rewards == 0))
    return np.sort(np.concatenate([rewarded, alarms[: _MOST_ROWS - len(rewarded)]]))


def _kind(reward: float, right: bool, credited: bool) -> str:
    if right:
        return "right" if credited else "decided"
    return "missed" if reward else "false alarm"


def _weights(row: NDArray[np.float32]) -> dict[str, list[int]]:
    """The steps that count, in order, and their shares in units of 1/10,000."""
    strongest = np.argsort(-row, kind="stable")[:_MOST_WEIGHTS]
    kept = np.sort(strongest[row[strongest] >= _LEAST_WEIGHT])
    return {"to": kept.tolist(), "weights": np.rint(row[kept] * _WEIGHT_UNIT).astype(int).tolist()}


def _text(row: Any) -> str:
    if np.ndim(row):
        return ", ".join(_text(part) for part in np.ravel(row))
    if isinstance(row, np.floating | float):
        return f"{row:.4g}"
    return str(row)[:_LONGEST_TEXT]
