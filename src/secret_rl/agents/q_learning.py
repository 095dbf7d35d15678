"""Tabular Q-learning on any Gymnasium environment with discrete actions and states that can be told apart."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from secret_rl.agents.curves import LearningCurve
from secret_rl.agents.options import check_options, check_seed, check_shaping_discount
from secret_rl.agents.rule import act, fresh_row, options, stream_key, update
from secret_rl.agents.tabular import CompiledRun
from secret_rl.checks import check_integer
from secret_rl.envs.tabular import model_of
from secret_rl.progress import Show, progress_bar

StateOf = Callable[[Any, Mapping[str, Any]], Hashable]
_RECENT = 100  # episodes that the progress bar tells the mean return of


@dataclass(frozen=True, kw_only=True)
class QLearning:
    """Watkins' Q-learning; the defaults are the paper's (appendix A), and a discount of 0.99.

    Values start at 0, ties are broken at random, and actions are epsilon-greedy. The target of a step is
    reward + discount * max Q(next state), without the second part where the episode terminated; a time limit is no end
    of the task, so there the second part stays.

    >>> import gymnasium as gym, secret_rl
    >>> env = gym.make("secret_rl/Triggers-v0", size=5, triggers=1, layout_seed=3)
    >>> curve = QLearning(seed=1).learn(env, episodes=500)
    >>> bool(curve.returns[-100:].mean() > curve.returns[:100].mean())
    True
    """

    learning_rate: float = 0.1
    epsilon: float = 0.1
    """Share of steps that explore: an action drawn from all."""
    discount: float = 0.99
    """Must be that of the shaping, where rewards are shaped."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_options(self.learning_rate, self.epsilon, self.discount)
        check_seed(self.seed)

    def learn(
        self,
        env: gym.Env[Any, Any],
        episodes: int,
        *,
        progress: Show = None,
        state: StateOf | None = None,
    ) -> LearningCurve:
        """Learn from scratch for so many episodes; the returns are discounted and never shaped.

        Where the environment and its wrappers offer themselves as arrays (``tabular()``), the learner is compiled and
        the environment is not stepped. Otherwise it is, with the same result, more slowly.

        Args:
            env: Its actions must be ``Discrete``.
            episodes: How many to play.
            progress: Show a progress bar; by default if the terminal is interactive. A function of (what is going
                on, episodes done, of how many) is told instead.
            state: What tells states apart, a function of (observation, info). By default ``info["state"]``, and
                where there is none a ``Discrete`` observation.
        """
        episodes = check_integer("episodes", episodes, 1)
        check_env(env, self.discount)
        model = model_of(env) if state is None else None
        if model is not None:
            check_shaping_discount(model.discount, self.discount)
        numbers = self.seed, self.learning_rate, self.epsilon, self.discount
        run: _Run = PlainRun(env, state, *numbers) if model is None else CompiledRun(model, *numbers)
        returns, lengths = np.empty(episodes), np.empty(episodes, np.int64)
        with progress_bar(progress, "episodes") as tick:
            for first in range(0, episodes, run.at_a_time):
                last = min(first + run.at_a_time, episodes)
                run.play(returns[first:last], lengths[first:last])
                recent = returns[max(0, last - _RECENT) : last]
                tick(f"return {recent.mean():.2f} over {len(recent)} episodes", last, episodes)
        return LearningCurve(returns=returns, lengths=lengths, **asdict(self))


class _Run(Protocol):
    """A learner at work."""

    at_a_time: int

    def play(self, returns: NDArray[np.float64], lengths: NDArray[np.int64]) -> None: ...


class PlainRun:
    """One learner that steps an environment."""

    at_a_time = 1

    def __init__(
        self,
        env: gym.Env[Any, Any],
        state: StateOf | None,
        seed: int,
        learning_rate: float,
        epsilon: float,
        discount: float,
    ) -> None:
        self._env = env
        self._state = state
        self._env_seed: int | None = int(seed)  # for the first reset; the environment goes on from there
        self._actions: gym.spaces.Discrete = env.action_space  # type: ignore[assignment]
        self._options = options(int(self._actions.n), learning_rate, epsilon, discount)
        self._key = stream_key(seed)
        self._steps = 0
        self._fresh = fresh_row(int(self._actions.n))
        self._rows: dict[Hashable, int] = {}
        self._q = np.tile(self._fresh, 64)

    @property
    def values(self) -> dict[Hashable, NDArray[np.float64]]:
        """State -> (actions,) what has been learned so far."""
        return {state: self._q[row : row + int(self._actions.n)].copy() for state, row in self._rows.items()}

    def play(self, returns: NDArray[np.float64], lengths: NDArray[np.int64]) -> None:
        """Play on for as many episodes as there are entries to fill."""
        for episode in range(len(returns)):
            returns[episode], lengths[episode] = self._episode()

    def _episode(self) -> tuple[float, int]:
        observation, info = self._env.reset(seed=self._env_seed)
        self._env_seed = None
        if self._state is None:
            self._state = _state_source(self._env, info)
        row = self._row(observation, info)
        gained, power, length = 0.0, 1.0, 0
        terminated = truncated = False
        while not (terminated or truncated):
            self._steps += 1
            length += 1
            action = int(act(self._q, row, self._options, self._key, self._steps))
            observation, reward, terminated, truncated, info = self._env.step(int(self._actions.start) + action)
            reward = float(reward)
            if not isfinite(reward):
                raise ValueError(f"the environment gave the reward {reward} at step {length}: expected a finite number")
            next_row = self._row(observation, info)
            update(self._q, row, action, reward, next_row, bool(terminated), self._options)
            gained += power * float(info.get("env_reward", reward))  # what a shaping wrapper was given
            power *= self._options.discount
            row = next_row
        return gained, length

    def _row(self, observation: Any, info: Mapping[str, Any]) -> int:
        """Where the values of a state are; a state never seen gets a place."""
        state = self._state(observation, info)  # type: ignore[misc]
        try:
            row = self._rows.get(state)
        except TypeError:
            raise TypeError(
                f"a state must be hashable, got {type(state).__name__}: pass e.g. "
                "state=lambda observation, info: tuple(observation.ravel().tolist())"
            ) from None
        if row is None:
            row = len(self._rows) * len(self._fresh)
            self._rows[state] = row
            if row == len(self._q):
                self._q = np.concatenate([self._q, np.tile(self._fresh, len(self._rows))])
        return row


def _state_source(env: gym.Env[Any, Any], info: Mapping[str, Any]) -> StateOf:
    """``info["state"]`` if the first info has one, or a Discrete observation."""
    if "state" in info:
        return _state_in_info
    if isinstance(env.observation_space, gym.spaces.Discrete):
        return lambda observation, _: int(observation)
    raise ValueError(
        f"nothing tells states apart: observations are {env.observation_space}, expected Discrete, and info has no "
        f'"state" but {sorted(map(str, info))}: pass state=, a function of (observation, info)'
    )


def _state_in_info(_: Any, info: Mapping[str, Any]) -> Hashable:
    if "state" not in info:
        raise ValueError(
            f'info had a "state" at first, but now has {sorted(map(str, info))}: the environment must give it at every '
            "step, or pass state=, a function of (observation, info)"
        )
    return info["state"]  # type: ignore[no-any-return]


def check_env(env: gym.Env[Any, Any], discount: float) -> None:
    """Raise where the environment, or how it is shaped, does not fit the agent."""
    if not isinstance(env, gym.Env):
        hint = ': make it first, gym.make("...")' if isinstance(env, str) else ""
        raise TypeError(f"env must be one Gymnasium environment, got {env!r}{hint}")
    if not isinstance(env.action_space, gym.spaces.Discrete):
        raise TypeError(f"tabular Q-learning needs Discrete actions, but env has {env.action_space}")
    layer: Any = env
    while layer is not None:
        check_shaping_discount(getattr(layer, "shaping_discount", None), discount)
        layer = layer.env if isinstance(layer, gym.Wrapper) else None
