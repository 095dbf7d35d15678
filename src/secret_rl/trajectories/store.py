"""Trajectories on disk: a folder of plain ``.npy`` files and a JSON header.

A store is written under another name and renamed when it is complete, so that a folder with the final name is
always whole. Nothing in it is a pickle. Opening reads the header and the offsets and maps the arrays: the time does not
depend on the number of steps.
"""

import json
import shutil
import stat
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from secret_rl.atomic import find_folder, new_folder, path_lock, put_folder, sweep
from secret_rl.files import FileFormat, NpyWriter, check_same, crc32_of, map_npy
from secret_rl.trajectories import spaces
from secret_rl.trajectories.types import Trajectories, fingerprint_of

FORMAT = FileFormat("secret-rl trajectories", remedy="restore it or collect the data again")
HEADER = "header.json"
_BYTES_AT_A_TIME = 32 << 20
_VERIFY_UP_TO = 64 << 20  # stores up to this size are verified whenever they are opened
_SECONDS_BETWEEN_COMMITS = 5.0
_LOOKS = 5  # at a store that is not there, before it counts as missing
_LONGEST_NAME = 120  # letters of a file's name that come from its column


def save(data: Trajectories, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write trajectories; ``path`` appears complete or not at all."""
    size = sum(array.nbytes for array in data.columns().values())
    episodes = max(1, _BYTES_AT_A_TIME * len(data) // max(size, 1))
    blocks = (data[first : first + episodes] for first in range(0, max(len(data), 1), episodes))
    return save_blocks(blocks, data.meta, path, overwrite=overwrite)


def save_blocks(
    blocks: Iterable[Trajectories], meta: Mapping[str, Any], path: str | Path, *, overwrite: bool = False
) -> Path:
    """Write trajectories that come in parts; ``path`` appears complete or not at all."""
    path = Path(path)
    check_target(path, overwrite)
    with new_folder(path, overwrite=overwrite) as folder, closing(StoreWriter(folder)) as writer:
        for block in blocks:
            writer.append(block)
        writer.complete(meta)
    return path


def check_target(path: Path, overwrite: bool) -> None:
    """Refuse to write over something unless asked to, and never over what is not a store."""
    folder = find_folder(path)
    if not folder.exists():
        return
    if not (folder / HEADER).is_file() and folder.exists():  # another one may be replacing it in this moment
        raise FileExistsError(f"{path} exists and is not a trajectory store: choose another name")
    if not overwrite:
        raise FileExistsError(f"{path} exists: choose another name, or pass overwrite=True to replace it")


class StoreWriter:
    """Appends episodes to the files of a folder; ``complete`` makes it a store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[str, NpyWriter] = {}
        self._spaces: dict[str, Any] = {}

    @property
    def episodes(self) -> int:
        """Episodes written so far."""
        return self._files["offsets"].rows - 1 if self._files else 0

    def append(self, data: Trajectories) -> None:
        """Add episodes."""
        columns = data.columns()
        if not self._files:
            self._spaces = {kind: spaces.to_json(getattr(data, kind)) for kind in ("observation_space", "action_space")}
            for name, array in {"offsets": data.offsets, **columns}.items():
                self._files[name] = NpyWriter(self._new_file(name), array.dtype, array.shape[1:])
            self._files["offsets"].append(np.zeros(1, np.int64))
        different = columns.keys() ^ (self._files.keys() - {"offsets"})
        if different:
            raise ValueError(f"these episodes hold other fields: {sorted(different)}")
        self._files["offsets"].append(data.offsets[1:] + self._files["rewards"].rows)
        for name, array in columns.items():
            self._files[name].append(array)

    def complete(self, meta: Mapping[str, Any]) -> None:
        """Close the files and write the header, which makes the folder a store."""
        for file in self._files.values():
            file.complete()
        self._write_header(meta)

    def close(self) -> None:
        """Close the files as they are."""
        for file in self._files.values():
            file.close()

    def _write_header(self, meta: Mapping[str, Any]) -> None:
        entries = {name: file.entry() for name, file in self._files.items()}
        FORMAT.write_json(self.folder / HEADER, {**self._spaces, "meta": dict(meta), "arrays": entries})

    def _new_file(self, name: str) -> Path:
        """A path that shows which column it is, and is that of no other file, whatever the columns are called."""
        readable = ".".join(quote(part, safe=" -_") for part in name.split("/"))[:_LONGEST_NAME]
        while f"{readable}.npy".casefold() in {file.path.name.casefold() for file in self._files.values()}:
            readable += "-"  # some disks take x for X
        return self.folder / f"{readable}.npy"


class ResumableStore(StoreWriter):
    """A store that is filled over time in ``PATH.partial``; interrupted, it goes on after its last ``commit``.

    Only one process writes to a path at a time. A commit writes the header of a store: of the rows so far.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path.with_name(f"{path.name}.partial"))
        self.path, self._lock, self._last_commit = path, path_lock(path), time.monotonic()

    def resume(self, meta: Mapping[str, Any]) -> Trajectories | None:
        """What was committed, to go on after it; ``None`` and an empty folder where there is nothing.

        What was written after the commit is cut off. Another ``meta`` (but for ``drawn``) is a ``ResumeError``.
        """
        if not (self.folder / HEADER).is_file():
            sweep(self.path.parent)
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            return None
        header = FORMAT.read_json(self.folder / HEADER)
        with FORMAT.reading(self.folder / HEADER):
            before = {key: value for key, value in header["meta"].items() if key != "drawn"}
            # A tuple comes back from JSON as a list.
            check_same(self.folder, "an unfinished collection", before, json.loads(json.dumps(meta, default=str)))
            self._spaces = {kind: header[kind] for kind in ("observation_space", "action_space")}
            self._files = {name: NpyWriter.resume(self.folder, entry) for name, entry in header["arrays"].items()}
            return _open(self.folder, header)

    def commit(self, meta: Mapping[str, Any]) -> None:
        """From time to time, make what was written so far survive a kill."""
        if time.monotonic() - self._last_commit >= _SECONDS_BETWEEN_COMMITS:
            for file in self._files.values():
                file.flush()
            self._write_header(meta)
            self._last_commit = time.monotonic()

    def finish(self, meta: Mapping[str, Any], overwrite: bool = False) -> None:
        """Complete the store and give it its name."""
        self.complete(meta)
        check_target(self.path, overwrite)
        put_folder(self.folder, self.path, overwrite=overwrite)
        sweep(self.path.parent)

    def close(self) -> None:
        """Let go of it: what was committed stays, anything else is removed."""
        super().close()
        if not (self.folder / HEADER).is_file():
            shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.release()


def load(path: str | Path, *, verify: bool | None = None) -> Trajectories:
    """Open a store; see ``Trajectories.load``."""
    path = Path(path)
    for look in count(1):
        folder = find_folder(path)
        before = _identity(folder)
        try:
            if before is None:
                raise FileNotFoundError(f"{path} is not a folder: expected the path that trajectories were saved to")
            with FORMAT.reading(folder):
                if not (folder / HEADER).is_file():
                    raise ValueError(f"it has no {HEADER}")
            header = FORMAT.read_json(folder / HEADER)
            with FORMAT.reading(folder / HEADER):
                data = _open(folder, header, verify)
        except (OSError, ValueError):
            if before == _identity(folder) and (before is not None or look >= _LOOKS):
                raise
            time.sleep(0.002)  # others may be replacing it, one after the other
        else:
            if before == _identity(folder):  # or it was replaced meanwhile, and some files may be of the old store
                return data
    raise AssertionError


def _identity(folder: Path) -> tuple[int, int, int] | None:
    """Which folder it is, None where there is none; its time differs from that of a removed one with its number."""
    try:
        found = folder.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_mtime_ns) if stat.S_ISDIR(found.st_mode) else None


def _open(folder: Path, header: Mapping[str, Any], verify: bool | None = True) -> Trajectories:
    """Trajectories on disk as a header describes them."""
    entries = header["arrays"]
    arrays = {name: map_npy(folder, entry) for name, entry in entries.items()}
    size = sum(array.nbytes for array in arrays.values())
    verify = size <= _VERIFY_UP_TO if verify is None else verify
    for name, array in arrays.items() if verify else ():
        with FORMAT.reading(folder / entries[name]["file"]):
            if crc32_of(array) != entries[name]["crc32"]:
                raise ValueError(f"{name} does not match its checksum: it was damaged after it was written")
    # Read, not mapped: episodes are copied by these numbers, and nobody is to change them later.
    offsets = np.array(arrays.pop("offsets"), np.int64)
    observations, actions = (
        spaces.from_json(header[kind], spaces.BUDGET + size) for kind in ("observation_space", "action_space")
    )
    data = Trajectories.from_columns(arrays, offsets, observations, actions, dict(header["meta"]), trusted=True)
    spaces.check_trajectories(data, content=False)
    vars(data)["fingerprint"] = fingerprint_of(
        {name: (entry["dtype"], entry["shape"], entry["crc32"]) for name, entry in entries.items()}
    )
    return data
