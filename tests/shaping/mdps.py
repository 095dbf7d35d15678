"""Small finite tasks that can be solved exactly, and a way to read one off an environment, wrappers included.

``optimal_actions(measure(wrapper(MdpEnv(mdp))).mdp, ...)`` against ``optimal_actions(mdp, ...)`` shows whether a
wrapper keeps the optimal policies.
"""

from typing import NamedTuple

import gymnasium as gym
import numpy as np


class Mdp(NamedTuple):
    """A finite task; what follows a terminal state does not count."""

    successors: np.ndarray  # (states, actions, outcomes)
    probabilities: np.ndarray  # (states, actions, outcomes)
    rewards: np.ndarray  # (states, actions, outcomes)
    terminal: np.ndarray  # (states,)

    def q_values(self, discount):
        """(states, actions) optimal values, by value iteration to rounding error."""
        values = np.zeros(len(self.terminal))
        while True:
            following = np.where(self.terminal, 0.0, values)[self.successors]
            q = (self.probabilities * (self.rewards + discount * following)).sum(2)
            if np.abs(q.max(1) - values).max() < 1e-12 * (1 + np.abs(values).max()):
                return q
            values = q.max(1)


def random_mdp(seed, states=5, actions=3, outcomes=2):
    """About half of the states are terminal. Small whole rewards and equal actions: several can be optimal."""
    rng = np.random.default_rng(seed)
    shape = (states, actions, outcomes)
    successors = rng.integers(0, states, shape)
    probabilities = rng.dirichlet(np.ones(outcomes), shape[:2])
    rewards = (rng.integers(-1, 2, shape) * (rng.random(shape) < 0.5)).astype(float)
    terminal = rng.random(states) < 0.5
    terminal[0] = False
    for state in np.flatnonzero(rng.random(states) < 0.4):
        one, other = rng.integers(0, actions, 2)
        for array in (successors, probabilities, rewards):
            array[state, one] = array[state, other]
    return Mdp(successors, probabilities, rewards, terminal)


class MdpEnv(gym.Env):
    """An ``Mdp`` as an environment; the observation and ``info["state"]`` are the state.

    ``reset(options={"state": s, "outcomes": [0, 1, 1]})`` chooses the first state, and the outcomes of the next steps.
    """

    def __init__(self, mdp):
        self.mdp = mdp
        self.observation_space = gym.spaces.Discrete(len(mdp.terminal))
        self.action_space = gym.spaces.Discrete(mdp.rewards.shape[1])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        options = options or {}
        self._state, self._outcomes = options.get("state", 0), list(options.get("outcomes", []))
        return self._state, {"state": self._state}

    def step(self, action):
        place = self._state, action
        chances = self.mdp.probabilities[place]
        place += (self._outcomes.pop(0) if self._outcomes else int(self.np_random.choice(len(chances), p=chances)),)
        self._state = int(self.mdp.successors[place])
        over = bool(self.mdp.terminal[self._state])
        return self._state, float(self.mdp.rewards[place]), over, False, {"state": self._state}


class Measured(NamedTuple):
    """A task as an agent meets it, and the state of the ``MdpEnv`` behind each of its states."""

    mdp: Mdp
    behind: np.ndarray  # (states,)


def measure(env, memory=lambda: None):
    """Read a task off an environment with an ``MdpEnv`` inside, by trying everything once.

    ``memory`` returns what the environment remembers beside the state, such as the sum that a potential of the history
    keeps: a state of the measured task is a pair of both, of which there must be finitely many.
    """
    base = env.unwrapped.mdp
    paths = {}  # (state, memory) -> first state, actions and outcomes that lead there

    def play(first, taken, decided):
        state, _ = env.reset(options={"state": first, "outcomes": decided})
        reward, over = 0.0, False
        for action in taken:
            state, reward, over, _, _ = env.step(action)
        key = (state, "over") if over else (state, memory())
        if key not in paths:
            paths[key] = first, taken, decided
            waiting.append((key, over))
        return key, float(reward)

    waiting, met = [], {}
    for first in np.flatnonzero(~base.terminal).tolist():
        play(first, [], [])
    for here, over in waiting:  # which grows meanwhile
        first, taken, decided = paths[here]
        for action, outcome in () if over else np.ndindex(base.rewards.shape[1:]):
            met[here, action, outcome] = play(first, [*taken, action], [*decided, outcome])
    numbers = {key: number for number, key in enumerate(paths)}
    behind = np.array([state for state, _ in paths])
    successors = np.broadcast_to(np.arange(len(behind))[:, None, None], (len(behind), *base.rewards.shape[1:])).copy()
    rewards = np.zeros(successors.shape)
    for (here, action, outcome), (key, reward) in met.items():
        place = numbers[here], action, outcome
        successors[place], rewards[place] = numbers[key], reward
    return Measured(Mdp(successors, base.probabilities[behind], rewards, base.terminal[behind]), behind)


def optimal_actions(mdp, discount):
    """(states, actions) which actions are optimal; all of them in terminal states."""
    q = mdp.q_values(discount)
    return (q >= q.max(1, keepdims=True) - 1e-7) | mdp.terminal[:, None]


def is_clear(mdp, discount):
    """Whether every action is either optimal or clearly worse: nothing hangs on rounding."""
    q = mdp.q_values(discount)
    gaps = q.max(1, keepdims=True) - q
    return bool(((gaps < 1e-9) | (gaps > 1e-5)).all())
