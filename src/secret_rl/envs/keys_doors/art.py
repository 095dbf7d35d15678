"""Pictures of the world, made in code: floor, sky, fences, keys and the goal, as PNG files."""

import zlib
from struct import pack

import numpy as np
from numpy.typing import NDArray

RGB = {
    "red": (214, 32, 32),
    "green": (24, 180, 48),
    "blue": (40, 72, 232),
    "white": (245, 245, 245),
    "black": (16,) * 3,
}
GOAL_COLOUR = (255, 200, 0)

Picture = NDArray[np.uint8]


def png(picture: Picture, anchor: tuple[int, int] | None = None) -> bytes:
    """A PNG file of an RGBA picture; ``anchor`` is the pixel that stands on a thing's position."""
    height, width, _ = picture.shape
    rows = np.zeros((height, 1 + width * 4), np.uint8)  # each row begins with its filter: none
    rows[:, 1:] = picture.reshape(height, -1)
    parts = [(b"IHDR", pack(">2I5B", width, height, 8, 6, 0, 0, 0))]
    if anchor is not None:
        parts.append((b"grAb", pack(">2i", *anchor)))
    parts += [(b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b"")]
    chunks = (pack(">I", len(data)) + name + data + pack(">I", zlib.crc32(name + data)) for name, data in parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def floor() -> Picture:
    """Two greys in turn, so that motion shows."""
    squares = np.indices((64, 64)) // 32
    return _shaded(np.where(squares.sum(0) % 2, 104, 128), (1.0, 1.0, 0.92))


def pit() -> Picture:
    """What lies outside the rooms: brown ground in stripes, on which all five colours show."""
    return _shaded(np.where(np.indices((64, 64))[0] // 16 % 2, 120, 140), (1.0, 0.75, 0.5))


def sky() -> Picture:
    """Pale blue over hills; its 1024 pixels go once round, so that every direction looks different."""
    height, width = 128, 1024
    turn = 2 * np.pi * np.arange(width) / width
    ridge = 92 - 14 * np.sin(turn) - 9 * np.sin(2 * turn + 1) - 5 * np.sin(7 * turn)  # (width,) first row of a hill
    hills = np.arange(height)[:, None] >= ridge
    picture = np.full((height, width, 4), (171, 171, 255, 255), np.uint8)
    picture[hills] = (111, 111, 143, 255)
    return picture


def fence(colour: str) -> Picture:
    """Bars and two rails; between them one sees through."""
    picture = np.zeros((96, 64, 4), np.uint8)
    x, y = np.arange(64)[None, :], np.arange(96)[:, None]
    solid = (x % 16 < 6) | (y < 10) | ((y >= 56) & (y < 66))
    picture[solid] = (*RGB[colour], 255)
    return picture


def key(colour: str) -> Picture:
    """A ring, a shaft and two teeth on a grey rim, 32 x 40, standing on its lower edge."""
    y, x = np.indices((40, 32))
    ring = np.hypot(x - 15.5, y - 10.5)
    shape = ((ring < 10) & (ring > 4)) | ((abs(x - 15.5) < 3) & (y > 18) & (y < 38))
    shape |= (x > 15) & (x < 26) & (((y > 25) & (y < 30)) | ((y > 32) & (y < 37)))
    rim = shape.copy()
    for shift, axis in ((1, 0), (-1, 0), (1, 1), (-1, 1)):
        rim |= np.roll(shape, shift, axis)
    picture = np.zeros((40, 32, 4), np.uint8)
    picture[rim] = (120, 120, 120, 255)
    picture[shape] = (*RGB[colour], 255)
    return picture


def goal() -> Picture:
    """A golden diamond, 40 x 56."""
    y, x = np.indices((56, 40))
    inside = abs(x - 19.5) / 20 + abs(y - 27.5) / 28
    picture = np.zeros((56, 40, 4), np.uint8)
    picture[inside < 1] = (*GOAL_COLOUR, 255)
    picture[inside < 0.45] = (255, 255, 224, 255)
    return picture


def _shaded(grey: NDArray[np.generic], tint: tuple[float, float, float]) -> Picture:
    return _opaque(grey[..., None] * np.array(tint))


def _opaque(colours: NDArray[np.generic]) -> Picture:
    picture = np.full((*colours.shape[:2], 4), 255, np.uint8)
    picture[..., :3] = colours.clip(0, 255).astype(np.uint8)
    return picture
