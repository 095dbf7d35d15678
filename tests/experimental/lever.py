"""A task whose reward only the past explains, small enough that credit for it is learned in a second or two."""

import gymnasium as gym
import numpy as np

LAST = 4
SMALL_FIT = {
    "steps": 200, "units": 16, "batch_size": 16, "learning_rate": 0.01, "evaluate_every": 50, "warmup": 10,
    "device": "cpu",
}  # fmt: skip


class Lever(gym.Env):
    """Pull (1) at the second of five steps; open (1) at the last: that pays 1 if pulled, otherwise -1.

    The clock is observed and, with ``visible``, the lever; with ``vector`` as numbers, the lever the last of them.
    Without ``pays`` nothing is ever won.
    """

    def __init__(self, visible=False, pays=True, vector=False):
        self.visible, self.pays, self.vector = visible, pays, vector
        boxed = gym.spaces.Box(0, 1, (LAST + 3,), np.float32)
        self.observation_space = boxed if vector else gym.spaces.Discrete(2 * (LAST + 2))
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.clock, self.pulled = 0, False
        return self._seen(), {"state": self._state()}

    def step(self, action):
        reward, over = 0.0, self.clock == LAST
        if self.clock == 1 and action == 1:
            self.pulled = True
        if over and action == 1:
            reward = 1.0 if self.pulled and self.pays else -1.0
        self.clock += 1
        return self._seen(), reward, over, False, {"state": self._state()}

    def _state(self):
        return 2 * self.clock + self.pulled

    def _seen(self):
        lever = self.pulled and self.visible
        if not self.vector:
            return 2 * self.clock + lever
        return np.append(np.eye(LAST + 2, dtype=np.float32)[self.clock], np.float32(lever))
