"""Tasks that take no time, small agents, and callbacks that watch or interrupt them."""

from copy import deepcopy

import gymnasium as gym
import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from tests.shaping.playing import assert_same as assert_same_nest

from secret_rl.sb3.checkpoint import model_state

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

    def __init__(self, longest=20, shortest=1):
        self.shortest, self.longest, self.actions = shortest, longest, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(self.shortest, self.longest + 1))
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.actions.append(int(action))
        self.left -= 1
        return np.zeros(1, np.float32), 1.0, self.left == 0, False, {}


class Kept:
    """A logger that keeps what it is given."""

    def __init__(self):
        self.rows = []

    def log(self, step, values):
        self.rows.append((step, dict(values)))

    def column(self, name):
        return [(step, values[name]) for step, values in self.rows if name in values]


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


class AtSteps(BaseCallback):
    """Calls a function of the callback at some steps, or at all."""

    def __init__(self, function, *steps):
        super().__init__()
        self.function, self.steps = function, steps

    def _on_step(self):
        if not self.steps or self.num_timesteps in self.steps:
            self.function(self)
        return True


def agent_in(algorithm, env, policy="MlpPolicy", **options):
    """A small agent that has learned nothing yet."""
    if issubclass(algorithm, OffPolicyAlgorithm):
        options = {"buffer_size": 500, **options}
    return algorithm(policy, env, **{"seed": 0, **deepcopy(SMALL), **options})  # policies write into their options


def assert_same(mine, theirs):
    """Two trainings are the same to the bit: agents, optimisers, counters and curves."""
    assert_same_nest(model_state(mine.model), model_state(theirs.model))
    assert_same_nest(vars(mine.curve), vars(theirs.curve))
