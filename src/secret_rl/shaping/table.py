"""Potentials that look the state up in a table."""

import warnings
from collections.abc import Hashable, Mapping
from functools import cached_property
from math import isfinite
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gymnasium as gym
import numpy as np

from secret_rl.files import FileFormat, finite_number
from secret_rl.shaping.core import Batch, CoverageWarning, Values
from secret_rl.shaping.states import (
    StateOf,
    batch_states,
    canonical,
    check_source,
    source_from_json,
    source_to_json,
    state_rows,
)

_FORMAT = FileFormat("secret-rl table potential", remedy="restore it or estimate the potential again", large=True)
_ASKED_BEFORE_WARNING = 30  # states in a row, none of them known
_LONGEST_ARRAY = 1 << 20  # entries of a table over whole numbers that is kept as an array, too


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
        check_source(state)
        self.state = state
        self._values = {canonical(key): _finite(value, f"Phi of state {key!r}") for key, value in values.items()}
        for key in filter(_has_nan, self._values):
            raise ValueError(f"{key!r} cannot be a state of a table: NaN equals nothing, so it would never be found")
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
        if self._watching and len(states):
            self._watch([canonical(state) for state in states])
        return answers

    def check_spaces(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:  # noqa: ARG002
        """An error where states cannot be made from such observations."""
        check_source(self.state, observation_space)

    def tabulate(self, model: Any) -> dict[str, Any]:
        """Phi of every state of a finite task, which has ``states`` and ``observations`` with one row each."""
        states = state_rows(self.state, model.observations, model.states)
        if states is None:
            raise AttributeError(f"states come from {self.state!r}, which is asked for one at a time")
        return {"potential": self.lookup(states)}

    def save(self, path: str | PathLike[str]) -> Path:
        """Write one JSON file, whole or not at all. Of a ``state`` function only the name is kept."""
        content = {
            "state": source_to_json(self.state),
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
            source = source_from_json(content["state"], state)
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

    def _watch(self, states: list[Hashable]) -> None:
        """Object to states of another kind, and warn once if none of the first states asked for is known."""
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
    expected = "numbers, strings, bytes, bools, None, or tuples of them"
    raise TypeError(f"a table with the state {key!r} cannot be saved: expected {expected}")


def _key_from_json(data: Any) -> Hashable:
    match data:
        case list():
            return tuple(map(_key_from_json, data))
        case {"bytes": str(digits)}:
            return bytes.fromhex(digits)
        case {"float": "inf" | "-inf" as name}:
            return float(name)
    if isinstance(data, dict) or (isinstance(data, float) and not isfinite(data)):
        raise ValueError(f"{data!r} is not a state")
    return data  # type: ignore[no-any-return]


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


def _kind(key: Hashable) -> type:
    """Kinds of keys that are never equal to each other."""
    return float if isinstance(key, bool | int | float) else type(key)
