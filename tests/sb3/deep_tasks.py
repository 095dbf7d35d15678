"""Tasks that take no time, small agents, and callbacks that watch or interrupt them."""

import gymnasium as gym
import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

SMALL = {"policy_kwargs": {"net_arch": [8]}, "device": "cpu"}
MAZE = {"size": 3, "triggers": 1, "layout_seed": 4, "max_steps": 9, "window": None}
TRIGGERS = "secret_rl/Triggers-v0"


class Hallway(gym.Env):
    """Four cells; 1 goes on, 0 stays. The end pays 1; after 6 steps time is up."""

    observation_space = gym.spaces.Box(0, 1, (4,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.here = self.steps = 0
        return self._seen(), {"state": self.here}

    def step(self, action):
        self.here += int(action)
        self.steps += 1
        over = self.here == 3
        return self._seen(), float(over), over, not over and self.steps == 6, {"state": self.here}

    def _seen(self):
        return np.eye(4, dtype=np.float32)[self.here]


class Patience(gym.Env):
    """Pays 1 for each step; its length is drawn anew for each episode."""

    observation_space = gym.spaces.Box(0, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def __init__(self, longest=20):
        self.longest = longest
        self.actions = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(1, self.longest + 1))
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.actions.append(int(action))
        self.left -= 1
        return np.zeros(1, np.float32), 1.0, self.left == 0, False, {}


class Interrupted(Exception):
    pass


class Interrupt(BaseCallback):
    """Fails at a step, as if someone pulled the plug there."""

    def __init__(self, at):
        super().__init__()
        self.at = at

    def _on_step(self):
        if self.num_timesteps >= self.at:
            raise Interrupted
        return True
