"""Potentials that a small network gives for any observation: what a table holds, regressed on observations."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from secret_rl.checks import check_integer
from secret_rl.files import FileFormat
from secret_rl.progress import progress_bar
from secret_rl.shaping.core import Batch, Values, check_number
from secret_rl.shaping.estimate import Credit, Evidence, Visits, largest_return, totals
from secret_rl.trajectories import Trajectories
from secret_rl.trajectories.nested import arrays_of, leaf_spaces, map_arrays, map_leaves, row_count
from secret_rl.trajectories.spaces import from_json, to_json

_FORMAT = FileFormat("secret-rl learned potential", remedy="restore it or learn the potential again")
_ROWS_AT_A_TIME = 1 << 13
_REPEATED = 4  # visits of an observation, on the average, from which on means over visits need no validation
_HELD_OUT = 0.1
_CREDITED = 5  # episodes with some credit that validation needs to say anything
_REMEMBERED = 1 << 16  # rows whose answers are kept
_LONGEST_KEY = 512  # bytes; of larger rows, pictures for one, a digest is kept


@dataclass(frozen=True)
class LearningReport:
    """How well a network learned the values of visits."""

    visits: int
    distinct: int
    """Observations that differ: what the network learned on, each with the mean over its visits."""
    steps: int
    """Updates of the network that was kept."""
    explained: float
    """The share of the variance between observations, weighted by visits, that the network explains, up to 1."""
    validation_explained: float | None = None
    """The same of the visits of episodes that were held out, if any."""


class LearnedPotential:
    """Phi of an observation, from a network; made by ``learn_potential`` or ``LearnedPotential.load``.

    Answers lie between the least and the largest mean it was learned on (and 0), and those below ``threshold`` times
    the largest are 0. Of observations unlike any it was learned on, Phi is anything in between.
    """

    def __init__(
        self,
        network: Any,
        observation_space: gym.Space[Any],
        *,
        low: float,
        high: float,
        threshold: float,
        reward_bound: float | None,
        report: LearningReport,
    ) -> None:
        self.network, self.observation_space = network, observation_space
        self.low, self.high, self.threshold = low, high, threshold
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
        return np.array(self._known.find(_as_space(self.observation_space, observations))[1])

    def check_spaces(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:  # noqa: ARG002
        """An error where it was learned on observations of another kind, shape or type."""
        if _layout(self.observation_space) != _layout(observation_space):
            differ = f"learned on observations of {self.observation_space}, there are {observation_space}"
            raise ValueError(f"the potential was {differ}: learn it on trajectories that observe what the agent does")

    def tabulate(self, model: Any) -> dict[str, Any]:
        """Phi of every state of a finite task, which has ``observations`` with one row each."""
        return {"potential": self.lookup(model.observations)}

    def save(self, path: str | PathLike[str]) -> Path:
        """Write one safetensors file, whole or not at all."""
        about = {
            "observation_space": to_json(self.observation_space),
            "units": self.network[-1].in_features,
            "bounds": {name: getattr(self, name) for name in ("low", "high", "threshold", "reward_bound")},
            "report": asdict(self.report),
        }
        weights = {name: value.numpy() for name, value in self.network.state_dict().items()}
        return _FORMAT.write_arrays(Path(path), about, weights)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "LearnedPotential":
        """Read what ``save`` wrote; nothing in the file is run."""
        from secret_rl.shaping.networks import load_network

        path = Path(path)
        about, weights = _FORMAT.read_arrays(path)
        with _FORMAT.reading(path):
            space = from_json(about["observation_space"])
            network = load_network(space, about["units"], weights)
            return cls(network, space, **about["bounds"], report=LearningReport(**about["report"]))

    def _computed(self, rows: Any) -> Values:
        if self.bound == 0:  # nothing was credited: there was nothing to learn
            return np.zeros(row_count(rows))
        from secret_rl.shaping.networks import answers

        found = answers(self.network, rows)
        # A network is never quite 0, and agents follow the slightest slope where there should be none.
        found[np.abs(found) < self.threshold] = 0.0
        return np.clip(found * self.bound, self.low, self.high)


def learn_potential(
    trajectories: Trajectories,
    attributions: Credit | None = None,
    kind: str = "pending",
    *,
    rewards: str = "positive",
    delay_discount: float = 0.95,
    threshold: float = 0.01,
    units: int = 64,
    steps: int = 400,
    seed: int = 0,
    progress: bool | None = None,
) -> LearnedPotential:
    """What ``estimate_potential`` gives, for observations without a state key: a small network instead of a table.

    The network has the least squared error over visits: with the full state observed, it tends to the table. Where
    observations hardly repeat, a tenth of the episodes is held out, and the network with the least error on them is
    kept. Attributions may be of the same episodes seen otherwise, such as through a view; the observations of
    ``trajectories`` must be those that the agent will see.

    Args:
        trajectories: Of the target.
        attributions: Who earned their rewards; "value" needs none.
        kind: "pending", "cumulative", "value" or "mixed", as for ``estimate_potential``.
        rewards: "positive" or "all".
        delay_discount: Of reward still to come.
        threshold: Answers below this share of the largest are 0: a network is never quite 0 by itself.
        units: Of the dense layers.
        steps: Updates of the network.
        seed: Of the first weights, of batches and of what is held out.
        progress: Show a progress bar; by default if the terminal is interactive.
    """
    from secret_rl.shaping.networks import answers, regress

    units, steps = check_integer("units", units, 1), check_integer("steps", steps, 1)
    threshold = check_number("threshold", threshold, lambda share: 0 <= share < 1, "a share of Phi, in [0, 1)")
    evidence = Evidence(trajectories, attributions, kind, rewards, delay_discount, tables=False)
    visits = Visits(trajectories, trajectories.final_observations is not None)
    values = evidence.kind.values(evidence, visits)
    numbers, distinct = _distinct(trajectories, visits)
    count = row_count(distinct)
    held_out = _held_out(visits, values, count, seed)[visits.episode]
    means = _means(numbers, values, count)[0]
    low, high = min(0.0, float(means.min())), max(0.0, float(means.max()))
    largest = max(-low, high) or 1.0
    learned = _means(numbers[~held_out], values[~held_out], count)
    judged = _means(numbers[held_out], values[held_out], count) if held_out.any() else None

    def error(network: Any, of: tuple[Values, Values]) -> float:
        """Mean square over visits, in units of the largest mean."""
        there = np.flatnonzero(of[1])
        found = answers(network, map_arrays(lambda part: part[there], distinct))
        return float(np.average((found - of[0][there] / largest) ** 2, weights=of[1][there]))

    seen = np.flatnonzero(learned[1])
    rows, targets = map_arrays(lambda part: part[seen], distinct), learned[0][seen] / largest
    weights = np.sqrt(learned[1][seen])  # so that observations that come often do not drown those near rewards
    judge = None if judged is None else lambda network: error(network, judged)
    steps = steps if high > low else 1
    with progress_bar(progress, "updates", steps) as tick:
        network, kept = regress(trajectories.observation_space, units, rows, targets, weights, judge, tick, steps, seed)
    explained = [
        1.0 - error(network, (means, times)) / (_variance(means / largest, times) or 1.0)
        for means, times in (learned, judged or learned)
    ]
    report = LearningReport(visits.count, count, kept, explained[0], explained[1] if judged else None)
    bounds = {"low": low, "high": high, "threshold": threshold, "reward_bound": largest_return(trajectories)}
    return LearnedPotential(network, trajectories.observation_space, **bounds, report=report)


def _distinct(data: Trajectories, visits: Visits) -> tuple[NDArray[np.int64], Any]:
    """(visits,) which of the distinct observations each is, and these."""
    numbers, known, kept = np.empty(visits.count, np.int64), dict[bytes, int](), []
    for nest, places in ((data.observations, visits.of_step), (data.final_observations, visits.last)):
        for first in range(0, len(places), _ROWS_AT_A_TIME):
            some, before = slice(first, first + _ROWS_AT_A_TIME), len(known)
            rows = _as_space(data.observation_space, map_arrays(lambda array: array[some], nest))  # noqa: B023
            found = np.array([known.setdefault(key, len(known)) for key in row_keys(rows)], np.int64)
            numbers[places[some]] = found
            distinct, firsts = np.unique(found, return_index=True)
            kept.append(map_arrays(lambda part: part[firsts[distinct >= before]], rows))  # noqa: B023
    return numbers, map_arrays(lambda *arrays: np.concatenate(arrays), *kept)


def _means(numbers: NDArray[np.int64], values: Values, count: int) -> tuple[Values, Values]:
    """(count,) the mean of the values of each number, 0 where there is none, and how many there are."""
    visits = totals(numbers, np.ones(len(numbers)), count)
    return totals(numbers, values, count) / np.maximum(visits, 1), visits


def _variance(means: Values, visits: Values) -> float:
    return float(np.average((means - np.average(means, weights=visits)) ** 2, weights=visits))


def _held_out(visits: Visits, values: Values, distinct: int, seed: int) -> NDArray[np.bool_]:
    """(episodes,) which are not learned from: the same share of those with credit and of those without."""
    episodes = len(visits.lengths)
    credited = np.bincount(visits.episode, np.abs(values), episodes) > 0
    chosen, order = np.zeros(episodes, np.bool_), np.random.default_rng(seed)
    if visits.count < _REPEATED * distinct and _HELD_OUT * np.count_nonzero(credited) >= _CREDITED:
        for kind in (credited, ~credited):
            which = order.permutation(np.flatnonzero(kind))
            chosen[which[: round(_HELD_OUT * len(which))]] = True
    return chosen


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
    arrays = [np.ascontiguousarray(array) for nest in nests for array in arrays_of(nest)]
    parts = [array.reshape(len(array), -1).view(np.uint8) for array in arrays]
    content = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)  # (rows, bytes)
    keys: list[bytes] = content.view(f"V{content.shape[1]}")[:, 0].tolist()
    return keys if content.shape[1] <= _LONGEST_KEY else [blake2b(key, digest_size=16).digest() for key in keys]


def _as_space(space: gym.Space[Any], rows: Any) -> Any:
    """Observations with the dtypes of their space."""
    return map_leaves(lambda leaf, part: np.asarray(part, leaf.dtype), space, rows)


def _layout(space: gym.Space[Any]) -> Any:
    """A nest that is equal where spaces are alike; of a Box, shape and dtype alone."""
    is_box = gym.spaces.Box
    return map_arrays(lambda leaf: (leaf.shape, leaf.dtype) if isinstance(leaf, is_box) else leaf, leaf_spaces(space))
