"""The keys that states are looked up by, and where they come from: infos, observations, or cells of a grid."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from secret_rl.shaping.core import Batch

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
        return canonical(observation)

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
        sizes: Any = tuple(self.size) if isinstance(self.size, Iterable) else (self.size,)
        if not sizes:
            raise ValueError("size is empty: give one number, or one for each dimension")
        for size in sizes:
            if isinstance(size, bool) or not isinstance(size, int | float | np.integer | np.floating):
                raise TypeError(f"a cell size must be a number, got {size!r}")
            if not (isfinite(size) and size > 0):
                raise ValueError(f"a cell size must be positive and finite, got {size!r}")
        if isinstance(self.keys, str) or not all(isinstance(key, str) for key in self.keys):
            raise TypeError(f"keys must be a tuple of entries of a Dict observation, got {self.keys!r}")
        numbers = tuple(map(float, sizes))
        object.__setattr__(self, "size", numbers if isinstance(self.size, Iterable) else numbers[0])
        object.__setattr__(self, "keys", tuple(self.keys))

    def __call__(self, observation: Any, info: Mapping[str, Any]) -> tuple[int, ...]:  # noqa: ARG002
        """The cell of one observation."""
        parts = {key: np.asarray(observation[key])[None] for key in self.keys}
        return tuple(self.rows(parts if self.keys else np.asarray(observation)[None])[0].tolist())

    def rows(self, observations: Any) -> NDArray[np.int64]:
        """(rows, dimensions) the cells of many observations at once."""
        parts = [observations[key] for key in self.keys] if self.keys else [observations]
        arrays = [_array(self, part) for part in parts]
        numbers = np.concatenate([array.reshape(len(array), -1) for array in arrays], axis=1).astype(np.float64)
        cells: NDArray[np.float64] = np.floor(numbers / np.array(self._sizes(numbers.shape[1])))
        far = ~(np.abs(cells) < _FARTHEST)  # NaN too
        if far.any():
            place = numbers[far.any(1)][0].tolist()
            raise ValueError(
                f"{place} lies in no cell of {self}: expected finite numbers, and cells large enough to count"
            )
        return cells.astype(np.int64)

    def check_space(self, space: gym.Space[Any]) -> None:
        """An error where observations have no such entries, or another number of dimensions."""
        entries = list(space) if isinstance(space, gym.spaces.Dict) else None
        if self.keys and entries is None:
            raise TypeError(f"{self} does not fit {space}: keys= names entries of a Dict; leave it out")
        if not self.keys and entries is not None:
            raise TypeError(f"{self} does not fit {space}: choose entries with keys=, of {entries}")
        dimensions = 0
        for key in self.keys or [None]:
            if key is not None and key not in (entries or ()):
                raise ValueError(f"{self} names the entry {key!r}, but there are {entries}: use those")
            part = space if key is None else space[key]  # type: ignore[index]
            if part.shape is None:
                raise TypeError(f"{self} does not fit {part}: expected a Box or whole numbers")
            dimensions += int(np.prod(part.shape))
        self._sizes(dimensions)

    def _sizes(self, dimensions: int) -> tuple[float, ...]:
        if not isinstance(self.size, tuple):
            return (self.size,) * dimensions
        if len(self.size) != dimensions:
            raise ValueError(
                f"{self} has {len(self.size)} cell sizes, but the observation has {dimensions} dimensions: "
                "give one for each, or one number for all"
            )
        return self.size


def check_source(state: StateOf | None, space: gym.Space[Any] | None = None) -> None:
    """An error where states cannot come from there, or not from observations of a space."""
    if state is not None and not callable(state):
        raise TypeError(f"state must be None, Observed(), Cells(...) or a function, got {state!r}")
    if state is not None and space is not None and hasattr(state, "check_space"):
        state.check_space(space)


def batch_states(state: StateOf | None, batch: Batch) -> Any:
    """(rows, ...) the states of the rows of a batch that start or step; None: ``info["state"]``."""
    if state is None:
        states = batch.entry("state")
        if states is None:
            given = [name for name in batch.info(int(batch.rows[0])) if not name.startswith("_")]
            raise ValueError(
                f'info has no "state" to look up (it has {given}): give a state=, such as Observed(), Cells(...) or a '
                "function of (observation, info)"
            )
        return states
    if hasattr(state, "rows"):
        return batch.select(state.rows(batch.observations))
    return [state(batch.observation(i), batch.info(i)) for i in batch.rows.tolist()]  # a function


def state_rows(state: StateOf | None, observations: Any, states: Any) -> Any:
    """(rows, ...) many states at once: ``states`` as given by infos, or made from the observations.

    A function of one (observation, info) has no form for many: None.
    """
    if state is None:
        return states
    return state.rows(observations) if hasattr(state, "rows") else None


def source_to_json(state: StateOf | None) -> dict[str, Any] | None:
    """How a source of states is written down; of a function, only its name."""
    if isinstance(state, Cells | Observed):
        return {"kind": type(state).__name__, **asdict(state)}
    return state and {"kind": "function", "name": getattr(state, "__qualname__", type(state).__qualname__)}


def source_from_json(data: Any, given: StateOf | None) -> StateOf | None:
    """The inverse of ``source_to_json``; what is ``given`` goes before, and stands in for a function."""
    if given is not None or data is None:
        return given
    match dict(data):
        case {"kind": "Cells", **fields}:
            return Cells(**fields)
        case {"kind": "Observed", **fields}:
            return Observed(**fields)
        case {"kind": "function", "name": name}:
            raise ValueError(
                f"its states were made by the function {name}, which a file does not hold: "
                "give it again, TablePotential.load(path, state=...)"
            )
    raise ValueError(f"unknown source of states {data!r}")


def _array(state: Any, part: Any) -> NDArray[Any]:
    if isinstance(part, np.ndarray):
        return part
    if isinstance(part, Sequence) and not isinstance(part, str):
        return np.asarray(part)
    raise TypeError(f"{state} needs arrays of observations, got {type(part).__name__}")
