"""Gymnasium spaces as JSON and inferred from data; and whether trajectories fit theirs."""

import math
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from secret_rl.trajectories.nested import Array, Nest, leaf_spaces, named_arrays

BUDGET = 32 << 20
"""Bytes that the spaces of a file may take, beside its own size: a few words can describe a space of any size."""
_BYTES_PER_PART = 32 << 10  # what a part of a Dict or Tuple counts for, at least: at most 1,000 parts


def to_json(space: gym.Space[Any]) -> dict[str, Any]:
    """A JSON description of a space; ``from_json`` gives an equal one back."""
    if isinstance(space, spaces.Box):
        low, high = _bounds_to_json(space.low), _bounds_to_json(space.high)
        return {"type": "Box", "low": low, "high": high, "shape": list(space.shape), "dtype": space.dtype.name}
    if isinstance(space, spaces.Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start), "dtype": space.dtype.name}
    if isinstance(space, spaces.MultiDiscrete):
        nvec, start = space.nvec.tolist(), space.start.tolist()
        return {"type": "MultiDiscrete", "nvec": nvec, "start": start, "dtype": space.dtype.name}
    if isinstance(space, spaces.MultiBinary):
        return {"type": "MultiBinary", "n": space.n if isinstance(space.n, int) else list(space.shape)}
    if isinstance(space, spaces.Dict):
        return {"type": "Dict", "spaces": [[key, to_json(part)] for key, part in space.spaces.items()]}
    if isinstance(space, spaces.Tuple):
        return {"type": "Tuple", "spaces": [to_json(part) for part in space.spaces]}
    known = "Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of those"
    raise TypeError(f"{space} is not supported: expected {known}; wrap the environment so that it observes arrays")


def check_numbers(observations: gym.Space[Any]) -> None:
    """Raise TypeError if a part of an observation is no array of numbers, as the mission of MiniGrid is."""
    for path, leaf in named_arrays("", leaf_spaces(observations)):
        if isinstance(leaf, spaces.Text) or (leaf.dtype is not None and leaf.dtype.kind == "U"):
            name, remedy = (
                path.removeprefix("/") or "the observation",
                "wrap the environment so that it observes arrays",
            )
            if isinstance(observations, spaces.Dict) and name in observations.spaces:
                remedy = f"leave it out, views.ViewObservation(env, views.DropView(({name!r},)))"
            raise TypeError(f"{name!r} is text, of {type(leaf).__name__}, expected numbers: {remedy}")


def from_json(data: Mapping[str, Any], budget: int = BUDGET) -> gym.Space[Any]:
    """The space that ``to_json`` described; ValueError if it would take more bytes than the budget."""
    size = _size(data)
    if size > budget:
        raise ValueError(f"it describes a space of {size:,} bytes, more than it should")
    return _made(data)


def _size(data: Mapping[str, Any]) -> int:
    """Bytes that a space takes when it is made."""
    if "spaces" in data:
        return sum(_size(part[1] if data["type"] == "Dict" else part) for part in data["spaces"])
    sides = {"Box": "shape", "MultiBinary": "n"}.get(data["type"])
    shape = data[sides] if sides else 0
    each = 4 * np.dtype(data["dtype"]).itemsize + 4 if sides == "shape" else 1
    return int(_BYTES_PER_PART + each * abs(math.prod(shape if isinstance(shape, list) else [shape])))


def _made(data: Mapping[str, Any]) -> gym.Space[Any]:
    kind = data["type"]
    if kind == "Dict":
        return spaces.Dict([(key, _made(part)) for key, part in data["spaces"]])
    if kind == "Tuple":
        return spaces.Tuple([_made(part) for part in data["spaces"]])
    if kind == "MultiBinary":
        return spaces.MultiBinary(data["n"])
    if kind not in ("Discrete", "MultiDiscrete", "Box"):
        raise ValueError(f"unknown space type {kind!r}")
    dtype: Any = np.dtype(data["dtype"])
    if kind == "Discrete":
        return spaces.Discrete(data["n"], start=data["start"], dtype=dtype.type)
    if kind == "MultiDiscrete":
        nvec, start = (np.array(data[key], dtype) for key in ("nvec", "start"))
        return spaces.MultiDiscrete(nvec, dtype=dtype.type, start=start)
    shape = tuple(data["shape"])
    low, high = (_bounds_from_json(data[side], shape, dtype) for side in ("low", "high"))
    return spaces.Box(low, high, shape, dtype.type)


def _bounds_to_json(bounds: Array) -> Any:
    """One number where all are equal; infinities as strings, which JSON lacks."""
    numbers = [number if np.isfinite(number) else repr(float(number)) for number in bounds.ravel().tolist()]
    return numbers[0] if numbers and numbers.count(numbers[0]) == len(numbers) else numbers


def _bounds_from_json(data: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    if isinstance(data, list):
        return np.array([float(value) if isinstance(value, str) else value for value in data], dtype).reshape(shape)
    return np.full(shape, float(data) if isinstance(data, str) else data, dtype)


def infer(nest: Nest) -> gym.Space[Any]:
    """The simplest space that holds the rows of a nest: for data that came without one."""
    if isinstance(nest, dict):
        return spaces.Dict([(key, infer(part)) for key, part in nest.items()])
    if isinstance(nest, tuple):
        return spaces.Tuple([infer(part) for part in nest])
    shape, dtype = nest.shape[1:], nest.dtype
    if dtype.kind in "iu" and not shape:
        start = min(0, int(nest.min()))
        return spaces.Discrete(int(nest.max()) - start + 1, start=start)
    if dtype.kind == "b":
        return spaces.MultiBinary(shape)
    if dtype.kind in "iu":
        return spaces.Box(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype.type)
    return spaces.Box(-np.inf, np.inf, shape, dtype.type)


def check_trajectories(data: Any, content: bool = True) -> None:
    """Raise ValueError unless trajectories are well-formed.

    Without ``content``, only what can be seen without reading the columns is checked: names, shapes, dtypes, offsets.
    """
    offsets, columns = data.offsets, data.columns()
    if offsets.ndim != 1 or not len(offsets) or offsets.dtype.kind not in "iu" or offsets[0] != 0:
        raise ValueError("offsets must be a 1-D integer array that begins with 0 and ends with the number of steps")
    episodes, steps = len(offsets) - 1, len(data.rewards)
    if offsets[-1] != steps:
        raise ValueError(f"offsets end with {offsets[-1]}, expected {steps}, the number of steps")
    empty = np.flatnonzero(np.diff(offsets) < 1)
    if len(empty):
        raise ValueError(f"episode {empty[0]} is empty: every episode needs at least one step; leave it out")
    for name, array in columns.items():
        if len(array) != (episodes if name.startswith(("final_", "episode_")) else steps):
            raise ValueError(f"{len(array)} rows of {name} but {steps} steps in {episodes} episodes")
    if data.final_states is not None and data.states is None:
        raise ValueError("final_states given without states")
    if not content:
        columns = {name: np.asarray(array[:0]) for name, array in columns.items()}
    check_rewards(columns["rewards"], offsets)
    for name in ("terminated", "truncated"):
        flags = columns[name]
        if flags.dtype != np.bool_ or flags.ndim != 1:
            raise ValueError(f"{name} must be one bool per step, got {flags.dtype} of shape {flags.shape}")
        early = np.setdiff1d(np.flatnonzero(flags), offsets[1:] - 1) if len(flags) else flags
        if len(early):
            where = _where(int(early[0]), offsets)
            raise ValueError(f"{name}[{where}] is set before the last step: split the episode there")
    for name, space in (("observations", data.observation_space), ("actions", data.action_space)):
        for path, leaf in named_arrays(name, leaf_spaces(space)):
            _check_rows(path, columns[path], leaf, offsets)
            if f"final_{path}" in columns:
                _check_rows(f"final_{path}", columns[f"final_{path}"], leaf, None)


def check_rewards(rewards: Array, offsets: Array) -> None:
    """Raise ValueError unless rewards are one finite number per step."""
    if rewards.ndim != 1 or rewards.dtype.kind not in "fiu":
        raise ValueError(f"rewards must be one number per step, got {rewards.dtype} of shape {rewards.shape}")
    bad = np.flatnonzero(~np.isfinite(rewards))
    if len(bad):
        found = f"rewards[{_where(int(bad[0]), offsets)}] is {rewards[bad[0]]}"
        raise ValueError(f"{found}: expected a finite number; drop the episode or repair the reward")


def _check_rows(path: str, rows: Array, space: gym.Space[Any], offsets: Array | None) -> None:
    """Raise ValueError unless each row of a leaf array is an element of ``space``."""
    first, problem = 0, ""
    flat = rows.reshape(len(rows), math.prod(rows.shape[1:]))
    if rows.dtype.kind not in "biuf":
        problem = f"has dtype {rows.dtype}: expected numbers"
    elif rows.shape[1:] != space.shape:
        problem = f"has shape {rows.shape[1:]}, expected {space.shape} of {space}"
    elif rows.dtype.kind == "f" and isinstance(space, spaces.Box) and space.dtype.kind != "f":
        problem = f"is {rows.dtype}, expected {space.dtype} of {space}"
    elif rows.dtype.kind == "f" and not np.isfinite(rows).all():
        first, problem = int(np.isfinite(flat).all(1).argmin()), "holds NaN or an infinite value"
    elif not isinstance(space, spaces.Box):  # bounds of boxes are often only nominal: environments overshoot them
        leaf: Any = space
        low = np.ravel(getattr(leaf, "start", 0))
        counts = leaf.nvec if hasattr(leaf, "nvec") else 2 if isinstance(leaf, spaces.MultiBinary) else leaf.n
        inside = ((flat >= low) & (flat < low + np.ravel(counts))).all(1)
        if not inside.all():
            first = int(inside.argmin())
            problem = f"is {rows[first].tolist()}, outside {space}"
    if problem:
        raise ValueError(f"{path}[{_where(first, offsets)}] {problem}")


def _where(row: int, offsets: Array | None) -> str:
    """A row named as users think of it."""
    if offsets is None:
        return f"episode {row}"
    episode = int(np.searchsorted(offsets, row, side="right")) - 1
    return f"episode {episode}, step {row - int(offsets[episode])}"
