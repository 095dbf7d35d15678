"""State keys: what a table potential looks a state up by."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from math import floor, isfinite
from operator import truediv
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

StateOf = Callable[[Any, Mapping[str, Any]], Any]
"""(observation, info) of one step to a state: anything ``canonical`` accepts."""

_FARTHEST = 2.0**62  # cells count in 64 bits


def canonical(state: Any) -> Hashable:
    """The key of a state: NumPy scalars as Python's, arrays and lists as tuples, -0.0 as 0.0."""
    if isinstance(state, np.ndarray | np.generic):
        state = state.tolist()
    if isinstance(state, tuple | list):
        return tuple(map(canonical, state))
    if isinstance(state, float):
        return state + 0.0
    try:
        hash(state)
    except TypeError:
        raise TypeError(
            f"{state!r} cannot be a state: expected numbers, strings, bytes, or tuples or arrays of them; "
            "make one of it with state=, a function of (observation, info)"
        ) from None
    return state  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Observed:
    """The observation itself as the state: for ``Discrete`` observations, or short vectors of whole numbers.

    >>> Observed()(3, {}), Observed()(np.array([0, 2]), {})
    (3, (0, 2))
    """

    def __call__(self, observation: Any, info: Mapping[str, Any]) -> Hashable:  # noqa: ARG002
        """The observation as a key."""
        return observation if type(observation) is int else canonical(observation)

    def rows(self, observations: Any) -> NDArray[Any]:
        """(rows, ...) the states of many observations at once."""
        return _array(self, observations)

    def check_space(self, space: gym.Space[Any]) -> None:
        """An error where observations are not arrays or numbers."""
        if isinstance(space, gym.spaces.Dict | gym.spaces.Tuple | gym.spaces.Graph | gym.spaces.Sequence):
            raise TypeError(f"{self} does not fit {space}: expected numbers; use Cells(..., keys=...) or a function")


@dataclass(frozen=True)
class Cells:
    """The cell of a grid that a ``Box`` observation lies in, as a tuple of whole numbers (appendix A).

    The paper lays cells of 50 over positions in DMLab and joins the number of the held key:

    >>> Cells((50, 50, 1), keys=("position", "held"))({"position": np.array([120.0, -3.0]), "held": 2}, {})
    (2, -1, 2)
    """

    size: float | tuple[float, ...]
    """Side of a cell: one number, or one for each dimension; 1 keeps whole numbers as they are."""
    keys: tuple[str, ...] = ()
    """Entries of a ``Dict`` observation, joined in this order; (): the observation itself."""

    def __post_init__(self) -> None:
        several = isinstance(self.size, Iterable)
        sizes = tuple(_positive(size) for size in (self.size if several else (self.size,)))  # type: ignore[union-attr]
        if not sizes:
            raise ValueError("size is empty: give one number, or one for each dimension")
        if isinstance(self.keys, str) or not all(isinstance(key, str) for key in self.keys):
            raise TypeError(f"keys must be a tuple of entries of a Dict observation, got {self.keys!r}")
        object.__setattr__(self, "size", sizes if several else sizes[0])
        object.__setattr__(self, "keys", tuple(self.keys))

    def __call__(self, observation: Any, info: Mapping[str, Any]) -> tuple[int, ...]:  # noqa: ARG002
        """The cell of one observation."""
        if isinstance(observation, np.ndarray):  # at once: every step comes through here
            numbers = observation.ravel().tolist()
        else:
            numbers = []
            for part in [observation[key] for key in self.keys] if self.keys else [observation]:
                numbers += part.ravel().tolist() if isinstance(part, np.ndarray) else [part]
        try:
            return tuple(map(floor, map(truediv, numbers, self._sizes(len(numbers)))))
        except (ValueError, OverflowError, TypeError):
            if all(isinstance(number, int | float | np.number) and isfinite(number) for number in numbers):
                raise
            raise ValueError(f"{observation!r} lies in no cell of {self}: expected finite numbers") from None

    def rows(self, observations: Any) -> NDArray[np.int64]:
        """(rows, dimensions) the cells of many observations at once."""
        parts = [observations[key] for key in self.keys] if self.keys else [observations]
        arrays = [_array(self, part) for part in parts]
        numbers = np.concatenate([array.reshape(len(array), -1) for array in arrays], axis=1).astype(np.float64)
        sizes = self.size if isinstance(self.size, tuple) else (self.size,) * numbers.shape[1]
        self._sizes(numbers.shape[1])
        cells: NDArray[np.float64] = np.floor(numbers / np.array(sizes))
        far = ~(np.abs(cells) < _FARTHEST)  # NaN too
        if far.any():
            raise ValueError(
                f"{numbers[far.any(1)][0].tolist()} lies in no cell of {self}: expected finite numbers, "
                "and cells large enough to count"
            )
        return cells.astype(np.int64)

    def check_space(self, space: gym.Space[Any]) -> None:
        """An error where observations have no such entries, or another number of dimensions."""
        parts = [space]
        if self.keys:
            if not isinstance(space, gym.spaces.Dict):
                raise TypeError(f"{self} does not fit {space}: keys= names entries of a Dict; leave it out")
            for key in self.keys:
                if key not in space.spaces:
                    raise ValueError(f"{self} names the entry {key!r}, but there are {list(space)}: use those")
            parts = [space[key] for key in self.keys]
        elif isinstance(space, gym.spaces.Dict):
            raise TypeError(f"{self} does not fit {space}: choose entries with keys=, of {list(space)}")
        for part in parts:
            if part.shape is None:
                raise TypeError(f"{self} does not fit {part}: expected a Box or whole numbers")
        self._sizes(sum(int(np.prod(part.shape)) for part in parts if part.shape is not None))

    def _sizes(self, dimensions: int) -> Iterable[float]:
        if not isinstance(self.size, tuple):
            return repeat(self.size)
        if len(self.size) != dimensions:
            raise ValueError(
                f"{self} has {len(self.size)} cell sizes, but the observation has {dimensions} dimensions: "
                "give one for each, or one number for all"
            )
        return self.size


def state_rows(state: StateOf | None, observations: Any, states: Any) -> Any:
    """(rows, ...) many states at once: ``states`` as given by infos, or made from the observations.

    A function of one (observation, info) has no form for many: None.
    """
    if state is None:
        return states
    rows = getattr(state, "rows", None)
    return None if rows is None else rows(observations)


def state_to_json(state: StateOf | None) -> dict[str, Any] | None:
    """How a state source is written down; of a function, only its name."""
    if state is None:
        return None
    if isinstance(state, Cells):
        return {"kind": "Cells", "size": state.size, "keys": state.keys}
    if isinstance(state, Observed):
        return {"kind": "Observed"}
    return {"kind": "function", "name": getattr(state, "__qualname__", type(state).__qualname__)}


def state_from_json(data: Mapping[str, Any] | None, given: StateOf | None) -> StateOf | None:
    """The inverse of ``state_to_json``; what is ``given`` goes before, and stands in for a function."""
    if given is not None or data is None:
        return given
    match data:
        case {"kind": "Cells", "size": list(size), "keys": list(keys)}:
            return Cells(tuple(size), tuple(keys))
        case {"kind": "Cells", "size": size, "keys": list(keys)}:
            return Cells(size, tuple(keys))
        case {"kind": "Observed"}:
            return Observed()
        case {"kind": "function", "name": name}:
            raise ValueError(
                f"its states were made by the function {name}, which a file does not hold: "
                "give it again, TablePotential.load(path, state=...)"
            )
    raise ValueError(f"unknown source of states {data!r}")


def _positive(size: Any) -> float:
    if isinstance(size, bool) or not isinstance(size, int | float | np.integer | np.floating):
        raise TypeError(f"a cell size must be a number, got {size!r}")
    if not (isfinite(size) and size > 0):
        raise ValueError(f"a cell size must be positive and finite, got {size!r}")
    return float(size)


def _array(state: Any, part: Any) -> NDArray[Any]:
    if isinstance(part, np.ndarray):
        return part
    if isinstance(part, Sequence) and not isinstance(part, str):
        return np.asarray(part)
    raise TypeError(f"{state} needs arrays of observations, got {type(part).__name__}")
