"""POPGym's card games of memory (Morad et al., 2023): random play, a reward of either sign at every step."""

import gymnasium as gym
import numpy as np
import popgym  # noqa: F401  registers the environments

from secret_rl.tasks.task import Data, Task, play_unmarked, step_numbers

_BACK = 3  # RepeatPreviousEasy's k is 4, where k = 1 is the card in view


def _repeat_first(episodes: int, seed: int) -> Data:
    data = _played("popgym-RepeatFirstEasy-v0", episodes, seed)
    within = step_numbers(data.trajectories)
    return Data(data.trajectories, np.where(within > 0, 0, -1))  # the first reward is due to the card in view


def _repeat_previous(episodes: int, seed: int) -> Data:
    data = _played("popgym-RepeatPreviousEasy-v0", episodes, seed)
    within = step_numbers(data.trajectories)
    return Data(data.trajectories, np.where(within >= _BACK, within - _BACK, -1))  # before that there is no reward


def _played(env_id: str, episodes: int, seed: int) -> Data:
    return play_unmarked(gym.make(env_id, disable_env_checker=True), episodes, seed)


TASKS = [
    Task(
        name="repeat_first",
        source="popgym 1.0.7, popgym-RepeatFirstEasy-v0",
        description="A step pays if its action names the suit of the first card, else it costs.",
        make=_repeat_first,
        episodes=2_000,
    ),
    Task(
        name="repeat_previous",
        source="popgym 1.0.7, popgym-RepeatPreviousEasy-v0",
        description="A step pays if its action names the suit seen three steps ago, else it costs.",
        make=_repeat_previous,
        episodes=2_000,
    ),
]
