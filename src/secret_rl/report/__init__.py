"""Pictures of mazes and results, pages that show what runs came to, and the credit explorer."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from secret_rl.report.concentration import plot_concentration as plot_concentration
    from secret_rl.report.concentration import save_concentration as save_concentration
    from secret_rl.report.explorer import Explored as Explored
    from secret_rl.report.explorer import explore as explore
    from secret_rl.report.figures import save_frames as save_frames
    from secret_rl.report.heat import plot_heat as plot_heat
    from secret_rl.report.heat import save_heat as save_heat
    from secret_rl.report.learning_curves import plot_learning_curves as plot_learning_curves
    from secret_rl.report.learning_curves import save_learning_curves as save_learning_curves
    from secret_rl.report.mazes import plot_maze as plot_maze
    from secret_rl.report.mazes import save_maze as save_maze
    from secret_rl.report.page import write_report as write_report
    from secret_rl.report.style import save_figure as save_figure
    from secret_rl.report.style import svg_of as svg_of
    from secret_rl.report.training_curves import plot_training as plot_training

# Imported on first use: a record of a run is written without any of the libraries that draw.
_HOMES = {
    "plot_concentration": "secret_rl.report.concentration",
    "save_concentration": "secret_rl.report.concentration",
    "Explored": "secret_rl.report.explorer",
    "explore": "secret_rl.report.explorer",
    "save_frames": "secret_rl.report.figures",
    "plot_heat": "secret_rl.report.heat",
    "save_heat": "secret_rl.report.heat",
    "plot_learning_curves": "secret_rl.report.learning_curves",
    "save_learning_curves": "secret_rl.report.learning_curves",
    "plot_maze": "secret_rl.report.mazes",
    "save_maze": "secret_rl.report.mazes",
    "write_report": "secret_rl.report.page",
    "save_figure": "secret_rl.report.style",
    "svg_of": "secret_rl.report.style",
    "plot_training": "secret_rl.report.training_curves",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'secret_rl.report' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
