"""Triggers in plain Python, as the paper describes it: the rules to compare every fast implementation with."""

from dataclasses import dataclass, field

import numpy as np

MOVES = {0: (-1, 0), 1: (1, 0), 2: (0, -1), 3: (0, 1)}
INVERTED = {0: 1, 1: 0, 2: 3, 3: 2}


@dataclass
class ReferenceTriggers:
    """One maze, played step by step."""

    size: int
    agent: tuple[int, int]
    triggers: list
    prizes: list
    window: int | None = 3
    inverted: bool = False
    max_steps: int = 50
    steps: int = 0
    activated: set = field(default_factory=set)
    collected: set = field(default_factory=set)

    def step(self, action):
        """Move; return (reward, trigger activated, terminated, truncated)."""
        self.steps += 1
        down, right = MOVES[INVERTED[action] if self.inverted else action]
        target = self.agent[0] + down, self.agent[1] + right
        if all(0 <= coordinate < self.size for coordinate in target):
            self.agent = target
        reward, activated = 0.0, self.agent in self.triggers and self.agent not in self.activated
        if activated:
            self.activated.add(self.agent)
        if self.agent in self.prizes and self.agent not in self.collected:
            self.collected.add(self.agent)
            reward = 1.0 if len(self.activated) == len(self.triggers) else -1.0
        terminated = len(self.collected) == len(self.prizes)
        return reward, activated, terminated, not terminated and self.steps >= self.max_steps

    def observe(self):
        """What the agent sees: channels (wall, trigger, prize) of a crop, (agent, trigger, prize) of the full state."""
        rows = columns = range(self.size)
        if self.window is not None:
            half = self.window // 2
            rows, columns = (range(at - half, at + half + 1) for at in self.agent)
        return np.array([[self._pixel((row, column)) for column in columns] for row in rows], np.uint8)

    def _pixel(self, cell):
        outside = not all(0 <= coordinate < self.size for coordinate in cell)
        first = cell == self.agent if self.window is None else outside
        left = set(self.triggers) - self.activated, set(self.prizes) - self.collected
        return first, cell in left[0], cell in left[1]

    def state(self):
        """Position, and a bit for each trigger and then each prize that is left."""
        left = [cell not in self.activated for cell in self.triggers]
        left += [cell not in self.collected for cell in self.prizes]
        mask = sum(1 << bit for bit, here in enumerate(left) if here)
        return mask * self.size**2 + self.agent[0] * self.size + self.agent[1]
