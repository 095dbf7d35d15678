"""Options and rules of Triggers, compiled: the one source of truth for the single env, the vector env and rollouts.

A maze is two small arrays over a square of ``side * side`` cells: the grid and a margin. ``place`` is an index into the
square. Many mazes lie end to end in the same two arrays; ``base`` is where one begins.

``board``  ``(side * side * 3,)`` uint8, the image that observations are cut from. For a crop the channels are
           (wall, trigger, prize) and the margin is wall; for the full state they are (agent, trigger, prize).
``codes``  ``(side * side,)`` int16: ``OUTSIDE`` in the margin, 0 in an empty cell, ``i + 1`` where object ``i``
           is: first the triggers, then the prizes.

An episode changes ``place`` and ``left``, a bit mask of the objects still there. Together they are the state:
``left * size * size + cell``, where ``cell`` is row * size + column.

All randomness comes from counter-based SplitMix64 streams: episode ``n`` of seed ``s`` is the same maze in the
single env, the vector env and the rollouts, on any number of threads, in any order.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit, uint64, uintp

from secret_rl.checks import check_integer

CHANNELS = 3
WALL, AGENT = 0, 0  # the first channel: walls in a crop, the agent in the full state
TRIGGER, PRIZE = 1, 2
OUTSIDE = -1
MAX_SIZE = 256
MAX_OBJECTS = 40  # triggers and prizes together: their bit mask and the cell share one 64-bit state

WEYL = uint64(0x9E3779B97F4A7C15)  # increment and multipliers of SplitMix64 (Steele, Lea, Flood 2014)
_MIX_1 = uint64(0xBF58476D1CE4E5B9)
_MIX_2 = uint64(0x94D049BB133111EB)
_LAYOUT_STREAM = uint64(0x8CB92BA72F3D8DD7)  # a fixed maze is not the first maze of the same seed
ACTION_STREAM = uint64(0xD1B54A32D192ED03)  # the random actions of an episode are independent of its maze


class Geometry(NamedTuple):
    """The options of a maze as the numbers that the compiled rules work with."""

    size: int
    triggers: int
    prizes: int
    max_steps: int
    inverted: bool
    crop: bool  # False: the full state is observed
    span: int  # side of the observed image
    side: int  # side of the board, margin included
    margin: int  # cells around the grid, at least 1
    corner: int  # from the agent's place (crop) or from the base (full state) to the first observed pixel
    fixed: bool  # every episode has the maze of ``fixed_key``
    fixed_key: np.uint64


@dataclass(frozen=True)
class TriggersOptions:
    """What defines a distribution of mazes, or one maze if ``layout_seed`` is given."""

    size: int = 8
    """Cells along each side of the square grid."""
    triggers: int = 3
    """Switches that must all be activated before a prize pays +1."""
    prizes: int = 1
    """Prizes; the episode terminates when all are gone."""
    window: int | None = 3
    """Side of the agent-centred crop that is observed (odd); None: the full state."""
    inverted: bool = False
    """Up and down swap, left and right swap (the paper's changed dynamics)."""
    layout_seed: int | None = None
    """Fixes the maze, start cell included; None: a new random maze each episode."""
    max_steps: int | None = None
    """Time limit; None: 50 up to 8x8 and 100 above, as in the paper (appendix A)."""

    def __post_init__(self) -> None:
        check_integer("size", self.size, 1, MAX_SIZE)
        check_integer("triggers", self.triggers, 0)
        check_integer("prizes", self.prizes, 1)
        if not isinstance(self.inverted, bool):
            raise TypeError(f"inverted must be True or False, got {self.inverted!r}")
        for name, low, high in (("layout_seed", 0, 2**64 - 1), ("max_steps", 1, None), ("window", 1, None)):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), low, high)
        if self.window is not None and self.window % 2 == 0:
            near = f"{self.window - 1} or {self.window + 1}, or None for the full state"
            raise ValueError(f"window must be odd, so that the agent has a centre, got {self.window}: use {near}")
        objects, cells = self.triggers + self.prizes, self.size**2
        given = f"{self.triggers} triggers and {self.prizes} prizes"
        if objects + 1 > cells:
            grid = f"a {self.size}x{self.size} grid has {cells}: use a larger size or fewer objects"
            raise ValueError(f"{given} with the agent need {objects + 1} cells, but {grid}")
        if objects > MAX_OBJECTS:
            raise ValueError(f"{given} are {objects} objects, but at most {MAX_OBJECTS} fit in a state number")

    @property
    def time_limit(self) -> int:
        """The step at which an episode truncates."""
        return self.max_steps if self.max_steps is not None else (50 if self.size <= 8 else 100)

    @property
    def num_states(self) -> int:
        """One more than the largest ``info["state"]``."""
        return int(self.size**2 * 2 ** (self.triggers + self.prizes))

    def geometry(self) -> Geometry:
        """The options as the compiled rules take them."""
        crop, half = self.window is not None, (self.window or 0) // 2
        span, margin = self.window or self.size, max(half, 1)
        side = self.size + 2 * margin
        corner = (-half if crop else margin) * (side + 1) * CHANNELS
        fixed, seed = self.layout_seed is not None, np.uint64(self.layout_seed or 0)
        fixed_key = np.uint64(episode_key(seed ^ _LAYOUT_STREAM, 0))
        counts = (self.size, self.triggers, self.prizes, self.time_limit)
        return Geometry(*counts, self.inverted, crop, span, side, margin, corner, fixed, fixed_key)


@njit(cache=True)
def blank_maze(geo):
    """The (board, codes) of a maze with nothing in it."""
    board = np.zeros(geo.side * geo.side * CHANNELS, np.uint8)
    codes = np.full(geo.side * geo.side, OUTSIDE, np.int16)
    for cell in range(geo.size * geo.size):
        codes[place_of(geo, cell)] = 0
    if geo.crop:
        for place in range(geo.side * geo.side):
            board[place * CHANNELS + WALL] = codes[place] == OUTSIDE
    return board, codes


@njit(cache=True, inline="always")
def place_of(geo, cell):
    """Row * size + column -> index in the board."""
    return cell + geo.margin * (geo.side + 1) + (cell // geo.size) * (2 * geo.margin)


@njit(cache=True, inline="always")
def cell_of(geo, place):
    """Index in the board -> row * size + column."""
    return place - geo.margin * (geo.size + 1) - (place // geo.side) * (2 * geo.margin)


@njit(cache=True, inline="always")
def mix(z):
    """SplitMix64's output function: a bijection that scatters neighbouring inputs."""
    z = (z ^ (z >> uint64(30))) * _MIX_1
    z = (z ^ (z >> uint64(27))) * _MIX_2
    return z ^ (z >> uint64(31))


@njit(cache=True, inline="always")
def episode_key(seed, episode):
    """The 64 bits that decide everything random in episode number ``episode`` of an env seeded with ``seed``."""
    return mix(mix(seed + WEYL) + uint64(episode) * WEYL)


@njit(cache=True)
def draw_layout(geo, key, places):
    """Draw distinct places uniformly into ``places``: the agent's start, the triggers, the prizes."""
    key = geo.fixed_key if geo.fixed else key
    cells = uint64(geo.size * geo.size)
    drawn = 0
    while drawn <= geo.triggers + geo.prizes:
        key += WEYL
        # multiply-shift of 32 random bits: the bias is under cells / 2**32
        place = place_of(geo, np.int64(((mix(key) >> uint64(32)) * cells) >> uint64(32)))
        taken = False
        for i in range(drawn):
            taken |= places[i] == place
        if not taken:
            places[drawn] = place
            drawn += 1


@njit(cache=True, inline="always")
def set_up(geo, places, base, board, codes):
    """Put the agent and the objects of a layout on an empty board; give the starting (place, left)."""
    for i in range(geo.triggers + geo.prizes):
        place = base + places[i + 1]
        codes[place] = i + 1
        board[place * CHANNELS + (TRIGGER if i < geo.triggers else PRIZE)] = 1
    start = np.int64(base + places[0])
    if not geo.crop:
        board[start * CHANNELS + AGENT] = 1
    return start, (np.int64(1) << (geo.triggers + geo.prizes)) - 1


@njit(cache=True, inline="always")
def remove(place, board, codes):
    """Take an object off the board."""
    codes[place] = 0
    board[place * CHANNELS + TRIGGER] = 0
    board[place * CHANNELS + PRIZE] = 0


@njit(cache=True, inline="always")
def clear(geo, places, base, place, board, codes):
    """Take the agent and every object of a layout, collected or not, off the board."""
    for i in range(geo.triggers + geo.prizes):
        remove(base + places[i + 1], board, codes)
    if not geo.crop:
        board[place * CHANNELS + AGENT] = 0


@njit(cache=True, inline="always")
def advance(geo, place, left, action, board, codes):
    """One step: (place, left) becomes (place, left, reward, trigger_activated, terminated).

    Actions are 0 up, 1 down, 2 left, 3 right; the boundary ignores a move. A prize pays +1 if no trigger is
    left and -1 otherwise; the episode terminates when no prize is left.
    """
    # arithmetic instead of branches: a random walk defeats branch prediction, and this is the inner loop
    sign = 2 * ((action & 1) ^ np.int64(geo.inverted)) - 1
    stride = 1 + (geo.side - 1) * (1 - (action >> 1))
    after = place + sign * stride
    code = np.int64(codes[after])
    allowed = np.int64(code != OUTSIDE)
    after = place + allowed * sign * stride
    code *= allowed
    if not geo.crop:
        board[place * CHANNELS + AGENT] = 0
        board[after * CHANNELS + AGENT] = 1
    if code == 0:
        return after, left, 0, False, False
    codes[after] = 0
    left &= ~(np.int64(1) << (code - 1))
    if code <= geo.triggers:
        board[after * CHANNELS + TRIGGER] = 0
        return after, left, 0, True, False
    board[after * CHANNELS + PRIZE] = 0
    triggers_left = left & ((np.int64(1) << geo.triggers) - 1)
    return after, left, (1 if triggers_left == 0 else -1), False, left >> geo.triggers == 0


@njit(cache=True, inline="always")
def state_of(geo, base, place, left):
    """The integer that names the full state within its maze."""
    return left * (geo.size * geo.size) + cell_of(geo, place - base)


@njit(cache=True, inline="always")
def _copy_rows(source, start, stride, rows, width, target, at):
    # unsigned indices: a signed one may be negative, and that check on each byte keeps copies from being wide
    for row in range(uintp(rows)):
        for i in range(uintp(width)):
            target[uintp(at) + row * uintp(width) + i] = source[uintp(start) + row * uintp(stride) + i]


@njit(cache=True, inline="always")
def observe(geo, base, place, board, out, at):
    """Write the observation, ``(span, span, channels)`` bytes, to ``out[at:]``."""
    start = (place if geo.crop else base) * CHANNELS + geo.corner
    stride = geo.side * CHANNELS
    if geo.span == 3:  # the paper's window: constants let the compiler unroll the copies
        _copy_rows(board, start, stride, 3, 3 * CHANNELS, out, at)
    else:
        _copy_rows(board, start, stride, geo.span, geo.span * CHANNELS, out, at)
