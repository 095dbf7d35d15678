"""Online SECRET: credit learned from an agent's own episodes while it learns, with no source data at all.

The callback for agents of Stable-Baselines3 is in ``secret_rl.online.sb3``.
"""

from secret_rl.online.secret import OnlineSecret, Refit
from secret_rl.online.tabular import OnlineLearning, learn_online

__all__ = ["OnlineLearning", "OnlineSecret", "Refit", "learn_online"]
