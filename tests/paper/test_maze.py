"""The paper's picture of a maze."""

from xml.etree import ElementTree

import gymnasium as gym
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


def test_what_the_agent_sees_is_drawn_beside_the_maze():
    env = gym.make("secret_rl/Triggers-v0", size=8, triggers=3, prizes=1, layout_seed=2046)
    observation, _ = env.reset()
    (axes,) = plot_maze(env.unwrapped.contents, observation).axes
    faces = [(patch.get_x(), patch.get_y(), to_hex(patch.get_facecolor())) for patch in axes.patches]
    cells = [face for face in faces if face[0] == int(face[0])]
    assert len(cells) == 10 * 10 + 3 * 3
    for x, y, shade in (cell for cell in cells if cell[0] > 10):
        assert shade == colour(WALL if observation[int(y), int(x) - 11, 0] else FLOOR)
    things = [(y - 1 / 8, x - 1 / 8 - 11, shade) for x, y, shade in faces if x > 10 and x != int(x)]
    assert (1, 1, colour(AGENT)) in things
    assert sum(shade == colour(TRIGGER) for *_, shade in things) == observation[..., 1].sum()
