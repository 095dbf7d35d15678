"""Spaces, views that fit them, and an environment that shows random observations."""

import gymnasium as gym
import numpy as np
from gymnasium.utils.env_checker import data_equivalence

from secret_rl.trajectories.nested import map_arrays
from secret_rl.views import CropView, DropView, MaskView

IMAGE = gym.spaces.Box(0, 9, (7, 7, 3), np.uint8)
BAG = gym.spaces.Dict({"key": gym.spaces.Discrete(2), "weight": gym.spaces.Box(-1, 1, (4,), np.float32)})
ROOM = gym.spaces.Dict([("image", IMAGE), ("direction", gym.spaces.Discrete(4)), ("bag", BAG)])
IMAGE_VIEWS = [
    (CropView(3),),
    (CropView(7),),
    (MaskView(((3, 4), (6, 7))),),
    (MaskView(((0, 2),), value=4), MaskView(((0, 7), (0, 7), (1, 3)), value=2)),
    (CropView(5), MaskView(((2, 3), (2, 3))), CropView(1)),
]
DICT_VIEWS = [
    (MaskView(((3, 4), (6, 7)), 1, key="image"), DropView(("direction",))),
    (DropView(("weight",), key="bag"), CropView(1, "image")),
    (DropView(("direction", "bag"), squeeze=True), CropView(5)),
    (DropView(("key",), squeeze=True, key="bag"), MaskView(((1, 3),), 0.25, key="bag")),
]
CASES = [(IMAGE, views) for views in IMAGE_VIEWS] + [(ROOM, views) for views in DICT_VIEWS]


class Room(gym.Env):
    """Random observations of a space, in episodes of 2 to 5 steps."""

    metadata = {"render_modes": [], "annotations": ["luck"]}  # noqa: RUF012  as Gymnasium has it

    def __init__(self, observation_space=ROOM):
        self.observation_space = observation_space
        self.action_space = gym.spaces.Discrete(3)

    def _look(self):
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        return self.observation_space.sample(), {"state": self._left, "luck": float(self.np_random.random())}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._left = int(self.np_random.integers(2, 6))
        return self._look()

    def step(self, action):
        self._left -= 1
        observation, info = self._look()
        return observation, float(action), self._left == 0, False, info


def blind(observation, rng):
    """Plays the same whatever it sees."""
    return int(rng.integers(3))


def row(nest, i):
    return map_arrays(lambda array: array[i], nest)


def assert_same(mine, theirs):
    """The same types, keys, dtypes and numbers."""
    assert data_equivalence(mine, theirs, exact=True)
