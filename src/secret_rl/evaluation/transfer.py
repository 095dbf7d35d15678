"""Measures of how fast and how well agents learned, one number per run."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Runs = NDArray[np.float64]
"""(mazes, seeds) a number per run."""

# Returns may be float32 and a mean of equal numbers may miss them by a rounding: that must not count as missing it.
_ROUNDING = 1e-6


def area_under_curve(returns: ArrayLike) -> Runs:
    """(mazes, seeds) the mean return over all of training, from returns (mazes, seeds, episodes)."""
    return np.asarray(as_returns(returns).mean(-1, dtype=np.float64))


def final_performance(returns: ArrayLike, share: float = 0.1) -> Runs:
    """(mazes, seeds) the mean return over the last share of the episodes, at least one of them."""
    curves = as_returns(returns)
    if not 0 < share <= 1:
        raise ValueError(f"share must lie in (0, 1], got {share}: 0.1 for the last tenth of the episodes")
    last = max(1, round(share * curves.shape[-1]))
    return np.asarray(curves[..., -last:].mean(-1, dtype=np.float64))


def smooth(returns: ArrayLike, window: int) -> NDArray[np.float64]:
    """(mazes, seeds, episodes - window + 1) means of ``window`` episodes in a row; the first is of the first ones."""
    curves = as_returns(returns).astype(np.float64)
    episodes = curves.shape[-1]
    if not 1 <= window <= episodes:
        raise ValueError(f"window must lie in [1, {episodes}], the number of episodes, got {window}")
    if window == 1:
        return curves
    sums = np.concatenate([np.zeros((*curves.shape[:-1], 1)), curves.cumsum(-1)], -1)
    return np.asarray((sums[..., window:] - sums[..., :-window]) / window)


def episodes_to_threshold(
    returns: ArrayLike,
    threshold: ArrayLike | None = None,
    *,
    fraction: float | None = None,
    optimal: ArrayLike | None = None,
    window: int,
) -> Runs:
    """(mazes, seeds) episodes played until the mean of the last ``window`` returns is at the threshold.

    The threshold is a return, one for all mazes or one per maze, or a ``fraction`` of the ``optimal`` return of each
    maze. A run that never gets there is infinitely late: it is not dropped, for then the slowest would not count.

    >>> returns = np.array([[[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.0, 1.0]]])
    >>> episodes_to_threshold(returns, fraction=0.9, optimal=1.0, window=2)
    array([[ 4., inf]])
    """
    smoothed = smooth(returns, window)
    level = threshold_per_maze(len(smoothed), threshold, fraction, optimal)
    reached = smoothed >= (level - _ROUNDING * np.abs(level))[:, None, None]
    return np.where(reached.any(-1), reached.argmax(-1) + float(window), np.inf)


def threshold_per_maze(
    mazes: int, threshold: ArrayLike | None, fraction: float | None, optimal: ArrayLike | None
) -> NDArray[np.float64]:
    """(mazes,) the return to reach, given as it is or as a fraction of the optimal one."""
    if (threshold is None) == (fraction is None):
        given = "nobody set it" if threshold is None else f"both threshold={threshold} and fraction={fraction} are set"
        raise ValueError(f"a threshold is needed and {given}: pass threshold=..., or fraction=... with optimal=...")
    if fraction is None:
        return per_maze(threshold, mazes, "threshold")
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction must lie in (0, 1], got {fraction}: 0.9 for 90 % of the optimal return")
    if optimal is None:
        raise ValueError(f"fraction={fraction} of what? Pass optimal=..., the best return of each maze")
    best = per_maze(optimal, mazes, "optimal")
    if (best <= 0).any():
        maze = int(np.argmax(best <= 0))
        raise ValueError(
            f"optimal return {best[maze]:g} of maze {maze} is not positive, and a fraction of it means nothing: "
            "pass threshold=... instead"
        )
    return best * fraction


@dataclass(frozen=True, eq=False)
class TargetTime:
    """What it took on the target to reach a threshold; infinite where it was never reached."""

    episodes: Runs
    """(mazes, seeds) episodes of learning."""
    total_episodes: Runs
    """The same and the trajectories that were collected on the target beforehand."""
    steps: Runs | None
    """(mazes, seeds) steps of learning, if the lengths of episodes are known."""
    total_steps: Runs | None
    """The same and the steps of those trajectories, if they are known."""


def target_time(
    returns: ArrayLike,
    threshold: ArrayLike | None = None,
    *,
    fraction: float | None = None,
    optimal: ArrayLike | None = None,
    window: int,
    lengths: ArrayLike | None = None,
    collected: ArrayLike = 0,
    collected_steps: ArrayLike | None = None,
) -> TargetTime:
    """Episodes and steps to the threshold, with and without the cost of collecting target trajectories.

    ``lengths`` (mazes, seeds, episodes) are the steps of each episode; ``collected`` and ``collected_steps`` the
    trajectories collected beforehand and their steps, one number for all mazes or one per maze.
    """
    episodes = episodes_to_threshold(returns, threshold, fraction=fraction, optimal=optimal, window=window)
    before = amount_per_maze(collected, len(episodes), "collected")
    steps = total_steps = None
    if lengths is not None:
        steps = _steps_played(episodes, as_lengths(lengths, np.shape(returns)))
        if collected_steps is not None:
            total_steps = steps + amount_per_maze(collected_steps, len(episodes), "collected_steps")[:, None]
        elif not before.any():
            total_steps = steps
    return TargetTime(episodes, episodes + before[:, None], steps, total_steps)


def share_reached(times: ArrayLike) -> float:
    """The share of runs that reached the threshold at all."""
    return float(np.isfinite(_times(times)).mean())


def median_time(times: ArrayLike) -> float | None:
    """The median over all runs, those that never reached it included; None where the median run did not."""
    median = float(np.median(_times(times)))
    return median if np.isfinite(median) else None


def _steps_played(episodes: Runs, lengths: NDArray[np.int64]) -> Runs:
    reached = np.isfinite(episodes)
    last = np.where(reached, episodes, 1).astype(np.int64) - 1
    played = np.take_along_axis(lengths.cumsum(-1), last[..., None], -1)[..., 0]
    return np.where(reached, played, np.inf)


def _times(times: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(times, np.float64)
    if not values.size or np.isnan(values).any():
        raise ValueError(f"times of shape {values.shape}: at least one is needed, and none may be NaN")
    return values


def as_returns(returns: ArrayLike, what: str = "returns") -> NDArray[np.floating[Any]]:
    """Returns as a float array (mazes, seeds, episodes), every one finite."""
    try:
        array = np.asarray(returns)
    except ValueError as ragged:
        raise ValueError(f"{what} are no array: every run must have the same number of episodes") from ragged
    if array.ndim != 3 or not array.size:
        raise ValueError(
            f"{what} have shape {array.shape}, expected (mazes, seeds, episodes) with at least one of each"
        )
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{what} are of type {array.dtype}, expected real numbers")
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64)
    finite = np.isfinite(array)
    if not finite.all():
        maze, seed, episode = np.unravel_index(int(np.argmin(finite)), array.shape)
        raise ValueError(
            f"{what} hold {array[maze, seed, episode]} at maze {maze}, seed {seed}, episode {episode}: "
            "repeat or leave out that run in every condition"
        )
    return array


def as_lengths(lengths: ArrayLike, shape: tuple[int, ...], what: str = "lengths") -> NDArray[np.int64]:
    """Steps of each episode as whole numbers of at least 1, in the shape of the returns."""
    array = np.asarray(lengths)
    if array.shape != shape:
        raise ValueError(f"{what} have shape {array.shape}, but the returns {shape}")
    if array.dtype.kind not in "iu" or array.min() < 1:
        raise ValueError(f"{what} must be whole numbers of at least 1, got {array.dtype} from {array.min()}")
    return array.astype(np.int64, copy=False)


def per_maze(values: Any, mazes: int, what: str) -> NDArray[np.float64]:
    """(mazes,) finite numbers, from one for all or one per maze."""
    array = np.asarray(values, np.float64)
    if array.shape not in ((), (mazes,)):
        raise ValueError(f"{what} has shape {array.shape}, expected one number or one for each of {mazes} mazes")
    if not np.isfinite(array).all():
        raise ValueError(f"{what} must be finite, got {values}")
    return np.array(np.broadcast_to(array, (mazes,)))


def amount_per_maze(values: Any, mazes: int, what: str) -> NDArray[np.float64]:
    """(mazes,) whole numbers of at least 0, from one for all or one per maze."""
    array = per_maze(values, mazes, what)
    if (array < 0).any() or (array % 1).any():
        raise ValueError(f"{what} must be whole numbers of at least 0, got {values}")
    return array
