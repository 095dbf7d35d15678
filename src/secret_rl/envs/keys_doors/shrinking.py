"""Pictures of any size out of the few that the engine draws: areas of pixels are averaged."""

from collections.abc import Iterable
from math import log
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

SMALLEST = 8
"""Least pixels along a side of an observation."""
_LARGEST_SHRINK = 4
_AS_CLOSE = 0.1  # shapes that differ by so little more are as good: the smaller one is drawn faster

Size = tuple[int, int]


def drawn_size(size: Size, available: Iterable[Size]) -> Size:
    """The engine's size from which a picture of ``size`` (width, height) is made.

    The size itself or two, three or four times of it, if the engine draws one of those; else, among those at least as
    large, the smallest whose shape is as close to that of ``size`` as any (within a tenth).

    >>> drawn_size((84, 84), [(160, 120), (320, 240), (320, 200), (256, 144)])
    (160, 120)
    """
    sizes = sorted(available, key=lambda other: other[0] * other[1])
    for times in range(1, _LARGEST_SHRINK + 1):
        if (size[0] * times, size[1] * times) in sizes:
            return size[0] * times, size[1] * times
    enough = [other for other in sizes if other[0] >= size[0] and other[1] >= size[1]]
    if not enough:
        largest = ", ".join(f"{width}x{height}" for width, height in sizes[-3:])
        raise ValueError(f"the engine draws no picture as large as size={size} (width, height): its largest: {largest}")
    astray = {other: abs(log(other[0] * size[1] / (other[1] * size[0]))) for other in enough}
    return next(other for other in enough if astray[other] <= min(astray.values()) + _AS_CLOSE)


class AreaMean:
    """Makes pictures of one size (height, width, 3) out of larger ones, each pixel the mean of the area it covers.

    All in whole numbers, rounded down at the end: the same on every machine.
    """

    def __init__(self, large: Size, small: Size) -> None:
        self._columns, self._rows = _weights(large[0], small[0]), _weights(large[1], small[1])
        self._shape, self._same = (small[1], small[0], 3), large == small
        self._area = np.uint32(large[0] * large[1])

    def __call__(self, picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """A new picture."""
        if self._same:
            return picture.copy()
        out = np.empty(self._shape, np.uint8)
        _average(picture, *self._rows, *self._columns, self._area, out)
        return out


def _weights(large: int, small: int) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """For each small pixel the first large one that it covers, and how much of this and the next, in 1 / ``small``."""
    ends = np.arange(small + 1) * large  # borders of small pixels; those of large ones lie at multiples of ``small``
    first = ends[:-1] // small
    count = int((-(-ends[1:] // small) - first).max())
    borders = (first[:, None] + np.arange(count + 1)) * small
    parts = np.diff(borders.clip(ends[:-1, None], ends[1:, None]), axis=1)
    return first, parts.astype(np.uint32)


@njit(cache=True)
def _average(picture: Any, first_row: Any, rows: Any, first_column: Any, columns: Any, area: Any, out: Any) -> None:
    height, width, _ = out.shape
    lines = picture.reshape(picture.shape[0], -1)
    line = np.empty(lines.shape[1], np.uint32)  # one line of the small picture, still of full width
    for y in range(height):
        line[:] = 0
        for k in range(rows.shape[1]):
            part = rows[y, k]
            if part:  # beyond the last line nothing is covered
                above = lines[first_row[y] + k]
                for i in range(line.size):
                    line[i] += np.uint32(part * above[i])
        for x in range(width):
            red = green = blue = np.uint32(0)
            for k in range(columns.shape[1]):
                part = columns[x, k]
                if part:
                    i = 3 * (first_column[x] + k)
                    red += np.uint32(part * line[i])
                    green += np.uint32(part * line[i + 1])
                    blue += np.uint32(part * line[i + 2])
            out[y, x, 0], out[y, x, 1], out[y, x, 2] = red // area, green // area, blue // area
