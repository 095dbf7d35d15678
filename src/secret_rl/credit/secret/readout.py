"""Credit read out of a fitted model: of rewards, of single steps as they happen, and of any step for inspection."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from secret_rl.credit.attributions import Attributions, of_kind
from secret_rl.credit.reward_classes import RewardClasses
from secret_rl.credit.secret.memoryless import Memoryless
from secret_rl.credit.secret.model import Dropout, Prediction, RewardPredictor, over_steps
from secret_rl.credit.secret.tokens import Rows, Tokens
from secret_rl.encoders import as_tensor
from secret_rl.progress import Tick
from secret_rl.trajectories.nested import arrays_of, map_arrays

if TYPE_CHECKING:
    from secret_rl.trajectories import Trajectories

_STEPS_AT_A_TIME = 1 << 13  # bounds memory whatever the number and length of trajectories; fits in caches
_PAIRS_AT_A_TIME = 1 << 21  # of a row and a step: a row holds the scores of all steps of its episode
_DECIDED = 0.98  # probability without memory from which the present decides a reward
_QUERIES = 256
# One step alone and among others get the same credit, to the bit: products of few rows are rounded otherwise than
# those of many, which cutting off decimals does not hide where a number lies between two.
_AT_LEAST, _DECIMALS = 8, 6


@torch.no_grad()
def attribute(
    model: RewardPredictor,
    memoryless: Memoryless,
    classes: RewardClasses,
    data: "Trajectories",
    device: torch.device,
    rewards: str = "all",
    tolerance: int = 0,
    tick: Tick = lambda *_: None,
    decided: bool = False,
) -> Attributions:
    """Credit for rewards that are predicted correctly. Only their rows are computed.

    Rewards that the present decides are left out, unless ``decided``.
    """
    if tolerance < 0:
        raise ValueError(f"tolerance must not be negative, got {tolerance}")
    wanted = of_kind(np.asarray(data.rewards), rewards)
    model.eval()
    tokens = Tokens.of(data, classes)
    table = None  # of all distinct tokens, encoded once
    if tokens.ids is not None:
        parts = [slice(first, first + _STEPS_AT_A_TIME) for first in range(0, len(tokens.first), _STEPS_AT_A_TIME)]
        table = torch.cat([_encoded(model, tokens.table(device, part)) for part in parts])
    wanted[tokens.offsets[:-1]] = False  # a first step has no past
    if not decided:
        present = classes.right(memoryless.probabilities(tokens, np.full(len(tokens), -1), device))
        wanted &= present[np.arange(len(present)), tokens.classes] < _DECIDED
    steps = np.flatnonzero(wanted)
    episodes = np.searchsorted(tokens.offsets, steps, side="right") - 1
    found: list[tuple[Any, ...]] = [tuple(np.zeros(0, dtype) for dtype in [np.int64] * 4 + [np.float32] * 2)]
    most = tokens.at_a_time(_STEPS_AT_A_TIME, device)
    for part in _blocks(episodes, tokens.lengths, most, 2 * tolerance + 1):
        found += _rows(model, tokens, table, steps[part], episodes[part], tolerance, device)
        tick("", int(part[-1]) + 1, len(steps))
    episode, step, predicted_at, sizes, evidence, weights = map(np.concatenate, zip(*found, strict=True))
    return Attributions(
        episode=episode,
        step=step,
        predicted_at=predicted_at,
        reward=np.asarray(data.rewards)[tokens.offsets[episode] + step].astype(np.float64),
        evidence=evidence,
        weights=weights,
        offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        rewards_seen=len(steps),
        lengths=tokens.lengths,
    )


def _blocks(
    episodes: NDArray[np.int64], lengths: NDArray[np.int64], at_a_time: int, each: int
) -> list[NDArray[np.int64]]:
    """Numbers of rewards, all those of an episode together, whose padded episodes fit in memory together.

    ``each`` is how many rows belong to a reward.
    """
    cuts, first, longest, most = [], 0, 0, 0
    distinct, counts = np.unique(episodes, return_counts=True)
    for i, (episode, rows) in enumerate(zip(distinct.tolist(), (counts * each).tolist(), strict=True)):
        longest, most = max(longest, int(lengths[episode])), max(most, rows)
        steps = longest * (i - first + 1)
        if i > first and (steps > at_a_time or steps * most > _PAIRS_AT_A_TIME):
            cuts.append(episode)
            first, longest, most = i, int(lengths[episode]), rows
    blocks = np.split(np.arange(len(episodes)), np.searchsorted(episodes, cuts))
    return blocks if len(episodes) else []


def _encoded(model: RewardPredictor, rows: Rows) -> Tensor:
    return model.prepare(model.encode(rows, Dropout(None)))


def _rows(
    model: RewardPredictor,
    tokens: Tokens,
    table: Tensor | None,
    wanted: NDArray[np.int64],
    episodes: NDArray[np.int64],
    tolerance: int,
    device: torch.device,
) -> list[tuple[Any, ...]]:
    """(episode, step, predicted_at, row size, evidence, weights) of the correctly predicted among some rewards.

    One episode with more rows than fit in memory together comes in several parts.
    """
    distinct, local = np.unique(episodes, return_inverse=True)
    lengths = tokens.lengths[distinct]
    steps = wanted - tokens.offsets[episodes]
    # (episode, slot) layout of the rewards, and around each the steps at which a prediction counts
    slot = np.arange(len(wanted)) - np.searchsorted(local, local)
    shifts = np.array(sorted(range(-tolerance, tolerance + 1), key=lambda d: (abs(d), d)))  # nearest first
    times = np.zeros((len(distinct), int(slot.max()) + 1, len(shifts)), np.int64)
    times[local, slot] = np.clip(steps[:, None] + shifts, 0, lengths[local][:, None] - 1)
    if table is None or tokens.ids is None:
        batch = tokens.batch(distinct, device)
        index, encoded = batch.index, _encoded(model, batch.rows)
    else:
        padded = np.minimum(np.arange(lengths.max()), lengths[:, None] - 1)
        ids = tokens.ids[tokens.offsets[distinct][:, None] + padded]
        index, encoded = torch.from_numpy(ids.astype(np.int64)).to(device), table
    at_a_time = max(1, _PAIRS_AT_A_TIME // (index.numel() * len(shifts)))
    return [
        _hits(
            model, encoded, index, times[:, first : first + at_a_time], local[part], slot[part] - first,
            tokens.classes[wanted[part]].astype(np.int64), (episodes[part], steps[part]),
        )
        for first in range(0, times.shape[1], at_a_time)
        for part in [np.flatnonzero((slot >= first) & (slot < first + at_a_time))]
    ]  # fmt: skip


def _hits(
    model: RewardPredictor,
    encoded: Tensor,
    index: Tensor,
    times: NDArray[np.int64],
    local: NDArray[np.int64],
    slot: NDArray[np.int64],
    classes: NDArray[np.int64],
    about: tuple[NDArray[np.int64], NDArray[np.int64]],
) -> tuple[Any, ...]:
    """What ``_rows`` says of rewards at ``times`` (episode, slot, shift), of the given classes."""
    rows = torch.from_numpy(times.reshape(len(times), -1)).to(index.device)
    prediction, row_x, _ = model.predict_rows(encoded, index, rows)
    predicted = prediction.logits.argmax(-1).cpu().numpy().reshape(times.shape)
    correct = predicted[local, slot] == classes[:, None]  # (rewards, shifts)
    hits = np.flatnonzero(correct.any(1))
    shift = correct[hits].argmax(1)
    at = times[local[hits], slot[hits], shift]
    where = tuple(torch.from_numpy(i).to(index.device) for i in (local[hits], slot[hits] * times.shape[2] + shift))
    wanted = torch.from_numpy(classes[hits]).to(index.device)
    with_past, alone = (
        logits.log_softmax(-1).gather(1, wanted[:, None])[:, 0]
        for logits in (prediction.logits[where], model.predict_alone(row_x[where]))
    )
    sizes, attention = at + 1, over_steps(prediction.scores[where]).cpu().numpy()
    weights = attention[np.arange(attention.shape[1]) < sizes[:, None]]
    episode, step = about
    return episode[hits], step[hits], at, sizes, (with_past - alone).cpu().numpy(), weights


class Queries(NamedTuple):
    """What positive rewards of the source attend to, for the credit of steps as they happen.

    A reward is not there yet when the step that will earn it is taken. But queries q of rewards are known from the
    source, and so are the logarithms log Z of what their attention was normalised with. A new step with key k would get
    the share exp(<q, k> / sqrt(d) + b - log Z) of such a reward. Its distance is taken to be that of the steps which
    the query attended to in the source, whose mean bias is b: the credit depends on the step alone and costs the same
    whatever came before.
    """

    vectors: Tensor
    """(queries, units)"""
    biases: Tensor
    """(queries,) what its place adds to the score of a step, less the log-normaliser."""


@torch.no_grad()
def source_queries(
    model: RewardPredictor, classes: RewardClasses, data: "Trajectories", device: torch.device, seed: int
) -> Queries | None:
    """The queries of some positive rewards that are predicted correctly; None if there are none."""
    model.eval()
    tokens = Tokens.of(data, classes)
    rewarded = np.flatnonzero(np.asarray(data.rewards) > 0)
    order = np.random.default_rng(seed).permutation(rewarded)
    episodes = np.searchsorted(tokens.offsets, order, side="right") - 1
    at_a_time = max(1, tokens.at_a_time(_STEPS_AT_A_TIME, device) // int(tokens.lengths.max()))
    found: list[tuple[Tensor, Tensor]] = []
    for first in range(0, len(order), at_a_time):
        part = slice(first, first + at_a_time)
        found.append(_queries_of(model, tokens, episodes[part], order[part] - tokens.offsets[episodes[part]], device))
        if sum(len(biases) for _, biases in found) >= _QUERIES:
            break
    joined = [torch.cat(column)[:_QUERIES] for column in zip(*found, strict=True)]
    return Queries(*joined) if joined and len(joined[0]) else None


def _queries_of(
    model: RewardPredictor,
    tokens: Tokens,
    episodes: NDArray[np.int64],
    steps: NDArray[np.int64],
    device: torch.device,
) -> tuple[Tensor, Tensor]:
    """Vectors and biases of the rewards at these steps (one per episode given) that are predicted correctly."""
    batch = tokens.batch(episodes, device)
    times = torch.from_numpy(steps).to(device)[:, None]
    prediction, row_x, _ = model.predict_rows(_encoded(model, batch.rows), batch.index, times)
    wanted = batch.classes.gather(1, times)[:, 0]
    kept = (prediction.logits[:, 0].argmax(-1) == wanted) & (times[:, 0] > 0)  # a first step has no past
    query_weight = model.projections.weight[: model.options.units]
    vectors = nn.functional.linear(row_x[:, 0], query_weight)[kept]
    attention = prediction.attention[kept, 0]  # (queries, time)
    distance = times[kept] - torch.arange(attention.shape[1], device=device)
    normalisers = prediction.scores[kept, 0, 1:].logsumexp(-1)
    return vectors, (attention * model.bias(distance)).sum(-1) - normalisers


@torch.no_grad()
def step_credit(
    model: RewardPredictor,
    queries: Queries,
    observations: Any,
    actions: Any,
    next_observations: Any,
    device: torch.device,
) -> NDArray[np.float64]:
    """(steps,) the mean share of a reward that each (observation, action) pair would earn, from 0 to 1.

    ``next_observations`` are needed where steps are transitions.
    """
    model.eval()
    count = len(arrays_of(actions)[0])
    _, key_weight, _ = model.projections.weight.chunk(3)
    projected = key_weight.T @ queries.vectors.T / math.sqrt(model.options.units)  # (units, queries)
    credit = np.empty(count)
    for first in range(0, count, _STEPS_AT_A_TIME):
        part = np.arange(first, min(first + _STEPS_AT_A_TIME, count))
        padded = np.resize(part, max(len(part), _AT_LEAST))  # the same rows again
        seen, done, then = (
            None if nest is None else map_arrays(lambda array: as_tensor(np.asarray(array)[padded]).to(device), nest)  # noqa: B023
            for nest in (observations, actions, next_observations if model.options.transitions else None)
        )
        rows = Rows(seen, done, torch.zeros(len(padded), device=device))
        scores = model.encode_steps(rows, then) @ projected + queries.biases
        credit[part] = scores.clamp(max=0).exp().mean(1).cpu().numpy()[: len(part)]
    return np.round(credit, _DECIMALS)


class AttentionInspector:
    """Predictions and attention of a fitted model, one episode at a time."""

    def __init__(
        self, model: RewardPredictor, classes: RewardClasses, data: "Trajectories", device: torch.device
    ) -> None:
        self._model, self._device = model.eval(), device
        self._tokens = Tokens.of(data, classes)

    def probabilities(self, episode: int) -> NDArray[np.float32]:
        """(steps, class) how likely the reward of each step is of each class of the model."""
        steps = np.arange(int(self._tokens.lengths[episode]))
        return self._read(episode, steps, lambda rows: rows.logits.softmax(-1))

    def attention(self, episode: int, steps: NDArray[np.int64]) -> NDArray[np.float32]:
        """(rows, all steps) attention of some steps of an episode to the steps before them; rows sum to 1."""
        return self._read(episode, np.asarray(steps, np.int64), lambda rows: rows.attention)

    @torch.no_grad()
    def _read(
        self, episode: int, steps: NDArray[np.int64], wanted: Callable[[Prediction], Tensor]
    ) -> NDArray[np.float32]:
        batch = self._tokens.batch(np.array([episode]), self._device)
        encoded, parts = _encoded(self._model, batch.rows), []
        at_a_time = max(1, _PAIRS_AT_A_TIME // batch.index.numel())
        for first in range(0, len(steps), at_a_time):
            times = torch.from_numpy(steps[None, first : first + at_a_time]).to(self._device)
            prediction, _, _ = self._model.predict_rows(encoded, batch.index, times)
            parts.append(wanted(prediction)[0].cpu().numpy())
        return np.concatenate(parts)
