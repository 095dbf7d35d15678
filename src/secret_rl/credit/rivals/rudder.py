"""RUDDER (Arjona-Medina et al., 2019): credit is how much a step changes the prediction of the return.

Deviations: an LSTM with all its gates; returns need not come at the end; no lessons buffer, no quality weighting, since
learning is offline. The rival on a Transformer has the same read-out and loss.
"""

from typing import Any

import torch
from torch import Tensor, nn

from secret_rl.credit.base import Specs, register_method
from secret_rl.credit.rivals.episodes import Episodes, StepEncoder
from secret_rl.credit.rivals.sequence import SequenceMethod

_CONTINUOUS = 0.5  # weight of predicting the return at every step
_HEADS, _POSITION_SCALE = 4, 0.1


class _ReturnPredictor(nn.Module):
    """What the return will be, as the episode goes on."""

    def __init__(self, specs: Specs, units: int) -> None:
        super().__init__()
        self.encoder = StepEncoder(specs, units)
        self.memory: nn.Module = nn.LSTM(units, units, batch_first=True)
        self.head = nn.Linear(units, 1)

    def remember(self, x: Tensor) -> Tensor:
        """(batch, time, units) of steps -> (batch, time, units) of the episodes up to them"""
        return self.memory(x)[0]  # type: ignore[no-any-return]

    def forward(self, batch: Episodes) -> Tensor:
        """(batch, time)"""
        return self.head(self.remember(self.encoder.episodes(batch)))[..., 0]  # type: ignore[no-any-return]


class _TransformerPredictor(_ReturnPredictor):
    def __init__(self, specs: Specs, units: int) -> None:
        super().__init__(specs, units)
        heads = _HEADS if units % _HEADS == 0 else 1
        self.memory = nn.TransformerEncoderLayer(units, heads, 2 * units, dropout=0.0, batch_first=True)

    def remember(self, x: Tensor) -> Tensor:
        time, units = x.shape[1:]
        angles = torch.arange(time, device=x.device)[:, None] / 10_000 ** (torch.arange(units, device=x.device) / units)
        positions = torch.where(torch.arange(units, device=x.device) % 2 == 0, angles.sin(), angles.cos())
        later = torch.ones(time, time, dtype=torch.bool, device=x.device).triu(1)
        return self.memory(x + _POSITION_SCALE * positions, src_mask=later)  # type: ignore[no-any-return]


@register_method("rudder")
class Rudder(SequenceMethod):
    """Differences of predicted returns, of an LSTM."""

    predictor: type[_ReturnPredictor] = _ReturnPredictor

    def build(self, specs: Specs) -> nn.Module:
        """The return predictor."""
        return self.predictor(specs, self.options["units"])

    def loss(self, network: Any, batch: Episodes, generator: torch.Generator) -> Tensor:  # noqa: ARG002
        """(batch,) of the last prediction, and of all of them."""
        errors: Tensor = (network(batch) - batch.returns[:, None]).square() * batch.mask
        last = errors.gather(1, batch.lengths[:, None] - 1)[:, 0]
        return last + _CONTINUOUS * errors.sum(1) / batch.mask.sum(1)

    def error(self, network: Any, batch: Episodes) -> tuple[Tensor, Tensor]:
        """(batch,) of the last prediction."""
        last = network(batch).gather(1, batch.lengths[:, None] - 1)[:, 0]
        return (last - batch.returns).square(), (batch.returns - self.options["mean"]).square()

    def scores(self, network: Any, batch: Episodes) -> Tensor:
        """(batch, time) what each step adds to the predicted return."""
        predicted = network(batch)
        return torch.diff(predicted, dim=1, prepend=torch.full_like(predicted[:, :1], self.options["mean"]))


@register_method("rudder-transformer")
class RudderTransformer(Rudder):
    """Differences of predicted returns, of a causal Transformer."""

    predictor = _TransformerPredictor
