"""Replay and rollout buffers of Stable-Baselines3, read as episodes."""

import warnings
from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.buffers import ReplayBuffer, RolloutBuffer

from secret_rl.trajectories.nested import map_arrays, map_leaves, rows_differ
from secret_rl.trajectories.types import Trajectories

_COMPARED_ROWS = 256  # of observations at a time: bounds memory


def from_replay_buffer(buffer: ReplayBuffer) -> Trajectories:
    """The episodes in a replay buffer, oldest first, env by env.

    Time-outs become ``truncated`` if the buffer marks them (``handle_timeout_termination``, the default). The newest
    episode of each env may be unfinished: neither terminated nor truncated. Once the buffer has wrapped around, the
    oldest steps of each env have lost the beginning of their episode and are left out. A reset in the middle of an
    episode, as a second call of ``learn`` makes, leaves an unfinished episode, too.
    """
    if buffer.size() == 0:
        raise ValueError("the replay buffer is empty: train or collect first")
    parts = list(segments(buffer))
    episodes = [part for part in parts if not part.headless]
    headless = sum(len(part.rows) for part in parts if part.headless)
    cut_off = sum(part.cut_off for part in episodes)
    if headless:
        warnings.warn(f"{headless} steps at the old end of the buffer lost their beginning: left out", stacklevel=2)
    if cut_off:
        reason = "were cut off by a reset of the environment, as by a second call of learn(): kept as unfinished"
        warnings.warn(f"{cut_off} episodes {reason}", stacklevel=2)
    if not episodes:
        raise ValueError("the replay buffer holds no episode from its beginning: use a larger buffer")
    return as_episodes(buffer, episodes)


class Segment(NamedTuple):
    """Transitions of one env in a replay buffer that follow each other within an episode."""

    env: int
    rows: NDArray[np.int64]
    headless: bool
    """Whether the beginning of the episode has been overwritten."""
    cut_off: bool
    """Whether the env was reset after it, though the episode had not ended."""


def segments(buffer: Any) -> Iterator[Segment]:
    """What a replay buffer holds of each episode, oldest first, env by env.

    An episode also ends where a step led elsewhere than the next one starts: the environment was reset.
    """
    if buffer.optimize_memory_usage:
        raise ValueError("the buffer does not keep what each step led to: make it with optimize_memory_usage=False")
    order = (np.arange(buffer.size()) + (buffer.pos if buffer.full else 0)) % buffer.buffer_size
    ended = buffer.dones[order] > 0
    cut_off = np.zeros_like(ended)
    for first in range(0, len(order) - 1, _COMPARED_ROWS):
        rows = order[first : first + _COMPARED_ROWS + 1]
        led_to, starts = (
            map_arrays(lambda array, part=part: array[part].reshape(-1, *array.shape[2:]), nest)
            for nest, part in ((buffer.next_observations, rows[:-1]), (buffer.observations, rows[1:]))
        )
        cut_off[first : first + len(rows) - 1] = rows_differ(led_to, starts).reshape(-1, buffer.n_envs)
    cut_off &= ~ended
    for env in range(buffer.n_envs):
        ends = np.flatnonzero(ended[:, env] | cut_off[:, env]) + 1
        for first, last in pairwise(sorted({0, *ends.tolist(), len(order)})):
            yield Segment(env, order[first:last], first == 0 and buffer.full, bool(cut_off[last - 1, env]))


def as_episodes(buffer: Any, parts: Sequence[Segment]) -> Trajectories:
    """Segments of a replay buffer as trajectories, in this order, those without their beginning included."""
    episodes = []
    for env, rows, *_ in parts:
        last = rows[-1:]
        timeout = bool(buffer.timeouts[last, env])
        observations = map_arrays(
            lambda seen, led_to: np.concatenate([seen[rows, env], led_to[last, env]]),  # noqa: B023
            buffer.observations,
            buffer.next_observations,
        )
        episodes.append(
            {
                "observations": unflattened(buffer.observation_space, observations),
                "actions": unflattened(buffer.action_space, buffer.actions[rows, env]),
                "rewards": buffer.rewards[rows, env],
                "terminated": bool(buffer.dones[last, env]) and not timeout,
                "truncated": timeout,
            }
        )
    return _packed(buffer, episodes, "replay buffer")


def from_rollout_buffer(buffer: RolloutBuffer) -> Trajectories:
    """The episodes in a rollout buffer, env by env.

    Such a buffer marks no time-outs, so every episode that ends in it counts as terminated, and holds no final
    observations. It starts wherever the last rollout stopped: steps before the first episode start of an env are left
    out. Where an episode timed out, Stable-Baselines3 has added the value of its last state to the last reward.
    """
    if not buffer.full:
        raise ValueError(f"the rollout buffer holds {buffer.pos} of {buffer.buffer_size} steps: fill it first")

    def by_env(array: Any) -> Any:
        """(steps, envs, ...), also after ``get`` has flattened it."""
        if not buffer.generator_ready:
            return array
        return array.reshape(buffer.n_envs, buffer.buffer_size, *array.shape[1:]).swapaxes(0, 1)

    observations, actions = map_arrays(by_env, buffer.observations), by_env(buffer.actions)
    episodes = []
    for env in range(buffer.n_envs):
        starts = np.flatnonzero(buffer.episode_starts[:, env]).tolist()  # `get` leaves these, and rewards, as they were
        for first, last in pairwise([*starts, buffer.buffer_size]):
            rows = slice(first, last), env
            episode = {
                "observations": unflattened(buffer.observation_space, map_arrays(itemgetter(rows), observations)),
                "actions": unflattened(buffer.action_space, actions[rows]),
                "rewards": buffer.rewards[rows],
                "terminated": last < buffer.buffer_size,
            }
            episodes.append(episode)
    if not episodes:
        raise ValueError("no episode starts in the rollout buffer: use longer rollouts")
    return _packed(buffer, episodes, "rollout buffer")


def _packed(buffer: Any, episodes: list[dict[str, Any]], source: str) -> Trajectories:
    spaces = {"observation_space": buffer.observation_space, "action_space": buffer.action_space}
    return Trajectories.from_episodes(episodes, **spaces, meta={"source": source})


def unflattened(space: Any, rows: Any) -> Any:
    """Rows in the shape and type of their space: buffers keep numbers as (1,) and actions flat."""
    return map_leaves(
        lambda leaf, array: array.reshape(len(array), *(leaf.shape or ())).astype(leaf.dtype), space, rows
    )
