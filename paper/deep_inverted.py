"""Transfer to inverted controls with deep Q-networks, weight transfer beside credit (figure 6)."""

from paper.deep_runs import Condition, Deep, DeepResult, make, quickly, run
from paper.scenarios import credit_of
from secret_rl.sweep import Workers

__all__ = ["main", "result", "run"]

REPLAY = {"priority": 0.25}
CONDITIONS = (
    Condition("from scratch"),
    Condition("weight transfer", transferred=True),
    Condition("paper", "paper"),
    Condition("OnlineCredit", "OnlineCredit"),
    Condition("value", "value"),
    Condition("pending, adapted", "pending, adapted"),
    Condition("pending, adapted, learned", "learned, adapted"),
    Condition("from scratch, rewarded replay", None, REPLAY),
    Condition("value, credited replay", "value", REPLAY),
    Condition("pending, adapted, credited replay", "pending, adapted", REPLAY),
)
OTHER_WAYS = (
    Condition("credited replay alone", "pending, adapted", {**REPLAY, "shaping": False}),
    Condition("values start from the potential", "pending, adapted", {"start_from_potential": True, "shaping": False}),
    Condition("bootstrapped from the potential", "pending, adapted", {"bootstrap": 0.5, "shaping": False}),
    Condition("fading bonus", "pending, adapted", {"bonus": 0.5, "shaping": False}),
)


def result(quick: bool) -> DeepResult:
    """The paper's agent, and in 1T1P (but for a quick look) the other ways to spend the same credit."""
    first = CONDITIONS if quick else (*CONDITIONS, *OTHER_WAYS)
    panels = [
        Deep(f"8x8 {scenario}", credit_of(scenario, quick), 1, prizes, True, conditions, 100_000)
        for scenario, prizes, conditions in (("1T1P", 1, first), ("1T2P", 2, CONDITIONS))
    ]
    return DeepResult(
        name="deep_inverted-quick" if quick else "deep_inverted",
        title="Transfer to inverted controls with deep Q-networks",
        panels=quickly(panels, quick),
        note=(
            "The paper's DQN, as a batch of learners, sees the whole maze, the credit model the 3x3 cells around the "
            "agent. Weights come from agents trained in 64 mazes with ordinary controls. Credited replay: a quarter of "
            "each batch is drawn among transitions that raised the potential or were rewarded; rewarded replay: the "
            "same without a potential. The fading bonus is not policy-invariant until it is gone, after 100,000 steps. "
            "The steps of training, the discount of 0.9 and the share of credited replay were chosen in other mazes."
        ),
    )


def main(quick: bool, command: str, analyse_only: bool = False, *, workers: Workers | None = None) -> list[str]:
    """Run, and write the table and the figure."""
    return make(result(quick), command, analyse_only, workers)
