"""Credit in tasks that were written after the method: the measure of ``beyond_triggers`` on what it met late."""

from typing import Any

from paper.beyond_triggers import Result, run, table
from paper.tasks.unseen import UNSEEN
from secret_rl.sweep import Workers

_EARLIER = 72  # fits to these tasks that the table no longer has: add those that a change of the method replaces
_CHOSEN = (
    "Default settings, data as users would have it. These tasks were written, and their truth tested, before any model "
    "was fitted to them. What the first fits came to, and what was changed after that, is in DEVIATIONS.md: this table "
    f"is of the changed method. Fits ever made on them: {{fits}} in this table, {_EARLIER} before."
)


def result(quick: bool) -> Result:
    """The full size; or, to see that it runs, a single task, in which there is no credit to judge."""
    title = "Credit in tasks written after the method"
    if quick:
        few: dict[str, Any] = {"steps": 100, "units": 32, "batch_size": 32}
        chosen = "A quick look at one task. Fits: {fits}."
        return Result("unseen_tasks-quick", ("blackjack",), 1, 100, 300, few, title, chosen)
    return Result("unseen_tasks", tuple(UNSEEN), 5, title=title, chosen=_CHOSEN)


def main(
    quick: bool, command: str, analyse_only: bool = False, *, only: str | None = None, workers: Workers | None = None
) -> list[str]:
    """Run, and write the table."""
    this = result(quick)
    if not analyse_only:
        run(this, command, workers, only=only)
    return [str(table(this))]
