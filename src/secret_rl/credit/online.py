"""Credit of a step as it happens: how much rewards of the source would attend to it.

A reward is not there yet when the step that will earn it is taken. But what rewards look for is known from the
source: their queries q, and the logarithms log Z of what their attention was normalised with. A new step with key k
would get the share exp(<q, k> / sqrt(d) + b - log Z) of such a reward. Its distance is taken to be that of the steps
which the query attended to in the source, whose mean bias is b: the credit depends on the step alone and costs the
same whatever came before.
"""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from secret_rl.credit.classes import RewardClasses
from secret_rl.credit.model import Dropout, RewardPredictor
from secret_rl.credit.tokens import Rows, Tokens, arrays_of, as_tensor, map_nest

if TYPE_CHECKING:
    from secret_rl.trajectories import Trajectories

_QUERIES = 256
_STEPS_AT_A_TIME = 1 << 13
# One step alone and among others get the same credit, to the bit: products of few rows are rounded otherwise than
# those of many, which cutting off decimals does not hide where a number lies between two.
_AT_LEAST, _DECIMALS = 8, 6


class Queries(NamedTuple):
    """What positive rewards of the source looked for."""

    vectors: Tensor
    """(queries, units)"""
    biases: Tensor
    """(queries,) what its place adds to the score of a step, less the log-normaliser."""

    def check(self, units: int) -> None:
        """An error where they do not fit a model of so many units."""
        shapes = tuple(self.vectors.shape), tuple(self.biases.shape)
        floats = self.vectors.dtype == self.biases.dtype == torch.float32
        if not (floats and len(self.biases.shape) == 1 and len(self.biases) and shapes[0] == (*shapes[1], units)):
            raise ValueError(f"queries of shapes {shapes} do not fit {units} units")


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
    at_a_time = max(1, _STEPS_AT_A_TIME // int(tokens.lengths.max()))
    found: list[Queries] = []
    for first in range(0, len(order), at_a_time):
        part = slice(first, first + at_a_time)
        found.append(_queries_of(model, tokens, episodes[part], order[part] - tokens.offsets[episodes[part]], device))
        if sum(len(queries.biases) for queries in found) >= _QUERIES:
            break
    joined = [torch.cat(column)[:_QUERIES] for column in zip(*found, strict=True)]
    return Queries(*joined) if joined and len(joined[0]) else None


def _queries_of(
    model: RewardPredictor,
    tokens: Tokens,
    episodes: NDArray[np.int64],
    steps: NDArray[np.int64],
    device: torch.device,
) -> Queries:
    """Of the rewards at these steps (one per episode given), those predicted correctly."""
    batch = tokens.batch(episodes, device)
    encoded = model.prepare(model.encode(batch.rows, Dropout(None)))
    times = torch.from_numpy(steps).to(device)[:, None]
    prediction, row_x, _ = model.predict_rows(encoded, batch.index, times)
    wanted = batch.classes.gather(1, times)[:, 0]
    # a first step has no past to look for
    kept = (prediction.logits[:, 0].argmax(-1) == wanted) & (times[:, 0] > 0)
    query_weight = model.projections.weight[: model.options.units]
    vectors = nn.functional.linear(row_x[:, 0], query_weight)[kept]
    attention = prediction.attention[kept, 0]  # (queries, time)
    distance = times[kept] - torch.arange(attention.shape[1], device=device)
    normalisers = prediction.scores[kept, 0, 1:].logsumexp(-1)
    return Queries(vectors, (attention * model.bias(distance)).sum(-1) - normalisers)


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
    looked_for = key_weight.T @ queries.vectors.T / math.sqrt(model.options.units)  # (units, queries)
    credit = np.empty(count)
    for first in range(0, count, _STEPS_AT_A_TIME):
        part = np.arange(first, min(first + _STEPS_AT_A_TIME, count))
        padded = np.resize(part, max(len(part), _AT_LEAST))  # the same rows again
        seen, done, then = (
            None if nest is None else map_nest(lambda array: as_tensor(np.asarray(array)[padded]).to(device), nest)  # noqa: B023
            for nest in (observations, actions, next_observations if model.options.transitions else None)
        )
        rows = Rows(seen, done, torch.zeros(len(padded), device=device))
        scores = model.encode_steps(rows, then) @ looked_for + queries.biases
        credit[part] = scores.clamp(max=0).exp().mean(1).cpu().numpy()[: len(part)]
    return np.round(credit, _DECIMALS)
