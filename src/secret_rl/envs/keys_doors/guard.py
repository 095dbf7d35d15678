"""Run as a program: the engine's parent, which ends it and clears up when the Python process is gone.

The engine does not notice that the process it plays for was killed; it would wait for ever, its shared memory with it.
And Python waits for ever for an engine that hangs or is stopped: some calls hold the interpreter's lock, so that no
thread of Python can end them. This program stands between the two: arguments are the process to watch, the folder to
remove, the engine, and the engine's own arguments. It runs apart from the terminal, so that Ctrl-C reaches Python only.
It uses the standard library alone and is started without site-packages, to be up in some milliseconds.
"""

import ctypes
import mmap
import os
import shutil
import signal
import sys
import time
from itertools import pairwise
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
COUNT, LIMIT, OVERDUE = range(3)
"""What ``shared_calls`` holds: begun and ended calls (odd while one is under way), the milliseconds that it may take,
and 1 once the engine was ended because it took longer."""
_CALLS, _BYTES = "calls", 24
_TICK = 0.5  # seconds from look to look
_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Start the engine and wait for its end, or for the end of the watched process."""
    watched, folder, engine = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    arguments = sys.argv[3:]
    if os.getpgrp() != os.getpid():  # the leader of a group cannot begin a session, and needs none
        os.setsid()
    signals = {signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    guard = os.getpid()
    calls = shared_calls(Path(folder))
    watch = Watch(calls, watched)
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # should this guard be killed itself
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        if os.getppid() != guard:
            os._exit(1)
        os.chdir(folder)  # where the engine leaves a folder of its own
        os.execv(engine, arguments)
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        received = signal.sigtimedwait(signals, _TICK)
        told_to_end = received is not None and received.si_signo != signal.SIGCHLD
        overdue = watch.overdue()
        if overdue:
            if calls[COUNT] == 1:  # ViZDoom will crash: say why, while that is possible
                print(
                    f"the engine {engine} did not start within {calls[LIMIT] / 1000:g} s", file=sys.stderr, flush=True
                )
            calls[OVERDUE] = 1
        if overdue or told_to_end or os.getppid() != watched:
            os.kill(child, signal.SIGKILL)  # it ends stopped processes, too
    # Whatever ended it: on Ctrl-C the engine goes quietly, and Python may go without a word, too.
    clear(instance_of(arguments))
    shutil.rmtree(folder, ignore_errors=True)
    return os.waitstatus_to_exitcode(status) & 0xFF


class Watch:
    """Measures how long a call is under way, while the process that waits for it is not stopped itself."""

    def __init__(self, calls: memoryview, waiting: int) -> None:
        self._calls, self._waiting = calls, waiting
        self._count, self._seconds, self._looked = 0, 0.0, time.monotonic()

    def overdue(self) -> bool:
        """Whether the call under way has taken longer than it may; to be asked at every tick."""
        now, count = time.monotonic(), self._calls[COUNT]
        passed = min(now - self._looked, 2 * _TICK)  # more, if this guard was stopped as well
        goes_on = count % 2 == 1 and count == self._count and not _is_stopped(self._waiting)
        self._seconds = self._seconds + passed if goes_on else 0.0
        self._count, self._looked = count, now
        return goes_on and 1000 * self._seconds > self._calls[LIMIT]


def shared_calls(folder: Path) -> memoryview:
    """A few numbers in the memory of Python and of this guard: cheap enough to be written at every step."""
    descriptor = os.open(folder / _CALLS, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.ftruncate(descriptor, _BYTES)
        return memoryview(mmap.mmap(descriptor, _BYTES)).cast("Q")
    finally:
        os.close(descriptor)


def _is_stopped(process: int) -> bool:
    """Whether a process was stopped, by Ctrl-Z or by a debugger."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    except OSError:
        return False


def instance_of(arguments: list[str]) -> str:
    """The name of the engine's instance among its arguments; empty if it is not there."""
    marked = [after for before, after in pairwise(arguments) if before == "+viz_instance_id"]
    return marked[0] if marked else ""


def clear(instance: str) -> None:
    """Remove the shared memory of an engine that has ended."""
    if not instance:  # nothing names it: leave all files alone
        return
    for file in SHARED_MEMORY.glob(f"ViZDoom*{instance}"):
        file.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
