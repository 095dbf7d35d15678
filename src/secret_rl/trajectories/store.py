"""Trajectories on disk: a folder of plain ``.npy`` files and a JSON header, or a folder of such folders, its shards.

A store is written under another name and renamed when it is complete, so that a folder with the final name is
always whole. Nothing in it is a pickle. Opening reads the header and the offsets and maps the arrays: the time does not
depend on the number of steps. Of compressed columns, and of shards but for small columns, rows stay on disk until they
are asked for.
"""

import json
import math
import shutil
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np

from secret_rl.atomic import find_folder, new_folder, path_lock, put_folder, sweep
from secret_rl.files import FileFormat, NpyWriter, check_same, crc32_of, joined_crc32, map_npy
from secret_rl.trajectories import spaces
from secret_rl.trajectories.stored import PackedWriter, StoredRows, is_large
from secret_rl.trajectories.types import Trajectories, fingerprint_of

FORMAT = FileFormat("secret-rl trajectories", remedy="restore it or collect the data again")
HEADER = "header.json"
PARTIAL = ".partial"
_BYTES_AT_A_TIME = 32 << 20
_VERIFY_UP_TO = 64 << 20  # stores up to this size are verified whenever they are opened
_SECONDS_BETWEEN_COMMITS = 5.0
_LOOKS = 5  # at a store that is not there, before it counts as missing
_LONGEST_NAME = 120  # letters of a file's name that come from its column
_SPACES = ("observation_space", "action_space")
_SMALL_ROW = 16  # bytes up to which a column of shards is read into memory


def save(data: Trajectories, path: str | Path, *, overwrite: bool = False, compress: bool = False) -> Path:
    """Write trajectories; ``path`` appears complete or not at all."""
    size = sum(array.nbytes for array in data.columns().values())
    episodes = max(1, _BYTES_AT_A_TIME * len(data) // max(size, 1))
    blocks = (data[first : first + episodes] for first in range(0, max(len(data), 1), episodes))
    return save_blocks(blocks, data.meta, path, overwrite=overwrite, compress=compress)


def save_blocks(
    blocks: Iterable[Trajectories],
    meta: Mapping[str, Any],
    path: str | Path,
    *,
    overwrite: bool = False,
    compress: bool = False,
) -> Path:
    """Write trajectories that come in parts; ``path`` appears complete or not at all."""
    path = Path(path)
    check_target(path, overwrite)
    with new_folder(path, overwrite=overwrite) as folder, closing(StoreWriter(folder, compress)) as writer:
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

    def __init__(self, folder: Path, compress: bool = False) -> None:
        self.folder, self._compress = folder, compress
        self._files: dict[str, NpyWriter | PackedWriter] = {}
        self._spaces: dict[str, Any] = {}

    @property
    def episodes(self) -> int:
        """Episodes written so far."""
        return self._files["offsets"].rows - 1 if self._files else 0

    @property
    def size(self) -> int:
        """Bytes of the arrays written so far, before they were compressed."""
        shapes = ((file.dtype.itemsize, file.rows, *file.shape) for file in self._files.values())
        return sum(math.prod(shape) for shape in shapes)

    def append(self, data: Trajectories) -> None:
        """Add episodes."""
        columns = data.columns()
        if not self._files:
            self._spaces = {kind: spaces.to_json(getattr(data, kind)) for kind in _SPACES}
            for name, array in {"offsets": data.offsets, **columns}.items():
                kind = PackedWriter if self._compress and is_large(array.shape, array.dtype) else NpyWriter
                self._files[name] = kind(self._new_file(name), array.dtype, array.shape[1:])
            self._files["offsets"].append(np.zeros(1, np.int64))
        different = columns.keys() ^ (self._files.keys() - {"offsets"})
        if different:
            raise ValueError(f"these episodes hold other fields: {sorted(different)}")
        self._files["offsets"].append(data.offsets[1:] + self._files["rewards"].rows)
        for name, array in columns.items():
            self._files[name].append(np.asarray(array))

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


class Progress(NamedTuple):
    """How far an unfinished collection has come."""

    episodes: int
    successes: int
    drawn: int

    @classmethod
    def of(cls, data: Trajectories) -> "Progress":
        """Of what was collected."""
        return cls(len(data), int(data.successful.sum()), int(data.meta["drawn"]))


class ResumableStore(StoreWriter):
    """A store that is filled over time in ``PATH.partial``; interrupted, it goes on after its last ``commit``.

    Only one process writes to a path at a time. A commit writes the header of a store: of the rows so far.
    """

    def __init__(self, path: Path, compress: bool = False, shared: bool = False) -> None:
        super().__init__(path.with_name(f"{path.name}{PARTIAL}"), compress)
        self.path, self._lock, self._last_commit = path, path_lock(path), time.monotonic()
        self._shared = shared  # the folder is that of other writers, too: nothing of theirs is swept

    def resume(self, meta: Mapping[str, Any]) -> Progress | None:
        """How much was committed, to go on after it; ``None`` and an empty folder where there is nothing.

        What was written after the commit is cut off. Another ``meta`` (but for ``drawn``) is a ``ResumeError``.
        """
        if not (self.folder / HEADER).is_file():
            self._sweep()
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            return None
        header = FORMAT.read_json(self.folder / HEADER)
        with FORMAT.reading(self.folder / HEADER):
            check_collection(self.folder, header["meta"], meta)
            self._spaces = {kind: header[kind] for kind in _SPACES}
            self._files = {
                name: (PackedWriter if "packed" in entry else NpyWriter).resume(self.folder, entry)
                for name, entry in header["arrays"].items()
            }
            return Progress.of(open_parts([(self.folder, header)], verify=True))

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
        self._sweep()

    def _sweep(self) -> None:
        if not self._shared:
            sweep(self.path.parent)

    def load(self) -> Trajectories:
        """What was written, once it is complete."""
        return load(self.path, verify=False)

    def close(self) -> None:
        """Let go of it: what was committed stays, anything else is removed."""
        super().close()
        if not (self.folder / HEADER).is_file():
            shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.release()


def check_collection(folder: Path, before: Mapping[str, Any], meta: Mapping[str, Any]) -> None:
    """An error unless a collection in a folder has the settings of the one that would go on with it."""
    before = {key: value for key, value in before.items() if key != "drawn"}
    # A tuple comes back from JSON as a list.
    check_same(folder, "an unfinished collection", before, json.loads(json.dumps(meta, default=str)))


def load(path: str | Path, *, verify: bool | None = None) -> Trajectories:
    """Open a store, or one of shards; see ``Trajectories.load``."""
    path = Path(path)
    shards = shard_folders(path)
    return load_shards(shards, verify=verify) if shards else _load_one(path, verify)


def shard_folders(path: Path) -> list[Path]:
    """The complete shards in a folder, by name; none in a store of its own."""
    if not path.is_dir() or (path / HEADER).is_file():
        return []
    found = (child for child in path.iterdir() if not child.name.startswith(".") and child.suffix != PARTIAL)
    return sorted(child for child in found if (child / HEADER).is_file())


def load_shards(shards: Sequence[Path], *, verify: bool | None = None) -> Trajectories:
    """Open shards as one store."""
    data = open_parts([(shard, FORMAT.read_json(shard / HEADER)) for shard in shards], verify)
    vars(data)["shards"] = tuple(shards)
    return data


def _load_one(path: Path, verify: bool | None) -> Trajectories:
    """Open a store of its own."""
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
                data = open_parts([(folder, header)], verify)
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


def open_parts(parts: Sequence[tuple[Path, Mapping[str, Any]]], verify: bool | None = None) -> Trajectories:
    """Trajectories on disk as the headers of one store, or of several shards, describe them."""
    first = parts[0][1]
    for folder, header in parts:
        with FORMAT.reading(folder / HEADER):
            _check_alike(parts[0][0], first, header)
    columns = {name: [(folder, header["arrays"][name]) for folder, header in parts] for name in first["arrays"]}
    with FORMAT.reading(parts[0][0] / HEADER if len(parts) == 1 else parts[0][0].parent):
        arrays = {name: _column(found) for name, found in columns.items()}
        size = sum(array.nbytes for array in arrays.values())
        if size <= _VERIFY_UP_TO if verify is None else verify:
            for name, found in columns.items():
                _verify(name, found)
        # Read, not mapped: episodes are copied by these numbers, and nobody is to change them later.
        offsets = np.array(arrays.pop("offsets"), np.int64)
        if len(parts) > 1:
            offsets = _joined_offsets(offsets, [header["arrays"]["offsets"]["shape"][0] for _, header in parts])
        observations, actions = (spaces.from_json(first[kind], spaces.BUDGET + size) for kind in _SPACES)
        meta = first["meta"] if len(parts) == 1 else _joined_meta([header["meta"] for _, header in parts])
        data = Trajectories.from_columns(arrays, offsets, observations, actions, dict(meta), trusted=True)
        spaces.check_trajectories(data, content=False)
        entries = {name: _joined_entry([entry for _, entry in found]) for name, found in columns.items()}
        if len(parts) > 1:
            entries["offsets"] = (offsets.dtype.str, list(offsets.shape), crc32_of(offsets))
        vars(data)["fingerprint"] = fingerprint_of(entries)
    return data


def _check_alike(path: Path, first: Mapping[str, Any], header: Mapping[str, Any]) -> None:
    """An error unless a shard holds the same spaces and columns as the first."""
    for kind in _SPACES:
        if header[kind] != first[kind]:
            raise ValueError(f"it has another {kind} than {path}: shards of one store hold episodes of one kind")
    if header["arrays"].keys() != first["arrays"].keys():
        raise ValueError(f"it has other fields than {path}: {sorted(header['arrays'].keys() ^ first['arrays'].keys())}")
    for name, entry in header["arrays"].items():
        mine, theirs = ((e["dtype"], e["shape"][1:]) for e in (entry, first["arrays"][name]))
        if mine != theirs:
            raise ValueError(f"{name} has rows of {mine[0]} {mine[1]}, those of {path} are {theirs[0]} {theirs[1]}")


def _column(found: Sequence[tuple[Path, Mapping[str, Any]]]) -> Any:
    """A column: mapped, read where it is small and in many files, or left on disk."""
    entry = found[0][1]
    if len(found) == 1 and "packed" not in entry:
        return map_npy(*found[0])
    if "packed" in entry or is_large(entry["shape"], np.dtype(entry["dtype"]), _SMALL_ROW):
        return StoredRows.of(found)
    return np.concatenate([map_npy(folder, entry) for folder, entry in found])


def _verify(name: str, found: Sequence[tuple[Path, Mapping[str, Any]]]) -> None:
    """An error unless the rows of a column have the checksums that were written with them."""
    for folder, entry in found:
        file = entry.get("packed", entry)["file"]
        with FORMAT.reading(folder / file):
            if crc32_of(_column([(folder, entry)])) != entry["crc32"]:
                raise ValueError(f"{name} does not match its checksum: it was damaged after it was written")


def _joined_offsets(offsets: Any, sizes: Sequence[int]) -> Any:
    """Offsets of shards, each from 0, as those of one store."""
    parts = np.split(offsets, np.cumsum(sizes)[:-1])
    return np.concatenate([[0], np.cumsum(np.concatenate([np.diff(part) for part in parts]))]).astype(np.int64)


def _joined_entry(entries: Sequence[Mapping[str, Any]]) -> tuple[str, list[int], int]:
    """Dtype, shape and checksum of columns end to end."""
    dtype, rows, crc = np.dtype(entries[0]["dtype"]), 0, 0
    for entry in entries:
        crc = joined_crc32(crc, entry["crc32"], dtype.itemsize * math.prod(entry["shape"]))
        rows += entry["shape"][0]
    return entries[0]["dtype"], [rows, *entries[0]["shape"][1:]], crc


def _joined_meta(metas: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What all shards say, and the episodes drawn for all of them."""
    alike = (name for name, value in metas[0].items() if all(m.get(name) == value for m in metas[1:]))
    meta = {
        name: metas[0][name] for name in alike if name != "episodes" or len(metas) == 1
    }  # those that each was asked
    drawn = [m.get("drawn") for m in metas]
    return {**meta, "drawn": sum(drawn)} if all(isinstance(number, int) for number in drawn) else meta
