"""Classes of reward: what credit methods predict."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MOST_VALUES = 8  # more distinct rewards than this are binned
_COMMON, _LEAST = 0.01, 10  # unless such a share of the steps, and so many, have a value in common
_BINS = 4  # of each sign
_WITH_TIME = 0.98  # rank correlation with the step of the episode from which a reward is paid for time alone


@dataclass(frozen=True)
class RewardClasses:
    """Few distinct rewards are classes of their own; many are binned.

    Rewards of one sign that rise or fall with the step of the episode alone, as a success that pays less the later it
    comes, are one class: when it came is nothing to be credited for.

    >>> classes = RewardClasses.of(np.array([0.0, 0.0, 1.0, -1.0]))
    >>> classes.values, classes.index(np.array([1.0, -0.9, 0.0])).tolist()
    ((-1.0, 0.0, 1.0), [2, 0, 1])
    """

    values: tuple[float, ...]
    """What each class stands for, rising: its reward, or the mean of its rewards."""
    edges: tuple[float, ...]
    """Where each class but the first begins."""
    binned: tuple[bool, ...] = ()
    """Whether each class holds several rewards; empty: none does."""

    @classmethod
    def of(cls, rewards: NDArray[Any], times: NDArray[np.int64] | None = None) -> "RewardClasses":
        """The classes of some rewards; ``times`` are their steps of the episode."""
        rewards = np.asarray(rewards, np.float64)
        values, counts = np.unique(rewards, return_counts=True)
        groups: list[list[float]] = []
        for sign in (-1, 0, 1):
            mine = np.sign(values) == sign
            if sign and times is not None and mine.sum() > 3 and _follow_time(rewards, times, sign):
                groups.append(values[mine].tolist())
                continue
            rare = mine & (counts < max(_COMMON * len(rewards), _LEAST)) & (len(values) > _MOST_VALUES)
            groups += _binned(values[mine], np.where(rare, counts, 0)[mine])
        weights = dict(zip(values.tolist(), counts.tolist(), strict=True))
        means = tuple(
            group[0] if len(group) == 1 else float(np.average(group, weights=[weights[value] for value in group]))
            for group in groups
        )
        edges = tuple(_between(low[-1], high[0]) for low, high in pairwise(groups))
        binned = tuple(len(group) > 1 for group in groups)
        return cls(means, edges, binned if any(binned) else ())

    def __len__(self) -> int:
        return len(self.values)

    @property
    def signs(self) -> NDArray[np.int64]:
        """(class,) -1, 0 or 1."""
        return np.sign(self.values).astype(np.int64)

    @property
    def names(self) -> tuple[str, ...]:
        """The values in words."""
        return tuple(f"{value:+.4g}" if value else "0" for value in self.values)

    def right(self, probabilities: NDArray[Any]) -> NDArray[np.float64]:
        """(steps, class) the probability of each class or, of a bin, of those next to it, of (steps, class) of classes.

        A reward near the edge of a bin is as good as in the next one: nothing in the past could tell them apart.
        """
        p = np.asarray(probabilities, np.float64)
        if not self.binned:
            return p
        bins = np.where(self.binned, self.signs, 0)
        apart = np.subtract.outer(np.arange(len(bins)), np.arange(len(bins)))
        alike = (apart == 0) | ((abs(apart) == 1) & (np.multiply.outer(bins, bins) > 0))
        return np.asarray(np.minimum(p @ alike, 1.0))

    def index(self, rewards: NDArray[Any]) -> NDArray[np.int64]:
        """The class of each reward; one that the data did not hold is in the nearest."""
        return np.searchsorted(np.asarray(self.edges), np.asarray(rewards), side="right").astype(np.int64)

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {"values": list(self.values), "edges": list(self.edges), "binned": list(map(int, self.binned))}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "RewardClasses":
        """The inverse of ``to_json``."""
        return cls(tuple(data["values"]), tuple(data["edges"]), tuple(map(bool, data["binned"])))


def _between(low: float, high: float) -> float:
    """A number above ``low``, and halfway to ``high`` where there is one."""
    middle = low / 2 + high / 2
    return middle if low < middle else high


def _binned(values: NDArray[np.float64], rare: NDArray[np.int64]) -> list[list[float]]:
    """Rising values in groups: those counted in ``rare`` share bins of about equal size, the others stand alone."""
    size = rare.sum() / _BINS
    groups: list[list[float]] = []
    held = 0.0
    for value, count in zip(values.tolist(), rare.tolist(), strict=True):
        if count and 0 < held < size:
            groups[-1].append(value)
            held += count
        else:
            groups.append([value])
            held = count
    return groups


def _follow_time(rewards: NDArray[np.float64], times: NDArray[np.int64], sign: int) -> bool:
    """Whether the rewards of a sign rise or fall with the step of the episode, and with little else."""
    chosen = np.sign(rewards) == sign
    ranks = [np.unique(array[chosen], return_inverse=True)[1].astype(float) for array in (rewards, times)]
    if min(float(np.ptp(rank)) for rank in ranks) == 0:
        return False
    return bool(abs(np.corrcoef(ranks[0], ranks[1])[0, 1]) >= _WITH_TIME)
