"""Forked children that do one thing each: they start at once, since everything is imported already."""

import ctypes
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

LIMIT = 120.0  # seconds after which a child hangs
_SET_PARENT_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36  # of prctl
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Ended:
    """How a child ended."""

    code: int  # exit code; minus the number of the signal that killed it
    seconds: float
    err: str
    error: dict[str, Any]  # of an exception that left the work: ``bases`` (names) and ``message``; else empty
    orphans: bool  # whether processes that it had started lived on

    def __str__(self) -> str:
        if self.error:
            return f"{self.error['bases'][0]}: {self.error['message']}"[:400]
        return f"exit code {self.code} after {self.seconds:.1f} s, {self.err.strip()[-300:]!r}"


class Child:
    """A forked process with a session of its own, its output in files."""

    def __init__(self, work: Callable[[], Any], notes: Path) -> None:
        """``work`` returns an exit code or None; ``notes`` is a folder for what it prints."""
        notes.mkdir(parents=True, exist_ok=True)
        (notes / "error.json").unlink(missing_ok=True)
        self._notes = notes
        sys.stdout.flush()
        sys.stderr.flush()
        self._started = time.monotonic()
        self.pid = os.fork()
        if not self.pid:
            _live(work, notes)

    def kill(self, number: int) -> None:
        """Send a signal; to the leader only, as a scheduler or a user would."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def wait(self, limit: float = LIMIT) -> Ended:
        """Until it ends, and all that it started; kills what does not end."""
        while not (found := os.waitpid(self.pid, os.WNOHANG))[0]:
            if time.monotonic() - self._started > limit:
                self.kill(signal.SIGKILL)
            time.sleep(0.002)
        err, error = self._notes / "err", self._notes / "error.json"
        return Ended(
            os.waitstatus_to_exitcode(found[1]), time.monotonic() - self._started,
            err.read_text(encoding="utf-8", errors="replace") if err.is_file() else "",
            json.loads(error.read_text()) if error.is_file() else {}, orphans=not _group_ends(self.pid, 10.0),
        )  # fmt: skip


def run(work: Callable[[], Any], notes: Path, limit: float = LIMIT) -> Ended:
    """Do something in a child of its own."""
    return Child(work, notes).wait(limit)


def manners(ended: Ended, command: bool) -> list[str]:
    """What is wrong with how a job failed: a command prints one line, anything else raises OSError or ValueError."""
    lines = [line for line in ended.err.strip().splitlines() if "Warning: " not in line]
    if command:
        good = ended.code == 1 and len(lines) == 1 and lines[0].startswith("secret-rl: ")
    else:
        good = ended.code == 1 and bool({"OSError", "ValueError"} & set(ended.error.get("bases", ())))
    return [] if good else [f"it failed with {ended}"]


def _live(work: Callable[[], Any], notes: Path) -> NoReturn:
    code = 1
    try:
        os.setsid()
        _libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(notes / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND), number)
        try:
            code = work() or 0
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt:
        code = 130
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException as error:
        if isinstance(error.__cause__, KeyboardInterrupt):  # compiled code says SystemError
            code = 130
        else:
            traceback.print_exc()
            bases = [kind.__name__ for kind in type(error).__mro__]
            (notes / "error.json").write_text(json.dumps({"bases": bases, "message": str(error)}))
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _group_ends(group: int, limit: float) -> bool:
    """Whether every process of a group ends by itself."""
    until = time.monotonic() + limit
    while True:
        with suppress(ChildProcessError):
            while os.waitpid(-group, os.WNOHANG)[0]:
                pass
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        if time.monotonic() > until:
            os.killpg(group, signal.SIGKILL)
            return False
        time.sleep(0.01)


def adopt_orphans() -> None:
    """Become the parent of processes whose own parent is gone, to notice and reap them."""
    _libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
