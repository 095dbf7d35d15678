"""Gymnasium spaces as JSON, and whether rows of an array are elements of one."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from secret_rl.files import whole_number
from secret_rl.trajectories.nested import Array, Nest

BUDGET = 32 << 20
"""Bytes that the spaces of a file may take, beside its own size: a few words can describe a space of any size."""
_MOST_PARTS = 1_000  # of a Dict or Tuple


class UnsupportedSpaceError(TypeError):
    """A space whose elements are not arrays of one fixed shape."""


def to_json(space: gym.Space[Any]) -> dict[str, Any]:
    """A JSON description of a space; ``from_json`` gives an equal one back."""
    if isinstance(space, spaces.Box):
        return {
            "type": "Box",
            "low": _bounds_to_json(space.low),
            "high": _bounds_to_json(space.high),
            "shape": list(space.shape),
            "dtype": space.dtype.name,
        }
    if isinstance(space, spaces.Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start), "dtype": space.dtype.name}
    if isinstance(space, spaces.MultiDiscrete):
        return {
            "type": "MultiDiscrete",
            "nvec": space.nvec.tolist(),
            "start": space.start.tolist(),
            "dtype": space.dtype.name,
        }
    if isinstance(space, spaces.MultiBinary):
        return {"type": "MultiBinary", "n": space.n if isinstance(space.n, int) else list(space.shape)}
    if isinstance(space, spaces.Dict):
        return {"type": "Dict", "spaces": [[key, to_json(part)] for key, part in space.spaces.items()]}
    if isinstance(space, spaces.Tuple):
        return {"type": "Tuple", "spaces": [to_json(part) for part in space.spaces]}
    raise UnsupportedSpaceError(
        f"{space} is not supported: expected Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of "
        "those; wrap the environment so that it observes arrays of one fixed shape"
    )


def from_json(data: Mapping[str, Any], budget: int = BUDGET) -> gym.Space[Any]:
    """The space that ``to_json`` described; ValueError if it would take more bytes than the budget."""
    sizes = [_size_of(part) for part in _parts(data)]
    if sum(sizes) > budget or len(sizes) > _MOST_PARTS:
        raise ValueError(f"it describes a space of {len(sizes):,} parts and {sum(sizes):,} bytes, more than it should")
    return _made(data)


def _made(data: Mapping[str, Any]) -> gym.Space[Any]:
    kind = data["type"]
    if kind == "Box":
        dtype = np.dtype(data["dtype"])
        shape = tuple(data["shape"])
        low, high = (_bounds_from_json(data[side], shape, dtype) for side in ("low", "high"))
        return spaces.Box(low, high, shape, dtype.type)
    if kind == "Discrete":
        return spaces.Discrete(data["n"], start=data["start"], dtype=np.dtype(data["dtype"]).type)
    if kind == "MultiDiscrete":
        dtype = np.dtype(data["dtype"])
        nvec, start = (np.array(data[key], dtype) for key in ("nvec", "start"))
        return spaces.MultiDiscrete(nvec, dtype=dtype.type, start=start)
    if kind == "MultiBinary":
        return spaces.MultiBinary(data["n"])
    if kind == "Dict":
        return spaces.Dict([(key, _made(part)) for key, part in data["spaces"]])
    return spaces.Tuple([_made(part) for part in data["spaces"]])


def _parts(data: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The description of a space, or those of the parts of a ``Dict`` or ``Tuple``, however deep."""
    if data["type"] in ("Dict", "Tuple"):
        for part in data["spaces"]:
            yield from _parts(part[1] if data["type"] == "Dict" else part)
    else:
        yield data


def _size_of(data: Mapping[str, Any]) -> int:
    """Bytes that a space takes when it is made, or that numbers in it take."""
    if data["type"] == "Box":
        dtype = np.dtype(data["dtype"])
        if dtype.kind not in "biuf":
            raise ValueError(f"it describes a Box of {dtype}, expected numbers")
        return int(math.prod(whole_number(side) for side in data["shape"]) * (4 * dtype.itemsize + 4))
    if data["type"] == "MultiBinary":
        return math.prod(whole_number(side) for side in (data["n"] if isinstance(data["n"], list) else [data["n"]]))
    if data["type"] not in ("Discrete", "MultiDiscrete"):
        raise ValueError(f"unknown space type {data['type']!r}")
    return 0


def infer(nest: Nest) -> gym.Space[Any]:
    """The simplest space that holds the rows of a nest: for data that came without one."""
    if isinstance(nest, dict):
        return spaces.Dict([(key, infer(part)) for key, part in nest.items()])
    if isinstance(nest, tuple):
        return spaces.Tuple([infer(part) for part in nest])
    if nest.dtype.kind in "iu" and nest.ndim == 1:
        start = min(0, int(nest.min()))
        return spaces.Discrete(int(nest.max()) - start + 1, start=start)
    if nest.dtype == np.uint8:
        return spaces.Box(0, 255, nest.shape[1:], np.uint8)
    if nest.dtype.kind == "b":
        return spaces.MultiBinary(nest.shape[1:])
    if nest.dtype.kind in "iu":
        information = np.iinfo(nest.dtype)
        return spaces.Box(information.min, information.max, nest.shape[1:], nest.dtype.type)
    return spaces.Box(-np.inf, np.inf, nest.shape[1:], nest.dtype.type)


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
    low, high = _limits(space)
    if low is None:
        return None
    inside = ((rows >= low) & (rows <= high)).reshape(len(rows), -1).all(1)
    if inside.all():
        return None
    first = int(np.argmin(inside))
    value = rows[first].tolist() if rows[first].size <= 8 else "a value"
    return first, f"is {value}, outside {space}"


def _limits(space: gym.Space[Any]) -> tuple[Any, Any]:
    if isinstance(space, spaces.Discrete):
        return space.start, space.start + space.n - 1
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    if isinstance(space, spaces.MultiBinary):
        return 0, 1
    return None, None  # Box bounds are often only nominal: environments overshoot them in practice


def _bounds_to_json(bounds: Array) -> Any:
    """One number where all are equal; infinities as strings, which JSON lacks."""
    values = bounds.ravel()
    if values.size and (values == values[0]).all():
        return _number_to_json(values[0])
    return [_number_to_json(value) for value in values]


def _number_to_json(value: Any) -> Any:
    number = value.item()
    return number if np.isfinite(number) else repr(float(number))


def _bounds_from_json(data: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    if isinstance(data, list):
        return np.array([_number_from_json(value) for value in data], dtype).reshape(shape)
    return np.full(shape, _number_from_json(data), dtype)


def _number_from_json(value: Any) -> Any:
    return float(value) if isinstance(value, str) else value
