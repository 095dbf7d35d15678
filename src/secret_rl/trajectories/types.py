"""What happened: episodes packed end to end in flat arrays."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Self, overload
from urllib.parse import unquote

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from secret_rl.checks import printable
from secret_rl.display import facts_html
from secret_rl.files import crc32_of
from secret_rl.trajectories.nested import Array, Nest, gather, leaf_spaces, map_arrays, named_arrays, row_count
from secret_rl.trajectories.spaces import check_rewards, check_trajectories, infer

_PER_STEP = ("observations", "actions", "rewards", "terminated", "truncated", "states", "annotations")
_PER_EPISODE = ("final_observations", "final_states", "episode_annotations")


@dataclass(frozen=True, eq=False)
class Episode:
    """One episode of ``T`` steps: views into the arrays of ``Trajectories``."""

    observations: Nest
    """T rows, each seen before the action of the same row."""
    actions: Nest
    rewards: Array
    terminated: bool
    truncated: bool
    final_observation: Any = None
    """Seen after the last action."""
    states: Array | None = None
    final_state: Any = None
    annotations: dict[str, Array] = field(default_factory=dict)
    episode_annotations: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rewards)

    def __repr__(self) -> str:
        ended = "terminated" if self.terminated else "truncated" if self.truncated else "open"
        return f"Episode({len(self):,} steps, return {float(np.sum(self.rewards)):g}, {ended})"


@dataclass(frozen=True, eq=False, repr=False)
class Trajectories:
    """Episodes packed end to end: step ``t`` of episode ``e`` is row ``offsets[e] + t`` of every flat array.

    Made by ``collect``, ``Trajectories.from_episodes``, a ``Recorder``, or read from Minari data sets and
    replay buffers; checked when made. ``len(data)`` is the number of episodes, ``data[3]`` an ``Episode``,
    ``data[10:20]`` and ``data[mask]`` are ``Trajectories``. Slices are views; other selections copy.
    """

    observations: Nest
    """(steps, ...) what the policy saw before each action; a dict or tuple of arrays for such spaces."""
    actions: Nest
    """(steps, ...)"""
    rewards: Array
    """(steps,)"""
    terminated: Array
    """(steps,) set on the last step of an episode that reached a terminal state."""
    truncated: Array
    """(steps,) set on the last step of an episode that was cut short, by a time limit for one."""
    offsets: Array
    """(episodes + 1,) where each episode begins."""
    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]
    final_observations: Nest | None = None
    """(episodes, ...) what was seen after the last action."""
    states: Array | None = None
    """(steps, ...) the environment's own state before each action: ``info["state"]``."""
    final_states: Array | None = None
    """(episodes, ...) the state after the last action."""
    annotations: dict[str, Array] = field(default_factory=dict)
    """(steps, ...) anything known of each step, such as ground truth for credit."""
    episode_annotations: dict[str, Array] = field(default_factory=dict)
    """(episodes, ...) anything known of each episode, such as the seed it was reset with."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    """Where the data came from, as JSON values: environment, options, policy, seed, episodes drawn."""
    trusted: InitVar[bool] = False
    """Skip the checks: for arrays that come from checked trajectories."""

    def __post_init__(self, trusted: bool) -> None:
        if not trusted:
            check_trajectories(self)

    @classmethod
    def from_episodes(
        cls,
        episodes: Sequence[Episode | Mapping[str, Any]],
        *,
        observation_space: gym.Space[Any] | None = None,
        action_space: gym.Space[Any] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> "Trajectories":
        """Pack a list of episodes given as plain arrays.

        Each is a mapping with ``observations`` (T or T + 1 rows), ``actions`` and ``rewards`` (T), and if known
        ``terminated`` and ``truncated`` (a bool, or T of them), ``states`` (T or T + 1 rows), ``annotations``
        (a mapping of T rows each) and ``episode_annotations``. Spaces that are not given are inferred.
        """
        if not len(episodes):
            raise ValueError("no episodes: give at least one")
        given = [vars(episode) if isinstance(episode, Episode) else episode for episode in episodes]
        parts = [_episode_columns(number, episode) for number, episode in enumerate(given)]
        columns = _join_columns("episode", parts)
        observation_space, action_space = (
            space or infer(gather(_arrays(given[0][name]), name, columns))
            for name, space in (("observations", observation_space), ("actions", action_space))
        )
        offsets = _offsets_of([len(part["rewards"]) for part in parts])
        return cls.from_columns(columns, offsets, observation_space, action_space, meta or {})

    @classmethod
    def load(cls, path: str | Path, *, verify: bool | None = None) -> "Trajectories":
        """Open saved trajectories, memory-mapped: the time does not depend on their size.

        Of a folder of shards, those that are complete are opened as one; see ``refreshed``. Their pictures stay on
        disk, as ``stored.StoredRows``, until they are asked for. ``verify`` compares every byte with the stored
        checksums; by default only small stores are verified. Names, sizes and offsets are always checked.
        """
        from secret_rl.trajectories.store import load

        return load(path, verify=verify)

    def save(self, path: str | Path, *, overwrite: bool = False, compress: bool = False) -> Path:
        """Write a folder of ``.npy`` files and a JSON header, all or nothing.

        A folder of such folders is read as one store, of shards. ``compress`` pictures, without loss.
        """
        from secret_rl.trajectories.store import save

        return save(self, path, overwrite=overwrite, compress=compress)

    def refreshed(self) -> "Trajectories":
        """A store of shards with those that were added since it was opened, after those that were there."""
        from secret_rl.trajectories.store import load_shards, shard_folders

        if not self.shards:
            raise ValueError("these trajectories were not loaded from a folder of shards: nothing is added to them")
        added = [shard for shard in shard_folders(self.shards[0].parent) if shard not in self.shards]
        return load_shards([*self.shards, *added]) if added else self

    @cached_property
    def shards(self) -> tuple[Path, ...]:
        """The shards that it was loaded from; none of a store of its own, in memory, or of a selection."""
        return ()

    @classmethod
    def concatenate(cls, parts: Sequence["Trajectories"]) -> "Trajectories":
        """The episodes of all parts in order."""
        if not parts:
            raise ValueError("nothing to concatenate: give at least one Trajectories")
        first = parts[0]
        for number, part in enumerate(parts):
            for kind in ("observation_space", "action_space"):
                mine, theirs = getattr(part, kind), getattr(first, kind)
                if mine != theirs:
                    raise ValueError(f"part {number} has {kind} {mine}, part 0 has {theirs}")
        columns = _join_columns("part", [part.columns() for part in parts])
        offsets = _offsets_of(np.concatenate([part.lengths for part in parts]))
        same_origin = all(part.meta == first.meta for part in parts)
        meta = first.meta if same_origin else {"parts": [dict(part.meta) for part in parts]}
        return cls.from_columns(columns, offsets, first.observation_space, first.action_space, meta, trusted=True)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[Episode]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        env = f" of {printable(self.meta['env_id'])}" if "env_id" in self.meta else ""
        return f"Trajectories({len(self):,} episodes, {self.steps:,} steps{env})"

    def _repr_html_(self) -> str:
        return facts_html(str(self.summary()), repr(self))

    @overload
    def __getitem__(self, key: int) -> Episode: ...
    @overload
    def __getitem__(self, key: slice | Sequence[int] | Sequence[bool] | Array) -> "Trajectories": ...
    def __getitem__(self, key: Any) -> Any:
        """An episode, or the trajectories of a slice, a boolean mask or a list of episode numbers."""
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            return self._slice(start, max(start, stop)) if step == 1 else self._take(np.arange(start, stop, step))
        if np.ndim(key) == 0:
            return self._episode(int(key))
        chosen = np.asarray(key)
        if chosen.dtype == np.bool_:
            if chosen.shape != (len(self),):
                raise IndexError(f"a mask of shape {chosen.shape} for {len(self)} episodes")
            return self._take(np.flatnonzero(chosen))
        if chosen.size and not -len(self) <= chosen.min() <= chosen.max() < len(self):
            raise IndexError(f"episodes {chosen.min()} to {chosen.max()} asked of {len(self)}")
        return self._take(chosen.astype(np.int64) % max(len(self), 1))

    @property
    def steps(self) -> int:
        """The number of steps in all episodes."""
        return int(self.offsets[-1] - self.offsets[0])

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(episodes,) steps of each episode."""
        return np.diff(self.offsets)

    @property
    def returns(self) -> NDArray[np.float64]:
        """(episodes,) undiscounted sums of rewards."""
        return np.add.reduceat(self.rewards, self.offsets[:-1], dtype=np.float64)

    @property
    def successful(self) -> NDArray[np.bool_]:
        """(episodes,) whether each holds a positive reward."""
        return np.logical_or.reduceat(np.asarray(self.rewards) > 0, self.offsets[:-1])

    def split_indices(self, fraction: float = 0.1, *, seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The numbers of the episodes in two disjoint sets, the second with ``fraction`` of them, chosen at random."""
        if not 0 < fraction < 1:
            raise ValueError(f"fraction must lie between 0 and 1, got {fraction}")
        if len(self) < 2:
            raise ValueError(f"{len(self)} episodes cannot be split: at least 2 are needed")
        size = min(max(round(fraction * len(self)), 1), len(self) - 1)
        order = np.random.default_rng(seed).permutation(len(self))
        return np.sort(order[size:]), np.sort(order[:size])

    def batches(
        self, size: int, *, seed: int | Sequence[int] | None = None, start: int = 0, buffer: int = 64 << 20
    ) -> Iterator["Trajectories"]:
        """All episodes once, ``size`` at a time, read ahead by another thread in bounded memory.

        With a seed, in shuffled order: blocks of neighbouring episodes (1 MB, or one long episode) are shuffled, then
        the episodes of all blocks that fill the buffer. The seed decides the order, and ``start=n`` goes on after the
        first ``n`` batches.

        Args:
            size: Episodes of a batch.
            seed: Of the order, such as ``[seed, epoch]``; None: as they are stored.
            start: Number of the first batch.
            buffer: Bytes of episodes that are shuffled together; two of these are in memory.
        """
        from secret_rl.trajectories.streaming import batches

        return batches(self, size, seed, start, buffer)

    def summary(self) -> "Summary":
        """Episodes, lengths, returns, rewards by sign, share successful; reads the rewards and flags only."""
        lengths, returns = (numbers if len(self) else np.zeros(1) for numbers in (self.lengths, self.returns))
        successful, drawn = int(np.count_nonzero(self.successful)), self.meta.get("drawn")
        return Summary(
            episodes=len(self),
            steps=self.steps,
            mean_length=float(lengths.mean()),
            max_length=int(lengths.max()),
            mean_return=float(returns.mean()),
            min_return=float(returns.min()),
            max_return=float(returns.max()),
            positive_rewards=int(np.count_nonzero(self.rewards > 0)),
            negative_rewards=int(np.count_nonzero(self.rewards < 0)),
            successful_episodes=successful,
            success_share=successful / max(len(self), 1),
            terminated_episodes=int(np.count_nonzero(self.terminated)),
            truncated_episodes=int(np.count_nonzero(self.truncated)),
            drawn=drawn if isinstance(drawn, int) else None,
        )

    def equals(self, other: "Trajectories") -> bool:
        """Whether every array (dtype included), space and offset is the same."""
        mine, theirs = self.columns(), other.columns()
        return (
            self.observation_space == other.observation_space
            and self.action_space == other.action_space
            and np.array_equal(self.lengths, other.lengths)
            and mine.keys() == theirs.keys()
            and all(mine[n].dtype == theirs[n].dtype and np.array_equal(mine[n], theirs[n]) for n in mine)
        )

    def with_meta(self, **entries: Any) -> Self:
        """The same episodes with entries of ``meta`` added or replaced."""
        return replace(self, meta={**self.meta, **entries}, trusted=True)

    def with_rewards(self, rewards: Array | Callable[[Array], Array]) -> Self:
        """The same episodes with other rewards; all other arrays are shared.

        Args:
            rewards: (steps,) the new ones, or a function that makes them of the present ones, such as ``np.sign``.
        """
        new = np.array(rewards(np.array(self.rewards)) if callable(rewards) else rewards)
        if new.shape != (self.steps,):
            raise ValueError(f"rewards of shape {new.shape}, expected ({self.steps},): one number per step")
        check_rewards(new, self.offsets)
        return replace(self, rewards=new, trusted=True)

    @cached_property
    def fingerprint(self) -> str:
        """A digest of every array, the same in memory and on disk; of a whole store it is known without reading it."""
        columns = {**self.columns(), "offsets": self.offsets}
        return fingerprint_of({n: (rows.dtype.str, list(rows.shape), crc32_of(rows)) for n, rows in columns.items()})

    def columns(self) -> dict[str, Array]:
        """Every array by name: ``observations/image``, ``rewards``, ``episode_annotations/seed``, ..."""
        nests = {name: getattr(self, name) for name in (*_PER_STEP, *_PER_EPISODE)}
        return dict(pair for name, nest in nests.items() if nest is not None for pair in named_arrays(name, nest))

    @classmethod
    def from_columns(
        cls,
        columns: Mapping[str, Array],
        offsets: Array,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        meta: Mapping[str, Any],
        trusted: bool = False,
    ) -> "Trajectories":
        """The inverse of ``columns``."""

        def rows(space: gym.Space[Any], name: str) -> Nest:
            missing = [path for path, _ in named_arrays(name, leaf_spaces(space)) if path not in columns]
            if missing:
                raise ValueError(f"{', '.join(missing)} missing for {space}: there are {sorted(columns)}")
            return gather(leaf_spaces(space), name, columns)

        fields: dict[str, Any] = {name: array for name, array in columns.items() if "/" not in name}
        fields["observations"] = rows(observation_space, "observations")
        fields["actions"] = rows(action_space, "actions")
        if any(name.startswith("final_observations") for name in columns):
            fields["final_observations"] = rows(observation_space, "final_observations")
        for kind in ("annotations", "episode_annotations"):
            named = {name: array for name, array in columns.items() if name.startswith(f"{kind}/")}
            fields[kind] = {unquote(name.removeprefix(f"{kind}/")): array for name, array in named.items()}
        fields |= {"observation_space": observation_space, "action_space": action_space}
        return cls(**fields, offsets=offsets, meta=meta, trusted=trusted)

    def _slice(self, start: int, stop: int) -> Self:
        offsets = self.offsets[start : stop + 1]
        steps = slice(int(offsets[0]), int(offsets[-1]))
        return self._select(offsets - offsets[0], lambda rows: rows[steps], lambda rows: rows[start:stop])

    def _take(self, chosen: NDArray[np.int64]) -> Self:
        starts = self.offsets[chosen]
        lengths = self.offsets[chosen + 1] - starts
        offsets = _offsets_of(lengths)
        steps = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
        # Offsets are checked, so nothing is clipped: this mode is many times faster.
        return self._select(offsets, lambda rows: rows.take(steps, 0, mode="clip"), lambda rows: rows.take(chosen, 0))

    def _select(self, offsets: Array, steps: Callable[[Array], Array], episodes: Callable[[Array], Array]) -> Self:
        """The episodes of ``offsets``, whose rows these functions pick."""
        pick = dict.fromkeys(_PER_STEP, steps) | dict.fromkeys(_PER_EPISODE, episodes)
        nests = {name: getattr(self, name) for name in pick}
        fields = {name: map_arrays(pick[name], nest) for name, nest in nests.items() if nest is not None}
        return replace(self, **fields, offsets=offsets, trusted=True)

    def _episode(self, i: int) -> Episode:
        if not -len(self) <= i < len(self):
            raise IndexError(f"episode {i} of {len(self)}")
        one = self._slice(i % len(self), i % len(self) + 1)
        columns = ("observations", "actions", "rewards", "states", "annotations")
        rows = {name: map_arrays(np.asarray, nest) for name in columns if (nest := getattr(one, name)) is not None}
        finals = (one.final_observations, one.final_states)
        observation, state = (None if nest is None else map_arrays(lambda rows: rows[0], nest) for nest in finals)
        return Episode(
            **rows,
            terminated=bool(one.terminated[-1]),
            truncated=bool(one.truncated[-1]),
            final_observation=observation,
            final_state=state,
            episode_annotations={name: rows[0] for name, rows in one.episode_annotations.items()},
        )


def _join_columns(kind: str, parts: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """The columns of several parts (episodes, trajectories) end to end; all must hold the same fields."""
    first = parts[0]
    for number, part in enumerate(parts):
        if part.keys() != first.keys():
            fields = sorted(part.keys() ^ first.keys())
            raise ValueError(f"{kind} {number} and {kind} 0 hold different fields: {fields}")
        for name, rows in part.items():
            if rows.shape[1:] != first[name].shape[1:]:
                shapes = f"{first[name].shape[1:]} in {kind} 0 and {rows.shape[1:]} in {number}"
                raise ValueError(f"{name} has rows of shape {shapes}")
    return {name: np.concatenate([part[name] for part in parts]) for name in first}


def _episode_columns(number: int, episode: Mapping[str, Any]) -> dict[str, Array]:
    """The arrays of one episode by column name."""
    for name in ("observations", "actions", "rewards"):
        if episode.get(name) is None:
            raise ValueError(f"episode {number} has no {name}")
    rewards = np.asarray(episode["rewards"])
    length = len(rewards)
    steps: dict[str, Any] = {"actions": _arrays(episode["actions"])}
    steps["rewards"] = rewards if rewards.dtype.kind == "f" else rewards.astype(np.float64)
    steps["annotations"] = {name: np.asarray(rows) for name, rows in (episode.get("annotations") or {}).items()}
    notes = episode.get("episode_annotations") or {}
    finals: dict[str, Any] = {"episode_annotations": {name: np.asarray(note)[None] for name, note in notes.items()}}
    for name, final_name in (("observations", "final_observation"), ("states", "final_state")):
        if episode.get(name) is None:
            continue
        nest, final = _arrays(episode[name]), episode.get(final_name)
        count = row_count(nest)
        if count not in (length, length + 1):
            expected = f"expected {length}, or {length + 1} with the final one"
            raise ValueError(f"{count} {name} but {length} rewards in episode {number}: {expected}")
        if count > length:
            final = map_arrays(lambda rows: rows[-1], nest)
            nest = map_arrays(lambda rows: rows[:-1], nest)
        if final is not None:
            finals[f"{final_name}s"] = map_arrays(lambda rows, last: np.asarray(last, rows.dtype)[None], nest, final)
        steps[name] = nest
    for name in ("terminated", "truncated"):
        flags = np.asarray(episode.get(name, False), np.bool_)
        steps[name] = (np.arange(length) == length - 1) & flags if flags.ndim == 0 else flags
    named = dict(pair for name, nest in steps.items() for pair in named_arrays(name, nest))
    for name, rows in named.items():
        if len(rows) != length:
            raise ValueError(f"{len(rows)} {name} but {length} rewards in episode {number}")
    return named | dict(pair for name, nest in finals.items() for pair in named_arrays(name, nest))


def _arrays(value: Any) -> Nest:
    if isinstance(value, Mapping):
        return {key: _arrays(part) for key, part in value.items()}
    if isinstance(value, tuple) and value and isinstance(value[0], np.ndarray | Mapping | tuple):
        return tuple(_arrays(part) for part in value)
    return np.asarray(value)


def fingerprint_of(columns: Mapping[str, tuple[str, list[int], int]]) -> str:
    """A digest of columns given as (dtype, shape, CRC-32 of their bytes)."""
    return sha256(json.dumps(columns, sort_keys=True).encode()).hexdigest()[:32]


def _offsets_of(lengths: Any) -> NDArray[np.int64]:
    """(episodes + 1,) where each episode begins, of (episodes,) lengths."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


@dataclass(frozen=True, repr=False)
class Summary:
    """Numbers that show whether data can teach credit: how long, how rewarded, how often successful."""

    episodes: int
    steps: int
    mean_length: float
    max_length: int
    mean_return: float
    min_return: float
    max_return: float
    positive_rewards: int
    negative_rewards: int
    successful_episodes: int
    success_share: float
    terminated_episodes: int
    truncated_episodes: int
    drawn: int | None
    """Episodes rolled out to get these, where that was recorded."""

    def to_json(self) -> dict[str, Any]:
        """Every number by name."""
        return dict(vars(self))

    def __str__(self) -> str:
        ended = f"{self.terminated_episodes:,} terminated, {self.truncated_episodes:,} truncated"
        lines = [
            f"episodes    {self.episodes:,} ({ended})",
            f"steps       {self.steps:,} (mean {self.mean_length:.1f}, longest {self.max_length:,} per episode)",
            f"returns     mean {self.mean_return:.3f}, from {self.min_return:g} to {self.max_return:g}",
            f"rewards     {self.positive_rewards:,} positive, {self.negative_rewards:,} negative",
            f"successful  {self.successful_episodes:,} episodes hold a positive reward ({self.success_share:.2%})",
        ]
        if self.drawn is not None and self.drawn != self.episodes:
            lines.append(f"drawn       {self.drawn:,} episodes were rolled out to keep these")
        return "\n".join(lines)

    def __repr__(self) -> str:
        share = f"{self.success_share:.1%} successful"
        return f"Summary({self.episodes:,} episodes, {self.steps:,} steps, mean return {self.mean_return:.3f}, {share})"

    def _repr_html_(self) -> str:
        return facts_html(str(self))
