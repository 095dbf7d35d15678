"""The reward predictor with one departure from the paper undone, for the ablations."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from secret_rl.credit import fitting
from secret_rl.credit.model import Dropout, RewardPredictor


class Additive(RewardPredictor):
    """The action is added to the finished embedding of the observation: no layer processes both together."""

    def encode(self, observations: object, actions: object, dropout: Dropout) -> Tensor:
        """Tokens to (tokens, units)."""
        seen = dropout(self.observation_encoder(observations), self.options.dropout_dense)
        done = self.action_encoder(actions) @ self.join.weight[:, self.options.units :].T
        return (seen + done) * math.sqrt(self.options.units)


class OwnStep(RewardPredictor):
    """A row may attend to its own step too."""

    def score(self, query: Tensor, key: Tensor, times: Tensor) -> Tensor:
        """As if every row stood one step later."""
        return super().score(query, key, times + 1)


class NoSink(OwnStep):
    """Attention to the past and the own step alone, as printed."""

    def score(self, query: Tensor, key: Tensor, times: Tensor) -> Tensor:
        """The sink is hidden."""
        scores = super().score(query, key, times)
        return torch.cat([torch.full_like(scores[..., :1], -math.inf), scores[..., 1:]], -1)


class NormOfSum(RewardPredictor):
    """LN(x + z), as printed, instead of LN(x) + z."""

    def classify(self, x: Tensor, mixed: Tensor, dropout: Dropout) -> Tensor:
        """(..., units) of a step and of what it attends to -> (..., class)"""
        hidden = self.norm(x + dropout(mixed, self.options.dropout_block))
        hidden = dropout(torch.relu(self.position_wise(hidden)), self.options.dropout_dense)
        return self.head(hidden)


VARIANTS: dict[str, type[RewardPredictor]] = {
    "additive": Additive,
    "own step": OwnStep,
    "no sink": NoSink,
    "norm of sum": NormOfSum,
}


@contextmanager
def predictor(variant: str | None) -> Iterator[None]:
    """Fit this variant instead of the library's model, for the time being."""
    before = fitting.RewardPredictor
    if variant is not None:
        fitting.RewardPredictor = VARIANTS[variant]  # type: ignore[misc]
    try:
        yield
    finally:
        fitting.RewardPredictor = before  # type: ignore[misc]
