"""What shaping is tested with: potentials of the history, and an environment whose episodes end in every way."""

import zlib
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from secret_rl.shaping.states import canonical


class RunningSum:
    """Phi = the credit of the (state, action) pairs gone through so far, up to a cap: slow and obvious."""

    def __init__(self, credit: Mapping[tuple[Any, Any], float], cap: float) -> None:
        self.credit, self.cap = dict(credit), cap
        self.sum = 0.0
        self._state: Any = None

    def begin(self, observation: Any, info: Mapping[str, Any], /) -> float:  # noqa: ARG002
        """0"""
        self.sum, self._state = 0.0, canonical(info["state"])
        return 0.0

    def step(self, action: Any, observation: Any, reward: float, info: Mapping[str, Any], /) -> float:  # noqa: ARG002
        """The sum with this step."""
        self.sum = min(self.cap, self.sum + self.credit.get((self._state, canonical(action)), 0.0))
        self._state = canonical(info["state"])
        return self.sum

    def fresh(self) -> "RunningSum":
        """With a sum of its own."""
        return RunningSum(self.credit, self.cap)

    @property
    def bound(self) -> float:
        """The cap."""
        return self.cap

    @property
    def reward_bound(self) -> None:
        """Not known."""


class Everything:
    """A potential in which every part of the history leaves its mark: actions, observations, rewards, some infos.

    Two histories that differ anywhere have different potentials from there on, in practice.
    """

    bound = 1.0
    reward_bound = None

    def __init__(self, infos: tuple[str, ...] = ("state",)) -> None:
        self.infos = infos
        self._mark = 0

    def begin(self, observation: Any, info: Mapping[str, Any], /) -> float:
        """In [-1, 1]"""
        self._mark = 0
        return self._next(observation, *(info.get(name) for name in self.infos))

    def step(self, action: Any, observation: Any, reward: float, info: Mapping[str, Any], /) -> float:
        """In [-1, 1]"""
        return self._next(action, observation, reward, *(info.get(name) for name in self.infos))

    def fresh(self) -> "Everything":
        """With a mark of its own."""
        return Everything(self.infos)

    def _next(self, *parts: Any) -> float:
        for part in parts:
            plain = sorted(part.items()) if isinstance(part, dict) else part
            self._mark = zlib.crc32(repr(canonical(plain)).encode(), self._mark)
        return self._mark / 2**31 - 1


class EveryEnding(gym.Env[Any, Any]):
    """Random episodes of a few steps that terminate, are truncated, or both at once.

    Observations are ``{"place": (2,) floats, "cue": 0..3}``. ``info["state"]`` is a tuple; ``info["luck"]`` is there
    now and then.
    """

    observation_space: gym.Space[Any] = gym.spaces.Dict(
        {"place": gym.spaces.Box(-3, 3, (2,), np.float32), "cue": gym.spaces.Discrete(4)}
    )
    action_space: gym.Space[Any] = gym.spaces.Discrete(3)

    def __init__(self) -> None:
        self._place = np.zeros(2, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Somewhere in the middle."""
        super().reset(seed=seed, options=options)
        self._place = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self._seen()

    def step(self, action: Any) -> tuple[dict[str, Any], np.float32, bool, bool, dict[str, Any]]:
        """Drift, and perhaps end."""
        self._place += self.np_random.uniform(-0.3, 0.3, 2).astype(np.float32) * (1 + int(action))
        np.clip(self._place, -3, 3, out=self._place)
        terminated, truncated = (self.np_random.random(2) < 0.15).tolist()
        reward = np.float32(self.np_random.normal())
        observation, info = self._seen()
        return observation, reward, terminated, truncated, info

    def _seen(self) -> tuple[dict[str, Any], dict[str, Any]]:
        cue = int(self.np_random.integers(4))
        info: dict[str, Any] = {"state": (cue, *np.floor(self._place).astype(int).tolist())}
        if self.np_random.random() < 0.5:
            info["luck"] = float(self.np_random.random())
        return {"place": self._place.copy(), "cue": cue}, info
