"""Arrays, or dicts and tuples of them: how ``Dict`` and ``Tuple`` observations are kept.

A nest is an array, a dict of nests or a tuple of nests. Every array in it has the same number of rows.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Nest = Array | dict[str, Any] | tuple[Any, ...]


def map_arrays(function: Callable[..., Any], nest: Any, *others: Any) -> Any:
    """Apply ``function`` to each array of a nest (and the matching arrays of others)."""
    if isinstance(nest, dict):
        return {k: map_arrays(function, v, *(o[k] for o in others)) for k, v in nest.items()}
    if isinstance(nest, tuple):
        return tuple(map_arrays(function, *parts) for parts in zip(nest, *others, strict=True))
    return function(nest, *others)


def map_leaves(function: Callable[[gym.Space[Any], Any], Any], space: gym.Space[Any], nest: Any) -> Any:
    """Apply ``function`` to each array of a nest and the space its rows belong to."""
    if isinstance(space, gym.spaces.Dict):
        return {key: map_leaves(function, part, nest[key]) for key, part in space.spaces.items()}
    if isinstance(space, gym.spaces.Tuple):
        return tuple(map_leaves(function, part, nest[i]) for i, part in enumerate(space.spaces))
    return function(space, nest)


def subpath(name: str, key: object) -> str:
    """The path of a part; two parts never have the same one, whatever the keys are."""
    return f"{name}/{str(key).replace('%', '%25').replace('/', '%2F')}"


def rows_differ(nest: Any, other: Any) -> NDArray[np.bool_]:
    """(rows,) where two nests of the same layout differ; NaN equals NaN."""
    found: list[NDArray[np.bool_]] = []

    def compare(one: Array, two: Array) -> None:
        unequal = one != two
        if np.issubdtype(one.dtype, np.inexact) and unequal.any():
            unequal &= ~(np.isnan(one) & np.isnan(two))
        found.append(unequal.reshape(len(one), -1).any(1))

    map_arrays(compare, nest, other)
    return np.asarray(np.logical_or.reduce(found))


def named_arrays(name: str, nest: Nest) -> Iterator[tuple[str, Array]]:
    """The arrays of a nest with their paths: ``observations/position``, ``observations/0``, ..."""
    if isinstance(nest, dict):
        for key, part in nest.items():
            yield from named_arrays(subpath(name, key), part)
    elif isinstance(nest, tuple):
        for i, part in enumerate(nest):
            yield from named_arrays(subpath(name, i), part)
    else:
        yield name, nest


def gather(space: gym.Space[Any], name: str, arrays: Mapping[str, Array]) -> Nest:
    """The inverse of ``named_arrays`` for rows that are elements of ``space``."""
    if isinstance(space, gym.spaces.Dict):
        return {key: gather(part, subpath(name, key), arrays) for key, part in space.spaces.items()}
    if isinstance(space, gym.spaces.Tuple):
        return tuple(gather(part, subpath(name, i), arrays) for i, part in enumerate(space.spaces))
    return arrays[name]


def stack(space: gym.Space[Any], elements: list[Any]) -> Nest:
    """Elements of a space as one nest, one row each, with the dtype of the space."""
    if isinstance(space, gym.spaces.Dict):
        return {key: stack(part, [element[key] for element in elements]) for key, part in space.spaces.items()}
    if isinstance(space, gym.spaces.Tuple):
        return tuple(stack(part, [element[i] for element in elements]) for i, part in enumerate(space.spaces))
    return np.asarray(elements, dtype=space.dtype)


def row_count(nest: Nest) -> int:
    """The number of rows, that of the first array."""
    return len(next(array for _, array in named_arrays("", nest)))
