"""Small finite tasks that can be solved exactly, and a way to read one off an environment, wrappers included.

A test can then show that a wrapper keeps the optimal policies: ``optimal_actions(measure(wrapper(MdpEnv(mdp))), ...)``
against ``optimal_actions(mdp, ...)``.
"""

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Mdp:
    """A finite task: an action in a state has a few possible outcomes."""

    successors: NDArray[np.int64]
    """(states, actions, outcomes)"""
    probabilities: NDArray[np.float64]
    """(states, actions, outcomes) sum to 1 over the outcomes."""
    rewards: NDArray[np.float64]
    """(states, actions, outcomes)"""
    terminal: NDArray[np.bool_]
    """(states,) where episodes end; nothing after them counts."""

    def q_values(self, discount: float) -> NDArray[np.float64]:
        """(states, actions) optimal values, by value iteration to rounding error."""
        values = np.zeros(len(self.terminal))
        while True:
            following = np.where(self.terminal, 0.0, values)[self.successors]
            q = (self.probabilities * (self.rewards + discount * following)).sum(2)
            if np.abs(q.max(1) - values).max() < 1e-12 * (1 + np.abs(values).max()):
                return np.asarray(q, np.float64)
            values = q.max(1)


def random_mdp(seed: int, states: int = 5, actions: int = 3, outcomes: int = 2) -> Mdp:
    """Rewards are small whole numbers and some actions do the same, so that several actions can be optimal.

    About half of the states are terminal, and at least one is not.
    """
    rng = np.random.default_rng(seed)
    shape = (states, actions, outcomes)
    successors = rng.integers(0, states, shape)
    probabilities = rng.dirichlet(np.ones(outcomes), shape[:2])
    rewards = rng.integers(-1, 2, shape) * (rng.random(shape) < 0.5)
    terminal = rng.random(states) < 0.5
    terminal[0] = False
    for state in np.flatnonzero(rng.random(states) < 0.4):
        one, other = rng.integers(0, actions, 2)
        for array in (successors, probabilities, rewards):
            array[state, one] = array[state, other]
    return Mdp(successors, probabilities, rewards.astype(np.float64), terminal)


class MdpEnv(gym.Env[int, int]):
    """An ``Mdp`` as an environment; the observation and ``info["state"]`` are the state.

    ``reset(options={"state": s, "outcomes": [0, 1, 1]})`` chooses the first state, and the random outcomes of the next
    steps.
    """

    def __init__(self, mdp: Mdp) -> None:
        self.mdp = mdp
        self.observation_space: gym.Space[Any] = gym.spaces.Discrete(len(mdp.terminal))
        self.action_space: gym.Space[Any] = gym.spaces.Discrete(mdp.rewards.shape[1])
        self._state = 0
        self._outcomes: list[int] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Start in the state asked for, or in the first one."""
        super().reset(seed=seed)
        self._state = int((options or {}).get("state", 0))
        self._outcomes = list((options or {}).get("outcomes", []))
        return self._state, {"state": self._state}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Take a step; its outcome is random unless ``reset`` fixed it."""
        mdp, state = self.mdp, self._state
        if self._outcomes:
            outcome = self._outcomes.pop(0)
        else:
            outcome = int(self.np_random.choice(mdp.rewards.shape[2], p=mdp.probabilities[state, action]))
        self._state = int(mdp.successors[state, action, outcome])
        reward, over = float(mdp.rewards[state, action, outcome]), bool(mdp.terminal[self._state])
        return self._state, reward, over, False, {"state": self._state}


@dataclass(frozen=True, eq=False)
class Measured:
    """A task as an agent meets it in an environment, and the state of the ``MdpEnv`` behind each of its states."""

    mdp: Mdp
    behind: NDArray[np.int64]
    """(states,)"""


def measure(env: gym.Env[Any, Any], memory: Callable[[], Hashable] = lambda: None) -> Measured:
    """Read a task off an environment with an ``MdpEnv`` inside, by trying everything once.

    ``memory`` returns what the environment remembers beside the state, such as the sum that a potential of the history
    keeps: a state of the measured task is a pair of both. The pairs reached from any first state must be finitely
    many. Terminal states count once each.
    """
    base: Mdp = env.unwrapped.mdp  # type: ignore[attr-defined]
    _, actions, outcomes = base.rewards.shape
    numbers: dict[Any, int] = {}
    paths: list[tuple[int, list[int], list[int]]] = []  # first state, actions, random outcomes
    waiting: deque[int] = deque()

    def number(key: Hashable, path: tuple[int, list[int], list[int]]) -> int:
        if key not in numbers:
            numbers[key] = len(paths)
            paths.append(path)
            waiting.append(numbers[key])
        return numbers[key]

    def play(first: int, taken: list[int], decided: list[int]) -> tuple[int, float, bool]:
        state, _ = env.reset(options={"state": first, "outcomes": decided})
        reward, over = 0.0, False
        for action in taken:
            state, given, over, _, _ = env.step(action)
            reward = float(given)
        return state, reward, over

    for first in np.flatnonzero(~base.terminal).tolist():
        play(first, [], [])
        number((first, memory()), (first, [], []))
    met: dict[tuple[int, int, int], tuple[int, float]] = {}  # (state, action, outcome) to the next state and reward
    while waiting:
        here = waiting.popleft()
        first, taken, decided = paths[here]
        if play(first, taken, decided)[2]:
            continue
        for action, outcome in np.ndindex(actions, outcomes):
            path = (first, [*taken, int(action)], [*decided, int(outcome)])
            state, reward, over = play(*path)
            key = (state, "over") if over else (state, memory())
            met[here, action, outcome] = number(key, path), reward
    behind = np.array([state for state, _ in numbers])
    shape = (len(behind), actions, outcomes)
    successors, rewards = np.empty(shape, np.int64), np.zeros(shape)
    successors[:] = np.arange(len(behind))[:, None, None]  # nothing leads out of terminal states
    for place, outcome_met in met.items():
        successors[place], rewards[place] = outcome_met
    return Measured(Mdp(successors, base.probabilities[behind], rewards, base.terminal[behind]), behind)


def optimal_actions(mdp: Mdp, discount: float, tolerance: float = 1e-7) -> NDArray[np.bool_]:
    """(states, actions) which actions are optimal; all of them in terminal states."""
    q = mdp.q_values(discount)
    return np.asarray((q >= q.max(1, keepdims=True) - tolerance) | mdp.terminal[:, None])


def is_clear(mdp: Mdp, discount: float) -> bool:
    """Whether every action is either optimal or clearly worse: nothing hangs on rounding."""
    q = mdp.q_values(discount)
    gaps = q.max(1, keepdims=True) - q
    return bool(((gaps < 1e-9) | (gaps > 1e-5)).all())
