"""What objects show of themselves in notebooks: HTML of the same words and numbers as their text."""

import re
from collections.abc import Sequence
from html import escape


def facts_html(text: str, caption: str = "") -> str:
    """Lines of a name and what is said of it, two spaces or more between them, as a table.

    >>> facts_html("steps    8,268", "20 episodes")
    '<table><caption>20 episodes</caption><tbody><tr><th>steps</th><td>8,268</td></tr></tbody></table>'
    """
    return table_html((), [re.split(r"\s{2,}", line, maxsplit=1) for line in text.splitlines()], caption=caption)


def table_html(
    header: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = (), caption: str = ""
) -> str:
    """A table whose first column names the rows, with notes below."""
    parts = [f"<caption>{escape(caption)}</caption>"] * bool(caption)
    if header:
        parts.append(f"<thead>{_row(header, 'th')}</thead>")
    parts.append(f"<tbody>{''.join(_row(row, 'td') for row in rows)}</tbody>")
    return f"<table>{''.join(parts)}</table>{''.join(f'<p>{escape(note)}</p>' for note in notes)}"


def _row(cells: Sequence[str], kind: str) -> str:
    first, *others = cells
    return f"<tr><th>{escape(first)}</th>{''.join(f'<{kind}>{escape(cell)}</{kind}>' for cell in others)}</tr>"
