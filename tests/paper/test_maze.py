"""The paper's picture of a maze."""

from xml.etree import ElementTree

import numpy as np
from matplotlib.colors import to_hex
from paper.maze import plot_maze
from PIL import Image

from secret_rl.envs.triggers import MazeContents
from secret_rl.envs.triggers.render import AGENT, FLOOR, PRIZE, TRIGGER, WALL, draw
from secret_rl.report import save_figure


def colour(rgb):
    return to_hex(np.array(rgb) / 255)


def test_a_maze_is_drawn_as_the_environment_renders_it(tmp_path):
    maze = MazeContents(4, (0, 3), ((1, 1), (2, 0)), ((3, 3),))
    png, svg = save_figure(plot_maze(maze), tmp_path / "maze")
    rendered = draw(maze, pixels=32)
    with Image.open(png) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    cell = pixels.shape[0] / 6
    assert pixels.shape[0] == pixels.shape[1]
    for row, column in np.ndindex(6, 6):
        mine = pixels[int((row + 0.5) * cell), int((column + 0.5) * cell)]
        assert tuple(mine) == tuple(rendered[row * 32 + 16, column * 32 + 16]), (row, column)
    text = ElementTree.tostring(ElementTree.parse(svg).getroot(), encoding="unicode")
    assert "<image" not in text and "base64" not in text, "vectors"
    assert all(colour(rgb) in text for rgb in (AGENT, TRIGGER, PRIZE, WALL, FLOOR))
