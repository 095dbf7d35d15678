"""A potential learned over observations beside the table over states: no state key (the paper's own limitation)."""

from paper.scenarios import credit_of
from paper.transfer_runs import LEARNED, Transfer, TransferResult, make, quickly, run
from secret_rl.sweep import Workers

__all__ = ["main", "result", "run"]


def result(quick: bool) -> TransferResult:
    """The same target trajectories and the same credit, for both."""
    panels = [
        Transfer(
            f"8x8 1T1P, {count:,} trajectories", credit_of("1T1P", quick), 1, 1, window=None, credit_view=True,
            target_trajectories=count, episodes=400, models=1, conditions=("none", "value", "pending", LEARNED),
        )
        for count in (1_000, 100)
    ]  # fmt: skip
    return TransferResult(
        name="transfer_learned-quick" if quick else "transfer_learned",
        title="A potential learned over observations",
        panels=quickly(panels, quick),
        note=(
            "Tabular Q-learning. *pending* looks up the state of the maze, a key made by hand; *learned pending* is a "
            "small network regressed on the same credit over images of the whole maze. One credit model."
        ),
    )


def main(quick: bool, command: str, analyse_only: bool = False, *, workers: Workers | None = None) -> list[str]:
    """Run, and write the table and the figure."""
    return make(result(quick), command, analyse_only, workers)
