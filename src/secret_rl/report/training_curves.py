"""Pictures of how the credit model was trained."""

from collections.abc import Mapping, Sequence
from typing import Any

from secret_rl.report import style
from secret_rl.report.style import Figure, condition_styles

Looks = Sequence[Mapping[str, Any]]  # at the validation data: the ``curve`` of a FitReport


def plot_training(curves: Mapping[str, Looks]) -> Figure:
    """Loss and history gain over updates; of one curve the training loss, too."""
    if not curves or not all(curves.values()):
        raise ValueError(f"no training curve to draw: got { ({name: len(curve) for name, curve in curves.items()}) }")
    with style.looks():
        figure, (loss, gain), _ = style.panels(2)
        if len(curves) == 1:
            (curve,) = curves.values()
            _draw(loss, curve, "loss", color=style.BLUE, linestyle=(0, (3, 1.5)), label="training")
            _draw(loss, curve, "validation_loss", color=style.BLUE, label="held-out trajectories")
            _draw(gain, curve, "gain", color=style.BLUE)
        else:
            for name, look in condition_styles(curves).items():
                how = {"color": look.color, "linestyle": look.dashes, "label": name}
                _draw(loss, curves[name], "validation_loss", **how)
                _draw(gain, curves[name], "gain", **how)
        loss.set(title="loss", ylim=(0, None))
        loss.legend(frameon=False, fontsize="small")
        gain.set(title="history gain on held-out trajectories", ylim=(min(0.0, gain.get_ylim()[0]), 1.02))
        for axes in (loss, gain):
            axes.set(xlabel="updates", xlim=(0, None))
            style.open_axes(axes)
    return figure


def _draw(axes: style.Axes, curve: Looks, name: str, **how: Any) -> None:
    values = [point.get(name) for point in curve]
    heights = [float("nan") if value is None else float(value) for value in values]
    axes.plot([int(point["step"]) for point in curve], heights, linewidth=1.6, marker=".", **how)
