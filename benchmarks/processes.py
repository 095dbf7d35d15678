"""What this process and those it started use, and what they leave: read from /proc (Linux)."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

_TICK, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


def descendants(root: int | None = None) -> list[int]:
    """The processes that ``root`` (this one) started, and those that they started."""
    children: dict[int, list[int]] = {}
    for pid, fields in _all():
        children.setdefault(int(fields[1]), []).append(pid)
    found, waiting = [], [os.getpid() if root is None else root]
    while waiting:
        mine = children.get(waiting.pop(), [])
        found += mine
        waiting += mine
    return found


def cpu_seconds(others: list[int]) -> float:
    """Processor time of this process and of some others, up to now."""
    fields = dict(_all())
    return time.process_time() + sum(int(fields[p][11]) + int(fields[p][12]) for p in others if p in fields) / _TICK


def resident(pid: int) -> int:
    """Bytes of memory that a process holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def left_of(instance: str, folder: str) -> list[str]:
    """Processes, shared memory and the folder of an engine (``KeysDoorsEnv.engine_traces``) that are still there."""
    found = [str(path) for path in Path("/dev/shm").glob(f"*{instance}*")]
    found += [folder] if Path(folder).exists() else []
    for pid, _ in _all():
        try:
            if instance in Path(f"/proc/{pid}/cmdline").read_text():
                found.append(f"process {pid}")
        except OSError:
            continue
    return found


def _all() -> Iterator[tuple[int, list[str]]]:
    """Every process with the fields of its ``stat`` after the name: state, parent, ..."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            yield int(path.parent.name), path.read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
