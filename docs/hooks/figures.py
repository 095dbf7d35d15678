"""Figures in the dark: each plot of ``paper/results`` has a twin in which black is light and white is dark."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

RESULTS = Path(__file__).parent.parent.parent / "paper" / "results"

# What plots are drawn with: paper, ink and grid, and the colours of lines that are too dark on a dark page.
_DARK = {
    "#ffffff": "#1e2129",
    "#000000": "#e2e4e9",
    "#b0b0b0": "#8a8f9c",
    "#0072b2": "#4aa8e0",
    "#d55e00": "#f08040",
    "#009e73": "#2cc295",
}
_FIGURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]*?)([\w-]+)\.png\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the twins."""
    for path in RESULTS.glob("*.svg"):
        dark = in_the_dark(path.read_text(encoding="utf-8"))
        files.append(File.generated(config, f"results/{path.stem}-dark.svg", content=dark))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Show the one or the other."""

    def both(figure: re.Match[str]) -> str:
        text, folder, name = figure.groups()
        if not (RESULTS / f"{name}.svg").exists():
            return figure[0]
        return f"![{text}]({folder}{name}.png#only-light) ![{text}]({folder}{name}-dark.svg#only-dark)"

    return _FIGURE.sub(both, markdown)


def in_the_dark(svg: str) -> str:
    """A figure of Matplotlib in other colours; what has none of its own, as text has not, is black."""
    svg = re.sub("|".join(_DARK), lambda colour: _DARK[colour[0]], svg)
    return svg.replace('<g id="figure_1">', f'<g id="figure_1" fill="{_DARK["#000000"]}">', 1)
