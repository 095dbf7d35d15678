"""Randomized return decomposition (Ren et al., 2022): step rewards of which random parts add up to the return.

Deviations: half of an episode, at most 64 steps, stands for the whole (the paper: 64 of 1,000); no correction of the
variance.
"""

from typing import Any

import torch
from torch import Tensor, nn

from secret_rl.credit.base import Specs, register_method
from secret_rl.credit.rivals.episodes import Episodes, StepEncoder
from secret_rl.credit.rivals.sequence import SequenceMethod

_MOST = 64


class StepRewards(nn.Module):
    """A reward for each step, of the step alone."""

    def __init__(self, specs: Specs, units: int) -> None:
        super().__init__()
        self.encoder = StepEncoder(specs, units)
        self.head = nn.Linear(units, 1)

    def forward(self, batch: Episodes) -> Tensor:
        """(batch, time), 0 for padding"""
        return self.head(self.encoder.episodes(batch))[..., 0] * batch.mask  # type: ignore[no-any-return]


@register_method("return-decomposition")
class ReturnDecomposition(SequenceMethod):
    """Rewards of single steps that add up to the return."""

    def build(self, specs: Specs) -> nn.Module:
        """Rewards of steps."""
        return StepRewards(specs, self.options["units"])

    def loss(self, network: Any, batch: Episodes, generator: torch.Generator) -> Tensor:
        """(batch,) of the return that a random part of the steps amounts to."""
        count = (batch.lengths // 2).clamp(1, _MOST)
        order = torch.rand(batch.mask.shape, generator=generator, device=generator.device) + 2 * (1 - batch.mask)
        chosen = order.argsort(1).argsort(1) < count[:, None]
        estimate: Tensor = (network(batch) * chosen).sum(1) * batch.lengths / count
        return (estimate - batch.returns).square()

    def error(self, network: Any, batch: Episodes) -> tuple[Tensor, Tensor]:
        """(batch,) of the sum of all steps."""
        estimate = network(batch).sum(1)
        return (estimate - batch.returns).square(), (batch.returns - self.options["mean"]).square()

    def scores(self, network: Any, batch: Episodes) -> Tensor:
        """(batch, time) the reward of each step."""
        return network(batch)  # type: ignore[no-any-return]
