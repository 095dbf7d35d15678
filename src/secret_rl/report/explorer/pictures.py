"""Frames of an episode as one small picture: each distinct frame once, side by side, within a number of bytes."""

from base64 import b64encode
from collections.abc import Iterable, Sequence
from io import BytesIO
from math import ceil, sqrt
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

try:
    from PIL import Image
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError('pictures need the report extra: pip install "secret-rl[report]"') from missing

_BLOCK = 16  # lossy pictures are made of such blocks: frames that share one would run into each other
_LARGEST = 256
"""Longest side of a frame that is kept."""


class Level(NamedTuple):
    """How well a frame is kept."""

    side: int
    quality: int | None
    """None: as it is."""


LEVELS = (
    Level(_LARGEST, None), Level(192, None), Level(192, 70), Level(144, 55), Level(96, 45), Level(80, 35),
    Level(64, 30),
)  # fmt: skip


class Film(NamedTuple):
    """The distinct frames of an episode, and which of them is seen before its first step and after each."""

    frames: list[NDArray[np.uint8]]
    """(height, width, 3) each, all of one size."""
    at: list[int]


class _Sheet(NamedTuple):
    """An encoded picture of many frames."""

    content: bytes
    size: tuple[int, int]
    """Width and height of a frame."""
    pitch: tuple[int, int]
    """From one frame to the next."""


def is_picture(space: gym.Space[Any]) -> bool:
    """Whether observations are pictures: rows, columns and one, three or four channels."""
    if not isinstance(space, gym.spaces.Box) or len(space.shape) not in (2, 3) or min(space.shape[:2]) < 3:
        return False
    return len(space.shape) == 2 or space.shape[2] in (1, 3, 4)


def as_rgb(space: gym.Space[Any], rows: NDArray[Any]) -> NDArray[np.uint8]:
    """(frames, height, width, 3) of pictures whatever their channels and range."""
    assert isinstance(space, gym.spaces.Box)
    low, high = float(np.min(space.low)), float(np.max(space.high))
    if not np.isfinite([low, high]).all() or high <= low:
        low, high = float(np.min(rows)), float(np.max(rows))
    pictures = rows
    if not (rows.dtype == np.uint8 and (low, high) == (0, 255)):
        pictures = np.clip((rows.astype(np.float64) - low) / max(high - low, 1e-9) * 255, 0, 255).astype(np.uint8)
    if pictures.ndim == 3:
        pictures = pictures[..., None]
    return pictures[..., :3] if pictures.shape[-1] >= 3 else np.repeat(pictures[..., :1], 3, -1)


def film(frames: Iterable[NDArray[np.uint8]]) -> Film:
    """Frames as they come, each distinct one kept once and small."""
    kept: list[NDArray[np.uint8]] = []
    places: dict[bytes, int] = {}
    at = []
    for frame in frames:
        frame = np.asarray(frame, np.uint8)
        key = frame.tobytes()
        if key not in places:
            places[key] = len(kept)
            kept.append(_reduced(frame, _LARGEST).copy())
        at.append(places[key])
    return Film(kept, at)


def sheet(film: Film, limit: int, wanted: Sequence[int], start: int = 0) -> tuple[dict[str, Any], int]:
    """The film within about ``limit`` bytes, and the level it took; ``start`` is the first level to try.

    Where even the last level is too large some frames go, those at the places ``wanted`` last.
    """
    for number in range(min(start, len(LEVELS) - 1), len(LEVELS)):
        encoded = _encode(film.frames, LEVELS[number])
        if len(encoded.content) <= limit:
            return _described(film, encoded), number
    share = limit / len(encoded.content)
    while len(film.frames) > 1:
        kept = _thinned(film, max(1, int(0.95 * share * len(film.frames))), wanted)
        encoded = _encode(kept.frames, LEVELS[-1])
        if len(encoded.content) <= limit or len(kept.frames) == 1:
            return _described(kept, encoded, len(film.frames)), number
        share *= 0.8
    return _described(film, encoded), number


def _described(film: Film, encoded: _Sheet, before: int | None = None) -> dict[str, Any]:
    return {
        "sheet": "data:image/webp;base64," + b64encode(encoded.content).decode(),
        "size": encoded.size,
        "pitch": encoded.pitch,
        "columns": _columns(len(film.frames)),
        "at": film.at,
        "left_out": 0 if before is None else before - len(film.frames),
    }


def _thinned(film: Film, count: int, wanted: Sequence[int]) -> Film:
    """A film of ``count`` frames: the ends, those wanted, and others evenly spaced; steps take the nearest kept."""
    last = len(film.at) - 1
    first_seen = dict.fromkeys([0, last, *wanted])
    chosen = list(first_seen)[:count]
    rest = [t for t in range(last + 1) if t not in first_seen]
    if count > len(chosen) and rest:
        chosen += [rest[i] for i in np.linspace(0, len(rest) - 1, min(count - len(chosen), len(rest))).astype(int)]
    steps = np.array(sorted(set(chosen)))
    nearest = steps[np.abs(np.arange(last + 1)[:, None] - steps).argmin(1)]
    used = [film.at[t] for t in nearest]
    places = {frame: i for i, frame in enumerate(dict.fromkeys(used))}
    return Film([film.frames[frame] for frame in places], [places[frame] for frame in used])


def _encode(frames: list[NDArray[np.uint8]], level: Level) -> _Sheet:
    """One WebP of all frames."""
    tiles = [_reduced(frame, level.side) for frame in frames]
    height, width = tiles[0].shape[:2]
    right, below = (0, 0) if level.quality is None else (-width % _BLOCK, -height % _BLOCK)
    columns, across, down = _columns(len(tiles)), width + right, height + below
    canvas = np.zeros((ceil(len(tiles) / columns) * down, columns * across, 3), np.uint8)
    for i, tile in enumerate(tiles):
        top, left = i // columns * down, i % columns * across
        canvas[top : top + down, left : left + across] = np.pad(tile, ((0, below), (0, right), (0, 0)), "edge")
    content = BytesIO()
    how = {"lossless": True, "quality": 50} if level.quality is None else {"quality": level.quality}
    Image.fromarray(canvas).save(content, format="WEBP", method=4, **how)
    return _Sheet(content.getvalue(), (width, height), (across, down))


def _columns(count: int) -> int:
    return max(1, ceil(sqrt(count)))


def _reduced(frame: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """A frame whose sides are at most ``side``: by a whole factor, which keeps straight edges straight."""
    factor = ceil(max(frame.shape[:2]) / side)
    return frame if factor <= 1 else np.asarray(Image.fromarray(frame).reduce(factor))
