"""A map of keys and doors seen from above."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from secret_rl.envs.keys_doors.puzzle import CELL, COLOURS, START, Cell, Puzzle, Status, centre
from secret_rl.envs.keys_doors.wad import GOAL_COLOUR, RGB

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
    """An RGB picture, north up: keys are discs, doors bars, the goal a diamond, the agent a ring.

    Args:
        puzzle: The map.
        status: Keys taken and doors opened by it are left out.
        position: Of the agent, in units of the engine; None: the start.
        angle: Degrees that the agent faces; None: those of the start.
        pixels: Of each cell, along a side.
        trail: (steps, 2) positions to mark.
    """
    if pixels < 4:
        raise ValueError(f"pixels must be at least 4 a cell, got {pixels}")
    picture = np.empty((puzzle.height * pixels, puzzle.width * pixels, 3), np.uint8)  # its first row in the south
    picture[:] = WALL
    pixel_y, pixel_x = (np.indices(picture.shape[:2]) + 0.5) * (CELL / pixels)

    def part(cell: Cell) -> NDArray[np.uint8]:
        x, y = cell[0] * pixels, cell[1] * pixels
        return picture[y : y + pixels, x : x + pixels]

    def dot(x: float, y: float, radius: float, colour: Any, diamond: bool = False) -> None:
        """A disc or a diamond; the radius is in cells."""
        dx, dy = abs(pixel_x - x), abs(pixel_y - y)
        picture[(dx + dy if diamond else np.hypot(dx, dy)) < radius * CELL] = colour

    for cell in puzzle.open_cells:
        part(cell)[:] = LINE  # around each cell
        part(cell)[1:, 1:] = FLOOR
    thin = max(1, pixels // 6)
    middle = slice(pixels // 2 - thin, pixels // 2 + thin)
    for door in puzzle.closed_doors(status):
        bar = part(door.cell)[:, middle] if door.upright else part(door.cell)[middle]
        bar[:] = RGB[COLOURS[door.colour - 1]]
    for x, y in [] if trail is None else np.asarray(trail, np.float64):
        dot(x, y, 0.06, TRAIL)
    for key in (key for number, key in enumerate(puzzle.keys) if not status.taken >> number & 1):
        dot(*centre(key.cell), 0.28, RGB[COLOURS[key.colour - 1]])
    dot(*centre(puzzle.goal), 0.38, GOAL_COLOUR, diamond=True)
    x, y = centre(puzzle.start) if position is None else position
    heading = np.deg2rad(puzzle.angle if angle is None else angle)
    dot(x, y, 0.22, AGENT)
    dot(x + 0.26 * CELL * np.cos(heading), y + 0.26 * CELL * np.sin(heading), 0.1, AGENT)
    return np.ascontiguousarray(picture[::-1])
