"""Gymnasium's continuous Mountain Car, paid at the goal only if the car was far up the left hill before.

The physics, the observation (position and velocity) and the Box action are Gymnasium's; the rule of the reward is ours,
for the car's own reward (100 at the goal, less the fuel) needs no past. Each action is held for four steps of the
physics, which keeps episodes short.
"""

from typing import Any

import gymnasium as gym
import numpy as np

from secret_rl.tasks.task import Data, Marked, Task, play

_HELD = 4
_LINE = -1.1
_STEPS = 50
_GOAL = 0.45
_GAIN = 4_000  # push per energy that is still missing


class LeftFirst(gym.Wrapper[Any, Any, Any, Any]):
    """Holds each action for some steps; the goal pays 1 if the car was once seen left of the line, else 0."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start in the valley."""
        seen, info = self.env.reset(seed=seed, options=options)
        self._been = seen[0] < _LINE
        return seen, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Drive on."""
        for _ in range(_HELD):
            seen, _, terminated, truncated, info = self.env.step(action)
            if terminated or truncated:
                break
        reward = 1.0 if terminated and self._been else 0.0
        self._been |= seen[0] < _LINE
        return seen, reward, terminated, truncated, info


class LeftOfLine(Marked):
    """Marks every step at which the car is seen left of the line: any one of them is enough."""

    def marks(self, seen: Any, action: Any) -> bool:  # noqa: ARG002
        """Whether the car was left of the line when the step was taken."""
        return bool(seen[0] < _LINE)


class Driver:
    """Swings up the left hill, to one side of the line or the other, and then drives to the goal; never steadily."""

    def begin(self, seed: int) -> None:
        """Draw how far to the left to go, and how fast to arrive: independently, so that the end says nothing."""
        self._rng = np.random.default_rng(seed)
        self._left = self._rng.choice([self._rng.uniform(-1.05, -0.75), -1.12])
        self._speed = self._rng.uniform(0.015, 0.04)
        self._reached = False

    def __call__(self, observation: Any) -> Any:
        """Push with the swing until far enough to the left; then as much as the speed at the goal needs."""
        position, velocity = observation
        self._reached |= bool(position < self._left)
        if self._reached:
            push = _GAIN * (self._speed**2 / 2 + _height(_GOAL) - velocity**2 / 2 - _height(position))
        elif velocity < 0 and velocity**2 / 2 + _height(position) > _height(self._left):
            push = 1.0 if self._left > _LINE else -1.0  # brakes if this side of the line was meant
        else:
            push = np.sign(velocity) if position < -0.2 else -1.0
        return np.clip([push + self._rng.normal(0, 0.2)], -1, 1).astype(np.float32)


def _height(position: float) -> float:
    """Of the hill, as energy: the physics pulls with 0.0025 cos(3x)."""
    return float(0.0025 / 3 * np.sin(3 * position))


def _make(episodes: int, seed: int) -> Data:
    env = LeftOfLine(LeftFirst(gym.make("MountainCarContinuous-v0", disable_env_checker=True)))
    return play(env, episodes, seed, Driver(), _STEPS)


TASKS = [
    Task(
        name="mountain_car_left",
        source="gymnasium, MountainCarContinuous-v0; reward ours, actions held for 4 steps",
        description="The goal pays if the car was up the left hill, beyond -1.1, before; actions are continuous.",
        make=_make,
        episodes=2_500,
        tolerance=1,  # the action that drives beyond the line shows in the next observation
        judged="positive",
    ),
]
