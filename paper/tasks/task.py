"""What a task of the suite is: data as a user would have it, and the steps that truly earned its rewards."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

import secret_rl as srl

# Seeds of `make`. Seed 1,000 was looked at while the design was chosen; tables judge on later ones.
TRAINING = range(100)
HELD_OUT = range(1_001, 2_000)


@dataclass(frozen=True)
class Data:
    """Trajectories, and which steps earned their rewards."""

    trajectories: srl.Trajectories
    truth: NDArray[np.bool_] | NDArray[np.int64]
    """(steps,) of all episodes laid end to end. Booleans mark evidence: of each judged reward, every marked step before
    it in its episode. Integers give each reward its own cause: a step of the same episode, or -1 for not judged."""


@dataclass(frozen=True)
class Task:
    """An environment of others, who plays it, and what its rewards are due to."""

    name: str
    source: str
    """Package and id of the environment."""
    description: str
    """What decides the reward, in a sentence."""
    make: Callable[[int, int], Data]
    """``make(episodes, seed)``: the same data for the same arguments."""
    episodes: int
    """Size of a full training set."""
    past_matters: bool = True
    """Whether a step's own observation and action leave its reward open, and the past decides."""
    tolerance: int = 0
    """Steps by which credit may miss the truth."""
    judged: Literal["all", "positive", "negative"] = "all"
    """Which rewards the truth is about."""
    events: Literal["all", "any"] = "all"
    """Whether credit should find all marked steps, or any: where each alone is evidence enough."""


class Marked(gym.Wrapper[Any, Any, Any, Any]):
    """An environment whose steps say, as ``info["cause"]``, whether they are what a later reward is due to.

    Subclasses write ``marks``. The mark is for the truth alone: ``play`` takes it out of the data.
    """

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset, and keep what is seen."""
        self.seen, info = self.env.reset(seed=seed, options=options)
        self.begin()
        return self.seen, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and mark."""
        before = self.seen
        self.seen, reward, terminated, truncated, info = self.env.step(action)
        return self.seen, reward, terminated, truncated, {**info, "cause": self.marks(before, action)}

    def begin(self) -> None:
        """An episode starts."""

    def marks(self, seen: Any, action: Any) -> bool:
        """Whether the step just taken, from what was ``seen`` before it, is a cause."""
        raise NotImplementedError


def play(env: gym.Env[Any, Any], episodes: int, seed: int, policy: Any = "random", steps: int | None = None) -> Data:
    """Trajectories of a marked environment, and the marks as truth."""
    data = srl.collect(env, episodes, policy, seed, annotations=["cause"], max_episode_steps=steps, progress=False)
    env.close()
    marks = np.asarray(data.annotations["cause"], np.bool_)
    return Data(replace(data, annotations={}), marks)


def play_unmarked(
    env: gym.Env[Any, Any],
    episodes: int,
    seed: int,
    policy: Any = "random",
    steps: int | None = None,
    success_share: float | None = None,
) -> Data:
    """Trajectories with no cause given to any reward: there is none, or the caller knows it."""
    data = srl.collect(
        env, episodes, policy, seed, success_share, annotations=[], max_episode_steps=steps, progress=False
    )
    env.close()
    return Data(data, np.full(data.offsets[-1], -1, np.int64))


def step_numbers(data: srl.Trajectories) -> NDArray[np.int64]:
    """(steps,) the number of each step within its episode."""
    starts = data.offsets[:-1]
    return np.arange(data.offsets[-1]) - np.repeat(starts, np.diff(data.offsets))


def last_marked(data: srl.Trajectories, marks: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(steps,) the last marked step before each step of the same episode, or -1."""
    within = step_numbers(data)
    latest = np.where(marks, np.arange(len(marks)), -1)
    latest = np.maximum.accumulate(np.concatenate([[-1], latest[:-1]]))  # before the step, not at it
    return np.where(latest >= np.arange(len(marks)) - within, latest - (np.arange(len(marks)) - within), -1)
