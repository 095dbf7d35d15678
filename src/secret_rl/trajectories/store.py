"""Trajectories on disk: a folder of plain ``.npy`` files and a JSON header.

A store is written under another name and renamed when it is complete, so that a folder with the final name is
always whole. Nothing in it is a pickle. Opening reads the header and the offsets and maps the arrays: the time does not
depend on the number of steps.
"""

import shutil
import stat
import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from secret_rl.atomic import find_folder, new_folder, path_lock, put_folder, sweep
from secret_rl.files import FileFormat, NpyWriter, crc32_of, map_npy
from secret_rl.trajectories import spaces
from secret_rl.trajectories.spaces import check_columns, check_offsets
from secret_rl.trajectories.types import Trajectories, fingerprint_of

FORMAT = FileFormat("secret-rl trajectories", remedy="restore it or collect the data again")
_UNFINISHED = FileFormat("secret-rl unfinished trajectories", remedy="delete the folder and collect the data again")
HEADER, PROGRESS = "header.json", "progress.json"
_BYTES_AT_A_TIME = 32 << 20
_VERIFY_UP_TO = 64 << 20  # stores up to this size are verified whenever they are opened
_SECONDS_BETWEEN_COMMITS = 5.0
_LOOKS = 5  # at a store that is not there, before it counts as missing
_LONGEST_NAME = 120  # letters of a file's name that come from its column


def save(data: Trajectories, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write trajectories; ``path`` appears complete or not at all."""
    size = sum(array.nbytes for array in data.columns()[0].values())
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
    if not folder.exists() or _is_unconfirmed(path):
        return
    if not (folder / HEADER).is_file() and folder.exists():  # another one may be replacing it in this moment
        raise FileExistsError(f"{path} exists and is not a trajectory store: choose another name")
    if not overwrite:
        raise FileExistsError(f"{path} exists: choose another name, or pass overwrite=True to replace it")


def _is_unconfirmed(path: Path) -> bool:
    """Whether a collection put its store at its path, and was killed before it could remove its progress file."""
    return (path / HEADER).is_file() and (path / PROGRESS).is_file()


class StoreWriter:
    """Appends episodes to the files of a folder; ``complete`` makes it a store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[str, NpyWriter] = {}
        self._per: dict[str, str] = {}  # what each column has a row for
        self._spaces: dict[str, Any] = {}

    @property
    def episodes(self) -> int:
        """Episodes written so far."""
        return self._files["offsets"].rows - 1 if self._files else 0

    def append(self, data: Trajectories) -> None:
        """Add episodes."""
        steps, episodes = data.columns()
        columns = {**steps, **episodes}
        if not self._files:
            for kind in ("observation_space", "action_space"):
                self._spaces[kind] = spaces.to_json(getattr(data, kind))
            self._per = {name: "steps" if name in steps else "episodes" for name in columns} | {"offsets": "offsets"}
            for name, array in {**columns, "offsets": np.zeros(1, np.int64)}.items():
                self._files[name] = NpyWriter(self.folder / self._file_name(name), array.dtype, array.shape[1:])
            self._files["offsets"].append(np.zeros(1, np.int64))
        different = columns.keys() ^ (self._files.keys() - {"offsets"})
        if different:
            raise ValueError(f"these episodes hold other fields: {sorted(different)}")
        steps_before = self._files["rewards"].rows
        for name, array in columns.items():
            self._files[name].append(array)
        self._files["offsets"].append(data.offsets[1:] - data.offsets[0] + steps_before)

    def complete(self, meta: Mapping[str, Any]) -> None:
        """Write the header, which makes the folder a store."""
        for file in self._files.values():
            file.complete()
        counts = {"episodes": self.episodes, "steps": self._files["rewards"].rows}
        FORMAT.write_json(self.folder / HEADER, {**self._spaces, **counts, "meta": dict(meta), "arrays": self._entries})

    def close(self) -> None:
        """Close the files as they are."""
        for file in self._files.values():
            file.close()

    @property
    def _entries(self) -> dict[str, Any]:
        return {name: {"per": self._per[name], **file.entry()} for name, file in self._files.items()}

    def _file_name(self, name: str) -> str:
        """A name that shows which column it is, and is that of no other file, whatever the columns are called."""
        try:
            readable = ".".join(quote(part, safe=" -_") for part in name.split("/"))[:_LONGEST_NAME]
        except UnicodeEncodeError:
            raise ValueError(f"a field cannot be called {name!r}: give it a name that can be written") from None
        taken = {file.path.name.casefold() for file in self._files.values()}  # some disks take x for X
        endings = ("", *(f"-{number}" for number in range(2, len(taken) + 2)))
        names = (f"{readable}{ending}.npy" for ending in endings)
        return next(found for found in names if found.casefold() not in taken)


class ResumableStore(StoreWriter):
    """A store that is filled over time in ``PATH.partial``; interrupted, it can be resumed at its last ``commit``.

    Only one process writes to a path at a time. ``progress`` is what was committed, empty if there is nothing to
    resume; nothing is changed on disk before ``begin`` or ``resume``.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path.with_name(f"{path.name}.partial"))
        self.path = path
        self._lock = path_lock(path)
        self._state: dict[str, Any] = {}
        self._resumed = False
        self._committed = time.monotonic()
        self.placed = _is_unconfirmed(path)
        """Whether the store is at its path already, and only its progress file has to be removed."""
        progress = (path if self.placed else self.folder) / PROGRESS
        try:
            if progress.is_file():
                with _UNFINISHED.reading(progress):
                    self._state = _UNFINISHED.read_json(progress)
                    self._state["progress"]["meta"]
        except BaseException:
            self._lock.release()
            raise

    @property
    def progress(self) -> dict[str, Any]:
        """What was given to the last ``commit``."""
        return dict(self._state.get("progress", {}))

    def reading(self) -> AbstractContextManager[None]:
        """Whatever the progress leads to in the block becomes a ``FileFormatError``."""
        return _UNFINISHED.reading(self.folder / PROGRESS)

    def begin(self) -> None:
        """Start with nothing."""
        sweep(self.path)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self._state = {}

    def resume(self) -> None:
        """Go on after the last ``commit``, once what was written is checked; what was written since is cut off."""
        with self.reading():
            self._spaces, entries = self._state["spaces"], self._state["files"]
            _open_folder(self.folder, {**self._spaces, "arrays": entries, "meta": {}}, partial=True)
            for name, entry in entries.items():
                self._per[name] = entry["per"]
                self._files[name] = NpyWriter.resume(self.folder, entry)
        self._resumed = True

    def append(self, data: Trajectories) -> None:
        """Add episodes."""
        with self.reading() if self._resumed else nullcontext():
            super().append(data)

    def due(self) -> bool:
        """Whether the last commit was long enough ago for another."""
        return time.monotonic() - self._committed >= _SECONDS_BETWEEN_COMMITS

    def commit(self, **progress: Any) -> None:
        """Make what was written so far survive a kill; ``progress`` is kept with it."""
        for file in self._files.values():
            file.flush()
        self._state = {"spaces": self._spaces, "files": self._entries, "progress": progress}
        _UNFINISHED.write_json(self.folder / PROGRESS, self._state)
        self._committed = time.monotonic()

    def finish(self, meta: Mapping[str, Any], progress: Mapping[str, Any], overwrite: bool = False) -> None:
        """Complete the store and give it its name; ``progress`` as for ``commit``."""
        self.commit(**progress)
        self.complete(meta)
        check_target(self.path, overwrite)
        put_folder(self.folder, self.path, overwrite=overwrite)
        self.confirm()

    def confirm(self) -> None:
        """The store is at its path, and this process knows: until here, the same collection would resume."""
        sweep(self.path)
        self._lock.release()
        (self.path / PROGRESS).unlink(missing_ok=True)

    def stop(self) -> None:
        """Let go of it, after an error for one: what was committed stays, anything else is removed."""
        self.close()
        if not self._state and self.folder.is_dir():
            shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.release()


def load(path: str | Path, *, verify: bool | None = None) -> Trajectories:
    """Open a store; see ``Trajectories.load``."""
    path = Path(path)
    missing = 0
    while True:
        folder = find_folder(path)
        before = _identity(folder)
        if before is None:
            missing += 1
            if missing == _LOOKS:
                raise FileNotFoundError(f"{path} is not a folder: expected the path that trajectories were saved to")
            time.sleep(0.002)  # others may be replacing it, one after the other
            continue
        missing = 0
        try:
            with FORMAT.reading(folder):
                if not (folder / HEADER).is_file():
                    raise ValueError(f"it has no {HEADER}")
            header = FORMAT.read_json(folder / HEADER)
            with FORMAT.reading(folder / HEADER):
                data = _open_folder(folder, header, verify)
        except (OSError, ValueError):
            if before == _identity(folder):
                raise
            continue
        if before == _identity(folder):
            return data
        # It was replaced meanwhile: some files may be of the old store and others of the new one.


def _identity(folder: Path) -> tuple[int, int, int] | None:
    """Which folder it is, None where there is none; its time differs from that of a removed one with its number."""
    try:
        found = folder.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_mtime_ns) if stat.S_ISDIR(found.st_mode) else None


def _open_folder(
    path: Path, header: Mapping[str, Any], verify: bool | None = True, *, partial: bool = False
) -> Trajectories:
    """Trajectories on disk as a header describes them; files of ``partial`` ones may hold more rows than it says."""
    entries = header["arrays"]
    if not isinstance(header["meta"], dict):
        raise ValueError(f"its meta is {type(header['meta']).__name__}, expected names and values")
    arrays = {name: map_npy(path, entry, growing=partial) for name, entry in entries.items()}
    rows = {"steps": len(arrays["rewards"]), "episodes": len(arrays["offsets"]) - 1, "offsets": len(arrays["offsets"])}
    for kind in ("steps", "episodes") if not partial else ():
        if header[kind] != rows[kind]:
            raise ValueError(f"it says {header[kind]} {kind}, expected {rows[kind]}")
    for name, entry in entries.items():
        if len(arrays[name]) != rows[entry["per"]]:
            raise ValueError(f"it says {len(arrays[name])} rows of {name}, expected {rows[entry['per']]}")
    size = sum(array.nbytes for array in arrays.values())
    verify = size <= _VERIFY_UP_TO if verify is None else verify
    # Read, not mapped: episodes are copied by these numbers, and nobody is to change them later.
    offsets = arrays["offsets"] = np.array(arrays["offsets"])
    if offsets.dtype != np.int64:
        raise ValueError(f"its offsets are {offsets.dtype}, expected int64")
    with FORMAT.reading(path / entries["offsets"]["file"]):
        check_offsets(offsets, rows["steps"])
    for name, entry in entries.items() if verify else ():
        with FORMAT.reading(path / entry["file"]):
            if crc32_of(arrays[name]) != entry["crc32"]:
                raise ValueError(f"{name} does not match its checksum: it was damaged after it was written")
    observations, actions = (
        spaces.from_json(header[kind], spaces.BUDGET + size) for kind in ("observation_space", "action_space")
    )
    steps, episodes = (
        {name: array for name, array in arrays.items() if entries[name]["per"] == kind}
        for kind in ("steps", "episodes")
    )
    check_columns(steps, episodes, offsets, observations, actions, content=verify)
    data = Trajectories.from_columns(steps, episodes, offsets, observations, actions, header["meta"], trusted=True)
    vars(data)["fingerprint"] = fingerprint_of(
        {name: (entry["dtype"], entry["shape"], entry["crc32"]) for name, entry in entries.items()}
    )
    return data
