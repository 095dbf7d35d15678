"""Agents of Stable-Baselines3: PPO in the source's own kind of maze, DQN with inverted controls."""

from dataclasses import replace

from paper.deep_runs import Condition, Deep, DeepResult, make, quickly, run
from paper.scenarios import credit_of

__all__ = ["main", "result", "run"]


def result(quick: bool) -> DeepResult:
    """PPO with OnlineCredit, and DQN as the batched learners of the other results are."""
    ppo = Deep(
        "8x8 3T1P, PPO", credit_of("3T1P", quick), 3, 1, False,
        (Condition("none"), Condition("OnlineCredit", "OnlineCredit", scale=1.0)), 200_000,
        mazes=8, seeds=1, agent="PPO",
    )  # fmt: skip
    credited = Condition("pending, adapted, credited replay", "pending, adapted", {"priority": 0.25})
    dqn = replace(
        ppo, label="8x8 1T1P inverted, DQN", source=credit_of("1T1P", quick), triggers=1, inverted=True,
        conditions=(Condition("from scratch"), credited), steps=100_000, agent="DQN",
    )  # fmt: skip
    return DeepResult(
        name="deep_sb3-quick" if quick else "deep_sb3",
        title="Agents of Stable-Baselines3",
        panels=quickly([ppo, dqn], quick),
        note="One agent for each maze. PPO's options and the scale of OnlineCredit (1) were chosen in one other maze.",
    )


def main(quick: bool, command: str, analyse_only: bool = False) -> list[str]:
    """Run, and write the table and the figure."""
    return make(result(quick), command, analyse_only)
