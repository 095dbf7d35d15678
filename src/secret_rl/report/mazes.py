"""Pictures of Triggers mazes (the paper's figure 2), in the colours of the environment."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secret_rl.envs.triggers import MazeContents, render
from secret_rl.report import style
from secret_rl.report.style import Axes, Figure, Rectangle, save_figure

_INCHES = 0.32  # of a cell
Colour = tuple[int, int, int]


def plot_maze(maze: MazeContents, observation: NDArray[Any] | None = None) -> Figure:
    """The full grid and, at the same scale, what the agent sees of it: an observation of (rows, columns, channels).

    ``env.unwrapped.contents`` is the maze of a Triggers environment.
    """
    cells = [_cells_of(maze)] + ([] if observation is None else [_cells_seen(observation)])
    widths = [max(column for _, column in grid) + 1 for grid in cells]
    height = max(max(row for row, _ in grid) + 1 for grid in cells)
    with style.looks():
        figure = Figure(figsize=(_INCHES * (sum(widths) + len(cells) - 1), _INCHES * height))
        axes = figure.add_axes((0, 0, 1, 1))
        left = 0
        for grid, width in zip(cells, widths, strict=True):
            _draw(axes, grid, left)
            left += width + 1
        axes.set(xlim=(0, left - 1), ylim=(height, 0), aspect="equal")
        axes.set_axis_off()
    return figure


def save_maze(maze: MazeContents, path: str | Path, observation: NDArray[Any] | None = None) -> tuple[Path, Path]:
    """Write ``plot_maze`` as a PNG and an SVG of the same name, each whole or not at all."""
    return save_figure(plot_maze(maze, observation), path)


def _cells_of(maze: MazeContents) -> dict[tuple[int, int], Colour | None]:
    """(row, column) -> what is on the floor there, the boundary wall included; None where nothing is."""
    side = maze.size + 2
    cells: dict[tuple[int, int], Colour | None] = {
        (row, column): None if 0 < row < side - 1 and 0 < column < side - 1 else render.WALL
        for row, column in np.ndindex(side, side)
    }
    for colour, places in ((render.TRIGGER, maze.triggers), (render.PRIZE, maze.prizes), (render.AGENT, [maze.agent])):
        for row, column in places:
            cells[row + 1, column + 1] = colour
    return cells


def _cells_seen(observation: NDArray[Any]) -> dict[tuple[int, int], Colour | None]:
    """The same of an observation; the agent is in the centre."""
    rows, columns = observation.shape[:2]
    cells: dict[tuple[int, int], Colour | None] = dict.fromkeys(np.ndindex(rows, columns))
    for channel, colour in enumerate((render.WALL, render.TRIGGER, render.PRIZE)):
        for row, column in np.argwhere(observation[..., channel]).tolist():
            cells[row, column] = colour
    cells[rows // 2, columns // 2] = render.AGENT
    return cells


def _draw(axes: Axes, cells: dict[tuple[int, int], Colour | None], left: int) -> None:
    for (row, column), colour in cells.items():
        ground = render.WALL if colour == render.WALL else render.FLOOR
        axes.add_patch(_square(left + column, row, 1.0, ground, render.GRID_LINE))
        if colour not in (None, render.WALL):
            axes.add_patch(_square(left + column + 1 / 8, row + 1 / 8, 3 / 4, colour))


def _square(x: float, y: float, side: float, face: Colour | None, edge: Colour | None = None) -> Rectangle:
    def shade(colour: Colour | None) -> Any:
        return "none" if colour is None else tuple(part / 255 for part in colour)

    return Rectangle((x, y), side, side, facecolor=shade(face), edgecolor=shade(edge), linewidth=0.6)
