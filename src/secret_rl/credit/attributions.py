"""What credit methods return: which steps earned each reward, and how much of it."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secret_rl.display import table_html
from secret_rl.files import FileFormat, write_csv

if TYPE_CHECKING:
    from secret_rl.trajectories import Trajectories

REWARD_KINDS = {"positive": (1,), "negative": (-1,), "all": (-1, 0, 1)}
"""Which signs of reward a kind stands for."""
_SHOWN, _EARNERS = 10, 4  # rows that a notebook shows, and steps of each
_LEAST = 0.005  # smaller shares are 0 %
_FORMAT = FileFormat("secret-rl attributions", remedy="restore it or attribute again")


def of_kind(rewards: NDArray[Any], kind: str) -> NDArray[np.bool_]:
    """Which rewards are of a kind of ``REWARD_KINDS``."""
    if kind not in REWARD_KINDS:
        raise ValueError(f"rewards must be one of {sorted(REWARD_KINDS)}, got {kind!r}")
    return np.isin(np.sign(rewards), REWARD_KINDS[kind])


@dataclass(frozen=True, eq=False)
class Attributions:
    """One row per reward that was predicted correctly: how much each step up to it earned of it.

    The weights of row ``r`` are ``weights[offsets[r]:offsets[r + 1]]``, for steps 0, 1, ... of its episode; they
    sum to 1.
    """

    episode: NDArray[np.int64]
    """(rows,) number of the episode in the trajectories."""
    step: NDArray[np.int64]
    """(rows,) step of the episode at which the reward came."""
    predicted_at: NDArray[np.int64]
    """(rows,) step whose prediction and attention these are; the same step unless a tolerance is given."""
    reward: NDArray[np.float64]
    """(rows,)"""
    evidence: NDArray[np.float32]
    """(rows,) what attention adds to the log-probability of the reward's class. Where it adds nothing, the model
    infers the reward from what it did *not* find, and the row says little."""
    weights: NDArray[np.float32]
    """Credit, row after row."""
    offsets: NDArray[np.int64]
    """(rows + 1,) where the weights of each row begin."""
    rewards_seen: int
    """Rewards of the requested kind that the present leaves open, predicted or not."""
    lengths: NDArray[np.int64] = field(repr=False)
    """(episodes,) steps of every episode of the trajectories."""

    @classmethod
    def shared(cls, data: "Trajectories", scores: NDArray[Any], rewards: str) -> "Attributions":
        """Each reward but 0 shared out in proportion to scores (steps,) up to it; evenly where all are 0."""
        values = np.asarray(data.rewards, np.float64)
        rows = np.flatnonzero(of_kind(values, rewards) & (values != 0))
        episode = np.searchsorted(data.offsets, rows, side="right") - 1
        step = rows - data.offsets[episode]
        parts = [np.zeros(0, np.float32)]
        for row, size in zip(rows.tolist(), (step + 1).tolist(), strict=True):
            part = np.asarray(scores[row + 1 - size : row + 1], np.float32)
            parts.append(part / part.sum() if part.any() else np.full(size, 1 / size, np.float32))
        offsets = np.concatenate([[0], np.cumsum(step + 1)])
        evidence, weights = np.zeros(len(rows), np.float32), np.concatenate(parts)
        return cls(episode, step, step, values[rows], evidence, weights, offsets, len(rows), data.lengths)

    def __len__(self) -> int:
        return len(self.episode)

    def __repr__(self) -> str:
        return f"Attributions({len(self):,} of {self.rewards_seen:,} rewards, of {len(self.lengths):,} episodes)"

    def _repr_html_(self) -> str:
        header = ["episode", "reward", "at step", "earned by"]
        return table_html(header, [self._in_words(r) for r in range(min(len(self), _SHOWN))], caption=repr(self))

    def _in_words(self, r: int) -> list[str]:
        """A row: the episode, the reward, its step, and the steps with most credit; steps are numbered from 0."""
        weights = self.row(r)
        first, *others = np.argsort(-weights, kind="stable")[:_EARNERS].tolist()
        best = [first, *(step for step in others if weights[step] >= _LEAST)] if weights[first] > 0 else []
        earned = ", ".join(f"step {step} ({weights[step]:.0%})" for step in best)
        return [f"{self.episode[r]:,}", f"{self.reward[r]:g}", f"{self.step[r]:,}", earned]

    @property
    def coverage(self) -> float:
        """The share of rewards that were predicted correctly and so have a row."""
        return len(self) / self.rewards_seen if self.rewards_seen else 0.0

    def __getitem__(self, rows: NDArray[Any]) -> "Attributions":
        """Some of the rows, by number or mask; as many rewards were seen."""
        rows = np.arange(len(self))[rows]
        columns = {
            name: getattr(self, name)[rows] for name in ("episode", "step", "predicted_at", "reward", "evidence")
        }
        offsets = np.concatenate([[0], np.cumsum(np.diff(self.offsets)[rows])])
        weights = np.concatenate([np.zeros(0, np.float32), *(self.row(r) for r in rows.tolist())])
        return replace(self, **columns, weights=weights, offsets=offsets)

    def row(self, r: int) -> NDArray[np.float32]:
        """(steps,) the weights of one row."""
        return self.weights[self.offsets[r] : self.offsets[r + 1]]

    def places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The row of each weight, and the step of all trajectories, end to end, that it is for."""
        row = np.repeat(np.arange(len(self)), np.diff(self.offsets))
        starts = np.cumsum(self.lengths) - self.lengths
        return row, starts[self.episode[row]] + np.arange(len(row)) - self.offsets[row]

    def step_credit(self) -> NDArray[np.float64]:
        """(all steps,) what each step earned: the sum over later rewards of weight times reward."""
        row, step = self.places()
        earned = np.bincount(step, weights=self.weights * self.reward[row], minlength=int(self.lengths.sum()))
        return np.asarray(earned, np.float64)

    def columns(self, threshold: float = 0.0) -> dict[str, NDArray[Any]]:
        """A long table (episode, reward_step, reward, step, weight), weights above the threshold only."""
        kept = np.flatnonzero(self.weights > threshold)
        row = self.places()[0][kept]
        return {
            "episode": self.episode[row],
            "reward_step": self.step[row],
            "reward": self.reward[row],
            "step": kept - self.offsets[row],
            "weight": self.weights[kept],
        }

    def to_csv(self, path: str | Path, threshold: float = 0.0) -> Path:
        """Write the table of ``columns``, whole or not at all."""
        columns = self.columns(threshold)
        return write_csv(path, columns, zip(*(column.tolist() for column in columns.values()), strict=True))

    def save(self, path: str | Path) -> Path:
        """Write one safetensors file, whole or not at all."""
        arrays = dict(vars(self))
        return _FORMAT.write_arrays(path, {"rewards_seen": arrays.pop("rewards_seen")}, arrays)

    @classmethod
    def load(cls, path: str | Path) -> "Attributions":
        """Read what ``save`` wrote."""
        about, arrays = _FORMAT.read_arrays(path)
        with _FORMAT.reading(Path(path)):
            return cls(**{**arrays, **about})
