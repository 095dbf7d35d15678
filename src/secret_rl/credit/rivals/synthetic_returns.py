"""Synthetic returns (Raposo et al., 2021): a reward is a gate of the present times the sum of what past steps add.

Deviations: steps are (observation, action) pairs, not states of an agent's memory.
"""

from typing import Any

import torch
from torch import Tensor, nn

from secret_rl.credit.base import Specs, register_method
from secret_rl.credit.rivals.episodes import Episodes, StepEncoder
from secret_rl.credit.rivals.sequence import SequenceMethod


class _Associations(nn.Module):
    def __init__(self, specs: Specs, units: int) -> None:
        super().__init__()
        self.encoder = StepEncoder(specs, units)
        self.heads = nn.Sequential(nn.Linear(units, units), nn.ReLU(), nn.Linear(units, 3))

    def forward(self, batch: Episodes) -> tuple[Tensor, Tensor]:
        """(batch, time) predicted rewards, and what each step adds to later ones"""
        adds, gate, alone = self.heads(self.encoder.episodes(batch)).unbind(-1)
        adds = adds * batch.mask
        return gate.sigmoid() * (adds.cumsum(1) - adds) + alone, adds


@register_method("synthetic-returns")
class SyntheticReturns(SequenceMethod):
    """What past steps add to rewards, behind a gate."""

    predicts = "rewards"

    def build(self, specs: Specs) -> nn.Module:
        """Contributions, gates and what the present predicts alone."""
        return _Associations(specs, self.options["units"])

    def loss(self, network: Any, batch: Episodes, generator: torch.Generator) -> Tensor:  # noqa: ARG002
        """(batch,) of all rewards."""
        return self.error(network, batch)[0]

    def error(self, network: Any, batch: Episodes) -> tuple[Tensor, Tensor]:
        """(batch,) of all rewards."""
        rewards, _ = network(batch)
        guess = batch.rewards - (batch.rewards.sum() / batch.mask.sum())
        return tuple((error.square() * batch.mask).sum(1) for error in (rewards - batch.rewards, guess))  # type: ignore[return-value]

    def scores(self, network: Any, batch: Episodes) -> Tensor:
        """(batch, time) what each step adds to later rewards."""
        return network(batch)[1]  # type: ignore[no-any-return]
