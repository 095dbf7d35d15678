"""How well rewards can be predicted without the past: what attention has to beat before it is called credit."""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from secret_rl.credit.measures import Confusion
from secret_rl.credit.model import RewardPredictor
from secret_rl.credit.options import TrainingOptions, Weights
from secret_rl.credit.tokens import Tokens
from secret_rl.credit.training import Trainer
from secret_rl.progress import Tick

_BATCH, _ROUND, _ROUNDS = 1024, 300, 12
_PASSES = 20  # over few data, a round of so many is enough, but not less than a third of a long one
_PATIENCE = 2  # rounds without a better validation accuracy after which it has learned what it can
_BETTER = 0.005  # by so much
_ZEROS = 4  # steps without a reward that it sees for each step with one


def best_without_past(
    model: RewardPredictor,
    tokens: Tokens,
    train: NDArray[np.int64],
    validation: NDArray[np.int64],
    weights: Weights,
    options: TrainingOptions,
    seed: int,
    device: torch.device,
    tick: Tick,
) -> Confusion:
    """The best predictions of the steps ``validation`` by a model to which every step is an episode of its own.

    It is trained on the steps ``train`` until it stops improving, so that the past gets no credit for what patience
    alone would find.
    """
    rng = np.random.default_rng(seed)
    alone = replace(tokens, offsets=np.arange(len(tokens.rewards) + 1))
    train, share = _mostly_rewarded(tokens, train, rng)
    validation, _ = _mostly_rewarded(tokens, validation, rng)
    weights = weights._replace(zero=weights.zero / share)  # as if all steps without a reward were there
    updates = min(max(_PASSES * len(train) // _BATCH, _ROUND // 3, 1), _ROUND)
    options = replace(options, steps=updates * _ROUNDS, batch_size=_BATCH, warmup=30, looking_cost=0.0)
    trainer = Trainer(model, alone, train, weights, options, seed, device)
    best, waited = trainer.evaluate(validation).confusion, 0
    for number in range(_ROUNDS):
        trainer.train(updates)
        now = trainer.evaluate(validation).confusion
        waited = 0 if now.balanced_accuracy > best.balanced_accuracy + _BETTER else waited + 1
        best = max(best, now, key=lambda confusion: confusion.balanced_accuracy)
        tick(f"without the past: accuracy {now}", number + 1, _ROUNDS)
        if waited >= _PATIENCE:
            break
    return best


def _mostly_rewarded(
    tokens: Tokens, rows: NDArray[np.int64], rng: np.random.Generator
) -> tuple[NDArray[np.int64], float]:
    """Of some steps, all with a reward and a few of the others, and which share of the others that is."""
    rewarded = tokens.rewards[rows] != 0
    others = rows[~rewarded]
    wanted = min(len(others), max(_ZEROS * int(rewarded.sum()), _BATCH))
    chosen = rng.choice(others, wanted, replace=False)
    return np.sort(np.concatenate([rows[rewarded], chosen])), wanted / len(others) if len(others) else 1.0
