"""Batches of episodes in shuffled order, read ahead in bounded memory."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from secret_rl.trajectories.types import Trajectories

Item = TypeVar("Item")
Result = TypeVar("Result")

_BLOCK_BYTES = 1 << 20  # of episodes that are read together: as fast as reading everything in order


def read_ahead(read: Callable[[Item], Result], items: Iterable[Item]) -> Generator[Result, None, None]:
    """What ``read`` gives for each item; that of the next one is read by another thread meanwhile."""
    with ThreadPoolExecutor(1) as reader:
        under_way: deque[Future[Result]] = deque()
        for item in items:
            under_way.append(reader.submit(read, item))
            if len(under_way) > 1:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()


def batches(
    data: "Trajectories", size: int, seed: int | Sequence[int] | None, start: int, buffer: int
) -> Iterator["Trajectories"]:
    """See ``Trajectories.batches``."""
    if size < 1 or start < 0:
        raise ValueError(f"size must be at least 1 and start at least 0, got {size} and {start}")
    windows = _windows(data, size, seed, buffer)
    firsts = np.cumsum([0, *(-(-len(window) // size) for window in windows)])  # number of the first batch of each

    number = int(np.searchsorted(firsts, start, side="right")) - 1
    skipped = start - int(firsts[number])
    for episodes in read_ahead(data.__getitem__, windows[number:]):
        for first in range(skipped * size, len(episodes), size):
            yield episodes[first : first + size]
        skipped = 0


def _windows(data: "Trajectories", size: int, seed: int | Sequence[int] | None, buffer: int) -> list[NDArray[np.int64]]:
    """Episodes in the order of their batches, in parts that are in memory together: whole batches, but for the last."""
    columns = data.columns().values()
    each = sum(array.nbytes for array in columns) / max(data.steps, 1)
    taken = (data.lengths * each).astype(np.int64)
    order = np.arange(len(data))
    if seed is not None:
        rng = np.random.default_rng(seed)
        block = (np.cumsum(taken) - taken) // _BLOCK_BYTES
        order = np.argsort(rng.permutation(int(block[-1]) + 1)[block], kind="stable")
    full = np.cumsum(taken[order]) // buffer
    cuts = np.unique(-(-(np.flatnonzero(np.diff(full)) + 1) // size) * size)
    parts = np.split(order, cuts[cuts < len(order)])
    return parts if seed is None else [rng.permutation(part) for part in parts]
