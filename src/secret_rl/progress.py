"""Progress bars on standard error."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Tick = Callable[[str, int, int | None], None]


@contextmanager
def progress_bar(show: bool | None, unit: str) -> Iterator[Tick]:
    """A bar as a function of (what is going on, done, total); ``show=None``: if the terminal is interactive."""
    if not (sys.stderr.isatty() if show is None else show):
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        BarColumn(), MofNCompleteColumn(), TextColumn(unit), TimeRemainingColumn(), TextColumn("{task.description}"),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)
