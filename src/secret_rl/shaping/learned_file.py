"""Learned potentials on disk: one safetensors file, everything but the weights as JSON in its header."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from secret_rl.files import FileFormat, finite_number, whole_number
from secret_rl.shaping.learned import Features, LearnedPotential, LearningReport
from secret_rl.shaping.networks import PotentialNetwork
from secret_rl.trajectories.spaces import BUDGET, from_json, to_json

FORMAT = FileFormat("secret-rl learned potential", remedy="restore it or learn the potential again")


def write_learned(potential: LearnedPotential, path: Path) -> Path:
    """Write a potential, whole or not at all."""
    features = potential.features
    about = {
        "observation_space": to_json(potential.observation_space),
        "features": None
        if features is None
        else {
            "name": getattr(features, "__qualname__", type(features).__qualname__),
            "size": math.prod(potential.network.space.shape or ()),
        },
        "units": potential.network.units,
        "low": potential.low,
        "high": potential.high,
        "threshold": potential.threshold,
        "reward_bound": potential.reward_bound,
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
    numbers = {name: finite_number(about[name]) for name in ("low", "high", "threshold")}
    if not (numbers["low"] <= 0 <= numbers["high"] and 0 <= numbers["threshold"] < 1):
        raise ValueError(f"its range {numbers} is none")
    reward_bound = about["reward_bound"]
    return LearnedPotential(
        network.double().eval(),
        space,
        **numbers,
        reward_bound=None if reward_bound is None else finite_number(reward_bound),
        report=_report(about["report"]),
        features=features,
    )


def _report(data: dict[str, Any]) -> LearningReport:
    counts = {name: whole_number(data[name], high=2**62) for name in ("visits", "distinct", "steps")}
    errors: dict[str, Any] = {
        name: value if value is None else finite_number(value) for name, value in data.items() if name not in counts
    }
    return LearningReport(**counts, **errors)
