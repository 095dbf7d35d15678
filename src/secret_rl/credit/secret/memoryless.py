"""A predictor of rewards from the present step alone, and the weights that its errors give to steps."""

from collections.abc import Sequence
from copy import deepcopy
from typing import NamedTuple, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from secret_rl.credit.secret.group import ALONE, Group
from secret_rl.credit.secret.model import Dropout, StepEncoder
from secret_rl.credit.secret.options import ModelOptions
from secret_rl.credit.secret.tokens import Part, Rows, Tokens, taken
from secret_rl.encoders import Spec
from secret_rl.progress import Tick

_FOLDS = 2
_BATCH, _UPDATES, _VALIDATE_EVERY, _PATIENCE = 1024, 600, 50, 3
_JUDGED_STEPS = 1 << 13  # of a validation
_LEARNING_RATE, _WEIGHT_DECAY = 2e-3, 1e-2
_ROWS_AT_A_TIME = 1 << 14
_BETTER = 0.003  # share by which a loss must fall to be progress
_Drawn = tuple[NDArray[np.int64], NDArray[np.float32]]  # steps and their weights
_MOST_DRAWN = 50.0  # times the mean: how often an episode is drawn at most


class MemorylessPredictor(nn.Module):
    """Predicts the class of a reward from its own step alone."""

    def __init__(self, observation: Spec, action: Spec, classes: int, options: ModelOptions) -> None:
        super().__init__()
        self.dropout_rate = options.dropout_dense
        self.encoder = StepEncoder(observation, action, options)
        self.hidden = nn.Linear(options.units, options.units)
        self.head = nn.Linear(options.units, classes)

    def forward(self, rows: Rows, dropout: Dropout) -> Tensor:
        """(rows, class) logits."""
        x, _ = self.encoder(rows, dropout)
        return cast(Tensor, self.head(dropout(torch.relu(self.hidden(x)), self.dropout_rate)))


class Memoryless(nn.Module):
    """Predictors without memory, each fitted on the episodes that another one predicts."""

    def __init__(self, observation: Spec, action: Spec, classes: int, options: ModelOptions) -> None:
        super().__init__()
        models = [MemorylessPredictor(observation, action, classes, options) for _ in range(_FOLDS)]
        self.models = cast("Sequence[MemorylessPredictor]", nn.ModuleList(models))

    @torch.no_grad()
    def probabilities(
        self, tokens: Tokens, folds: NDArray[np.int64], device: torch.device, group: Group = ALONE
    ) -> NDArray[np.float32]:
        """(steps, class) by the predictor that was not fitted on the episode; their mean where fold is -1."""
        fold_of = np.repeat(folds, tokens.lengths)
        result = np.zeros((len(fold_of), self.models[0].head.out_features), np.float32)
        for number, model in enumerate(self.models):
            model.eval()
            share = np.where(fold_of == -1, 1 / len(self.models), fold_of == number).astype(np.float32)
            steps = np.flatnonzero(share)
            if not len(steps):
                continue
            distinct, inverse = steps, np.arange(len(steps))
            if tokens.ids is not None:
                _, first, inverse = np.unique(tokens.ids[steps], return_index=True, return_inverse=True)
                distinct = steps[first]
            found = np.zeros((len(distinct), result.shape[1]), np.float32)
            parts = np.array_split(
                np.arange(len(distinct)), -(-len(distinct) // tokens.at_a_time(_ROWS_AT_A_TIME, device))
            )
            own = [(part, distinct[part]) for part in group.share(parts)]
            read = tokens.ahead(lambda some: (some[0], tokens.rows(some[1], device)), own)
            for part, rows in read:
                found[part] = model(rows, Dropout(None)).softmax(-1).cpu().numpy()
            group.add_up_array(found)
            result[steps] += share[steps, None] * found[inverse]
        return result


def fit_memoryless(
    memoryless: Memoryless,
    tokens: Tokens,
    folds: NDArray[np.int64],
    seed: int,
    device: torch.device,
    tick: Tick,
    group: Group = ALONE,
) -> None:
    """Fit predictors without memory at natural frequencies, each on all ``folds`` (episodes,) but its own.

    Episodes of fold -1 are left out. Each stops where it predicts its own fold best.
    """
    fold_of = np.repeat(folds, tokens.lengths)
    counts = np.bincount(tokens.classes[fold_of >= 0], minlength=memoryless.models[0].head.out_features) + 0.5
    for number, model in enumerate(memoryless.to(device).models):
        with torch.no_grad():  # start as the best constant guess, to be never worse than that
            model.head.weight.zero_()
            model.head.bias.copy_(torch.from_numpy(np.log(counts / counts.sum())))
        train, judged = np.flatnonzero((fold_of >= 0) & (fold_of != number)), np.flatnonzero(fold_of == number)
        group.agree(model)
        _fit_one(model, tokens, train, judged, [seed, number], device, tick, group)


def folds_of(count: int, episodes: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """(count,) the fold of each of some episodes, -1 for all others."""
    folds = np.full(count, -1)
    folds[episodes] = np.random.default_rng([seed, 1]).permutation(len(episodes)) % _FOLDS
    return folds


def _fit_one(
    model: MemorylessPredictor,
    tokens: Tokens,
    train: NDArray[np.int64],
    held_out: NDArray[np.int64],
    seed: list[int],
    device: torch.device,
    tick: Tick,
    group: Group,
) -> None:
    rng = np.random.default_rng(seed)
    generator = torch.Generator(device).manual_seed(int(rng.integers(2**62)))
    judged, shares = _Sampler(tokens, held_out, _JUDGED_STEPS).draw(rng)
    optimiser = torch.optim.AdamW(model.parameters(), _LEARNING_RATE, weight_decay=_WEIGHT_DECAY)
    sampler = _Sampler(tokens, train, _BATCH)

    def read(drawn: _Drawn) -> tuple[_Drawn, Part | None, Rows]:
        """Those of some steps that are this process's."""
        (steps, weights), part = drawn, None
        if group.part is not None:
            own, weights = taken(weights, group.part)
            part, steps = Part.of(own, len(steps), own, len(steps), device), steps[own]
        return (steps, weights), part, tokens.rows(steps, device)

    def loss_of(drawn: _Drawn, part: Part | None, rows: Rows, generator: torch.Generator | None = None) -> Tensor:
        """Of this process's steps; what it drops is drawn for all of them."""
        classes, weights = tokens.classes[drawn[0]].astype(np.int64), drawn[1]
        wanted, shares = (torch.from_numpy(a).to(device) for a in (classes, weights))
        logits = model(rows, Dropout(generator, part=part))
        return (shares * nn.functional.cross_entropy(logits, wanted, reduction="none")).sum()

    @torch.no_grad()
    def validate() -> float:
        model.eval()
        parts = np.array_split(np.arange(len(judged)), -(-len(judged) // tokens.at_a_time(_ROWS_AT_A_TIME, device)))
        some = tokens.ahead(read, [(judged[part], shares[part]) for part in parts])
        total = np.array(sum(float(loss_of(*found)) for found in some))
        group.add_up_array(total)
        model.train()
        return float(total)

    tick("without memory", 0, _UPDATES)
    best, kept, waited = validate(), deepcopy(model.state_dict()), 0
    draws = (sampler.draw(rng) for _ in range(_UPDATES))
    for update, found in enumerate(tokens.ahead(read, draws), 1):
        loss = loss_of(*found, generator)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        group.add_up_gradients(model.parameters())
        optimiser.step()
        if update % _VALIDATE_EVERY == 0:
            now = validate()
            tick(f"without memory: loss {now:.4f}", update, _UPDATES)
            waited = 0 if now < best * (1 - _BETTER) else waited + 1
            if now < best:
                best, kept = now, deepcopy(model.state_dict())
            if waited >= _PATIENCE:
                break
    model.load_state_dict(kept)


class _Sampler:
    """Batches of steps with weights that make each an unbiased estimate of the mean over all.

    With a table, one step stands for all that hold the same pair and class. Half of a batch is drawn evenly from the
    classes, so that rare ones are seen. Few steps are taken all at once.
    """

    def __init__(self, tokens: Tokens, steps: NDArray[np.int64], size: int) -> None:
        counts = np.ones(len(steps), np.float32)
        if tokens.ids is not None:
            keys = tokens.ids[steps].astype(np.int64) * 2**15 + tokens.classes[steps]
            _, first, repeats = np.unique(keys, return_index=True, return_counts=True)
            steps, counts = steps[first], repeats.astype(np.float32)
        self.steps, self.counts, self.size = steps, counts, size
        classes = tokens.classes[steps]
        self.total = float(counts.sum(dtype=np.float64))
        present = [np.flatnonzero(classes == c) for c in np.unique(classes)]
        self.pools = [np.arange(len(steps)), *present]
        self.sums = [np.cumsum(counts[pool], dtype=np.float64) for pool in self.pools]
        self.sizes = [size // 2, *[size // 2 // len(present)] * len(present)]
        often = np.empty(len(steps))  # how often one of the steps that it stands for is in a batch
        for pool, sums, size in zip(self.pools[1:], self.sums[1:], self.sizes[1:], strict=True):
            often[pool] = size / sums[-1] + self.sizes[0] / self.total
        self.weights = (1 / (often * self.total)).astype(np.float32)

    def draw(self, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Steps and their weights."""
        if len(self.steps) <= self.size:
            return self.steps, self.counts / np.float32(self.total)
        parts = [
            pool[np.minimum(np.searchsorted(sums, rng.random(size) * sums[-1], side="right"), len(pool) - 1)]
            for pool, sums, size in zip(self.pools, self.sums, self.sizes, strict=True)
        ]
        drawn = np.concatenate(parts)
        return self.steps[drawn], self.weights[drawn]


class Residual(NamedTuple):
    """What the present leaves open, step by step."""

    error: NDArray[np.float32]
    """(steps,) 1 minus the probability of the reward's class, or of the bins next to it: the weight of the step."""
    guess: NDArray[np.float32]
    """(steps,) log-probability of the class by the best guess of the present, where steps weigh as ``error`` says."""

    @classmethod
    def of(cls, probabilities: NDArray[np.float32], classes: NDArray[np.int16], right: NDArray[np.float64]) -> Self:
        """Of the probabilities (steps, class) of a predictor without memory; ``right``: of classes as good as each.

        A class of probability p weighs p (1 - p) among all there is at such a step.
        """
        rows = np.arange(len(classes))
        share = probabilities.astype(np.float64) * (1 - right) + 1e-12
        share /= share.sum(1, keepdims=True)
        error, guess = 1 - right[rows, classes], np.log(share[rows, classes])
        return cls(error.astype(np.float32), guess.astype(np.float32))


def calibration(probabilities: NDArray[np.float32], classes: NDArray[np.int16], bins: int = 10) -> float | None:
    """The expected calibration error: how far probabilities are from the frequencies they stand for, on average."""
    p = probabilities.astype(np.float64).ravel()
    hit = (np.arange(probabilities.shape[1]) == classes[:, None]).ravel()
    which = np.minimum((p * bins).astype(int), bins - 1)
    predicted, happened = (np.bincount(which, weights=values, minlength=bins) for values in (p, hit))
    return float(np.abs(predicted - happened).sum() / len(classes)) if len(classes) else None


def drawing(
    weights: NDArray[np.float32], offsets: NDArray[np.int64]
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Weights of the loss where episodes are drawn in proportion to theirs, and these proportions (episodes,).

    An episode that is drawn more often counts less each time; a cap keeps one from filling whole batches.
    """
    sums = np.add.reduceat(weights.astype(np.float64), offsets[:-1])
    draw = np.minimum(sums, _MOST_DRAWN * sums.mean()) if sums.any() else np.ones_like(sums)
    draw = np.maximum(draw, 1e-12 * draw.max())
    return (weights / np.repeat(draw, np.diff(offsets))).astype(np.float32), draw
