"""Triggers: activate every switch, then collect the prizes (paper, section 3)."""

from secret_rl.envs.triggers.env import TriggersEnv
from secret_rl.envs.triggers.mazes import MazeContents
from secret_rl.envs.triggers.options import TriggersOptions
from secret_rl.envs.triggers.vector import TriggersVectorEnv

__all__ = ["MazeContents", "TriggersEnv", "TriggersOptions", "TriggersVectorEnv"]
