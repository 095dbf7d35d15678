"""Kills, damaged files, concurrent writers and full disks, each against any target.

After each, what is at the path of a target is what was there before, or new and whole. The same job again ends in
exactly what an undisturbed run leaves, and leaves nothing else behind. A damaged file is read as it was before, or is
refused with a ValueError that names it.
"""

import ctypes
import io
import json
import mmap
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tests.attack.children import Child, Ended, manners, run
from tests.attack.targets import Target, content_of, differences

Case = tuple[str, list[str]]  # what was tried, and what was wrong
_HUNG = 60  # seconds
_PATHS = {  # audit events that change files -> which of their arguments are paths
    "os.rename": (0, 1), "os.mkdir": (0,), "os.remove": (0,), "os.rmdir": (0,), "os.truncate": (0,),
}  # fmt: skip
_CHANGES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class Trial:
    """A job that is disturbed again and again, and what it leaves when it is not."""

    def __init__(self, target: Target, folder: Path, notes: Path) -> None:
        self.target, self.folder, self.notes, self._counter = target, folder, notes, mmap.mmap(-1, 8)
        target.start(folder)
        before = target.digest(folder)
        ended = self.killed_before(0)
        self.operations = int.from_bytes(self._counter[:8], "little")
        self.seconds, self.expected, self.new = ended.seconds, content_of(folder), target.digest(folder)
        self.problems = [f"undisturbed, it ends with {ended}"] if ended.code or self.new is None else []
        self.allowed = {before, self.new}

    def run(self, work: Callable[[Path], Any] | None = None) -> Ended:
        """Run the job in the folder as it is, in a child."""
        return run(partial(work or self.target.execute, self.folder), self.notes)

    def killed_before(self, operation: int) -> Ended:
        """Run it in the folder as it is, killed before one of its operations on files."""

        def work(folder: Path) -> int:
            sys.addaudithook(operations(folder, operation, self._counter))
            return self.target.execute(folder)

        return self.run(work)

    def found(self) -> list[str]:
        """What is wrong with what is at the path."""
        if self.target.grows:
            return []
        try:
            found = self.target.digest(self.folder)
        except Exception as broken:
            return [f"what is there cannot be read: {type(broken).__name__}: {broken}"]
        return [] if found in self.allowed else ["what is there is neither the old nor the new one"]

    def again(self) -> list[str]:
        """What is wrong with the same job again; it may refuse to write over what it has written."""
        done = self.target.keeps and self.target.digest(self.folder) == self.new
        ended = self.run()
        if done and "FileExistsError" in ended.error.get("bases", ()):
            return []
        if ended.code:
            return [f"the same again ends with {ended}"]
        return [f"the same again: {what}" for what in differences(content_of(self.folder), self.expected)]


def operations(folder: Path, kill_before: int, counter: mmap.mmap) -> Callable[[str, Any], None]:
    """An audit hook that counts what a process does to the files of a folder, and kills it before one of them."""
    prefix, count = f"{folder}{os.sep}", 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if event == "open":
            paths = [arguments[0]] if isinstance(arguments[2], int) and arguments[2] & _CHANGES else []
        else:
            paths = [arguments[number] for number in _PATHS.get(event, ())]
        if any(isinstance(path, str | os.PathLike) and os.fspath(path).startswith(prefix) for path in paths):
            count += 1
            counter[:8] = count.to_bytes(8, "little")
            if count == kill_before:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook


def kills(target: Target, scratch: Path, rng: np.random.Generator, quick: bool) -> Iterator[Case]:
    """SIGKILL just before file operations, and SIGKILL, SIGTERM and SIGINT at random times."""
    trial = Trial(target, scratch / "work", scratch / "notes")
    yield "undisturbed", trial.problems
    for number in sorted(rng.permutation(trial.operations)[: 2 if quick else 4 if target.slow else 12].tolist()):
        target.start(trial.folder)
        ended = trial.killed_before(number + 1)
        killed = [] if ended.code == -signal.SIGKILL else [f"it was to be killed, and ended with {ended}"]
        yield f"before operation {number + 1}", killed + trial.found() + trial.again()
    for _ in range(1 if quick else 2 if target.slow else 4):
        number, wait = int(rng.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT])), rng.random() * trial.seconds
        target.start(trial.folder)
        child = Child(partial(target.execute, trial.folder), trial.notes)
        time.sleep(wait)
        child.kill(number)
        ended = child.wait()
        wrong = [] if ended.code in (0, -number, 128 + number) else [f"it ended with {ended}"]
        wrong += ["processes that it had started lived on"] if ended.orphans else []
        wrong += ["a traceback"] if target.command and "Traceback" in ended.err else []
        yield f"signal {number} after {wait:.3f} s", wrong + trial.found() + trial.again()


def damaged(raw: bytes, rng: np.random.Generator) -> tuple[str, bytes | None]:
    """One of many kinds of damage, and what is left of a file; None where it is gone."""
    size = len(raw)
    first = int(rng.integers(size + 1)) if rng.random() < 0.7 else int(rng.integers(min(size, 64) + 1))
    last = min(size, first + int(2 ** rng.uniform(0, 10)))
    flipped = bytearray(raw)
    for _ in range(int(rng.integers(1, 9)) if raw else 0):
        flipped[int(rng.integers(size))] ^= 1 << int(rng.integers(8))
    numbers = io.BytesIO()
    np.save(numbers, np.arange(20.0))
    foreign = [
        numbers.getvalue(), b"PK\x03\x04" * 9, pickle.dumps({"a": [1, 2]}), b"null", b"[]", b"{}", b"\xff\xfe\x00",
        b"[" * 100_000, b'{"a":' * 50_000, b'{"format": NaN}', b"1" * 10_000, bytes(4096), b"\xff" * 64,
        (2**62).to_bytes(8, "little") + b"{}", b'{"format": "\\ud800"}',
    ]  # fmt: skip
    kinds: dict[str, bytes | None] = {
        "bits flipped": bytes(flipped),
        "bytes overwritten": raw[:first] + rng.bytes(last - first) + raw[last:],
        "zeros": raw[:first] + bytes(last - first) + raw[last:],
        "bytes missing": raw[:first] + raw[last:],
        "block twice": raw[:last] + raw[first:],
        "truncated": raw[:first],
        "extended": raw + rng.bytes(int(2 ** rng.uniform(0, 12))),
        "other format": foreign[int(rng.integers(len(foreign)))],
        "gone": None,
    }
    kind = str(rng.choice(list(kinds)))
    return kind, kinds[kind]


def damage(target: Target, scratch: Path, rng: np.random.Generator, quick: bool) -> Iterator[Case]:
    """Damage to what is written, and to what a job that was killed half-way goes on from."""
    trial, counter = Trial(target, scratch / "work", scratch / "notes"), mmap.mmap(-1, 8)
    if target.copy is not None:
        tried = 20 if quick else 1_000
        log = scratch / "failures"
        read = partial(read_damaged, target, trial.folder, tried, rng, log, counter)
        ended = run(read, trial.notes, limit=_HUNG + tried / 20)
        done = int.from_bytes(counter[:8], "little")
        failed = dict(json.loads(line) for line in log.read_text().splitlines()) if log.is_file() else {}
        yield from ((f"read {case}", [failed[str(case)]] if str(case) in failed else []) for case in range(done))
        if ended.code:
            yield f"read {done}", [f"the interpreter ended: {ended}"]
    for _ in range((2 if quick else 8) if target.resumes and not target.slow else 0):
        target.start(trial.folder)
        trial.killed_before(int(rng.integers(trial.operations // 3, trial.operations)))
        files = sorted(path for path in trial.folder.rglob("*") if path.is_file() and ".lock" not in path.name)
        if not files:
            continue
        path = files[int(rng.integers(len(files)))]
        kind, content = damaged(path.read_bytes(), rng)
        path.write_bytes(content) if content is not None else path.unlink()
        ended = trial.run()
        wrong = manners(ended, target.command) if ended.code else []
        wrong = wrong or ([] if ended.code else differences(content_of(trial.folder), trial.expected))
        yield f"go on with {path.name}, {kind}", wrong


def read_damaged(
    target: Target, folder: Path, tried: int, rng: np.random.Generator, log: Path, counter: mmap.mmap
) -> None:
    """Read many damaged files, in one process; failures go to a file."""
    warnings.simplefilter("ignore")
    whole, before = folder.with_name("whole"), target.digest(folder)
    shutil.copytree(folder, whole, dirs_exist_ok=True)
    originals = {path.relative_to(whole): path.read_bytes() for path in sorted(whole.rglob("*")) if path.is_file()}
    names = [name for name in originals if name.suffix not in (".png", ".svg", ".csv")]
    with log.open("w") as failures:
        for case in range(tried):
            signal.alarm(_HUNG)
            name = names[int(rng.integers(len(names)))]
            kind, content = damaged(originals[name], rng)
            (folder / name).unlink()
            if content is not None:
                (folder / name).write_bytes(content)
            problem = None
            try:
                if target.digest(folder) != before and content is not None:
                    problem = "damaged content was taken for good"
            except OSError as error:
                problem = None if content is None else f"{type(error).__name__}: {error}"
            except Exception as error:
                if not isinstance(error, ValueError) or str(folder) not in str(error):
                    problem = f"{type(error).__name__}: {str(error)[:200]}"
            if problem:
                failures.write(json.dumps([str(case), f"{problem} [{kind} in {name}]"]) + "\n")
                failures.flush()
            (folder / name).write_bytes(originals[name])
            counter[:8] = (case + 1).to_bytes(8, "little")


def writers(target: Target, scratch: Path, rng: np.random.Generator, quick: bool) -> Iterator[Case]:
    """Several processes that write to the same path at once, while another reads it."""
    trial, stage = Trial(target, scratch / "work", scratch / "notes"), mmap.mmap(-1, 1)

    def write(folder: Path) -> int:
        while stage[0] == 0:
            pass  # all begin in the same moment
        return target.execute(folder)

    def read(folder: Path) -> None:
        seen = target.before is not None
        while True:
            finished = stage[0] == 2
            found = trial.new if target.grows else target.digest(folder)
            if found not in trial.allowed or (seen and found is None):
                raise RuntimeError("it found " + ("nothing" if found is None else "what nobody has written"))
            seen = found is not None
            if finished:
                return

    for number in range(1 if quick else 2 if target.slow else 4):
        target.start(trial.folder)
        stage[0] = 0
        reader = Child(partial(read, trial.folder), scratch / "reader")
        children = [Child(partial(write, trial.folder), scratch / f"writer-{i}") for i in range(3)]
        stage[0] = 1
        ended = [child.wait(_HUNG) for child in children]
        stage[0] = 2
        seen = reader.wait(_HUNG)
        wrong = [f"a reader: {seen}"] if seen.code else []
        wrong += [what for one in ended if one.code for what in manners(one, target.command)]
        wrong += [] if any(not one.code for one in ended) else ["nobody succeeded"]
        yield f"race {number}", wrong + differences(content_of(trial.folder), trial.expected)


def disk(target: Target, scratch: Path, rng: np.random.Generator, quick: bool) -> Iterator[Case]:
    """Disks with room for a few pages, and read-only ones; left out without the right to mount."""
    place = scratch / "disk"
    place.mkdir(parents=True)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "attack", place], capture_output=True).returncode:
        return
    try:
        trial, ballast = Trial(target, place / "work", scratch / "notes"), place / "ballast"
        used = sum(path.stat().st_blocks // 8 for path in trial.folder.rglob("*")) + 1
        for pages in sorted(rng.integers(0, used + 2, 1 if quick else 2 if target.slow else 4).tolist()):
            target.start(trial.folder)
            room = os.statvfs(place)
            with ballast.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, max(room.f_bavail - pages, 1) * room.f_bsize)
            ended = trial.run()
            wrong = (manners(ended, target.command) if ended.code else []) + trial.found()
            left = [path.name for path in trial.folder.rglob(".*-????????")]
            wrong += [f"left behind {', '.join(left[:4])}"] if left else []
            ballast.unlink()
            yield f"{pages} pages", wrong + trial.again()
        target.start(trial.folder)
        subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        yield "read-only", manners(trial.run(), target.command)
    finally:
        subprocess.run(["umount", "-l", place], check=False)


ATTACKS = {"kills": kills, "damage": damage, "writers": writers, "disk": disk}
_CLONE_NEWNS = 0x00020000


def private_mounts() -> None:
    """Mounts of this process are its own, and end with it."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS) == 0:
        subprocess.run(["mount", "--make-rprivate", "/"], check=False, capture_output=True)
