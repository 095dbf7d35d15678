"""The credit explorer: trajectories, their rewards and who earned them, as one HTML file that needs nothing else."""

from secret_rl.report.explorer.making import Explored, explore

__all__ = ["Explored", "explore"]
