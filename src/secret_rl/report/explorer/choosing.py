"""Which trajectories are worth a look: some of each kind, the same ones every time."""

import numpy as np
from numpy.typing import NDArray

from secret_rl.trajectories import Trajectories
from secret_rl.trajectories.nested import named_arrays

_POOL_BYTES = 64 << 20  # observations to predict before the choice; pictures fill it soon
_POOL_PER_SHOWN = 8


def bytes_per_step(data: Trajectories) -> int:
    """What an observation takes in memory."""
    arrays = (array for _, array in named_arrays("observations", data.observations))
    return sum(int(np.prod(array.shape[1:], dtype=np.int64)) * array.dtype.itemsize for array in arrays)


def candidates(data: Trajectories, count: int) -> NDArray[np.int64]:
    """Episodes to choose ``count`` from: the longest, successful ones, and others from all over the data."""
    affordable = _POOL_BYTES // max(1, bytes_per_step(data) * data.steps // len(data))
    size = min(len(data), max(count, min(_POOL_PER_SHOWN * count, int(affordable))))
    if size == len(data):
        return np.arange(len(data))
    longest = np.argsort(-data.lengths, kind="stable")[: max(1, size // 8)]
    successful = _spread(np.flatnonzero(data.successful), size // 2)
    return _filled([longest, successful], len(data), size)


def choose(
    lengths: NDArray[np.int64], successful: NDArray[np.bool_], wrong: NDArray[np.int64], count: int
) -> NDArray[np.int64]:
    """Places of ``count`` of the candidates: half successful, a quarter mispredicted, some of the longest, others.

    ``wrong`` tells how many steps of each were predicted wrongly.
    """
    worst = np.argsort(-wrong, kind="stable")
    groups = [
        np.argsort(-lengths, kind="stable")[: max(1, count // 8)],
        worst[wrong[worst] > 0][: count // 4],
        _spread(np.flatnonzero(successful), count // 2),
    ]
    return _filled(groups, len(lengths), min(count, len(lengths)))


def _spread(places: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """At most ``count`` of some places, evenly spaced."""
    if len(places) <= count:
        return places
    return places[np.linspace(0, len(places) - 1, count).astype(np.int64)] if count else places[:0]


def _filled(groups: list[NDArray[np.int64]], total: int, size: int) -> NDArray[np.int64]:
    """The first ``size`` of some groups, each once, and others evenly spaced where they are too few; in order."""
    chosen = list(dict.fromkeys(np.concatenate(groups).tolist()))[:size]
    rest = np.setdiff1d(np.arange(total), chosen)
    return np.sort(np.concatenate([np.array(chosen, np.int64), _spread(rest, size - len(chosen))]))
