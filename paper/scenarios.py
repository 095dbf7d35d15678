"""The mazes of the paper's credit results, one place for all: sources, held-out targets, quick sizes."""

from dataclasses import replace
from typing import Any

from paper.credit_runs import Cell, Mazes

# Triggers, prizes, and the share of successful trajectories ("a certain proportion", section 2.1): random play is
# enough but for three triggers, where 0.2 % of the episodes succeed.
SCENARIOS: dict[str, tuple[int, int, float | None]] = {
    "1T1P": (1, 1, None),
    "1T2P": (1, 2, None),
    "2T2P": (2, 2, None),
    "3T1P": (3, 1, 0.25),
}
SOURCE_SEED, HELD_OUT_SEED = 1907, 8027  # first looked at when everything else was settled
DEVELOPMENT_SOURCE_SEED, DEVELOPMENT_SEED = 1, 1000  # what the design was chosen with
QUICK_OPTIONS: dict[str, Any] = {"steps": 700, "batch_size": 128, "evaluate_every": 100}


def source(scenario: str, quick: bool, episodes: int = 40_000, **changes: Any) -> Mazes:
    """Source trajectories of a scenario (appendix A: 40,000)."""
    triggers, prizes, share = SCENARIOS[scenario]
    mazes = Mazes(triggers, prizes, 5_000 if quick else episodes, SOURCE_SEED, success_share=share)
    return replace(mazes, **changes)


def held_out(scenario: str, quick: bool, **changes: Any) -> Mazes:
    """Trajectories in mazes that the model never saw (appendix A: 5,000)."""
    triggers, prizes, share = SCENARIOS[scenario]
    mazes = Mazes(triggers, prizes, 1_000 if quick else 5_000, HELD_OUT_SEED, success_share=share)
    return replace(mazes, **changes)


def options(quick: bool, **changes: Any) -> dict[str, Any]:
    """Options of the credit model: the library's defaults, or few updates."""
    return {**(QUICK_OPTIONS if quick else {}), **changes}


def credit_of(scenario: str, quick: bool) -> Cell:
    """The credit model of a scenario: the one that the credit-quality table judges."""
    return Cell(scenario, source(scenario, quick), {}, options(quick))
