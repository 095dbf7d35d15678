"""Learning curves of several conditions on the same mazes and seeds, and one number for each of their runs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secret_rl.display import curves_html
from secret_rl.files import FileFormat, write_csv

_FORMAT = FileFormat("secret-rl learning curves", remedy="restore it or learn again")
# Returns may be float32, and a mean of equal numbers may miss them by a rounding error: that still reaches a threshold.
_ROUNDING = 1e-6

Runs = NDArray[np.float64]
"""(mazes, seeds) a number per run."""


@dataclass(frozen=True, eq=False)
class LearningCurves:
    """Unshaped discounted returns by condition, every condition on the same mazes with the same seeds.

    Run (maze, seed) of one condition is compared with run (maze, seed) of another, so all have the same shape.
    A run is an array or list of returns, or a curve that ``QLearning.learn`` or ``train`` returned. A number for all
    mazes becomes one per maze.

    >>> curves = LearningCurves({"none": np.zeros((4, 3, 50)), "pending": np.ones((4, 3, 50))}, optimal=1.0)
    >>> curves
    LearningCurves of 'none', 'pending': 4 mazes x 3 seeds x 50 episodes
    >>> curves["pending"].shape, curves.optimal
    ((4, 3, 50), array([1., 1., 1., 1.]))
    """

    returns: Mapping[str, Any]
    """Condition -> (mazes, seeds, episodes)."""
    optimal: Any = None
    """(mazes,) the best discounted return of each maze."""
    collected: Mapping[str, Any] = field(default_factory=dict)
    """Condition -> (mazes,) target trajectories collected before learning; conditions not named collected none."""

    def __post_init__(self) -> None:
        if not self.returns:
            raise ValueError("no condition: pass returns={'none': array of (mazes, seeds, episodes), ...}")
        returns = {name: _locked(as_returns(runs, f"returns of {name!r}")) for name, runs in self.returns.items()}
        first, shape = next((name, array.shape) for name, array in returns.items())
        for name, array in returns.items():
            if array.shape != shape:
                raise ValueError(
                    f"{name!r} has (mazes, seeds, episodes) {array.shape} but {first!r} {shape}: conditions are "
                    "compared run by run, so all need the same mazes, seeds and number of episodes"
                )
        if unknown := [name for name in self.collected if name not in returns]:
            raise ValueError(f"collected of {unknown}, but the conditions are {tuple(returns)}")
        collected = {}
        for name in returns:
            given = self.collected.get(name, 0)
            collected[name] = _locked(per_maze(given, shape[0], f"collected of {name!r}"))
            if (collected[name] < 0).any() or (collected[name] % 1).any():
                raise ValueError(f"collected of {name!r} must be whole numbers of at least 0, got {given}")
        optimal = None if self.optimal is None else _locked(per_maze(self.optimal, shape[0], "optimal"))
        for name, value in (("returns", returns), ("collected", collected), ("optimal", optimal)):
            object.__setattr__(self, name, value)

    @property
    def names(self) -> tuple[str, ...]:
        """The conditions, in order."""
        return tuple(self.returns)

    @property
    def mazes(self) -> int:
        """Number of mazes, or other tasks."""
        return int(self[self.names[0]].shape[0])

    @property
    def seeds(self) -> int:
        """Number of runs per maze."""
        return int(self[self.names[0]].shape[1])

    @property
    def episodes(self) -> int:
        """Number of episodes of a run."""
        return int(self[self.names[0]].shape[2])

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self.returns:
            raise KeyError(f"no condition {name!r}: these curves are of {', '.join(map(repr, self.names))}")
        return np.asarray(self.returns[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.returns)

    def __len__(self) -> int:
        return len(self.returns)

    def __repr__(self) -> str:
        names = ", ".join(map(repr, self.names))
        return f"LearningCurves of {names}: {self.mazes:,} mazes x {self.seeds:,} seeds x {self.episodes:,} episodes"

    def _repr_html_(self) -> str:
        played = np.arange(1, self.episodes + 1)
        means = {name: (played, self[name].mean((0, 1), dtype=np.float64)) for name in self}
        return curves_html(means, "episodes", repr(self))

    def save(self, path: str | Path) -> Path:
        """Write everything to one safetensors file, whole or not at all; ``to_csv`` writes a table."""
        parts = {"returns": self.returns, "collected": self.collected}
        arrays = {what: np.stack([part[name] for name in self]) for what, part in parts.items()}
        if self.optimal is not None:
            arrays["optimal"] = self.optimal
        return _FORMAT.write_arrays(path, {"names": list(self.names)}, arrays)

    @classmethod
    def load(cls, path: str | Path) -> "LearningCurves":
        """Read what ``save`` wrote."""
        about, arrays = _FORMAT.read_arrays(path)
        with _FORMAT.reading(Path(path)):
            names, optimal = list(about["names"]), arrays.pop("optimal", None)
            return cls(optimal=optimal, **{what: dict(zip(names, part, strict=True)) for what, part in arrays.items()})

    def to_csv(self, path: str | Path) -> Path:
        """Write a long table (condition, maze, seed, episode, return), whole or not at all."""
        rows = ((name, *place, float(value)) for name in self for place, value in np.ndenumerate(self[name]))
        return write_csv(path, ["condition", "maze", "seed", "episode", "return"], rows)


def _locked(array: NDArray[Any]) -> NDArray[Any]:
    """A read-only copy, so that later changes to the caller's array have no effect."""
    copy = array.copy()
    copy.flags.writeable = False
    return copy


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
    """(mazes, seeds, episodes - window + 1) moving averages over ``window`` episodes."""
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

    A run that never gets there takes infinitely long.

    >>> returns = np.array([[[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.0, 1.0]]])
    >>> episodes_to_threshold(returns, fraction=0.9, optimal=1.0, window=2)
    array([[ 4., inf]])

    Args:
        returns: (mazes, seeds, episodes).
        threshold: A return, one for all mazes or one per maze.
        fraction: The threshold as a fraction of the optimal return, instead.
        optimal: The optimal return, one for all mazes or one per maze.
        window: Number of episodes in a mean.
    """
    smoothed = smooth(returns, window)
    if threshold is not None and fraction is not None:
        raise ValueError(f"both threshold={threshold} and fraction={fraction} are set: pass one of them")
    if threshold is not None:
        level = per_maze(threshold, len(smoothed), "threshold")
    elif fraction is None:
        raise ValueError("a threshold is needed: pass threshold=..., or fraction=... with optimal=...")
    elif not 0 < fraction <= 1:
        raise ValueError(f"fraction must lie in (0, 1], got {fraction}: 0.9 for 90 % of the optimal return")
    elif optimal is None:
        raise ValueError(f"fraction={fraction} of what? Pass optimal=..., the best return of each maze")
    else:
        best = per_maze(optimal, len(smoothed), "optimal")
        for maze in np.flatnonzero(best <= 0):
            raise ValueError(f"optimal return {best[maze]:g} of maze {maze} is not positive: pass threshold=...")
        level = best * fraction
    reached = smoothed >= (level - _ROUNDING * np.abs(level))[:, None, None]
    return np.where(reached.any(-1), reached.argmax(-1) + float(window), np.inf)


def share_reached(times: ArrayLike) -> float:
    """The share of runs that reached the threshold at all."""
    return float(np.isfinite(times).mean())


def median_time(times: ArrayLike) -> float | None:
    """The median over all runs, those that never reached it included; None where the median run did not."""
    median = float(np.median(np.asarray(times, np.float64)))
    return median if np.isfinite(median) else None


def as_returns(runs: Any, what: str = "returns") -> NDArray[np.floating[Any]]:
    """Finite returns (mazes, seeds, episodes), from an array or from nested lists of arrays or single-run curves."""
    try:
        array = np.asarray(_without_curves(runs))
    except ValueError as ragged:
        raise ValueError(f"{what} are no array: every run must have the same number of episodes") from ragged
    if array.ndim != 3 or not array.size:
        raise ValueError(f"{what} have shape {array.shape}, expected (mazes, seeds, episodes), at least one of each")
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{what} are of type {array.dtype}, expected real numbers")
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64)
    check_finite(array, what, "repeat or leave out that run in every condition")
    return array


def check_finite(array: NDArray[Any], what: str, remedy: str) -> None:
    """An error that names the first number (maze, seed, episode if there are any) that is not finite."""
    finite = np.isfinite(array)
    if not finite.all():
        place = np.unravel_index(int(np.argmin(finite)), array.shape)
        words = ", ".join(f"{axis} {at}" for axis, at in zip(("maze", "seed", "episode"), place, strict=False))
        raise ValueError(f"{what} hold {array[place]} at {words}: {remedy}")


def _without_curves(runs: Any) -> Any:
    """The same nested lists with the returns of each single-run curve in its place."""
    if isinstance(runs, list | tuple):
        return [_without_curves(run) for run in runs]
    if hasattr(runs, "discounted"):  # (evaluations, episodes) of a deep agent
        return runs.discounted.mean(1)
    return getattr(runs, "returns", runs)


def per_maze(values: Any, mazes: int, what: str) -> NDArray[np.float64]:
    """(mazes,) finite numbers, from one for all or one per maze."""
    array = np.asarray(values, np.float64)
    if array.shape not in ((), (mazes,)):
        raise ValueError(f"{what} has shape {array.shape}, expected one number or one for each of {mazes} mazes")
    if not np.isfinite(array).all():
        raise ValueError(f"{what} must be finite, got {values}")
    return np.array(np.broadcast_to(array, (mazes,)))
