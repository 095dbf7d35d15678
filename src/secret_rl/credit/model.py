"""The reward predictor: a causal Transformer with one attention layer and one head (paper, section 2.1).

Steps that hold the same (observation, action) pair are encoded once. A batch is therefore given as the distinct
pairs in it, its *tokens*, and ``index`` (batch, time), which token each step is. Since W(x + PE) = Wx + W PE,
queries, keys and values too are computed once per token, plus one row per position.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from secret_rl.credit.encoders import Flat, Spec, flat_size, observation_encoder
from secret_rl.credit.options import CLASSES, ModelOptions


class Prediction(NamedTuple):
    """What the model says of each step."""

    logits: Tensor
    """(batch, query, class)"""
    attention: Tensor
    """(batch, query, key) rows that sum to 1 over the steps up to the query."""


class RewardPredictor(nn.Module):
    """Predicts the sign of each reward from the steps up to it."""

    def __init__(self, observation: Spec, action: Spec, options: ModelOptions) -> None:
        super().__init__()
        self.options = options
        units = options.units
        self.observation_encoder = observation_encoder(observation, units, options.filters)
        self.action_encoder = Flat(action)
        # Appendix A: a layer "to process partial states and actions"; without it scores are additive in both.
        self.join = nn.Linear(units + flat_size(action), units)
        self.projections = nn.Linear(units, 3 * units, bias=False)  # W_q, W_k, W_v
        self.norm = nn.LayerNorm(units)
        self.position_wise = nn.Linear(units, units)
        self.head = nn.Linear(units, len(CLASSES))
        if options.sink:
            self.sink_key = nn.Parameter(torch.zeros(units))
            self.sink_value = nn.Parameter(torch.zeros(units))

    def encode(self, observations: object, actions: object, dropout: "Dropout") -> Tensor:
        """Tokens to (tokens, 4 * units): embedding, query, key and value of each, before positions."""
        seen = dropout(self.observation_encoder(observations), self.options.dropout_dense)
        joined = torch.cat([seen, self.action_encoder(actions)], 1)
        x = dropout(torch.relu(self.join(joined)), self.options.dropout_dense)
        x = x * math.sqrt(self.options.units)  # as Vaswani et al.: positions must not drown the embeddings
        return torch.cat([x, self.projections(x)], 1)

    def steps(self, tokens: Tensor, index: Tensor, first_position: Tensor | None = None) -> tuple[Tensor, ...]:
        """Tokens in their places: x and query (batch, time, units), key and value (batch, time [+ 1], units).

        With a sink, it is the first key and value: an extra token that has no position.
        """
        places = torch.arange(index.shape[1], device=index.device).expand_as(index)
        last = index.shape[1]
        if first_position is not None:
            places = places + first_position[:, None]
            last += self.options.max_position_shift
        encoding = positional_encoding(torch.arange(last, device=index.device), self.options.units)
        positions = torch.cat([encoding, self.projections(encoding)], 1)  # (place, 4 * units)
        if self.options.sink:
            nothing = tokens.new_zeros(2 * self.options.units)
            sink = torch.cat([nothing, self.sink_key, self.sink_value])
            tokens = torch.cat([sink[None], tokens])
            positions = torch.cat([torch.zeros_like(sink)[None], positions])
            index, places = (nn.functional.pad(i + 1, (1, 0)) for i in (index, places))
        rows = nn.functional.embedding(index, tokens) + nn.functional.embedding(places, positions)
        x, query, key, value = rows.split(self.options.units, -1)
        extra = int(self.options.sink)
        return x[:, extra:], query[:, extra:], key, value

    def forward(
        self, tokens: Tensor, index: Tensor, first_position: Tensor | None = None, dropout: "Dropout | None" = None
    ) -> Prediction:
        """Predict every step of a batch.

        ``tokens`` (tokens, 4 * units) from ``encode``; ``index`` (batch, time). Steps after the end of an episode
        may be any token: no earlier step can see them.
        """
        dropout = dropout or Dropout(None)
        time = index.shape[1]
        x, query, key, value = self.steps(tokens, index, first_position)
        scores = query @ key.transpose(1, 2) / math.sqrt(self.options.units)  # (batch, query, [sink +] key)
        future = torch.ones(time, time, dtype=torch.bool, device=index.device).triu(1)
        scores = scores.masked_fill(nn.functional.pad(future, (scores.shape[2] - time, 0)), -math.inf)
        weights = scores.softmax(-1)
        mixed = dropout(weights, self.options.dropout_attention) @ value
        return Prediction(self.classify(x, mixed, dropout), self.over_steps(weights))

    def over_steps(self, weights: Tensor) -> Tensor:
        """Attention over the steps alone: without the sink, each row is again a softmax of its scores."""
        if not self.options.sink:
            return weights
        return weights[..., 1:] / weights[..., 1:].sum(-1, keepdim=True).clamp_min(1e-30)

    def classify(self, x: Tensor, mixed: Tensor, dropout: "Dropout") -> Tensor:
        """(..., units) of a step and of what it attends to -> (..., class)"""
        hidden = self.norm(x + dropout(mixed, self.options.dropout_block))
        hidden = dropout(torch.relu(self.position_wise(hidden)), self.options.dropout_dense)
        return self.head(hidden)


class Dropout:
    """Dropout from a generator of its own; without one, nothing is dropped.

    A byte of randomness per entry instead of a float: the rate is a multiple of 1/256, and drawing the masks,
    a third of a training step otherwise, costs an eighth.
    """

    def __init__(self, generator: torch.Generator | None) -> None:
        self.generator = generator

    def __call__(self, x: Tensor, rate: float) -> Tensor:
        """Drop entries with probability ``rate`` and scale up the others."""
        if self.generator is None or rate == 0:
            return x
        threshold = round(rate * 256)
        words = (x.numel() + 7) // 8
        random = torch.empty(words, dtype=torch.int64, device=x.device).random_(
            -(2**63), None, generator=self.generator
        )
        kept = random.view(torch.uint8)[: x.numel()].view(x.shape) >= threshold
        return x * kept * (256 / (256 - threshold))


def positional_encoding(positions: Tensor, units: int) -> Tensor:
    """Sines and cosines of appendix A: (...,) -> (..., units)."""
    frequencies = torch.exp(
        torch.arange(0, units, 2, device=positions.device, dtype=torch.float32) * (-math.log(10_000.0) / units)
    )
    angles = positions[..., None].float() * frequencies
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)


def weighted_loss(logits: Tensor, classes: Tensor, lengths: Tensor, class_weights: Tensor) -> Tensor:
    """The paper's weighted sequential cross-entropy, averaged over trajectories.

    ``classes`` (batch, time) index ``CLASSES``; steps from ``lengths`` (batch,) on are padding and count nothing.
    Each trajectory is divided by its own length.
    """
    time = classes.shape[1]
    real = torch.arange(time, device=classes.device) < lengths[:, None]
    chosen = logits.log_softmax(-1).gather(-1, classes[..., None])[..., 0]  # (batch, time)
    weights = class_weights[classes] * real / lengths[:, None]
    return -(weights * chosen).sum() / len(lengths)
