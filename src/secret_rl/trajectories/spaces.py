"""Gymnasium spaces as JSON, and whether trajectories are well-formed, with errors that name the episode and the fix."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from secret_rl.files import whole_number
from secret_rl.trajectories.nested import Array, Nest, leaf_spaces, named_arrays

BUDGET = 32 << 20
"""Bytes that the spaces of a file may take, beside its own size: a few words can describe a space of any size."""
_MOST_PARTS = 1_000  # of a Dict or Tuple
_ROWS_AT_A_TIME = 1 << 16  # bounds the memory of the checks on mapped data


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


def from_json(data: Mapping[str, Any], budget: int = BUDGET) -> gym.Space[Any]:
    """The space that ``to_json`` described; ValueError if it would take more bytes than the budget."""
    sizes = list(_sizes(data))
    if sum(sizes) > budget or len(sizes) > _MOST_PARTS:
        raise ValueError(f"it describes a space of {len(sizes):,} parts and {sum(sizes):,} bytes, more than it should")
    return _made(data)


def _sizes(data: Mapping[str, Any]) -> Iterator[int]:
    """Bytes that a space takes when it is made, one number for each leaf of a ``Dict`` or ``Tuple``."""
    kind = data["type"]
    if kind in ("Dict", "Tuple"):
        for part in data["spaces"]:
            yield from _sizes(part[1] if kind == "Dict" else part)
    elif kind == "Box":
        dtype = np.dtype(data["dtype"])
        if dtype.kind not in "biuf":
            raise ValueError(f"it describes a Box of {dtype}, expected numbers")
        yield math.prod(map(whole_number, data["shape"])) * (4 * dtype.itemsize + 4)
    elif kind == "MultiBinary":
        yield math.prod(map(whole_number, data["n"] if isinstance(data["n"], list) else [data["n"]]))
    elif kind in ("Discrete", "MultiDiscrete"):
        yield 0
    else:
        raise ValueError(f"unknown space type {kind!r}")


def _made(data: Mapping[str, Any]) -> gym.Space[Any]:
    kind = data["type"]
    if kind == "Dict":
        return spaces.Dict([(key, _made(part)) for key, part in data["spaces"]])
    if kind == "Tuple":
        return spaces.Tuple([_made(part) for part in data["spaces"]])
    if kind == "MultiBinary":
        return spaces.MultiBinary(data["n"])
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


def problem_with_rows(space: gym.Space[Any], rows: Array) -> tuple[int, str] | None:
    """The first row of a leaf array that is not an element of ``space``, and what is wrong with it."""
    if rows.dtype.kind not in "biuf":
        return 0, f"has dtype {rows.dtype}: expected numbers"
    if rows.shape[1:] != space.shape:
        return 0, f"has shape {rows.shape[1:]}, expected {space.shape} of {space}"
    if rows.dtype.kind == "f" and isinstance(space, spaces.Box) and space.dtype.kind != "f":
        return 0, f"is {rows.dtype}, expected {space.dtype} of {space}"
    if not len(rows):
        return None
    if rows.dtype.kind == "f":
        finite = np.isfinite(rows).reshape(len(rows), -1).all(1)
        if not finite.all():
            return int(np.argmin(finite)), "holds NaN or an infinite value"
    if isinstance(space, spaces.Box):  # its bounds are often only nominal: environments overshoot them in practice
        return None
    low, count = (0, 2) if isinstance(space, spaces.MultiBinary) else _start_and_count(space)
    inside = ((rows >= low) & (rows < low + count)).reshape(len(rows), -1).all(1)
    if inside.all():
        return None
    first = int(np.argmin(inside))
    value = rows[first].tolist() if rows[first].size <= 8 else "a value"
    return first, f"is {value}, outside {space}"


def _start_and_count(space: Any) -> tuple[Any, Any]:
    return space.start, space.n if isinstance(space, spaces.Discrete) else space.nvec


def check_columns(
    steps: Mapping[str, Array],
    episodes: Mapping[str, Array],
    offsets: Array,
    observation_space: gym.Space[Any],
    action_space: gym.Space[Any],
    content: bool = True,
) -> None:
    """Raise ValueError unless the columns are well-formed trajectories.

    Without ``content``, only what can be seen without reading the columns is checked: names, shapes, dtypes, offsets.
    """
    missing = [name for name in ("rewards", "terminated", "truncated") if name not in steps]
    if missing:
        raise ValueError(f"{', '.join(missing)} missing: there are {sorted(steps)}")
    check_offsets(offsets, len(steps["rewards"]))
    rows, count = int(offsets[-1]), len(offsets) - 1
    for name, array in steps.items():
        if len(array) != rows:
            raise ValueError(f"{len(array)} rows of {name} but {rows} steps in {count} episodes")
    for name, array in episodes.items():
        if len(array) != count:
            raise ValueError(f"{len(array)} rows of {name} but {count} episodes")
    if "final_states" in episodes and "states" not in steps:
        raise ValueError("final_states given without states")
    if not content:
        steps, episodes = ({name: array[:0] for name, array in columns.items()} for columns in (steps, episodes))
    check_rewards(steps["rewards"], offsets)
    for name in ("terminated", "truncated"):
        flags = steps[name]
        if flags.dtype != np.bool_ or flags.ndim != 1:
            raise ValueError(f"{name} must be one bool per step, got {flags.dtype} of shape {flags.shape}")
        early = np.setdiff1d(np.flatnonzero(flags), offsets[1:] - 1) if len(flags) else flags
        if len(early):
            where = _where(int(early[0]), offsets)
            raise ValueError(f"{name}[{where}] is set before the last step: split the episode there")
    for name, space in (("observations", observation_space), ("actions", action_space)):
        for path, leaf in named_arrays(name, leaf_spaces(space)):
            if path not in steps:
                raise ValueError(f"{path} is missing: {leaf} asks for it")
            _check_rows(path, steps[path], leaf, offsets)
            if f"final_{path}" in episodes:
                _check_rows(f"final_{path}", episodes[f"final_{path}"], leaf, None)


def check_offsets(offsets: Array, steps: int) -> None:
    """Raise ValueError unless offsets begin with 0, increase, and end with the number of steps."""
    if offsets.ndim != 1 or not len(offsets) or offsets.dtype.kind not in "iu" or offsets[0] != 0:
        raise ValueError("offsets must be a 1-D integer array that begins with 0 and ends with the number of steps")
    if offsets[-1] != steps:
        raise ValueError(f"offsets end with {offsets[-1]}, expected {steps}, the number of steps")
    empty = np.flatnonzero(np.diff(offsets) < 1)
    if len(empty):
        raise ValueError(f"episode {empty[0]} is empty: every episode needs at least one step; leave it out")


def check_rewards(rewards: Array, offsets: Array) -> None:
    """Raise ValueError unless rewards are one finite number per step."""
    if rewards.ndim != 1 or rewards.dtype.kind not in "fiu":
        raise ValueError(f"rewards must be one number per step, got {rewards.dtype} of shape {rewards.shape}")
    for first, part in _parts(rewards):
        bad = np.flatnonzero(~np.isfinite(part))
        if len(bad):
            row = first + int(bad[0])
            found = f"rewards[{_where(row, offsets)}] is {rewards[row]}"
            raise ValueError(f"{found}: expected a finite number; drop the episode or repair the reward")


def _check_rows(path: str, rows: Array, space: gym.Space[Any], offsets: Array | None) -> None:
    for first, part in _parts(rows):
        problem = problem_with_rows(space, part)
        if problem is not None:
            raise ValueError(f"{path}[{_where(first + problem[0], offsets)}] {problem[1]}")


def _parts(array: Array) -> Iterator[tuple[int, Array]]:
    for first in range(0, max(len(array), 1), _ROWS_AT_A_TIME):
        yield first, array[first : first + _ROWS_AT_A_TIME]


def _where(row: int, offsets: Array | None) -> str:
    """A row named as users think of it."""
    if offsets is None:
        return f"episode {row}"
    episode = int(np.searchsorted(offsets, row, side="right")) - 1
    return f"episode {episode}, step {row - int(offsets[episode])}"
