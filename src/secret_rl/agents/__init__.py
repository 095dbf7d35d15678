"""Agents that learn, and what they gained while they did: tabular Q-learning, compiled where a task is known.

Deep ones are in ``secret_rl.agents.sb3`` (Stable-Baselines3) and ``secret_rl.agents.dqn`` (many learners at once).
"""

from secret_rl.agents.curves import LearningCurve
from secret_rl.agents.q_learning import QLearning
from secret_rl.agents.tabular import learn_many

__all__ = ["LearningCurve", "QLearning", "learn_many"]
