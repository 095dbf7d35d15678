"""Trajectories on disk: a folder of plain ``.npy`` files and a JSON header.

A store is written under another name and renamed when it is complete, so that a folder with the final name is
always whole. Nothing in it is a pickle. Opening reads the header and the offsets and maps the arrays: the time does not
depend on the number of steps.
"""

import math
import os
import stat
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from secret_rl.atomic import find_folder, new_folder
from secret_rl.files import FileFormat, crc32_of, raw_bytes, whole_number
from secret_rl.trajectories import spaces
from secret_rl.trajectories.nested import Array
from secret_rl.trajectories.types import Trajectories, fingerprint_of
from secret_rl.trajectories.validation import check_columns, check_offsets

FORMAT = FileFormat("secret-rl trajectories", remedy="restore it or collect the data again")
HEADER = "header.json"
PROGRESS = "progress.json"
_NPY_HEADER = 256  # bytes before the data: room for any row count, so that it can be patched at the end
_BYTES_AT_A_TIME = 32 << 20
_VERIFY_UP_TO = 64 << 20  # stores up to this size are verified whenever they are opened
_LOOKS = 5  # at a store that is not there, before it counts as missing
_LONGEST_NAME = 120  # letters of a file's name that come from its column


def save(data: Trajectories, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write trajectories; ``path`` appears complete or not at all."""
    path = Path(path)
    check_target(path, overwrite)
    bytes_per_step = sum(a.nbytes for a in data.columns()[0].values()) / max(data.steps, 1)
    episodes = max(1, int(_BYTES_AT_A_TIME / (bytes_per_step * max(data.steps / max(len(data), 1), 1) + 1)))
    with new_folder(path, overwrite=overwrite) as folder, closing(StoreWriter(folder)) as writer:
        for first in range(0, max(len(data), 1), episodes):
            writer.append(data[first : first + episodes])
        writer.complete(data.meta)
    return path


def check_target(path: Path, overwrite: bool) -> None:
    """Refuse to write over something unless asked to, and never over what is not a store."""
    folder = find_folder(path)
    if not folder.exists() or is_new(path):
        return
    if not (folder / HEADER).is_file() and folder.exists():  # it may give way to another one in this moment
        raise FileExistsError(f"{path} exists and is not a trajectory store: choose another name")
    if not overwrite:
        raise FileExistsError(f"{path} exists: choose another name, or pass overwrite=True to replace it")


def is_new(path: Path) -> bool:
    """Whether a store was put at its path by a collection that was killed before it could say so."""
    return (path / HEADER).is_file() and (path / PROGRESS).is_file()


class StoreWriter:
    """Appends episodes to the files of a folder; ``complete`` makes it a store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[str, _ColumnFile] = {}
        self._spaces: dict[str, Any] = {}

    def append(self, data: Trajectories) -> None:
        """Add episodes."""
        steps, episodes = data.columns()
        columns = {**steps, **episodes}
        if not self._files:
            self._spaces = {
                "observation_space": spaces.to_json(data.observation_space),
                "action_space": spaces.to_json(data.action_space),
            }
            for name, array in columns.items():
                self._create(name, "steps" if name in steps else "episodes", array.dtype, array.shape[1:])
            self._create("offsets", "offsets", np.dtype(np.int64), ())
            self._files["offsets"].append(np.zeros(1, np.int64))
        if columns.keys() != self._files.keys() - {"offsets"}:
            raise ValueError(
                f"these episodes hold other fields: {sorted(columns.keys() ^ (self._files.keys() - {'offsets'}))}"
            )
        steps_before = self._files["rewards"].rows
        for name, array in columns.items():
            self._files[name].append(array)
        self._files["offsets"].append(data.offsets[1:] - data.offsets[0] + steps_before)

    @property
    def episodes(self) -> int:
        """Episodes written so far."""
        return self._files["offsets"].rows - 1 if self._files else 0

    def complete(self, meta: Mapping[str, Any]) -> None:
        """Write the header, which makes the folder a store."""
        for file in self._files.values():
            file.close()
        header = {
            **self._spaces,
            "episodes": self.episodes,
            "steps": self._files["rewards"].rows,
            "meta": dict(meta),
            "arrays": self.describe(),
        }
        FORMAT.write_json(self.folder / HEADER, header)

    def close(self) -> None:
        """Close the files as they are; a full disk is no hindrance."""
        for file in self._files.values():
            file.release()

    def describe(self) -> dict[str, Any]:
        """What the files hold so far, as JSON values."""
        return {name: file.describe() for name, file in self._files.items()}

    def flush(self) -> dict[str, Any]:
        """Make what was written so far survive a power cut; returns what ``take_up`` needs."""
        for file in self._files.values():
            file.flush()
        return {"spaces": self._spaces, "files": self.describe()}

    def take_up(self, state: Mapping[str, Any]) -> None:
        """Go on after the last ``flush``: what was written since is cut off."""
        self._spaces = state["spaces"]
        for name, entry in state["files"].items():
            self._files[name] = _ColumnFile.take_up(self.folder, name, entry)

    def _create(self, name: str, kind: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        """A file for a column. Its name tells which, and is that of no other file, whatever the columns are called."""
        try:
            readable = ".".join(quote(part, safe=" -_") for part in name.split("/"))[:_LONGEST_NAME]
        except UnicodeEncodeError:
            raise ValueError(f"a field cannot be called {name!r}: give it a name that can be written") from None
        taken = {file.file_name.casefold() for file in self._files.values()}  # some disks take x for X
        names = (readable if number == 1 else f"{readable}-{number}" for number in range(1, len(taken) + 2))
        file_name = next(found for found in names if f"{found}.npy".casefold() not in taken)
        self._files[name] = _ColumnFile(self.folder, name, f"{file_name}.npy", kind, dtype, shape)


class _ColumnFile:
    """A ``.npy`` file that grows by rows."""

    def __init__(
        self,
        folder: Path,
        name: str,
        file_name: str,
        kind: str,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        rows: int = 0,
        crc: int = 0,
    ) -> None:
        self.name, self.file_name, self.kind, self.dtype, self.shape = name, file_name, kind, dtype, shape
        self.rows, self._crc = rows, crc
        self._file = (folder / file_name).open("r+b" if rows else "wb")
        if rows:
            self._file.truncate(_NPY_HEADER + rows * self._row_bytes)
            self._file.seek(0, os.SEEK_END)
        else:
            self._file.write(_npy_header(dtype, (0, *shape)))

    @classmethod
    def take_up(cls, folder: Path, name: str, entry: Mapping[str, Any]) -> "_ColumnFile":
        rows, *shape = entry["shape"]
        return cls(
            folder, name, entry["file"], entry["per"], np.dtype(entry["dtype"]), tuple(shape), rows, entry["crc32"]
        )

    @property
    def _row_bytes(self) -> int:
        return int(self.dtype.itemsize * np.prod(self.shape, dtype=np.int64))

    def append(self, rows: Array) -> None:
        if rows.shape[1:] != self.shape:
            raise ValueError(f"{self.name} has rows of shape {rows.shape[1:]}, expected {self.shape}")
        if rows.dtype != self.dtype:
            # Another dtype is welcome only if it says the same: an env's ints may come as other ints.
            converted = rows.astype(self.dtype)
            if not np.array_equal(converted, rows):
                raise ValueError(f"{self.name} came as {rows.dtype} values that do not fit {self.dtype}")
            rows = converted
        self._file.write(raw_bytes(rows))
        self._crc = crc32_of(rows, self._crc)
        self.rows += len(rows)

    def flush(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.seek(0)
        self._file.write(_npy_header(self.dtype, (self.rows, *self.shape)))
        self.flush()
        self._file.close()

    def release(self) -> None:
        with suppress(OSError):  # what is left to write does not fit
            self._file.close()

    def describe(self) -> dict[str, Any]:
        return {
            "file": self.file_name,
            "per": self.kind,
            "dtype": self.dtype.str,
            "shape": [self.rows, *self.shape],
            "crc32": self._crc,
        }


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
            data = _load(folder, verify)
        except (OSError, ValueError):
            if before == _identity(folder):
                raise
            continue
        if before == _identity(folder):
            return data
        # It was replaced meanwhile: some files may be of the old store and others of the new one.


def _identity(folder: Path) -> tuple[int, int, int] | None:
    """Which folder it is, None where there is none; its time tells it from one with the number of a removed one."""
    try:
        found = folder.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_mtime_ns) if stat.S_ISDIR(found.st_mode) else None


def _load(path: Path, verify: bool | None) -> Trajectories:
    if not (path / HEADER).is_file():
        with FORMAT.reading(path):
            raise ValueError(f"it has no {HEADER}")
    header = FORMAT.read_json(path / HEADER)
    with FORMAT.reading(path / HEADER):
        return open_folder(path, header, verify)


def open_folder(
    path: Path, header: Mapping[str, Any], verify: bool | None = True, *, partial: bool = False
) -> Trajectories:
    """Trajectories on disk as a header describes them; files of ``partial`` ones may hold more rows than it says."""
    entries = header["arrays"]
    size = _check_files(path, entries, exact=not partial)
    if not isinstance(header["meta"], dict):
        raise ValueError(f"its meta is {type(header['meta']).__name__}, expected names and values")
    rows = {"steps": entries["rewards"]["shape"][0], "episodes": entries["offsets"]["shape"][0] - 1}
    rows["offsets"] = rows["episodes"] + 1
    if not partial and (rows["steps"], rows["episodes"]) != (header["steps"], header["episodes"]):
        raise ValueError(
            f"it says {header['steps']} steps in {header['episodes']} episodes, expected {rows['steps']} in "
            f"{rows['episodes']}"
        )
    for name, entry in entries.items():
        if entry["shape"][0] != rows[entry["per"]]:
            raise ValueError(f"it says {entry['shape'][0]} rows of {name}, expected {rows[entry['per']]}")
    arrays = {name: _map(path, entry, partial) for name, entry in entries.items()}
    # Read, not mapped: episodes are copied by these numbers, and nobody is to change them later.
    offsets = np.array(arrays.pop("offsets"))
    if offsets.dtype != np.int64:
        raise ValueError(f"its offsets are {offsets.dtype}, expected int64")
    verify = size <= _VERIFY_UP_TO if verify is None else verify
    with FORMAT.reading(path / entries["offsets"]["file"]):
        check_offsets(offsets, rows["steps"])
    if verify:
        for name, entry in entries.items():
            if crc32_of(offsets if name == "offsets" else arrays[name]) != entry["crc32"]:
                with FORMAT.reading(path / entry["file"]):
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


def _check_files(path: Path, entries: Mapping[str, Any], *, exact: bool) -> int:
    """Check that the files are there with the sizes that a header says, reading none; returns the bytes of all."""
    total = 0
    for name, entry in entries.items():
        if Path(entry["file"]).name != entry["file"]:
            raise ValueError(f"it names the file {entry['file']!r} outside the store: refused")
        file = path / entry["file"]
        dtype, shape = np.dtype(entry["dtype"]), [whole_number(side, high=2**62) for side in entry["shape"]]
        if dtype.kind not in "biufSUMmc" or entry["per"] not in ("steps", "episodes", "offsets"):
            raise ValueError(f"it says that {name} holds {dtype} per {entry['per']!r}: refused")
        if not file.is_file():
            raise ValueError(f"{file} is missing")
        size, found = _NPY_HEADER + dtype.itemsize * math.prod(shape), file.stat().st_size
        if found != size if exact else found < size:
            raise ValueError(f"{file} has {found:,} bytes, expected {size:,}: it was truncated or overwritten")
        total += found
    return total


def _map(path: Path, entry: Mapping[str, Any], partial: bool) -> Array:
    """Map one file after checking that it begins as the header says."""
    file, dtype, shape = path / entry["file"], np.dtype(entry["dtype"]), tuple(entry["shape"])
    with file.open("rb") as opened:
        allowed = [_npy_header(dtype, shape), *([_npy_header(dtype, (0, *shape[1:]))] if partial else [])]
        if opened.read(_NPY_HEADER) not in allowed:
            raise ValueError(f"the first bytes of {file} are damaged")
    if 0 in shape or dtype.itemsize == 0:
        return np.zeros(shape, dtype)
    return np.asarray(np.memmap(file, dtype, "r", _NPY_HEADER, shape))


def _npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """An ``.npy`` header (format 1.0) of a fixed length, so that the row count can be patched in place."""
    text = repr({"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape})
    prefix = np.lib.format.magic(1, 0) + (_NPY_HEADER - 10).to_bytes(2, "little")
    return prefix + text.encode("latin1").ljust(_NPY_HEADER - 11) + b"\n"
