"""The reward predictor: a causal Transformer with one attention layer and one head (paper, section 2.1).

Steps that hold the same (observation, action) pair are encoded once. A batch is therefore given as the distinct
pairs in it, its *tokens*, and ``index`` (batch, time), which token each step is. Since W(x + PE) = Wx + W PE,
queries, keys and values too can be computed once per token, plus one row per position.
"""

import math
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from secret_rl.credit.encoders import Flat, Spec, flat_size, observation_encoder
from secret_rl.credit.options import CLASSES, ModelOptions


class Prediction(NamedTuple):
    """What the model says of each step."""

    logits: Tensor
    """(batch, query, class)"""
    weights: Tensor
    """(batch, query, 1 + key) attention to the sink and to each step; rows sum to 1."""
    scores: Tensor
    """(batch, query, 1 + key) what the weights are the softmax of; minus infinity where a row may not look."""

    @property
    def attention(self) -> Tensor:
        """(batch, query, key) attention to each step; rows sum to 1."""
        return over_steps(self.scores)


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
        with torch.no_grad():  # one step among fifty has to show in what a row gathers, or training starts on a plateau
            self.projections.weight[2 * units :] *= options.value_gain
        self.sink_key = nn.Parameter(torch.zeros(units))
        self.sink_value = nn.Parameter(torch.zeros(units))

    def encode(self, observations: object, actions: object, dropout: "Dropout") -> Tensor:
        """Tokens to (tokens, units): the embedding of each, before positions."""
        seen = dropout(self.observation_encoder(observations), self.options.dropout_dense)
        joined = torch.cat([seen, self.action_encoder(actions)], 1)
        x = dropout(torch.relu(self.join(joined)), self.options.dropout_dense)
        return x * math.sqrt(self.options.units)  # as Vaswani et al.: positions must not drown the embeddings

    def project(self, x: Tensor) -> Tensor:
        """(..., units) -> (..., 4 * units): x, and its query, key and value."""
        return torch.cat([x, self.projections(x)], -1)

    def steps(self, tokens: Tensor, index: Tensor, first_position: Tensor | None = None) -> tuple[Tensor, ...]:
        """Tokens in their places: x, query, key and value, each (batch, time, units)."""
        places = torch.arange(index.shape[1], device=index.device).expand_as(index)
        last = index.shape[1]
        if first_position is not None:
            places = places + first_position[:, None]
            last += self.options.max_position_shift
        encoding = self.encoding(torch.arange(last, device=index.device))
        if tokens.is_cuda:  # products cost little there, and moving rows of 4 * units to and fro a lot
            x = _rows(tokens, index) + _rows(encoding, places)
            return x, *(nn.functional.linear(x, weight) for weight in self.projections.weight.chunk(3))
        rows = _rows(self.project(tokens), index) + _rows(self.project(encoding), places)
        return rows.chunk(4, -1)

    def encoding(self, positions: Tensor) -> Tensor:
        """What is added to an embedding for its place: (...,) -> (..., units)."""
        return positional_encoding(positions, self.options.units) * self.options.position_scale

    def forward(
        self, tokens: Tensor, index: Tensor, first_position: Tensor | None = None, dropout: "Dropout | None" = None
    ) -> Prediction:
        """Predict every step of a batch.

        ``tokens`` (tokens, units) from ``encode``; ``index`` (batch, time). Steps after the end of an episode
        may be any token: no earlier step can see them.
        """
        dropout = dropout or Dropout(None)
        x, query, key, value = self.steps(tokens, index, first_position)
        scores = self.score(query, key, torch.arange(index.shape[1], device=index.device))
        weights = scores.softmax(-1)
        mixed = self.mix(dropout(weights, self.options.dropout_attention), value)
        return Prediction(self.classify(x, mixed, dropout), weights, scores)

    def predict_rows(self, tokens: Tensor, index: Tensor, times: Tensor) -> Prediction:
        """Predict only the steps ``times`` (batch, rows): the cost and memory of rows, not of all pairs of steps.

        ``tokens`` (tokens, 4 * units) are encoded and projected.
        """
        units = self.options.units
        encoding = self.encoding(torch.arange(index.shape[1], device=index.device))
        query_weight, rest_weight = self.projections.weight.split([units, 2 * units])
        x, query, key_value = tokens.split([units, units, 2 * units], 1)
        own = index.gather(1, times)
        row_x = _rows(x, own) + _rows(encoding, times)
        row_query = _rows(query, own) + _rows(encoding @ query_weight.T, times)
        key, value = (_rows(key_value, index) + encoding @ rest_weight.T).chunk(2, -1)
        scores = self.score(row_query, key, times)
        weights = scores.softmax(-1)
        return Prediction(self.classify(row_x, self.mix(weights, value), Dropout(None)), weights, scores)

    def predict_alone(self, tokens: Tensor, index: Tensor, times: Tensor) -> Tensor:
        """(batch, rows, class) logits of the steps ``times`` when they look at nothing but the sink."""
        own, encoding = index.gather(1, times), self.encoding(times)
        x = _rows(tokens[:, : self.options.units], own) + encoding
        return self.classify(x, self.sink_value.expand_as(x), Dropout(None))

    def score(self, query: Tensor, key: Tensor, times: Tensor) -> Tensor:
        """Attention scores of the rows at ``times`` ((query,) or (batch, query)) for the sink and for earlier steps.

        (batch, query, units), (batch, key, units) -> (batch, query, 1 + key). The sink is an extra key without a
        position. A row does not attend to its own step, which reaches the prediction beside attention.
        """
        later = torch.arange(key.shape[1], device=key.device) >= times[..., None]
        scores = (query @ key.transpose(1, 2)).masked_fill(later, -math.inf)
        return torch.cat([(query @ self.sink_key)[..., None], scores], -1) / math.sqrt(self.options.units)

    def mix(self, weights: Tensor, value: Tensor) -> Tensor:
        """What each row gathers: (batch, query, 1 + key), (batch, key, units) -> (batch, query, units)."""
        return weights[..., 1:] @ value + weights[..., :1] * self.sink_value

    def classify(self, x: Tensor, mixed: Tensor, dropout: "Dropout") -> Tensor:
        """(..., units) of a step and of what it attends to -> (..., class)"""
        hidden = self.norm(x) + dropout(mixed, self.options.dropout_block)
        hidden = dropout(torch.relu(self.position_wise(hidden)), self.options.dropout_dense)
        return cast(Tensor, self.head(hidden))


def _rows(table: Tensor, index: Tensor) -> Tensor:
    """Rows of a table: (rows, units), (...) -> (..., units)."""
    return nn.functional.embedding(index, table)  # its gradient adds rows up in the same order each time, on GPUs, too


def over_steps(scores: Tensor) -> Tensor:
    """Attention over the steps alone, scores (..., 1 + key) -> (..., key): the softmax without the sink.

    A row with no earlier step, that of the first step, puts everything on itself.
    """
    steps = scores[..., 1:]
    nothing = (steps == -math.inf).all(-1, keepdim=True)
    itself = torch.arange(steps.shape[-1], device=steps.device) == 0
    return torch.where(nothing & ~itself, -math.inf, torch.where(nothing, 0.0, steps)).softmax(-1)


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
        threshold = min(round(rate * 256), 255)
        words = (x.numel() + 7) // 8
        random = torch.empty(words, dtype=torch.int64, device=x.device).random_(
            -(2**63), None, generator=self.generator
        )
        kept = random.view(torch.uint8)[: x.numel()].view(x.shape) >= threshold
        return x * (kept * (256 / (256 - threshold)))


def positional_encoding(positions: Tensor, units: int) -> Tensor:
    """Sines and cosines of appendix A: (...,) -> (..., units)."""
    frequencies = torch.exp(
        torch.arange(0, units, 2, device=positions.device, dtype=torch.float32) * (-math.log(10_000.0) / units)
    )
    angles = positions[..., None].float() * frequencies
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)


def weighted_loss(
    prediction: Prediction, classes: Tensor, lengths: Tensor, class_weights: Tensor, looking_cost: float | Tensor = 0.0
) -> Tensor:
    """The paper's weighted sequential cross-entropy, averaged over trajectories, and what looking back costs.

    ``classes`` (batch, time) index ``CLASSES``; steps from ``lengths`` (batch,) on are padding and count nothing.
    Each trajectory is divided by its own length. ``looking_cost`` is paid for attention that is not on the sink.
    """
    real = torch.arange(classes.shape[1], device=classes.device) < lengths[:, None]
    chosen = prediction.logits.log_softmax(-1).gather(-1, classes[..., None])[..., 0]  # (batch, time)
    weights = class_weights[classes] * real / lengths[:, None]
    looking = 1 - prediction.weights[..., 0]
    return (weights * (looking_cost * looking - chosen)).sum() / len(lengths)
