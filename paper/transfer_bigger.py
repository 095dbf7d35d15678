"""Transfer to bigger mazes: from 8x8 to 12x12 (figure 5)."""

from paper.scenarios import credit_of
from paper.transfer_runs import Transfer, TransferResult, make, quickly, run
from secret_rl.sweep import Workers

__all__ = ["main", "result", "run"]


def result(quick: bool) -> TransferResult:
    """The paper's 1T1P and 1T2P, and 3T1P, which no agent without shaping learns in this time."""
    panels = [
        Transfer("12x12 1T1P", credit_of("1T1P", quick), 1, 1, size=12, episodes=400),
        Transfer("12x12 1T2P", credit_of("1T2P", quick), 1, 2, size=12, episodes=400),
        Transfer("12x12 3T1P", credit_of("3T1P", quick), 3, 1, size=12, episodes=1_600),
    ]
    return TransferResult(
        name="transfer_bigger-quick" if quick else "transfer_bigger",
        title="Transfer to bigger mazes",
        panels=quickly(panels, quick),
        note="Tabular Q-learning in 12x12 mazes, credit from 40,000 trajectories in 8x8 mazes.",
    )


def main(quick: bool, command: str, analyse_only: bool = False, *, workers: Workers | None = None) -> list[str]:
    """Run, and write the table and the figure."""
    return make(result(quick), command, analyse_only, workers)
