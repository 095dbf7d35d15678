"""Progress bars on standard error."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, Timer

from secret_rl.checks import printable

Tick = Callable[[str, int, int | None], None]
Show = bool | Tick | None

_PATIENCE = 1.0  # seconds until a bar nobody asked for appears: what is over by then needs none
_PERIOD = 600.0  # seconds of the past that the remaining time is worked out from; some steps take minutes
_ONE_BAR = Lock()


@contextmanager
def progress_bar(show: Show, unit: str, total: int | None = None) -> Iterator[Tick]:
    """A bar as a function of (what is going on, done, total), with the time that remains.

    ``show=None``: if the terminal is interactive, and only once a second has passed. A function is called instead
    of a bar, so that one bar can cover several calls. There is one bar at a time: inside another, none. With a
    ``total``, the bar shows it from the start.
    """
    if callable(show):
        yield show
        return
    wanted = sys.stderr.isatty() if show is None else show
    if not wanted or not _ONE_BAR.acquire(blocking=False):
        yield lambda *_: None
        return
    try:
        with _bar(unit, _PATIENCE if show is None else 0.0, total) as tick:
            yield tick
    finally:
        _ONE_BAR.release()


@contextmanager
def no_bars() -> Iterator[None]:
    """No bar appears meanwhile."""
    with _ONE_BAR:
        yield


@contextmanager
def _bar(unit: str, patience: float, total: int | None) -> Iterator[Tick]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        BarColumn(), MofNCompleteColumn(), TextColumn(unit), TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False),
    )  # fmt: skip
    # Lines printed meanwhile go above the bar, which is on standard error: only where both are the same terminal.
    together = sys.stdout.isatty()
    bar = Progress(*columns, console=Console(stderr=True), redirect_stdout=together, speed_estimate_period=_PERIOD)
    task = bar.add_task("", total=total)
    start = Timer(patience, bar.start)
    start.daemon = True
    start.start() if patience else bar.start()
    try:
        yield lambda what, done, total: bar.update(task, description=printable(what), completed=done, total=total)
    finally:
        start.cancel()
        if patience:
            start.join()
        if bar.live.is_started:
            bar.stop()
