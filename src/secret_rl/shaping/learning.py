"""A potential learned from trajectories: what ``estimate_potential`` puts into a table, regressed on observations."""

from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from secret_rl.progress import progress_bar
from secret_rl.shaping.core import Values
from secret_rl.shaping.estimate import Credit, Evidence, Visits, largest_return, totals
from secret_rl.shaping.learned import Features, LearnedPotential, LearningReport, featured, row_keys
from secret_rl.trajectories import Trajectories
from secret_rl.trajectories.nested import map_arrays, map_leaves, row_count

if TYPE_CHECKING:
    from secret_rl.shaping.networks import PotentialNetwork

_ROWS_AT_A_TIME = 1 << 13
_REPEATED = 4  # visits of an observation, on the average, from which on means over visits need no validation
_HELD_OUT = 0.1
_CREDITED = 5  # episodes with some credit that validation needs to say anything


def learn_potential(
    trajectories: Trajectories,
    attributions: Credit | None = None,
    kind: str = "pending",
    *,
    rewards: str = "positive",
    delay_discount: float = 0.95,
    features: Features | None = None,
    threshold: float = 0.01,
    validation: float | None = None,
    units: int = 64,
    steps: int = 400,
    learning_rate: float = 3e-3,
    batch_size: int = 512,
    seed: int = 0,
    progress: bool | None = None,
) -> LearnedPotential:
    """What ``estimate_potential`` gives, for observations without a state key: a small network instead of a table.

    ``kind`` is "pending", "cumulative", "value" or "mixed"; these, ``rewards`` and ``delay_discount`` are as there. The
    network has the least squared error over visits, so it tends to their mean: with the full state observed, to the
    table.

    Attributions may be of the same episodes seen otherwise, such as through a view: the network learns on the
    observations of ``trajectories``, which must be those that the agent will see. With ``features``, a function of a
    batch of observations, it learns on what that makes of them: a state code that was learned elsewhere, for one.

    Args:
        trajectories: Of the target.
        attributions: Who earned their rewards; "value" needs none.
        kind: What is averaged over visits.
        rewards: "positive" or "all".
        delay_discount: Of reward still to come.
        features: (rows, ...) of observations to (rows, ...) of numbers.
        threshold: Answers below this share of the largest are 0: a network is never quite 0 by itself.
        validation: Share of the episodes that are held out; the network with the least error on them is kept. By
            default 0.1 where observations hardly repeat, and otherwise 0: means over many visits hold little noise that
            could be learned by heart, and nothing is held back.
        units: Of the dense layers.
        steps: Updates of the network.
        learning_rate: Of Adam, at its height.
        batch_size: Distinct observations in an update.
        seed: Of the first weights, of batches and of what is held out.
        progress: Show a progress bar; by default if the terminal is interactive.
    """
    _check(threshold, validation, units, steps, learning_rate, batch_size)
    evidence = Evidence.of(trajectories, attributions, kind, rewards, delay_discount, tables=False)
    visits = Visits(trajectories, trajectories.final_observations is not None)
    values = evidence.kind.values(evidence, visits)
    numbers, distinct = _distinct(trajectories, visits, features)
    count = row_count(distinct)
    held_out = _held_out(visits, values, count, validation, seed)[visits.episode]
    means = _means(numbers, values, count)[0]
    low, high = min(0.0, float(means.min())), max(0.0, float(means.max()))
    largest = max(-low, high) or 1.0

    from secret_rl.shaping.networks import regress

    space = trajectories.observation_space
    if features is not None:
        space = gym.spaces.Box(-np.inf, np.inf, distinct.shape[1:], np.float64)
    learned = _means(numbers[~held_out], values[~held_out], count)
    judged = _means(numbers[held_out], values[held_out], count) if held_out.any() else None
    seen = np.flatnonzero(learned[1])

    def error(network: "PotentialNetwork", of: tuple[Values, Values]) -> float:
        """Mean square over visits, in units of the largest mean."""
        there = np.flatnonzero(of[1])
        answers = network.answers(map_arrays(lambda part: part[there], distinct))
        return float(np.average((answers - of[0][there] / largest) ** 2, weights=of[1][there]))

    with progress_bar(progress, "updates") as tick:
        network, kept = regress(
            space,
            map_arrays(lambda part: part[seen], distinct),
            learned[0][seen] / largest,
            np.sqrt(learned[1][seen]),  # so that observations that come often do not drown those near rewards
            error=None if judged is None else lambda network: error(network, judged),
            units=units,
            steps=steps if high > low else 1,
            learning_rate=learning_rate,
            batch_size=batch_size,
            seed=seed,
            tick=tick,
        )
    constants = [None if of is None else float(_variance(*of)) for of in (learned, judged)]
    report = LearningReport(
        visits=visits.count,
        distinct=count,
        steps=kept,
        error=error(network, learned) * largest**2,
        constant_error=constants[0] or 0.0,
        validation_error=None if judged is None else error(network, judged) * largest**2,
        validation_constant_error=constants[1],
    )
    return LearnedPotential(
        network,
        trajectories.observation_space,
        low=low,
        high=high,
        threshold=threshold,
        reward_bound=largest_return(trajectories),
        report=report,
        features=features,
    )


def _distinct(data: Trajectories, visits: Visits, features: Features | None) -> tuple[NDArray[np.int64], Any]:
    """(visits,) which of the distinct observations each is, and these, as the network reads them."""
    numbers, known, kept = np.empty(visits.count, np.int64), dict[bytes, int](), []
    parts = [(data.observations, visits.of_step)]
    if len(visits.last):
        parts.append((data.final_observations, visits.last))  # type: ignore[arg-type]
    for nest, places in parts:
        for first in range(0, len(places), _ROWS_AT_A_TIME):
            some = slice(first, first + _ROWS_AT_A_TIME)
            rows = map_leaves(
                lambda leaf, array: np.asarray(array[some], leaf.dtype),  # noqa: B023
                data.observation_space,
                nest,
            )
            rows = featured(features, rows)
            before = len(known)
            found = np.array([known.setdefault(key, len(known)) for key in row_keys(rows)], np.int64)
            numbers[places[some]] = found
            new = np.unique(found, return_index=True)
            firsts = new[1][new[0] >= before]
            if len(firsts):
                kept.append(map_arrays(lambda part: part[firsts], rows))  # noqa: B023
    return numbers, map_arrays(lambda *arrays: np.concatenate(arrays), *kept)


def _means(numbers: NDArray[np.int64], values: Values, count: int) -> tuple[Values, Values]:
    """(count,) the mean of the values of each number, 0 where there is none, and how many there are."""
    visits = totals(numbers, np.ones(len(numbers)), count)
    return totals(numbers, values, count) / np.maximum(visits, 1), visits


def _variance(means: Values, visits: Values) -> Any:
    middle = np.average(means, weights=visits)
    return np.average((means - middle) ** 2, weights=visits)


def _held_out(visits: Visits, values: Values, distinct: int, share: float | None, seed: int) -> NDArray[np.bool_]:
    """(episodes,) which are not learned from: the same share of those with credit and of those without."""
    episodes = len(visits.lengths)
    credited = np.bincount(visits.episode, np.abs(values), episodes) > 0
    if share is None:
        share = _HELD_OUT if visits.count < _REPEATED * distinct else 0.0
        share *= _HELD_OUT * np.count_nonzero(credited) >= _CREDITED
    chosen, order = np.zeros(episodes, np.bool_), np.random.default_rng(seed)
    for kind in (credited, ~credited):
        which = order.permutation(np.flatnonzero(kind))
        chosen[which[: round(share * len(which))]] = True
    return chosen


def _check(
    threshold: float, validation: float | None, units: int, steps: int, learning_rate: float, batch_size: int
) -> None:
    for name, value in (("units", units), ("steps", steps), ("batch_size", batch_size)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    if not 0 <= threshold < 1:
        raise ValueError(f"threshold must lie in [0, 1): a share of the largest potential, got {threshold!r}")
    if validation is not None and not 0 <= validation < 1:
        raise ValueError(f"validation must lie in [0, 1): a share of the episodes, got {validation!r}")
    if not 0 < learning_rate < np.inf:
        raise ValueError(f"learning_rate must be a positive number, got {learning_rate!r}")
