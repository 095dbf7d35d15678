"""A task of one's own: fill the can, water the flower. Whether the can is full does not show: the past decides."""

from enum import IntEnum
from types import SimpleNamespace
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

SIZE, MOST_STEPS, PIXELS = 5, 60, 24
Actions = IntEnum("Actions", ["up", "down", "left", "right", "fill", "water"], start=0)
WELL, FLOWER = (0, 0), (4, 3)
MOVES = ((0, -1), (0, 1), (-1, 0), (1, 0))
GRASS, BLUE, PINK, YELLOW, ORANGE = (58, 92, 62), (64, 128, 220), (240, 110, 170), (250, 210, 60), (240, 140, 40)


class Garden(gym.Env[np.ndarray, int]):
    """Walk on a 5x5 lawn, fill the can at the well, and water the flower: +1 with a full can, -1 with an empty one.

    Observations are the position (column, row). Filling works at the well alone, watering at the flower alone, where it
    ends the episode. ``actions``, ``grid`` and ``agent_pos``, as environments of MiniGrid have them, give the explorer
    the names of actions and a map for its heat.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 4, "annotations": ["filled"]}
    actions, grid = Actions, SimpleNamespace(width=SIZE, height=SIZE)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.observation_space = gym.spaces.Box(0, 1, (2, SIZE), np.float32)
        self.action_space = gym.spaces.Discrete(len(Actions))
        self.agent_pos, self.full, self.taken = (0, 0), False, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:  # noqa: ARG002
        """Start anywhere, with an empty can."""
        super().reset(seed=seed)
        column, row = self.np_random.integers(SIZE, size=2)
        self.agent_pos, self.full, self.taken = (int(column), int(row)), False, 0
        return self.observed(), {"filled": False}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """``filled`` in the info is the truth that credit is compared with."""
        self.taken += 1
        filled = action == Actions.fill and self.agent_pos == WELL
        watered = action == Actions.water and self.agent_pos == FLOWER
        reward = (1.0 if self.full else -1.0) if watered else 0.0
        if action < len(MOVES):
            column, row = (min(max(at + by, 0), SIZE - 1) for at, by in zip(self.agent_pos, MOVES[action], strict=True))
            self.agent_pos = (column, row)
        self.full = self.full or filled
        return self.observed(), reward, watered, self.taken >= MOST_STEPS, {"filled": filled}

    def observed(self) -> np.ndarray:
        """The column and the row, one-hot."""
        seen = np.zeros((2, SIZE), np.float32)
        seen[[0, 1], self.agent_pos] = 1.0
        return seen

    def render(self) -> np.ndarray:
        """The lawn from above; a full can makes the gardener orange."""
        lawn = np.full((SIZE, SIZE, 3), GRASS, np.uint8)
        for (column, row), colour in ((WELL, BLUE), (FLOWER, PINK), (self.agent_pos, ORANGE if self.full else YELLOW)):
            lawn[row, column] = colour
        picture = lawn.repeat(PIXELS, 0).repeat(PIXELS, 1)
        picture[::PIXELS] = picture[:, ::PIXELS] = 30
        return picture
