"""The terms of shaping: what all wrappers take, checked once."""

import warnings
from math import isfinite, nextafter
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from secret_rl.shaping.learned import LearnedPotential
from secret_rl.shaping.potentials import Potential, PotentialRangeWarning
from secret_rl.shaping.table import TablePotential

_ROUNDING = 1e-6
_SAFETENSORS = b"\0\0\0\0{"  # such files begin with the length of their JSON header, in eight bytes
PotentialLike = Potential | str | PathLike[str]
"""A potential, or the path of a saved table or learned potential."""


class Terms(NamedTuple):
    """What a shaping wrapper works with."""

    potential: Potential
    discount: float
    scale: float
    keep_on_truncation: bool


def agree(
    potential: PotentialLike,
    discount: float,
    scale: float | str,
    truncation: str,
    observation_space: gym.Space[Any] | None = None,
    action_space: gym.Space[Any] | None = None,
) -> Terms:
    """Check what a wrapper was given, against a single environment of these spaces where they are known."""
    loaded = load_potential(potential)
    if observation_space is not None and action_space is not None:
        check_spaces(loaded, observation_space, action_space)
    if not (_is_number(discount) and 0 < discount <= 1):
        raise ValueError(f"discount must be the agent's own, in (0, 1], got {discount!r}")
    if truncation not in ("keep", "zero"):
        raise ValueError(
            'truncation must be "keep" (the agent bootstraps where a time limit cuts an episode short) or "zero" '
            f"(it does not), got {truncation!r}"
        )
    return Terms(loaded, float(discount), _scale(loaded, scale), truncation == "keep")


def load_potential(potential: PotentialLike) -> Potential:
    """A potential as it is, or read from a file: a table, or a learned one, whichever the file holds."""
    if isinstance(potential, str | PathLike):
        path = Path(potential)
        if path.is_file():
            with path.open("rb") as file:
                if file.read(9)[4:] == _SAFETENSORS:
                    return LearnedPotential.load(path)
        return TablePotential.load(path)
    missing = [name for name in ("begin", "step", "fresh") if not callable(getattr(potential, name, None))]
    if missing or isinstance(potential, type):
        raise TypeError(
            f"{potential!r} is not a potential: expected an object with begin, step and fresh, or the path of a saved "
            "one"
        )
    return potential


def check_spaces(potential: Potential, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:
    """An error where a potential does not fit a single environment of these spaces."""
    check = getattr(potential, "check_spaces", None)
    if check is not None:
        check(observation_space, action_space)


def recorded(potential: PotentialLike) -> Any:
    """A potential as a constructor argument that is written down: of a path, its text."""
    return fspath(potential) if isinstance(potential, str | PathLike) else potential


def _scale(potential: Potential, scale: float | str) -> float:
    bound, reward_bound = (getattr(potential, name, None) for name in ("bound", "reward_bound"))
    if isinstance(scale, str):
        if scale != "fit":
            raise ValueError(f'scale must be a number or "fit", got {scale!r}')
        if bound is None or reward_bound is None:
            raise ValueError(
                f'scale="fit" needs the bound and the reward_bound of {potential!r}, which are {bound} and '
                f"{reward_bound}: make the potential with reward_bound=, or give scale a number"
            )
        fitting = min(1.0, reward_bound / bound) if bound > 0 else 1.0
        return fitting if fitting * bound <= reward_bound else nextafter(fitting, 0.0)  # the division may round up
    if not (_is_number(scale) and isfinite(scale) and scale >= 0):
        raise ValueError(f'scale must be a number of at least 0, or "fit", got {scale!r}')
    # A whole share of a reward, added up from many, may come out a little above it.
    if bound is not None and reward_bound is not None and scale * bound > reward_bound * (1 + _ROUNDING):
        warnings.warn(
            f"the potential reaches {scale * bound:.3g}, above the {reward_bound:.3g} that an episode can pay: agents "
            f'may chase it instead of the reward; scale it down, with scale="fit" for one',
            PotentialRangeWarning,
            stacklevel=4,
        )
    return float(scale)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
