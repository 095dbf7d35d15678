"""Pictures of how close attention is to the steps that truly matter (the paper's figures 3 and 8)."""

from collections.abc import Mapping
from pathlib import Path

from secret_rl.report import style
from secret_rl.report.style import Figure, save_figure


def plot_concentration(
    panels: Mapping[str, Mapping[int, float]], *, xlabel: str = "steps from the nearest event", columns: int = 3
) -> Figure:
    """Mean attention by signed distance to the nearest true event, a panel for each title.

    ``panels`` are titles and the ``concentration`` of a ``CreditQuality``; negative distances are before the event.
    """
    if not panels:
        raise ValueError("no concentration to draw: pass {title: quality.concentration, ...}")
    with style.looks():
        figure, grid, across = style.panels(len(panels), columns, width=3.0, height=2.4)
        highest = max((max(bars.values(), default=0.0) for bars in panels.values()), default=0.0)
        for axes, (title, bars) in zip(grid, panels.items(), strict=True):
            distances = sorted(bars)
            axes.bar(distances, [bars[distance] for distance in distances], color=style.BLUE)
            axes.set(title=title, xlabel=xlabel, ylim=(0, 1.05 * highest or 1))
            style.open_axes(axes)
            if not any(bars.values()):
                axes.text(0.5, 0.5, "no reward\npredicted correctly", ha="center", transform=axes.transAxes)
        for axes in grid[::across]:
            axes.set_ylabel("attention")
    return figure


def save_concentration(
    panels: Mapping[str, Mapping[int, float]], path: str | Path, *, xlabel: str = "steps from the nearest event"
) -> tuple[Path, Path]:
    """Write ``plot_concentration`` as a PNG and an SVG of the same name, each whole or not at all."""
    return save_figure(plot_concentration(panels, xlabel=xlabel), path)
