"""Episodes as a network reads them: batches padded to the longest, and an embedding of each step."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from secret_rl.credit.base import Specs
from secret_rl.encoders import Flat, flat_size, observation_encoder

_FILTERS = (32,)


@dataclass(frozen=True)
class Episodes:
    """A batch of episodes, padded to the longest."""

    observations: Any
    """Nest of (steps, ...): of all steps, end to end."""
    actions: Any
    first: Tensor
    """(steps,) 1.0 for the first step of an episode."""
    index: Tensor
    """(batch, time) which of the steps; 0 for padding."""
    mask: Tensor
    """(batch, time) 1.0, or 0.0 for padding."""
    rewards: Tensor
    """(batch, time) in units of the typical return; 0 for padding."""

    @property
    def returns(self) -> Tensor:
        """(batch,)"""
        return self.rewards.sum(1)

    @property
    def lengths(self) -> Tensor:
        """(batch,)"""
        return self.mask.sum(1).long()


class StepEncoder(nn.Module):
    """An embedding of each (observation, action) pair, the same as SECRET's but for dropout."""

    def __init__(self, specs: Specs, units: int, *, with_action: bool = True) -> None:
        super().__init__()
        self.observation_encoder = observation_encoder(specs[0], units, _FILTERS)
        self.action_encoder = Flat(specs[1]) if with_action else None
        self.join = nn.Linear(units + (flat_size(specs[1]) if with_action else 0) + 1, units)

    def forward(self, observations: Any, actions: Any, first: Tensor) -> Tensor:
        """Nests of (steps, ...) -> (steps, units)"""
        parts = [self.observation_encoder(observations), first[:, None]]
        parts += [] if self.action_encoder is None else [self.action_encoder(actions)]
        return torch.relu(self.join(torch.cat(parts, 1)))

    def episodes(self, batch: Episodes) -> Tensor:
        """(batch, time, units)"""
        return nn.functional.embedding(batch.index, self(batch.observations, batch.actions, batch.first))
