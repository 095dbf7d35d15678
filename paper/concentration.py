"""Attention around switches: in-domain, in bigger mazes, with inverted controls (figures 3 and 8)."""

from paper.credit_runs import Cell, Result, concentration_figure, run, table
from paper.scenarios import held_out, options, source
from secret_rl.sweep import Workers


def result(quick: bool) -> Result:
    """One model, learned in 8x8 3T1P, judged in three distributions; the paper prints only the pictures."""
    targets = {
        "in-domain 8x8": held_out("3T1P", quick),
        "bigger 12x12": held_out("3T1P", quick, size=12),
        "inverted controls 8x8": held_out("3T1P", quick, inverted=True),
    }
    return Result(
        name="concentration-quick" if quick else "concentration",
        title="Attention around switches",
        cells=[Cell("3T1P", source("3T1P", quick), targets, options(quick))],
        seeds=1 if quick else 5,
        note=(
            "The paper shows similar peaks in all three. With inverted controls, a model that reads observations and "
            "actions together reads them wrongly: that row says so."
        ),
    )


def main(quick: bool, command: str, analyse_only: bool = False, *, workers: Workers | None = None) -> list[str]:
    """Run and write the table and the figure."""
    this = result(quick)
    if not analyse_only:
        run(this, command, workers)
    return [str(table(this)), str(concentration_figure(this))]
