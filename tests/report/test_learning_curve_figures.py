"""Pictures of learning curves: real files that show the aggregated curves, told apart by every reader."""

import subprocess
import sys
from itertools import combinations
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb
from PIL import Image

from secret_rl.evaluation import Bootstrap, LearningCurves, aggregate
from secret_rl.report import learning_curves
from secret_rl.report.learning_curves import (
    Style,
    condition_styles,
    plot_learning_curves,
    save_figure,
    save_learning_curves,
)

QUICK = Bootstrap(draws=100, seed=3)
OURS = ["none", "paper", "cumulative", "value", "pending", "OnlineCredit", "oracle"]


def curves(*names, episodes=60, seed=0):
    rng = np.random.default_rng(seed)
    growth = np.linspace(0, 1, episodes)
    return LearningCurves({n: growth * i + rng.normal(0, 0.2, (4, 3, episodes)) for i, n in enumerate(names, 1)})


def lines_of(axes):
    return {line.get_label(): line for line in axes.get_lines()}


@pytest.mark.parametrize("statistic", ["mean", "iqm"])
def test_lines_and_bands_are_the_aggregated_curves(statistic):
    data = curves("pending", "none", "mine")
    how = {"window": 5, "points": 20, "statistic": statistic, "bootstrap": QUICK}
    (axes,) = plot_learning_curves(data, **how).axes
    lines = lines_of(axes)
    assert list(lines) == ["none", "pending", "mine"] and len(axes.collections) == 3
    for (name, line), band in zip(lines.items(), axes.collections, strict=True):
        expected = aggregate(data[name], **how)
        np.testing.assert_array_equal(line.get_xdata(), expected.episodes)
        np.testing.assert_allclose(line.get_ydata(), expected.value)
        corners = band.get_paths()[0].vertices
        for episode, low, high in zip(expected.episodes, expected.low, expected.high, strict=True):
            heights = corners[corners[:, 0] == episode, 1]
            assert (heights.min(), heights.max()) == pytest.approx((low, high))
        assert to_hex(band.get_facecolor()[0][:3]) == to_hex(line.get_color())  # a band belongs to its line
    assert axes.get_xlim() == (0, 60)
    assert axes.get_xlabel() == "episodes" and "return" in axes.get_ylabel()
    (named,) = plot_learning_curves(data, xlabel="steps", ylabel="goal rate", **how).axes
    assert (named.get_xlabel(), named.get_ylabel()) == ("steps", "goal rate")


def test_several_panels_share_looks_and_a_legend():
    panels = {"one": curves("mine", "none"), "two": curves("other", "pending", "mine"), "three": curves("none")}
    panels["four"] = curves("yours", "none", episodes=30)
    figure = plot_learning_curves(panels, bootstrap=QUICK, columns=3)
    assert [axes.get_title() for axes in figure.axes] == ["one", "two", "three", "four"]
    looks = {}
    for axes, data in zip(figure.axes, panels.values(), strict=True):
        lines = lines_of(axes)
        assert set(lines) == set(data.names)
        for name, line in lines.items():
            look = to_hex(line.get_color()), str(line.get_linestyle())
            assert looks.setdefault(name, look) == look
    assert len(set(looks.values())) == len(looks) == 5
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["none", "pending", "mine", "other", "yours"]
    for text, handle in zip(legend.get_texts(), legend.get_lines(), strict=True):
        assert to_hex(handle.get_color()) == looks[text.get_text()][0]
    assert [bool(axes.get_ylabel()) for axes in figure.axes] == [True, False, False, True]


def test_our_conditions_always_look_the_same():
    whole = condition_styles(OURS)
    assert list(whole) == OURS
    assert condition_styles(reversed(OURS)) == whole and list(condition_styles(reversed(OURS))) == OURS
    for name in OURS:
        assert condition_styles(["something", name, "else"])[name] == whole[name]
    assert condition_styles(["online_credit"])["online_credit"] == whole["OnlineCredit"]
    assert condition_styles(["No shaping"])["No shaping"] == whole["none"]


def test_many_conditions_all_look_different():
    names = [*OURS, *(f"n={n}" for n in range(18)), "Online"]  # two names of one thing cannot share a look
    styles = condition_styles(names)
    assert set(styles) == set(names) and len(set(styles.values())) == len(names)
    for ours in (["none", "pending"], ["none", "value", "oracle"]):  # others take the colours that are left
        mixed = condition_styles([*ours, *"abcde"[: 7 - len(ours)]])
        assert len({style.color for style in mixed.values()}) == 7
    assert len(condition_styles(f"n={n}" for n in range(60))) == 60  # looks come again, none is left out


# Machado, Oliveira and Fernandes (2009), full severity, on linear RGB.
BLINDNESS = {
    "none": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def lab(color, kind):
    """CIE L*a*b* of a colour as a reader of some kind sees it."""
    rgb = np.array(to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(BLINDNESS[kind]) @ linear, 0, 1)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(np.maximum(to_xyz @ seen / [0.9505, 1.0, 1.089], 1e-4))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("kind", BLINDNESS)
def test_readers_of_every_kind_can_tell_our_conditions_apart(kind):
    styles = condition_styles(OURS)
    for one, other in combinations(OURS, 2):
        apart = np.linalg.norm(lab(styles[one].color, kind) - lab(styles[other].color, kind))
        assert apart > 12 or styles[one].dashes != styles[other].dashes, (one, other, apart)
        assert apart > 6, (one, other, apart)
    for style in styles.values():
        assert np.linalg.norm(lab(style.color, kind) - lab("white", kind)) > 25


def test_files_are_real_pictures(tmp_path):
    png, svg = save_learning_curves(curves("none", "pending", "n < 100"), tmp_path / "new" / "curves", bootstrap=QUICK)
    assert (png.name, svg.name) == ("curves.png", "curves.svg")
    assert sorted(p.name for p in png.parent.iterdir()) == ["curves.png", "curves.svg"]
    with Image.open(png) as picture:
        assert picture.format == "PNG" and min(picture.size) > 300
        pixels = np.asarray(picture.convert("RGB")).reshape(-1, 3)
    drawn = {tuple(pixel) for pixel in pixels}
    for style in condition_styles(["none", "pending", "n < 100"]).values():
        assert tuple(round(255 * part) for part in to_rgb(style.color)) in drawn
    text = " ".join(ElementTree.parse(svg).getroot().itertext())
    for word in ("none", "pending", "n < 100", "episodes", "discounted return"):
        assert word in text


def test_names_with_endings_and_dots_are_kept(tmp_path):
    figure = plot_learning_curves(curves("none"), bootstrap=QUICK)
    assert [p.name for p in save_figure(figure, tmp_path / "a.png")] == ["a.png", "a.svg"]
    assert [p.name for p in save_figure(figure, tmp_path / "w=0.5")] == ["w=0.5.png", "w=0.5.svg"]


def test_the_same_data_gives_the_same_files(tmp_path):
    first, second = (
        save_learning_curves(curves("none", "mine"), tmp_path / name, bootstrap=QUICK) for name in ("a", "b")
    )
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    figure = plot_learning_curves(curves("none"), bootstrap=QUICK)

    def fail(target, **_):
        target.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(figure, "savefig", fail)
    with pytest.raises(OSError, match="disk full"):
        save_figure(figure, tmp_path / "curves")
    assert not list(tmp_path.iterdir())


def test_styles_can_be_chosen():
    mine = {"mine": Style("#123456", "solid")}
    (axes,) = plot_learning_curves(curves("none", "mine"), bootstrap=QUICK, styles=mine).axes
    assert to_hex(lines_of(axes)["mine"].get_color()) == "#123456"
    with pytest.raises(ValueError, match=r"styles of \['yours'\], but the conditions are \['none', 'mine'\]"):
        plot_learning_curves(curves("none", "mine"), styles={"yours": mine["mine"]})


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="no learning curves to draw: pass LearningCurves, or"):
        plot_learning_curves({})
    with pytest.raises(ValueError, match="columns must be at least 1, got 0"):
        plot_learning_curves(curves("none"), columns=0)
    with pytest.raises(ValueError, match=r"window must lie in \[1, 60\]"):
        plot_learning_curves(curves("none"), window=61)


def test_drawing_opens_no_window_and_needs_its_extra():
    code = f"import sys, {learning_curves.__name__}; print({{'matplotlib.pyplot', 'torch'}} & set(sys.modules))"
    run = [sys.executable, "-c"]
    assert subprocess.run([*run, code], check=True, capture_output=True, text=True).stdout.strip() == "set()"
    blocked = f"import sys; sys.modules['matplotlib'] = None; import {learning_curves.__name__}"
    assert "secret-rl[report]" in subprocess.run([*run, blocked], check=False, capture_output=True, text=True).stderr


def test_measures_and_statistics_need_neither_torch_nor_scipy():
    code = "import sys, secret_rl.evaluation; print({'torch', 'scipy', 'matplotlib', 'pandas'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert out.strip() == "set()"
