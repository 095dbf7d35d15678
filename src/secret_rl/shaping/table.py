"""Potentials that look the state up in a table, and the keys of states: of infos, observations, or cells of a grid."""

import math
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import create_empty_array
from numpy.typing import NDArray

from secret_rl.files import FileFormat
from secret_rl.shaping.core import Batch, CoverageWarning, Values, check_number

StateOf = Callable[[Any, Mapping[str, Any]], Any]
"""(observation, info) of one step to a state: anything ``canonical`` accepts."""

_FORMAT = FileFormat("secret-rl table potential", remedy="restore it or estimate the potential again")
_IN_VAIN = 30  # states in a row, none of them known
_LONGEST_ARRAY = 1 << 20  # entries of a table over whole numbers that is kept as an array, too
_FARTHEST = 2.0**62  # cells count in 64 bits


def canonical(state: Any) -> Hashable:
    """The key of a state: NumPy scalars as Python's, arrays and lists as tuples, -0.0 as 0.0."""
    if isinstance(state, np.ndarray | np.generic):
        state = state.tolist()
    if isinstance(state, tuple | list):
        return tuple(map(canonical, state))
    if not isinstance(state, Hashable):
        expected = "expected numbers, strings, bytes, or tuples or arrays of them"
        raise TypeError(f"{state!r} cannot be a state: {expected}; make one of it with state=")
    return state + 0.0 if isinstance(state, float) else state


@dataclass(frozen=True)
class ObservationKey:
    """The observation itself as the state: for ``Discrete`` observations, or short vectors of whole numbers.

    >>> ObservationKey()(3, {}), ObservationKey()(np.array([0, 2]), {})
    (3, (0, 2))
    """

    def __call__(self, observation: Any, info: Mapping[str, Any]) -> Hashable:  # noqa: ARG002
        """The observation as a key."""
        return canonical(observation)

    def rows(self, observations: Any) -> NDArray[Any]:
        """(rows, ...) the states of many observations at once."""
        if isinstance(observations, dict | tuple):
            raise TypeError("expected an array or numbers; use GridKey(..., keys=...) or a function")
        return np.asarray(observations)


@dataclass(frozen=True)
class GridKey:
    """The cell of a grid that a ``Box`` observation lies in, as a tuple of whole numbers (appendix A).

    The paper lays cells with sides of 50 over positions in DMLab and joins the number of the held key:

    >>> key = GridKey(cell_size=(50, 50, 1), keys=("position", "held"))
    >>> key({"position": np.array([120.0, -3.0]), "held": 2}, {})
    (2, -1, 2)
    >>> key
    GridKey(cell_size=(50.0, 50.0, 1.0), keys=('position', 'held'))
    """

    cell_size: float | tuple[float, ...]
    """Side of a cell, in units of the observation, not a number of cells: one number, or one for each dimension. 1
    keeps whole numbers as they are."""
    keys: tuple[str, ...] = ()
    """Entries of a ``Dict`` observation, joined in this order; (): the observation itself."""

    def __post_init__(self) -> None:
        sizes = tuple(self.cell_size) if isinstance(self.cell_size, Iterable) else (self.cell_size,)
        expected = "the side of a cell, a positive number"
        numbers = tuple(check_number("cell_size", size, lambda one: one > 0, expected) for size in sizes)
        if isinstance(self.keys, str):
            raise TypeError(f"keys must be a tuple of entries of a Dict observation, got {self.keys!r}")
        object.__setattr__(self, "cell_size", numbers if isinstance(self.cell_size, Iterable) else numbers[0])
        object.__setattr__(self, "keys", tuple(self.keys))

    def __call__(self, observation: Any, info: Mapping[str, Any]) -> tuple[int, ...]:  # noqa: ARG002
        """The cell of one observation."""
        parts = {key: np.asarray(observation[key])[None] for key in self.keys}
        return tuple(self.rows(parts if self.keys else np.asarray(observation)[None])[0].tolist())

    def rows(self, observations: Any) -> NDArray[np.int64]:
        """(rows, dimensions) the cells of many observations at once."""
        if bool(self.keys) != isinstance(observations, dict):
            raise TypeError("keys= are the entries to take of a Dict, and of nothing else")
        parts = [np.asarray(observations[key]) for key in self.keys] if self.keys else [np.asarray(observations)]
        numbers = np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1).astype(np.float64)
        if isinstance(self.cell_size, tuple) and len(self.cell_size) != numbers.shape[1]:
            raise ValueError(
                f"{len(self.cell_size)} cell sizes for {numbers.shape[1]} numbers: give one for each, or one"
            )
        cells: NDArray[np.float64] = np.floor(numbers / np.array(self.cell_size))
        far = ~(np.abs(cells) < _FARTHEST)  # NaN too
        if far.any():
            place = numbers[far.any(1)][0].tolist()
            raise ValueError(f"{place} lies in no cell of {self}: expected finite numbers")
        return cells.astype(np.int64)


def check_source(state: StateOf | None, space: gym.Space[Any] | None = None) -> None:
    """An error where states cannot come from there, or not from observations of a space."""
    if state is not None and not callable(state):
        raise TypeError(f"state must be None, ObservationKey(), GridKey(...) or a function, got {state!r}")
    if space is not None and state is not None and hasattr(state, "rows"):
        try:
            state.rows(create_empty_array(space, fn=np.zeros))
        except (TypeError, ValueError, LookupError) as wrong:
            raise ValueError(f"{state} does not fit {space}: {wrong}") from None


def batch_states(state: StateOf | None, batch: Batch) -> Any:
    """(rows, ...) the states of the rows of a batch that start or step; None: ``info["state"]``."""
    if state is None:
        states = batch.entry("state")
        if states is None:
            given = [name for name in batch.info(int(batch.rows[0])) if not name.startswith("_")]
            remedy = "give a state=, such as ObservationKey(), GridKey(...) or a function of (observation, info)"
            raise ValueError(f'info has no "state" to look up (it has {given}): {remedy}')
        return states
    if hasattr(state, "rows"):
        return batch.select(state.rows(batch.observations))
    return [state(batch.observation(i), batch.info(i)) for i in batch.rows.tolist()]  # a function


class TablePotential:
    """Phi of a state from a table; states that are not in it get 0, as in the paper (section 2.2).

    >>> potential = TablePotential({3: 0.25, 7: 0.5})
    >>> potential.lookup([7, 8]).tolist()
    [0.5, 0.0]

    Args:
        values: State to Phi.
        state: Where states come from: None for ``info["state"]``; ``ObservationKey()`` for the observation itself;
            ``GridKey(...)`` for a grid over ``Box`` observations; or any function of (observation, info).
        reward_bound: The largest positive return of an episode that the potential stands for, if known.
    """

    def __init__(
        self, values: Mapping[Any, float], *, state: StateOf | None = None, reward_bound: float | None = None
    ) -> None:
        if not isinstance(values, Mapping):
            raise TypeError(f"a table must be a dict of state: value, got {type(values).__name__}")
        if not values:
            raise ValueError("the table holds no state: use NoPotential() for no shaping")
        check_source(state)
        self.state = state
        self._values = {canonical(key): float(value) for key, value in values.items()}
        for key, value in self._values.items():
            if not math.isfinite(value):
                raise ValueError(f"Phi of state {key!r} is {value}: expected a finite number")
        if reward_bound is not None:
            reward_bound = check_number("reward_bound", reward_bound, lambda bound: bound >= 0, "0 or more")
        self.reward_bound = reward_bound
        self._in_vain: int | None = 0  # states looked up, none of them known; None: one was, or the user was warned

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
        return carry, batch.spread(self.lookup(batch_states(self.state, batch)))

    def lookup(self, states: Any) -> Values:
        """(rows,) Phi of many states, an array or a sequence with one row each."""
        numbers = isinstance(states, np.ndarray) and states.ndim == 1 and states.dtype.kind in "iu"
        if numbers and states.dtype != np.uint64 and self._array is not None:
            first, values = self._array
            answers: Values = values.take(states.astype(np.int64, copy=False) - (first - 1), mode="clip")
        else:
            states = [canonical(state) for state in states]
            answers = np.array([self._values.get(state, 0.0) for state in states], np.float64)
        if self._in_vain is not None and len(states):
            self._watch([canonical(state) for state in states])
        return answers

    def check_spaces(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:  # noqa: ARG002
        """An error where states cannot be made from such observations."""
        check_source(self.state, observation_space)

    def tabulate(self, model: Any) -> dict[str, Any]:
        """Phi of every state of a finite task, which has ``states`` and ``observations`` with one row each."""
        if self.state is None:
            return {"potential": self.lookup(model.states)}
        return {"potential": self.lookup(self.state.rows(model.observations))}  # type: ignore[attr-defined]

    def save(self, path: str | PathLike[str]) -> Path:
        """Write one JSON file, whole or not at all. Of a ``state`` function only the name is kept."""
        source = None
        if self.state is not None:
            fields = asdict(self.state) if isinstance(self.state, ObservationKey | GridKey) else {}
            source = {"kind": getattr(self.state, "__qualname__", type(self.state).__name__), **fields}
        states, values = [_key_to_json(state) for state in self._values], list(self._values.values())
        content = {"state": source, "reward_bound": self.reward_bound, "states": states, "values": values}
        return _FORMAT.write_json(Path(path), content)

    @classmethod
    def load(cls, path: str | PathLike[str], *, state: StateOf | None = None) -> "TablePotential":
        """Read what ``save`` wrote; nothing in it is run. ``state`` is needed where states were made by a function."""
        path = Path(path)
        content = _FORMAT.read_json(path)
        with _FORMAT.reading(path):
            values = dict(zip(map(_key_from_json, content["states"]), content["values"], strict=True))
            if state is None and content["state"] is not None:
                kind, fields = content["state"].pop("kind"), content["state"]
                known = {key.__name__: key for key in (ObservationKey, GridKey)}
                if kind not in known:
                    made = f"its states were made by the function {kind}, which a file does not hold"
                    raise ValueError(f"{made}: give it again, TablePotential.load(path, state=...)")
                state = known[kind](**fields)
            return cls(values, state=state, reward_bound=content["reward_bound"])

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

    def _watch(self, states: list[Hashable]) -> None:
        """Warn once if none of the first states looked up is known."""
        in_vain = (self._in_vain or 0) + len(states)
        known = any(state in self._values for state in states)
        self._in_vain = None if known or in_vain >= _IN_VAIN else in_vain
        if not known and in_vain >= _IN_VAIN:
            warnings.warn(
                f"none of the first {in_vain} states is among the {len(self)} of the table, so nothing was shaped: "
                f"{states[0]!r} was looked up, the table holds {next(iter(self._values))!r}; check that it was made "
                "for this environment, and state=",
                CoverageWarning,
                stacklevel=2,
            )


def _key_to_json(key: Any) -> Any:
    """Numbers, strings, bools and None as they are, tuples as lists; JSON lacks bytes."""
    if isinstance(key, tuple):
        return [_key_to_json(part) for part in key]
    if isinstance(key, bytes):
        return {"bytes": key.hex()}
    if key is None or isinstance(key, bool | int | float | str):
        return key
    raise TypeError(f"a table with the state {key!r} cannot be saved: expected numbers, strings, bytes, or tuples")


def _key_from_json(data: Any) -> Hashable:
    if isinstance(data, list):
        return tuple(map(_key_from_json, data))
    return bytes.fromhex(data["bytes"]) if isinstance(data, dict) else data
