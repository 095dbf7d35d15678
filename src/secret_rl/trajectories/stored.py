"""Rows that stay on disk: an array in one file or in many, compressed or not, of which only what is asked for is read.

A mapped file counts as memory of the process that reads it, up to its size. What is read here is in buffers that go
when they are dropped: memory does not depend on the size of the files.
"""

import math
import mmap
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from secret_rl.files import NPY_HEADER, FileFormatError, NpyWriter, check_npy, crc32_of

Array = NDArray[Any]

LARGE_ROW = 1024  # bytes from which a row is a picture
_LEVEL = 6  # of zlib: half the size of level 1 and as fast to read; see benchmarks/results
_GAP = 1 << 12  # bytes between two rows that are read through rather than skipped
_MOST_SMALLER = 1100  # times: zlib reaches 1,032
_OWN_MEMORY = 1 << 20  # bytes from which an array has memory of its own
_AT_A_TIME = 8 << 20  # bytes of a file that are unpacked together


class PackedWriter:
    """A column whose rows are compressed one by one, so that any of them can be read alone. As ``NpyWriter``."""

    def __init__(
        self, path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], rows: int = 0, crc: int = 0,
        files: tuple[NpyWriter, NpyWriter] | None = None,
    ) -> None:  # fmt: skip
        self.path, self.dtype, self.shape, self.rows, self._crc = path, dtype, shape, rows, crc
        ends = path.with_name(f"{path.stem}+ends.npy")  # no column has a "+" in the name of its file
        self._packed, self._ends = files or (
            NpyWriter(path, np.dtype("u1"), ()),
            NpyWriter(ends, np.dtype("<i8"), ()),
        )

    @classmethod
    def resume(cls, folder: Path, entry: Mapping[str, Any]) -> "PackedWriter":
        """Go on after the rows of an entry; what was written since is cut off."""
        files = (NpyWriter.resume(folder, entry["packed"]), NpyWriter.resume(folder, entry["ends"]))
        rows, *shape = entry["shape"]
        return cls(files[0].path, np.dtype(entry["dtype"]), tuple(shape), rows, entry["crc32"], files)

    def append(self, rows: Array) -> None:
        """Add rows of the same dtype and shape."""
        if rows.shape[1:] != self.shape or rows.dtype != self.dtype:
            found = f"{rows.dtype} rows of shape {rows.shape[1:]}"
            raise ValueError(f"{self.path.stem} has {found}, expected {self.dtype} of {self.shape}")
        packed = [zlib.compress(np.ascontiguousarray(row).data, _LEVEL) for row in rows]
        ends = self._packed.rows + np.cumsum([len(part) for part in packed], dtype=np.int64)
        self._packed.append(np.frombuffer(b"".join(packed), np.uint8))
        self._ends.append(ends)
        self._crc = crc32_of(rows, self._crc)
        self.rows += len(rows)

    def entry(self) -> dict[str, Any]:
        """What the files hold so far, as JSON values; the checksum is that of the rows, not of their packed form."""
        about = {"dtype": self.dtype.str, "shape": [self.rows, *self.shape], "crc32": self._crc}
        return {**about, "packed": self._packed.entry(), "ends": self._ends.entry()}

    def flush(self) -> None:
        """Make what was written so far survive a power cut."""
        self._packed.flush()
        self._ends.flush()

    def complete(self) -> None:
        """Write the number of rows into the headers, and close the files."""
        self._packed.complete()
        self._ends.complete()

    def close(self) -> None:
        """Close the files as they are."""
        self._packed.close()
        self._ends.close()


@dataclass(frozen=True)
class _File:
    """The rows of one ``.npy`` file that does not change."""

    path: Path
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    identity: tuple[int, int]
    """Number and size of the file when it was opened: another one may take its name."""

    @classmethod
    def of(cls, folder: Path, entry: Mapping[str, Any]) -> "_File":
        path, dtype, shape = check_npy(folder, entry)
        found = path.stat()
        return cls(path, dtype, shape, (found.st_ino, found.st_size))

    def read(self, runs: Sequence[tuple[int, int, int]], out: Array) -> None:
        """Read runs (first row, end, place in ``out``)."""
        each = self.dtype.itemsize * math.prod(self.shape[1:])
        file = os.open(self.path, os.O_RDONLY)
        try:
            found = os.fstat(file)
            if (found.st_ino, found.st_size) != self.identity:
                raise FileFormatError(f"{self.path} was replaced after it was opened: load the trajectories again")
            raw = _bytes_of(out)
            for first, end, place in runs:
                self._fill(file, raw[place * each : (place + end - first) * each], NPY_HEADER + first * each)
        finally:
            os.close(file)

    def _fill(self, file: int, wanted: memoryview, at: int) -> None:
        while wanted:
            count = os.preadv(file, [wanted], at)
            if not count:
                raise FileFormatError(f"{self.path} is shorter than when it was opened: restore it or collect it again")
            wanted, at = wanted[count:], at + count


@dataclass(frozen=True)
class _Packed:
    """The rows of one compressed column."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    packed: _File
    ends: _File

    @classmethod
    def of(cls, folder: Path, entry: Mapping[str, Any]) -> "_Packed":
        packed, ends = (_File.of(folder, entry[name]) for name in ("packed", "ends"))
        dtype, shape = np.dtype(entry["dtype"]), tuple(entry["shape"])
        if dtype.hasobject or packed.dtype != np.uint8 or ends.dtype != np.int64 or ends.shape != shape[:1]:
            raise ValueError(f"it says that {packed.path.name} holds {dtype} of {shape}: refused")
        if dtype.itemsize * math.prod(shape) > _MOST_SMALLER * packed.shape[0]:
            raise ValueError(f"it says that {packed.path.name} holds {shape}, more than so few bytes can: refused")
        return cls(dtype, shape, packed, ends)

    def read(self, runs: Sequence[tuple[int, int, int]], out: Array) -> None:
        """Read runs (first row, end, place in ``out``)."""
        rows = out.reshape(len(out), -1).view(np.uint8)
        for first, end, place in runs:
            ends = np.zeros(end - first + 1, np.int64)
            self.ends.read([(max(first - 1, 0), end, int(not first))], ends)
            cuts = np.unique(np.append(np.searchsorted(ends, np.arange(ends[0], ends[-1], _AT_A_TIME)), end - first))
            for begin, stop in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
                size = int(ends[stop] - ends[begin])
                if not 0 <= size <= self.packed.shape[0]:
                    raise FileFormatError(f"{self.ends.path} is damaged: restore it or collect the data again")
                raw = np.empty(size, np.uint8)
                self.packed.read([(int(ends[begin]), int(ends[stop]), 0)], raw)
                for i in range(begin, stop):
                    self._unpack(raw[ends[i] - ends[begin] : ends[i + 1] - ends[begin]], rows[place + i])

    def _unpack(self, raw: Array, row: Array) -> None:
        """One row; zlib compares it with a checksum of its own."""
        try:
            unpacker = zlib.decompressobj()
            found = unpacker.decompress(raw.data, len(row))
            if len(found) != len(row) or unpacker.decompress(unpacker.unconsumed_tail, 1) or not unpacker.eof:
                raise zlib.error("a row has another size")
        except zlib.error as damaged:
            message = f"{self.packed.path} is damaged ({damaged}): restore it or collect the data again"
            raise FileFormatError(message) from damaged
        row[:] = np.frombuffer(found, np.uint8)


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """A new array; the memory of a large one goes back to the system with it, not to the heap of the thread that reads.

    Such heaps, one for each thread, otherwise keep what was freed: memory would grow with the number of reads.
    """
    size = math.prod(shape) * dtype.itemsize
    if size < _OWN_MEMORY:
        return np.empty(shape, dtype)
    return np.frombuffer(mmap.mmap(-1, size), dtype).reshape(shape)


def _bytes_of(array: Array) -> memoryview:
    return array.reshape(-1).view(np.uint8).data if array.size else memoryview(bytearray())


class StoredRows(NDArrayOperatorsMixin):
    """An array of rows on disk. Slices are views; rows by number, ``np.asarray`` and arithmetic read into memory."""

    def __init__(self, parts: Sequence[_File | _Packed], view: tuple[int, int] | None = None) -> None:
        self._parts = tuple(parts)
        self._starts = np.cumsum([0, *(part.shape[0] for part in self._parts)])
        self._view = view or (0, int(self._starts[-1]))
        self.dtype = self._parts[0].dtype
        self.shape: tuple[int, ...] = (self._view[1] - self._view[0], *self._parts[0].shape[1:])
        self.ndim = len(self.shape)
        self.size = math.prod(self.shape)
        self.nbytes = self.size * self.dtype.itemsize

    @classmethod
    def of(cls, entries: Sequence[tuple[Path, Mapping[str, Any]]]) -> "StoredRows":
        """The rows of (folder, entry of its header) end to end; each file is checked as far as it can unread."""
        return cls([(_Packed if "packed" in entry else _File).of(folder, entry) for folder, entry in entries])

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"StoredRows({self.dtype} {self.shape} in {len(self._parts)} files)"

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice) and key.step in (None, 1):
            first, end, _ = key.indices(len(self))
            return StoredRows(self._parts, (self._view[0] + first, self._view[0] + max(first, end)))
        if isinstance(key, int | np.integer):
            return self.take([range(len(self))[key]])[0]
        rows = np.asarray(key) if isinstance(key, list | np.ndarray) else None
        if rows is None or rows.ndim != 1:
            return np.asarray(self)[key]
        return self.take(np.flatnonzero(rows) if rows.dtype == np.bool_ else rows)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        read = self._read([(self._view[0], self._view[1], 0)], len(self))
        return read if dtype is None else read.astype(dtype, copy=False)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return getattr(ufunc, method)(*(np.asarray(i) if i is self else i for i in inputs), **options)

    def take(self, rows: Any, axis: int = 0, mode: str = "raise") -> Array:  # noqa: ARG002
        """Rows by number, read in the order in which they are stored; as of ``ndarray``."""
        rows = np.asarray(rows, np.int64)
        wanted, back = np.unique(np.where(rows < 0, rows + len(self), rows), return_inverse=True)
        if not len(wanted):
            return np.empty((0, *self.shape[1:]), self.dtype)
        if wanted[0] < 0 or wanted[-1] >= len(self):
            raise IndexError(f"rows {wanted[0]} to {wanted[-1]} of {len(self)}")
        each = self.dtype.itemsize * math.prod(self.shape[1:])
        if each >= LARGE_ROW:  # straight to their places
            return self._read(_runs(wanted[back] + self._view[0]), len(back))
        cuts = np.flatnonzero(np.diff(wanted) > 1 + _GAP // max(each, 1)) + 1
        firsts, ends = wanted[np.append(0, cuts)], wanted[np.append(cuts - 1, -1)] + 1
        places = np.cumsum(np.append(0, ends - firsts))
        runs = np.stack([firsts + self._view[0], ends + self._view[0], places[:-1]], 1).tolist()
        read = self._read([(first, end, place) for first, end, place in runs], int(places[-1]))
        part = np.searchsorted(firsts, wanted, side="right") - 1
        found: Array = read[(wanted - firsts[part] + places[part])[back]]
        return found

    def _read(self, runs: Sequence[tuple[int, int, int]], count: int) -> Array:
        """Runs (first, end, place) of rows of the files, as one array of ``count`` rows."""
        out = _empty((count, *self.shape[1:]), self.dtype)
        of_part: dict[int, list[tuple[int, int, int]]] = {}
        for first, end, place in runs:
            while first < end:
                number = int(np.searchsorted(self._starts, first, side="right")) - 1
                start = int(self._starts[number])
                until = min(end, int(self._starts[number + 1]))
                of_part.setdefault(number, []).append((first - start, until - start, place))
                place += until - first
                first = until
        for number, own in of_part.items():
            self._parts[number].read(own, out)
        return out


def _runs(rows: NDArray[np.int64]) -> list[tuple[int, int, int]]:
    """Rows that follow each other as (first, end, place), in the order of their files."""
    places = np.append(0, np.flatnonzero(np.diff(rows) != 1) + 1)
    firsts, counts = rows[places], np.diff(np.append(places, len(rows)))
    order = np.argsort(firsts, kind="stable")
    return list(zip(firsts[order].tolist(), (firsts + counts)[order].tolist(), places[order].tolist(), strict=True))


def is_large(shape: Sequence[int], dtype: np.dtype[Any], least: int = LARGE_ROW) -> bool:
    """Whether the rows of an array of this shape take more bytes than ``least``."""
    return math.prod(shape[1:]) * dtype.itemsize > least
