"""Who earned each reward: attention of correctly predicted rewards over the steps up to them."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from secret_rl.atomic import replacing
from secret_rl.credit.model import Dropout, RewardPredictor
from secret_rl.credit.tokens import Tokens, as_tensor, map_nest
from secret_rl.files import FileFormat, whole_number
from secret_rl.progress import Tick

if TYPE_CHECKING:
    import pandas

    from secret_rl.trajectories import Trajectories

_STEPS_AT_A_TIME = 1 << 13  # bounds memory whatever the number and length of trajectories; fits in caches
_TOKENS_AT_A_TIME = 1 << 13
_FORMAT = FileFormat("secret-rl attributions", remedy="restore it or attribute again")
KINDS = {"positive": (1,), "negative": (-1,), "all": (-1, 1)}


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
    weights: NDArray[np.float32]
    """Attention, row after row."""
    offsets: NDArray[np.int64]
    """(rows + 1,) where the weights of each row begin."""
    rewards_seen: int
    """Rewards of the kind asked for in the trajectories, predicted or not."""
    lengths: NDArray[np.int64] = field(repr=False)
    """(episodes,) steps of every episode of the trajectories."""

    def __len__(self) -> int:
        return len(self.episode)

    @property
    def coverage(self) -> float:
        """The share of rewards that were predicted correctly and so have a row."""
        return len(self) / self.rewards_seen if self.rewards_seen else 0.0

    def row(self, r: int) -> NDArray[np.float32]:
        """(steps,) the attention of one row."""
        return self.weights[self.offsets[r] : self.offsets[r + 1]]

    def step_credit(self) -> NDArray[np.float64]:
        """(all steps,) what each step earned: the sum over later rewards of attention times reward."""
        starts = np.concatenate([[0], np.cumsum(self.lengths)])
        counts = np.diff(self.offsets)
        within = np.arange(len(self.weights)) - np.repeat(self.offsets[:-1], counts)
        rows = np.repeat(starts[self.episode], counts) + within
        earned = self.weights * np.repeat(self.reward, counts)
        return np.asarray(np.bincount(rows, weights=earned, minlength=int(starts[-1])), np.float64)

    def columns(self, threshold: float = 0.0) -> dict[str, NDArray[Any]]:
        """A long table (episode, reward_step, reward, step, weight), weights above the threshold only."""
        kept = np.flatnonzero(self.weights > threshold)
        row = np.repeat(np.arange(len(self)), np.diff(self.offsets))[kept]
        return {
            "episode": self.episode[row],
            "reward_step": self.step[row],
            "reward": self.reward[row],
            "step": kept - self.offsets[row],
            "weight": self.weights[kept],
        }

    def to_pandas(self, threshold: float = 0.0) -> "pandas.DataFrame":
        """The table of ``columns`` as a data frame."""
        try:
            import pandas
        except ModuleNotFoundError as missing:
            raise ModuleNotFoundError('to_pandas needs the report extra: pip install "secret-rl[report]"') from missing
        return pandas.DataFrame(self.columns(threshold))

    def to_csv(self, path: str | Path, threshold: float = 0.0) -> Path:
        """Write the table of ``columns``, whole or not at all."""
        columns = self.columns(threshold)
        with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))
        return Path(path)

    def save(self, path: str | Path) -> Path:
        """Write one safetensors file, whole or not at all."""
        return _FORMAT.write_arrays(path, {"rewards_seen": self.rewards_seen}, self._arrays())

    @classmethod
    def load(cls, path: str | Path) -> "Attributions":
        """Read what ``save`` wrote."""
        path = Path(path)
        about, arrays = _FORMAT.read_arrays(path)
        with _FORMAT.reading(path):
            loaded = cls(rewards_seen=whole_number(about["rewards_seen"], high=2**62), **arrays)
            loaded._check()
        return loaded

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "rewards_seen"}

    def _check(self) -> None:
        """ValueError unless the arrays fit each other."""
        types = {"reward": np.float64, "weights": np.float32}
        for name, array in self._arrays().items():
            if array.ndim != 1 or array.dtype != types.get(name, np.int64):
                raise ValueError(f"{name} is {array.dtype} of shape {array.shape}")
        rows = len(self)
        if not len(self.step) == len(self.predicted_at) == len(self.reward) == len(self.offsets) - 1 == rows:
            raise ValueError("its arrays are of different lengths")
        if self.offsets[0] != 0 or self.offsets[-1] != len(self.weights) or (np.diff(self.offsets) < 1).any():
            raise ValueError("its offsets do not fit its weights")
        if (self.lengths < 1).any() or self.lengths.sum(dtype=np.float64) > 2**40:
            raise ValueError("its episodes have no length, or too much")
        if rows and not 0 <= self.episode.min() <= self.episode.max() < len(self.lengths):
            raise ValueError("it speaks of episodes that are not there")
        length = self.lengths[self.episode]
        if (np.diff(self.offsets) > length).any() or ((self.step < 0) | (self.step >= length)).any():
            raise ValueError("it speaks of steps that are not there")


@torch.no_grad()
def attribute(
    model: RewardPredictor,
    data: "Trajectories",
    device: torch.device,
    rewards: str = "all",
    tolerance: int = 0,
    tick: Tick = lambda *_: None,
    needing_past: bool = False,
) -> Attributions:
    """Attention rows of correctly predicted rewards. Only those rows are computed.

    With ``needing_past``, those that are predicted without any attention to earlier steps are left out.
    """
    if rewards not in KINDS:
        raise ValueError(f"rewards must be one of {sorted(KINDS)}, got {rewards!r}")
    if tolerance < 0:
        raise ValueError(f"tolerance must not be negative, got {tolerance}")
    model.eval()
    tokens = Tokens.of(data)
    table = _encode_table(model, tokens, device)
    signs = np.sign(tokens.rewards).astype(np.int64)
    wanted = np.flatnonzero(np.isin(signs, KINDS[rewards]))  # flat steps
    episodes = np.searchsorted(tokens.offsets, wanted, side="right") - 1
    parts: list[tuple[Any, ...]] = []
    for first, last in _blocks(episodes, tokens.lengths):
        parts.append(
            _rows(
                model, tokens, table, wanted[first:last], episodes[first:last], signs, tolerance, needing_past, device
            )
        )
        tick("", last, len(wanted))
    joined = [np.concatenate(column) for column in zip(*parts, strict=True)] if parts else _nothing()
    episode, step, predicted_at, sizes, weights = joined
    if not np.isfinite(weights).all():
        raise ValueError("the model's attention is not finite: its weights are damaged or too large; fit it again")
    return Attributions(
        episode=episode,
        step=step,
        predicted_at=predicted_at,
        reward=tokens.rewards[tokens.offsets[episode] + step].astype(np.float64),
        weights=weights,
        offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        rewards_seen=len(wanted),
        lengths=tokens.lengths,
    )


def _blocks(episodes: NDArray[np.int64], lengths: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Runs of rewards, whole episodes each, whose episodes fit in memory together."""
    first = 0
    while first < len(episodes):
        longest, count, last = 0, 0, first
        previous = -1
        while last < len(episodes):
            if episodes[last] != previous:
                grown = max(longest, int(lengths[episodes[last]]))
                if count and grown * (count + 1) > _STEPS_AT_A_TIME:
                    break
                longest, count, previous = grown, count + 1, int(episodes[last])
            last += 1
        yield first, last
        first = last


def _encode_table(model: RewardPredictor, tokens: Tokens, device: torch.device) -> Tensor | None:
    """All distinct tokens encoded once, if there is a table."""
    if tokens.ids is None:
        return None
    count = int(tokens.ids.max()) + 1
    parts = []
    for first in range(0, count, _TOKENS_AT_A_TIME):
        observations, actions = (
            map_nest(lambda a: as_tensor(np.asarray(a[first : first + _TOKENS_AT_A_TIME])).to(device), nest)  # noqa: B023
            for nest in (tokens.observations, tokens.actions)
        )
        parts.append(model.project(model.encode(observations, actions, Dropout(None))))
    return torch.cat(parts)


def _rows(
    model: RewardPredictor,
    tokens: Tokens,
    table: Tensor | None,
    wanted: NDArray[np.int64],
    episodes: NDArray[np.int64],
    signs: NDArray[np.int64],
    tolerance: int,
    needing_past: bool,
    device: torch.device,
) -> tuple[Any, ...]:
    """(episode, step, predicted_at, row size, weights) of the correctly predicted among some rewards."""
    distinct, local = np.unique(episodes, return_inverse=True)
    lengths = tokens.lengths[distinct]
    steps = wanted - tokens.offsets[episodes]
    # (episode, slot) layout of the rewards, and around each the steps at which a prediction counts
    slot = np.arange(len(wanted)) - np.searchsorted(local, local)
    slots = int(slot.max()) + 1
    shifts = np.array(sorted(range(-tolerance, tolerance + 1), key=lambda d: (abs(d), d)))  # nearest first
    times = np.zeros((len(distinct), slots, len(shifts)), np.int64)
    times[local, slot] = np.clip(steps[:, None] + shifts, 0, lengths[local][:, None] - 1)
    index, encoded = _index(model, tokens, table, distinct, device)
    asked = torch.from_numpy(times.reshape(len(distinct), -1)).to(device)
    prediction = model.predict_rows(encoded, index, asked)

    def right(logits: Tensor) -> NDArray[np.bool_]:
        """(rewards, shifts) whether the sign of each reward is predicted at these steps."""
        predicted = logits.argmax(-1).cpu().numpy().reshape(times.shape) - 1
        return np.asarray(predicted[local, slot] == signs[wanted][:, None])

    correct = right(prediction.logits)
    if needing_past:
        correct[right(model.predict_alone(encoded, index, asked)).any(1)] = False
    hits = np.flatnonzero(correct.any(1))
    chosen = correct[hits].argmax(1)
    at = times[local[hits], slot[hits], chosen]
    rows = prediction.attention.cpu().numpy()[local[hits], slot[hits] * len(shifts) + chosen]  # (hits, time)
    sizes = at + 1
    weights = rows[np.arange(rows.shape[1]) < sizes[:, None]]
    return episodes[hits], steps[hits], at, sizes, weights


def _index(
    model: RewardPredictor, tokens: Tokens, table: Tensor | None, episodes: NDArray[np.int64], device: torch.device
) -> tuple[Tensor, Tensor]:
    if table is None or tokens.ids is None:
        batch = tokens.batch(episodes, device)
        return batch.index, model.project(model.encode(batch.observations, batch.actions, Dropout(None)))
    lengths = tokens.lengths[episodes]
    times = np.minimum(np.arange(lengths.max()), lengths[:, None] - 1)
    ids = tokens.ids[tokens.offsets[episodes][:, None] + times]
    return torch.from_numpy(ids.astype(np.int64)).to(device), table


def _nothing() -> list[NDArray[Any]]:
    return [*(np.zeros(0, np.int64) for _ in range(4)), np.zeros(0, np.float32)]
