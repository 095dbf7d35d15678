"""Transfer to inverted controls, with tabular agents (figure 6)."""

from paper.scenarios import credit_of
from paper.transfer_runs import ADAPTED, CONDITIONS, Transfer, TransferResult, make, quickly, run
from secret_rl.sweep import Workers

__all__ = ["main", "result", "run"]


def result(quick: bool) -> TransferResult:
    """Credit as it is, and adapted to the rewards of the same target trajectories."""
    panels = [
        Transfer(
            f"8x8 {scenario}", credit_of(scenario, quick), 1, prizes, inverted=True, episodes=400,
            conditions=(*CONDITIONS, *ADAPTED),
        )
        for scenario, prizes in (("1T1P", 1), ("1T2P", 2))
    ]  # fmt: skip
    return TransferResult(
        name="transfer_inverted-quick" if quick else "transfer_inverted",
        title="Transfer to inverted controls",
        panels=quickly(panels, quick),
        note=(
            "Tabular Q-learning where up is down and left is right. Credit from 40,000 trajectories with ordinary "
            "controls reads observations and actions together, and so reads them wrongly here; adapted credit was "
            "fine-tuned, 300 updates, on the rewards of the target trajectories, one model per maze."
        ),
    )


def main(quick: bool, command: str, analyse_only: bool = False, *, workers: Workers | None = None) -> list[str]:
    """Run, and write the table and the figure."""
    return make(result(quick), command, analyse_only, workers)
