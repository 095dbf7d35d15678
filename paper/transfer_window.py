"""Learning with credit from windows of different sizes (appendix B.1)."""

from dataclasses import replace

from paper import window_size
from paper.transfer_runs import Transfer, TransferResult, make, quickly, run
from secret_rl.sweep import Workers

__all__ = ["main", "result", "run"]


def result(quick: bool) -> TransferResult:
    """The credit models of the table of the same name, one seed each."""
    panels = [
        Transfer(
            f"{cell.label} window" if cell.source.window else cell.label,
            replace(cell, targets={}), 3, 1, window=cell.source.window, models=1,
        )
        for cell in window_size.result(quick).cells
    ]  # fmt: skip
    return TransferResult(
        name="transfer_window-quick" if quick else "transfer_window",
        title="Influence of the window size on learning (8x8 3T1P)",
        panels=quickly(panels, quick),
        note="One credit model per panel; its quality, over several seeds, is in [window_size.md](window_size.md).",
    )


def main(quick: bool, command: str, analyse_only: bool = False, *, workers: Workers | None = None) -> list[str]:
    """Run, and write the table and the figure."""
    return make(result(quick), command, analyse_only, workers)
