"""Run as a program: the engine's parent, which ends it and cleans up when Python is gone or waits too long.

The engine does not notice when its Python process is killed, and would wait forever. Python waits forever for an engine
that hangs, and calls that hold the interpreter's lock can only be ended from outside. Arguments: the process to watch,
the folder to remove, the engine and its arguments. Standard library alone, to be up in milliseconds.
"""

import ctypes
import mmap
import os
import shutil
import signal
import sys
import time
from pathlib import Path

COUNT, LIMIT = range(2)
"""What ``shared_calls`` holds: calls begun plus calls ended (odd during a call), and the milliseconds of the limit."""
_BYTES = 16
_TICKS = 0.05, 1.0  # seconds between checks, at least and at most: hundreds of engines may share a core
_CHECKS = 20  # in the time that a call may take
_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Start the engine and wait for its end, or for the end of the watched process."""
    watched, folder, arguments = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    if os.getpgrp() != os.getpid():  # the leader of a group cannot begin a session, and needs none
        os.setsid()  # so that Ctrl-C reaches Python only
    calls = shared_calls(Path(folder))
    woken_by = {signal.SIGCHLD, signal.SIGUSR1}  # the end of the engine, and that of who is watched
    signal.pthread_sigmask(signal.SIG_BLOCK, woken_by)
    _signal_when_parent_ends(signal.SIGUSR1)
    engine = os.fork()
    if engine == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, woken_by)
        _signal_when_parent_ends(signal.SIGKILL)  # should this watchdog be killed itself
        os.chdir(folder)  # where the engine leaves a folder of its own
        os.execv(arguments[0], arguments)
    last_count, limit, waited = 0, 0.0, 0.0
    while not (ended := os.waitpid(engine, os.WNOHANG))[0]:
        tick, begun = min(max(limit / _CHECKS, _TICKS[0]), _TICKS[1]), time.monotonic()
        signal.sigtimedwait(woken_by, tick)
        same_call = calls[COUNT] % 2 == 1 and calls[COUNT] == last_count and not _is_stopped(watched)
        waited = waited + min(time.monotonic() - begun, tick) if same_call else 0.0
        last_count, limit = calls[COUNT], calls[LIMIT] / 1000
        if waited > limit:  # say why, while that is possible: ViZDoom crashes if this happens at the start
            print(f"the engine {arguments[0]} did not answer within {limit:g} s", file=sys.stderr, flush=True)
        if waited > limit or os.getppid() != watched:
            os.kill(engine, signal.SIGKILL)  # it ends stopped processes, too
            ended = os.waitpid(engine, 0)
            break
    # However it ended: on Ctrl-C the engine may leave its memory, and Python end without a chance to remove it.
    if "+viz_instance_id" in arguments:
        remove_shared_memory(arguments[arguments.index("+viz_instance_id") + 1])
    shutil.rmtree(folder, ignore_errors=True)
    return os.waitstatus_to_exitcode(ended[1]) & 0xFF


def _signal_when_parent_ends(number: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


def shared_calls(folder: Path) -> memoryview:
    """Two numbers that Python and this watchdog share; cheap enough to be written at every step."""
    with (folder / "calls").open("a+b") as file:
        file.truncate(_BYTES)
        return memoryview(mmap.mmap(file.fileno(), _BYTES)).cast("Q")


def _is_stopped(process: int) -> bool:
    """Whether a process is stopped, by Ctrl-Z or by a debugger."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    except OSError:
        return False


def remove_shared_memory(instance: str) -> None:
    """Remove the shared memory of an engine that has ended."""
    if instance:  # else nothing names it: leave all files alone
        for file in Path("/dev/shm").glob(f"ViZDoom*{instance}"):
            file.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
