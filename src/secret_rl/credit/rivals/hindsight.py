"""Hindsight credit (Harutyunyan et al., 2019): how much likelier an action is once the outcome is known.

Deviations: the outcome is the sign of the next reward, or that none follows, not a return; the policy is fitted to the
data, too; discrete actions only.
"""

from typing import Any

import torch
from torch import Tensor, nn

from secret_rl.credit.base import Specs, register_method
from secret_rl.credit.rivals.episodes import Episodes, StepEncoder
from secret_rl.credit.rivals.sequence import SequenceMethod


class _Policies(nn.Module):
    """Which action is taken, and which was taken, given the outcome."""

    def __init__(self, specs: Specs, units: int) -> None:
        super().__init__()
        self.encoder = StepEncoder(specs, units, with_action=False)
        self.actions, self.start = int(specs[1]["n"]), int(specs[1]["start"])
        self.policy = nn.Linear(units, self.actions)
        self.hindsight = nn.Sequential(nn.Linear(units, units), nn.ReLU(), nn.Linear(units, 3 * self.actions))

    def forward(self, batch: Episodes) -> tuple[Tensor, Tensor]:
        """Log-probabilities of the actions taken: (batch, time), and (batch, time, outcome) if it was -1, 0 or +1"""
        x = self.encoder.episodes(batch)
        taken = nn.functional.embedding(batch.index, batch.actions[:, None].float()).long() - self.start
        policy = self.policy(x).log_softmax(-1).gather(-1, taken)[..., 0]
        given = self.hindsight(x).unflatten(-1, (3, self.actions)).log_softmax(-1)
        return policy, given.gather(-1, taken[..., None, :].expand(*taken.shape[:2], 3, 1))[..., 0]


@register_method("hindsight")
class Hindsight(SequenceMethod):
    """How much likelier actions are once it is known that a reward followed."""

    predicts = "actions"

    def build(self, specs: Specs) -> nn.Module:
        """The policy, without and with the outcome."""
        if specs[1]["type"] != "Discrete":
            raise ValueError(
                f"hindsight credit needs discrete actions, these are {specs[1]['type']}: use another method"
            )
        return _Policies(specs, self.options["units"])

    def loss(self, network: Any, batch: Episodes, generator: torch.Generator) -> Tensor:  # noqa: ARG002
        """(batch,) of both."""
        return sum(self.error(network, batch), torch.zeros(()))

    def error(self, network: Any, batch: Episodes) -> tuple[Tensor, Tensor]:
        """(batch,) with the outcome, and without it."""
        policy, given = network(batch)
        chosen = given.gather(-1, _next_sign(batch.rewards).long()[..., None] + 1)[..., 0]
        return -(chosen * batch.mask).sum(1), -(policy * batch.mask).sum(1)

    def credit(self, network: Any, batch: Episodes, times: Tensor, signs: Tensor) -> Tensor:  # noqa: ARG002
        """(batch, rewards, time) 1 - policy / hindsight"""
        policy, given = network(batch)
        ratios = 1 - (policy[..., None] - given).exp()  # (batch, time, outcome)
        return torch.where(signs[..., None] > 0, ratios[:, None, :, 2], ratios[:, None, :, 0])


def _next_sign(rewards: Tensor) -> Tensor:
    """(batch, time) the sign of the next reward after each step; 0 where none follows."""
    time = torch.arange(rewards.shape[1], device=rewards.device)
    where = torch.where(rewards != 0, time, rewards.shape[1]).flip(1).cummin(1).values.flip(1)
    later = torch.cat([where[:, 1:], torch.full_like(where[:, :1], rewards.shape[1])], 1)
    padded = torch.cat([rewards.sign(), torch.zeros_like(rewards[:, :1])], 1)
    return padded.gather(1, later)
