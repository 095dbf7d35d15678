"""Learning with credit from different numbers of source trajectories (appendix B.3)."""

from dataclasses import replace

from paper import source_data
from paper.transfer_runs import Transfer, TransferResult, make, quickly, run
from secret_rl.sweep import Workers

__all__ = ["main", "result", "run"]


def result(quick: bool) -> TransferResult:
    """The credit models of the table of the same name, one seed each."""
    panels = [
        Transfer(
            f"{cell.label} source trajectories",
            replace(cell, targets={}), 3, 1, models=1,
        )
        for cell in source_data.result(quick).cells
    ]  # fmt: skip
    return TransferResult(
        name="transfer_source_data-quick" if quick else "transfer_source_data",
        title="Influence of the number of source trajectories on learning (8x8 3T1P)",
        panels=quickly(panels, quick),
        note="One credit model per panel; its quality, over several seeds, is in [source_data.md](source_data.md).",
    )


def main(quick: bool, command: str, analyse_only: bool = False, *, workers: Workers | None = None) -> list[str]:
    """Run, and write the table and the figure."""
    return make(result(quick), command, analyse_only, workers)
