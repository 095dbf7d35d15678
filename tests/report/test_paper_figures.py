"""The paper's pictures: mazes, concentration of attention and training, as vectors and as pixels."""

import subprocess
import sys
from xml.etree import ElementTree

import gymnasium as gym
import numpy as np
import pytest
from matplotlib.colors import to_hex
from PIL import Image

from secret_rl import report
from secret_rl.envs.triggers import MazeContents
from secret_rl.envs.triggers.render import AGENT, FLOOR, PRIZE, TRIGGER, WALL, draw
from secret_rl.report import plot_concentration, plot_maze, plot_training, save_concentration, save_maze, svg_of
from secret_rl.report.style import BLUE


def colour(rgb):
    return to_hex(np.array(rgb) / 255)


def test_a_maze_is_drawn_as_the_environment_renders_it(tmp_path):
    maze = MazeContents(4, (0, 3), ((1, 1), (2, 0)), ((3, 3),))
    png, svg = save_maze(maze, tmp_path / "maze")
    assert (png.name, svg.name) == ("maze.png", "maze.svg")
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
    for rgb in (AGENT, TRIGGER, PRIZE, WALL, FLOOR):
        assert colour(rgb) in text


def test_what_the_agent_sees_is_drawn_beside_the_maze():
    env = gym.make("secret_rl/Triggers-v0", size=8, triggers=3, prizes=1, layout_seed=2046)
    observation, _ = env.reset()
    figure = plot_maze(env.unwrapped.contents, observation)
    (axes,) = figure.axes
    whole, beside = 10 * 10, 3 * 3
    faces = [(patch.get_x(), patch.get_y(), to_hex(patch.get_facecolor())) for patch in axes.patches]
    cells = [face for face in faces if face[0] == int(face[0])]
    assert len(cells) == whole + beside
    seen = {(int(y), int(x) - 11): shade for x, y, shade in cells if x > 10}
    for (row, column), shade in seen.items():
        assert shade == colour(WALL if observation[row, column, 0] else FLOOR)
    things = [(y - 1 / 8, x - 1 / 8 - 11, shade) for x, y, shade in faces if x > 10 and x != int(x)]
    assert (1, 1, colour(AGENT)) in things
    assert sum(shade == colour(TRIGGER) for *_, shade in things) == observation[..., 1].sum()


def test_bars_are_the_attention_by_distance(tmp_path):
    peaked, nothing = {-1: 0.1, 0: 0.7, 1: 0.05}, dict.fromkeys(range(-1, 2), 0.0)
    figure = plot_concentration({"8x8": peaked, "$12x12": nothing}, xlabel="steps from the nearest switch")
    one, other = figure.axes
    assert {round(bar.get_x() + bar.get_width() / 2): bar.get_height() for bar in one.patches} == peaked
    assert to_hex(one.patches[0].get_facecolor()) == BLUE.lower()
    assert one.get_ylim() == other.get_ylim(), "panels can be compared"
    assert [axes.get_title() for axes in figure.axes] == ["8x8", "$12x12"]
    assert [text.get_text() for text in other.texts] == ["no reward\npredicted correctly"] and not one.texts
    png, svg = save_concentration({"$12x12": nothing}, tmp_path / "c.png")
    assert png.read_bytes().startswith(b"\x89PNG") and "$12x12" in svg.read_text()
    with pytest.raises(ValueError, match="no concentration to draw"):
        plot_concentration({})


def looks():
    """A training curve: loss, validation loss and gain at three updates; the last gain is not known."""
    gains = (0.1, 0.6, None)
    return [
        {"step": step, "loss": 2 / step, "validation_loss": 3 / step, "gain": gain}
        for step, gain in zip((10, 20, 30), gains, strict=True)
    ]


def test_training_is_drawn_with_its_gain():
    loss, gain = plot_training({"run": looks()}).axes
    assert [line.get_xdata().tolist() for line in (*loss.lines, *gain.lines)] == [[10, 20, 30]] * 3
    np.testing.assert_allclose(loss.lines[0].get_ydata(), [2 / 10, 2 / 20, 2 / 30])
    np.testing.assert_allclose(loss.lines[1].get_ydata(), [3 / 10, 3 / 20, 3 / 30])
    np.testing.assert_allclose(gain.lines[0].get_ydata(), [0.1, 0.6, np.nan])
    loss, gain = plot_training({"one": looks(), "two": looks()}).axes
    assert [line.get_label() for line in loss.lines] == ["one", "two"] and len(gain.lines) == 2
    assert loss.lines[0].get_color() != loss.lines[1].get_color()
    with pytest.raises(ValueError, match="no training curve to draw"):
        plot_training({"run": []})


def test_an_inline_figure_is_an_element_in_the_colour_of_the_text():
    svg = svg_of(plot_training({"<b>": looks()}))
    root = ElementTree.fromstring(svg)
    assert root.tag.endswith("svg")
    assert "#000000" not in svg and "currentColor" in svg
    assert 'id="figure_1"' not in svg, "names that every figure has"


def test_the_names_of_the_package_are_found_on_first_use():
    assert set(report.__all__) >= {"save_maze", "save_concentration", "save_learning_curves", "save_frames"}
    for name in report.__all__:
        assert callable(getattr(report, name))
    with pytest.raises(AttributeError, match="nothing_here"):
        _ = report.nothing_here
    code = "import sys, secret_rl.report.record; print({'matplotlib', 'PIL', 'torch'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert out.strip() == "set()", "a record needs none of the libraries that draw"
