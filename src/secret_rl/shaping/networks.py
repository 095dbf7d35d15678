"""Small networks from an observation to one number, and their regression on means over visits.

PyTorch is imported here, and this file only where a network is needed: other potentials do without.
"""

import math
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from secret_rl.progress import Tick
from secret_rl.trajectories.nested import map_arrays, map_leaves, row_count

_SMALL = 16  # pictures with a shorter side than this are read as they are, larger ones through convolutions
_FILTERS = (16, 32, 32, 32)
_ROWS_AT_A_TIME = 4096
_FARTHEST = 10.0  # standard deviations; numbers beyond what was learned on would have the network say anything
_CHECKS = 20  # evaluations on validation episodes in a training
# One observation alone and among others get the same answer, to the bit: sums of products are rounded otherwise in
# other company, but in 64 bits so little that cutting off decimals hides it, all but never excepted.
_DECIMALS = 9


class PotentialNetwork(nn.Module):
    """(rows, ...) of a space -> (rows,)"""

    def __init__(self, space: gym.Space[Any], units: int) -> None:
        super().__init__()
        self.space, self.units = space, units
        self.encoder, size = _encoder(space, units)
        self.head = nn.Sequential(
            nn.Linear(size, units), nn.ReLU(), nn.Linear(units, units), nn.ReLU(), nn.Linear(units, 1)
        )

    def forward(self, rows: Any) -> Tensor:
        """Nest of (rows, ...) -> (rows,)"""
        numbers: Tensor = self.head(self.encoder(rows).to(self.head[0].weight.dtype))
        return numbers[:, 0]

    @torch.no_grad()
    def answers(self, rows: Any) -> NDArray[np.float64]:
        """(rows,) of a network in 64 bits, rounded: the same for a row whatever its company."""
        count = row_count(rows)
        found = np.empty(count)
        for first in range(0, count, _ROWS_AT_A_TIME):
            part = np.arange(first, min(first + _ROWS_AT_A_TIME, count))
            some = map_arrays(lambda array: array[np.resize(part, max(len(part), 2))], rows)  # noqa: B023
            found[part] = self(as_tensors(self.space, some)).numpy()[: len(part)]
        return np.round(found, _DECIMALS)


def as_tensors(space: gym.Space[Any], rows: Any) -> Any:
    """Rows of a space as tensors: bytes and floats as they are, other boxes in 64 bits, choices as whole numbers."""

    def tensor(leaf: gym.Space[Any], array: Any) -> Tensor:
        array = np.ascontiguousarray(array)
        if not isinstance(leaf, spaces.Box):
            array = array.astype(np.int64)
        elif array.dtype not in (np.uint8, np.float32, np.float64):
            array = array.astype(np.float64)
        return torch.from_numpy(array if array.flags.writeable else array.copy())

    return map_leaves(tensor, space, rows)


def _encoder(space: gym.Space[Any], units: int) -> tuple[nn.Module, int]:
    """A module from rows of a space to (rows, size), and the size."""
    if isinstance(space, spaces.Dict):
        return _joined(dict(space.spaces), units)
    if isinstance(space, spaces.Tuple):
        return _joined(dict(enumerate(space.spaces)), units)
    if isinstance(space, spaces.Discrete):
        return _Numbered(int(space.n), int(space.start), units), units
    if isinstance(space, spaces.MultiDiscrete):
        return _Choices(space), int(space.nvec.sum())
    if isinstance(space, spaces.MultiBinary):
        return _Flat(), math.prod(space.shape)
    if not isinstance(space, spaces.Box):
        raise TypeError(
            f"{space} is not supported: expected Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of those"
        )
    if len(space.shape) in (2, 3) and min(space.shape[:2]) >= _SMALL:
        picture = _Picture(space)
        return picture, picture.size
    size = math.prod(space.shape)
    return (_Flat(_brightness(space)) if len(space.shape) > 1 else _Standardised(size)), size


def _joined(parts: dict[Any, gym.Space[Any]], units: int) -> tuple[nn.Module, int]:
    encoders = {key: _encoder(part, units) for key, part in parts.items()}
    return _Joined({key: encoder for key, (encoder, _) in encoders.items()}), sum(n for _, n in encoders.values())


class _Joined(nn.Module):
    """The parts of a Dict or Tuple, end to end."""

    def __init__(self, encoders: dict[Any, nn.Module]) -> None:
        super().__init__()
        self.keys, self.encoders = list(encoders), nn.ModuleList(encoders.values())

    def forward(self, rows: Any) -> Tensor:
        parts = [encoder(rows[key]) for key, encoder in zip(self.keys, self.encoders, strict=True)]
        return torch.cat([part.to(parts[0].dtype) for part in parts], 1)


class _Numbered(nn.Module):
    """A row of its own for each element of a Discrete space."""

    def __init__(self, n: int, start: int, units: int) -> None:
        super().__init__()
        self.start = start
        self.table = nn.Embedding(n, units)
        with torch.no_grad():
            self.table.weight.mul_(0.1)  # what is never seen says little

    def forward(self, rows: Tensor) -> Tensor:
        numbers: Tensor = self.table(rows - self.start)
        return numbers


class _Choices(nn.Module):
    """A one for each of several choices."""

    first: Tensor

    def __init__(self, space: spaces.MultiDiscrete) -> None:
        super().__init__()
        sizes = space.nvec.ravel().astype(np.int64)
        self.total = int(sizes.sum())
        self.register_buffer("first", torch.from_numpy(np.cumsum(sizes) - sizes - space.start.ravel()))

    def forward(self, rows: Tensor) -> Tensor:
        flat = rows.reshape(len(rows), -1) + self.first
        return torch.zeros(len(rows), self.total).scatter_(1, flat, 1.0)


class _Flat(nn.Module):
    """Numbers end to end, times a factor."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, rows: Tensor) -> Tensor:
        return rows.reshape(len(rows), -1) * self.factor


class _Standardised(nn.Module):
    """Vectors with the mean and the spread of what was learned on taken out."""

    mean: Tensor
    spread: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("spread", torch.ones(size, dtype=torch.float64))

    def fit(self, rows: Tensor) -> None:
        """To distinct rows, before training."""
        flat = rows.reshape(len(rows), -1).double()
        spread = flat.std(0, correction=0)
        self.mean.copy_(flat.mean(0))
        self.spread.copy_(torch.where(spread > 1e-9, spread, torch.ones_like(spread)))

    def forward(self, rows: Tensor) -> Tensor:
        numbers = (rows.reshape(len(rows), -1).double() - self.mean) / self.spread
        return numbers.clamp(-_FARTHEST, _FARTHEST)


class _Picture(nn.Module):
    """3x3 convolutions that halve a picture (height, width[, channels]) until it is small."""

    def __init__(self, space: spaces.Box) -> None:
        super().__init__()
        self.shape = (*space.shape, 1)[:3]
        self.factor = _brightness(space)
        height, width, channels = self.shape
        layers: list[nn.Module] = []
        for filters in _FILTERS:
            layers += [nn.Conv2d(channels, filters, 3, stride=2, padding=1), nn.ReLU()]
            height, width, channels = (height + 1) // 2, (width + 1) // 2, filters
            if min(height, width) < _SMALL:
                break
        self.layers = nn.Sequential(*layers)
        self.size = height * width * channels

    def forward(self, rows: Tensor) -> Tensor:
        planes = rows.reshape(len(rows), *self.shape).permute(0, 3, 1, 2).to(next(self.parameters()).dtype)
        features: Tensor = self.layers(planes * self.factor)
        return features.flatten(1)


def _brightness(space: spaces.Box) -> float:
    """What brings pictures to at most 1: those of bytes from 0 to 255; 0 and 1 are kept."""
    largest = float(max(np.abs(space.low).max(), np.abs(space.high).max())) if math.prod(space.shape) else 1.0
    return 1.0 / largest if math.isfinite(largest) and largest > 1 else 1.0


def standardise(module: nn.Module, rows: Any) -> None:
    """Fit what looks at vectors to distinct rows."""
    if isinstance(module, _Joined):
        for key, encoder in zip(module.keys, module.encoders, strict=True):
            standardise(encoder, rows[key])
    elif isinstance(module, _Standardised):
        module.fit(rows)


def regress(
    space: gym.Space[Any],
    rows: Any,
    targets: NDArray[np.float64],
    weights: NDArray[np.float64],
    *,
    error: Callable[["PotentialNetwork"], float] | None,
    units: int,
    steps: int,
    learning_rate: float,
    batch_size: int,
    seed: int,
    tick: Tick,
) -> tuple[PotentialNetwork, int]:
    """A network with the least squared error on distinct rows, and the number of updates it had.

    With ``error``, which is asked now and then, it is the one with the least of that.
    """
    order = np.random.default_rng(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = PotentialNetwork(space, units)
    standardise(network.encoder, as_tensors(space, rows))
    goals, importance = (torch.from_numpy(numbers).float() for numbers in (targets, weights / weights.mean()))
    whole = as_tensors(space, rows) if len(targets) <= batch_size else None
    optimiser = torch.optim.Adam(network.parameters(), learning_rate)
    warm_up = max(1, steps // 20)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda i: min((i + 1) / warm_up, 0.5 + 0.5 * math.cos(math.pi * min(i / steps, 1.0)))
    )
    best, kept, least = network.state_dict(), steps, math.inf
    for number in range(1, steps + 1):
        if whole is None:
            chosen = order.choice(len(targets), batch_size, replace=False)
            some = as_tensors(space, map_arrays(lambda array: array[chosen], rows))  # noqa: B023
            loss = (importance[chosen] * (network(some) - goals[chosen]) ** 2).mean()
        else:
            loss = (importance * (network(whole) - goals) ** 2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if error is not None and (number % max(1, steps // _CHECKS) == 0 or number == steps):
            found = error(network)
            if found < least:
                best = {name: value.clone() for name, value in network.state_dict().items()}
                kept, least = number, found
            tick(f"validation error {found:.3g}", number, steps)
        elif number % 50 == 0 or number == steps:
            tick(f"error {float(loss.detach()):.3g}", number, steps)
    network.load_state_dict(best)
    return network.double().eval(), kept
