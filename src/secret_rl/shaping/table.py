"""Potentials that look the state up in a table, and the keys that states are looked up by."""

import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from math import isfinite
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from secret_rl.files import FileFormat, finite_number
from secret_rl.shaping.core import Batch, CoverageWarning, Values

StateOf = Callable[[Any, Mapping[str, Any]], Any]
"""(observation, info) of one step to a state: anything ``canonical`` accepts."""

_FORMAT = FileFormat("secret-rl table potential", remedy="restore it or estimate the potential again", large=True)
_ASKED_BEFORE_WARNING = 30  # states in a row, none of them known
_LONGEST_ARRAY = 1 << 20  # entries of a table over whole numbers that is kept as an array, too
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

    def _sizes(self, dimensions: int) -> tuple[float, ...]:
        if not isinstance(self.size, tuple):
            return (self.size,) * dimensions
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


class TablePotential:
    """Phi of a state from a table; states that are not in it get 0, as in the paper (section 2.2).

    >>> potential = TablePotential({3: 0.25, 7: 0.5})
    >>> potential.lookup([7, 8]).tolist()
    [0.5, 0.0]

    Args:
        values: State to Phi.
        state: Where states come from: None for ``info["state"]``; ``Observed()`` for the observation itself;
            ``Cells(...)`` for a grid over ``Box`` observations; or any function of (observation, info).
        reward_bound: The largest positive return of an episode that the potential stands for, if known.
    """

    def __init__(
        self, values: Mapping[Any, float], *, state: StateOf | None = None, reward_bound: float | None = None
    ) -> None:
        if not isinstance(values, Mapping):
            raise TypeError(f"a table must be a dict of state: value, got {type(values).__name__}")
        if not values:
            raise ValueError("the table holds no state: use NoPotential() for no shaping")
        if state is not None and not callable(state):
            raise TypeError(f"state must be None, Observed(), Cells(...) or a function, got {state!r}")
        self.state = state
        self._values = {_key(key): _finite(value, f"Phi of state {key!r}") for key, value in values.items()}
        self.reward_bound = None if reward_bound is None else _finite(reward_bound, "reward_bound")
        if self.reward_bound is not None and self.reward_bound < 0:
            raise ValueError(f"reward_bound must not be negative, got {reward_bound!r}")
        self._watching = True  # until a state is known, or the user was warned that none is
        self._asked_in_vain = 0

    @property
    def values(self) -> Mapping[Hashable, float]:
        """The table, read only."""
        return MappingProxyType(self._values)

    @cached_property
    def bound(self) -> float:
        """The largest absolute value in the table."""
        return max(map(abs, self._values.values()))

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"TablePotential({len(self)} states, |Phi| <= {self.bound:.3g})"

    def init(self, n: int, /) -> None:
        """Nothing is remembered of an episode."""

    def step(self, carry: None, batch: Batch, /) -> tuple[None, Values]:
        """(n,) Phi of the states."""
        if self.state is not None and not hasattr(self.state, "rows"):  # a function
            states: Any = [self.state(batch.observation(i), batch.info(i)) for i in batch.rows.tolist()]
            return carry, batch.spread(self.lookup(states))
        if self.state is not None:
            return carry, batch.spread(self.lookup(batch.select(self.state.rows(batch.observations))))
        states = batch.entry("state")
        if states is None:
            given = [name for name in batch.info(int(batch.rows[0])) if not name.startswith("_")]
            raise ValueError(
                f'info has no "state" to look up (it has {given}): give the table a state=, such as Observed(), '
                "Cells(...) or a function of (observation, info)"
            )
        return carry, batch.spread(self.lookup(states))

    def lookup(self, states: Any) -> Values:
        """(rows,) Phi of many states, an array or a sequence with one row each."""
        numbers = isinstance(states, np.ndarray) and states.ndim == 1 and states.dtype.kind in "iu"
        if numbers and states.dtype != np.uint64 and self._array is not None:
            first, values = self._array
            answers: Values = values.take(states.astype(np.int64, copy=False) - (first - 1), mode="clip")
        else:
            states = [canonical(state) for state in states]
            answers = np.array([self._values.get(state, 0.0) for state in states], np.float64)
        if self._watching and len(states):
            self._watch(states)
        return answers

    def check_spaces(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:  # noqa: ARG002
        """An error where states cannot be made from such observations."""
        check = getattr(self.state, "check_space", None)
        if check is not None:
            check(observation_space)

    def tabulate(self, model: Any) -> dict[str, Any]:
        """Phi of every state of a finite task, which has ``states`` and ``observations`` with one row each."""
        states = state_rows(self.state, model.observations, model.states)
        if states is None:
            raise AttributeError(f"states come from {self.state!r}, which is asked for one at a time")
        return {"potential": self.lookup(states)}

    def save(self, path: str | PathLike[str]) -> Path:
        """Write one JSON file, whole or not at all. Of a ``state`` function only the name is kept."""
        content = {
            "state": _state_to_json(self.state),
            "reward_bound": self.reward_bound,
            "states": [_key_to_json(state) for state in self._values],
            "values": list(self._values.values()),
        }
        return _FORMAT.write_json(Path(path), content)

    @classmethod
    def load(cls, path: str | PathLike[str], *, state: StateOf | None = None) -> "TablePotential":
        """Read what ``save`` wrote; nothing in it is run. ``state`` is needed where states were made by a function."""
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"{path} is not a file: expected one that a potential was saved to")
        content = _FORMAT.read_json(path)
        with _FORMAT.reading(path):
            states, numbers = content["states"], content["values"]
            values = {_key_from_json(key): finite_number(value) for key, value in zip(states, numbers, strict=True)}
            if len(values) != len(states):
                raise ValueError("it names a state twice")
            source = _state_from_json(content["state"], state)
            return cls(values, state=source, reward_bound=content["reward_bound"])

    @cached_property
    def _array(self) -> tuple[int, Values] | None:
        """Whole numbers that lie close together: the first, and Phi from it on, with 0 for all others at both ends."""
        if not all(isinstance(state, int) for state in self._values):
            return None
        numbers = [int(state) for state in self._values]  # type: ignore[call-overload]
        first, last = min(numbers), max(numbers)
        if last - first >= _LONGEST_ARRAY or max(-first, last) >= 2**62:
            return None
        values = np.zeros(last - first + 3)
        values[np.array(numbers) - (first - 1)] = list(self._values.values())
        return first, values

    def _watch(self, states: Any) -> None:
        """Object to states of another kind, and warn once if none of the first states asked for is known."""
        states = [canonical(state) for state in states]
        if any(state in self._values for state in states):
            self._watching = False
            return
        example = next(iter(self._values))
        if self._asked_in_vain == 0 and _kind(states[0]) not in set(map(_kind, self._values)):
            raise ValueError(
                f"this potential is for other states: asked for {states[0]!r}, but its table holds {example!r}; say "
                "where its states come from with state="
            )
        self._asked_in_vain += len(states)
        if self._asked_in_vain >= _ASKED_BEFORE_WARNING:
            self._watching = False
            warnings.warn(
                f"none of the first {self._asked_in_vain} states is among the {len(self)} of the table, so nothing was "
                f"shaped: asked for {states[0]!r} for one, the table holds {example!r} for one; check that it was made "
                "for this environment, and state=",
                CoverageWarning,
                stacklevel=2,
            )


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


def _key_to_json(key: Any) -> Any:
    """Numbers, strings, bools and None as they are, tuples as lists; JSON lacks bytes and infinities."""
    if isinstance(key, tuple):
        return [_key_to_json(part) for part in key]
    if isinstance(key, bytes):
        return {"bytes": key.hex()}
    if isinstance(key, float) and not isfinite(key):
        return {"float": str(key)}
    if key is None or isinstance(key, bool | int | float | str):
        return key
    raise TypeError(
        f"a table with the state {key!r} cannot be saved: expected numbers, strings, bytes, bools, None, "
        "or tuples of them"
    )


def _key_from_json(data: Any) -> Hashable:
    if isinstance(data, list):
        return tuple(_key_from_json(part) for part in data)
    match data:
        case {"bytes": str(digits)}:
            return bytes.fromhex(digits)
        case {"float": "inf" | "-inf" as name}:
            return float(name)
    if isinstance(data, dict) or (isinstance(data, float) and not isfinite(data)):
        raise ValueError(f"{data!r} is not a state")
    return data  # type: ignore[no-any-return]


def _state_to_json(state: StateOf | None) -> dict[str, Any] | None:
    """How a state source is written down; of a function, only its name."""
    if isinstance(state, Cells | Observed):
        return {"kind": type(state).__name__, **asdict(state)}
    return state and {"kind": "function", "name": getattr(state, "__qualname__", type(state).__qualname__)}


def _state_from_json(data: Any, given: StateOf | None) -> StateOf | None:
    """The inverse of ``_state_to_json``; what is ``given`` goes before, and stands in for a function."""
    if given is not None or data is None:
        return given
    fields = dict(data)
    kind = fields.pop("kind")
    if kind == "function":
        raise ValueError(
            f"its states were made by the function {fields['name']}, which a file does not hold: "
            "give it again, TablePotential.load(path, state=...)"
        )
    if kind not in ("Cells", "Observed"):
        raise ValueError(f"unknown source of states {data!r}")
    return Cells(**fields) if kind == "Cells" else Observed(**fields)


def _key(state: Any) -> Hashable:
    key = canonical(state)
    if _has_nan(key):
        raise ValueError(f"{state!r} cannot be a state of a table: NaN equals nothing, so it would never be found")
    return key


def _has_nan(key: Any) -> bool:
    return any(map(_has_nan, key)) if isinstance(key, tuple) else isinstance(key, float) and key != key


def _finite(value: Any, name: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"{name} must be a number, got {value!r}") from None
    if not isfinite(number):
        raise ValueError(f"{name} is {number}: expected a finite number")
    return number


def _kind(state: Any) -> type:
    """Kinds of states that are never equal to each other."""
    state = canonical(state)
    return float if isinstance(state, bool | int | float) else type(state)
