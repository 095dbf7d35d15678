"""A table of text cells with notes below it, as plain text and as Markdown; the report renders it as HTML."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """Cells ready to be shown; the first column names the rows."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    def to_text(self) -> str:
        """Aligned columns.

        >>> print(Table(["name", "x"], [["longer", "1"], ["b", "20"]]).to_text())
        name    x
        ------  --
        longer  1
        b       20
        <BLANKLINE>
        """
        cells = [self.header, *self.rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        cells = [self.header, ["-" * width for width in widths], *self.rows]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]
        return "\n".join([*lines, "", *self.notes])

    def to_markdown(self) -> str:
        """A Markdown table."""
        cells = [self.header, ["---"] * len(self.header), *self.rows]
        lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells]
        return "\n".join([*lines, "", *self.notes, ""])
