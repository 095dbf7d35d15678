"""Influence of the number of source trajectories (appendix B.3)."""

from paper.credit_runs import Cell, Result, figure, run, table
from paper.scenarios import held_out, options, source
from secret_rl.sweep import Workers

AMOUNTS = (500, 1_000, 5_000, 10_000, 25_000, 50_000)
PRINTED = {
    "500": {"accuracy": "0.53 ± 0.11", "precision": "0.23 ± 0.37", "recall": "0.09 ± 0.2"},
    "1,000": {"accuracy": "0.65 ± 0.07", "precision": "0.49 ± 0.33", "recall": "0.52 ± 0.42"},
    "5,000": {"accuracy": "0.79 ± 0.08", "precision": "0.9 ± 0.30", "recall": "0.9 ± 0.30"},
    "10,000": {"accuracy": "0.84 ± 0.07", "precision": "0.9 ± 0.30", "recall": "0.9 ± 0.30"},
    "25,000": {"accuracy": "0.88 ± 0.09", "precision": "0.9 ± 0.30", "recall": "0.9 ± 0.30"},
    "50,000": {"accuracy": "0.83 ± 0.11", "precision": "0.8 ± 0.4", "recall": "0.8 ± 0.4"},
}


def result(quick: bool) -> Result:
    """The settings and the printed numbers."""
    amounts = (500, 1_000, 5_000) if quick else AMOUNTS
    return Result(
        name="source_data-quick" if quick else "source_data",
        title="Influence of the number of source trajectories (3T1P)",
        cells=[
            Cell(
                f"{amount:,}",
                source("3T1P", quick, episodes=50_000),
                {"same distribution": held_out("3T1P", quick)},
                options(quick),
                episodes=amount,
            )
            for amount in amounts
        ],
        seeds=1 if quick else 5,
        printed=PRINTED,
        note="25 % of the trajectories succeed, at every amount.",
    )


def main(quick: bool, command: str, analyse_only: bool = False, *, workers: Workers | None = None) -> list[str]:
    """Run and write the table and the figure."""
    this = result(quick)
    if not analyse_only:
        run(this, command, workers)
    return [str(table(this)), str(figure(this, xlabel="source trajectories"))]
