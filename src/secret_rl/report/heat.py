"""Attention as heat over a picture of where it falls."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from secret_rl.report import style
from secret_rl.report.style import Figure, save_figure


def plot_heat(heat: NDArray[np.float64], picture: NDArray[np.uint8], title: str = "") -> Figure:
    """Heat over a picture: the higher, the redder and the less transparent; NaN shows the picture alone.

    ``heat`` is (rows, columns) from top to bottom, spread over the whole of ``picture`` (height, width, RGB).
    """
    heat = np.asarray(heat, np.float64)
    if heat.ndim != 2 or picture.ndim != 3:
        raise ValueError(f"expected heat (rows, columns) and a picture (height, width, 3), got {heat.shape} and "
                         f"{picture.shape}")  # fmt: skip
    highest = np.nanmax(heat) if np.isfinite(heat).any() else 0.0
    with style.looks():
        figure, (axes,), _ = style.panels(1, 1, width=4.0, height=4.0 * picture.shape[0] / picture.shape[1])
        extent = (0.0, float(picture.shape[1]), float(picture.shape[0]), 0.0)
        axes.imshow(picture, extent=extent)
        if highest > 0:
            share = np.nan_to_num(heat) / highest
            shown = axes.imshow(
                heat, cmap="Reds", vmin=0.0, vmax=highest, extent=extent, alpha=0.85 * share, interpolation="nearest"
            )
            figure.colorbar(shown, ax=axes, label="mean attention", shrink=0.8)
        axes.set(title=title, xticks=[], yticks=[])
    return figure


def save_heat(
    heat: NDArray[np.float64], picture: NDArray[np.uint8], path: str | Path, title: str = ""
) -> tuple[Path, Path]:
    """Write ``plot_heat`` as a PNG and an SVG of the same name, each whole or not at all."""
    return save_figure(plot_heat(heat, picture, title), path)
