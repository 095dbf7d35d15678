"""Credit in a third set of small tasks, by someone who did not know the method: first fits with settled defaults."""

from typing import Any

from paper.beyond_triggers import Result, run, table
from paper.tasks.unseen_third import UNSEEN_THIRD
from secret_rl.sweep import Workers

_EARLIER = 27  # fits to these tasks that the table no longer has: add those that a change of the method replaces
_CHOSEN = (
    "Default settings, data as users would have it. The rules, the players and the truth of these tasks are by someone "
    "who did not know the method. No default was chosen on them when they were first fitted, and of each task but "
    "orbit_burn, seed 0 is that first fit. Then how costs are binned followed from orbit_burn, whose fit was made "
    "again, and when a fit starts again from greenhouse, which was fitted with other settings, too (DEVIATIONS.md). "
    f"Fits ever made on them: {{fits}} in this table, {_EARLIER} before."
)


def result(quick: bool) -> Result:
    """The full size; or, to see that it runs, a single task, in which there is no credit to judge."""
    title = "Credit in a third set of tasks by someone who did not know the method"
    if quick:
        few: dict[str, Any] = {"steps": 100, "units": 32, "batch_size": 32}
        return Result("unseen_third-quick", ("no_past_brake",), 1, 100, 300, few, title, _CHOSEN)
    return Result("unseen_third", tuple(UNSEEN_THIRD), 5, title=title, chosen=_CHOSEN)


def main(
    quick: bool, command: str, analyse_only: bool = False, *, only: str | None = None, workers: Workers | None = None
) -> list[str]:
    """Run, and write the table."""
    this = result(quick)
    if not analyse_only:
        run(this, command, workers, only=only)
    return [str(table(this))]
