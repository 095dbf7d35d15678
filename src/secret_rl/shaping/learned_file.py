"""Learned potentials on disk: one safetensors file, everything but the weights as JSON in its header."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from secret_rl.files import replacing
from secret_rl.shaping.learned import Features, LearnedPotential, LearningReport
from secret_rl.shaping.networks import PotentialNetwork
from secret_rl.shaping.table_file import PotentialFileError
from secret_rl.trajectories.spaces import from_json, to_json
from secret_rl.version import VERSION

_FORMAT = "secret-rl learned potential"
_VERSION = 1
_MOST_NUMBERS = 1 << 28  # in one observation, so that a small file does not fill the memory


def write_learned(potential: LearnedPotential, path: Path) -> Path:
    """Write a potential, whole or not at all."""
    features = potential.features
    description = {
        "format": _FORMAT,
        "version": _VERSION,
        "library": VERSION,
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
    weights = {name: value.detach().contiguous() for name, value in potential.network.state_dict().items()}
    with replacing(path) as temporary:
        save_file(weights, temporary, metadata={"secret_rl": json.dumps(description)})
    return path


def read_learned(path: Path, features: Features | None) -> LearnedPotential:
    """Read a potential; nothing in the file is run."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file: expected one that a potential was saved to")
    try:
        with safe_open(path, framework="pt") as file:
            description = json.loads((file.metadata() or {}).get("secret_rl", "null"))
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a mapping
        return _potential(description, weights, features)
    except PotentialFileError as wrong:
        raise PotentialFileError(f"{path} cannot be read as a learned potential: {wrong}") from None
    # Hostile files nest deeper than Python recurses, or ask for more memory than there is.
    except (
        SafetensorError, ValueError, KeyError, TypeError, AttributeError, AssertionError, OverflowError, RecursionError,
        RuntimeError, MemoryError, OSError,
    ) as broken:  # fmt: skip
        raise PotentialFileError(
            f"{path} cannot be read as a learned potential ({broken or type(broken).__name__}): it is damaged or "
            "something else; restore it or learn the potential again"
        ) from broken


def _potential(about: Any, weights: dict[str, Tensor], features: Features | None) -> LearnedPotential:
    if not isinstance(about, dict) or about.get("format") != _FORMAT:
        said = about.get("format") if isinstance(about, dict) else type(about).__name__
        raise PotentialFileError(f"it says format {said!r}, expected {_FORMAT!r}")
    if about.get("version") != _VERSION:
        raise PotentialFileError(
            f"it has format version {about.get('version')!r}, this library reads {_VERSION}: "
            f"open it with secret-rl {about.get('library', 'of another version')}"
        )
    _check_size(about["observation_space"])
    space = read = from_json(about["observation_space"])
    if about["features"] is not None:
        if features is None:
            raise PotentialFileError(
                f"its features were made by the function {about['features']['name']}, which a file does not hold: give "
                "it again, LearnedPotential.load(path, features=...)"
            )
        read = gym.spaces.Box(-np.inf, np.inf, (_whole(about["features"]["size"]),), np.float64)
    elif features is not None:
        raise PotentialFileError("it was learned without features: load it without")
    with torch.device("meta"):  # takes no memory, whatever sizes a file claims
        network = PotentialNetwork(read, _whole(about["units"])).double()
    for name, value in weights.items():
        if not (value.dtype.is_floating_point or name.endswith(".first")) or not torch.isfinite(value).all():
            raise PotentialFileError(f"its weights {name} are not finite numbers")
    network.load_state_dict(weights, assign=True)
    numbers = {name: _number(about[name]) for name in ("low", "high", "threshold")}
    if not (numbers["low"] <= 0 <= numbers["high"] and 0 <= numbers["threshold"] < 1):
        raise PotentialFileError(f"its range {numbers} is none")
    reward_bound = about["reward_bound"]
    return LearnedPotential(
        network.double().eval(),
        space,
        **numbers,
        reward_bound=None if reward_bound is None else _number(reward_bound),
        report=LearningReport(**about["report"]),
        features=features,
    )


def _check_size(spec: Any) -> None:
    """An error for spaces that would fill the memory before anything else could be checked."""
    if spec["type"] in ("Dict", "Tuple"):
        for part in spec["spaces"]:
            _check_size(part[1] if spec["type"] == "Dict" else part)
    elif spec["type"] == "Box" and math.prod(_whole(side) for side in spec["shape"]) > _MOST_NUMBERS:
        raise PotentialFileError(f"it claims observations of shape {spec['shape']}")
    elif spec["type"] == "MultiBinary":
        sides = spec["n"] if isinstance(spec["n"], list) else [spec["n"]]
        if math.prod(_whole(side) for side in sides) > _MOST_NUMBERS:
            raise PotentialFileError(f"it claims observations of {spec['n']} numbers")


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**31:
        raise PotentialFileError(f"{value!r} is not a size")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise PotentialFileError(f"{value!r} is not a finite number")
    return float(value)
