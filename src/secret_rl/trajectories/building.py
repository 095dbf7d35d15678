"""Episodes put together step by step, and packed end to end."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import gymnasium as gym
import numpy as np

from secret_rl.trajectories import spaces
from secret_rl.trajectories.nested import Array, Nest, map_arrays, map_leaves, named_arrays, row_count, stack, subpath
from secret_rl.trajectories.types import Episode, Trajectories


class EpisodeBuilder:
    """One episode under way: told the reset, then each step."""

    def __init__(
        self, observation: Any, info: Mapping[str, Any], annotations: Iterable[str] = (), seed: int | None = None
    ) -> None:
        self._annotation_names = tuple(annotations)
        self._seed = seed
        self._observations = [_owned(observation)]
        self._states = [_owned(info["state"])] if "state" in info else None
        self._actions: list[Any] = []
        self._rewards: list[float] = []
        self._annotations: dict[str, list[Any]] = {name: [] for name in self._annotation_names}
        self._terminated = self._truncated = False

    def __len__(self) -> int:
        return len(self._rewards)

    @property
    def over(self) -> bool:
        """Whether the last step ended the episode."""
        return self._terminated or self._truncated

    def step(
        self,
        action: Any,
        observation: Any,
        reward: float,
        terminated: bool,
        truncated: bool,
        info: Mapping[str, Any],
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
                raise ValueError(
                    f'info["{name}"] is missing at step {len(self)}, but it is one of the annotations to keep: '
                    f"info has {sorted(info)}"
                )
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
        """Step, and remember."""
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
        return Trajectories(
            observations=_no_rows(observation_space),
            actions=_no_rows(action_space),
            rewards=np.zeros(0),
            terminated=np.zeros(0, np.bool_),
            truncated=np.zeros(0, np.bool_),
            offsets=np.zeros(1, np.int64),
            observation_space=observation_space,
            action_space=action_space,
            meta=meta,
        )
    rows = [_episode_columns(number, episode) for number, episode in enumerate(episodes)]
    for number, (steps, finals) in enumerate(rows):
        for mine, first in ((steps, rows[0][0]), (finals, rows[0][1])):
            if mine.keys() != first.keys():
                raise ValueError(
                    f"episode {number} and episode 0 hold different fields: {sorted(mine.keys() ^ first.keys())}"
                )
    lengths = [len(steps["rewards"]) for steps, _ in rows]
    step_columns = {name: _join(name, [steps[name] for steps, _ in rows]) for name in rows[0][0]}
    episode_columns = {name: _join(name, [finals[name] for _, finals in rows]) for name in rows[0][1]}
    observation_space = observation_space or _infer("observations", episodes[0], step_columns)
    action_space = action_space or _infer("actions", episodes[0], step_columns)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Trajectories.from_columns(
        step_columns, episode_columns, offsets, observation_space, action_space, meta
    )  # fmt: skip


def _episode_columns(number: int, episode: Episode | Mapping[str, Any]) -> tuple[dict[str, Array], dict[str, Array]]:
    """One episode's arrays by column name: those with a row per step, and the single rows at its end."""
    get: Callable[..., Any] = (
        episode.get if isinstance(episode, Mapping) else lambda name, default=None: getattr(episode, name, default)
    )
    for name in ("observations", "actions", "rewards"):
        if get(name) is None:
            raise ValueError(f"episode {number} has no {name}")
    rewards = np.asarray(get("rewards"))
    if rewards.dtype.kind not in "f":
        rewards = rewards.astype(np.float64)
    length = len(rewards)
    if length == 0:
        raise ValueError(f"episode {number} is empty: every episode needs at least one step; leave it out")
    steps: dict[str, Array] = {}
    finals: dict[str, Array] = {}
    for name, final_name in (("observations", "final_observation"), ("states", "final_state")):
        if get(name) is None:
            continue
        nest = _arrays(get(name))
        extra = row_count(nest) - length
        if extra not in (0, 1):
            raise ValueError(
                f"{row_count(nest)} {name} but {length} rewards in episode {number}: expected {length}, "
                f"or {length + 1} with the final one"
            )
        final = get(final_name)
        if extra:
            final_rows, nest = map_arrays(lambda a: a[-1:], nest), map_arrays(lambda a: a[:-1], nest)
        elif final is not None:
            final_rows = map_arrays(lambda rows, last: np.asarray(last, rows.dtype)[None], nest, final)
        else:
            final_rows = ()
        steps.update(named_arrays(name, nest))
        finals.update(named_arrays(f"{final_name}s", final_rows))
    steps.update(named_arrays("actions", _arrays(get("actions"))))
    steps["rewards"] = rewards
    for name in ("terminated", "truncated"):
        flags = np.asarray(get(name, False), np.bool_)
        if flags.ndim == 0:
            last = bool(flags)
            flags = np.zeros(length, np.bool_)
            flags[-1] = last
        steps[name] = flags
    for name, values in (get("annotations") or {}).items():
        steps[f"annotations/{name}"] = np.asarray(values)
    for name, value in (get("episode_annotations") or {}).items():
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


def _join(name: str, parts: list[Array]) -> Array:
    shapes = {part.shape[1:] for part in parts}
    if len(shapes) > 1:
        odd = next(i for i, part in enumerate(parts) if part.shape[1:] != parts[0].shape[1:])
        raise ValueError(
            f"{name} has rows of shape {parts[0].shape[1:]} in episode 0 and {parts[odd].shape[1:]} in {odd}"
        )
    return np.concatenate(parts)


def _infer(name: str, episode: Episode | Mapping[str, Any], columns: Mapping[str, Array]) -> gym.Space[Any]:
    """The space of a field: the nesting of one episode with the joined arrays in it."""
    example = episode[name] if isinstance(episode, Mapping) else getattr(episode, name)

    def joined(value: Nest, path: str) -> Nest:
        if isinstance(value, dict):
            return {key: joined(part, subpath(path, key)) for key, part in value.items()}
        if isinstance(value, tuple):
            return tuple(joined(part, subpath(path, i)) for i, part in enumerate(value))
        return columns[path]

    return spaces.infer(joined(_arrays(example), name))


def _no_rows(space: gym.Space[Any]) -> Nest:
    def no_rows(leaf: gym.Space[Any], rows: Any) -> Array:
        return np.asarray(rows).reshape(0, *(leaf.shape or ()))

    return cast(Nest, map_leaves(no_rows, space, stack(space, [])))


def _owned(value: Any) -> Any:
    """A copy that the environment cannot write into later."""
    if isinstance(value, Mapping):
        return {key: _owned(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(_owned(part) for part in value)
    return value.copy() if isinstance(value, np.ndarray) else value
