"""In-domain transfer: held-out mazes of the source's own kind (figure 4)."""

from paper.scenarios import credit_of
from paper.transfer_runs import Transfer, TransferResult, make, quickly, run
from secret_rl.sweep import Workers

__all__ = ["main", "result", "run"]


def result(quick: bool) -> TransferResult:
    """The paper's 8x8 3T1P, and 1T1P with few target trajectories."""
    panels = [
        Transfer("8x8 3T1P", credit_of("3T1P", quick), 3, 1),
        Transfer(
            "8x8 1T1P, 100 trajectories",
            credit_of("1T1P", quick),
            1,
            1,
            target_trajectories=100,
            episodes=400,
            mazes=128,  # in 32 a difference of 0.02, which other mazes had led to expect, is lost in the noise
        ),
    ]
    return TransferResult(
        name="transfer_in_domain-quick" if quick else "transfer_in_domain",
        title="In-domain transfer",
        panels=quickly(panels, quick),
        note="Tabular Q-learning in held-out mazes, credit from 40,000 trajectories in other mazes of the same kind.",
    )


def main(quick: bool, command: str, analyse_only: bool = False, *, workers: Workers | None = None) -> list[str]:
    """Run, and write the table and the figure."""
    return make(result(quick), command, analyse_only, workers)
