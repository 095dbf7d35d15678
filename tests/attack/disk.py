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

import numpy as np
import stable_baselines3 as sb3
from tests.attack.children import Ended, manners, run
from tests.attack.content import content_of, differences, temporaries
from tests.attack.jobs import DQN, MAZE, TRIGGERS, Inputs, Job, jobs, small_fits, words_of
from tests.attack.table import Tally

import secret_rl as srl
from secret_rl.cli import main
from secret_rl.sb3 import train

_SIZE = 8 << 20
_PAGE = 4096
_SOON = 5.0  # seconds within which a job must see that it cannot write
_CLONE_NEWNS = 0x00020000


class SmallDisk:
    """A tmpfs of a few megabytes, all of which but so many pages can be taken up."""

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

    def close(self) -> None:
        """Unmount, whatever is there."""
        subprocess.run(["umount", "-l", str(self._place)], check=False)


def _mount(*words: str) -> None:
    done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise PermissionError(f"mount {' '.join(words)}: {done.stderr.strip()}")


class Filling:
    """One job on a disk that is nearly full."""

    def __init__(self, job: Job, scratch: Path) -> None:
        self.job, self._notes = job, scratch / "notes"
        self._disk = SmallDisk(scratch / "disk")
        self._folder = self._disk.folder
        job.start(self._folder)
        self._old = job.finals(self._folder)
        before = self._disk.used()
        ended = self._run()
        self.problems = [f"undisturbed, it ends with {ended}"] if ended.code else []
        self._expected, self._new = content_of(self._folder), job.finals(self._folder)
        self.pages = max(self._disk.used() - before, 1) + (before if job.before else 0)

    def leaving(self, pages: int) -> list[str]:
        """With room for so many pages."""
        self.job.start(self._folder)
        self._disk.leave(pages)
        try:
            ended = self._run()
            if not ended.code:  # room enough
                return differences(content_of(self._folder), self._expected)
            problems = self._problems(ended)
        finally:
            self._disk.free()
        again = self._run()
        if again.code:
            return [*problems, f"with room again, the same ends with {again}"]
        found = differences(content_of(self._folder), self._expected)
        return problems + [f"with room again: {what}" for what in found]

    def _problems(self, ended: Ended) -> list[str]:
        problems = manners(ended, self.job.command, "OSError")
        try:
            finals = self.job.finals(self._folder)
        except Exception as broken:
            return [*problems, f"what is there cannot be read: {type(broken).__name__}: {broken}"]
        for name, found in finals.items():
            if found not in (self._old[name], self._new[name]):
                problems.append(f"{name} is neither the old nor the new one")
        left = temporaries(self._folder)
        return problems + ([f"left behind {', '.join(left[:4])}"] if left else [])

    def _run(self) -> Ended:
        return run(partial(self.job.execute, self._folder), self._notes)

    def close(self) -> None:
        self._disk.close()


def endless(inputs: Inputs) -> list[Job]:
    """Jobs that would take minutes, to be refused at once."""
    data = str(inputs.data)

    def collect(folder: Path) -> None:
        srl.collect(TRIGGERS, 20_000_000, env_options=MAZE, out=folder / "store", progress=False)

    def collect_env(folder: Path) -> None:
        srl.collect("CartPole-v1", 2_000_000, out=folder / "store", progress=False)

    def fit(folder: Path) -> None:
        loaded = srl.Trajectories.load(inputs.data)
        srl.Secret(steps=1_000_000, evaluate_every=1_000_000, device="cpu").fit(
            loaded, checkpoint=folder / "c", progress=False
        )

    def deep(folder: Path) -> None:
        train(sb3.DQN, TRIGGERS, 10_000_000, folder=folder / "training", progress=False, **DQN)

    fit_words = ["fit", data, "--steps", "1000000", "--evaluate-every", "1000000", "--device", "cpu", "--out"]
    learn = ["learn", TRIGGERS, "--episodes", "10000000", "--seeds", "2", *words_of(MAZE), "--out"]
    return [
        Job("collect", collect),
        Job("collect env", collect_env),
        Job("Secret.fit", fit, settings=small_fits),
        Job("train", deep),
        Job("fit", lambda folder: main([*fit_words, str(folder / "model.safetensors")]), command=True),
        Job("learn", lambda folder: main([*learn, str(folder / "run")]), command=True),
    ]


def units(inputs: Inputs, scratch: Path, quick: bool, seed: int) -> list[Callable[[], Tally]]:
    """One for each job, and one for the folders that are read only."""
    fillings = [
        partial(_attack, job, scratch / f"disk-{number}", 1 if quick else 12, seed, number)
        for number, job in enumerate(jobs(inputs))
        if not (quick and job.slow)
    ]
    return [*fillings, partial(_read_only, inputs, scratch / "read-only", None)]


def _attack(job: Job, scratch: Path, most: int, seed: int, number: int, only: str | None = None) -> Tally:
    tally = Tally("disk", job.name)
    try:
        filling = Filling(job, scratch)
    except (PermissionError, FileNotFoundError) as refused:
        tally.notes.append(f"full disks were left out ({refused})")
        return tally
    try:
        if only in (None, "undisturbed"):
            tally.count("undisturbed", filling.problems)
        most = min(most, 3) if job.slow else most
        chosen = np.random.default_rng([seed, number]).permutation(filling.pages)[:most]
        for pages in sorted(chosen.tolist()) if only is None else [int(p) for p in only.split("-")[1:]]:
            tally.count(f"pages-{pages}", filling.leaving(pages))
    finally:
        filling.close()
    return tally


def _read_only(inputs: Inputs, scratch: Path, only: str | None) -> Tally:
    tally = Tally("disk", "read-only folder")
    try:
        disk = SmallDisk(scratch / "disk")
    except (PermissionError, FileNotFoundError) as refused:
        tally.notes.append(f"read-only folders were left out ({refused})")
        return tally
    try:
        disk.folder.mkdir()
        disk.make_read_only()
        for job in endless(inputs):
            if only in (None, job.name):
                ended = run(partial(job.execute, disk.folder), scratch / "notes", _SOON)
                tally.count(job.name, manners(ended, job.command, "OSError", "ValueError"))
    finally:
        disk.close()
    return tally


def repeat(inputs: Inputs, scratch: Path, target: str, case: str, seed: int) -> Tally:
    """One case again."""
    if target == "read-only folder":
        return _read_only(inputs, scratch, case)
    (job,) = (job for job in jobs(inputs) if job.name == target)
    return _attack(job, scratch, 0, seed, 0, case)
