"""The reward predictor with one departure from the paper undone, for the ablations."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from secret_rl.credit.secret import fit
from secret_rl.credit.secret.model import VALUE_GAIN, Dropout, RewardPredictor
from secret_rl.credit.secret.tokens import Rows

_OUT_OF_REACH = -1e4


class Additive(RewardPredictor):
    """The action is added to the finished embedding of the observation: no layer processes both together."""

    def encode(self, rows: Rows, dropout: Dropout) -> Tensor:
        """Tokens to (tokens, units)."""
        encoder, units = self.encoder, self.options.units
        seen = dropout(encoder.observation_encoder(rows.observations), self.options.dropout_dense)
        done = torch.cat([encoder.action_encoder(rows.actions), rows.first[:, None]], 1)
        x: Tensor = self.norm(seen + done @ encoder.join.weight[:, units:].T)
        return x


class NoFirstMark(RewardPredictor):
    """First steps look like any other."""

    def encode(self, rows: Rows, dropout: Dropout) -> Tensor:
        """Tokens to (tokens, units)."""
        return super().encode(rows._replace(first=torch.zeros_like(rows.first)), dropout)


class OwnStep(RewardPredictor):
    """A row may attend to its own step too."""

    def score(self, query: Tensor, key: Tensor, times: Tensor) -> Tensor:
        """As if every row stood one step later."""
        return super().score(query, key, times + 1)


class OwnKeys(RewardPredictor):
    """The key projection starts out at random, as the others do."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        units = self.options.units
        with torch.no_grad():
            self.projections.weight[units : 2 * units] = nn.Linear(units, units).weight


class PlainValues(RewardPredictor):
    """The value projection starts out like the others."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        with torch.no_grad():
            self.projections.weight[2 * self.options.units :] /= VALUE_GAIN


class NoSink(OwnStep):
    """Attention to the past and the own step alone, as printed."""

    def score(self, query: Tensor, key: Tensor, times: Tensor) -> Tensor:
        """The sink is looked at only where nothing else is in sight."""
        scores = super().score(query, key, times)
        return torch.cat([torch.full_like(scores[..., :1], _OUT_OF_REACH), scores[..., 1:]], -1)


class NoGate(RewardPredictor):
    """What a row gathers is added as it is."""

    def classify(self, x: Tensor, mixed: Tensor, dropout: Dropout) -> Tensor:
        """(..., units) of a step and of what it attends to -> (..., class)"""
        hidden = x + dropout(mixed, self.options.dropout_block)
        hidden = dropout(torch.relu(self.position_wise(hidden)), self.options.dropout_dense)
        logits: Tensor = self.head(hidden)
        return logits


VARIANTS: dict[str, type[RewardPredictor]] = {
    "additive": Additive,
    "no first mark": NoFirstMark,
    "own step": OwnStep,
    "no sink": NoSink,
    "own keys": OwnKeys,
    "plain values": PlainValues,
    "no gate": NoGate,
}


@contextmanager
def predictor(variant: str | None) -> Iterator[None]:
    """Fit this variant instead of the library's model, for the time being."""
    module: Any = fit
    before = module.RewardPredictor
    if variant is not None:
        module.RewardPredictor = VARIANTS[variant]
    try:
        yield
    finally:
        module.RewardPredictor = before
