"""Training of the credit model: ours beside the same model built in the ordinary way; ``fit_gpu`` is about GPUs."""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.bounds import flop_of, gemm_peak
from benchmarks.results_file import Row, interleaved, write
from secret_rl.credit.reward_classes import RewardClasses
from secret_rl.credit.secret.model import RewardPredictor
from secret_rl.credit.secret.options import PAPER_WEIGHTS, ModelOptions, TrainingOptions
from secret_rl.credit.secret.tokens import Tokens
from secret_rl.credit.secret.training import Trainer

EPISODES = 4000
DATA_SEED = 0
MODEL_SEED = 0
BATCH = 64
ROUNDS = 7
UNITS, FILTERS, ACTIONS, CLASSES = ModelOptions().units, 32, 4, 3
OBSERVATION = {"type": "Box", "low": 0, "high": 1, "shape": [3, 3, 3], "dtype": "uint8"}
ACTION = {"type": "Discrete", "n": ACTIONS, "start": 0, "dtype": "int64"}


def run() -> None:
    """Measure the contenders in turn, one pass over the data each per round, and write the medians down."""
    import secret_rl as srl

    torch.set_num_threads(1)
    data = srl.collect(
        "secret_rl/Triggers-v0",
        EPISODES,
        seed=DATA_SEED,
        success_share=0.25,
        env_options={"triggers": 3, "prizes": 1},
    )
    shared = weighted(Tokens.of(data, RewardClasses.of(np.asarray(data.rewards))))
    first = np.zeros(data.steps, np.bool_)
    first[shared.offsets[:-1]] = True
    every_step = Tokens(data.observations, data.actions, first, None, shared.offsets, shared.classes, shared.weights)
    ours = "ours: equal steps encoded once"
    unshared = "ours, but every step encoded by itself"
    peer = "nn.Conv2d + nn.TransformerEncoderLayer"
    measured = interleaved(
        {
            ours: our_training(shared),
            unshared: our_training(every_step),
            peer: peer_training(every_step),
        },
        ROUNDS,
    )
    sizes = [(len(part), int(shared.lengths[part].max())) for part in batches_of_pass(shared, 0)]
    padded = sum(episodes * forward_backward_flop(steps) for episodes, steps in sizes) / EPISODES
    peak, flop = gemm_peak(), {name: our_flop(tokens) for name, tokens in ((ours, shared), (unshared, every_step))}
    flop[peer] = padded
    rows = [
        Row(name, speed, "sequences/s", bound=peak / flop[name], bound_by="products alone, at the GEMM peak")
        for name, speed in measured.items()
    ]
    rows += [
        Row(f"ours over {peer}", measured[ours] / measured[peer], "x", ">= 2x"),
        Row(f"ours over {unshared.removeprefix('ours, but ')}", measured[ours] / measured[unshared], "x"),
        Row(f"{peer}: counted work, 50 steps", forward_backward_flop(50) / 1e6, "MFLOP/sequence"),
        Row(f"{peer}: in these batches, padded", padded / 1e6, "MFLOP/sequence"),
        Row("ours: counted work, in these batches", flop[ours] / 1e6, "MFLOP/sequence"),
        *(
            Row(f"{name}: done", flop[name] * measured[name] / 1e9, "GFLOP/s", bound=peak / 1e9, bound_by="GEMM peak")
            for name in measured
        ),
    ]
    write("training", f"Training the credit model, 3T1P, batches of {BATCH}, dropout on, one core", rows)


def batches_of_pass(tokens: Tokens, number: int) -> list[NDArray[np.int64]]:
    """Batches of episodes of like length, as ``Trainer`` makes them, of pass ``number`` over all episodes."""
    return tokens.by_length(np.arange(len(tokens)), BATCH, np.random.default_rng([MODEL_SEED, number]))


def weighted(tokens: Tokens) -> Tokens:
    """With the paper's weights: what an update costs does not depend on them."""
    weights = np.array(PAPER_WEIGHTS)[tokens.classes] / np.repeat(tokens.lengths, tokens.lengths)
    return tokens.weighted(weights.astype(np.float32))


def our_trainer(tokens: Tokens) -> Trainer:
    """A trainer of a new model."""
    torch.manual_seed(MODEL_SEED)
    model = RewardPredictor(OBSERVATION, ACTION, CLASSES, ModelOptions())
    options, evenly = TrainingOptions(batch_size=BATCH), np.ones(len(tokens))
    return Trainer(model, tokens, np.arange(len(tokens)), evenly, options, MODEL_SEED, torch.device("cpu"))


def our_flop(tokens: Tokens) -> float:
    """Operations of the products in an update, per sequence, on average over a pass."""
    trainer, updates = our_trainer(tokens), len(batches_of_pass(tokens, 0))
    return flop_of(lambda: trainer.train(updates)) / (updates * trainer.batch_size)


def our_training(tokens: Tokens) -> Callable[[], float]:
    """Sequences per second of as many updates of ``Trainer`` as a pass has, the making of batches included."""
    trainer = our_trainer(tokens)
    updates = len(batches_of_pass(tokens, 0))
    trainer.train(updates)  # pass 0 warms up

    def measure() -> float:
        start = time.process_time()
        trainer.train(updates)
        return len(tokens) / (time.process_time() - start)

    return measure


class OrdinaryPredictor(nn.Module):
    """The credit model as one builds it from the modules of PyTorch: every step of a padded batch is encoded.

    It is the same model but for these differences:

    - ``nn.TransformerEncoderLayer`` has an output projection, a second position-wise layer and a second normalisation,
      which ours leaves out: a third more products per step.
    - It drops attention weights (0.2) and what each of its two blocks adds; ours hides whole steps as often.
    - Ours has a sink beside the steps to attend to, does not attend to its own step, gates what it gathers, and knows
      distances instead of positions.
    - Ours draws the dropout of dense layers before steps are gathered, so equal steps of a batch share a mask, and
      draws a byte per entry. The contender that encodes every step by itself draws a mask for each, as here.
    """

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, FILTERS, 3)
        self.dense = nn.Linear(FILTERS, UNITS)
        self.join = nn.Linear(UNITS + ACTIONS, UNITS)
        self.layer = nn.TransformerEncoderLayer(
            d_model=UNITS, nhead=1, dim_feedforward=UNITS, dropout=0.2, batch_first=True
        )
        self.head = nn.Linear(UNITS, CLASSES)
        self.dropout = nn.Dropout(0.1)
        self.register_buffer("positions", positions(50))

    def forward(self, observations: Tensor, actions: Tensor, hidden: Tensor) -> Tensor:
        """(batch, time, channel, 3, 3) and (batch, time, action) -> (batch, time, class)

        ``hidden`` (query, key) is the causal mask. Padding stands last, so that no step sees it.
        """
        seen = torch.relu(self.convolution(observations.flatten(0, 1))).flatten(1)  # (batch * time, filters)
        seen = self.dropout(torch.relu(self.dense(seen)))
        joined = torch.cat([seen, actions.flatten(0, 1)], 1)
        x = self.dropout(torch.relu(self.join(joined))).unflatten(0, actions.shape[:2])  # (batch, time, units)
        x = x * UNITS**0.5 + self.positions[: x.shape[1]]
        return self.head(self.layer(x, src_mask=hidden, is_causal=True))


def positions(count: int) -> Tensor:
    """(count, units) sines and cosines."""
    angles = torch.arange(count)[:, None] / 10_000 ** (torch.arange(0, UNITS, 2) / UNITS)
    return torch.cat([angles.sin(), angles.cos()], 1)


class PaddedBatch(NamedTuple):
    """Everything the ordinary model needs of a batch, in the form in which it computes with it."""

    observations: Tensor
    """(batch, time, channel, 3, 3) float"""
    actions: Tensor
    """(batch, time, action) one-hot, float"""
    classes: Tensor
    """(batch, time)"""
    shares: Tensor
    """(batch, time) what each step counts, 0 for padding"""
    hidden: Tensor
    """(time, time) causal mask"""


def padded_batches(tokens: Tokens, number: int) -> Iterator[PaddedBatch]:
    """The batches of pass ``number``, the same as ours, padded to the longest episode of each."""
    for episodes in batches_of_pass(tokens, number):
        batch = tokens.batch(episodes)
        time_steps = batch.index.shape[1]
        yield PaddedBatch(
            observations=batch.rows.observations[batch.index].permute(0, 1, 4, 2, 3).float().contiguous(),
            actions=nn.functional.one_hot(batch.rows.actions[batch.index].long(), ACTIONS).float(),
            classes=batch.classes,
            shares=batch.weights / len(episodes),
            hidden=nn.Transformer.generate_square_subsequent_mask(time_steps),
        )


def ordinary_loss(model: OrdinaryPredictor, batch: PaddedBatch) -> Tensor:
    """The weighted loss of ours, without the price of looking back."""
    logits = model(batch.observations, batch.actions, batch.hidden)
    losses = nn.functional.cross_entropy(logits.flatten(0, 1), batch.classes.flatten(), reduction="none")
    return (losses * batch.shares.flatten()).sum()


def peer_training(tokens: Tokens) -> Callable[[], float]:
    """Sequences per second of one pass of the ordinary model; its batches are made before the clock starts."""
    torch.manual_seed(MODEL_SEED)
    model = OrdinaryPredictor()
    defaults = TrainingOptions()
    optimiser = torch.optim.AdamW(model.parameters(), lr=defaults.learning_rate, weight_decay=defaults.weight_decay)
    number = 0

    def measure() -> float:
        nonlocal number
        batches = list(padded_batches(tokens, number))
        number += 1
        start = time.process_time()
        for batch in batches:
            optimiser.zero_grad(set_to_none=True)
            ordinary_loss(model, batch).backward()
            optimiser.step()
        return len(tokens) / (time.process_time() - start)

    measure()  # pass 0 warms up
    return measure


def forward_backward_flop(time_steps: int) -> float:
    """Operations of the products in an update of ``OrdinaryPredictor``, per sequence; ``FlopCounterMode`` agrees."""
    # Multiplications with an addition, per step:
    #   convolution            27 entries of the window * filters
    #   dense                  filters * units
    #   join                   (units + actions) * units
    #   query, key, value      3 * units^2
    #   output projection      units^2
    #   position-wise layers   2 * units^2
    #   head                   units * classes
    #   scores, mixing         2 * time * units
    # Each is 2 operations forward and 4 backward (towards the input and towards the weights); the convolution's
    # input needs no gradient, so it has 2 backward.
    after_convolution = (
        FILTERS * UNITS + (UNITS + ACTIONS) * UNITS + 6 * UNITS**2 + UNITS * CLASSES + 2 * time_steps * UNITS
    )
    return time_steps * (6 * after_convolution + 4 * 27 * FILTERS)
