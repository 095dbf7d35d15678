"""One look for every picture: colours, dashes, axes, and files as PNG and SVG."""

import io
import re
from collections.abc import Iterable
from contextlib import AbstractContextManager
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

from secret_rl.atomic import replacing

try:
    import matplotlib
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError('pictures need the report extra: pip install "secret-rl[report]"') from missing

__all__ = [
    "Axes", "Figure", "Rectangle", "Style", "condition_styles", "looks", "open_axes", "panels", "save_figure", "svg_of",
]  # fmt: skip

BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"
_INLINE = {"Date": None, "Creator": None, "Format": None, "Type": None}


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


def looks() -> AbstractContextManager[None]:
    """Settings to draw and to write under: names are shown as they are, and the same figure gives the same files."""
    settings = {"svg.hashsalt": "secret-rl", "svg.fonttype": "none", "text.parse_math": False}
    return matplotlib.rc_context(settings)  # type: ignore[arg-type]


def panels(count: int, columns: int = 3, width: float = 4.2, height: float = 3.0) -> tuple[Figure, list[Axes], int]:
    """A figure, the axes of its panels, and how many are side by side."""
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
    """Write a figure as ``path`` with .png and .svg; the same figure gives the same files."""
    path = Path(path)
    if path.suffix in (".png", ".svg"):
        path = path.with_suffix("")
    written = []
    with looks():
        for kind, metadata in (("png", {}), ("svg", {"Date": None})):
            target = path.with_name(f"{path.name}.{kind}")
            with replacing(target) as temporary:
                figure.savefig(temporary, format=kind, dpi=150, metadata=metadata)
            written.append(target)
    return written[0], written[1]


def svg_of(figure: Figure) -> str:
    """A figure as an SVG element for a page: no ground of its own, and what is black has the colour of the text."""
    text = io.StringIO()
    with looks():
        figure.savefig(text, format="svg", transparent=True, metadata=_INLINE)
    svg = text.getvalue()
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg[svg.index("<svg") :])  # names that would come again in the next figure
    return re.sub(r"\b(fill|stroke): #000000", r"\1: currentColor", svg)
