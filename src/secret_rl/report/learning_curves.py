"""Pictures of learning curves with intervals, the same condition in the same colour everywhere."""

from collections.abc import Iterable, Mapping
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

from secret_rl.evaluation.curves import LearningCurves
from secret_rl.evaluation.statistics import BOOTSTRAP, Bootstrap, Statistic, aggregate
from secret_rl.files import replacing

try:
    import matplotlib
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError('pictures need the report extra: pip install "secret-rl[report]"') from missing


class Style(NamedTuple):
    """How a condition is drawn: told apart by colour, and by dashes where colours are not seen."""

    color: str
    dashes: Any


# The colours of Okabe and Ito (2008), which colour-blind readers can tell apart, without the yellow that is lost on
# white. Conditions of the library have theirs for good, and this is their order.
_KNOWN = {
    "none": Style("#000000", (0, (1, 1.5))),
    "paper": Style("#CC79A7", (0, (5, 1.5))),
    "cumulative": Style("#56B4E9", (0, (5, 1.5, 1, 1.5))),
    "value": Style("#E69F00", (0, (3, 1.5))),
    "pending": Style("#0072B2", "solid"),
    "onlinecredit": Style("#D55E00", "solid"),
    "oracle": Style("#009E73", (0, (1, 3))),
}
_ALIASES = {"online": "onlinecredit", "noshaping": "none"}
_LETTERS_PER_INCH, _HANDLE = 12, 7  # of a legend; the line before a label takes as much room as some letters
_OTHER_DASHES = ("solid", (0, (5, 1.5)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))


def condition_styles(names: Iterable[str]) -> dict[str, Style]:
    """A style for each condition, in the order in which to draw them: ours first, then others as they come.

    A condition of the library looks the same in every picture; another name takes a colour that is free in this one.

    >>> list(condition_styles(["mine", "pending", "none"]))
    ['none', 'pending', 'mine']
    """
    distinct = list(dict.fromkeys(names))
    keys = {name: _key(name) for name in distinct}
    styles: dict[str, Style] = {}
    for known, style in _KNOWN.items():
        owner = next((name for name in distinct if keys[name] == known), None)
        if owner is not None:
            styles[owner] = style
    colors = [style.color for style in _KNOWN.values()]
    taken = {style.color for style in styles.values()}
    free = [color for color in reversed(colors) if color not in taken]
    # Free colours first, then every colour again with other dashes.
    looks = [Style(color, "solid") for color in free]
    looks += [Style(color, dashes) for dashes in _OTHER_DASHES for color in colors]
    unused = (look for look in dict.fromkeys(looks) if look not in styles.values())
    others = [name for name in distinct if name not in styles]
    styles.update(zip(others, cycle(unused), strict=False))
    return styles


def _key(name: str) -> str:
    plain = "".join(letter for letter in name.lower() if letter.isalnum())
    return _ALIASES.get(plain, plain)


def plot_learning_curves(
    panels: LearningCurves | Mapping[str, LearningCurves],
    *,
    window: int = 1,
    points: int | None = 200,
    statistic: Statistic = "mean",
    bootstrap: Bootstrap = BOOTSTRAP,
    styles: Mapping[str, Style] | None = None,
    columns: int = 3,
    spacing: int | None = None,
    xlabel: str = "episodes",
    ylabel: str = "discounted return, unshaped",
) -> Figure:
    """A figure of returns over episodes with pointwise intervals, one panel or one for each title.

    Each point is over the last ``window`` episodes; see ``secret_rl.evaluation.aggregate``. ``styles`` replace those
    of ``condition_styles``. Points that are not episodes but tests, the first before any step and the others
    ``spacing`` steps apart, need that and another ``xlabel``. The legend stands below, once for all panels.
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
    across = min(columns, len(titled))
    down = -(-len(titled) // across)
    figure = Figure(figsize=(1.2 + 4.2 * across, 0.8 + 3.0 * down), layout="constrained")
    grid = figure.subplots(down, across, squeeze=False).ravel()
    for axes, (title, curves) in zip(grid, titled.items(), strict=False):
        _draw_panel(
            axes, curves, looks, spacing, window=window, points=points, statistic=statistic, bootstrap=bootstrap
        )
        axes.set_title(title)
        axes.set_xlabel(xlabel)
    for axes in grid[len(titled) :]:
        axes.remove()
    for axes in grid[: len(titled) : across]:
        axes.set_ylabel(ylabel)
    lines = {line.get_label(): line for axes in grid[: len(titled)] for line in axes.get_lines()}
    labels = [name for name in looks if name in lines]
    room = int(figure.get_figwidth() * _LETTERS_PER_INCH)
    width = max(1, min(len(labels), 2 + 2 * across, room // (_HANDLE + max(map(len, labels), default=0))))
    figure.legend([lines[name] for name in labels], labels, loc="outside lower center", ncols=width, frameon=False)
    return figure


def _draw_panel(
    axes: Axes, curves: LearningCurves, looks: Mapping[str, Style], spacing: int | None, **how: Any
) -> None:
    for name in looks:
        if name not in curves.returns:
            continue
        curve, look = aggregate(curves[name], **how), looks[name]
        places = curve.episodes if spacing is None else (curve.episodes - 1) * spacing
        axes.plot(places, curve.value, color=look.color, linestyle=look.dashes, linewidth=1.6, label=name)
        axes.fill_between(places, curve.low, curve.high, color=look.color, alpha=0.18, linewidth=0)
    axes.set_xlim(0, curves.episodes if spacing is None else (curves.episodes - 1) * spacing)
    axes.grid(alpha=0.3, linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)


def save_learning_curves(
    panels: LearningCurves | Mapping[str, LearningCurves], path: str | Path, **how: Any
) -> tuple[Path, Path]:
    """Write ``plot_learning_curves`` as a PNG and an SVG of the same name, each whole or not at all."""
    return save_figure(plot_learning_curves(panels, **how), path)


def save_figure(figure: Figure, path: str | Path) -> tuple[Path, Path]:
    """Write a figure as ``path`` with .png and .svg; the same figure gives the same files."""
    path = Path(path)
    if path.suffix in (".png", ".svg"):
        path = path.with_suffix("")
    written = []
    with matplotlib.rc_context({"svg.hashsalt": "secret-rl", "svg.fonttype": "none"}):
        for kind, metadata in (("png", {}), ("svg", {"Date": None})):
            target = path.with_name(f"{path.name}.{kind}")
            with replacing(target) as temporary:
                figure.savefig(temporary, format=kind, dpi=150, metadata=metadata)
            written.append(target)
    return written[0], written[1]
