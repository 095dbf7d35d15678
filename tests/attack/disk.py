"""Disks without room and folders that cannot be written to.

Without room, a job fails in one clear line, what was there before is whole and nothing half-written is left; with room
again, the same job ends as it would have. A folder that is read only is refused before the work begins.

Needs root, for a small tmpfs in a mount namespace of its own, which ends with the process; without, it is left out.
"""

import ctypes
import os
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tests.attack.children import manners, run
from tests.attack.content import content_of, differences
from tests.attack.jobs import Inputs, Job, Trial, collect, command, deep, fit, fit_words, jobs, learn, small_fits
from tests.attack.table import Tally

_SIZE = 8 << 20
_PAGE = 4096
_SOON = 5.0  # seconds within which a job must see that it cannot write
_CLONE_NEWNS = 0x00020000
_TEMPORARY = (".writing", ".saving", ".replaced")  # never to be left behind
_READ_ONLY = "read-only folder"


class SmallDisk:
    """A tmpfs of a few megabytes, all of which but so many pages can be taken up; unmounted at the end of ``with``."""

    def __init__(self, place: Path) -> None:
        self._place, self._ballast = place, place / "ballast"
        self.folder = place / "work"
        place.mkdir(parents=True)
        if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS):
            raise PermissionError(f"no mount namespace of its own: {os.strerror(ctypes.get_errno())}")
        _mount("--make-rprivate", "/")
        _mount("-t", "tmpfs", "-o", f"size={_SIZE}", "attack", str(place))

    def leave(self, pages: int) -> None:
        """Take up everything but so many pages."""
        self.free()
        with self._ballast.open("wb") as file:
            room = os.statvfs(self._place)
            taken = room.f_bavail * room.f_bsize - pages * _PAGE
            if taken > 0:
                os.posix_fallocate(file.fileno(), 0, taken)

    def free(self) -> None:
        """Make room again."""
        self._ballast.unlink(missing_ok=True)

    def used(self) -> int:
        """Pages that are taken up."""
        room = os.statvfs(self._place)
        return (room.f_blocks - room.f_bfree) * room.f_bsize // _PAGE

    def make_read_only(self) -> None:
        _mount("-o", "remount,ro", str(self._place))

    def __enter__(self) -> "SmallDisk":
        return self

    def __exit__(self, *_: Any) -> None:
        subprocess.run(["umount", "-l", str(self._place)], check=False)


def _mount(*words: str) -> None:
    done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise PermissionError(f"mount {' '.join(words)}: {done.stderr.strip()}")


class Filling(Trial):
    """One job on a disk that is nearly full."""

    def __init__(self, job: Job, disk: SmallDisk, notes: Path) -> None:
        self._disk = disk
        super().__init__(job, disk.folder, notes)
        used = disk.used()
        job.start(self.folder)
        before = disk.used()
        self.pages = max(used - before, 1) + (before if job.before else 0)

    def leaving(self, pages: int) -> list[str]:
        """With room for so many pages."""
        self.job.start(self.folder)
        self._disk.leave(pages)
        try:
            ended = self.run()
            if not ended.code:  # room enough
                return differences(content_of(self.folder), self.expected)
            problems = manners(ended, self.job.command, "OSError") + self.finals()[1]
            left = [path.name for path in self.folder.rglob(".*") if any(mark in path.name for mark in _TEMPORARY)]
            problems += [f"left behind {', '.join(left[:4])}"] if left else []
        finally:
            self._disk.free()
        return problems + self.again("with room again, the same", {})


def endless(inputs: Inputs) -> list[Job]:
    """Jobs that would take minutes, to be refused at once."""
    long = {"steps": 1_000_000, "evaluate_every": 1_000_000}
    return [
        Job("collect", partial(collect, episodes=20_000_000)),
        Job("collect env", partial(collect, env="CartPole-v1", episodes=2_000_000)),
        Job("Secret.fit", partial(fit, source=inputs.data, **long), settings=small_fits),
        Job("train", partial(deep, steps=10_000_000)),
        command(fit_words(inputs, **long), "model.safetensors"),
        learn(inputs, episodes=10_000_000),
    ]


def units(inputs: Inputs, quick: bool) -> list[tuple[str, Callable[..., Tally]]]:
    """One for each job, and one for the folders that are read only."""
    numbered = [(number, job) for number, job in enumerate(jobs(inputs)) if not (quick and job.slow)]
    fillings = [(job.name, partial(_fill, job, number, quick)) for number, job in numbered]
    return [(name, partial(_attack, name, work)) for name, work in (*fillings, (_READ_ONLY, partial(_refuse, inputs)))]


def _attack(name: str, work: Callable[..., None], scratch: Path, seed: int, only: str | None) -> Tally:
    tally = Tally("disk", name)
    try:
        disk = SmallDisk(scratch / "disk")
    except (PermissionError, FileNotFoundError) as refused:
        tally.notes.append(f"full disks and read-only folders were left out ({refused})")
        return tally
    with disk:
        work(tally, disk, scratch / "notes", seed, only)
    return tally


def _fill(job: Job, number: int, quick: bool, tally: Tally, disk: SmallDisk, notes: Path, seed: int, only: str) -> None:
    filling = Filling(job, disk, notes)
    drawn = np.random.default_rng([seed, number]).permutation(filling.pages)[: 1 if quick else 3 if job.slow else 12]
    for case in [only] if only else ["undisturbed", *(f"pages-{pages}" for pages in sorted(drawn.tolist()))]:
        _, _, pages = case.partition("-")
        tally.count(case, filling.leaving(int(pages)) if pages else filling.problems)


def _refuse(inputs: Inputs, tally: Tally, disk: SmallDisk, notes: Path, seed: int, only: str | None) -> None:
    disk.folder.mkdir()
    disk.make_read_only()
    for job in endless(inputs):
        if only in (None, job.name):
            ended = run(partial(job.execute, disk.folder), notes, _SOON)
            tally.count(job.name, manners(ended, job.command, "OSError", "ValueError"))
