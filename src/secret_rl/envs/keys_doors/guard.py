"""Run as a program: the engine's parent, which ends it and clears up when the Python process is gone.

The engine does not notice that the process it plays for was killed; it would wait for ever, its shared memory with it.
This program stands between the two: arguments are the process to watch, the folder to remove, the engine, and the
engine's own arguments. It runs apart from the terminal, so that Ctrl-C reaches Python only. It uses the standard
library alone and is started without site-packages, to be up in some milliseconds.
"""

import ctypes
import os
import shutil
import signal
import sys
from itertools import pairwise
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
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
        received = signal.sigtimedwait(signals, 0.5)
        told_to_end = received is not None and received.si_signo != signal.SIGCHLD
        if told_to_end or os.getppid() != watched:
            os.kill(child, signal.SIGKILL)
    # Whatever ended it: on Ctrl-C the engine goes quietly, and Python may go without a word, too.
    clear(instance_of(arguments))
    shutil.rmtree(folder, ignore_errors=True)
    return os.waitstatus_to_exitcode(status) & 0xFF


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
