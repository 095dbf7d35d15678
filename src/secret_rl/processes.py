"""Processes that work for this one."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from typing import Any


def worker_pool(workers: int, begin: Callable[..., None] | None = None, *arguments: Any) -> ProcessPoolExecutor:
    """A pool of fresh processes, each of which calls ``begin`` first, and none of which outlives this one.

    They are not forked: a child would inherit locks held by threads of PyTorch and others.
    """
    return ProcessPoolExecutor(workers, get_context("spawn"), _begin, (begin, arguments))


def _begin(begin: Callable[..., None] | None, arguments: tuple[Any, ...]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if begin is not None:
        begin(*arguments)


def _end_with_parent() -> None:
    """Workers of a process that was killed would wait for ever, and all that they hold with them."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
