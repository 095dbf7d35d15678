"""Triggers in plain Python, as the paper describes it: the rules to compare every fast implementation with."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Position = tuple[int, int]

MOVES = {0: (-1, 0), 1: (1, 0), 2: (0, -1), 3: (0, 1)}
INVERTED = {0: 1, 1: 0, 2: 3, 3: 2}


@dataclass
class ReferenceTriggers:
    """One maze, played step by step."""

    size: int
    agent: Position
    triggers: list[Position]
    prizes: list[Position]
    window: int | None = 3
    inverted: bool = False
    max_steps: int = 50
    steps: int = 0
    activated: set[int] = field(default_factory=set)
    collected: set[int] = field(default_factory=set)

    def step(self, action: int) -> tuple[float, bool, bool, bool]:
        """Move; return (reward, trigger activated, terminated, truncated)."""
        self.steps += 1
        down, right = MOVES[INVERTED[action] if self.inverted else action]
        row, column = self.agent[0] + down, self.agent[1] + right
        if 0 <= row < self.size and 0 <= column < self.size:
            self.agent = (row, column)
        reward, activated = 0.0, False
        for i, position in enumerate(self.triggers):
            if position == self.agent and i not in self.activated:
                self.activated.add(i)
                activated = True
        for i, position in enumerate(self.prizes):
            if position == self.agent and i not in self.collected:
                self.collected.add(i)
                reward = 1.0 if len(self.activated) == len(self.triggers) else -1.0
        terminated = len(self.collected) == len(self.prizes)
        truncated = not terminated and self.steps >= self.max_steps
        return reward, activated, terminated, truncated

    def observe(self) -> NDArray[np.uint8]:
        """What the agent sees: channels (wall, trigger, prize) of a crop, (agent, trigger, prize) of the full state."""
        if self.window is None:
            rows = columns = range(self.size)
        else:
            half = self.window // 2
            rows = range(self.agent[0] - half, self.agent[0] + half + 1)
            columns = range(self.agent[1] - half, self.agent[1] + half + 1)
        return np.array([[self._pixel((row, column)) for column in columns] for row in rows], np.uint8)

    def _pixel(self, position: Position) -> tuple[bool, bool, bool]:
        inside = all(0 <= coordinate < self.size for coordinate in position)
        return (
            position == self.agent if self.window is None else not inside,
            any(position == p for i, p in enumerate(self.triggers) if i not in self.activated),
            any(position == p for i, p in enumerate(self.prizes) if i not in self.collected),
        )

    def state(self) -> int:
        """Position, and a bit for each trigger and then each prize that is left."""
        left = [i not in self.activated for i in range(len(self.triggers))]
        left += [i not in self.collected for i in range(len(self.prizes))]
        mask = sum(1 << bit for bit, here in enumerate(left) if here)
        return mask * self.size**2 + self.agent[0] * self.size + self.agent[1]
