"""Figures in one style, as PNG and SVG: learning curves, training curves, attention around events."""

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secret_rl.atomic import replacing
from secret_rl.evaluation.curves import LearningCurves
from secret_rl.evaluation.statistics import BOOTSTRAP, Bootstrap, aggregate

try:
    import matplotlib
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError('figures need the report extra: pip install "secret-rl[report]"') from missing

BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"


Style = tuple[str, Any]  # the line of a condition: a colour, and dashes for readers who do not see the colour
# The colour-blind safe palette of Okabe and Ito (2008) without the yellow that is lost on white. The library's own
# conditions look the same in every figure, and are drawn in this order.
_KNOWN: dict[str, Style] = {
    "none": ("#000000", (0, (1, 1.5))),
    "paper": ("#CC79A7", (0, (5, 1.5))),
    "cumulative": ("#56B4E9", (0, (5, 1.5, 1, 1.5))),
    "value": ("#E69F00", (0, (3, 1.5))),
    "pending": (BLUE, "solid"),
    "onlinecredit": (ORANGE, "solid"),
    "oracle": (GREEN, (0, (1, 3))),
}
_ALIASES = {"online": "onlinecredit", "noshaping": "none"}
_OTHER_DASHES = ("solid", (0, (5, 1.5)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))
_LETTERS_PER_INCH, _HANDLE_LETTERS = 12, 7  # of a legend: text, and the line before a label


def condition_styles(names: Iterable[str]) -> dict[str, Style]:
    """A style for each condition, in drawing order: the library's conditions, then others in colours that are free.

    >>> list(condition_styles(["mine", "pending", "none"]))
    ['none', 'pending', 'mine']
    """
    distinct = list(dict.fromkeys(names))
    owners: dict[str, str] = {}  # a condition of the library -> the first name it goes by
    for name in distinct:
        key = "".join(letter for letter in name.lower() if letter.isalnum())
        owners.setdefault(_ALIASES.get(key, key), name)
    styles = {owners[known]: style for known, style in _KNOWN.items() if known in owners}
    colors, taken = [color for color, _ in _KNOWN.values()], {color for color, _ in styles.values()}
    # Free colours first, then every colour again with other dashes.
    candidates: list[Style] = [(color, "solid") for color in reversed(colors) if color not in taken]
    candidates += [(color, dashes) for dashes in _OTHER_DASHES for color in colors]
    unused = (style for style in dict.fromkeys(candidates) if style not in styles.values())
    others = [name for name in distinct if name not in styles]
    styles.update(zip(others, cycle(unused), strict=False))
    return styles


def rc_settings() -> AbstractContextManager[None]:
    """Settings to draw and save under: text is shown as it is, and the same figure gives the same file."""
    settings = {"svg.hashsalt": "secret-rl", "svg.fonttype": "none", "text.parse_math": False}
    return matplotlib.rc_context(settings)  # type: ignore[arg-type]


def panels(count: int, columns: int = 3, width: float = 4.2, height: float = 3.0) -> tuple[Figure, list[Axes], int]:
    """A figure, the axes of its panels, and the number of panels in a row; sizes in inches."""
    across = min(columns, count)
    down = -(-count // across)
    figure = Figure(figsize=(1.2 + width * across, 0.8 + height * down), layout="constrained")
    grid = figure.subplots(down, across, squeeze=False).ravel()
    for axes in grid[count:]:
        axes.remove()
    return figure, list(grid[:count]), across


def open_axes(axes: Axes) -> None:
    """A light grid and no frame."""
    axes.grid(alpha=0.3, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def save_figure(figure: Figure, path: str | Path) -> tuple[Path, Path]:
    """Write a figure as ``path`` with .png and .svg, each whole or not at all; the same figure gives the same files."""
    path = Path(path)
    name = path.stem if path.suffix in (".png", ".svg") else path.name
    png, svg = path.with_name(f"{name}.png"), path.with_name(f"{name}.svg")
    with rc_settings():
        for target, metadata in ((png, {}), (svg, {"Date": None})):
            with replacing(target) as temporary:
                figure.savefig(temporary, format=target.suffix[1:], dpi=150, metadata=metadata)
    return png, svg


def svg_of(figure: Figure) -> str:
    """A figure as an SVG element for a page: transparent, and black parts take the colour of the text."""
    text = io.StringIO()
    with rc_settings():
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(text, format="svg", transparent=True, metadata=metadata)
    svg = text.getvalue()
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg[svg.index("<svg") :])  # ids that the next figure on a page has, too
    return re.sub(r"\b(fill|stroke): #000000", r"\1: currentColor", svg)


def plot_learning_curves(
    curves: LearningCurves | Mapping[str, LearningCurves],
    *,
    window: int = 1,
    bootstrap: Bootstrap = BOOTSTRAP,
    columns: int = 3,
    spacing: int | Sequence[int] | None = None,
    xlabel: str = "episodes",
    ylabel: str = "discounted return, unshaped",
) -> Figure:
    """Returns over episodes with pointwise intervals, one panel or one for each title; the legend is below.

    Args:
        curves: Learning curves, or ``{title: curves}`` for several panels.
        window: Episodes that each point is the mean of.
        bootstrap: How intervals are made.
        columns: Panels in a row.
        spacing: For points that are tests and not episodes: the steps between two tests, the first before any step, or
            the steps of each test.
        xlabel: Label of the horizontal axis.
        ylabel: Label of the vertical axis.
    """
    titled = {"": curves} if isinstance(curves, LearningCurves) else dict(curves)
    if not titled:
        raise ValueError("no learning curves to draw: pass LearningCurves, or {title: LearningCurves, ...}")
    lines = condition_styles(name for panel in titled.values() for name in panel)
    with rc_settings():
        figure, grid, across = panels(len(titled), columns)
        for axes, (title, panel) in zip(grid, titled.items(), strict=True):
            steps = np.arange(1, panel.episodes + 1)
            if spacing is not None:
                steps = (steps - 1) * spacing if isinstance(spacing, int) else np.asarray(spacing)
            for name in (name for name in lines if name in panel.returns):
                color, dashes = lines[name]
                curve = aggregate(panel[name], window=window, bootstrap=bootstrap)
                x = steps[curve.episodes - 1]
                axes.plot(x, curve.value, color=color, linestyle=dashes, linewidth=1.6, label=name)
                axes.fill_between(x, curve.low, curve.high, color=color, alpha=0.18, linewidth=0)
            axes.set(title=title, xlabel=xlabel, xlim=(0, steps[-1]))
            open_axes(axes)
        for axes in grid[::across]:
            axes.set_ylabel(ylabel)
        drawn = {str(line.get_label()): line for axes in grid for line in axes.get_lines()}
        labels = [name for name in lines if name in drawn]
        room = int(figure.get_figwidth() * _LETTERS_PER_INCH) // (_HANDLE_LETTERS + max(map(len, labels)))
        across = max(1, min(len(labels), 2 + 2 * across, room))
        handles = [drawn[name] for name in labels]
        figure.legend(handles, labels, loc="outside lower center", ncols=across, frameon=False)
    return figure


def plot_training(curves: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """Loss and history gain over updates, of each ``FitReport.curve``; of a single curve the training loss, too."""
    if not curves:
        raise ValueError("no training curve to draw: pass {name: report.curve, ...}")
    with rc_settings():
        figure, (loss, gain), _ = panels(2)

        def draw(axes: Axes, name: str, key: str, label: str, style: Style) -> None:
            heights = [np.nan if point.get(key) is None else float(point[key]) for point in curves[name]]
            steps, (color, dashes) = [int(point["step"]) for point in curves[name]], style
            axes.plot(steps, heights, linewidth=1.6, marker=".", color=color, linestyle=dashes, label=label)

        alone = len(curves) == 1
        for name, style in ({next(iter(curves)): (BLUE, "solid")} if alone else condition_styles(curves)).items():
            if alone:
                draw(loss, name, "loss", "training", (BLUE, (0, (3, 1.5))))
            draw(loss, name, "validation_loss", "held-out trajectories" if alone else name, style)
            draw(gain, name, "gain", name, style)
        loss.set(title="loss", ylim=(0, None))
        loss.legend(frameon=False, fontsize="small")
        gain.set(title="history gain on held-out trajectories", ylim=(min(0.0, gain.get_ylim()[0]), 1.02))
        for axes in (loss, gain):
            axes.set(xlabel="updates", xlim=(0, None))
            open_axes(axes)
    return figure


def plot_concentration(
    concentrations: Mapping[str, Mapping[int, float]], *, xlabel: str = "steps from the nearest event"
) -> Figure:
    """Mean attention by signed distance to the nearest true event, as in the paper's figures 3 and 8.

    ``concentrations`` are the titles of panels and the ``concentration`` of a ``CreditQuality``; negative distances are
    before the event.
    """
    if not concentrations:
        raise ValueError("no concentration to draw: pass {title: quality.concentration, ...}")
    with rc_settings():
        figure, grid, across = panels(len(concentrations), width=3.0, height=2.4)
        highest = max(max(bars.values(), default=0.0) for bars in concentrations.values())
        for axes, (title, bars) in zip(grid, concentrations.items(), strict=True):
            axes.bar(list(bars), list(bars.values()), color=BLUE)
            axes.set(title=title, xlabel=xlabel, ylim=(0, 1.05 * highest or 1))
            open_axes(axes)
            if not any(bars.values()):
                axes.text(0.5, 0.5, "no reward\npredicted correctly", ha="center", transform=axes.transAxes)
        for axes in grid[::across]:
            axes.set_ylabel("attention")
    return figure


def plot_heat_map(values: NDArray[np.float64], rows: Sequence[str], columns: Sequence[str], label: str) -> Figure:
    """Values (row, column) from 0 to 1 as colours and numbers; grey where there is none."""
    with rc_settings():
        figure = Figure(figsize=(2.6 + 0.55 * len(columns), 1.8 + 0.32 * len(rows)), layout="constrained")
        axes = figure.subplots()
        image = axes.imshow(np.ma.masked_invalid(values), cmap="cividis", vmin=0, vmax=1, aspect="auto")
        axes.set_facecolor("#777777")
        for (i, j), value in np.ndenumerate(values):
            text = "-" if np.isnan(value) else f"{value:.2f}"
            axes.text(j, i, text, ha="center", va="center", fontsize=7, color="black" if value > 0.55 else "white")
        axes.set_xticks(range(len(columns)), columns, rotation=45, ha="right", fontsize=8)
        axes.set_yticks(range(len(rows)), rows, fontsize=8)
        figure.colorbar(image, label=label, fraction=0.03)
    return figure


def plot_ranks(names: Sequence[str], ranks: NDArray[Any], means: Sequence[float]) -> Figure:
    """The ranks (name, task) as dots, their means as diamonds."""
    with rc_settings():
        figure = Figure(figsize=(6.4, 1.2 + 0.3 * max(len(names), 1)), layout="constrained")
        axes = figure.subplots()
        open_axes(axes)
        for i, mean in enumerate(means):
            axes.scatter(ranks[i], np.full(len(ranks[i]), i), s=18, color="#999999", alpha=0.5, linewidths=0)
            axes.scatter([mean], [i], s=60, marker="D", color=BLUE, zorder=3)
        axes.set_yticks(range(len(names)), names, fontsize=8)
        axes.invert_yaxis()
        axes.set_xlabel("rank (dots: each task; diamond: mean, ties shared)")
    return figure
