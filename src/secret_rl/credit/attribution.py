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
from secret_rl.credit.classes import RewardClasses
from secret_rl.credit.memoryless import Present
from secret_rl.credit.model import Dropout, RewardPredictor, over_steps
from secret_rl.credit.tokens import Tokens
from secret_rl.files import FileFormat, whole_number
from secret_rl.progress import Tick

if TYPE_CHECKING:
    import pandas

    from secret_rl.trajectories import Trajectories

_STEPS_AT_A_TIME = 1 << 13  # bounds memory whatever the number and length of trajectories; fits in caches
_TOKENS_AT_A_TIME = 1 << 13
_FORMAT = FileFormat("secret-rl attributions", remedy="restore it or attribute again")
KINDS = {"positive": (1,), "negative": (-1,), "all": (-1, 0, 1)}
READOUTS = ("attention", "attention x value", "leave-one-out")
_DECIDED = 0.98  # probability without memory from which the present decides a reward
_NUMBERS_AT_A_TIME = 1 << 24


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
    """(rows,) what looking back adds to the log-probability of the reward's class. Where it adds nothing, the model
    infers the reward from what it did *not* find, and the row says little."""
    weights: NDArray[np.float32]
    """Credit, row after row."""
    offsets: NDArray[np.int64]
    """(rows + 1,) where the weights of each row begin."""
    rewards_seen: int
    """Rewards of the kind asked for that the present leaves open, predicted or not."""
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
        types = {"reward": np.float64, "weights": np.float32, "evidence": np.float32}
        for name, array in self._arrays().items():
            if array.ndim != 1 or array.dtype != types.get(name, np.int64):
                raise ValueError(f"{name} is {array.dtype} of shape {array.shape}")
        rows = len(self)
        columns = self.step, self.predicted_at, self.reward, self.evidence, self.offsets[1:]
        if any(len(column) != rows for column in columns):
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
    present: Present,
    classes: RewardClasses,
    data: "Trajectories",
    device: torch.device,
    rewards: str = "all",
    tolerance: int = 0,
    tick: Tick = lambda *_: None,
    decided: bool = False,
    readout: str = "attention",
) -> Attributions:
    """Credit for rewards that are predicted correctly. Only their rows are computed.

    Rewards that the present decides are left out, unless ``decided``.
    """
    if rewards not in KINDS:
        raise ValueError(f"rewards must be one of {sorted(KINDS)}, got {rewards!r}")
    if readout not in READOUTS:
        raise ValueError(f"readout must be one of {', '.join(READOUTS)}, got {readout!r}")
    if tolerance < 0:
        raise ValueError(f"tolerance must not be negative, got {tolerance}")
    model.eval()
    tokens = Tokens.of(data, classes)
    table = _encode_table(model, tokens, device)
    wanted = np.isin(np.sign(np.asarray(data.rewards)), KINDS[rewards])
    wanted[tokens.offsets[:-1]] = False  # a first step has no past
    if not decided:
        said = present.probabilities(tokens, np.full(len(tokens), -1), device)
        wanted &= said[np.arange(len(said)), tokens.classes] < _DECIDED
    steps = np.flatnonzero(wanted)
    episodes = np.searchsorted(tokens.offsets, steps, side="right") - 1
    parts: list[tuple[Any, ...]] = []
    for first, last in _blocks(episodes, tokens.lengths):
        part = slice(first, last)
        parts.append(_rows(model, tokens, table, steps[part], episodes[part], tolerance, readout, device))
        tick("", last, len(steps))
    joined = [np.concatenate(column) for column in zip(*parts, strict=True)] if parts else _nothing()
    episode, step, predicted_at, sizes, evidence, weights = joined
    if not np.isfinite(weights).all():
        raise ValueError("the model's attention is not finite: its weights are damaged or too large; fit it again")
    return Attributions(
        episode=episode,
        step=step,
        predicted_at=predicted_at,
        reward=np.asarray(data.rewards)[tokens.offsets[episode] + step].astype(np.float64),
        evidence=evidence,
        weights=weights,
        offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        rewards_seen=len(steps),
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
    parts = [slice(first, first + _TOKENS_AT_A_TIME) for first in range(0, len(tokens.first), _TOKENS_AT_A_TIME)]
    return torch.cat([model.prepare(model.encode(tokens.table(device, part), Dropout(None))) for part in parts])


def _rows(
    model: RewardPredictor,
    tokens: Tokens,
    table: Tensor | None,
    wanted: NDArray[np.int64],
    episodes: NDArray[np.int64],
    tolerance: int,
    readout: str,
    device: torch.device,
) -> tuple[Any, ...]:
    """(episode, step, predicted_at, row size, evidence, weights) of the correctly predicted among some rewards."""
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
    prediction, row_x, value = model.predict_rows(encoded, index, asked)
    predicted = prediction.logits.argmax(-1).cpu().numpy().reshape(times.shape)
    correct = predicted[local, slot] == tokens.classes[wanted][:, None]  # (rewards, shifts)
    hits = np.flatnonzero(correct.any(1))
    shift = correct[hits].argmax(1)
    at = times[local[hits], slot[hits], shift]
    where = torch.from_numpy(local[hits]).to(device), torch.from_numpy(slot[hits] * len(shifts) + shift).to(device)
    classes = torch.from_numpy(tokens.classes[wanted[hits]].astype(np.int64)).to(device)[:, None]
    row_x, scores = row_x[where], prediction.scores[where]
    with_past, alone = (
        logits.log_softmax(-1).gather(1, classes)[:, 0]
        for logits in (prediction.logits[where], model.predict_alone(row_x))
    )
    rows = over_steps(scores)
    if readout != "attention":
        rows = _other_readout(model, readout, row_x, prediction.weights[where], value, where[0], classes[:, 0], rows)
    sizes = at + 1
    weights = rows.cpu().numpy()[np.arange(rows.shape[1]) < sizes[:, None]]
    return episodes[hits], steps[hits], at, sizes, (with_past - alone).cpu().numpy(), weights


def _other_readout(
    model: RewardPredictor,
    readout: str,
    row_x: Tensor,
    weights: Tensor,
    value: Tensor,
    episode: Tensor,
    classes: Tensor,
    attention: Tensor,
) -> Tensor:
    """(rows, key) credit that is not attention alone; a row for which it is 0 everywhere keeps its attention."""
    if readout == "attention x value":
        credit = weights[:, 1:] * value.norm(dim=-1)[episode]
    else:
        size = max(1, _NUMBERS_AT_A_TIME // (value.shape[1] * value.shape[2]))
        parts = [
            model.leave_one_out(row_x[part], weights[part], value[episode[part]], classes[part])
            for part in torch.arange(len(row_x), device=row_x.device).split(size)
        ]
        credit = torch.cat([*parts, attention[:0]]).clamp(min=0)
    credit = credit * (attention > 0)
    total = credit.sum(1, keepdim=True)
    return torch.where(total > 0, credit / total.clamp(min=1e-30), attention)


def _index(
    model: RewardPredictor, tokens: Tokens, table: Tensor | None, episodes: NDArray[np.int64], device: torch.device
) -> tuple[Tensor, Tensor]:
    if table is None or tokens.ids is None:
        batch = tokens.batch(episodes, device)
        return batch.index, model.prepare(model.encode(batch.rows, Dropout(None)))
    lengths = tokens.lengths[episodes]
    times = np.minimum(np.arange(lengths.max()), lengths[:, None] - 1)
    ids = tokens.ids[tokens.offsets[episodes][:, None] + times]
    return torch.from_numpy(ids.astype(np.int64)).to(device), table


def _nothing() -> list[NDArray[Any]]:
    return [*(np.zeros(0, np.int64) for _ in range(4)), np.zeros(0, np.float32), np.zeros(0, np.float32)]
