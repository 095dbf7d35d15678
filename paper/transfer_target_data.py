"""Influence of the number of target trajectories (appendix B.3)."""

from paper.scenarios import credit_of
from paper.transfer_runs import Transfer, TransferResult, make, quickly, run
from secret_rl.sweep import Workers

__all__ = ["main", "result", "run"]

AMOUNTS = (100, 500, 1_000, 2_000, 5_000, 10_000)


def result(quick: bool) -> TransferResult:
    """The paper's amounts in 8x8 3T1P."""
    panels = [
        Transfer(f"{amount:,} target trajectories", credit_of("3T1P", quick), 3, 1, target_trajectories=amount)
        for amount in ((100, 300) if quick else AMOUNTS)
    ]
    return TransferResult(
        name="transfer_target_data-quick" if quick else "transfer_target_data",
        title="Influence of the number of target trajectories (8x8 3T1P)",
        panels=[
            small if not quick else Transfer(**{**vars(small), "target_trajectories": panel.target_trajectories})
            for small, panel in zip(quickly(panels, quick), panels, strict=True)
        ],
        note="OnlineCredit uses no target trajectory, so its curve is the same in every panel.",
    )


def main(quick: bool, command: str, analyse_only: bool = False, *, workers: Workers | None = None) -> list[str]:
    """Run, and write the table and the figure."""
    return make(result(quick), command, analyse_only, workers)
