"""Forked children that do one thing each: they start at once, since everything is imported already."""

import ctypes
import json
import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")
LIMIT = 120.0  # seconds after which a child hangs
_POLL = 0.002
_SET_PARENT_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36  # of prctl
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Ended:
    """How a child ended."""

    code: int  # exit code; minus the number of the signal that killed it
    seconds: float
    err: str
    error: dict[str, Any]  # of an exception that left the job: ``type``, ``bases`` (names) and ``message``; else empty
    hung: bool
    orphans: bool  # whether processes that it had started lived on

    def __str__(self) -> str:
        if self.hung:
            return f"it hung for {self.seconds:.0f} s"
        if self.error:
            return f"{self.error['type']}: {self.error['message']}"[:400]
        lines = self.err.strip().splitlines()
        return f"exit code {self.code}" + (f", {lines[-1][:300]}" if lines else "")


class Child:
    """A forked process with a session of its own, its output in files."""

    def __init__(self, work: Callable[[], Any], notes: Path) -> None:
        """``work`` returns an exit code or None; ``notes`` is a folder for what it prints."""
        notes.mkdir(parents=True, exist_ok=True)
        (notes / "error.json").unlink(missing_ok=True)
        self._notes, self._status = notes, None
        self._ready, ready = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self._started = time.monotonic()
        self.pid = os.fork()
        if not self.pid:
            os.close(self._ready)
            _live(work, notes, ready)
        os.close(ready)

    def wait_until_ready(self) -> None:
        """Until the work begins."""
        os.read(self._ready, 1)
        self._started = time.monotonic()

    def kill(self, number: int) -> None:
        """Send a signal; to the leader only, as a scheduler or a user would."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def ended(self) -> bool:
        """Whether it is over."""
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = status if pid else None
        return self._status is not None

    def wait(self, limit: float = LIMIT) -> Ended:
        """Until it ends, and all that it started; kills what does not end."""
        hung = False
        try:
            while not self.ended():
                if time.monotonic() - self._started > limit:
                    hung = True
                    os.killpg(self.pid, signal.SIGKILL)
                time.sleep(_POLL)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            raise
        finally:
            os.close(self._ready)
        seconds, code = time.monotonic() - self._started, os.waitstatus_to_exitcode(self._status)
        said, error = self._notes / "err", self._notes / "error.json"
        err = said.read_text(encoding="utf-8", errors="replace") if said.is_file() else ""
        found = json.loads(error.read_text()) if error.is_file() else {}
        return Ended(code, seconds, err, found, hung, orphans=not _group_ends(self.pid, 10.0))


def run(work: Callable[[], Any], notes: Path, limit: float = LIMIT) -> Ended:
    """Do something in a child of its own."""
    return Child(work, notes).wait(limit)


def manners(ended: Ended, command: bool, *kinds: str) -> list[str]:
    """What is wrong with how a job failed: a command prints one line, anything else raises one of some errors."""
    if ended.hung or ended.code < 0:
        return [str(ended)]
    if not command:
        known = set(kinds) & set(ended.error.get("bases", ()))
        return [] if known else [f"it failed with {ended}, expected {' or '.join(kinds)}"]
    lines = [line for line in ended.err.strip().splitlines() if "Warning: " not in line]
    if ended.code != 1 or len(lines) != 1 or not lines[0].startswith("secret-rl: "):
        return [f"it failed with exit code {ended.code} and {ended.err.strip()[-300:]!r}, expected one line"]
    return []


def _live(work: Callable[[], Any], notes: Path, ready: int) -> NoReturn:
    code = 1
    try:
        os.setsid()
        _libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(notes / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND), number)
        os.write(ready, b"x")
        os.close(ready)
        try:
            code = work() or 0
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt:
        code = 130
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException as error:
        traceback.print_exc()
        bases = [kind.__name__ for kind in type(error).__mro__]
        (notes / "error.json").write_text(json.dumps({"type": bases[0], "bases": bases, "message": str(error)}))
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


def side_by_side(units: Sequence[Callable[[], T]], scratch: Path, processes: int) -> list[tuple[T | None, Ended]]:
    """The result of each function (None where it broke) and how it ended, in children of their own, some at a time."""
    running: dict[int, Child] = {}
    over: dict[int, tuple[T | None, Ended]] = {}
    try:
        while len(over) < len(units):
            for number in range(len(over) + len(running), len(units))[: processes - len(running)]:
                result = scratch / f"{number}.pickle"
                running[number] = Child(partial(_keep_result, units[number], result), scratch / str(number))
            for number in [number for number, child in running.items() if child.ended()]:
                ended, result = running.pop(number).wait(), scratch / f"{number}.pickle"
                over[number] = pickle.loads(result.read_bytes()) if not ended.code else None, ended
            time.sleep(_POLL)
    finally:
        for child in running.values():
            child.kill(signal.SIGKILL)
            child.wait()
    return [over[number] for number in range(len(units))]


def _keep_result(unit: Callable[[], Any], file: Path) -> None:
    adopt_orphans()
    file.write_bytes(pickle.dumps(unit()))
