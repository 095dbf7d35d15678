"""Agents that learn, and what they gained meanwhile: tabular Q-learning, compiled where a task is given as arrays.

Deep agents are in ``secret_rl.sb3`` (Stable-Baselines3).
"""

from secret_rl.agents.q_learning import LearningCurve, QLearning, TabularAgent

__all__ = ["LearningCurve", "QLearning", "TabularAgent"]
