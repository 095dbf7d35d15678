"""Steps as the model reads them: distinct (observation, action) pairs once, and which of them each step is."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from secret_rl.trajectories import Trajectories

_ROWS_AT_A_TIME = 1 << 17
_SAMPLE = 1 << 16
_MAX_ROW_BYTES = 1024  # beyond this, observations are pictures that hardly ever repeat
_RARE_SHARE, _MOST_REPEATS = 0.2, 20  # episodes with a reward of some sign are rare below this share
_SHARE_OF_FREE = 0.5  # of a GPU's memory that rows may take
_MAX_SHARE = 0.25  # a table is worth while if steps repeat at least four times on average


@dataclass(frozen=True)
class Batch:
    """Some episodes, padded to the longest: step ``t`` of episode ``b`` is token ``index[b, t]``."""

    observations: Any  # nest of (tokens, ...)
    actions: Any
    index: Tensor  # (batch, time)
    classes: Tensor  # (batch, time) sign of the reward + 1
    lengths: Tensor  # (batch,)

    def to(self, device: torch.device) -> "Batch":
        """On a device; from pinned memory, without waiting for it."""
        moved = (map_nest(lambda tensor: tensor.to(device, non_blocking=True), part) for part in vars(self).values())
        return Batch(*moved)

    def pinned(self) -> "Batch":
        """In memory that a GPU reads by itself."""
        return Batch(*(map_nest(lambda tensor: tensor.pin_memory(), part) for part in vars(self).values()))


@dataclass(frozen=True)
class Tokens:
    """Trajectories for the model. With a table, ``observations`` and ``actions`` hold only distinct rows."""

    observations: Any
    actions: Any
    ids: NDArray[np.int32] | None
    """(steps,) row of the table that each step is; None: every step is its own row."""
    offsets: NDArray[np.int64]
    rewards: NDArray[Any]

    @classmethod
    def of(cls, data: "Trajectories") -> "Tokens":
        """Find the distinct pairs, if there are few; otherwise rows are read as they are asked for."""
        rewards, offsets = np.asarray(data.rewards), np.asarray(data.offsets)
        found = _distinct_rows([*arrays_of(data.observations), *arrays_of(data.actions)])
        if found is None:
            return cls(data.observations, data.actions, None, offsets, rewards)
        first, ids = found
        observations, actions = (
            map_nest(lambda array: array[first], nest) for nest in (data.observations, data.actions)
        )
        return cls(observations, actions, ids, offsets, rewards)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(episodes,) steps of each."""
        return np.diff(self.offsets)

    def near(self, device: torch.device) -> "Tokens":
        """With its rows in the memory of a GPU, where pictures fit into half of what is free; else read as asked for.

        A batch of long episodes of pictures is hundreds of megabytes: bringing it takes longer than learning from it.
        """
        if device.type != "cuda" or self.ids is not None:
            return self
        wanted = sum(array.nbytes for nest in (self.observations, self.actions) for array in arrays_of(nest))
        if wanted > _SHARE_OF_FREE * torch.cuda.mem_get_info(device)[0]:
            return self
        return self.moved(device)

    def moved(self, device: torch.device) -> "NearTokens":
        """With its rows in the memory of a device, whether or not they fit well."""
        observations, actions = (map_nest(lambda a: _moved(a, device), n) for n in (self.observations, self.actions))
        return NearTokens(observations, actions, self.ids, self.offsets, self.rewards)

    def batch(self, episodes: NDArray[np.int64], device: torch.device | str = "cpu") -> Batch:
        """The episodes with these numbers."""
        starts = self.offsets[episodes]
        lengths = self.offsets[episodes + 1] - starts
        times = np.arange(lengths.max())
        rows = starts[:, None] + np.minimum(times, lengths[:, None] - 1)  # (batch, time); padding repeats the last
        if self.ids is None:
            real = times < lengths[:, None]
            used = rows[real]
            index = np.zeros(rows.shape, np.int64)
            index[real] = np.arange(len(used))
        else:
            used, inverse = np.unique(self.ids[rows], return_inverse=True)
            index = inverse.reshape(rows.shape)
        classes = np.sign(self.rewards[rows]).astype(np.int64) + 1

        def put(array: Any) -> Tensor:
            return as_tensor(array).to(device)

        def rows_of(nest: Any) -> Any:
            return map_nest(lambda array: put(np.asarray(array[used])), nest)

        return Batch(rows_of(self.observations), rows_of(self.actions), put(index), put(classes), put(lengths))

    def with_rare_repeated(self, episodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Some episodes, those with a reward of a rare sign several times.

        Otherwise a batch holds a handful of them, and their gradient is mostly noise.
        """
        repeats = np.ones(len(episodes), np.int64)
        for rewarded in (self.rewards > 0, self.rewards < 0):
            holds = np.add.reduceat(rewarded, self.offsets[:-1])[episodes] > 0
            share = holds.mean()
            if 0 < share < _RARE_SHARE:
                times = min(round(_RARE_SHARE / share), _MOST_REPEATS)
                repeats = np.where(holds, np.maximum(repeats, times), repeats)
        return np.repeat(episodes, repeats)

    def order(self, episodes: NDArray[np.int64], size: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
        """One pass in random batches of episodes of similar length, so that little is padded."""
        shuffled = rng.permutation(episodes)
        lengths = self.lengths
        window = 32 * size
        batches = []
        for first in range(0, len(shuffled), window):
            part = shuffled[first : first + window]
            part = part[np.argsort(lengths[part], kind="stable")]
            batches += [part[i : i + size] for i in range(0, len(part), size)]
        return [batches[i] for i in rng.permutation(len(batches))]

    def in_order(self, episodes: NDArray[np.int64], size: int) -> Iterator[NDArray[np.int64]]:
        """Every episode once, by length, in batches."""
        ordered = episodes[np.argsort(self.lengths[episodes], kind="stable")]
        for first in range(0, len(ordered), size):
            yield ordered[first : first + size]


@dataclass(frozen=True)
class NearTokens(Tokens):
    """Rows that are where the model is: a batch is told its episodes, and nothing else has to be brought."""

    def __post_init__(self) -> None:
        device = arrays_of(self.actions)[0].device
        facts = self.offsets[:-1], self.lengths, np.sign(self.rewards).astype(np.int8) + np.int8(1)
        object.__setattr__(self, "_facts", tuple(torch.from_numpy(np.ascontiguousarray(a)).to(device) for a in facts))

    def batch(self, episodes: NDArray[np.int64], device: torch.device | str = "cpu") -> Batch:
        """The episodes with these numbers. Padding is encoded, too, so that no count has to be waited for."""
        starts, all_lengths, classes = self._facts  # type: ignore[attr-defined]
        longest = int((self.offsets[episodes + 1] - self.offsets[episodes]).max())
        chosen = torch.from_numpy(np.ascontiguousarray(episodes)).to(starts.device)
        lengths = all_lengths[chosen]
        times = torch.arange(longest, device=starts.device)
        rows = starts[chosen][:, None] + torch.minimum(times, lengths[:, None] - 1)
        observations, actions = (
            map_nest(lambda array: array.index_select(0, rows.flatten()), nest)
            for nest in (self.observations, self.actions)
        )
        index = torch.arange(rows.numel(), device=starts.device).view(rows.shape)
        return Batch(observations, actions, index, classes[rows].long(), lengths).to(torch.device(device))


def _moved(array: NDArray[Any], device: torch.device) -> Tensor:
    """An array on a device, a part at a time: it may be larger than the memory of this machine."""
    first = as_tensor(np.asarray(array[:1]))
    rows = torch.empty(array.shape, dtype=first.dtype, device=device)
    for start in range(0, len(array), _ROWS_AT_A_TIME):
        part = slice(start, start + _ROWS_AT_A_TIME)
        rows[part] = as_tensor(np.asarray(array[part])).to(device)
    return rows


def arrays_of(nest: Any) -> list[NDArray[Any]]:
    """The arrays of a nest."""
    if isinstance(nest, dict):
        return [array for part in nest.values() for array in arrays_of(part)]
    if isinstance(nest, tuple):
        return [array for part in nest for array in arrays_of(part)]
    return [nest]


def map_nest(function: Any, nest: Any) -> Any:
    """Apply a function to each array of a nest."""
    if isinstance(nest, dict):
        return {key: map_nest(function, part) for key, part in nest.items()}
    if isinstance(nest, tuple):
        return tuple(map_nest(function, part) for part in nest)
    return function(nest)


def as_tensor(array: NDArray[Any]) -> Tensor:
    """An array as a tensor of a dtype that PyTorch computes with."""
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)
    if not array.flags.writeable:
        array = array.copy()
    return torch.from_numpy(np.ascontiguousarray(array))


def _distinct_rows(columns: list[NDArray[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int32]] | None:
    """Where each distinct row first stands, and which distinct row each row is; None if most are distinct."""
    rows = len(columns[0])
    row_bytes = sum(int(np.prod(column.shape[1:])) * column.dtype.itemsize for column in columns)
    if row_bytes > _MAX_ROW_BYTES or rows < 2:
        return None
    sample = np.linspace(0, rows - 1, min(rows, _SAMPLE)).astype(np.int64)
    if len(np.unique(_hashes([column[sample] for column in columns]))) > max(_MAX_SHARE * len(sample), 64):
        return None
    hashes = np.empty(rows, np.uint64)
    for first in range(0, rows, _ROWS_AT_A_TIME):
        part = slice(first, first + _ROWS_AT_A_TIME)
        hashes[part] = _hashes([column[part] for column in columns])
    _, where, ids = np.unique(hashes, return_index=True, return_inverse=True)
    for first in range(0, rows, _ROWS_AT_A_TIME):  # hashes may collide: rows decide
        part = slice(first, first + _ROWS_AT_A_TIME)
        if any(not np.array_equal(column[part], column[where][ids[part]]) for column in columns):
            return None
    return where, ids.astype(np.int32)


def _hashes(columns: list[NDArray[Any]]) -> NDArray[np.uint64]:
    """A 64-bit hash of each row: bytes as digits of a random odd base, per word."""
    multipliers = np.random.default_rng(0x5EC3E7)
    total = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        raw = np.ascontiguousarray(column).reshape(len(column), -1).view(np.uint8)
        padded = np.zeros((len(raw), -(-raw.shape[1] // 8) * 8), np.uint8)
        padded[:, : raw.shape[1]] = raw
        for word in padded.view(np.uint64).T:
            word = (word ^ (word >> np.uint64(29))) * (multipliers.integers(2**63, dtype=np.uint64) | np.uint64(1))
            total = (total ^ (total >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15) + word
    return total
