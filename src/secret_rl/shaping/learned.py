"""Potentials that a small network gives for any observation: no state key is needed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from secret_rl.shaping.potentials import Infos, Mask, Values
from secret_rl.trajectories.nested import map_arrays, map_leaves, named_arrays

if TYPE_CHECKING:
    from secret_rl.shaping.networks import PotentialNetwork

Features = Callable[[Any], NDArray[Any]]
"""(rows, ...) of observations to (rows, ...) of numbers, one row of which depends on its own observation alone."""

_REMEMBERED = 1 << 16  # observations whose potential is kept, so that one that comes again costs a lookup
_LONGEST_KEY = 64  # bytes; of larger observations a digest is kept


@dataclass(frozen=True)
class LearningReport:
    """How well a network learned what visits are worth; errors are mean squares over visits."""

    visits: int
    distinct: int
    """Observations that differ: what the network learned on, each with the mean over its visits."""
    steps: int
    """Updates of the network that was kept."""
    error: float
    """Against the mean of each observation, over the visits that were learned from."""
    constant_error: float
    """The same of the best constant."""
    validation_error: float | None = None
    """Over the visits of episodes that were held out, if any."""
    validation_constant_error: float | None = None

    @property
    def explained(self) -> float:
        """The share of what differs between observations that the network tells, up to 1."""
        return 1.0 - self.error / self.constant_error if self.constant_error > 0 else 1.0


class LearnedPotential:
    """Phi of an observation, from a network; made by ``learn_potential`` or ``LearnedPotential.load``.

    Answers lie between the least and the largest mean it was learned on (and 0), and those below ``threshold`` times
    the largest are 0. Of observations unlike any it was learned on, Phi is whatever the network says within that range,
    not 0 as in a table: learn from trajectories that go where the agent will.
    """

    def __init__(
        self,
        network: "PotentialNetwork",
        observation_space: gym.Space[Any],
        *,
        low: float,
        high: float,
        threshold: float,
        reward_bound: float | None,
        report: LearningReport,
        features: Features | None = None,
    ) -> None:
        self.network, self.observation_space, self.features = network, observation_space, features
        self.low, self.high, self.threshold = float(low), float(high), float(threshold)
        self.bound = max(-self.low, self.high)
        self.reward_bound, self.report = reward_bound, report
        self._known: dict[bytes, float] = {}

    def __repr__(self) -> str:
        return f"LearnedPotential({self.report.distinct:,} observations, {self.low:.3g} <= Phi <= {self.high:.3g})"

    def begin(self, observation: Any, info: Mapping[str, Any], /) -> float:  # noqa: ARG002
        """Phi of an observation."""
        row = map_leaves(lambda leaf, part: np.asarray(part, leaf.dtype)[None], self.observation_space, observation)
        return float(self._answers(row)[0])

    def step(self, action: Any, observation: Any, reward: float, info: Mapping[str, Any], /) -> float:  # noqa: ARG002
        """Phi of an observation."""
        return self.begin(observation, info)

    def fresh(self) -> "LearnedPotential":
        """Itself: it remembers nothing of an episode."""
        return self

    def vector(self, n: int) -> "_VectorLearned":
        """Many observations at once."""
        return _VectorLearned(self, n)

    def lookup(self, observations: Any) -> Values:
        """(rows,) Phi of many observations, a nest with one row each."""
        return self._answers(_rows_of(self.observation_space, observations))

    def check_spaces(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:  # noqa: ARG002
        """An error where it was learned on observations of another kind, shape or type; bounds may differ."""
        if not _alike(self.observation_space, observation_space):
            raise ValueError(
                f"the potential was learned on observations of {self.observation_space}, there are "
                f"{observation_space}: learn it on trajectories that observe what the agent does"
            )

    def tabulate(self, model: Any) -> dict[str, Any]:
        """Phi of every state of a finite task, which has ``observations`` with one row each."""
        return {"potential": self.lookup(model.observations)}

    def save(self, path: str | PathLike[str]) -> Path:
        """Write one safetensors file, whole or not at all. Of a ``features`` function only the name is kept."""
        from secret_rl.shaping.networks import write_learned

        return write_learned(self, Path(path))

    @classmethod
    def load(cls, path: str | PathLike[str], *, features: Features | None = None) -> "LearnedPotential":
        """Read what ``save`` wrote; nothing in the file is run. ``features`` is needed where there were some."""
        from secret_rl.shaping.networks import read_learned

        return read_learned(Path(path), features)

    def _answers(self, rows: Any) -> Values:
        """(rows,) with observations that came before looked up."""
        keys = row_keys(rows)
        new = {key: i for i, key in enumerate(keys) if key not in self._known}
        if not new:
            return np.array([self._known[key] for key in keys])
        chosen = np.fromiter(new.values(), np.int64, len(new))
        found = dict(zip(new, self._computed(map_arrays(lambda part: part[chosen], rows)).tolist(), strict=True))
        answers = np.array([found[key] if key in found else self._known[key] for key in keys])
        if len(self._known) + len(found) <= _REMEMBERED:
            self._known.update(found)
        return answers

    def _computed(self, rows: Any) -> Values:
        if self.bound == 0:  # nothing was credited: there was nothing to learn
            return np.zeros(len(row_keys(rows)))
        answers = self.network.answers(featured(self.features, rows))
        # A network is never quite 0, and agents follow the slightest slope where there should be none.
        answers[np.abs(answers) < self.threshold] = 0.0
        return np.clip(answers * self.bound, self.low, self.high)


class _VectorLearned:
    """Many environments at once."""

    def __init__(self, potential: LearnedPotential, n: int) -> None:
        self._potential, self._n = potential, n

    def begin(self, started: Mask, observations: Any, infos: Infos, /) -> Values:  # noqa: ARG002
        """(n,) Phi where ``started``."""
        if started.all():
            return self._potential.lookup(observations)
        values = np.zeros(self._n)
        rows = _rows_of(self._potential.observation_space, observations)
        values[started] = self._potential._answers(map_arrays(lambda part: part[started], rows))
        return values

    def step(self, active: Mask, actions: Any, observations: Any, rewards: Values, infos: Infos, /) -> Values:  # noqa: ARG002
        """(n,) Phi where ``active``."""
        return self.begin(active, observations, infos)


def row_keys(rows: Any) -> list[bytes]:
    """What tells the rows of a nest of arrays apart: their bytes, or a digest of many."""
    flat = [
        np.ascontiguousarray(array).reshape(len(array), -1).view(np.uint8).reshape(len(array), -1)
        for _, array in named_arrays("", rows)
    ]
    joined = flat[0] if len(flat) == 1 else np.concatenate(flat, axis=1)
    size, content = joined.shape[1], joined.tobytes()
    keys = [content[i * size : (i + 1) * size] for i in range(len(joined))]
    return keys if size <= _LONGEST_KEY else [blake2b(key, digest_size=16).digest() for key in keys]


def featured(features: Features | None, rows: Any) -> Any:
    """What the network reads of observations."""
    if features is None:
        return rows
    numbers = np.asarray(features(rows))
    count = len(next(array for _, array in named_arrays("", rows)))
    if numbers.ndim < 1 or len(numbers) != count or numbers.dtype.kind not in "biuf":
        raise ValueError(
            f"features made an array of {numbers.dtype} of shape {numbers.shape} of {count} observations: expected a "
            "row of numbers for each"
        )
    return numbers.reshape(count, -1).astype(np.float64)


def _rows_of(space: gym.Space[Any], observations: Any) -> Any:
    """A batch with the types of its space, its entries in the order of the space."""
    return map_leaves(lambda leaf, part: np.asarray(part, leaf.dtype), space, observations)


def _alike(mine: gym.Space[Any], other: gym.Space[Any]) -> bool:
    if isinstance(mine, gym.spaces.Dict) and isinstance(other, gym.spaces.Dict):
        return set(mine.spaces) == set(other.spaces) and all(_alike(mine[key], other[key]) for key in mine.spaces)
    if isinstance(mine, gym.spaces.Tuple) and isinstance(other, gym.spaces.Tuple):
        return len(mine.spaces) == len(other.spaces) and all(map(_alike, mine.spaces, other.spaces))
    if isinstance(mine, gym.spaces.Box) and isinstance(other, gym.spaces.Box):
        return mine.shape == other.shape and mine.dtype == other.dtype
    return mine == other
