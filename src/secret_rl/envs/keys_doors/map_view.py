"""A puzzle seen from above, for figures."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from secret_rl.envs.keys_doors.art import GOAL_COLOUR, RGB
from secret_rl.envs.keys_doors.planner import START, Status
from secret_rl.envs.keys_doors.puzzle import CELL, COLOURS, Cell, Puzzle, centre, room_cells

WALL, FLOOR, LINE, AGENT, TRAIL = (52, 52, 60), (176, 176, 168), (160, 160, 152), (255, 96, 208), (120, 60, 140)


def draw_map(
    puzzle: Puzzle,
    status: Status = START,
    position: tuple[float, float] | None = None,
    angle: float | None = None,
    *,
    pixels: int = 24,
    trail: NDArray[np.float64] | None = None,
) -> NDArray[np.uint8]:
    """An RGB picture, north up, ``pixels`` a cell: keys are discs, doors bars, the goal a diamond, the agent a ring.

    Keys taken and doors opened by ``status`` are left out. ``trail`` is (steps, 2) positions in units of the engine.
    """
    if pixels < 4:
        raise ValueError(f"pixels must be at least 4 a cell, got {pixels}")
    canvas = _Canvas(puzzle, pixels)
    for room in puzzle.rooms:
        for cell in room_cells(room):
            canvas.fill(cell, FLOOR)
    for index, door in enumerate(puzzle.doors):
        canvas.fill(door.cell, FLOOR)
        if not status.opened >> index & 1:
            canvas.bar(door.cell, door.upright, RGB[COLOURS[door.colour - 1]])
    for x, y in [] if trail is None else np.asarray(trail, np.float64):
        canvas.dot((x, y), 0.06, TRAIL)
    for index, key in enumerate(puzzle.keys):
        if not status.taken >> index & 1:
            canvas.dot(centre(key.cell), 0.28, RGB[COLOURS[key.colour - 1]])
    canvas.dot(centre(puzzle.goal), 0.38, GOAL_COLOUR, diamond=True)
    x, y = centre(puzzle.start) if position is None else position
    heading = np.deg2rad(puzzle.angle if angle is None else angle)
    canvas.dot((x, y), 0.22, AGENT)
    canvas.dot((x + 0.26 * CELL * np.cos(heading), y + 0.26 * CELL * np.sin(heading)), 0.1, AGENT)
    return np.ascontiguousarray(canvas.picture[::-1])


class _Canvas:
    """A picture with its first row in the south."""

    def __init__(self, puzzle: Puzzle, pixels: int) -> None:
        self._pixels = pixels
        self.picture = np.empty((puzzle.height * pixels, puzzle.width * pixels, 3), np.uint8)
        self.picture[:] = WALL
        self._y, self._x = (np.indices(self.picture.shape[:2]) + 0.5) * (CELL / pixels)

    def fill(self, cell: Cell, colour: Any) -> None:
        """A cell of one colour with a thin line round it."""
        part = self._cell(cell)
        part[:] = LINE
        part[1:, 1:] = colour

    def bar(self, cell: Cell, upright: bool, colour: Any) -> None:
        """A closed door."""
        part, thin = self._cell(cell), max(1, self._pixels // 6)
        middle = slice(self._pixels // 2 - thin, self._pixels // 2 + thin)
        if upright:
            part[:, middle] = colour
        else:
            part[middle] = colour

    def dot(self, at: tuple[float, float], radius: float, colour: Any, *, diamond: bool = False) -> None:
        """A disc or a diamond; the radius is in cells."""
        dx, dy = abs(self._x - at[0]), abs(self._y - at[1])
        self.picture[(dx + dy if diamond else np.hypot(dx, dy)) < radius * CELL] = colour

    def _cell(self, cell: Cell) -> NDArray[np.uint8]:
        x, y = cell[0] * self._pixels, cell[1] * self._pixels
        return self.picture[y : y + self._pixels, x : x + self._pixels]
