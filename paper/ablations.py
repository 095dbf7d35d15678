"""Each departure from the paper undone, one at a time, in mazes kept for design (DEVIATIONS.md)."""

from typing import Any

from paper.credit_runs import Cell, Result, run, table
from paper.scenarios import DEVELOPMENT_SEED, DEVELOPMENT_SOURCE_SEED, held_out, options, source
from secret_rl.sweep import Workers

# What is undone: the options of the model, and the variant of it.
UNDONE: dict[str, tuple[dict[str, Any], str | None]] = {
    "nothing": ({}, None),
    "residual weights": ({"weights": "paper"}, None),
    "dense layer over observation and action": ({}, "additive"),
    "first steps marked": ({}, "no first mark"),
    "sink, and no attention to the own step": ({}, "no sink"),
    "no attention to the own step": ({}, "own step"),
    "gate": ({}, "no gate"),
    "steps hidden at random": ({"dropout_steps": 0.0}, None),
    "keys start as queries": ({}, "own keys"),
    "value projection started 5 times larger": ({}, "plain values"),
    "price on looking": ({"attention_penalty": 0.0}, None),
}
EPISODES = 5_000  # few enough for departures to matter


def result(quick: bool) -> Result:
    """3T1P with few source trajectories."""
    seeds = {"seed": DEVELOPMENT_SOURCE_SEED}
    return Result(
        name="ablations-quick" if quick else "ablations",
        title="Each departure from the paper undone (3T1P)",
        cells=[
            Cell(
                undone,
                source("3T1P", quick, **seeds),
                {"for design": held_out("3T1P", quick, seed=DEVELOPMENT_SEED)},
                options(quick, **changes),
                episodes=None if quick else EPISODES,
                variant=variant,
            )
            for undone, (changes, variant) in (list(UNDONE.items())[:2] if quick else UNDONE.items())
        ],
        seeds=1 if quick else 3,
        note=(
            f"What is undone, with {EPISODES:,} source trajectories. These mazes served to choose the design; no other "
            "table uses them."
        ),
    )


def main(quick: bool, command: str, analyse_only: bool = False, *, workers: Workers | None = None) -> list[str]:
    """Run and write the table."""
    this = result(quick)
    if not analyse_only:
        run(this, command, workers)
    return [str(table(this))]
