"""Diaster (Lin et al., 2024): the return is shared by two parts of the episode; steps get the differences of parts.

Deviations: two parts, cut at a random step; the reward of a step is fitted along with the parts, and rests on the
(observation, action) pair; an LSTM in place of the GRU, since on a CPU PyTorch's takes a third of the time.
"""

from typing import Any

import torch
from torch import Tensor, nn

from secret_rl.credit.base import Specs, register_method
from secret_rl.credit.rivals.episodes import Episodes, StepEncoder
from secret_rl.credit.rivals.return_decomposition import StepRewards
from secret_rl.credit.rivals.sequence import SequenceMethod


class _Parts(nn.Module):
    def __init__(self, specs: Specs, units: int) -> None:
        super().__init__()
        self.encoder = StepEncoder(specs, units)
        self.memory = nn.LSTM(units, units, batch_first=True)
        self.head = nn.Linear(units, 1)
        self.steps = StepRewards(specs, units)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, time, units) -> (batch, time) rewards of the parts that end at each step"""
        return self.head(self.memory(x)[0])[..., 0]  # type: ignore[no-any-return]


@register_method("diaster")
class Diaster(SequenceMethod):
    """Differences of rewards that are assigned to the first parts of an episode."""

    def build(self, specs: Specs) -> nn.Module:
        """Rewards of parts and of steps."""
        return _Parts(specs, self.options["units"])

    def loss(self, network: Any, batch: Episodes, generator: torch.Generator) -> Tensor:
        """(batch,) of the sum of two parts, and of the rewards of steps against differences."""
        uniform = torch.rand(len(batch.mask), generator=generator, device=generator.device)
        cut = (uniform * (batch.lengths + 1)).long().clamp(max=batch.lengths)  # steps of the first part
        x = network.encoder.episodes(batch)
        firsts = network(x)
        first = torch.where(cut > 0, _at(firsts, cut - 1), 0.0)
        rolled = (torch.arange(x.shape[1], device=x.device) + cut[:, None]) % x.shape[1]
        rest = network(x.gather(1, rolled[..., None].expand_as(x)))
        second = torch.where(cut < batch.lengths, _at(rest, batch.lengths - cut - 1), 0.0)
        parts = (first + second - batch.returns).square()
        differences = torch.diff(firsts, dim=1, prepend=torch.zeros_like(firsts[:, :1])).detach()
        steps: Tensor = (network.steps(batch) - differences).square() * batch.mask
        return parts + steps.sum(1) / batch.mask.sum(1)

    def error(self, network: Any, batch: Episodes) -> tuple[Tensor, Tensor]:
        """(batch,) of the whole episode as one part."""
        whole = _at(network(network.encoder.episodes(batch)), batch.lengths - 1)
        return (whole - batch.returns).square(), (batch.returns - self.options["mean"]).square()

    def scores(self, network: Any, batch: Episodes) -> Tensor:
        """(batch, time) the reward of each step."""
        return network.steps(batch)  # type: ignore[no-any-return]


def _at(values: Tensor, steps: Tensor) -> Tensor:
    """(batch, time), (batch,) -> (batch,)"""
    return values.gather(1, steps.clamp(min=0)[:, None])[:, 0]
