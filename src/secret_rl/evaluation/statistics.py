"""Estimates over runs with bootstrap intervals, paired between conditions over mazes and seeds.

A bootstrap draw is given by how often each run is in it. With those counts, means, ratios and shares of all draws are
one matrix product, and an interquartile mean is a running sum over the sorted runs.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secret_rl.evaluation.curves import check_finite, smooth
from secret_rl.files import plain

_BYTES_AT_A_TIME = 1 << 23  # of counts; a few arrays of this size live at once

Floats = NDArray[np.float64]
DrawnStatistic = Callable[[Floats, Floats], Floats]
"""(draws, columns) statistics, from counts (draws, runs) and columns (runs, columns)."""


@dataclass(frozen=True)
class Bootstrap:
    """How intervals are made: percentiles of an estimate over runs drawn again with replacement.

    What is drawn again decides which question the interval answers:

    - ``"both"``: mazes, then seeds within each maze drawn. What if it were all done again, on other mazes of the same
      kind with other seeds? Seeds count twice, so the interval of a mean is up to sqrt(2 - 1/seeds) times too wide.
    - ``"mazes"``: whole mazes with their runs. The same question, without that caution.
    - ``"seeds"``: seeds within each maze, the mazes as they are (stratified, as rliable does). What if the agents were
      trained again on these very mazes? It says nothing of other mazes.

    Of a mean over mazes that differ much, a 95 % interval holds the truth about 85 % of the time with 5 mazes, 90 %
    with 10 and 94 % with 30. The same runs are drawn in every condition, so that differences between mazes cancel.
    """

    resample: Literal["both", "mazes", "seeds"] = "both"
    """What is drawn again."""
    draws: int = 10_000
    """How often."""
    confidence: float = 0.95
    """Of the interval."""
    seed: int = 0
    """Decides the draws."""

    def __post_init__(self) -> None:
        if self.resample not in ("both", "mazes", "seeds"):
            raise ValueError(f"resample must be 'both', 'mazes' or 'seeds', got {self.resample!r}")
        if self.draws < 1:
            raise ValueError(f"draws must be at least 1, got {self.draws}: 10,000 for two steady digits")
        if not 0 < self.confidence < 1:
            raise ValueError(f"confidence must lie in (0, 1), got {self.confidence}: 0.95 for 95 %")

    def counts(self, mazes: int, seeds: int) -> Iterator[Floats]:
        """Blocks of (draws, mazes * seeds): how often each run is in a draw; a row sums to the number of runs."""
        if self.resample == "seeds" and seeds < 2:
            raise ValueError("1 seed per maze cannot say how seeds differ: run more, or pass resample='mazes'")
        if self.resample != "seeds" and mazes < 2:
            raise ValueError("1 maze cannot say how mazes differ: run more, or pass Bootstrap('seeds') for it alone")
        maze_rng, seed_rng = np.random.default_rng(self.seed).spawn(2)  # so that blocks make no difference
        block = max(1, _BYTES_AT_A_TIME // (8 * mazes * seeds))
        for first in range(0, self.draws, block):
            size = (min(block, self.draws - first), mazes)
            drawn = np.ones(size, np.int64)  # (draws, mazes) how often each maze is drawn
            if self.resample != "seeds":
                drawn = maze_rng.multinomial(mazes, np.full(mazes, 1 / mazes), size[0])
            if self.resample == "mazes":
                runs = np.repeat(drawn, seeds, axis=1)
            else:  # a maze drawn twice has its seeds drawn twice, independently
                runs = seed_rng.multinomial(drawn * seeds, np.full(seeds, 1 / seeds)).reshape(size[0], -1)
            yield runs.astype(np.float64)


BOOTSTRAP = Bootstrap()


@dataclass(frozen=True)
class Estimate:
    """A number with its interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return format(self, ".3f")

    def __format__(self, how: str) -> str:
        how = how or ".3f"
        if np.isnan(self.value):
            return "undefined"
        if np.isinf(self.low) or np.isinf(self.high):
            return f"{self.value:{how}} [unbounded]"
        return f"{self.value:{how}} [{self.low:{how}}, {self.high:{how}}]"

    def to_json(self) -> dict[str, float | None]:
        """The three numbers; null for what is undefined or unbounded."""
        return dict(plain(vars(self)))

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Estimate":
        """The inverse of ``to_json``."""
        unknown = {"value": np.nan, "low": -np.inf, "high": np.inf}
        return cls(**{name: other if content[name] is None else content[name] for name, other in unknown.items()})


def mean(values: ArrayLike, bootstrap: Bootstrap = BOOTSTRAP) -> Estimate:
    """The mean over runs of values (mazes, seeds)."""
    return _one(means, _runs(values), bootstrap)


def interquartile_mean(values: ArrayLike, bootstrap: Bootstrap = BOOTSTRAP) -> Estimate:
    """The mean of the middle half of all runs (mazes, seeds): a quarter is cut at each end, rounded down.

    Less swayed by single runs than the mean, and less noisy than the median (Agarwal et al. 2021).
    """
    return _one(trimmed_means, _runs(values), bootstrap)


def difference(values: ArrayLike, baseline: ArrayLike, bootstrap: Bootstrap = BOOTSTRAP) -> Estimate:
    """The mean of values minus baseline, run by run."""
    mine, theirs = _pairs(values, baseline)
    return _one(means, mine - theirs, bootstrap)


def ratio(values: ArrayLike, baseline: ArrayLike, bootstrap: Bootstrap = BOOTSTRAP) -> Estimate:
    """The mean of values over that of the baseline, the same runs drawn in both.

    Undefined (NaN) where the baseline's is not positive. A draw in which it is not has no ratio and counts against
    the interval on both sides: with too many of them it is unbounded, and ``difference`` says more.
    """
    point, draws = draw(means, np.stack(_pairs(values, baseline), -1), bootstrap)
    return ratio_estimate(point[0], point[1], draws[:, 0], draws[:, 1], bootstrap.confidence)


def probability_of_improvement(values: ArrayLike, baseline: ArrayLike, bootstrap: Bootstrap = BOOTSTRAP) -> Estimate:
    """How often a run is better than the baseline's run on the same maze with the same seed; a tie counts one half.

    An interval without width, [1, 1] say, means that every pair agrees, not that every pair would.
    """
    return _one(means, improvements(*_pairs(values, baseline)), bootstrap)


class Band(NamedTuple):
    """A learning curve over all runs with its pointwise interval; all (points,)."""

    episodes: NDArray[np.int64]
    """Episodes played: each point is over the last ``window`` of them."""
    value: Floats
    low: Floats
    high: Floats


def aggregate(
    returns: ArrayLike,
    *,
    window: int = 1,
    points: int | None = 200,
    bootstrap: Bootstrap = BOOTSTRAP,
) -> Band:
    """The learning curve over all runs; its intervals hold point by point, not for the whole curve at once.

    Args:
        returns: (mazes, seeds, episodes).
        window: Episodes to average over.
        points: How many evenly spread episodes to take, the first and the last among them; None for all.
        bootstrap: How intervals are made.
    """
    if points is not None and points < 2:
        raise ValueError(f"points must be at least 2, got {points}: None for every episode")
    smoothed = smooth(returns, window)
    count = smoothed.shape[-1]
    at = np.linspace(0, count - 1, min(points or count, count)).round().astype(np.int64)
    value, draws = draw(means, smoothed[..., at], bootstrap)
    return Band(at + window, value, *_interval(draws, bootstrap.confidence))


def draw(statistic: DrawnStatistic, values: Floats, bootstrap: Bootstrap) -> tuple[Floats, Floats]:
    """(columns,) the statistic of values (mazes, seeds, columns), and (draws, columns) that of each draw."""
    mazes, seeds, _ = values.shape
    columns = values.reshape(mazes * seeds, -1)
    point = statistic(np.ones((1, len(columns))), columns)[0]
    return point, np.concatenate([statistic(counts, columns) for counts in bootstrap.counts(mazes, seeds)])


def means(counts: Floats, columns: Floats) -> Floats:
    """Means."""
    return np.asarray(counts @ columns / len(columns))


def trimmed_means(counts: Floats, columns: Floats) -> Floats:
    """Means of the middle half."""
    runs = len(columns)
    cut = runs // 4
    means = np.empty((len(counts), columns.shape[1]))
    for number, column in enumerate(columns.T):
        order = column.argsort()
        # Ranks up to each run, smallest first; those within [cut, runs - cut) are the middle half.
        ranks = counts[:, order].cumsum(1).clip(cut, runs - cut)
        kept = np.diff(ranks, axis=1, prepend=cut)
        means[:, number] = kept @ column[order] / (runs - 2 * cut)
    return means


def improvements(values: Floats, baseline: Floats) -> Floats:
    """1 where better, 1/2 where equal, 0 where worse; of each pair."""
    return np.asarray((values > baseline) + 0.5 * (values == baseline))


def estimates_of(point: Floats, draws: Floats, confidence: float) -> list[Estimate]:
    """An estimate for each column, from the statistic (columns,) and its draws (draws, columns)."""
    low, high = _interval(draws, confidence)
    return [Estimate(*map(float, numbers)) for numbers in zip(point, low, high, strict=True)]


def ratio_estimate(top: float, bottom: float, tops: Floats, bottoms: Floats, confidence: float) -> Estimate:
    """A ratio from estimates and their draws (draws,); see ``ratio``."""
    if bottom <= 0:
        return Estimate(np.nan, -np.inf, np.inf)
    defined = bottoms > 0
    ratios = np.sort(tops[defined] / bottoms[defined])
    undefined, last = np.full((~defined).sum(), np.inf), len(defined) - 1
    tail = (1 - confidence) / 2 * last
    # Draws without a ratio are below all others for the low end and above them for the high end.
    low = np.concatenate([-undefined, ratios])[int(np.floor(tail))]
    high = np.concatenate([ratios, undefined])[int(np.ceil(last - tail))]
    return Estimate(float(top / bottom), float(low), float(high))


def _one(statistic: DrawnStatistic, values: Floats, bootstrap: Bootstrap) -> Estimate:
    return estimates_of(*draw(statistic, values[..., None], bootstrap), bootstrap.confidence)[0]


def _interval(draws: Floats, confidence: float) -> Floats:
    """(2, columns) percentiles of (draws, columns)."""
    return np.asarray(np.quantile(draws, ((1 - confidence) / 2, (1 + confidence) / 2), axis=0))


def _runs(values: ArrayLike, what: str = "values") -> Floats:
    """A finite number per run, (mazes, seeds)."""
    array = np.asarray(values, np.float64)
    if array.ndim != 2 or not array.size:
        raise ValueError(f"{what} have shape {array.shape}, expected (mazes, seeds) with at least one of each")
    check_finite(array, what, "for times to a threshold use share_reached and median_time")
    return array


def _pairs(values: ArrayLike, baseline: ArrayLike) -> tuple[Floats, Floats]:
    mine, theirs = _runs(values), _runs(baseline, "the baseline's values")
    if mine.shape != theirs.shape:
        raise ValueError(f"values are of {mine.shape}, the baseline's of {theirs.shape}: pairs need the same runs")
    return mine, theirs
