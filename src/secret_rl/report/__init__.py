"""Figures, pages that report on runs, and the credit explorer."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from secret_rl.report.explorer import Explored as Explored
    from secret_rl.report.explorer import explore as explore
    from secret_rl.report.figures import condition_styles as condition_styles
    from secret_rl.report.figures import plot_concentration as plot_concentration
    from secret_rl.report.figures import plot_learning_curves as plot_learning_curves
    from secret_rl.report.figures import plot_training as plot_training
    from secret_rl.report.figures import save_figure as save_figure
    from secret_rl.report.figures import save_frames as save_frames
    from secret_rl.report.page import write_report as write_report

# Imported on first use: the record of a run is written without matplotlib and Pillow.
_HOMES = {
    "Explored": "explorer",
    "explore": "explorer",
    "condition_styles": "figures",
    "plot_concentration": "figures",
    "plot_learning_curves": "figures",
    "plot_training": "figures",
    "save_figure": "figures",
    "save_frames": "figures",
    "write_report": "page",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'secret_rl.report' has no attribute {name!r}")
    return getattr(import_module(f"secret_rl.report.{_HOMES[name]}"), name)
