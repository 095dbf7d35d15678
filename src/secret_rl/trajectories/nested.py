"""Nests: an array, or a dict or tuple of nests, as ``Dict`` and ``Tuple`` observations are kept.

Every array of a nest has the same number of rows. A space is a nest of its leaf spaces, see ``leaf_spaces``.
Gymnasium is not needed here: credit runs where only PyTorch and NumPy are.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import gymnasium as gym

Array = NDArray[Any]
Nest = Array | dict[str, Any] | tuple[Any, ...]


def map_arrays(function: Callable[..., Any], nest: Any, *others: Any) -> Any:
    """Apply ``function`` to each array of a nest (and the matching arrays of others)."""
    if isinstance(nest, dict):
        return {key: map_arrays(function, part, *(other[key] for other in others)) for key, part in nest.items()}
    if isinstance(nest, tuple):
        return tuple(map_arrays(function, *parts) for parts in zip(nest, *others, strict=True))
    return function(nest, *others)


def arrays_of(nest: Any) -> list[Any]:
    """The arrays of a nest."""
    found: list[Any] = []
    map_arrays(found.append, nest)
    return found


def named_arrays(name: str, nest: Any) -> list[tuple[str, Any]]:
    """The arrays of a nest with their paths: ``observations/position``, ``observations/0``, ... No two are the same."""
    if not isinstance(nest, dict | tuple):
        return [(name, nest)]
    parts = nest.items() if isinstance(nest, dict) else enumerate(nest)
    escaped = ((str(key).replace("%", "%25").replace("/", "%2F"), part) for key, part in parts)
    return [named for key, part in escaped for named in named_arrays(f"{name}/{key}", part)]


def gather(template: Any, name: str, arrays: Mapping[str, Array]) -> Nest:
    """The inverse of ``named_arrays``, in the nesting of ``template``."""
    paths = iter([path for path, _ in named_arrays(name, template)])
    return cast(Nest, map_arrays(lambda _: arrays[next(paths)], template))


def leaf_spaces(space: "gym.Space[Any]") -> Any:
    """The nest of the spaces that a ``Dict`` or ``Tuple`` is made of; any other space is its own leaf."""
    parts = getattr(space, "spaces", None)
    if isinstance(parts, Mapping):
        return {key: leaf_spaces(part) for key, part in parts.items()}
    return tuple(map(leaf_spaces, parts)) if isinstance(parts, tuple) else space


def map_leaves(function: Callable[["gym.Space[Any]", Any], Any], space: "gym.Space[Any]", nest: Any) -> Any:
    """Apply ``function`` to each leaf space and the array of its rows."""
    return map_arrays(function, leaf_spaces(space), nest)


def stack(space: "gym.Space[Any]", elements: list[Any]) -> Nest:
    """Elements of a space as one nest, one row each, with the dtype of the space."""
    return cast(Nest, map_arrays(lambda leaf, *rows: np.asarray(rows, leaf.dtype), leaf_spaces(space), *elements))


def row_count(nest: Nest) -> int:
    """The number of rows, that of the first array."""
    return len(arrays_of(nest)[0])


def rows_differ(nest: Any, other: Any) -> NDArray[np.bool_]:
    """(rows,) where two nests of the same layout differ; NaN equals NaN."""

    def compare(one: Array, two: Array) -> NDArray[np.bool_]:
        unequal = one != two
        if np.issubdtype(one.dtype, np.inexact) and unequal.any():
            unequal &= ~(np.isnan(one) & np.isnan(two))
        return np.asarray(unequal.reshape(len(one), -1).any(1))

    return np.asarray(np.logical_or.reduce(arrays_of(map_arrays(compare, nest, other))))
