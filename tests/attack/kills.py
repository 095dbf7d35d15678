"""Processes that are killed: just before each of their file operations, and at random times.

After each kill, what is under a final name is absent, or old and whole, or new and whole. The same job again ends in
exactly what an undisturbed run leaves, and leaves nothing else behind.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tests.attack.children import Child, Ended, run
from tests.attack.content import ABSENT, content_of, differences
from tests.attack.jobs import Inputs, Job, jobs
from tests.attack.table import Tally

SIGNALS = {"SIGKILL": signal.SIGKILL, "SIGTERM": signal.SIGTERM, "SIGINT": signal.SIGINT}
_PATHS = {  # audit events that change files -> which of their arguments are paths, and where their folders are
    "os.rename": ((0, 2), (1, 3)), "os.mkdir": ((0, 2),), "os.remove": ((0, 1),), "os.rmdir": ((0, 1),),
    "os.truncate": ((0, None),), "os.link": ((0, 2), (1, 3)), "os.symlink": ((0, None), (1, 2)),
}  # fmt: skip


class Operations:
    """An audit hook that counts what a process does to the files of a folder, and kills it before one of them."""

    def __init__(self, folder: Path, kill_before: int | None = None, log: int | None = None) -> None:
        self._folder, self._kill_before, self._log = f"{folder}{os.sep}", kill_before, log
        self._count = 0

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        words = self._words(event, arguments)
        if words is None:
            return
        self._count += 1
        if self._count == self._kill_before:
            os.kill(os.getpid(), signal.SIGKILL)
        if self._log is not None:
            os.write(self._log, f"{words}\n".encode())

    def _words(self, event: str, arguments: tuple[Any, ...]) -> str | None:
        """The operation in words, or None where it is none on a file of the folder."""
        if event == "open":
            path, _, flags = arguments
            if not isinstance(flags, int) or not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
                return None
            places = [self._place(path, None)]
        elif event in _PATHS:
            places = [self._place(arguments[path], None if at is None else arguments[at]) for path, at in _PATHS[event]]
        else:
            return None
        inside = [place.removeprefix(self._folder) for place in places if place.startswith(self._folder)]
        return f"{event} {' to '.join(inside)}" if inside else None

    def _place(self, path: Any, folder: int | None) -> str:
        """An absolute path; ``folder`` is an open one that it is relative to."""
        if isinstance(path, int):  # an open file
            return str(Path(f"/proc/self/fd/{path}").readlink()) if path >= 0 else ""
        base = self._place(folder, None) if folder is not None and folder >= 0 else str(Path.cwd())
        return os.path.normpath(os.path.join(base, os.fsdecode(path)))  # noqa: PTH118  cheap: it runs for every open


def _watched(job: Job, folder: Path, kill_before: int | None, log: Path | None) -> Any:
    opened = None if log is None else os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with job.settings():
        sys.addaudithook(Operations(folder, kill_before, opened))
        return job.run(folder)


class Killing:
    """The kills of one job."""

    def __init__(self, job: Job, scratch: Path) -> None:
        self.job = job
        scratch.mkdir(parents=True, exist_ok=True)
        self._folder, self._notes = scratch / "work", scratch / "notes"
        log = scratch / "operations"
        self.problems: list[str] = []
        job.start(self._folder)
        self._old = job.finals(self._folder)
        first = self._run(partial(_watched, job, self._folder, None, log))
        self.seconds = first.seconds
        self.operations = log.read_text().splitlines() if log.is_file() else []
        self.expected, self._new = content_of(self._folder), job.finals(self._folder)
        self.problems += [f"undisturbed, it leaves no {name}" for name, what in self._new.items() if what == ABSENT]
        job.start(self._folder)
        second = self._run(partial(job.execute, self._folder))
        self.problems += [f"undisturbed, it ends with {ended}" for ended in (first, second) if ended.code]
        self.problems += differences(content_of(self._folder), self.expected)

    def before(self, number: int) -> list[str]:
        """Killed just before an operation, counted from 1."""
        self.job.start(self._folder)
        ended = self._run(partial(_watched, self.job, self._folder, number, None))
        if ended.code != -signal.SIGKILL:
            return [f"it was to be killed before operation {number}, and ended with {ended}"]
        return self._aftermath(ended)

    def after(self, name: str, milliseconds: float) -> list[str]:
        """Sent a signal after some time."""
        self.job.start(self._folder)
        child = Child(partial(self.job.execute, self._folder), self._notes)
        child.wait_until_ready()
        time.sleep(milliseconds / 1000)
        child.kill(SIGNALS[name])
        ended = child.wait()
        problems = []
        expected = {0, -SIGNALS[name]} | ({130} if name == "SIGINT" else {128 + SIGNALS[name]})
        if ended.code not in expected:
            problems.append(f"{name} ended it with {ended}")
        elif ended.code and self.job.command and "Traceback" in ended.err:
            problems.append(f"{name} ended it with a traceback: {ended}")
        return problems + self._aftermath(ended)

    def _aftermath(self, ended: Ended) -> list[str]:
        """What is wrong after a kill, and after the same job again."""
        problems = ["it hung"] if ended.hung else []
        problems += ["processes that it had started lived on"] if ended.orphans else []
        finals = self._finals(problems)
        for name, found in finals.items():
            allowed = {self._old[name], self._new[name]}  # what was not there before may be absent
            if found not in allowed:
                problems.append(f"{name} is {'gone' if found == ABSENT else 'neither the old nor the new one'}")
        again = self._run(partial(self.job.execute, self._folder))
        refused = self.job.keeps and finals == self._new and (again.error or {}).get("type") == "FileExistsError"
        if again.code and not refused:
            problems.append(f"the same again ends with {again}")
        else:
            problems += [f"the same again: {what}" for what in differences(content_of(self._folder), self.expected)]
        return problems

    def _finals(self, problems: list[str]) -> dict[str, str]:
        try:
            return self.job.finals(self._folder)
        except Exception as broken:
            problems.append(f"what is there cannot be read: {type(broken).__name__}: {broken}")
            return {}

    def _run(self, work: Callable[[], Any]) -> Ended:
        return run(work, self._notes)


def units(inputs: Inputs, scratch: Path, quick: bool, seed: int) -> list[Callable[[], Tally]]:
    """One for each job."""
    return [
        partial(_attack, job, scratch / f"kills-{number}", quick, seed, number)
        for number, job in enumerate(jobs(inputs))
        if not (quick and job.slow)
    ]


def _attack(job: Job, scratch: Path, quick: bool, seed: int, number: int) -> Tally:
    tally, killing = Tally("kills", job.name), Killing(job, scratch)
    tally.count("undisturbed", killing.problems)
    rng = np.random.default_rng([seed, number])
    count = len(killing.operations)
    most = 2 if quick else 8 if job.slow else count
    for operation in sorted(rng.permutation(count)[:most].tolist()):
        words = killing.operations[operation]
        tally.count(f"before-{operation + 1}", [f"(before {words}) {p}" for p in killing.before(operation + 1)])
    for _ in range(1 if quick else 6 if job.slow else 15):
        name = str(rng.choice(sorted(SIGNALS)))
        milliseconds = round(rng.random() * 1.1 * killing.seconds * 1000, 1)
        tally.count(f"{name}-{milliseconds}", killing.after(name, milliseconds))
    return tally


def repeat(inputs: Inputs, scratch: Path, target: str, case: str, seed: int) -> Tally:
    """One case again."""
    (job,) = (job for job in jobs(inputs) if job.name == target)
    tally, killing = Tally("kills", target), Killing(job, scratch)
    kind, _, value = case.partition("-")
    if kind == "undisturbed":
        tally.count(case, killing.problems)
    else:
        tally.count(case, killing.before(int(value)) if kind == "before" else killing.after(kind, float(value)))
    return tally
