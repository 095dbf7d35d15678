"""The reward predictor: a causal Transformer with one attention layer and one head (paper, section 2.1).

Steps that hold the same (observation, action) pair are encoded once, first steps apart. A batch is therefore given as
the distinct pairs in it, its *tokens*, and ``index`` (batch, time), which token each step is. Of the place of a step,
attention knows how many steps back it is.

Where steps are transitions, a step is attended to as (observation, action, next observation): its key and value are
made of its own token and of what the token after it observes. Its query is of the observation and action alone.
"""

import math
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from secret_rl.credit.secret.options import ModelOptions
from secret_rl.credit.secret.tokens import Part, Rows
from secret_rl.encoders import Flat, Spec, flat_size, observation_encoder

_NEAR, _PER_DOUBLING, _DISTANCES = 32, 4, 80  # each distance below 32 has a bias of its own; 48 are shared by the rest
VALUE_GAIN = 5.0  # the value projection starts out so much larger
_BIAS_SCALE = 8.0  # an optimiser moves each number by about the same: a bias has further to go
PAIRS_AT_A_TIME = 1 << 21  # of a step and an earlier one: more are worked out in blocks of rows
_BLOCK_SEED = 6_364_136_223_846_793_005  # seeds of blocks are far from those of updates
_NAME_SCALE = 0.05  # of new embeddings of names: only those that matter leave what the encoder says


class Prediction(NamedTuple):
    """What the model says of each step."""

    logits: Tensor  # (batch, query, class)
    weights: Tensor  # (batch, query, 1 + key) attention to the sink and to each step; rows sum to 1
    scores: Tensor  # (batch, query, 1 + key) what weights are the softmax of; -inf where a row may not look

    @property
    def attention(self) -> Tensor:
        """(batch, query, key) attention to each step; rows sum to 1."""
        return over_steps(self.scores)

    @property
    def on_sink(self) -> Tensor:
        """(batch, query) attention to the sink."""
        return self.weights[..., 0]


class Outcome(NamedTuple):
    """What the loss and an evaluation need of a ``Prediction``: nothing in it is as large as all pairs of steps."""

    logits: Tensor  # (batch, query, class)
    on_sink: Tensor  # (batch, query) attention to the sink


class StepEncoder(nn.Module):
    """An embedding of each (observation, action) pair."""

    def __init__(self, observation: Spec, action: Spec, options: ModelOptions) -> None:
        super().__init__()
        self.dropout_rate = options.dropout_dense
        self.observation_encoder = observation_encoder(observation, options.units, options.filters)
        self.action_encoder = Flat(action)
        # Appendix A: a layer "to process partial states and actions"; without it scores are additive in both.
        # One more input marks first steps: attention knows distances only.
        self.join = nn.Linear(options.units + flat_size(action) + 1, options.units)

    def forward(self, rows: Rows, dropout: "Dropout", names: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(tokens, units) of each pair, and of what it observes; ``names`` (tokens, units) are added to pairs."""
        seen = dropout(self.observation_encoder(rows.observations), self.dropout_rate)
        joined = torch.cat([seen, self.action_encoder(rows.actions), rows.first[:, None]], 1)
        pair = self.join(joined) if names is None else self.join(joined) + names
        return dropout(torch.relu(pair), self.dropout_rate), seen


class RewardPredictor(nn.Module):
    """Predicts the class of each reward from the steps up to it; with ``names``, each has an embedding of its own."""

    def __init__(self, observation: Spec, action: Spec, classes: int, options: ModelOptions, names: int = 0) -> None:
        super().__init__()
        self.options = options
        units = options.units
        self.encoder = StepEncoder(observation, action, options)
        if options.transitions:
            self.join_next = nn.Linear(2 * units, units)
        self.projections = nn.Linear(units, 3 * units, bias=False)  # W_q, W_k, W_v
        self.norm = nn.LayerNorm(units)
        self.gate = nn.Linear(units, units)
        self.position_wise = nn.Linear(units, units)
        self.head = nn.Linear(units, classes)
        with torch.no_grad():
            # One step among fifty has to show in what a row gathers, or training starts on a plateau, and finds one
            # outcome alone.
            self.projections.weight[2 * units :] *= VALUE_GAIN
            # Keys begin as queries: what is like the present is looked at first, and training finds what else matters.
            self.projections.weight[units : 2 * units] = self.projections.weight[:units]
        self.sink_key = nn.Parameter(torch.zeros(units))
        self.sink_value = nn.Parameter(torch.zeros(units))
        self.distance_bias = nn.Parameter(torch.zeros(_DISTANCES))
        self.names = nn.Embedding(names, units) if names else None
        if self.names is not None:
            nn.init.normal_(self.names.weight, std=_NAME_SCALE)

    def encode(self, rows: Rows, dropout: "Dropout") -> Tensor:
        """Tokens to (tokens, units): the embedding of each, before positions; twice as many units for transitions."""
        x, seen = self.encoder(rows, dropout, None if self.names is None else self.names(rows.names))
        x = self.norm(x)  # or scores are so far apart that attention starts out stuck to a few tokens
        return torch.cat([x, seen], 1) if self.options.transitions else x

    def encode_steps(self, rows: Rows, next_observations: object = None) -> Tensor:
        """(steps, units) of steps as they are attended to, before positions."""
        x = self.encode(rows, Dropout(None))
        if not self.options.transitions:
            return x
        return self.join_transition(x[:, : self.options.units], self.encoder.observation_encoder(next_observations))

    def prepare(self, tokens: Tensor) -> Tensor:
        """Encoded tokens with what can be worked out once for all their places: queries, keys and values, too."""
        return tokens if self.options.transitions else torch.cat([tokens, self.projections(tokens)], 1)

    def steps(self, tokens: Tensor, index: Tensor, past: Tensor | None = None) -> tuple[Tensor, ...]:
        """Tokens in their places: x, query, key and value, each (batch, time, units); the latter two of ``past``."""
        units = self.options.units
        query_weight, key_value_weight = self.projections.weight.split([units, 2 * units])
        x = _rows(tokens[:, :units], index)
        if self.options.transitions:
            y = self.transitions(tokens, index if past is None else past)
        else:
            y = x if past is None else _rows(tokens[:, :units], past)
        query = nn.functional.linear(x, query_weight)
        return x, query, *nn.functional.linear(y, key_value_weight).chunk(2, -1)

    def transitions(self, tokens: Tensor, index: Tensor) -> Tensor:
        """(batch, time, units) of each step and what is observed after it; of the last, what is observed before it."""
        x, seen = _rows(tokens, index).split(self.options.units, -1)
        return self.join_transition(x, torch.cat([seen[:, 1:], seen[:, -1:]], 1))

    def join_transition(self, x: Tensor, seen_next: Tensor) -> Tensor:
        """(..., units) of a step, (..., units) of what is observed after it -> (..., units)"""
        return cast(Tensor, self.norm(torch.relu(self.join_next(torch.cat([x, seen_next], -1)))))

    def forward(
        self, tokens: Tensor, index: Tensor, dropout: "Dropout | None" = None, past: Tensor | None = None
    ) -> Prediction:
        """Predict every step of a batch.

        ``tokens`` (tokens, units) from ``encode``; ``index`` (batch, time). Steps after the end of an episode
        may be any token: no earlier step can see them. ``past`` (batch, time) is looked at in place of ``index``.
        """
        dropout = dropout or Dropout(None)
        x, query, key, value = self.steps(tokens, index, past)
        scores = self.score(query, key, torch.arange(index.shape[1], device=index.device))
        weights = dropout.hide(scores, self.options.dropout_steps).softmax(-1)  # (batch, query, 1 + key)
        return Prediction(self.classify(x, self.mix(weights, value), dropout), weights, scores)

    def predict(
        self, tokens: Tensor, index: Tensor, dropout: "Dropout | None" = None, past: Tensor | None = None
    ) -> Outcome:
        """The same without the attention: memory grows with the length of episodes, not with its square.

        Where there are many pairs of steps, rows are worked out in blocks, which look at no step after their last, and
        once more for the gradient.
        """
        dropout = dropout or Dropout(None)
        episodes, time = dropout.in_whole(len(index)), index.shape[1]
        if episodes * time * time <= PAIRS_AT_A_TIME:
            whole = self(tokens, index, dropout, past)
            return Outcome(whole.logits, whole.on_sink)
        x, query, key, value = self.steps(tokens, index, past)
        hidden = dropout.hidden_episodes(len(index))
        parts, first = [], 0
        while first < time:
            last = min(first + _rows_from(first, episodes), time)
            block = query[:, first:last], key[:, :last], value[:, :last], first, dropout, hidden
            if torch.is_grad_enabled():
                parts.append(checkpoint(self._block, *block, use_reentrant=False, preserve_rng_state=False))
            else:
                parts.append(self._block(*block))
            first = last
        mixed, on_sink = (torch.cat(part, 1) for part in zip(*parts, strict=True))
        return Outcome(self.classify(x, mixed, dropout), on_sink)

    def _block(
        self, query: Tensor, key: Tensor, value: Tensor, first: int, dropout: "Dropout", hidden: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """What rows from ``first`` on gather, (batch, query, units), and their attention to the sink."""
        rows, keys = query.shape[1], key.shape[1]
        distance = torch.arange(first + rows - 1, first - keys, -1, device=query.device)
        scores = self._scores(query, key, _diagonals(self._seen(distance), rows, keys))
        if hidden is not None:
            scores = dropout.of_block(first, hidden).hide(scores, self.options.dropout_steps)
        weights = scores.softmax(-1)
        return self.mix(weights, value), weights[..., 0]

    def predict_rows(self, tokens: Tensor, index: Tensor, times: Tensor) -> tuple[Prediction, Tensor, Tensor]:
        """Predict only the steps ``times`` (batch, rows): the cost and memory of rows, not of all pairs of steps.

        ``tokens`` are encoded and prepared. Also gives the rows' x and the values of all steps.
        """
        units = self.options.units
        query_weight, key_value_weight = self.projections.weight.split([units, 2 * units])
        row_x = _rows(tokens[:, :units], index.gather(1, times))  # (batch, rows, units)
        row_query = nn.functional.linear(row_x, query_weight)
        if self.options.transitions:
            key_value = nn.functional.linear(self.transitions(tokens, index), key_value_weight)
        else:
            key_value = _rows(tokens[:, 2 * units :], index)
        key, value = key_value.chunk(2, -1)  # (batch, time, units)
        scores = self.score(row_query, key, times)
        weights = scores.softmax(-1)
        return Prediction(self.classify(row_x, self.mix(weights, value), Dropout(None)), weights, scores), row_x, value

    def predict_alone(self, x: Tensor) -> Tensor:
        """(..., units) of a step -> (..., class) logits of a row that looks at nothing but the sink."""
        return self.classify(x, self.sink_value.expand_as(x), Dropout(None))

    def score(self, query: Tensor, key: Tensor, times: Tensor) -> Tensor:
        """Attention scores of the rows at ``times`` ((query,) or (batch, query)) for the sink and for earlier steps.

        (batch, query, units), (batch, key, units) -> (batch, query, 1 + key). The sink is an extra key at no
        distance. A row does not attend to its own step, which reaches the prediction beside attention.
        """
        return self._scores(query, key, self._seen(times[..., None] - torch.arange(key.shape[1], device=key.device)))

    def _scores(self, query: Tensor, key: Tensor, bias: Tensor) -> Tensor:
        """(batch, query, units), (batch, key, units), (..., query, key) -> (batch, query, 1 + key)"""
        scores = query @ key.transpose(1, 2) / math.sqrt(self.options.units) + bias
        sink = (query @ self.sink_key)[..., None] / math.sqrt(self.options.units)
        return torch.cat([sink, scores], -1)

    def _seen(self, distance: Tensor) -> Tensor:
        """``bias``, and -inf for steps that are not earlier."""
        return self.bias(distance).masked_fill(distance <= 0, -math.inf)

    def bias(self, distance: Tensor) -> Tensor:
        """What is added to the score of a step for being so many steps back: each of the first few is its own case."""
        far = _NEAR + torch.log2(distance.clamp(min=_NEAR) / _NEAR) * _PER_DOUBLING
        bucket = torch.where(distance < _NEAR, distance.clamp(min=0), far.long().clamp(max=_DISTANCES - 1))
        return _rows(_BIAS_SCALE * self.distance_bias[:, None], bucket)[..., 0]

    def mix(self, weights: Tensor, value: Tensor) -> Tensor:
        """What each row gathers: (batch, query, 1 + key), (batch, key, units) -> (batch, query, units)."""
        return weights[..., 1:] @ value + weights[..., :1] * self.sink_value

    def classify(self, x: Tensor, mixed: Tensor, dropout: "Dropout") -> Tensor:
        """(..., units) of a step and of what it attends to -> (..., class)"""
        hidden = x + dropout(mixed * self.gate(x), self.options.dropout_block)
        hidden = dropout(torch.relu(self.position_wise(hidden)), self.options.dropout_dense)
        return cast(Tensor, self.head(hidden))


class Dropout:
    """Dropout from a generator of its own; without one, nothing is dropped.

    A byte of randomness per entry instead of a float: the rate is a multiple of 1/256, and drawing the masks,
    a third of a training step otherwise, costs an eighth.

    For a ``part`` of a batch, masks of the whole batch are drawn, and those of the part are taken: each process drops
    what one process would drop.
    """

    def __init__(
        self, generator: torch.Generator | None, hiding: float | Tensor = 1.0, part: Part | None = None
    ) -> None:
        self.generator, self.hiding, self.part = generator, hiding, part

    def __call__(self, x: Tensor, rate: float) -> Tensor:
        """Drop entries with probability ``rate`` and scale up the others."""
        if self.generator is None or rate == 0:
            return x
        kept, share = self._kept(x, rate)
        return x * (kept / share)

    def hide(self, scores: Tensor, rate: float) -> Tensor:
        """Scores (batch, query, 1 + key), in the share ``hiding`` of the batch each but the sink's -inf at ``rate``."""
        if self.generator is None or rate == 0:
            return scores
        kept, _ = self._kept(scores[..., 1:], rate)
        spared = self._per_episode(len(scores)) >= self.hiding
        return torch.cat([scores[..., :1], scores[..., 1:].masked_fill(~(kept | spared), -math.inf)], -1)

    def hidden_episodes(self, count: int) -> Tensor | None:
        """(episodes, 1, 1) 1 for those in which steps are hidden, else 0; None where nothing is dropped."""
        if self.generator is None:
            return None
        return (self._per_episode(count) < self.hiding).float()

    def of_block(self, first: int, hidden: Tensor) -> "Dropout":
        """The dropout of a block of rows, which draws the same numbers when the block is worked out again."""
        assert self.generator is not None
        seed = (self.generator.initial_seed() + 1 + first) * _BLOCK_SEED % 2**63
        return Dropout(torch.Generator(self.generator.device).manual_seed(seed), hidden, self.part)

    def in_whole(self, episodes: int) -> int:
        """Episodes of the whole batch that these are a part of."""
        return episodes if self.part is None else self.part.of_episodes

    def _per_episode(self, count: int) -> Tensor:
        """(episodes, 1, 1) uniform random numbers."""
        assert self.generator is not None
        drawn = torch.rand(self.in_whole(count), 1, 1, generator=self.generator, device=self.generator.device)
        return drawn if self.part is None else drawn[self.part.episodes]

    def _kept(self, x: Tensor, rate: float) -> tuple[Tensor, float]:
        """Which entries of tokens (tokens, units) or episodes (batch, ..., ...) are kept, and the share of them."""
        threshold = min(round(rate * 256), 255)
        mine, rows = None, len(x)
        if self.part is not None:
            tokens, episodes = self.part[:2], self.part[2:]
            mine, rows = tokens if x.ndim == 2 else episodes
        entries = rows * math.prod(x.shape[1:])
        words = torch.empty((entries + 7) // 8, dtype=torch.int64, device=x.device)
        random = words.random_(-(2**63), None, generator=self.generator).view(torch.uint8)
        random = random[:entries].view(rows, *x.shape[1:])
        return (random if mine is None else random[mine]) >= threshold, (256 - threshold) / 256


def _rows(table: Tensor, index: Tensor) -> Tensor:
    """Rows of a table: (rows, units), (...) -> (..., units)."""
    return nn.functional.embedding(index, table)  # its gradient adds rows up in the same order each time, on GPUs, too


def _rows_from(first: int, episodes: int) -> int:
    """Rows of a block: the more the shorter those before it, so that blocks are of a size and share their memory."""
    pairs = PAIRS_AT_A_TIME / episodes
    return max(1, int((math.sqrt(first * first + 4 * pairs) - first) / 2))


def _diagonals(line: Tensor, rows: int, columns: int) -> Tensor:
    """(rows, columns) with the same number all along each diagonal: ``line`` (rows + columns - 1), upwards and right.

    Its gradient is a sum over rows, which is faster than adding up what belongs to each number.
    """
    sheared = nn.functional.pad(line.expand(rows, -1).reshape(-1), (0, rows)).view(rows, rows + columns)
    return sheared[:, :columns].flip(0)


def over_steps(scores: Tensor) -> Tensor:
    """Attention over the steps alone, scores (..., 1 + key) -> (..., key): the softmax without the sink.

    A row with no earlier step, that of the first step, puts everything on itself.
    """
    steps = scores[..., 1:]
    nothing = (steps == -math.inf).all(-1, keepdim=True)
    itself = torch.arange(steps.shape[-1], device=steps.device) == 0
    return torch.where(nothing & ~itself, -math.inf, torch.where(nothing, 0.0, steps)).softmax(-1)


def weighted_loss(
    prediction: Prediction | Outcome, classes: Tensor, weights: Tensor, attention_penalty: float | Tensor = 0.0
) -> Tensor:
    """The weighted cross-entropy, summed over steps and averaged over trajectories, plus the attention penalty.

    ``classes`` and ``weights`` (batch, time): of each step; padding weighs nothing. ``attention_penalty`` is paid for
    attention that is not on the sink.
    """
    chosen = prediction.logits.log_softmax(-1).gather(-1, classes[..., None])[..., 0]  # (batch, time)
    to_steps = 1 - prediction.on_sink
    return (weights * (attention_penalty * to_steps - chosen)).sum() / len(classes)
