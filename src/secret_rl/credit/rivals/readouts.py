"""Other ways to read credit out of a fitted SECRET model than attention alone; the fit is the same.

Gradients and integrated gradients (Sundararajan et al., 2017) are of what a row gathers, between the sink alone and all
that it attends to. Deviations: with one attention layer, that is where earlier steps come in.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from secret_rl.credit.attributions import Attributions
from secret_rl.credit.base import register_method
from secret_rl.credit.secret.method import Secret
from secret_rl.credit.secret.model import Dropout, RewardPredictor
from secret_rl.credit.secret.tokens import Tokens

if TYPE_CHECKING:
    from secret_rl.trajectories import Trajectories

READOUTS = ("attention", "attention x value", "leave-one-out", "gradient", "integrated gradients")
_ALL_ATTENTION = 1 - 1e-4
_POINTS = 16  # of the path that gradients are integrated along


@torch.no_grad()
def read_out(secret: Secret, data: "Trajectories", found: Attributions, readout: str) -> Attributions:
    """The rows that ``secret.attribute(data)`` found, with credit of another read-out.

    "attention x value" multiplies attention with the size of what was attended to; "leave-one-out" is how much less
    likely the reward is without the step; gradients say the same of a small change, or of all changes from nothing on.
    A row for which credit is 0 everywhere keeps its attention.
    """
    if readout not in READOUTS:
        raise ValueError(f"readout must be one of {', '.join(READOUTS)}, got {readout!r}")
    if readout == "attention":
        return found
    model, tokens, weights = secret.fitted_for(data), Tokens.of(data, secret.reward_classes), found.weights.copy()
    for episode in np.unique(found.episode):
        rows = np.flatnonzero(found.episode == episode)
        batch = tokens.batch(np.array([episode]), secret.device)
        times = torch.from_numpy(found.predicted_at[rows]).to(secret.device)
        encoded = model.prepare(model.encode(batch.rows, Dropout(None)))
        prediction, row_x, value = model.predict_rows(encoded, batch.index, times[None])
        classes = batch.classes[0, torch.from_numpy(found.step[rows]).to(secret.device)]
        attended = prediction.weights[0]  # (rows, 1 + key)
        if readout == "attention x value":
            credit = attended[:, 1:] * value[0].norm(dim=-1)
        elif readout == "leave-one-out":
            credit = leave_one_out(model, row_x[0], attended, value.expand(len(rows), -1, -1), classes)
        else:
            points = 1 if readout == "gradient" else _POINTS
            credit = integrated_gradients(model, row_x[0], attended, value[0], classes, points)
        for row, part in zip(rows.tolist(), credit.clamp(min=0).cpu().numpy(), strict=True):
            attention = found.row(row)
            other = part[: len(attention)] * (attention > 0)
            if other.sum() > 0:
                weights[found.offsets[row] : found.offsets[row + 1]] = other / other.sum()
    return replace(found, weights=weights)


def leave_one_out(model: RewardPredictor, row_x: Tensor, weights: Tensor, value: Tensor, classes: Tensor) -> Tensor:
    """(rows, key) how much log-probability of ``classes`` (rows,) each step adds to the prediction of a row.

    ``weights`` (rows, 1 + key), ``value`` (rows, key, units). A step is taken out of what the row gathers, and the
    others take over its attention: exact with one layer. Where it has all of it, the sink takes over.
    """
    share = weights[:, 1:, None]
    mixed = (weights[:, None, 1:] @ value + weights[:, :1, None] * model.sink_value).expand_as(value)
    others = (mixed - share * value) / (1 - share).clamp(min=1 - _ALL_ATTENTION)
    others = torch.where(share > _ALL_ATTENTION, model.sink_value.expand_as(value), others)
    chosen = classes[:, None, None].expand(*value.shape[:2], 1)
    whole, without = (
        model.classify(row_x[:, None].expand_as(value), gathered, Dropout(None)).log_softmax(-1).gather(-1, chosen)
        for gathered in (mixed[:, :1].expand_as(value), others)
    )
    return (whole - without)[..., 0]


def integrated_gradients(
    model: RewardPredictor, row_x: Tensor, weights: Tensor, value: Tensor, classes: Tensor, points: int
) -> Tensor:
    """(rows, key) what each step adds to the log-probability of ``classes`` (rows,), by gradients along a path.

    The path leads from the sink alone to what the row gathers; with many points, credit sums to the log-probability
    gained on it. With one, it is the gradient at the end. ``weights`` (rows, 1 + key), ``value`` (key, units).
    """
    from_sink = value - model.sink_value
    gathered = weights[:, 1:] @ from_sink  # (rows, units), as seen from the sink
    total = torch.zeros_like(gathered)
    for place in [1.0] if points == 1 else ((np.arange(points) + 0.5) / points).tolist():
        with torch.enable_grad():
            at = (model.sink_value + place * gathered).detach().requires_grad_()
            said = model.classify(row_x.detach(), at, Dropout(None)).log_softmax(-1)
            (slope,) = torch.autograd.grad(said.gather(1, classes[:, None]).sum(), at)
        total += slope / points
    return weights[:, 1:] * (total @ from_sink.T)


class _OtherReadout(Secret):
    """SECRET, read out in another way; takes the options of ``Secret``."""

    readout: ClassVar[str]
    fitted_as: ClassVar[str] = Secret.name
    """The method whose fit this one reads out: ``of`` takes it over."""
    inspector = None  # type: ignore[assignment]  # that of Secret shows attention; attributions are shown instead

    @classmethod
    def of(cls, secret: Secret) -> Self:
        """The same fit, read out in this way."""
        made = cls.__new__(cls)
        vars(made).update(vars(secret))
        return made

    def attribute(self, data: "Trajectories", **options: Any) -> Attributions:
        """Who earned each reward that is predicted correctly; options as those of ``Secret.attribute``."""
        return read_out(self, data, super().attribute(data, **options), self.readout)


for _readout in READOUTS[1:]:
    _name = f"secret-{_readout.replace(' ', '-')}"
    register_method(_name)(type("Secret" + _readout.title().replace(" ", ""), (_OtherReadout,), {"readout": _readout}))
