"""What shaping is tested with: potentials of the history, and an environment whose episodes end in every way."""

import zlib
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from secret_rl.shaping import Batch
from secret_rl.shaping.table import canonical
from secret_rl.trajectories.nested import map_arrays

_YES, _NO = np.ones(1, np.bool_), np.zeros(1, np.bool_)


class OneEnvironment:
    """A potential asked for a single environment, without a wrapper."""

    def __init__(self, potential: Any) -> None:
        self._potential, self._carry = potential, potential.init(1)

    def start(self, observation: Any, info: Mapping[str, Any]) -> float:
        """Phi of the first state of an episode."""
        return self._ask(Batch(_YES, _NO, _batched(observation), None, None, [info]))

    def step(self, action: Any, observation: Any, reward: float, info: Mapping[str, Any]) -> float:
        """Phi after a step."""
        return self._ask(Batch(_NO, _YES, _batched(observation), _batched(action), np.array([reward]), [info]))

    def _ask(self, batch: Batch) -> float:
        self._carry, phi = self._potential.step(self._carry, batch)
        return float(phi[0])


class RunningSum:
    """Phi = the credit of the (state, action) pairs gone through so far, up to a cap: slow and obvious."""

    def __init__(self, credit: Mapping[tuple[Any, Any], float], cap: float) -> None:
        self.credit, self.cap = dict(credit), cap
        self.bound, self.reward_bound = cap, None

    def init(self, n: int) -> list[tuple[float, Any]]:
        """A sum and a state for each environment."""
        return [(0.0, None)] * n

    def step(self, carry: list[tuple[float, Any]], batch: Batch) -> tuple[list[tuple[float, Any]], Any]:
        """The sums with these steps."""
        for i in batch.rows.tolist():
            total, state = carry[i] if batch.steps[i] else (0.0, None)
            if batch.steps[i]:
                total = min(self.cap, total + self.credit.get((state, canonical(batch.action(i))), 0.0))
            carry[i] = total, canonical(batch.info(i)["state"])
        return carry, np.array([total for total, _ in carry])


class Everything:
    """A potential in which every part of the history leaves its mark: actions, observations, rewards, some infos.

    Two histories that differ anywhere have different potentials from there on, in practice.
    """

    bound = 1.0
    reward_bound = None

    def __init__(self, infos: tuple[str, ...] = ("state",), seed: int = 0) -> None:
        self.infos, self.seed = infos, seed

    def init(self, n: int) -> list[int]:
        """A mark for each environment."""
        return [0] * n

    def step(self, carry: list[int], batch: Batch) -> tuple[list[int], Any]:
        """(n,) in [-1, 1]; NaN where nothing is asked for"""
        phi = np.full(len(carry), np.nan)
        for i in batch.rows.tolist():
            mark, parts = self.seed, [batch.observation(i), *(batch.info(i).get(name) for name in self.infos)]
            if batch.steps[i]:
                mark, parts = carry[i], [batch.action(i), float(batch.rewards[i]), *parts]
            for part in parts:
                plain = sorted(part.items()) if isinstance(part, dict) else part
                mark = zlib.crc32(repr(canonical(plain)).encode(), mark)
            carry[i], phi[i] = mark, mark / 2**31 - 1
        return carry, phi


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


def _batched(nest: Any) -> Any:
    return map_arrays(lambda array: np.asarray(array)[None], nest)
