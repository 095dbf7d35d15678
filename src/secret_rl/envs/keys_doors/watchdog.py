"""Run as a program: the engine's parent, which ends it and cleans up when Python is gone.

The engine does not notice when its Python process is killed, and would wait forever. Arguments: the process to watch,
the folder to remove, the engine and its arguments. Standard library alone, to be up in milliseconds.
"""

import ctypes
import os
import shutil
import signal
import sys
import time
from pathlib import Path

_TICK = 0.05  # seconds between checks
_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Start the engine and wait for its end, or for the end of the watched process."""
    watched, folder, arguments = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    if os.getpgrp() != os.getpid():  # the leader of a group cannot begin a session, and needs none
        os.setsid()  # so that Ctrl-C reaches Python only
    engine = os.fork()
    if engine == 0:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # should this watchdog be killed itself
        os.chdir(folder)  # where the engine leaves a folder of its own
        os.execv(arguments[0], arguments)
    while not (ended := os.waitpid(engine, os.WNOHANG))[0]:
        time.sleep(_TICK)
        if os.getppid() != watched:
            os.kill(engine, signal.SIGKILL)  # it ends stopped processes, too
            ended = os.waitpid(engine, 0)
            break
    # However it ended: on Ctrl-C the engine may leave its memory, and Python end without a chance to remove it.
    if "+viz_instance_id" in arguments:
        remove_shared_memory(arguments[arguments.index("+viz_instance_id") + 1])
    shutil.rmtree(folder, ignore_errors=True)
    return os.waitstatus_to_exitcode(ended[1]) & 0xFF


def remove_shared_memory(instance: str) -> None:
    """Remove the shared memory of an engine that has ended."""
    if instance:  # else nothing names it: leave all files alone
        for file in Path("/dev/shm").glob(f"ViZDoom*{instance}"):
            file.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
