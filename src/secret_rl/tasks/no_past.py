"""Tasks whose present decides every reward: a method that finds causes here invents them. Random play."""

from functools import partial
from typing import Any

import gymnasium as gym
from minigrid.wrappers import FullyObsWrapper, ImgObsWrapper

from secret_rl.tasks.task import Data, Task, play_unmarked


def _played(env_id: str, success_share: float | None, episodes: int, seed: int) -> Data:
    env = gym.make(env_id, disable_env_checker=True)
    return play_unmarked(env, episodes, seed, success_share=success_share)


def _empty(episodes: int, seed: int) -> Data:
    env: gym.Env[Any, Any] = gym.make("MiniGrid-Empty-5x5-v0", disable_env_checker=True)
    return play_unmarked(ImgObsWrapper(FullyObsWrapper(env)), episodes, seed, steps=50)


TASKS = [
    Task(
        name="cart_pole",
        source="gymnasium, CartPole-v1",
        description="Every step pays 1.",
        make=partial(_played, "CartPole-v1", None),
        episodes=2_500,
        past_matters=False,
    ),
    Task(
        name="frozen_lake",
        source="gymnasium, FrozenLake-v1 (slippery)",
        description="Stepping on the goal pays; the state is seen whole, and the ice adds chance.",
        make=partial(_played, "FrozenLake-v1", 0.1),  # random play gets there once in a hundred times
        episodes=2_500,
        past_matters=False,
    ),
    Task(
        name="empty_room",
        source="minigrid, MiniGrid-Empty-5x5-v0, whole map in view",
        description="Stepping on the goal pays; the map with the agent on it is seen whole.",
        make=_empty,
        episodes=1_000,
        past_matters=False,
    ),
]
