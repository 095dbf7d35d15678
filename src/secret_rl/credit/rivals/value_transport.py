"""The read-out of temporal value transport (Hung et al., 2019): where a value estimate looks back to.

Deviations: one attention layer over all earlier steps instead of an agent's memory; the threshold is an even share of
the attention; values are learned offline.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from secret_rl.credit.base import Specs, register_method
from secret_rl.credit.rivals.episodes import Episodes, StepEncoder
from secret_rl.credit.rivals.sequence import SequenceMethod

_DISCOUNT = 0.96  # of the paper


class _ValueReader(nn.Module):
    def __init__(self, specs: Specs, units: int) -> None:
        super().__init__()
        self.encoder = StepEncoder(specs, units)
        self.norm = nn.LayerNorm(units)
        self.projections = nn.Linear(units, 3 * units, bias=False)
        self.nothing = nn.Parameter(torch.zeros(1))  # score of looking at no step
        self.head = nn.Sequential(nn.Linear(2 * units, units), nn.ReLU(), nn.Linear(units, 1))

    def forward(self, batch: Episodes) -> tuple[Tensor, Tensor]:
        """(batch, time) values, and (batch, time, time) attention to earlier steps"""
        x = self.norm(self.encoder.episodes(batch))
        query, key, value = self.projections(x).chunk(3, -1)
        time = x.shape[1]
        later = torch.ones(time, time, dtype=torch.bool, device=x.device).triu()
        scores = (query @ key.transpose(1, 2) / math.sqrt(x.shape[-1])).masked_fill(later, -math.inf)
        attention = torch.cat([self.nothing.expand(*scores.shape[:2], 1), scores], -1).softmax(-1)[..., 1:]
        return self.head(torch.cat([x, attention @ value], -1))[..., 0], attention


@register_method("value-transport")
class ValueTransport(SequenceMethod):
    """Attention of a value estimate, above a threshold."""

    def build(self, specs: Specs) -> nn.Module:
        """The value estimate."""
        return _ValueReader(specs, self.options["units"])

    def loss(self, network: Any, batch: Episodes, generator: torch.Generator) -> Tensor:  # noqa: ARG002
        """(batch,) of the values of all steps."""
        return self.error(network, batch)[0]

    def error(self, network: Any, batch: Episodes) -> tuple[Tensor, Tensor]:
        """(batch,) of the values of all steps."""
        values, _ = network(batch)
        target = _values(batch.rewards)
        guess = (target * batch.mask).sum() / batch.mask.sum()
        share = batch.mask / batch.mask.sum(1, keepdim=True)
        return ((values - target).square() * share).sum(1), ((target - guess).square() * share).sum(1)

    def credit(self, network: Any, batch: Episodes, times: Tensor, signs: Tensor) -> Tensor:  # noqa: ARG002
        """(batch, rewards, time) attention at the rewards, where it is more than an even share."""
        _, attention = network(batch)
        rows = attention.gather(1, times[..., None].expand(*times.shape, attention.shape[-1]))
        return torch.where(rows > 1 / times.clamp(min=1)[..., None], rows, 0.0)


def _values(rewards: Tensor) -> Tensor:
    """(batch, time) discounted sums of rewards from each step on."""
    weights = _DISCOUNT ** torch.arange(rewards.shape[1], device=rewards.device)
    ahead = (rewards * weights).flip(1).cumsum(1).flip(1)
    return ahead / weights
