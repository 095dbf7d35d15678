"""Forked children that do one thing each: they start at once, since everything is imported already."""

import ctypes
import json
import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
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

    code: int
    """Exit code; minus the number of the signal that killed it."""
    seconds: float
    out: str
    err: str
    error: dict[str, Any] | None
    """Of an exception that left the job: ``type``, ``bases`` (names) and ``message``."""
    hung: bool = False
    orphans: bool = False
    """Whether processes that it had started lived on."""

    def __str__(self) -> str:
        if self.hung:
            return f"it hung for {self.seconds:.0f} s"
        if self.error is not None:
            return f"{self.error['type']}: {self.error['message']}"[:400]
        lines = self.err.strip().splitlines()
        return f"exit code {self.code}" + (f", {lines[-1][:300]}" if lines else "")


class Child:
    """A forked process with a session of its own, its output in files."""

    def __init__(self, work: Callable[[], Any], notes: Path) -> None:
        """``work`` returns an exit code or None; ``notes`` is a folder for what it prints."""
        notes.mkdir(parents=True, exist_ok=True)
        self._notes = notes
        for name in ("out", "err", "error.json"):
            (notes / name).unlink(missing_ok=True)
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

    def wait(self, limit: float = LIMIT) -> Ended:
        """Until it ends, and all that it started; kills what does not end."""
        hung, status = False, 0
        try:
            while True:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    break
                if time.monotonic() - self._started > limit:
                    hung = True
                    os.killpg(self.pid, signal.SIGKILL)
                    _, status = os.waitpid(self.pid, 0)
                    break
                time.sleep(_POLL)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            raise
        finally:
            os.close(self._ready)
        seconds = time.monotonic() - self._started
        orphans = not _group_ends(self.pid, 10.0)
        error = self._notes / "error.json"
        return Ended(
            os.waitstatus_to_exitcode(status), seconds, _text(self._notes / "out"), _text(self._notes / "err"),
            json.loads(error.read_text()) if error.is_file() else None, hung, orphans,
        )  # fmt: skip


def manners(ended: Ended, command: bool, *kinds: str) -> list[str]:
    """What is wrong with how a job failed: a command prints one line, anything else raises one of some errors."""
    if ended.hung or ended.code < 0:
        return [str(ended)]
    if not command:
        known = set(kinds) & set((ended.error or {"bases": []})["bases"])
        return [] if known else [f"it failed with {ended}, expected {' or '.join(kinds)}"]
    lines = [line for line in ended.err.strip().splitlines() if "Warning: " not in line]
    if ended.code != 1 or len(lines) != 1 or not lines[0].startswith("secret-rl: "):
        return [f"it failed with exit code {ended.code} and {ended.err.strip()[-300:]!r}, expected one line"]
    return []


def run(work: Callable[[], Any], notes: Path, limit: float = LIMIT) -> Ended:
    """Do something in a child of its own."""
    return Child(work, notes).wait(limit)


def _live(work: Callable[[], Any], notes: Path, ready: int) -> NoReturn:
    code = 1
    try:
        os.setsid()
        _libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        _redirect(notes)
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
        said = {"type": type(error).__name__, "bases": bases, "message": str(error)}
        (notes / "error.json").write_text(json.dumps(said))
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _redirect(notes: Path) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    for number, name in ((1, "out"), (2, "err")):
        file = os.open(notes / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        os.dup2(file, number)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


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


def side_by_side(units: Sequence[Callable[[], T]], scratch: Path, processes: int) -> Iterator[T]:
    """The results of functions, each in a process of its own, some at a time; in their order."""
    scratch.mkdir(parents=True, exist_ok=True)
    running: dict[int, int] = {}
    over: set[int] = set()
    following = 0
    try:
        for wanted in range(len(units)):
            while wanted not in over:
                while following < len(units) and len(running) < processes:
                    running[_fork_unit(units[following], scratch / f"{following}.pickle")] = following
                    following += 1
                pid, status = os.wait()
                if pid in running:
                    number = running.pop(pid)
                    if status:
                        raise RuntimeError(f"unit {number} of the harness ended with {status}: see the output above")
                    over.add(number)
            yield pickle.loads((scratch / f"{wanted}.pickle").read_bytes())
    finally:
        for pid in running:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)


def _fork_unit(unit: Callable[[], Any], result: Path) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        _libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        adopt_orphans()
        result.write_bytes(pickle.dumps(unit()))
        code = 0
    except KeyboardInterrupt:
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
