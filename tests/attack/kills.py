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
from tests.attack.children import Child, Ended
from tests.attack.content import content_of, differences
from tests.attack.jobs import Inputs, Job, Trial, jobs
from tests.attack.table import Tally

SIGNALS = {"SIGKILL": signal.SIGKILL, "SIGTERM": signal.SIGTERM, "SIGINT": signal.SIGINT}
_PATHS = {  # audit events that change files -> which of their arguments are paths, and where their folders are
    "os.rename": ((0, 2), (1, 3)), "os.mkdir": ((0, 2),), "os.remove": ((0, 1),), "os.rmdir": ((0, 1),),
    "os.truncate": ((0, None),), "os.link": ((0, 2), (1, 3)), "os.symlink": ((0, None), (1, 2)),
}  # fmt: skip
_CHANGES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class Operations:
    """An audit hook that counts what a process does to the files of a folder, and kills it before one of them."""

    def __init__(self, folder: Path, kill_before: int | None = None, log: Path | None = None) -> None:
        self._folder, self._kill_before, self._count = f"{folder}{os.sep}", kill_before, 0
        self._log = None if log is None else os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            places = [_place(path, None)] if isinstance(flags, int) and flags & _CHANGES else []
        else:
            pairs = _PATHS.get(event, ())
            places = [_place(arguments[path], None if at is None else arguments[at]) for path, at in pairs]
        inside = [place.removeprefix(self._folder) for place in places if place.startswith(self._folder)]
        if not inside:
            return
        self._count += 1
        if self._count == self._kill_before:
            os.kill(os.getpid(), signal.SIGKILL)
        if self._log is not None:
            os.write(self._log, f"{event} {' to '.join(inside)}\n".encode())


def _place(path: Any, folder: int | None) -> str:
    """An absolute path; ``folder`` is an open one that it is relative to."""
    if isinstance(path, int):  # an open file
        return str(Path(f"/proc/self/fd/{path}").readlink()) if path >= 0 else ""
    base = _place(folder, None) if folder is not None and folder >= 0 else str(Path.cwd())
    return os.path.normpath(os.path.join(base, os.fsdecode(path)))  # noqa: PTH118  cheap: it runs for every open


class Killing(Trial):
    """The kills of one job."""

    def __init__(self, job: Job, scratch: Path) -> None:
        scratch.mkdir(parents=True, exist_ok=True)
        log = scratch / "operations"
        super().__init__(job, scratch / "work", scratch / "notes", partial(self._watched, job, log=log))
        self.operations = log.read_text().splitlines() if log.is_file() else []
        job.start(self.folder)
        second = self.run()
        self.problems += [f"undisturbed, it ends with {second}"] if second.code else []
        self.problems += differences(content_of(self.folder), self.expected)

    @staticmethod
    def _watched(job: Job, folder: Path, **how: Any) -> Any:
        with job.settings():
            sys.addaudithook(Operations(folder, **how))
            return job.code(folder)

    def cases(self, rng: np.random.Generator, quick: bool) -> list[str]:
        """What is tried."""
        slow, count = self.job.slow, len(self.operations)
        drawn = sorted(rng.permutation(count)[: 2 if quick else 8 if slow else count].tolist())
        names = ["undisturbed", *(f"before-{operation + 1}" for operation in drawn)]
        for _ in range(1 if quick else 6 if slow else 15):
            name, share = str(rng.choice(sorted(SIGNALS))), rng.random()
            names.append(f"{name}-{round(share * 1.1 * self.seconds * 1000, 1)}")
        return names

    def problems_of(self, case: str) -> list[str]:
        """What goes wrong in a case."""
        kind, _, value = case.partition("-")
        if kind == "undisturbed":
            return self.problems
        if kind == "before":
            words = self.operations[int(value) - 1]
            return [f"(before {words}) {problem}" for problem in self.before(int(value))]
        return self.after(kind, float(value))

    def before(self, number: int) -> list[str]:
        """Killed just before an operation, counted from 1."""
        self.job.start(self.folder)
        ended = self.run(partial(self._watched, self.job, kill_before=number))
        if ended.code != -signal.SIGKILL:
            return [f"it was to be killed before operation {number}, and ended with {ended}"]
        return self._aftermath(ended)

    def after(self, name: str, milliseconds: float) -> list[str]:
        """Sent a signal after some time."""
        self.job.start(self.folder)
        child = Child(partial(self.job.execute, self.folder), self.notes)
        child.wait_until_ready()
        time.sleep(milliseconds / 1000)
        child.kill(SIGNALS[name])
        ended, problems = child.wait(), []
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
        finals, wrong = self.finals()
        return problems + wrong + self.again("the same again", finals)


def units(inputs: Inputs, quick: bool) -> list[tuple[str, Callable[..., Tally]]]:
    """One for each job."""
    numbered = [(number, job) for number, job in enumerate(jobs(inputs)) if not (quick and job.slow)]
    return [(job.name, partial(_attack, job, number, quick)) for number, job in numbered]


def _attack(job: Job, number: int, quick: bool, scratch: Path, seed: int, only: str | None) -> Tally:
    tally, killing = Tally("kills", job.name), Killing(job, scratch)
    for case in [only] if only else killing.cases(np.random.default_rng([seed, number]), quick):
        tally.count(case, killing.problems_of(case))
    return tally
