"""Episodes played again, from the seed they were reset with and their actions, to see what they looked like."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from secret_rl.trajectories import Episode, Trajectories

EnvLike = str | Callable[[], gym.Env[Any, Any]]


class NoReplay(Exception):
    """Why an episode cannot be seen again."""


def make_env(env: EnvLike | None, meta: Mapping[str, Any]) -> gym.Env[Any, Any]:
    """The environment of some trajectories: as given, or by the id they name."""
    name = meta.get("env_id") if env is None else env
    if name is None:
        raise NoReplay("the data does not name its environment: give one with env")
    if not isinstance(name, str):
        return name()
    if env is None and ":" in name:  # it would import a module that the data names
        raise NoReplay(f"the data names {name!r}, which would import a module: give the id yourself with env")
    options = meta.get("env_options") or {}
    try:
        return gym.make(name, **{**options, "render_mode": "rgb_array"})
    # An environment may raise anything; the page does without its pictures.
    except Exception as refused:
        raise NoReplay(f"{name} cannot be made ({type(refused).__name__}: {refused})") from refused


def replay(env: gym.Env[Any, Any], data: Trajectories, episode: Episode) -> Iterator[int]:
    """Plays an episode again: yields 0 after the reset, then the number of steps taken after each.

    Raises ``NoReplay`` as soon as it goes another way than the one stored.
    """
    if "seed" not in episode.episode_annotations:
        raise NoReplay("the data does not hold the seeds of its episodes")
    same_view = env.observation_space == data.observation_space
    try:
        observation, _ = env.reset(seed=int(episode.episode_annotations["seed"]))
        yield 0
        for t in range(len(episode)):
            if same_view and not _equal(observation, episode.observations, t):
                raise NoReplay(f"the environment shows something else at step {t + 1} than was stored")
            action = _row(episode.actions, t)
            observation, reward, terminated, truncated, _ = env.step(action)
            if not np.isclose(float(reward), float(episode.rewards[t]), rtol=1e-5, atol=1e-6):
                raise NoReplay(f"the environment pays {reward} at step {t + 1}, stored is {episode.rewards[t]}")
            if (terminated or truncated) and t + 1 < len(episode):
                raise NoReplay(f"the environment ends at step {t + 1}, stored are {len(episode)}")
            yield t + 1
    except (NoReplay, GeneratorExit):
        raise
    except Exception as failed:  # an environment may raise anything
        raise NoReplay(f"the environment failed ({type(failed).__name__}: {failed})") from failed


def action_names(env: gym.Env[Any, Any] | None, space: gym.Space[Any]) -> list[str] | None:
    """What the environment calls its discrete actions, if it says so."""
    if not isinstance(space, gym.spaces.Discrete) or env is None:
        return None
    bare = env.unwrapped
    names: Any = getattr(bare, "ACTIONS", None)
    if names is None and callable(getattr(bare, "get_action_meanings", None)):
        names = bare.get_action_meanings()  # type: ignore[attr-defined]
    if names is None and hasattr(getattr(bare, "actions", None), "__members__"):
        names = list(bare.actions.__members__)  # type: ignore[attr-defined]
    names = [str(name) for name in names] if isinstance(names, list | tuple) else []
    return names if len(names) >= space.n else None


def _row(nest: Any, t: int) -> Any:
    if isinstance(nest, dict):
        return {key: _row(part, t) for key, part in nest.items()}
    if isinstance(nest, tuple):
        return tuple(_row(part, t) for part in nest)
    return nest[t]


def _equal(observation: Any, rows: Any, t: int) -> bool:
    if isinstance(rows, dict):
        return all(_equal(observation[key], part, t) for key, part in rows.items())
    if isinstance(rows, tuple):
        return all(_equal(observation[i], part, t) for i, part in enumerate(rows))
    return bool(np.array_equal(observation, rows[t]))
