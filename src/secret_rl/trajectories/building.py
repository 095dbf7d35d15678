"""Episodes put together step by step, and packed end to end."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import create_empty_array

from secret_rl.trajectories import spaces
from secret_rl.trajectories.nested import Array, Nest, map_arrays, map_paths, named_arrays, row_count, stack
from secret_rl.trajectories.types import Columns, Episode, Trajectories, join_columns, offsets_of


class EpisodeBuilder:
    """One episode under way: receives the reset, then each step."""

    def __init__(
        self, observation: Any, info: Mapping[str, Any], annotations: Iterable[str] = (), seed: int | None = None
    ) -> None:
        self._seed = seed
        self._observations = [_owned(observation)]
        self._states = [_owned(info["state"])] if "state" in info else None
        self._actions: list[Any] = []
        self._rewards: list[float] = []
        self._annotations: dict[str, list[Any]] = {name: [] for name in annotations}
        self._terminated = self._truncated = False

    def __len__(self) -> int:
        return len(self._rewards)

    @property
    def over(self) -> bool:
        """Whether the last step ended the episode."""
        return self._terminated or self._truncated

    def step(
        self, action: Any, observation: Any, reward: float, terminated: bool, truncated: bool, info: Mapping[str, Any]
    ) -> None:
        """Add what ``env.step(action)`` gave."""
        self._actions.append(_owned(action))
        self._observations.append(_owned(observation))
        self._rewards.append(float(reward))
        self._terminated, self._truncated = bool(terminated), bool(truncated)
        if self._states is not None:
            if "state" not in info:
                raise ValueError(f'info["state"] was there at reset but not at step {len(self)}')
            self._states.append(_owned(info["state"]))
        for name, values in self._annotations.items():
            if name not in info:
                raise ValueError(f'info["{name}"] is missing at step {len(self)}: there are {sorted(info)}')
            values.append(_owned(info[name]))

    def finish(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> dict[str, Any]:
        """The episode as arrays, in the form that ``Trajectories.from_episodes`` takes."""
        return {
            "observations": stack(observation_space, self._observations),
            "actions": stack(action_space, self._actions),
            "rewards": np.array(self._rewards),
            "terminated": self._terminated,
            "truncated": self._truncated,
            "states": None if self._states is None else np.array(self._states),
            "annotations": {name: np.array(values) for name, values in self._annotations.items()},
            "episode_annotations": {} if self._seed is None else {"seed": np.uint64(self._seed)},
        }


class Recorder(gym.Wrapper[Any, Any, Any, Any]):
    """Keeps every episode that is played through it, whoever plays.

    >>> import gymnasium as gym, secret_rl as srl
    >>> env = srl.Recorder(gym.make("FrozenLake-v1"))
    >>> for seed in range(3):
    ...     observation, info = env.reset(seed=seed)
    ...     over = False
    ...     while not over:
    ...         observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
    ...         over = terminated or truncated
    >>> len(env.trajectories())
    3
    """

    def __init__(self, env: gym.Env[Any, Any], annotations: Iterable[str] | None = None) -> None:
        super().__init__(env)
        self._annotations = annotation_names(env, annotations)
        self._episodes: list[dict[str, Any]] = []
        self._current: EpisodeBuilder | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; one that was under way is kept as it is, neither terminated nor truncated."""
        self._finish()
        observation, info = super().reset(seed=seed, options=options)
        self._current = EpisodeBuilder(observation, info, self._annotations)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and record."""
        observation, reward, terminated, truncated, info = super().step(action)
        if self._current is not None:
            self._current.step(action, observation, float(reward), terminated, truncated, info)
            if self._current.over:
                self._finish()
        return observation, reward, terminated, truncated, info

    def trajectories(self) -> Trajectories:
        """All episodes so far; the one under way is not among them."""
        return pack(self._episodes, self.observation_space, self.action_space, env_meta(self))

    def _finish(self) -> None:
        if self._current is not None and len(self._current):
            self._episodes.append(self._current.finish(self.observation_space, self.action_space))
        self._current = None


def annotation_names(env: Any, asked: Iterable[str] | None) -> tuple[str, ...]:
    """The info entries to keep: those asked for, or those that the environment declares in its metadata."""
    return tuple(env.metadata.get("annotations", ()) if asked is None else asked)


def env_meta(env: Any) -> dict[str, Any]:
    """The id and options of an environment and the names of its wrappers, where it knows them."""
    spec = getattr(env, "spec", None)
    if spec is None:
        return {}
    meta = {"env_id": spec.id, "env_options": {k: v for k, v in spec.kwargs.items() if k != "render_mode"}}
    wrappers = [wrapper.name for wrapper in getattr(spec, "additional_wrappers", ())]
    return {**meta, "wrappers": wrappers} if wrappers else meta


def pack(
    episodes: Sequence[Episode | Mapping[str, Any]],
    observation_space: gym.Space[Any] | None,
    action_space: gym.Space[Any] | None,
    meta: Mapping[str, Any],
) -> Trajectories:
    """Pack episodes end to end; see ``Trajectories.from_episodes``."""
    if not len(episodes):
        if observation_space is None or action_space is None:
            raise ValueError("no episodes: give at least one, or the spaces of an empty set")
        steps = {"rewards": np.zeros(0), "terminated": np.zeros(0, bool), "truncated": np.zeros(0, bool)}
        for name, space in (("observations", observation_space), ("actions", action_space)):
            steps.update(named_arrays(name, create_empty_array(space, 0)))
        return Trajectories.from_columns(steps, {}, offsets_of([]), observation_space, action_space, meta)
    given = [vars(episode) if isinstance(episode, Episode) else episode for episode in episodes]
    parts = [_episode_columns(number, episode) for number, episode in enumerate(given)]
    steps, finals = join_columns("episode", parts)
    # The space of a field that came without one: the nesting of the first episode, with the joined arrays in it.
    observation_space, action_space = (
        space or spaces.infer(map_paths(lambda path, _: steps[path], name, _arrays(given[0][name])))
        for name, space in (("observations", observation_space), ("actions", action_space))
    )
    offsets = offsets_of([len(part["rewards"]) for part, _ in parts])
    return Trajectories.from_columns(steps, finals, offsets, observation_space, action_space, meta)


def _episode_columns(number: int, episode: Mapping[str, Any]) -> Columns:
    """One episode's arrays by column name: those with a row per step, and the single rows at its end."""
    for name in ("observations", "actions", "rewards"):
        if episode.get(name) is None:
            raise ValueError(f"episode {number} has no {name}")
    rewards = np.asarray(episode["rewards"])
    if rewards.dtype.kind != "f":
        rewards = rewards.astype(np.float64)
    length = len(rewards)
    if length == 0:
        raise ValueError(f"episode {number} is empty: every episode needs at least one step; leave it out")
    steps: dict[str, Array] = {}
    finals: dict[str, Array] = {}
    for name, final_name in (("observations", "final_observation"), ("states", "final_state")):
        if episode.get(name) is None:
            continue
        nest, final = _arrays(episode[name]), episode.get(final_name)
        extra = row_count(nest) - length
        if extra not in (0, 1):
            raise ValueError(
                f"{row_count(nest)} {name} but {length} rewards in episode {number}: expected {length}, "
                f"or {length + 1} with the final one"
            )
        if extra:
            final = map_arrays(lambda rows: rows[-1], nest)
            nest = map_arrays(lambda rows: rows[:-1], nest)
        if final is not None:
            last = map_arrays(lambda rows, last: np.asarray(last, rows.dtype)[None], nest, final)
            finals.update(named_arrays(f"{final_name}s", last))
        steps.update(named_arrays(name, nest))
    steps.update(named_arrays("actions", _arrays(episode["actions"])))
    steps["rewards"] = rewards
    for name in ("terminated", "truncated"):
        flags = np.asarray(episode.get(name, False), np.bool_)
        steps[name] = np.arange(length) == (length - 1 if flags else -1) if flags.ndim == 0 else flags
    for name, values in (episode.get("annotations") or {}).items():
        steps[f"annotations/{name}"] = np.asarray(values)
    for name, value in (episode.get("episode_annotations") or {}).items():
        finals[f"episode_annotations/{name}"] = np.asarray(value)[None]
    for name, array in steps.items():
        if len(array) != length:
            raise ValueError(f"{len(array)} {name} but {length} rewards in episode {number}")
    return steps, finals


def _arrays(value: Any) -> Nest:
    if isinstance(value, Mapping):
        return {key: _arrays(part) for key, part in value.items()}
    if isinstance(value, tuple) and value and isinstance(value[0], np.ndarray | Mapping | tuple):
        return tuple(_arrays(part) for part in value)
    return np.asarray(value)


def _owned(value: Any) -> Any:
    """A copy that the environment cannot write into later."""
    return map_arrays(lambda part: part.copy() if isinstance(part, np.ndarray) else part, value)
