"""Episodes put together step by step, and a wrapper that records them."""

from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from secret_rl.trajectories.nested import map_arrays, stack
from secret_rl.trajectories.types import Trajectories


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
        spaces = {"observation_space": self.observation_space, "action_space": self.action_space}
        return Trajectories.from_episodes(self._episodes, **spaces, meta=env_meta(self))

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


def _owned(value: Any) -> Any:
    """A copy that the environment cannot write into later."""
    return map_arrays(lambda part: part.copy() if isinstance(part, np.ndarray) else part, value)
