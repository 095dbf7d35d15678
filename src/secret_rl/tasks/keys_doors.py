"""Keys and doors in 3D: scripted play in maps of two by two rooms, a new one each episode."""

from dataclasses import replace
from functools import partial
from typing import Any

from secret_rl.envs import KEYS_DOORS_ID
from secret_rl.envs.keys_doors import Wanderer, door_causes
from secret_rl.tasks.task import Data, Task
from secret_rl.trajectories import collect

_WORLD: dict[str, Any] = {"preset": "2x2-easy", "core": 2, "size": (40, 30)}
_ASTRAY = 0.03  # now and then random actions, as those of an agent that learns


def _make(episodes: int, seed: int) -> Data:
    policy = partial(Wanderer, astray=_ASTRAY)
    data = collect(KEYS_DOORS_ID, episodes, policy, seed, env_options=_WORLD, progress=False)
    return Data(replace(data, annotations={}), door_causes(data))


TASKS = [
    Task(
        name="keys_doors",
        source="secret_rl/KeysDoors-v0, 2x2 rooms, two doors, pictures of 40x30",
        description="A door pays 1 if the key of its colour was taken; the view shows no key that is carried.",
        make=_make,
        episodes=6_400,
        quick=150,
        tolerance=5,
        judged="positive",
        costly=True,
    )
]
