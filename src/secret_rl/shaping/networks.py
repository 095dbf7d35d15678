"""Small networks from an observation to one number: their regression on means over visits, and their files.

PyTorch is imported here, and this module only where a network is needed: other potentials do without.
"""

import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from secret_rl.encoders import Flat, as_tensor, observation_encoder, standardise
from secret_rl.files import FileFormat, finite_number, whole_number
from secret_rl.progress import Tick
from secret_rl.shaping.learned import Features, LearnedPotential, LearningReport
from secret_rl.trajectories.nested import arrays_of, map_arrays
from secret_rl.trajectories.spaces import BUDGET, from_json, to_json

_FILTERS = (16, 32, 32)
_SMALLEST = 16  # shorter side of a picture; in smaller ones, grids, places count more than shapes
_FARTHEST = 10.0  # standard deviations; numbers beyond what was learned on would have the network say anything
_ROWS_AT_A_TIME = 4096
_CHECKS = 20  # evaluations on validation episodes in a training
# One observation alone and among others get the same answer, to the bit: sums of products are rounded otherwise in
# other company, but in 64 bits so little that cutting off decimals hides it, all but never excepted.
_LARGEST = 1e9  # of a weight in a file
_DECIMALS = 9
FORMAT = FileFormat("secret-rl learned potential", remedy="restore it or learn the potential again")


class PotentialNetwork(nn.Module):
    """(rows, ...) of a space -> (rows,)"""

    def __init__(self, space: gym.Space[Any], units: int) -> None:
        super().__init__()
        self.space, self.units = space, units
        self.encoder = observation_encoder(to_json(space), units, _FILTERS, clip=_FARTHEST, smallest=_SMALLEST)
        self.head = nn.Sequential(nn.Linear(units, units), nn.ReLU(), nn.Linear(units, 1))

    @torch.no_grad()
    def standardise(self, rows: Any) -> None:
        """Fit the scale of numbers to distinct rows; grids of bits, in which most are rare, stay as they are."""
        standardise(self.encoder, rows)
        boxes = [part for part in self.encoder.modules() if isinstance(part, Flat) and part.spec["type"] == "Box"]
        for box in boxes:
            if len(box.spec["shape"]) > 1 and (box.spec["low"], box.spec["high"]) == (0, 1):
                box.mean.zero_()
                box.scale.fill_(1.0)

    def forward(self, rows: Any) -> Tensor:
        """Nest of (rows, ...) -> (rows,)"""
        numbers: Tensor = self.head(self.encoder(rows))
        return numbers[:, 0]

    @torch.no_grad()
    def answers(self, rows: Any) -> NDArray[np.float64]:
        """(rows,) of a network in 64 bits, rounded: the same for a row whatever its company."""
        count = len(arrays_of(rows)[0])
        found = np.empty(count)
        for first in range(0, count, _ROWS_AT_A_TIME):
            part = np.arange(first, min(first + _ROWS_AT_A_TIME, count))
            found[part] = self(_tensors(rows, np.resize(part, max(len(part), 2)))).numpy()[: len(part)]
        return np.round(found, _DECIMALS)


def _tensors(rows: Any, chosen: NDArray[np.int64] | slice = slice(None)) -> Any:
    return map_arrays(lambda array: as_tensor(np.asarray(array)[chosen]), rows)


def regress(
    space: gym.Space[Any],
    rows: Any,
    targets: NDArray[np.float64],
    weights: NDArray[np.float64],
    error: Callable[[PotentialNetwork], float] | None,
    tick: Tick,
    units: int,
    steps: int,
    learning_rate: float,
    batch_size: int,
    seed: int,
) -> tuple[PotentialNetwork, int]:
    """A network with the least squared error on distinct rows, and the number of updates it had.

    With ``error``, which is asked now and then, it is the one with the least of that.
    """
    order = np.random.default_rng(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = PotentialNetwork(space, units)
    network.standardise(_tensors(rows))
    goals, importance = (torch.from_numpy(numbers).float() for numbers in (targets, weights / weights.mean()))
    whole = len(targets) <= batch_size
    chosen, inputs = np.arange(len(targets)), _tensors(rows) if whole else None
    optimiser = torch.optim.Adam(network.parameters(), learning_rate)
    warm_up = max(1, steps // 20)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda i: min((i + 1) / warm_up, 0.5 + 0.5 * math.cos(math.pi * min(i / steps, 1.0)))
    )
    best, kept, least = network.state_dict(), steps, math.inf
    for number in range(1, steps + 1):
        if not whole:
            chosen = order.choice(len(targets), batch_size, replace=False)
            inputs = _tensors(rows, chosen)
        loss = (importance[chosen] * (network(inputs) - goals[chosen]) ** 2).mean()
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


def write_learned(potential: LearnedPotential, path: Path) -> Path:
    """Write a potential, whole or not at all."""
    features = potential.features
    name = getattr(features, "__qualname__", type(features).__qualname__)
    made = {"name": name, "size": math.prod(potential.network.space.shape or ())}
    about = {
        "observation_space": to_json(potential.observation_space),
        "features": None if features is None else made,
        "units": potential.network.units,
        **{name: getattr(potential, name) for name in ("low", "high", "threshold", "reward_bound")},
        "report": asdict(potential.report),
    }
    weights = {name: value.detach().cpu().numpy() for name, value in potential.network.state_dict().items()}
    return FORMAT.write_arrays(path, about, weights)


def read_learned(path: Path, features: Features | None) -> LearnedPotential:
    """Read a potential; nothing in the file is run."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file: expected one that a potential was saved to")
    about, arrays = FORMAT.read_arrays(path)
    with FORMAT.reading(path):
        weights = {name: torch.from_numpy(array) for name, array in arrays.items()}
        return _potential(about, weights, features, BUDGET + path.stat().st_size)


def _potential(
    about: dict[str, Any], weights: dict[str, Tensor], features: Features | None, budget: int
) -> LearnedPotential:
    space = read = from_json(about["observation_space"], budget)
    if about["features"] is not None:
        if features is None:
            raise ValueError(
                f"its features were made by the function {about['features']['name']}, which a file does not hold: give "
                "it again, LearnedPotential.load(path, features=...)"
            )
        size = whole_number(about["features"]["size"])
        read = from_json({"type": "Box", "low": "-inf", "high": "inf", "shape": [size], "dtype": "float64"}, budget)
    elif features is not None:
        raise ValueError("it was learned without features: load it without")
    with torch.device("meta"):  # takes no memory, whatever sizes a file claims
        network = PotentialNetwork(read, whole_number(about["units"])).double()
    for name, value in network.state_dict().items():
        if name in weights and weights[name].dtype != value.dtype:
            raise ValueError(f"its weights {name} are {weights[name].dtype}, expected {value.dtype}")
    network.load_state_dict(weights, assign=True)
    scales = [value for name, value in weights.items() if name.endswith("scale")]
    if any(value.abs().max() > _LARGEST for value in weights.values()) or any((value <= 0).any() for value in scales):
        raise ValueError("its weights are none that learning leads to")
    numbers = {name: finite_number(about[name]) for name in ("low", "high", "threshold")}
    if not (numbers["low"] <= 0 <= numbers["high"] and 0 <= numbers["threshold"] < 1):
        raise ValueError(f"its range {numbers} is none")
    bound = None if about["reward_bound"] is None else finite_number(about["reward_bound"])
    counts = {name: whole_number(about["report"].pop(name), high=2**62) for name in ("visits", "distinct", "steps")}
    errors = {name: None if value is None else finite_number(value) for name, value in about["report"].items()}
    report = LearningReport(**counts, **errors)  # type: ignore[arg-type]
    return LearnedPotential(
        network.double().eval(), space, **numbers, reward_bound=bound, report=report, features=features
    )
