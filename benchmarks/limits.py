"""Processes under a memory limit that the kernel enforces (cgroup, version 1 or 2), and what they held at most."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_GROUPS = Path("/sys/fs/cgroup")
_SECONDS_BETWEEN_SAMPLES = 0.1


@dataclass
class Run:
    """What a process answered and what it took."""

    answer: dict[str, Any] | None
    """The JSON of its last line; None: it was killed for memory."""
    seconds: float
    resident: list[int] = field(default_factory=list)
    """Bytes that it held, from time to time: memory of its own and mapped files."""

    @property
    def peak(self) -> int:
        """The most that it held."""
        return max(self.resident)


def run(words: list[str], limit: int | None = None, environment: Mapping[str, str] | None = None) -> Run:
    """Run ``python WORDS``, one thread, in a group of processes that may hold ``limit`` bytes, page cache included."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
    with _group(limit) as join:
        started = time.perf_counter()
        child = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True, env=env, preexec_fn=join)
        done = Run(None, 0.0, [0])
        watcher = threading.Thread(target=_watch, args=(child.pid, done.resident))
        watcher.start()
        out, _ = child.communicate()
        done.seconds = time.perf_counter() - started
        watcher.join()
    if child.returncode == 0:
        done.answer = json.loads(out.splitlines()[-1])
    elif child.returncode != -9:  # what the kernel sends to a group that holds too much
        raise RuntimeError(f"{' '.join(words)} ended with status {child.returncode}")
    return done


def can_limit() -> bool:
    """Whether this process may set limits here."""
    try:
        with _group(1 << 30):
            return True
    except OSError:
        return False


@contextmanager
def _group(limit: int | None) -> Iterator[Any]:
    """A group below that of this process, as a function by which a new process joins it."""
    if limit is None:
        yield None
        return
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    first = next((_GROUPS / "memory" / path.lstrip("/") for _, names, path in lines if names == "memory"), None)
    own, most = (first, "memory.limit_in_bytes") if first else (_GROUPS / lines[-1][2].lstrip("/"), "memory.max")
    folder = own / f"limited-{os.getpid()}"
    folder.mkdir()
    try:
        (folder / most).write_text(str(limit))
        with suppress(OSError):  # not where there is no swap to account for
            (folder / "memory.memsw.limit_in_bytes").write_text(str(limit))
        yield lambda: (folder / "cgroup.procs").write_text(str(os.getpid()))
    finally:
        for _ in range(100):
            with suppress(OSError):  # its last process may still be on its way out
                folder.rmdir()
                break
            time.sleep(0.05)


def _watch(pid: int, held: list[int]) -> None:
    """Note what a process holds until it ends."""
    status = Path(f"/proc/{pid}/status")
    while True:
        try:
            lines = [line for line in status.read_text().splitlines() if line.startswith("VmRSS")]
        except OSError:
            return
        if not lines:  # it has ended
            return
        held.append(int(lines[0].split()[1]) * 1024)
        time.sleep(_SECONDS_BETWEEN_SAMPLES)
