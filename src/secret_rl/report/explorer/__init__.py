"""The credit explorer: trajectories, their rewards and the steps that earned them, as one self-contained HTML file."""

from secret_rl.report.explorer.build import Explored, explore

__all__ = ["Explored", "explore"]
