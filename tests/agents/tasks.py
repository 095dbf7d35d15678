"""Small tasks, as plainly as they can be written."""

import gymnasium as gym
import numpy as np

from secret_rl.envs.tabular import TabularModel


class ModelEnv(gym.Env):
    """A model as an environment to step; with ``arrays``, it offers them."""

    def __init__(self, model, start_action=0, arrays=False):
        self.model = model
        self.observation_space = gym.spaces.Discrete(len(model.next_states))
        self.action_space = gym.spaces.Discrete(model.next_states.shape[1], start=start_action)
        if arrays:
            self.tabular = lambda: model

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.here, self.steps = self.model.start, 0
        return self.here, {"state": self.here}

    def step(self, action):
        pair = self.here, action - self.action_space.start
        self.here = int(self.model.next_states[pair])
        self.steps += 1
        terminated = bool(self.model.terminated[pair])
        truncated = not terminated and self.steps == self.model.max_steps
        return self.here, self.model.rewards[pair], terminated, truncated, {"state": self.here}


def random_model(seed, states=6, actions=3, max_steps=15, rewarded=0.4):
    """Every action leads somewhere, one of them to an end."""
    rng = np.random.default_rng(seed)
    terminated = np.zeros((states, actions), bool)
    terminated[rng.integers(states), rng.integers(actions)] = True
    return TabularModel.of(
        rng.integers(0, states, (states, actions)),
        np.where(rng.random((states, actions)) < rewarded, rng.normal(size=(states, actions)), 0.0),
        terminated,
        start=int(rng.integers(states)),
        max_steps=max_steps,
    )


def optimal_values(model, discount):
    """(states, actions) by value iteration, as if there were no time limit."""
    values = np.zeros(model.rewards.shape)
    for _ in range(3000):
        values = model.rewards + discount * np.where(model.terminated, 0, values.max(1)[model.next_states])
    return values


def met_within(model, steps):
    """States in which an episode of so many steps takes a step."""
    met = {model.start}
    for _ in range(steps - 1):
        met |= {int(s) for state in met for s in model.next_states[state][~model.terminated[state]]}
    return np.array(sorted(met))
