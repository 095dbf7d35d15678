"""Potentials of several environments at once, and the arithmetic that the vector wrappers share."""

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import iterate
from numpy.typing import NDArray

from secret_rl.shaping.potentials import Infos, Mask, Potential, Values, VectorPotential, not_finite
from secret_rl.shaping.table_steps import Paid, TableSteps
from secret_rl.shaping.terms import Terms


class SideBySide:
    """The shaping of n environments: asks a vector potential, and keeps Phi of the present states."""

    def __init__(self, terms: Terms, n: int, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:
        self._discount, self._scale, self._keep = terms[1:]
        self._potential = vectorised(terms.potential, n, observation_space, action_space)
        self._before = np.zeros(n)  # (n,) scaled Phi of the present states
        self._short = TableSteps.of(terms)

    @property
    def before(self) -> Values:
        """(n,) scaled Phi of the present states."""
        return self._before

    def step_at_once(self, rewards: Values, terminated: Mask, truncated: Mask, infos: Infos) -> Paid | None:
        """A whole step of environments that reset within it, restarts included, where there is a short way; else None.

        ``infos`` are those of such vector environments. Takes the place of ``step``, ``pay`` and ``begin``.
        """
        if self._short is None:
            return None
        states = last_states = self._short.states(infos)
        ended, final = terminated | truncated, infos.get("final_info", {})
        if states is not None and np.count_nonzero(ended):
            last_states = self._short.states(final, ended)
        stacked = "shaping_reward" in infos or "shaping_reward" in final  # on another: its parts are to be added up
        if stacked or states is None or last_states is None:
            return None
        return self._short.step(self._before, rewards, terminated, truncated, states, last_states)

    def begin(self, started: Mask, observations: Any, infos: Infos) -> None:
        """Episodes start where the mask is set, if anywhere."""
        if np.count_nonzero(started):
            first = self._checked(self._potential.begin(started, observations, infos))
            self._before = np.where(started, self._scale * first, self._before)

    def step(self, active: Mask, actions: Any, observations: Any, rewards: Values, infos: Infos) -> Values:
        """(n,) scaled Phi after a step where the mask is set, 0 elsewhere."""
        count = np.count_nonzero(active)
        if count == 0:
            return np.zeros(len(active))
        after = self._scale * self._checked(self._potential.step(active, actions, observations, rewards, infos))
        return after if count == len(active) else np.where(active, after, 0.0)

    def pay(self, active: Mask, after: Values, terminated: Mask, truncated: Mask) -> Values:
        """(n,) discount * Phi' - Phi of the steps that were taken, 0 elsewhere."""
        # Terminal states have no potential, or the optimal policies change. Termination wins over truncation.
        gone = terminated if self._keep else terminated | truncated
        if np.count_nonzero(gone):
            after = np.where(gone, 0.0, after)
        shaping = self._discount * after - self._before
        if np.count_nonzero(active) < len(active):
            shaping = np.where(active, shaping, 0.0)
        # One number tells of most: a sum is finite only if all of it is.
        if not isfinite(np.add.reduce(shaping)) and not np.isfinite(shaping).all():
            env = int(np.flatnonzero(~np.isfinite(shaping))[0])
            raise ValueError(not_finite(self._potential, f"{after[env]} after {self._before[env]} in env {env}"))
        self._before = after
        return shaping

    def _checked(self, values: Values) -> Values:
        if getattr(values, "shape", None) != self._before.shape and np.shape(values) != self._before.shape:
            raise ValueError(
                f"{self._potential!r} answered values of shape {np.shape(values)}, expected "
                f"{self._before.shape}: one for each environment, whatever the mask"
            )
        return values


def vectorised(
    potential: Potential, n: int, observation_space: gym.Space[Any], action_space: gym.Space[Any]
) -> VectorPotential:
    """A potential for n environments, whose batches of observations and actions are in these spaces."""
    own = getattr(potential, "vector", None)
    several: VectorPotential | None = None if own is None else own(n)
    return several if several is not None else Copies(potential, n, observation_space, action_space)


class Copies:
    """Any potential for n environments: n fresh ones, asked in turn."""

    def __init__(
        self, potential: Potential, n: int, observation_space: gym.Space[Any], action_space: gym.Space[Any]
    ) -> None:
        self._potentials = [potential.fresh() for _ in range(n)]
        self._observation_space, self._action_space = observation_space, action_space

    def begin(self, started: Mask, observations: Any, infos: Infos, /) -> Values:
        """(n,) Phi where ``started``."""
        values = np.zeros(len(self._potentials))
        for i, observation in enumerate(iterate(self._observation_space, observations)):
            if started[i]:
                values[i] = self._potentials[i].begin(observation, one_info(infos, i))
        return values

    def step(self, active: Mask, actions: Any, observations: Any, rewards: Values, infos: Infos, /) -> Values:
        """(n,) Phi where ``active``."""
        values = np.zeros(len(self._potentials))
        rows = zip(iterate(self._action_space, actions), iterate(self._observation_space, observations), strict=True)
        for i, (action, observation) in enumerate(rows):
            if active[i]:
                reward = float(rewards[i])
                values[i] = self._potentials[i].step(action, observation, reward, one_info(infos, i))
        return values

    def __repr__(self) -> str:
        return f"{len(self._potentials)} x {self._potentials[0]!r}"


class ListedInfos(Mapping[str, Any]):
    """A list of n infos, read as Gymnasium's vector environments lay them out.

    ``infos["state"]`` is an array of whole numbers where all are, else of objects.
    """

    def __init__(self, listed: Sequence[Mapping[str, Any]]) -> None:
        self.listed = listed
        self._whole: set[str] = set()  # entries that are known to be there for all

    def __getitem__(self, key: str) -> NDArray[Any]:
        try:  # at once: most entries are there for all
            found = [info[key] for info in self.listed]
        except KeyError:
            return (
                np.ones(len(self.listed), np.bool_) if key[:1] == "_" and key[1:] in self._whole else self._partly(key)
            )
        self._whole.add(key)
        return _column(found)

    def _partly(self, key: str) -> NDArray[Any]:
        there = [key in info for info in self.listed]
        if not any(there):
            if key.startswith("_") and any(key[1:] in info for info in self.listed):
                return np.array([key[1:] in info for info in self.listed])
            raise KeyError(key)
        return _column([info.get(key) for info in self.listed])

    def __iter__(self) -> Iterator[str]:
        names = dict.fromkeys(name for info in self.listed for name in info)
        for name in names:
            yield name
            yield f"_{name}"

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _column(found: list[Any]) -> NDArray[Any]:
    if set(map(type, found)) == {int}:
        return np.array(found)
    values = np.empty(len(found), object)
    for i, value in enumerate(found):
        values[i] = value
    return values


def one_info(infos: Infos, i: int) -> Mapping[str, Any]:
    """The info of environment ``i`` alone."""
    if isinstance(infos, ListedInfos):
        return infos.listed[i]
    info = {}
    for name, values in infos.items():
        there = infos.get(f"_{name}")
        if there is None and name[:1] == "_" and name[1:] in infos:
            continue  # it tells which values of another entry are there
        if there is None or there[i]:
            info[name] = one_info(values, i) if isinstance(values, Mapping) else values[i]
    return info


def last_seen(observations: Any, final: Mapping[int, Any], space: gym.Space[Any]) -> Any:
    """A batch in which some environments show what they saw last instead of the start of a new episode.

    ``final`` holds the observations of those; ``space`` is that of a single one.
    """
    if isinstance(space, gym.spaces.Dict):
        return {
            key: last_seen(observations[key], {i: row[key] for i, row in final.items()}, part)
            for key, part in space.spaces.items()
        }
    if isinstance(space, gym.spaces.Tuple):
        return tuple(
            last_seen(observations[k], {i: row[k] for i, row in final.items()}, part)
            for k, part in enumerate(space.spaces)
        )
    rows = observations.copy() if isinstance(observations, np.ndarray) else list(observations)
    for i, row in final.items():
        rows[i] = row
    return rows if isinstance(observations, np.ndarray) else tuple(rows)
