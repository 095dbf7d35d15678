"""Key-to-Door in the style of Hung et al. (2019): a key, then a room of apples, then a door that pays with the key.

Apples pay at once, and as they are many, they make up most of the return: hard for methods that explain returns.
"""

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from secret_rl.tasks.task import Data, Marked, Task, last_marked, play

_SIZE = 4  # cells of a room's side
_PHASES = (12, 16, 8)  # steps in the room of the key, of the apples, of the door
_APPLES = 5
_MOVES = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])
_WALL, _KEY, _APPLE, _DOOR = range(4)
_DOOR_PAYS, _APPLE_PAYS = 5.0, 1.0
View = NDArray[np.uint8]


class KeyToDoor(gym.Env[View, np.int64]):
    """Three rooms, one after the other: each has its time, then the agent is set down in the next.

    Seen: the 3x3 cells around the agent, as channels (wall, key, apple, door). What it carries is not seen. The last
    room's door ends the episode and pays 5 with the key, else nothing; an apple pays ``apple_pays``.
    """

    metadata = {"render_modes": []}  # noqa: RUF012  as Gymnasium has it

    def __init__(self, apple_pays: float = _APPLE_PAYS) -> None:
        self.apple_pays = apple_pays
        self.observation_space = gym.spaces.Box(0, 1, (3, 3, 4), np.uint8)
        self.action_space = gym.spaces.Discrete(4)
        self.at: NDArray[np.int64] = np.zeros(2, np.int64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[View, dict[str, Any]]:
        """The first room."""
        super().reset(seed=seed, options=options)
        self.steps, self.phase, self.has_key = 0, 0, False
        self._enter()
        return self._seen(), {}

    def step(self, action: Any) -> tuple[View, float, bool, bool, dict[str, Any]]:
        """Move one cell, or stay where a wall is; what lies there is taken."""
        self.at = np.clip(self.at + _MOVES[int(action)], 0, _SIZE - 1)
        cell, self.steps = self.room[tuple(self.at)], self.steps + 1
        reward, opened = 0.0, bool(cell[_DOOR])
        if cell[_KEY]:
            self.has_key = True
        if cell[_APPLE]:
            reward = self.apple_pays
        if opened and self.has_key:
            reward = _DOOR_PAYS
        cell[:] = 0
        over = self.steps == sum(_PHASES)
        if self.steps == sum(_PHASES[: self.phase + 1]) and not over:
            self.phase += 1
            self._enter()
        return self._seen(), reward, opened, over and not opened, {}

    def _enter(self) -> None:
        """Things and the agent at random places of a new room."""
        thing, count = ((_KEY, 1), (_APPLE, _APPLES), (_DOOR, 1))[self.phase]
        places = self.np_random.choice(_SIZE**2, 1 + count, replace=False)
        self.room = np.zeros((_SIZE, _SIZE, 4), np.uint8)
        self.room.reshape(-1, 4)[places[1:], thing] = 1
        self.at = np.array(divmod(int(places[0]), _SIZE))

    def _seen(self) -> View:
        walled = np.zeros((_SIZE + 2, _SIZE + 2, 4), np.uint8)
        walled[..., _WALL] = 1
        walled[1:-1, 1:-1] = self.room
        row, column = self.at
        return walled[row : row + 3, column : column + 3].copy()


class KeyTaken(Marked):
    """Marks the step that takes the key."""

    def begin(self) -> None:
        """Empty hands."""
        self._had = False

    def marks(self, seen: Any, action: Any) -> bool:  # noqa: ARG002
        """Whether the key is carried since this step."""
        world: Any = self.unwrapped
        before, self._had = self._had, world.has_key
        return world.has_key and not before


def _make(apple_pays: float, episodes: int, seed: int) -> Data:
    data = play(KeyTaken(KeyToDoor(apple_pays)), episodes, seed)
    opened = np.asarray(data.trajectories.rewards) == _DOOR_PAYS
    return Data(data.trajectories, np.where(opened, last_marked(data.trajectories, data.causes()), -1))


TASKS = [
    Task(
        name="key_to_door",
        source="rules in the style of Hung et al. (2019), without rewards between",
        description="The door of the last room pays 5 if the key of the first was taken.",
        make=partial(_make, 0.0),
        episodes=4_000,
        judged="positive",
    ),
    Task(
        name="key_to_door_apples",
        source="rules in the style of Hung et al. (2019), with apples that pay 1",
        description="The door of the last room pays 5 if the key of the first was taken; apples between pay 1.",
        make=partial(_make, _APPLE_PAYS),
        episodes=4_000,
        judged="positive",
    ),
]
