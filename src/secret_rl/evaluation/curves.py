"""Learning curves of several conditions on the same mazes and seeds, in memory and on disk."""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secret_rl.atomic import replacing
from secret_rl.evaluation.transfer import amount_per_maze, as_lengths, as_returns, per_maze
from secret_rl.files import FileFormat

_FORMAT = FileFormat("secret-rl learning curves", remedy="restore it or learn again")


@dataclass(frozen=True, eq=False)
class LearningCurves:
    """Unshaped discounted returns by condition, every condition on the same mazes with the same seeds.

    Run (maze, seed) of one condition is compared with run (maze, seed) of another, so all have the same shape.
    Lists become arrays; a number that stands for all mazes becomes one per maze.

    >>> curves = LearningCurves({"none": np.zeros((4, 3, 50)), "pending": np.ones((4, 3, 50))}, optimal=1.0)
    >>> curves
    LearningCurves of 'none', 'pending': 4 mazes x 3 seeds x 50 episodes
    >>> curves["pending"].shape, curves.optimal
    ((4, 3, 50), array([1., 1., 1., 1.]))
    """

    returns: Mapping[str, NDArray[Any]]
    """Condition -> (mazes, seeds, episodes)."""
    lengths: Mapping[str, NDArray[Any]] | None = None
    """Condition -> (mazes, seeds, episodes) steps of each episode; of every condition, or None."""
    optimal: NDArray[Any] | None = None
    """(mazes,) the best discounted return of each maze."""
    collected: Mapping[str, Any] = field(default_factory=dict)
    """Condition -> (mazes,) target trajectories collected before learning; conditions not named collected none."""
    collected_steps: Mapping[str, Any] | None = None
    """Condition -> (mazes,) steps of those trajectories; of every condition that collected any, or None."""

    def __post_init__(self) -> None:
        if not self.returns:
            raise ValueError("no condition: pass returns={'none': array of (mazes, seeds, episodes), ...}")
        for name in self.returns:
            if not isinstance(name, str) or not name.strip() or not name.isprintable():
                raise ValueError(f"a condition needs a printable name, got {name!r}")
        returns = {name: _locked(as_returns(array, f"returns of {name!r}")) for name, array in self.returns.items()}
        first, shape = next((name, array.shape) for name, array in returns.items())
        for name, array in returns.items():
            if array.shape != shape:
                raise ValueError(
                    f"{name!r} has (mazes, seeds, episodes) {array.shape} but {first!r} {shape}: conditions are "
                    "compared run by run, so all need the same mazes, seeds and number of episodes"
                )
        object.__setattr__(self, "returns", returns)
        if self.optimal is not None:
            object.__setattr__(self, "optimal", _locked(per_maze(self.optimal, self.mazes, "optimal")))
        self._check_costs()

    def _check_costs(self) -> None:
        shape = (self.mazes, self.seeds, self.episodes)
        for what in ("lengths", "collected", "collected_steps"):
            unknown = [name for name in getattr(self, what) or () if name not in self.returns]
            if unknown:
                raise ValueError(f"{what} of {unknown}, but the conditions are {self.names}")
        if self.lengths is not None:
            self._check_complete("lengths", self.lengths, list(self.names))
            lengths = {n: _locked(as_lengths(self.lengths[n], shape, f"lengths of {n!r}")) for n in self.names}
            object.__setattr__(self, "lengths", lengths)
        object.__setattr__(self, "collected", self._amounts("collected", self.collected))
        if self.collected_steps is not None:
            paying = [name for name in self.names if self.collected[name].any()]
            self._check_complete("collected_steps", self.collected_steps, paying)
            object.__setattr__(self, "collected_steps", self._amounts("collected_steps", self.collected_steps))

    def _check_complete(self, what: str, given: Mapping[str, Any], needed: list[str]) -> None:
        missing = [name for name in needed if name not in given]
        if missing:
            raise ValueError(f"{what} of {sorted(given)} without those of {missing}: give all of them, or none")

    def _amounts(self, what: str, given: Mapping[str, Any]) -> dict[str, NDArray[np.float64]]:
        return {n: _locked(amount_per_maze(given.get(n, 0), self.mazes, f"{what} of {n!r}")) for n in self.names}

    @property
    def names(self) -> tuple[str, ...]:
        """The conditions, in the order in which they were given."""
        return tuple(self.returns)

    @property
    def mazes(self) -> int:
        """Number of mazes, or other tasks."""
        return self._shape[0]

    @property
    def seeds(self) -> int:
        """Number of runs per maze."""
        return self._shape[1]

    @property
    def episodes(self) -> int:
        """Number of episodes of a run."""
        return self._shape[2]

    @property
    def _shape(self) -> tuple[int, ...]:
        return next(iter(self.returns.values())).shape

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self.returns:
            raise KeyError(f"no condition {name!r}: these curves are of {', '.join(map(repr, self.names))}")
        return self.returns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.returns)

    def __len__(self) -> int:
        return len(self.returns)

    def __repr__(self) -> str:
        names = ", ".join(map(repr, self.names))
        size = f"{self.mazes:,} mazes x {self.seeds:,} seeds x {self.episodes:,} episodes"
        return f"LearningCurves of {names}: {size}"

    def save(self, path: str | Path) -> Path:
        """Write everything to one safetensors file, whole or not at all; ``to_csv`` writes a table."""
        path = Path(path)
        if path.suffix != ".safetensors":
            raise ValueError(f"{path.name} ends in {path.suffix!r}, expected '.safetensors' (to_csv writes tables)")
        return _FORMAT.write_arrays(path, {"names": list(self.names)}, self._arrays())

    @classmethod
    def load(cls, path: str | Path) -> "LearningCurves":
        """Read what ``save`` wrote."""
        about, arrays = _FORMAT.read_arrays(path)
        with _FORMAT.reading(Path(path)):
            names, optimal = list(about["names"]), arrays.pop("optimal", None)
            return cls(optimal=optimal, **{what: dict(zip(names, part, strict=True)) for what, part in arrays.items()})

    def to_csv(self, path: str | Path) -> Path:
        """Write a long table (condition, maze, seed, episode, return[, length]), whole or not at all."""
        header = ["condition", "maze", "seed", "episode", "return", *(["length"] if self.lengths else [])]
        places = np.indices((self.mazes, self.seeds, self.episodes)).reshape(3, -1)
        with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(header)
            for name in self.names:
                columns = [*places, self.returns[name].ravel()] + ([self.lengths[name].ravel()] if self.lengths else [])
                rows = zip(*(column.tolist() for column in columns), strict=True)
                writer.writerows((name, *row) for row in rows)
        return Path(path)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Stacked over conditions; what is not known is left out."""
        parts = {"returns": self.returns, "lengths": self.lengths, "collected": self.collected}
        parts["collected_steps"] = self.collected_steps
        stacked = {what: np.stack([part[n] for n in self.names]) for what, part in parts.items() if part is not None}
        return {**stacked, **({} if self.optimal is None else {"optimal": self.optimal})}


def _locked(array: NDArray[Any]) -> NDArray[Any]:
    """A copy that cannot be written to: what happens to the caller's own array later does not matter."""
    copy = array.copy()
    copy.flags.writeable = False
    return copy
