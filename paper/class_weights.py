"""Influence of the weights of steps in the loss: ours, and the paper's by w(0) (appendix B.2)."""

from paper.credit_runs import Cell, Result, figure, run, table
from paper.scenarios import held_out, options, source
from secret_rl.sweep import Workers

ZERO_WEIGHTS = {"1.0": 1.0, "0.1": 0.1, "0.01": 0.01, "0.001": 0.001}
PRINTED = {
    "1.0": {"accuracy": "0.72 ± 0.15", "precision": "0.83 ± 0.34", "recall": "0.59 ± 0.27"},
    "0.1": {"accuracy": "0.72 ± 0.09", "precision": "1.0 ± 0.", "recall": "0.89 ± 0.05"},
    "0.01": {"accuracy": "0.68 ± 0.09", "precision": "1.0 ± 0.", "recall": "0.93 ± 0.05"},
    "0.001": {"accuracy": "0.65 ± 0.04", "precision": "1.0 ± 0.", "recall": "0.95 ± 0.03"},
}


def result(quick: bool) -> Result:
    """The library's weights, and the settings of the paper, w(1) = w(-1) = 1, with the printed numbers."""
    weights = {"residual": None, **{label: (1.0, zero, 1.0) for label, zero in ZERO_WEIGHTS.items()}}
    return Result(
        name="class_weights-quick" if quick else "class_weights",
        title="Influence of the weights in the loss (3T1P)",
        cells=[
            Cell(
                label,
                source("3T1P", quick),
                {"same distribution": held_out("3T1P", quick)},
                options(quick),
                class_weights=by_sign,
            )
            for label, by_sign in weights.items()
        ],
        seeds=1 if quick else 5,
        printed=PRINTED,
        note="*residual*: the error of a predictor without memory, the default. Numbers: w(0), with w(1) = w(-1) = 1.",
    )


def main(quick: bool, command: str, analyse_only: bool = False, *, workers: Workers | None = None) -> list[str]:
    """Run and write the table and the figure."""
    this = result(quick)
    if not analyse_only:
        run(this, command, workers)
    return [str(table(this)), str(figure(this, xlabel="weights: residual, or w(0)"))]
