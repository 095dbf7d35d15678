"""Pictures of how the credit model was trained."""

from collections.abc import Mapping, Sequence
from typing import Any

from secret_rl.report import style
from secret_rl.report.style import Figure, condition_styles

_CLASSES = {"negative": style.ORANGE, "zero": "#000000", "positive": style.BLUE}
Looks = Sequence[Mapping[str, Any]]  # at the validation data: the ``curve`` of a FitReport


def plot_training(curves: Mapping[str, Looks]) -> Figure:
    """Validation loss, and accuracy by the sign of the reward, over updates.

    One curve has its training loss and every sign drawn; of several, the validation loss and the mean accuracy.
    """
    if not curves or not all(curves.values()):
        raise ValueError(f"no training curve to draw: got { ({name: len(curve) for name, curve in curves.items()}) }")
    with style.looks():
        figure, (loss, accuracy), _ = style.panels(2)
        if len(curves) == 1:
            _draw_one(loss, accuracy, next(iter(curves.values())))
        else:
            for name, look in condition_styles(curves).items():
                how = {"color": look.color, "linestyle": look.dashes, "label": name}
                _draw(loss, curves[name], lambda point: point["validation_loss"], **how)
                _draw(accuracy, curves[name], _mean_accuracy, **how)
        loss.set(title="loss", ylim=(0, None))
        accuracy.set(title="accuracy on held-out trajectories", ylim=(0, 1.02))
        for axes in (loss, accuracy):
            axes.set(xlabel="updates", xlim=(0, None))
            style.open_axes(axes)
            axes.legend(frameon=False, fontsize="small")
    return figure


def _draw_one(loss: style.Axes, accuracy: style.Axes, curve: Looks) -> None:
    _draw(loss, curve, lambda point: point["loss"], color=style.BLUE, linestyle=(0, (3, 1.5)), label="training")
    _draw(loss, curve, lambda point: point["validation_loss"], color=style.BLUE, label="held-out trajectories")
    for name, color in _CLASSES.items():
        if any(name in point for point in curve):
            _draw(accuracy, curve, lambda point, name=name: point.get(name), color=color, label=f"{name} rewards")


def _draw(axes: style.Axes, curve: Looks, value: Any, **how: Any) -> None:
    """A line for each initialisation that was tried; all look the same."""
    for attempt in sorted({int(point["attempt"]) for point in curve}):
        points = [point for point in curve if int(point["attempt"]) == attempt]
        values = [value(point) for point in points]
        heights = [float("nan") if v is None else float(v) for v in values]
        axes.plot([int(point["step"]) for point in points], heights, linewidth=1.6, marker=".", **how)
        how["label"] = None


def _mean_accuracy(point: Mapping[str, Any]) -> float | None:
    known = [float(point[name]) for name in _CLASSES if point.get(name) is not None]
    return sum(known) / len(known) if known else None
