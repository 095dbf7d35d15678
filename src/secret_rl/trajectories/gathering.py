"""Copying whole episodes out of flat arrays, at the speed of memory.

An episode is one run of bytes in each array. Row-by-row indexing waits for memory once per episode and array;
plain byte loops let the processor have many episodes on their way at once, which is several times faster when
the data does not fit in its caches.
"""

from typing import Any

import numpy as np
from numba import njit, uintp
from numpy.typing import NDArray

from secret_rl.trajectories.nested import Array


@njit(cache=True)
def _copy_runs(source, row_bytes, starts, lengths, target):  # type: ignore[no-untyped-def, unused-ignore]
    at = uintp(0)
    for i in range(len(starts)):
        first = uintp(starts[i] * row_bytes)
        count = uintp(lengths[i] * row_bytes)
        for j in range(count):
            target[at + j] = source[first + j]
        at += count


def as_bytes(array: Array) -> NDArray[np.uint8] | None:
    """The bytes of an array in one row, or None if they do not lie together."""
    return array.reshape(-1).view(np.uint8) if array.flags.c_contiguous and array.size else None


def gather_runs(
    array: Array, raw: NDArray[np.uint8] | None, starts: NDArray[Any], lengths: NDArray[Any], total: int
) -> Array:
    """The rows ``starts[i]`` to ``starts[i] + lengths[i]`` of each run, one after another; ``raw`` is ``as_bytes``."""
    if starts.min() < 0 or lengths.min() < 0 or (starts + lengths).max() > len(array) or lengths.sum() != total:
        raise IndexError(f"offsets point outside an array of {len(array)} rows")  # compiled copies check nothing
    gathered = np.empty((total, *array.shape[1:]), array.dtype)
    if raw is None:
        at = 0
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
            gathered[at : at + length] = array[start : start + length]
            at += length
        return gathered
    _copy_runs(raw, gathered.nbytes // total, starts, lengths, gathered.reshape(-1).view(np.uint8))
    return gathered
