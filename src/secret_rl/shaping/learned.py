"""Potentials that a small network gives for any observation: no state key is needed."""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from secret_rl.shaping.core import Batch, Values
from secret_rl.trajectories.nested import map_arrays, map_leaves, row_count

if TYPE_CHECKING:
    from secret_rl.shaping.networks import PotentialNetwork

Features = Callable[[Any], NDArray[Any]]
"""(rows, ...) of observations to (rows, ...) of numbers, one row of which depends on its own observation alone."""

_REMEMBERED = 1 << 16  # rows whose answers are kept
_LONGEST_KEY = 512  # bytes; of larger rows, pictures for one, a digest is kept


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
        """The share of the variance between observations that the network explains, up to 1."""
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
        self._known = RowCache(self._computed)

    def __repr__(self) -> str:
        return f"LearnedPotential({self.report.distinct:,} observations, {self.low:.3g} <= Phi <= {self.high:.3g})"

    def init(self, n: int, /) -> None:
        """Nothing is remembered of an episode."""

    def step(self, carry: None, batch: Batch, /) -> tuple[None, Values]:
        """(n,) Phi of the observations."""
        return carry, batch.spread(self.lookup(batch.select(batch.observations)))

    def lookup(self, observations: Any) -> Values:
        """(rows,) Phi of many observations, a nest with one row each."""
        rows = map_leaves(lambda leaf, part: np.asarray(part, leaf.dtype), self.observation_space, observations)
        return np.array(self._known.find(rows)[1])

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

    def _computed(self, rows: Any) -> Values:
        if self.bound == 0:  # nothing was credited: there was nothing to learn
            return np.zeros(row_count(rows))
        answers = self.network.answers(featured(self.features, rows))
        # A network is never quite 0, and agents follow the slightest slope where there should be none.
        answers[np.abs(answers) < self.threshold] = 0.0
        return np.clip(answers * self.bound, self.low, self.high)


class RowCache:
    """Answers for rows of arrays, remembered, so that a row that comes again costs a lookup.

    ``answer`` takes nests with one row each, (observations,) or (observations, actions) for example, and gives (rows,).
    """

    def __init__(self, answer: Callable[..., Values]) -> None:
        self._answer = answer
        self._answers: dict[bytes, float] = {}

    def find(self, *nests: Any) -> tuple[list[bytes], list[float]]:
        """(rows,) keys that are equal where rows are, and answers; new rows are answered together, equal ones once."""
        keys = row_keys(*nests)
        answers: list[Any] = list(map(self._answers.get, keys))
        if None in answers:
            new = {key: i for i, (key, known) in enumerate(zip(keys, answers, strict=True)) if known is None}
            rows = list(new.values())
            some = self._answer(*(map_arrays(lambda array: array[rows], nest) for nest in nests))
            found = dict(zip(new, some.tolist(), strict=True))
            if len(self._answers) + len(found) <= _REMEMBERED:
                self._answers.update(found)
            answers = [found[key] if known is None else known for key, known in zip(keys, answers, strict=True)]
        return keys, answers


def row_keys(*nests: Any) -> list[bytes]:
    """(rows,) keys that are equal where rows of the nests are: their bytes, or a digest of many."""
    parts = [
        np.ascontiguousarray(array).reshape(len(array), -1).view(np.uint8) for nest in nests for array in _leaves(nest)
    ]
    content = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)  # (rows, bytes)
    keys: list[bytes] = content.view(f"V{content.shape[1]}")[:, 0].tolist()
    return keys if content.shape[1] <= _LONGEST_KEY else [blake2b(key, digest_size=16).digest() for key in keys]


def _leaves(nest: Any) -> list[Any]:
    """The arrays of a nest, dicts in alphabetical order: environments list entries as they like."""
    if isinstance(nest, dict):
        return [leaf for name in sorted(nest) for leaf in _leaves(nest[name])]
    return [leaf for part in nest for leaf in _leaves(part)] if isinstance(nest, tuple) else [nest]


def featured(features: Features | None, rows: Any) -> Any:
    """What the network reads of observations."""
    if features is None:
        return rows
    numbers = np.asarray(features(rows))
    count = row_count(rows)
    if numbers.ndim < 1 or len(numbers) != count or numbers.dtype.kind not in "biuf":
        raise ValueError(
            f"features made an array of {numbers.dtype} of shape {numbers.shape} of {count} observations: expected a "
            "row of numbers for each"
        )
    return numbers.reshape(count, -1).astype(np.float64)


def _alike(mine: gym.Space[Any], other: gym.Space[Any]) -> bool:
    if isinstance(mine, gym.spaces.Dict) and isinstance(other, gym.spaces.Dict):
        return set(mine.spaces) == set(other.spaces) and all(_alike(mine[key], other[key]) for key in mine.spaces)
    if isinstance(mine, gym.spaces.Tuple) and isinstance(other, gym.spaces.Tuple):
        return len(mine.spaces) == len(other.spaces) and all(map(_alike, mine.spaces, other.spaces))
    if isinstance(mine, gym.spaces.Box) and isinstance(other, gym.spaces.Box):
        return mine.shape == other.shape and mine.dtype == other.dtype
    return mine == other
