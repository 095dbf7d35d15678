"""In-domain transfer with deep Q-networks: three switches, no target trajectory."""

from paper.deep_runs import Condition, Deep, DeepResult, make, quickly, run
from paper.scenarios import credit_of
from secret_rl.sweep import Workers

__all__ = ["main", "result", "run"]

REPLAY = {"priority": 0.25}
CONDITIONS = (
    Condition("none"),
    Condition("none, rewarded replay", None, REPLAY),
    Condition("value", "value"),
    Condition("value, credited replay", "value", REPLAY),
    Condition("OnlineCredit", "OnlineCredit"),
    Condition("OnlineCredit, credited replay", "OnlineCredit", REPLAY),
    Condition("fading bonus", "OnlineCredit", {"bonus": 0.3, "shaping": False, "fade_steps": 150_000}),
)


def result(quick: bool) -> DeepResult:
    """OnlineCredit beside none, and beside the value of 1,000 target trajectories."""
    panels = [Deep("8x8 3T1P", credit_of("3T1P", quick), 3, 1, False, CONDITIONS, 200_000)]
    return DeepResult(
        name="deep_in_domain-quick" if quick else "deep_in_domain",
        title="In-domain transfer with deep Q-networks",
        panels=quickly(panels, quick),
        note=(
            "The paper's DQN in held-out mazes with three switches. Credited replay: a quarter of each batch is drawn "
            "among transitions that raised the potential or were rewarded. The fading bonus is not policy-invariant "
            "until it is gone, after 150,000 steps."
        ),
    )


def main(quick: bool, command: str, analyse_only: bool = False, *, workers: Workers | None = None) -> list[str]:
    """Run, and write the table and the figure."""
    return make(result(quick), command, analyse_only, workers)
