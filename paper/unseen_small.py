"""Credit in small tasks written by someone who did not know the method: the measure of ``beyond_triggers`` on them."""

from typing import Any

from paper.beyond_triggers import Result, run, table
from paper.tasks.unseen_small import UNSEEN_SMALL
from secret_rl.sweep import Workers

_EARLIER = 45  # fits to these tasks that the table no longer has: add those that a change of the method replaces
_CHOSEN = (
    "Default settings, data as users would have it. The rules, the players and the truth of these tasks are by someone "
    "who did not know the method. They are 19 of 37: all of a first round but a lottery, of which *not learned* is as "
    "right a verdict as *past not needed*, and three of a second, two of which had failed. What the first fits came to "
    "is in DEVIATIONS.md; combo_lock, safe, trap and three_of_three were then looked at as the method was changed. "
    f"Fits ever made on them: {{fits}} in this table, {_EARLIER} before."
)


def result(quick: bool) -> Result:
    """The full size; or, to see that it runs, a single task, in which there is no credit to judge."""
    title = "Credit in small tasks written by someone who did not know the method"
    if quick:
        few: dict[str, Any] = {"steps": 100, "units": 32, "batch_size": 32}
        chosen = "A quick look at one task. Fits: {fits}."
        return Result("unseen_small-quick", ("no_past_apples",), 1, 100, 300, few, title, chosen)
    return Result("unseen_small", tuple(UNSEEN_SMALL), 5, title=title, chosen=_CHOSEN)


def main(
    quick: bool, command: str, analyse_only: bool = False, *, only: str | None = None, workers: Workers | None = None
) -> list[str]:
    """Run, and write the table."""
    this = result(quick)
    if not analyse_only:
        run(this, command, workers, only=only)
    return [str(table(this))]
