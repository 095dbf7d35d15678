"""Trajectories on disk: a folder of plain ``.npy`` files and a JSON header.

A store is written under another name and renamed when it is complete, so that a folder with the final name is
always whole. Nothing in it is a pickle. Opening reads the header and maps the arrays: the time does not
depend on the size of the data.
"""

import json
import os
import shutil
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from secret_rl.files import replace_text
from secret_rl.trajectories import spaces
from secret_rl.trajectories.nested import Array
from secret_rl.trajectories.types import Trajectories
from secret_rl.version import VERSION

FORMAT = "secret-rl trajectories"
FORMAT_VERSION = 1
HEADER = "header.json"
PROGRESS = "progress.json"
_NPY_HEADER = 256  # bytes before the data: room for any row count, so that it can be patched at the end
_BYTES_AT_A_TIME = 32 << 20
_VERIFY_UP_TO = 64 << 20  # stores up to this size are verified whenever they are opened


class StoreError(ValueError):
    """A folder that cannot be read as trajectories, with what is wrong and what to do."""


def save(data: Trajectories, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write trajectories; ``path`` appears complete or not at all."""
    path = Path(path)
    check_target(path, overwrite)
    writer = StoreWriter(path.with_name(f".{path.name}.saving-{os.getpid()}"))
    try:
        bytes_per_step = sum(a.nbytes for a in data.columns()[0].values()) / max(data.steps, 1)
        episodes = max(1, int(_BYTES_AT_A_TIME / (bytes_per_step * max(data.steps / max(len(data), 1), 1) + 1)))
        for first in range(0, max(len(data), 1), episodes):
            writer.append(data[first : first + episodes])
        return writer.finish(path, data.meta, overwrite)
    except BaseException:
        writer.discard()
        raise


def check_target(path: Path, overwrite: bool) -> None:
    """Refuse to write over something unless told to, and never over what is not a store."""
    if not path.exists():
        return
    if not (path / HEADER).is_file():
        raise FileExistsError(f"{path} exists and is not a trajectory store: choose another name")
    if not overwrite:
        raise FileExistsError(f"{path} exists: choose another name, or pass overwrite=True to replace it")


class StoreWriter:
    """Appends episodes to a folder that is not yet a store; ``finish`` makes it one.

    With ``resume=True`` a folder left by an interrupted writer is taken up at its last ``commit``.
    """

    def __init__(self, folder: Path, *, resume: bool = False) -> None:
        self.folder = folder
        self._files: dict[str, _ColumnFile] = {}
        self._spaces: dict[str, Any] = {}
        self.progress: dict[str, Any] = {}
        if resume and (folder / PROGRESS).is_file():
            self._take_up()
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)

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
                kind = "steps" if name in steps else "episodes"
                self._files[name] = _ColumnFile(self.folder, name, kind, array.dtype, array.shape[1:])
            self._files["offsets"] = _ColumnFile(self.folder, "offsets", "offsets", np.dtype(np.int64), ())
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

    def commit(self, **progress: Any) -> None:
        """Make what was written so far survive a kill; ``progress`` is kept with it."""
        self.progress = progress
        for file in self._files.values():
            file.flush()
        state = {"spaces": self._spaces, "files": self._describe(), "progress": progress}
        write_json(self.folder / PROGRESS, state)

    def finish(self, path: Path, meta: Mapping[str, Any], overwrite: bool = False) -> Path:
        """Complete the store and give it its name."""
        for file in self._files.values():
            file.close()
        header = {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "library": VERSION,
            **self._spaces,
            "episodes": self.episodes,
            "steps": self._files["rewards"].rows,
            "meta": dict(meta),
            "arrays": self._describe(),
        }
        write_json(self.folder / HEADER, header)
        (self.folder / PROGRESS).unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        check_target(path, overwrite)
        replaced = path.with_name(f".{path.name}.replaced-{os.getpid()}")
        if path.exists():
            path.rename(replaced)
        self.folder.rename(path)
        shutil.rmtree(replaced, ignore_errors=True)
        return path

    def discard(self) -> None:
        """Leave nothing behind."""
        for file in self._files.values():
            file.release()
        shutil.rmtree(self.folder, ignore_errors=True)

    def release(self) -> None:
        """Close the files as they are: what was committed can be taken up later."""
        for file in self._files.values():
            file.release()

    def _describe(self) -> dict[str, Any]:
        return {name: file.describe() for name, file in self._files.items()}

    def _take_up(self) -> None:
        state = _read_json(self.folder / PROGRESS)
        self._spaces, self.progress = state["spaces"], state["progress"]
        for name, entry in state["files"].items():
            self._files[name] = _ColumnFile.take_up(self.folder, name, entry)


class _ColumnFile:
    """A ``.npy`` file that grows by rows."""

    def __init__(
        self,
        folder: Path,
        name: str,
        kind: str,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        rows: int = 0,
        crc: int = 0,
    ) -> None:
        self.name, self.kind, self.dtype, self.shape, self.rows, self._crc = name, kind, dtype, shape, rows, crc
        self.file_name = ".".join(quote(part, safe=" -_") for part in name.split("/")) + ".npy"
        path = folder / self.file_name
        self._file = path.open("r+b" if rows else "wb")
        if rows:
            self._file.truncate(_NPY_HEADER + rows * self._row_bytes)
            self._file.seek(0, os.SEEK_END)
        else:
            self._file.write(_npy_header(dtype, (0, *shape)))

    @classmethod
    def take_up(cls, folder: Path, name: str, entry: Mapping[str, Any]) -> "_ColumnFile":
        rows, *shape = entry["shape"]
        return cls(folder, name, entry["per"], np.dtype(entry["dtype"]), tuple(shape), rows, entry["crc32"])

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
        raw = _raw(rows)
        self._file.write(raw)
        self._crc = zlib.crc32(raw, self._crc)
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
    if not path.is_dir():
        raise FileNotFoundError(f"{path} is not a folder: expected the path that trajectories were saved to")
    if not (path / HEADER).is_file():
        raise StoreError(f"{path} has no {HEADER}: it is not a trajectory store")
    header = _read_json(path / HEADER)
    if header.get("format") != FORMAT:
        raise StoreError(f"{path / HEADER} says format {header.get('format')!r}, expected {FORMAT!r}")
    if header.get("version") != FORMAT_VERSION:
        raise StoreError(
            f"{path} has format version {header.get('version')!r}, this library reads {FORMAT_VERSION}: "
            f"open it with secret-rl {header.get('library', 'of another version')}"
        )
    try:
        return _open(path, header, verify)
    except StoreError:
        raise
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as broken:
        raise StoreError(f"{path / HEADER} is damaged ({broken!r}): restore it or collect the data again") from broken


def _open(path: Path, header: Mapping[str, Any], verify: bool | None) -> Trajectories:
    entries = header["arrays"]
    arrays = {name: _map(path, name, entry) for name, entry in entries.items()}
    expected = {"steps": header["steps"], "episodes": header["episodes"], "offsets": header["episodes"] + 1}
    for name, entry in entries.items():
        if len(arrays[name]) != expected[entry["per"]]:
            raise StoreError(f"{path} holds {len(arrays[name])} rows of {name}, expected {expected[entry['per']]}")
    offsets = arrays["offsets"]
    if offsets[0] != 0 or offsets[-1] != header["steps"]:
        raise StoreError(f"{path / entries['offsets']['file']} does not match {HEADER}: the store is damaged")
    size = sum(array.nbytes for array in arrays.values())
    if verify or (verify is None and size <= _VERIFY_UP_TO):
        for name, entry in entries.items():
            _verify(path, name, entry, arrays[name])
    return Trajectories.from_columns(
        {name: arrays[name] for name, entry in entries.items() if entry["per"] == "steps"},
        {name: arrays[name] for name, entry in entries.items() if entry["per"] == "episodes"},
        offsets,
        spaces.from_json(header["observation_space"]),
        spaces.from_json(header["action_space"]),
        header["meta"],
        trusted=True,
    )


def _map(path: Path, name: str, entry: Mapping[str, Any]) -> Array:
    """Map one file after checking that it is what the header says, without reading its data."""
    if Path(entry["file"]).name != entry["file"]:
        raise StoreError(f"{path / HEADER} names the file {entry['file']!r} outside the store: refused")
    file = path / entry["file"]
    dtype, shape = np.dtype(entry["dtype"]), tuple(entry["shape"])
    if dtype.hasobject:
        raise StoreError(f"{path / HEADER} asks for Python objects in {name}: refused")
    if not file.is_file():
        raise StoreError(f"{file} is missing: restore it or collect the data again")
    size = _NPY_HEADER + int(dtype.itemsize * np.prod(shape, dtype=np.int64))
    if file.stat().st_size != size:
        raise StoreError(
            f"{file} has {file.stat().st_size:,} bytes, expected {size:,}: it was truncated or overwritten; "
            "restore it or collect the data again"
        )
    with file.open("rb") as opened:
        if opened.read(_NPY_HEADER) != _npy_header(dtype, shape):
            raise StoreError(f"the first bytes of {file} are damaged: restore it or collect the data again")
    if 0 in shape:
        return np.zeros(shape, dtype)
    return np.asarray(np.memmap(file, dtype, "r", _NPY_HEADER, shape))


def _verify(path: Path, name: str, entry: Mapping[str, Any], array: Array) -> None:
    crc = 0
    rows = max(1, _BYTES_AT_A_TIME // max(array[:1].nbytes, 1))
    for first in range(0, len(array), rows):
        crc = zlib.crc32(_raw(array[first : first + rows]), crc)
    if crc != entry["crc32"]:
        raise StoreError(
            f"{path / entry['file']} does not match its checksum: {name} was damaged after it was written; "
            "restore the file or collect the data again"
        )


def _raw(rows: Array) -> memoryview:
    """The bytes of an array, without a copy where they lie together already."""
    return np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data if rows.size else memoryview(b"")


def _npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """An ``.npy`` header (format 1.0) of a fixed length, so that the row count can be patched in place."""
    text = repr({"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape})
    prefix = np.lib.format.magic(1, 0) + (_NPY_HEADER - 10).to_bytes(2, "little")
    return prefix + text.encode("latin1").ljust(_NPY_HEADER - 11) + b"\n"


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file, whole or not at all."""
    try:
        text = json.dumps(content, indent=1, allow_nan=False)
    except (TypeError, ValueError) as bad:
        raise ValueError(f"cannot write {path.name}: {bad}; meta and options must be JSON values") from bad
    replace_text(path, text)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as broken:
        raise StoreError(f"{path} is not readable JSON ({broken}): restore it or collect the data again") from broken
    if not isinstance(content, dict):
        raise StoreError(f"{path} holds {type(content).__name__}, expected a JSON object")
    return content
