"""Triggers: activate every switch, then collect the prizes (paper, section 3)."""

from secret_rl.envs.triggers.env import TriggersEnv, TriggersVectorEnv
from secret_rl.envs.triggers.mazes import MazeContents, RandomEpisodes
from secret_rl.envs.triggers.rules import TriggersOptions

__all__ = ["MazeContents", "RandomEpisodes", "TriggersEnv", "TriggersOptions", "TriggersVectorEnv"]
