"""Small networks from an observation to one number, and their regression on means over visits.

PyTorch is imported here, and this module only where a network is needed: other potentials do without.
"""

import math
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from secret_rl.encoders import Flat, as_tensor, observation_encoder, standardise
from secret_rl.progress import Tick
from secret_rl.trajectories.nested import map_arrays, row_count
from secret_rl.trajectories.spaces import to_json

_FILTERS = (16, 32, 32)
_SMALLEST = 16  # shorter side of a picture; in smaller ones, grids, places count more than shapes
_FARTHEST = 10.0  # standard deviations; numbers beyond what was learned on would have the network say anything
_LEARNING_RATE, _BATCH_SIZE = 3e-3, 512
_ROWS_AT_A_TIME = 4096
_CHECKS = 20  # evaluations on validation episodes in a training
# One observation alone and among others get the same answer, to the bit: sums of products are rounded otherwise in
# other company, but in 64 bits so little that cutting off decimals hides it, all but never excepted.
_DECIMALS = 9


def build_network(space: gym.Space[Any], units: int) -> nn.Sequential:
    """(rows, ...) of a space -> (rows, 1)"""
    encoder = observation_encoder(to_json(space), units, _FILTERS, clip=_FARTHEST, smallest=_SMALLEST)
    return nn.Sequential(encoder, nn.Linear(units, units), nn.ReLU(), nn.Linear(units, 1))


def load_network(space: gym.Space[Any], units: int, arrays: dict[str, NDArray[Any]]) -> nn.Sequential:
    """A network of weights that were saved."""
    with torch.device("meta"):  # takes no memory, whatever sizes a file claims
        network = build_network(space, units).double().eval()
    network.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()}, assign=True)
    return network


@torch.no_grad()
def answers(network: nn.Sequential, rows: Any) -> NDArray[np.float64]:
    """(rows,) of a network in 64 bits, rounded: the same for a row whatever its company."""
    count = row_count(rows)
    found = np.empty(count)
    for first in range(0, count, _ROWS_AT_A_TIME):
        part = np.arange(first, min(first + _ROWS_AT_A_TIME, count))
        found[part] = network(_tensors(rows, np.resize(part, max(len(part), 2))))[: len(part), 0].numpy()
    return np.round(found, _DECIMALS)


def _tensors(rows: Any, chosen: NDArray[np.int64] | slice = slice(None)) -> Any:
    return map_arrays(lambda array: as_tensor(np.asarray(array)[chosen]), rows)


def regress(
    space: gym.Space[Any],
    units: int,
    rows: Any,
    targets: NDArray[np.float64],
    weights: NDArray[np.float64],
    error: Callable[[nn.Sequential], float] | None,
    tick: Tick,
    steps: int,
    seed: int,
) -> tuple[nn.Sequential, int]:
    """A network with the least weighted squared error on distinct rows, and the number of updates it had.

    With ``error``, which is evaluated now and then, the network with the least of that is kept.
    """
    order = np.random.default_rng(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = build_network(space, units)
    standardise(network, _tensors(rows))
    boxes = [part for part in network.modules() if isinstance(part, Flat) and part.spec["type"] == "Box"]
    for box in boxes:  # grids of bits, most of them rare, stay as they are
        if len(box.spec["shape"]) > 1 and (box.spec["low"], box.spec["high"]) == (0, 1):
            box.mean.zero_()
            box.scale.fill_(1.0)
    goals, importance = (torch.from_numpy(numbers).float() for numbers in (targets, weights / weights.mean()))
    whole = len(targets) <= _BATCH_SIZE
    chosen, inputs = np.arange(len(targets)), _tensors(rows) if whole else None
    optimiser = torch.optim.Adam(network.parameters(), _LEARNING_RATE)
    warm_up = max(1, steps // 20)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda i: min((i + 1) / warm_up, 0.5 + 0.5 * math.cos(math.pi * min(i / steps, 1.0)))
    )
    best, kept, least = network.state_dict(), steps, math.inf
    for number in range(1, steps + 1):
        if not whole:
            chosen = order.choice(len(targets), _BATCH_SIZE, replace=False)
            inputs = _tensors(rows, chosen)
        loss = (importance[chosen] * (network(inputs)[:, 0] - goals[chosen]) ** 2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if error is not None and (number % max(1, steps // _CHECKS) == 0 or number == steps):
            found = error(network)
            if found < least:
                best = {name: value.clone() for name, value in network.state_dict().items()}
                kept, least = number, found
        if number % 50 == 0 or number == steps:
            tick(f"error {float(loss.detach()):.3g}", number, steps)
    network.load_state_dict(best)
    return network.double().eval(), kept
