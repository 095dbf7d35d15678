"""What objects show of themselves in notebooks: HTML of the same words and numbers as their text."""

import re
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

_COLOURS = ("#888888", "#1f77b4", "#d55e00", "#2ca02c", "#9467bd", "#8c564b", "#e377c2", "#17becf")
_WIDTH, _HEIGHT, _LEFT, _POINTS = 420, 150, 44, 100


def facts_html(text: str, caption: str = "") -> str:
    """Lines of a name and what is said of it, two spaces or more between them, as a table.

    >>> facts_html("steps    8,268")
    '<table><tbody><tr><th>steps</th><td>8,268</td></tr></tbody></table>'
    """
    return table_html((), [re.split(r"\s{2,}", line, maxsplit=1) for line in text.splitlines()], caption=caption)


def table_html(
    header: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = (), caption: str = ""
) -> str:
    """A table whose first column names the rows, with notes below."""
    parts = [f'<caption style="white-space: nowrap">{escape(caption)}</caption>'] * bool(caption)
    if header:
        parts.append(f"<thead>{_row(header, 'th')}</thead>")
    parts.append(f"<tbody>{''.join(_row(row, 'td') for row in rows)}</tbody>")
    return f"<table>{''.join(parts)}</table>{''.join(f'<p>{escape(note)}</p>' for note in notes)}"


def _row(cells: Sequence[str], kind: str) -> str:
    first, *others = cells
    return f"<tr><th>{escape(first)}</th>{''.join(f'<{kind}>{escape(cell)}</{kind}>' for cell in others)}</tr>"


def curves_html(curves: Mapping[str, tuple[ArrayLike, ArrayLike]], unit: str, caption: str) -> str:
    """Learning curves as a small picture, with the mean return of each below.

    >>> page = curves_html({"none": (range(4), [0, 0, 0, 1])}, "episodes", "1 agent")
    >>> page.count("<polyline"), "0.250" in page
    (1, True)

    Args:
        curves: Name to (points,) places, in ``unit``, and (points,) returns.
        unit: What learning is counted in.
        caption: What is shown.
    """
    drawn = {name: (np.asarray(x, float), np.asarray(y, float)) for name, (x, y) in curves.items()}
    shown = [values for values in drawn.values() if len(values[0])]
    rows = [[name, f"{y.mean():.3f}" if len(y) else "no point"] for name, (_, y) in drawn.items()]
    table = table_html(("", "mean return"), rows, caption=caption)
    if not shown:
        return table
    thin = {name: _thin(*values) for name, values in drawn.items()}
    first, last = min(x[0] for x, _ in shown), max(x[-1] for x, _ in shown)
    low, high = min(y.min() for _, y in thin.values() if len(y)), max(y.max() for _, y in thin.values() if len(y))
    across, up = (_WIDTH - _LEFT - 8) / max(last - first, 1e-9), (_HEIGHT - 32) / max(high - low, 1e-9)
    parts = [
        f'<path d="M{_LEFT} 8V{_HEIGHT - 24}H{_WIDTH - 8}" fill="none" stroke="currentColor" opacity=".5"/>',
        f'<text x="{_LEFT - 4}" y="16" text-anchor="end">{high:.2f}</text>',
        f'<text x="{_LEFT - 4}" y="{_HEIGHT - 24}" text-anchor="end">{low:.2f}</text>',
        f'<text x="{_WIDTH - 8}" y="{_HEIGHT - 8}" text-anchor="end">{last:,.0f} {escape(unit)}</text>',
    ]
    for number, (name, (x, y)) in enumerate(thin.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        places = zip(_LEFT + (x - first) * across, _HEIGHT - 24 - (y - low) * up, strict=True)
        points = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        key = f'<text x="{_LEFT + 8 + 100 * number}" y="{_HEIGHT - 8}" fill="{colour}">{escape(name)}</text>'
        parts.append(key if len(thin) > 1 else "")
    style = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" font-size="11" fill="currentColor" role="img"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {style} aria-label="{escape(caption)}">{"".join(parts)}</svg>{table}'
    )


def _thin(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """At most 100 points, each the mean of its neighbours."""
    parts = [np.array_split(values, min(_POINTS, max(len(values), 1))) for values in (x, y)]
    means = [np.array([part.mean() for part in group if len(part)]) for group in parts]
    return means[0], means[1]
