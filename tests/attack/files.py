"""Readers that are given damaged files.

Each either raises an error of its own, a ValueError that names the path, or gives what the file held before. Where the
damage is sealed with checksums that fit, something else may be read, if it is fit for use. A reader never raises
anything else, never ends the interpreter, and takes neither seconds nor much more memory than the files are large.
"""

import gc
import io
import json
import mmap
import resource
import shutil
import signal
import struct
import time
import warnings
import zlib
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tests.attack.children import run
from tests.attack.content import digest, not_finite
from tests.attack.damage import Damage, Files, draw
from tests.attack.jobs import Inputs
from tests.attack.readers import Reader, readers
from tests.attack.table import Tally

CASES, QUICK_CASES = 110_000, 2_500
_BLOCK = 2_000  # cases that one process reads
_SLOW, _HUNG = 10.0, 30  # seconds
_MEMORY = 64 << 20  # bytes beyond the size of the files
_MOST_MEMORY = 4 << 30
_UNDAMAGED = -1
_CLEAR = Path("/proc/self/clear_refs")
_STOP_AFTER = 25  # processes of a block that were ended: enough is known


class Reading:
    """The damaged files of one reader."""

    def __init__(self, reader: Reader, scratch: Path) -> None:
        self.reader, self._scratch, self._folder = reader, scratch, scratch / "work"
        self._original = original = scratch / "original"
        original.mkdir(parents=True)
        with reader.settings(), redirect_stdout(io.StringIO()):
            reader.make(original)
        self.originals: Files = {
            str(path.relative_to(original)): path.read_bytes()
            for path in sorted(original.rglob("*"))
            if path.is_file() and not path.name.endswith(".lock")
        }
        try:
            _CLEAR.write_text("5")
            self.measures = True  # memory
        except OSError:
            self.measures = False

    def block(self, cases: range, seed: int) -> Tally:
        """Read many damaged files in a child; where that ends, go on with the next file in another."""
        tally = Tally("files", self.reader.name)
        at, log = mmap.mmap(-1, 8), self._scratch / "failures"
        first, ended_early = cases.start, 0
        while first < cases.stop and ended_early < _STOP_AFTER:
            log.unlink(missing_ok=True)
            struct.pack_into("<q", at, 0, _UNDAMAGED)
            work = partial(self._read_many, range(first, cases.stop), seed, at, log)
            how = run(work, self._scratch / "notes", 3600)
            (last,) = struct.unpack_from("<q", at)
            if last == _UNDAMAGED:
                tally.count("undamaged", [f"files that nobody has damaged are refused: {how}"])
                break
            for line in log.read_text().splitlines() if log.is_file() else ():
                case, what = json.loads(line)
                tally.count(f"case-{case}", [what])
            tally.tried = last - cases.start
            if not how.code:
                break
            if how.error:
                raise RuntimeError(f"the harness itself failed in case {last} of {self.reader.name}: {how.err}")
            words = {-signal.SIGALRM: f"it took more than {_HUNG} s"}.get(how.code, f"the interpreter ended: {how}")
            tally.count(f"case-{last}", [f"{words} [{self._damage(last, seed).kind}]"])
            first, ended_early = last + 1, ended_early + 1
        if not self.measures:
            tally.notes.append("memory was not measured: /proc/self/clear_refs cannot be written here")
        return tally

    def _read_many(self, cases: range, seed: int, at: mmap.mmap, log: Path) -> None:
        warnings.simplefilter("ignore")
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (_status("VmSize:") + _MOST_MEMORY, most))
        with self.reader.settings(), log.open("w") as failures:
            self._restore()
            before = digest(self.reader.read(self._folder))
            self._restore()
            struct.pack_into("<q", at, 0, cases.start)
            for case in cases:
                signal.alarm(_HUNG)
                damage = self._damage(case, seed)
                self._change(damage.changes)
                for problem in self._judge(damage, before)[:1]:
                    failures.write(json.dumps([case, f"{problem} [{damage.kind}]"]) + "\n")
                    failures.flush()
                if self.reader.changes:
                    self._restore()
                else:
                    self._change({name: self.originals[name] for name in damage.changes})
                struct.pack_into("<q", at, 0, case + 1)
            signal.alarm(0)

    def _change(self, files: Mapping[str, bytes | None]) -> None:
        for name, content in files.items():
            (self._folder / name).unlink(missing_ok=True)
            if content is not None:
                (self._folder / name).write_bytes(content)

    def _judge(self, damage: Damage, before: Any) -> list[str]:
        sizes = {**self.originals, **{name: content or b"" for name, content in damage.changes.items()}}
        allowed = self.reader.growth * sum(map(len, sizes.values())) + _MEMORY
        resident = 0
        if self.measures:
            _CLEAR.write_text("5")  # the peak counts from here
            resident = _status("VmRSS:")
        started, found, problems = time.perf_counter(), None, []
        try:
            found = self.reader.read(self._folder)
        except Exception as error:
            problems += self._problems_of_error(error, damage)
        seconds = time.perf_counter() - started
        if seconds > _SLOW:
            problems.append(f"it took {seconds:.1f} s")
        taken = _status("VmHWM:") - resident if self.measures else 0
        if taken > allowed:
            problems.append(f"it took {taken >> 20} MB for {int(allowed - _MEMORY) >> 10} KB of files")
            gc.collect()
        if found is not None and not problems:
            problems += self._problems_of(found, damage, before)
        return problems

    def _problems_of_error(self, error: Exception, damage: Damage) -> list[str]:
        """What is wrong with the error of a reader."""
        said = f"{type(error).__name__}: {str(error)[:200]}"
        if isinstance(error, OSError) and (damage.sealed or None in damage.changes.values()):
            return []
        if not isinstance(error, ValueError):
            return [said]
        return [] if str(self._folder) in str(error) else [f"an error that does not name the file: {said}"]

    def _problems_of(self, found: Any, damage: Damage, before: Any) -> list[str]:
        """What is wrong with content that a reader accepted."""
        if digest(found) == before:
            return []
        if not damage.sealed and not (self.reader.optional and None in damage.changes.values()):
            return ["damaged content was taken for good"]
        if not_finite(found):
            return ["what was read holds numbers that are not finite"]
        try:
            self.reader.use(found)
        except Exception as error:
            if isinstance(error, ValueError) or type(error).__module__.startswith("secret_rl"):
                return []
            return [f"what was read is not fit for use: {type(error).__name__}: {str(error)[:200]}"]
        return []

    def _damage(self, case: int, seed: int) -> Damage:
        return draw(self.originals, np.random.default_rng([seed, zlib.crc32(self.reader.name.encode()), case]))

    def _restore(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        shutil.copytree(self._original, self._folder)


def _status(name: str) -> int:
    text = Path("/proc/self/status").read_text()
    return int(text[text.index(name) + len(name) :].split(None, 1)[0]) << 10


def units(inputs: Inputs, quick: bool) -> list[tuple[str, Callable[..., Tally]]]:
    """Blocks of cases of every reader."""
    known = readers(inputs)
    total, made = QUICK_CASES if quick else CASES, []
    for reader in known:
        cases = int(np.ceil(total * reader.share / sum(reader.share for reader in known)))
        blocks = [range(first, min(first + _BLOCK, cases)) for first in range(0, cases, _BLOCK)]
        made += [(reader.name, partial(_attack, reader, block)) for block in blocks]
    return made


def _attack(reader: Reader, cases: range, scratch: Path, seed: int, only: str | None) -> Tally:
    if only:
        first = 0 if only == "undamaged" else int(only.removeprefix("case-"))
        cases = range(first, first + 1)
    tally = Reading(reader, scratch).block(cases, seed)
    shutil.rmtree(scratch)
    return tally
