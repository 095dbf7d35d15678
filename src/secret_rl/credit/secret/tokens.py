"""Steps as the model reads them: distinct (observation, action) pairs once, and which of them each step is."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from secret_rl.credit.base import Specs
from secret_rl.credit.reward_classes import RewardClasses
from secret_rl.encoders import as_tensor
from secret_rl.trajectories.nested import arrays_of, map_arrays
from secret_rl.trajectories.stored import LARGE_ROW, StoredRows
from secret_rl.trajectories.streaming import read_ahead

if TYPE_CHECKING:
    from secret_rl.trajectories import Trajectories

Item = TypeVar("Item")
Result = TypeVar("Result")

_ROWS_AT_A_TIME = 1 << 17
_SAMPLE, _EXAMPLES = 1 << 16, 10_000
_MAX_ROW_BYTES = LARGE_ROW  # beyond this, observations are pictures that hardly ever repeat
_EXAMPLE_BYTES = 32 << 20
_MOVED_BYTES = 256 << 20  # that are copied to a GPU at a time
_BYTES_AT_A_TIME = 8 << 20  # of pictures, on a CPU: as numbers in a network they take many times that
_SHARE_OF_FREE = 0.5  # of a GPU's memory that rows may take
_MAX_SHARE = 0.25  # a table pays off if steps repeat at least four times on average
_FEW_ROWS = 64  # make a table in any case
_MOST_PARTS = 12  # of a step, that names are looked for in


class Rows(NamedTuple):
    """Tokens: (observation, action) pairs, and whether each is the first of an episode."""

    observations: Any  # nest of (tokens, ...)
    actions: Any
    first: Tensor  # (tokens,) 1.0 or 0.0
    names: Tensor | None = None  # (tokens,) number of the name of each, if they have names


class Part(NamedTuple):
    """What one of several processes has of a batch: numbers in the whole batch, and how many there are in it."""

    tokens: Tensor
    of_tokens: int
    episodes: Tensor
    of_episodes: int

    @classmethod
    def of(
        cls, tokens: NDArray[Any], of_tokens: int, episodes: NDArray[Any], of_episodes: int, device: torch.device | str
    ) -> "Part":
        """The same of arrays."""
        return cls(torch.from_numpy(tokens).to(device), of_tokens, torch.from_numpy(episodes).to(device), of_episodes)


def taken(weights: NDArray[Any], part: slice) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Which rows are in a part, and their weights (rows, ...): one that weighs nothing where there would be none."""
    own = np.arange(len(weights))[part]
    return (own, weights[own]) if len(own) else (np.zeros(1, np.int64), 0 * weights[:1])


@dataclass(frozen=True)
class Batch:
    """Some episodes, padded to the longest: step ``t`` of episode ``b`` is token ``index[b, t]``."""

    rows: Rows
    index: Tensor  # (batch, time)
    classes: Tensor  # (batch, time) class of the reward
    weights: Tensor  # (batch, time) of the step in the loss; 0 for padding
    part: Part | None = None  # None: the whole batch

    @property
    def share(self) -> float:
        """Of the whole batch, by episodes."""
        return 1.0 if self.part is None else len(self.classes) / self.part.of_episodes


@dataclass(frozen=True)
class Tokens:
    """Trajectories for the model. With a table, ``observations`` and ``actions`` hold only distinct rows."""

    observations: Any
    actions: Any
    first: NDArray[np.bool_]
    ids: NDArray[np.int32] | None
    """(steps,) row of the table that each step is, first steps apart; None: every step is its own row."""
    offsets: NDArray[np.int64]
    classes: NDArray[np.int16]
    """(steps,) class of each reward."""
    weights: NDArray[np.float32]
    """(steps,) of each step in the loss."""
    names: NDArray[np.int32] | None = None
    """(rows,) number of the name of each row; None: rows have no names."""

    @classmethod
    def of(cls, data: "Trajectories", reward_classes: RewardClasses) -> "Tokens":
        """Find the distinct pairs, if there are few. Every step weighs the same until ``weighted``."""
        offsets, classes = np.asarray(data.offsets), reward_classes.index(data.rewards).astype(np.int16)
        rest = offsets, classes, np.ones(len(classes), np.float32)
        first = np.zeros(len(classes), np.bool_)
        first[offsets[:-1]] = True
        found = _distinct_rows([*arrays_of(data.observations), *arrays_of(data.actions), first])
        if found is None:
            return cls(data.observations, data.actions, first, None, *rest)
        where, ids = found
        seen, done = (map_arrays(lambda array: array[where], nest) for nest in (data.observations, data.actions))
        return cls(seen, done, first[where], ids, *rest)

    def weighted(self, weights: NDArray[np.float32]) -> "Tokens":
        """With other weights (steps,) in the loss."""
        return replace(self, weights=weights)

    def with_names(self, data: "Trajectories") -> "Tokens | None":
        """With a name for each row: one of its own in a table; else shared by rows that are alike but for a few parts.

        None where rows are pictures or differ in too many parts, so that hardly any would share a name.
        """
        if self.ids is not None:
            return replace(self, names=np.arange(len(self.first), dtype=np.int32))
        names = _names_of([*arrays_of(data.observations), *arrays_of(data.actions), self.first])
        return None if names is None else replace(self, names=names)

    def by_name_alone(self) -> "tuple[Tokens, Specs] | None":
        """The same steps, of which each distinct one is but a number, and such spaces; None without a table."""
        if self.ids is None:
            return None
        count = len(self.first)
        specs = {"type": "Discrete", "n": count, "start": 0}, {"type": "Discrete", "n": 1, "start": 0}
        return replace(self, observations=np.arange(count), actions=np.zeros(count, np.int64)), specs

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(episodes,) steps of each."""
        return np.diff(self.offsets)

    @property
    def row_bytes(self) -> int:
        """Bytes of a step as it is stored."""
        arrays = [*arrays_of(self.observations), *arrays_of(self.actions)]
        return int(sum(array.nbytes for array in arrays) // max(len(arrays[0]), 1))

    def at_a_time(self, most: int, device: torch.device) -> int:
        """Steps that a network takes together: fewer than ``most`` where they are pictures, but for GPUs."""
        if device.type != "cpu" or self.row_bytes <= LARGE_ROW:
            return most
        return max(1, min(most, _BYTES_AT_A_TIME // self.row_bytes))

    def ahead(self, read: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """``map``, by another thread where rows are on disk: the next ones are read while some are worked with."""
        arrays = [*arrays_of(self.observations), *arrays_of(self.actions)]
        return read_ahead(read, items) if any(isinstance(a, StoredRows) for a in arrays) else map(read, items)

    def steps_of(self, episodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """The steps of some episodes, in their order."""
        starts, lengths = self.offsets[episodes], self.lengths[episodes]
        return np.arange(lengths.sum()) + np.repeat(starts - np.cumsum(lengths) + lengths, lengths)

    def to_device(self, device: torch.device) -> "Tokens":
        """With its rows in the memory of a GPU, where pictures fit into half of what is free; else read for each batch.

        A batch of long episodes of pictures is hundreds of megabytes: copying it takes longer than learning from it.
        """
        if device.type != "cuda" or self.ids is not None:
            return self
        wanted = sum(array.nbytes for nest in (self.observations, self.actions) for array in arrays_of(nest))
        return self if wanted > _SHARE_OF_FREE * torch.cuda.mem_get_info(device)[0] else self.moved(device)

    def moved(self, device: torch.device) -> "Tokens":
        """With its rows in the memory of a device, whether or not they fit well."""

        def moved(array: NDArray[Any]) -> Tensor:
            """A part at a time: it may be larger than the memory of this machine."""
            rows = torch.empty(array.shape, dtype=as_tensor(np.asarray(array[:1])).dtype, device=device)
            each = max(1, min(_ROWS_AT_A_TIME, len(array) * _MOVED_BYTES // max(array.nbytes, 1)))
            for start in range(0, len(array), each):
                part = slice(start, start + each)
                rows[part] = as_tensor(np.asarray(array[part])).to(device)
            return rows

        return replace(self, observations=map_arrays(moved, self.observations), actions=map_arrays(moved, self.actions))

    def batch(
        self, episodes: NDArray[np.int64], device: torch.device | str = "cpu", part: slice | None = None
    ) -> Batch:
        """The episodes with these numbers, or a part of them: without any, one that weighs nothing."""
        starts, lengths = self.offsets[episodes], self.lengths[episodes]
        times = np.arange(lengths.max())
        rows = starts[:, None] + np.minimum(times, lengths[:, None] - 1)  # (batch, time); padding repeats the last
        real = times < lengths[:, None]
        if self.ids is None:
            used = rows[real]
            index: NDArray[np.int64] = np.zeros(rows.shape, np.int64)
            index[real] = np.arange(len(used))
        else:
            used, inverse = np.unique(self.ids[rows], return_inverse=True)
            index = inverse.reshape(rows.shape)
        classes, weights = self.classes[rows].astype(np.int64), self.weights[rows] * real
        mine = None
        if part is not None:
            own, weights = taken(weights, part)
            tokens, numbers = np.unique(index[own], return_inverse=True)
            mine = Part.of(tokens, len(used), own, len(episodes), device)
            used, index, classes = used[tokens], numbers.reshape(len(own), -1), classes[own]
        index_on, classes_on, weights_on = (as_tensor(a).to(device) for a in (index, classes, weights))
        return Batch(self.table(device, used), index_on, classes_on, weights_on, mine)

    def rows(self, steps: NDArray[np.int64], device: torch.device | str = "cpu") -> Rows:
        """The tokens of some steps."""
        return self.table(device, steps if self.ids is None else self.ids[steps])

    def table(self, device: torch.device | str, part: NDArray[Any] | slice = slice(None)) -> Rows:
        """The rows as they are kept, or some of them."""

        def chosen(array: Any) -> Tensor:
            if isinstance(array, Tensor):  # in the memory of a device
                return array[part if isinstance(part, slice) else torch.from_numpy(part).to(array.device)].to(device)
            return as_tensor(np.asarray(array[part])).to(device)

        seen, done = map_arrays(chosen, self.observations), map_arrays(chosen, self.actions)
        return Rows(seen, done, chosen(self.first).float(), None if self.names is None else chosen(self.names))

    def by_length(self, episodes: NDArray[np.int64], size: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
        """Batches of episodes of similar length, so that little is padded, in random order."""
        ordered = episodes[np.argsort(self.lengths[episodes], kind="stable")]
        batches = [ordered[i : i + size] for i in range(0, len(ordered), size)]
        return [batches[i] for i in rng.permutation(len(batches))]


def _distinct_rows(columns: list[NDArray[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int32]] | None:
    """Where each distinct row first stands, and which distinct row each row is; None if most are distinct."""
    rows = len(columns[0])
    if _are_pictures(columns) or rows < 2 or _distinct_share(columns) > _MAX_SHARE:
        return None
    parts = [slice(first, first + _ROWS_AT_A_TIME) for first in range(0, rows, _ROWS_AT_A_TIME)]
    hashes = np.concatenate([_hashes([column[part] for column in columns]) for part in parts])
    _, where, ids = np.unique(hashes, return_index=True, return_inverse=True)
    table = [column[where] for column in columns]
    for part in parts:  # hashes may collide: rows decide
        if any(not np.array_equal(column[part], rows[ids[part]]) for column, rows in zip(columns, table, strict=True)):
            return None
    return where, ids.astype(np.int32)


def _names_of(columns: list[NDArray[Any]]) -> NDArray[np.int32] | None:
    """(rows,) the number of each row's name: what is left of it without the parts that keep rows from repeating."""
    parts: list[NDArray[Any]] = []
    for column in columns:  # each number of a vector may be a clock
        parts += list(column.T) if column.ndim == 2 and column.dtype.kind == "f" else [column]
    if _are_pictures(columns) or len(parts) > _MOST_PARTS:
        return None
    while _distinct_share(parts) > _MAX_SHARE:
        parts = min((parts[:i] + parts[i + 1 :] for i in range(len(parts))), key=_distinct_share)
    _, names = np.unique(_hashes(parts), return_inverse=True)
    return names.astype(np.int32)


def example_rows(data: "Trajectories", nest: Any) -> Any:
    """Rows from all over the data, of its observations or actions."""
    each = sum(array.nbytes for array in arrays_of(nest)) // max(data.steps, 1)
    count = min(_EXAMPLES, _EXAMPLE_BYTES // max(each, 1) + 1)
    rows = np.unique(np.linspace(0, data.steps - 1, count).astype(np.int64))
    return map_arrays(lambda array: np.asarray(array[rows]), nest)


def steps_rarely_repeat(data: "Trajectories") -> bool:
    """Whether most steps are distinct although they are small: observations hold a clock, a position, noise."""
    columns = [*arrays_of(data.observations), *arrays_of(data.actions)]
    return not _are_pictures(columns) and _distinct_share(columns) > _MAX_SHARE


def _are_pictures(columns: list[NDArray[Any]]) -> bool:
    return sum(int(np.prod(column.shape[1:])) * column.dtype.itemsize for column in columns) > _MAX_ROW_BYTES


def _distinct_share(columns: list[NDArray[Any]]) -> float:
    """The share of rows that are distinct, in a sample; 0 where it is small, and they are few."""
    rows = len(columns[0])
    sample = np.linspace(0, rows - 1, min(rows, _SAMPLE)).astype(np.int64)
    distinct = len(np.unique(_hashes([column[sample] for column in columns])))
    return distinct / len(sample) if distinct > _FEW_ROWS else 0.0


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
