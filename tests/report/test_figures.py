"""Figures: real files that show the aggregated curves, in styles that every reader can tell apart."""

from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb
from PIL import Image

from secret_rl.evaluation import Bootstrap, LearningCurves, aggregate
from secret_rl.report import plot_concentration, plot_learning_curves, plot_training, save_figure
from secret_rl.report.figures import condition_styles, svg_of

QUICK = Bootstrap(draws=100, seed=3)
OURS = ["none", "paper", "cumulative", "value", "pending", "OnlineCredit", "oracle"]


def curves(*names, episodes=60, seed=0):
    rng = np.random.default_rng(seed)
    growth = np.linspace(0, 1, episodes)
    return LearningCurves({n: growth * i + rng.normal(0, 0.2, (4, 3, episodes)) for i, n in enumerate(names, 1)})


def lines_of(axes):
    return {line.get_label(): line for line in axes.get_lines()}


def test_lines_and_bands_are_the_aggregated_curves():
    data = curves("pending", "none", "mine")
    how = {"window": 5, "bootstrap": QUICK}
    (axes,) = plot_learning_curves(data, xlabel="steps", ylabel="goal rate", **how).axes
    lines = lines_of(axes)
    assert list(lines) == ["none", "pending", "mine"]
    for (name, line), band in zip(lines.items(), axes.collections, strict=True):
        expected = aggregate(data[name], **how)
        np.testing.assert_array_equal(line.get_xdata(), expected.episodes)
        np.testing.assert_allclose(line.get_ydata(), expected.value)
        corners = band.get_paths()[0].vertices
        for episode, low, high in zip(expected.episodes, expected.low, expected.high, strict=True):
            heights = corners[corners[:, 0] == episode, 1]
            assert (heights.min(), heights.max()) == pytest.approx((low, high))
        assert to_hex(band.get_facecolor()[0][:3]) == to_hex(line.get_color())
    assert axes.get_xlim() == (0, 60) and (axes.get_xlabel(), axes.get_ylabel()) == ("steps", "goal rate")


def test_panels_share_styles_and_a_legend():
    panels = {"one": curves("mine", "none"), "two": curves("other", "pending", "mine"), "three": curves("none")}
    panels["four"] = curves("yours", "none", episodes=30)
    figure = plot_learning_curves(panels, bootstrap=QUICK, columns=3)
    assert [axes.get_title() for axes in figure.axes] == list(panels)
    styles = {}
    for axes, data in zip(figure.axes, panels.values(), strict=True):
        assert set(lines_of(axes)) == set(data.names)
        for name, line in lines_of(axes).items():
            style = to_hex(line.get_color()), str(line.get_linestyle())
            assert styles.setdefault(name, style) == style
    assert len(set(styles.values())) == len(styles) == 5
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["none", "pending", "mine", "other", "yours"]
    for text, handle in zip(legend.get_texts(), legend.get_lines(), strict=True):
        assert to_hex(handle.get_color()) == styles[text.get_text()][0]
    assert [bool(axes.get_ylabel()) for axes in figure.axes] == [True, False, False, True]


def test_known_conditions_always_look_the_same_and_all_look_different():
    whole = condition_styles(OURS)
    assert list(condition_styles(reversed(OURS)).items()) == list(whole.items())
    for name, alias in zip([*OURS, "none"], [*OURS[:5], "online_credit", "oracle", "No shaping"], strict=True):
        assert condition_styles(["something", alias, "else"])[alias] == whole[name]
    names = [*OURS, *(f"n={n}" for n in range(18)), "Online"]  # an alias of a condition that is there, too
    assert len(set(condition_styles(names).values())) == len(names)
    for ours in (["none", "pending"], ["none", "value", "oracle"]):  # others get the colours that are left
        mixed = condition_styles([*ours, *"abcde"[: 7 - len(ours)]])
        assert len({color for color, _ in mixed.values()}) == 7
    assert len(condition_styles(f"n={n}" for n in range(60))) == 60


def test_files_are_real_pictures_and_reproducible(tmp_path):
    names = ["none", "pending", "n < 100"]
    drawn = [plot_learning_curves(curves(*names), bootstrap=QUICK) for _ in range(2)]
    saved = [
        save_figure(figure, tmp_path / name) for figure, name in zip(drawn, ("new/a.png", "new/w=0.5"), strict=True)
    ]
    assert [[path.name for path in pair] for pair in saved] == [["a.png", "a.svg"], ["w=0.5.png", "w=0.5.svg"]]
    assert len(list((tmp_path / "new").iterdir())) == 4
    assert all(one.read_bytes() == other.read_bytes() for one, other in zip(*saved, strict=True))
    with Image.open(saved[0][0]) as picture:
        assert picture.format == "PNG" and min(picture.size) > 300
        drawn = {tuple(pixel) for pixel in np.asarray(picture.convert("RGB")).reshape(-1, 3)}
    for style in condition_styles(names).values():
        assert tuple(round(255 * part) for part in to_rgb(style[0])) in drawn
    text = " ".join(ElementTree.parse(saved[0][1]).getroot().itertext())
    assert all(word in text for word in (*names, "episodes", "discounted return"))
    with pytest.raises(ValueError, match="no learning curves to draw: pass LearningCurves, or"):
        plot_learning_curves({})


def test_bars_are_the_attention_by_distance(tmp_path):
    peaked, nothing = {-1: 0.1, 0: 0.7, 1: 0.05}, dict.fromkeys(range(-1, 2), 0.0)
    figure = plot_concentration({"8x8": peaked, "$12x12": nothing}, xlabel="steps from the nearest switch")
    one, other = figure.axes
    assert {round(bar.get_x() + bar.get_width() / 2): bar.get_height() for bar in one.patches} == peaked
    assert one.get_ylim() == other.get_ylim(), "panels can be compared"
    assert [text.get_text() for text in other.texts] == ["no reward\npredicted correctly"] and not one.texts
    _, svg = save_figure(figure, tmp_path / "c")
    assert "$12x12" in svg.read_text()
    with pytest.raises(ValueError, match="no concentration to draw"):
        plot_concentration({})


def test_training_curves_and_their_inline_svg():
    gains = {1: 0.1, 2: 0.6, 3: None}
    curve = [{"step": s, "loss": 2 / s, "validation_loss": 3 / s, "gain": gain} for s, gain in gains.items()]
    loss, gain = plot_training({"run": curve}).axes
    assert [line.get_xdata().tolist() for line in (*loss.lines, *gain.lines)] == [[1, 2, 3]] * 3
    drawn = [line.get_ydata() for line in (*loss.lines, *gain.lines)]
    np.testing.assert_allclose(drawn, [[2, 1, 2 / 3], [3, 1.5, 1], [0.1, 0.6, np.nan]])
    loss, gain = plot_training({"one": curve, "two": curve}).axes
    assert [line.get_label() for line in loss.lines] == ["one", "two"] and len(gain.lines) == 2
    assert loss.lines[0].get_color() != loss.lines[1].get_color()
    with pytest.raises(ValueError, match="no training curve to draw"):
        plot_training({})
    svg = svg_of(plot_training({"<b>": curve}))
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert "#000000" not in svg and "currentColor" in svg and 'id="figure_1"' not in svg and "<b>" not in svg
