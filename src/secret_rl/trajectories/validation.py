"""What must hold of trajectories, with errors that name the episode, the field and the fix."""

from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from secret_rl.trajectories.nested import Array, subpath
from secret_rl.trajectories.spaces import problem_with_rows

_ROWS_AT_A_TIME = 1 << 16  # bounds the memory of the checks on mapped data


def check_columns(
    steps: Mapping[str, Array],
    episodes: Mapping[str, Array],
    offsets: Array,
    observation_space: gym.Space[Any],
    action_space: gym.Space[Any],
    content: bool = True,
) -> None:
    """Raise ValueError unless the columns are well-formed trajectories.

    Without ``content``, only what can be seen without reading the columns is checked: names, shapes, dtypes, offsets.
    """
    check_offsets(offsets, len(steps["rewards"]) if "rewards" in steps else 0)
    rows, count = int(offsets[-1]), len(offsets) - 1
    for name, array in steps.items():
        if len(array) != rows:
            raise ValueError(f"{len(array)} rows of {name} but {rows} steps in {count} episodes")
    for name, array in episodes.items():
        if len(array) != count:
            raise ValueError(f"{len(array)} rows of {name} but {count} episodes")
    if ("final_states" in episodes) and "states" not in steps:
        raise ValueError("final_states given without states")
    if not content:
        steps, episodes = ({name: array[:0] for name, array in columns.items()} for columns in (steps, episodes))
    missing = [name for name in ("rewards", "terminated", "truncated") if name not in steps]
    if missing:
        raise ValueError(f"{', '.join(missing)} missing: there are {sorted(steps)}")
    check_rewards(steps["rewards"], offsets)
    for name in ("terminated", "truncated"):
        _check_flags(name, steps[name], offsets)
    for path, space in _leaves("observations", observation_space):
        _check_elements(path, steps, space, offsets)
        final = "final_" + path
        if final in episodes:
            _check_elements(final, episodes, space, None)
    for path, space in _leaves("actions", action_space):
        _check_elements(path, steps, space, offsets)


def where(row: int, offsets: Array | None) -> str:
    """A row named as users think of it."""
    if offsets is None:
        return f"episode {row}"
    episode = int(np.searchsorted(offsets, row, side="right")) - 1
    return f"episode {episode}, step {row - int(offsets[episode])}"


def check_offsets(offsets: Array, steps: int) -> None:
    """Raise ValueError unless offsets begin with 0, increase, and end with the number of steps."""
    if offsets.ndim != 1 or not len(offsets) or offsets.dtype.kind not in "iu" or offsets[0] != 0:
        raise ValueError("offsets must be a 1-D integer array that begins with 0 and ends with the number of steps")
    if offsets[-1] != steps:
        raise ValueError(f"offsets end with {offsets[-1]}, expected {steps}, the number of steps")
    lengths = np.diff(offsets)
    if len(lengths) and lengths.min() < 1:
        raise ValueError(
            f"episode {int(np.argmax(lengths < 1))} is empty: every episode needs at least one step; leave it out"
        )


def check_rewards(rewards: Array, offsets: Array) -> None:
    """Raise ValueError unless rewards are one finite number per step."""
    if rewards.ndim != 1 or rewards.dtype.kind not in "fiu":
        raise ValueError(f"rewards must be one number per step, got {rewards.dtype} of shape {rewards.shape}")
    for first, part in _parts(rewards):
        bad = np.flatnonzero(~np.isfinite(part))
        if len(bad):
            row = first + int(bad[0])
            raise ValueError(
                f"rewards[{where(row, offsets)}] is {rewards[row]}: expected a finite number; "
                "drop the episode or repair the reward"
            )


def _check_flags(name: str, flags: Array, offsets: Array) -> None:
    if flags.dtype != np.bool_ or flags.ndim != 1:
        raise ValueError(f"{name} must be one bool per step, got {flags.dtype} of shape {flags.shape}")
    set_rows = np.flatnonzero(flags)
    if not len(set_rows):
        return
    early = set_rows[~np.isin(set_rows, offsets[1:] - 1)]
    if len(early):
        raise ValueError(
            f"{name}[{where(int(early[0]), offsets)}] is set before the last step: split the episode there"
        )


def _check_elements(path: str, columns: Mapping[str, Array], space: gym.Space[Any], offsets: Array | None) -> None:
    if path not in columns:
        raise ValueError(f"{path} is missing: {space} asks for it")
    for first, part in _parts(columns[path]):
        problem = problem_with_rows(space, part)
        if problem is not None:
            row, what = problem
            raise ValueError(f"{path}[{where(first + row, offsets)}] {what}")


def _parts(array: Array) -> Iterator[tuple[int, Array]]:
    for first in range(0, max(len(array), 1), _ROWS_AT_A_TIME):
        yield first, array[first : first + _ROWS_AT_A_TIME]


def _leaves(path: str, space: gym.Space[Any]) -> Iterator[tuple[str, gym.Space[Any]]]:
    if isinstance(space, gym.spaces.Dict):
        for key, part in space.spaces.items():
            yield from _leaves(subpath(path, key), part)
    elif isinstance(space, gym.spaces.Tuple):
        for i, part in enumerate(space.spaces):
            yield from _leaves(subpath(path, i), part)
    else:
        yield path, space
