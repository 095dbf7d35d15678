"""Run as a program: the engine's parent, which ends it and cleans up when Python is gone or waits too long.

The engine does not notice when the Python process it plays for is killed: it would wait forever, its shared memory
with it. And Python waits forever for an engine that hangs: some calls hold the interpreter's lock, so no Python thread
could end them. Arguments: the process to watch, the folder to remove, the engine, and the engine's own arguments.
It runs in a session of its own, so that Ctrl-C reaches Python only. It uses the standard library alone and is started
without site-packages, to be up in milliseconds.
"""

import ctypes
import mmap
import os
import shutil
import signal
import sys
import time
from pathlib import Path

COUNT, LIMIT, OVERDUE = range(3)
"""What ``shared_calls`` holds: calls begun plus calls ended (odd during a call), the milliseconds that a call may take,
and 1 once the engine was ended because it took longer."""
_BYTES = 24
_TICK = 0.5  # seconds between checks
_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Start the engine and wait for its end, or for the end of the watched process."""
    watched, folder, arguments = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    if os.getpgrp() != os.getpid():  # the leader of a group cannot begin a session, and needs none
        os.setsid()
    signals = {signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    calls = shared_calls(Path(folder))
    watchdog = os.getpid()
    engine = os.fork()
    if engine == 0:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # should this watchdog be killed itself
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        if os.getppid() != watchdog:
            os._exit(1)
        os.chdir(folder)  # where the engine leaves a folder of its own
        os.execv(arguments[0], arguments)
    last_count, seconds, checked = 0, 0.0, time.monotonic()
    while True:
        ended, status = os.waitpid(engine, os.WNOHANG)
        if ended:
            break
        received = signal.sigtimedwait(signals, _TICK)
        terminated = received is not None and received.si_signo != signal.SIGCHLD
        now, count = time.monotonic(), calls[COUNT]
        same_call = count % 2 == 1 and count == last_count and not _is_stopped(watched)
        passed = min(now - checked, 2 * _TICK)  # more, if this watchdog was stopped as well
        seconds = seconds + passed if same_call else 0.0
        last_count, checked = count, now
        if overdue := 1000 * seconds > calls[LIMIT]:
            if count == 1:  # ViZDoom will crash: say why, while that is possible
                limit = calls[LIMIT] / 1000
                print(f"the engine {arguments[0]} did not start within {limit:g} s", file=sys.stderr, flush=True)
            calls[OVERDUE] = 1
        if overdue or terminated or os.getppid() != watched:
            os.kill(engine, signal.SIGKILL)  # it ends stopped processes, too
    # However it ended: on Ctrl-C the engine may leave its memory, and Python end without a chance to remove it.
    remove_shared_memory(instance_of(arguments))
    shutil.rmtree(folder, ignore_errors=True)
    return os.waitstatus_to_exitcode(status) & 0xFF


def shared_calls(folder: Path) -> memoryview:
    """Three numbers that Python and this watchdog share; cheap enough to be written at every step."""
    descriptor = os.open(folder / "calls", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.ftruncate(descriptor, _BYTES)
        return memoryview(mmap.mmap(descriptor, _BYTES)).cast("Q")
    finally:
        os.close(descriptor)


def _is_stopped(process: int) -> bool:
    """Whether a process is stopped, by Ctrl-Z or by a debugger."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    except OSError:
        return False


def instance_of(arguments: list[str]) -> str:
    """The name of the engine's instance among its arguments; empty if it is not there."""
    mark = "+viz_instance_id"
    return arguments[arguments.index(mark) + 1] if mark in arguments[:-1] else ""


def remove_shared_memory(instance: str) -> None:
    """Remove the shared memory of an engine that has ended."""
    if instance:  # else nothing names it: leave all files alone
        for file in Path("/dev/shm").glob(f"ViZDoom*{instance}"):
            file.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
