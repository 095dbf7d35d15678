"""The paper's example of a Triggers environment (section 3): the full grid and what the agent sees of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

import secret_rl as srl
from secret_rl.envs.triggers import MazeContents, render
from secret_rl.report import figures

RESULTS = Path(__file__).parent / "results"
OPTIONS = {"size": 8, "triggers": 3, "prizes": 1, "layout_seed": 2046}
CELL_INCHES = 0.32


def main(quick: bool, command: str, analyse_only: bool = False) -> list[str]:
    """Draw the maze and the 3x3 crop around the agent; there is no other size."""
    del quick, command, analyse_only
    assert srl.__version__  # importing registers the environment
    with gym.make("secret_rl/Triggers-v0", **OPTIONS) as env:
        observation, _ = env.reset()
        pictures = figures.save_figure(plot_maze(env.unwrapped.contents, observation), RESULTS / "maze")
    return [str(picture) for picture in pictures]


def plot_maze(maze: MazeContents, observation: NDArray[Any] | None = None) -> Figure:
    """A Triggers maze in its colours (the paper's figure 2) and, at the same scale, what the agent observes.

    ``env.unwrapped.contents`` is the maze of an environment; observations are (rows, columns, channels).
    """
    side = maze.size + 2
    whole = np.zeros((side, side, 3), np.bool_)  # (row, column, channel): wall, trigger, prize, as in observations
    whole[..., 0] = True
    whole[1:-1, 1:-1, 0] = False
    for channel, places in ((1, maze.triggers), (2, maze.prizes)):
        for row, column in places:
            whole[row + 1, column + 1, channel] = True
    grids = [(whole, (maze.agent[0] + 1, maze.agent[1] + 1))]
    if observation is not None:
        grids.append((observation, (observation.shape[0] // 2, observation.shape[1] // 2)))
    width = sum(grid.shape[1] for grid, _ in grids) + len(grids) - 1
    height = max(grid.shape[0] for grid, _ in grids)
    with figures.rc_settings():
        figure = Figure(figsize=(CELL_INCHES * width, CELL_INCHES * height))
        axes = figure.add_axes((0, 0, 1, 1))
        left = 0
        for grid, agent in grids:
            _draw_cells(axes, grid, agent, left)
            left += grid.shape[1] + 1
        axes.set(xlim=(0, width), ylim=(height, 0), aspect="equal")
        axes.set_axis_off()
    return figure


def _draw_cells(axes: Axes, grid: NDArray[Any], agent: tuple[int, int], left: int) -> None:
    def square(x: float, y: float, side: float, face: Sequence[int], edge: Sequence[int] | None = None) -> Rectangle:
        shades: list[Any] = ["none" if rgb is None else tuple(part / 255 for part in rgb) for rgb in (face, edge)]
        return Rectangle((x, y), side, side, facecolor=shades[0], edgecolor=shades[1], linewidth=0.6)

    for row, column in np.ndindex(*grid.shape[:2]):
        wall, trigger, prize = (bool(channel) for channel in grid[row, column, :3])
        ground = render.WALL if wall else render.FLOOR
        axes.add_patch(square(left + column, row, 1.0, ground, render.GRID_LINE))
        colours = {render.AGENT: (row, column) == agent, render.PRIZE: prize, render.TRIGGER: trigger}
        thing = next((colour for colour, there in colours.items() if there), None)
        if thing is not None:
            axes.add_patch(square(left + column + 1 / 8, row + 1 / 8, 3 / 4, thing))
