"""Processes that work for this one."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context, parent_process
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any

_GRACE = 1.0  # seconds that a worker has to end when it is asked to


class WorkerPool(ProcessPoolExecutor):
    """Fresh processes for the length of a ``with`` block: each calls ``begin`` first, and none outlives this one.

    When the block ends, calls that have not begun are dropped and those under way are waited for. When it ends with
    an exception, the workers are ended at once, also those that hang or are stopped. They are not forked: a child
    would inherit locks held by threads of PyTorch and others.
    """

    def __init__(self, workers: int, begin: Callable[..., None] | None = None, *arguments: Any) -> None:
        super().__init__(workers, get_context("spawn"), _begin, (begin, arguments))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        workers, results = list((self._processes or {}).values()), self._result_queue
        try:
            if kind is None:
                self.shutdown(cancel_futures=True)
                return
            end_processes(workers, BaseProcess.terminate)
        finally:  # also when a second Ctrl-C cuts the waiting short
            end_processes(workers, BaseProcess.kill)
            # A worker that is ended as it sends a result leaves half of it. The executor's thread would wait for the
            # other half for as long as anyone can write it, and the interpreter would wait for that thread.
            results._writer.close()  # type: ignore[attr-defined]
            self.shutdown(cancel_futures=True)


def end_processes(workers: Sequence[BaseProcess], how: Callable[[BaseProcess], None]) -> None:
    """Send a signal to the workers that are left, and wait for them a little."""
    limit = time.monotonic() + _GRACE
    for process in workers:
        with suppress(OSError):  # it has just ended
            how(process)
    while any(process.is_alive() for process in workers) and time.monotonic() < limit:
        time.sleep(0.01)  # not join: what a worker has started may hold the pipe that it waits at


def worker_begins() -> None:
    """Let the process that calls this, a worker, end with its parent."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # Programs that a worker starts do not inherit its pipes, by whose closing the parent sees that it has ended.
    for number in Path("/dev/fd").glob("[0-9]*"):
        if int(number.name) > 2:
            with suppress(OSError):  # the folder itself, closed by now
                os.set_inheritable(int(number.name), False)


def _begin(begin: Callable[..., None] | None, arguments: tuple[Any, ...]) -> None:
    worker_begins()
    if begin is not None:
        begin(*arguments)


def _end_with_parent() -> None:
    """Workers of a process that was killed would wait for ever, and all that they hold with them."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
