"""Pictures of a maze in the paper's colours: yellow agent, red switches, pink prizes."""

import numpy as np
from numpy.typing import NDArray

from secret_rl.envs.triggers.mazes import MazeContents

FLOOR, GRID_LINE, WALL = (24, 24, 28), (44, 44, 50), (112, 112, 120)
AGENT, TRIGGER, PRIZE = (255, 214, 10), (220, 38, 38), (255, 128, 192)

_ANSI = {"#": 90, "A": 93, "T": 31, "P": 95, ".": 90}  # the same colours, as terminals number them


def draw(maze: MazeContents, pixels: int = 32) -> NDArray[np.uint8]:
    """An RGB picture of ``((size + 2) * pixels,) * 2``, the boundary wall included."""
    side = maze.size + 2
    cells = np.full((side, side, 3), WALL, np.uint8)
    cells[1:-1, 1:-1] = FLOOR
    picture = cells.repeat(pixels, 0).repeat(pixels, 1)
    inner = picture[pixels:-pixels, pixels:-pixels]
    inner[::pixels] = GRID_LINE
    inner[:, ::pixels] = GRID_LINE
    gap = max(1, pixels // 8)
    for colour, positions in ((TRIGGER, maze.triggers), (PRIZE, maze.prizes), (AGENT, (maze.agent,))):
        for row, column in positions:
            top, left = row * pixels, column * pixels
            inner[top + gap : top + pixels - gap + 1, left + gap : left + pixels - gap + 1] = colour
    return picture


def text(maze: MazeContents, colour: bool = True) -> str:
    """The maze as characters: A agent, T trigger, P prize, # wall."""
    rows = [["."] * maze.size for _ in range(maze.size)]
    for letter, positions in (("T", maze.triggers), ("P", maze.prizes), ("A", (maze.agent,))):
        for row, column in positions:
            rows[row][column] = letter
    wall = ["#"] * (maze.size + 2)
    framed = [wall, *(["#", *row, "#"] for row in rows), wall]
    if colour:
        framed = [[f"\x1b[{_ANSI[c]}m{c}\x1b[0m" for c in row] for row in framed]
    return "\n".join(" ".join(row) for row in framed)
