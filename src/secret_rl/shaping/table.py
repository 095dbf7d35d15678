"""Potentials that look the state up in a table."""

import warnings
from collections.abc import Hashable, Mapping
from functools import cached_property
from math import isfinite
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from secret_rl.shaping.potentials import CoverageWarning, Infos, Mask, Values
from secret_rl.shaping.states import StateOf, canonical, state_from_json, state_rows, state_to_json
from secret_rl.shaping.table_file import FORMAT, read_table, write_table

_ASKED_BEFORE_WARNING = 30  # states in a row, none of them known
_LONGEST_ARRAY = 1 << 20  # entries of a table over whole numbers that is kept as an array, too


class TablePotential:
    """Phi of a state from a table; states that are not in it get 0, as in the paper (section 2.2).

    >>> potential = TablePotential({3: 0.25, 7: 0.5})
    >>> potential.begin(None, {"state": 7}), potential.begin(None, {"state": 8})
    (0.5, 0.0)

    ``state`` tells where the state comes from: None for ``info["state"]``; ``Observed()`` for the observation
    itself; ``Cells(...)`` for a grid over ``Box`` observations; or any function of (observation, info).
    ``reward_bound`` is the largest positive return of an episode that the potential stands for, if known.
    """

    def __init__(
        self,
        values: Mapping[Any, float],
        *,
        state: StateOf | None = None,
        reward_bound: float | None = None,
    ) -> None:
        if not isinstance(values, Mapping):
            raise TypeError(f"a table must be a dict of state: value, got {type(values).__name__}")
        if not values:
            raise ValueError("the table holds no state: use NoPotential() for no shaping")
        if state is not None and not callable(state):
            raise TypeError(f"state must be None, Observed(), Cells(...) or a function, got {state!r}")
        self._state = state
        self._values: dict[Hashable, float] = {}
        for given, value in values.items():
            self._values[_key(given)] = _finite(value, f"Phi of state {given!r}")
        self._reward_bound = None if reward_bound is None else _finite(reward_bound, "reward_bound")
        if self._reward_bound is not None and self._reward_bound < 0:
            raise ValueError(f"reward_bound must not be negative, got {reward_bound!r}")
        self.watching = True  # until a state is known, or the user was warned that none is
        self._asked_in_vain = 0

    @property
    def values(self) -> Mapping[Hashable, float]:
        """The table, read only."""
        return MappingProxyType(self._values)

    @property
    def state(self) -> StateOf | None:
        """Where states come from; None: ``info["state"]``."""
        return self._state

    @cached_property
    def bound(self) -> float:
        """The largest absolute value in the table."""
        return max(map(abs, self._values.values()))

    @property
    def reward_bound(self) -> float | None:
        """The largest positive return of an episode that the potential stands for, if known."""
        return self._reward_bound

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"TablePotential({len(self)} states, |Phi| <= {self.bound:.3g})"

    def begin(self, observation: Any, info: Mapping[str, Any], /) -> float:
        """Phi of a state."""
        if self._state is None:
            try:
                state = info["state"]
            except KeyError:
                raise ValueError(_no_state(info)) from None
        else:
            state = self._state(observation, info)
        try:
            value = self._values.get(state)
        except TypeError:  # an array, or a tuple of some
            state = canonical(state)
            value = self._values.get(state)
        if value is None:
            if self.watching:
                self._watch([state])
            return 0.0
        self.watching = False
        return value

    def step(self, action: Any, observation: Any, reward: float, info: Mapping[str, Any], /) -> float:  # noqa: ARG002
        """Phi of a state."""
        return self.begin(observation, info)

    def fresh(self) -> "TablePotential":
        """Itself: it remembers nothing of an episode."""
        return self

    def vector(self, n: int) -> "_VectorTable | None":
        """Many lookups at once; None where states come from a function, which is asked for one at a time."""
        return _VectorTable(self, n) if self._state is None or hasattr(self._state, "rows") else None

    def lookup(self, states: Any) -> Values:
        """(rows,) Phi of many states, an array or a sequence with one row each."""
        if (
            isinstance(states, np.ndarray)
            and states.ndim == 1
            and states.dtype.kind in "iu"
            and self.array
            and states.dtype != np.uint64
        ):
            first, values = self.array
            places = states.astype(np.int64, copy=False) - (first - 1)
            answers = values.take(places, mode="clip")
        else:
            states = [canonical(state) for state in states]
            answers = np.array([self._values.get(state, 0.0) for state in states], np.float64)
        if self.watching and len(states):
            self._watch(states)
        return answers

    def check_spaces(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:  # noqa: ARG002
        """An error where states cannot be made from such observations."""
        check = getattr(self._state, "check_space", None)
        if check is not None:
            check(observation_space)

    def tabulate(self, model: Any) -> dict[str, Any]:
        """Phi of every state of a finite task, which has ``states`` and ``observations`` with one row each."""
        states = state_rows(self._state, model.observations, model.states)
        if states is None:
            raise AttributeError(f"states come from {self._state!r}, which is asked for one at a time")
        return {"potential": self.lookup(states)}

    def save(self, path: str | PathLike[str]) -> Path:
        """Write one JSON file, whole or not at all. Of a ``state`` function only the name is kept."""
        path = Path(path)
        write_table(path, self._values, state=state_to_json(self._state), reward_bound=self._reward_bound)
        return path

    @classmethod
    def load(cls, path: str | PathLike[str], *, state: StateOf | None = None) -> "TablePotential":
        """Read what ``save`` wrote. ``state`` is needed where states were made by a function."""
        values, about = read_table(Path(path))
        with FORMAT.reading(Path(path)):
            source = state_from_json(about.get("state"), state)
            return cls(values, state=source, reward_bound=about.get("reward_bound"))

    @cached_property
    def array(self) -> "NumberTable | None":
        """The table over whole numbers as an array, if they lie close enough together."""
        if not all(isinstance(state, int) for state in self._values):
            return None
        numbers = [int(state) for state in self._values]  # type: ignore[call-overload]
        first, last = min(numbers), max(numbers)
        if last - first >= _LONGEST_ARRAY or max(-first, last) >= 2**62:
            return None
        values = np.zeros(last - first + 3)
        values[np.array(numbers) - (first - 1)] = list(self._values.values())
        return NumberTable(first, values)

    def _watch(self, states: Any) -> None:
        """Object to states of another kind, and warn once if none of the first states asked for is known."""
        if any(canonical(state) in self._values for state in states):
            self.watching = False
            return
        if self._asked_in_vain == 0:
            kinds = {_kind(state) for state in self._values}
            if _kind(states[0]) not in kinds:
                raise ValueError(
                    f"this potential is for other states: asked for {canonical(states[0])!r}, but its table holds "
                    f"{next(iter(self._values))!r}; tell where its states come from with state="
                )
        self._asked_in_vain += len(states)
        if self._asked_in_vain >= _ASKED_BEFORE_WARNING:
            self.watching = False
            warnings.warn(
                f"none of the first {self._asked_in_vain} states is among the {len(self)} of the table, so nothing was "
                f"shaped: asked for {canonical(states[0])!r} for one, the table holds {next(iter(self._values))!r} for "
                "one; check that it was made for this environment, and state=",
                CoverageWarning,
                stacklevel=2,
            )


class NumberTable(NamedTuple):
    """Phi of the whole numbers from ``first`` on, and at both ends 0 for all others."""

    first: int
    values: Values


class _VectorTable:
    """A table asked for many environments at once."""

    def __init__(self, table: TablePotential, n: int) -> None:
        self._table, self._n = table, n

    def begin(self, started: Mask, observations: Any, infos: Infos, /) -> Values:
        """(n,) Phi where ``started``."""
        if self._table.state is None:
            states, there = infos.get("state"), infos.get("_state")
            if states is None or not (there is None or there is started or there[started].all()):
                raise ValueError(_no_state(infos))
        else:
            states = state_rows(self._table.state, observations, None)
        if np.count_nonzero(started) == self._n:
            return self._table.lookup(states)
        values = np.zeros(self._n)
        values[started] = self._table.lookup(states[started])
        return values

    def step(self, active: Mask, actions: Any, observations: Any, rewards: Values, infos: Infos, /) -> Values:  # noqa: ARG002
        """(n,) Phi where ``active``."""
        return self.begin(active, observations, infos)


def _no_state(info: Mapping[str, Any]) -> str:
    given = [name for name in info if not name.startswith("_")]
    return (
        f'info has no "state" to look up (it has {given}): give the table a state=, such as Observed(), Cells(...) '
        "or a function of (observation, info)"
    )


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
