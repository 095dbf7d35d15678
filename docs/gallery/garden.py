"""A task of one's own: water the flower. Whether the can is full does not show, so only the past can say what will be paid."""

from typing import Any

import gymnasium as gym
import numpy as np

SIZE, MOST_STEPS, PIXELS = 5, 60, 24
WELL, FLOWER = (0, 0), (4, 3)
MOVES = ((0, -1), (0, 1), (-1, 0), (1, 0))
GRASS, BLUE, PINK, YELLOW, ORANGE = (58, 92, 62), (64, 128, 220), (240, 110, 170), (250, 210, 60), (240, 140, 40)


class Garden(gym.Env[np.ndarray, int]):
    """Walk on a 5x5 lawn, fill the can at the well, and water the flower: +1 with a full can, -1 with an empty one.

    Observations are the position (column, row). Actions: up, down, left, right, fill, water. Filling works at the well
    alone, watering at the flower alone, where it ends the episode.
    """

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 4}
        self.observation_space = gym.spaces.Box(0, 1, (2, SIZE), np.float32)
        self.action_space = gym.spaces.Discrete(6)
        self.place, self.full, self.taken = (0, 0), False, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Start anywhere, with an empty can."""
        super().reset(seed=seed)
        column, row = self.np_random.integers(SIZE, size=2)
        self.place, self.full, self.taken = (int(column), int(row)), False, 0
        return self.observed(), {"filled": False}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """``filled`` in the info is the truth that credit is compared with."""
        self.taken += 1
        filled = action == 4 and self.place == WELL and not self.full
        watered = action == 5 and self.place == FLOWER
        reward = (1.0 if self.full else -1.0) if watered else 0.0
        if action < 4:
            column, row = (min(max(at + by, 0), SIZE - 1) for at, by in zip(self.place, MOVES[action], strict=True))
            self.place = (column, row)
        self.full = self.full or filled
        return self.observed(), reward, watered, self.taken >= MOST_STEPS, {"filled": filled}

    def observed(self) -> np.ndarray:
        """The column and the row, one-hot."""
        seen = np.zeros((2, SIZE), np.float32)
        seen[[0, 1], self.place] = 1.0
        return seen

    def render(self) -> np.ndarray:
        """The lawn from above; a full can makes the gardener orange."""
        lawn = np.full((SIZE, SIZE, 3), GRASS, np.uint8)
        for (column, row), colour in ((WELL, BLUE), (FLOWER, PINK), (self.place, ORANGE if self.full else YELLOW)):
            lawn[row, column] = colour
        picture = lawn.repeat(PIXELS, 0).repeat(PIXELS, 1)
        picture[::PIXELS] = picture[:, ::PIXELS] = 30
        return picture
