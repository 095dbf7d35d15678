"""Online SECRET: credit learned from an agent's own episodes while it learns, with no source data at all.

It has not made learning faster on the average yet. ``secret_rl.sb3`` has the callback for agents of Stable-Baselines3.
"""

from secret_rl.experimental.online import OnlineLearning, OnlineSecret, Refit, learn_online

__all__ = ["OnlineLearning", "OnlineSecret", "Refit", "learn_online"]
