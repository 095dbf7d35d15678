"""Pictures of learning curves with intervals, the same condition in the same colour everywhere."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secret_rl.evaluation.curves import LearningCurves
from secret_rl.evaluation.statistics import BOOTSTRAP, Bootstrap, Statistic, aggregate
from secret_rl.report import style
from secret_rl.report.style import Axes, Figure, Style, condition_styles, save_figure

__all__ = ["Style", "condition_styles", "plot_learning_curves", "save_figure", "save_learning_curves"]

_LETTERS_PER_INCH, _HANDLE = 12, 7  # of a legend; the line before a label takes as much room as some letters


def plot_learning_curves(
    panels: LearningCurves | Mapping[str, LearningCurves],
    *,
    window: int = 1,
    points: int | None = 200,
    statistic: Statistic = "mean",
    bootstrap: Bootstrap = BOOTSTRAP,
    styles: Mapping[str, Style] | None = None,
    columns: int = 3,
    spacing: int | Sequence[int] | None = None,
    xlabel: str = "episodes",
    ylabel: str = "discounted return, unshaped",
) -> Figure:
    """A figure of returns over episodes with pointwise intervals, one panel or one for each title.

    Each point is over the last ``window`` episodes; see ``secret_rl.evaluation.aggregate``. ``styles`` replace those
    of ``condition_styles``. Points that are not episodes but tests, the first before any step and the others
    ``spacing`` steps apart, need that and another ``xlabel``; where they are not evenly spread, ``spacing`` holds the
    steps of each. The legend stands below, once for all panels.
    """
    titled = {"": panels} if isinstance(panels, LearningCurves) else dict(panels)
    if not titled:
        raise ValueError("no learning curves to draw: pass LearningCurves, or {title: LearningCurves, ...}")
    if columns < 1:
        raise ValueError(f"columns must be at least 1, got {columns}")
    looks = condition_styles(name for curves in titled.values() for name in curves)
    unknown = [name for name in styles or () if name not in looks]
    if unknown:
        raise ValueError(f"styles of {unknown}, but the conditions are {list(looks)}")
    looks.update(styles or {})
    with style.looks():
        figure, grid, across = style.panels(len(titled), columns)
        for axes, (title, curves) in zip(grid, titled.items(), strict=True):
            _draw_panel(
                axes, curves, looks, spacing, window=window, points=points, statistic=statistic, bootstrap=bootstrap
            )
            axes.set_title(title)
            axes.set_xlabel(xlabel)
        _add_words(figure, grid, across, list(looks), ylabel)
    return figure


def _add_words(figure: Figure, grid: list[Axes], across: int, names: list[str], ylabel: str) -> None:
    """What the heights are, and the legend: below, once for all panels."""
    for axes in grid[::across]:
        axes.set_ylabel(ylabel)
    lines = {line.get_label(): line for axes in grid for line in axes.get_lines()}
    labels = [name for name in names if name in lines]
    room = int(figure.get_figwidth() * _LETTERS_PER_INCH)
    width = max(1, min(len(labels), 2 + 2 * across, room // (_HANDLE + max(map(len, labels), default=0))))
    figure.legend([lines[name] for name in labels], labels, loc="outside lower center", ncols=width, frameon=False)


def _draw_panel(
    axes: Axes, curves: LearningCurves, looks: Mapping[str, Style], spacing: int | Sequence[int] | None, **how: Any
) -> None:
    steps = _steps(curves.episodes, spacing)
    for name in looks:
        if name not in curves.returns:
            continue
        curve, look = aggregate(curves[name], **how), looks[name]
        places = steps[curve.episodes - 1]
        axes.plot(places, curve.value, color=look.color, linestyle=look.dashes, linewidth=1.6, label=name)
        axes.fill_between(places, curve.low, curve.high, color=look.color, alpha=0.18, linewidth=0)
    axes.set_xlim(0, steps[-1])
    style.open_axes(axes)


def _steps(points: int, spacing: int | Sequence[int] | None) -> NDArray[np.int64]:
    """(points,) where each point of a curve is drawn."""
    if spacing is None:
        return np.arange(1, points + 1)
    if isinstance(spacing, int):
        return np.arange(points) * spacing
    if len(spacing) != points:
        raise ValueError(f"{len(spacing)} steps for curves of {points} points: give one for each")
    return np.asarray(spacing, np.int64)


def save_learning_curves(
    panels: LearningCurves | Mapping[str, LearningCurves], path: str | Path, **how: Any
) -> tuple[Path, Path]:
    """Write ``plot_learning_curves`` as a PNG and an SVG of the same name, each whole or not at all."""
    return save_figure(plot_learning_curves(panels, **how), path)
