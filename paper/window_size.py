"""Influence of the window that hides the state (appendix B.1)."""

from paper.credit_runs import Cell, Result, figure, run, table
from paper.scenarios import held_out, options, source
from secret_rl.sweep import Workers

WINDOWS = {"3x3": 3, "5x5": 5, "7x7": 7, "full state": None}
PRINTED = {
    "3x3": {"accuracy": "0.67 ± 0.06", "precision": "1.0 ± 0.", "recall": "1.0 ± 0."},
    "5x5": {"accuracy": "0.92 ± 0.02", "precision": "0.57 ± 0.04", "recall": "0.38 ± 0.03"},
    "7x7": {"accuracy": "0.75 ± 0.12", "precision": "0.07 ± 0.04", "recall": "0.03 ± 0.02"},
    "full state": {"accuracy": "0.76 ± 0.14", "precision": "0.10 ± 0.05", "recall": "0.02 ± 0.02"},
}


def result(quick: bool) -> Result:
    """The settings and the printed numbers."""
    changes = {} if quick else {"steps": 2000}
    return Result(
        name="window_size-quick" if quick else "window_size",
        title="Influence of the window size (3T1P)",
        cells=[
            Cell(
                label,
                source("3T1P", quick, episodes=20_000, window=window),
                {"same distribution": held_out("3T1P", quick, window=window)},
                options(quick, **changes),
            )
            for label, window in WINDOWS.items()
        ],
        seeds=1 if quick else 2,
        printed=PRINTED,
        note=(
            "The more of the state is observed, the better the current step gives the reward away and the less "
            "attention is credit. 20,000 source trajectories and 2,000 updates each."
        ),
    )


def main(quick: bool, command: str, analyse_only: bool = False, *, workers: Workers | None = None) -> list[str]:
    """Run and write the table and the figure."""
    this = result(quick)
    if not analyse_only:
        run(this, command, workers)
    return [str(table(this)), str(figure(this, xlabel="window"))]
