"""Agents of Stable-Baselines3 that spend credit as a bonus, with the library's presets."""

from dataclasses import replace

from paper.deep_bonus import LAYOUTS
from paper.deep_runs import Condition, Deep, DeepResult, make, quickly, run
from paper.scenarios import credit_of
from secret_rl.sweep import Workers

__all__ = ["main", "result", "run"]

_CREDIT = "OnlineCredit, once"


def result(quick: bool) -> DeepResult:
    """PPO and DQN in the first mazes of ``deep_bonus``, where thousands of learners share a batch."""
    ppo = Deep(
        "PPO, 8x8 3T1P", credit_of("3T1P", quick), 3, 1, False,
        (
            Condition("none"),
            Condition("count bonus", None, {"count": 0.1}),
            Condition("credit bonus, count bonus", _CREDIT, {"bonus": 10.0, "count": 0.1}),
        ),
        500_000, mazes=4, seeds=1, first_layout=LAYOUTS, agent="PPO",
    )  # fmt: skip
    dqn = replace(
        ppo, label="DQN, 8x8 3T1P", steps=300_000, agent="DQN", mazes=3,
        conditions=(
            Condition("none"),
            Condition("credit bonus, credited replay", _CREDIT, {"bonus": 3.0, "priority": 0.25}),
            Condition("credit bonus, learns the true reward", _CREDIT, {"bonus": 3.0, "explore": True}),
        ),
    )  # fmt: skip
    return DeepResult(
        name="deep_sb3-quick" if quick else "deep_sb3",
        title="Agents of Stable-Baselines3",
        panels=quickly([ppo, dqn], quick),
        note=(
            "The presets `sb3.ppo` and `sb3.dqn`, one agent for each maze, with the bonuses of `deep_bonus` and in the "
            "first of its mazes. *Learns the true reward*: `ExploringDQN`, which the bonus steers, and whose network "
            "that is tested learns without it."
        ),
    )


def main(quick: bool, command: str, analyse_only: bool = False, *, workers: Workers | None = None) -> list[str]:
    """Run, and write the table and the figure."""
    return make(result(quick), command, analyse_only, workers)
