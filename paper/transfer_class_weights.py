"""Learning with credit from different weights in the loss (appendix B.2)."""

from dataclasses import replace

from paper import class_weights
from paper.transfer_runs import Transfer, TransferResult, make, quickly, run
from secret_rl.sweep import Workers

__all__ = ["main", "result", "run"]


def result(quick: bool) -> TransferResult:
    """The credit models of the table of the same name, one seed each."""
    panels = [
        Transfer(
            "residual weights" if cell.class_weights is None else f"w(0) = {cell.label}",
            replace(cell, targets={}), 3, 1, models=1,
        )
        for cell in class_weights.result(quick).cells
    ]  # fmt: skip
    return TransferResult(
        name="transfer_class_weights-quick" if quick else "transfer_class_weights",
        title="Influence of the weights in the loss on learning (8x8 3T1P)",
        panels=quickly(panels, quick),
        note="One credit model per panel; its quality, over several seeds, is in [class_weights.md](class_weights.md).",
    )


def main(quick: bool, command: str, analyse_only: bool = False, *, workers: Workers | None = None) -> list[str]:
    """Run, and write the table and the figure."""
    return make(result(quick), command, analyse_only, workers)
