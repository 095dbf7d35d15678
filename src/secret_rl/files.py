"""Every file format of this library: JSON documents, safetensors files, and ``.npy`` files that grow by rows.

A file states its format and version and carries checksums. Readers check declared sizes against the bytes that are
there before they build anything, run nothing, and answer whatever is wrong with ``FileFormatError``. Writers replace a
file whole or not at all.

Safetensors files are written and read here, not by their library, which leaves a file of its own behind when it is
killed, and takes twice the memory of the file. They are ordinary files of that format: the length of a JSON header, the
header, then the bytes of each array.
"""

import csv
import json
import math
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from secret_rl.atomic import replace_text, replacing
from secret_rl.checks import printable

try:
    VERSION = version("secret-rl")
except PackageNotFoundError:  # run from a source tree that is not installed
    VERSION = "0+source"

Array = NDArray[Any]
Arrays = dict[str, Array]

_METADATA, _ABOUT = "__metadata__", "secret_rl"  # where a safetensors file holds our JSON
_MOST_VALUES = 500_000  # of a JSON header: Python takes up to 72 bytes for each
_MOST_BYTES = 16 << 20  # of a JSON header
_NPY_HEADER = 256  # bytes before the data of a growing file: enough for any row count, so that it can be patched
_CHUNK = 1 << 22
_LONGEST_REASON = 300
_DTYPES = {
    "BOOL": "|b1", "U8": "|u1", "I8": "|i1", "U16": "<u2", "I16": "<i2", "F16": "<f2", "U32": "<u4", "I32": "<i4",
    "F32": "<f4", "U64": "<u8", "I64": "<i8", "F64": "<f8",
}  # fmt: skip
_NAMES = {np.dtype(code): name for name, code in _DTYPES.items()}


class FileFormatError(ValueError):
    """A file that cannot be read: what is wrong with it, and what to do."""


class ResumeError(ValueError):
    """An unfinished run that cannot be resumed: what differs, and what to do."""


@dataclass(frozen=True)
class FileFormat:
    """A kind of file. ``remedy`` says what to do about a damaged one; ``large`` lifts the limit on JSON values."""

    name: str
    version: int = 1
    remedy: str = "restore it from a copy"
    large: bool = False

    @contextmanager
    def reading(self, path: Path) -> Iterator[None]:
        """Whatever the content of ``path`` leads to in the block becomes a ``FileFormatError`` that names it."""
        try:
            yield
        except (FileFormatError, ResumeError, OSError):
            raise
        except Exception as broken:  # also MemoryError and RecursionError, which hostile files aim at
            reason = str(broken) if type(broken) is ValueError else f"{type(broken).__name__}: {broken}"
            reason = printable(" ".join(reason.split())[:_LONGEST_REASON])
            raise FileFormatError(f"{path} cannot be read as {self.name!r}: {reason}; {self.remedy}") from broken

    def write_json(self, path: str | Path, content: Mapping[str, Any]) -> Path:
        """Write a JSON document, whole or not at all."""
        path = Path(path)
        replace_text(path, json.dumps(self._sealed(content), indent=None if self.large else 1) + "\n")
        return path

    def read_json(self, path: str | Path) -> dict[str, Any]:
        """The content of a document that ``write_json`` wrote."""
        path = Path(path)
        with self.reading(path), path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > _MOST_BYTES and not self.large:
                raise ValueError(f"it has {size:,} bytes, more than it should")
            return self._unsealed(parse_json(file.read(), large=self.large))

    def write_arrays(
        self, path: str | Path, about: Mapping[str, Any], arrays: Mapping[str, Any], *, finite: bool = True
    ) -> Path:
        """Write arrays and JSON about them to one safetensors file, whole or not at all."""
        path = Path(path)
        ordered = {name: np.asarray(array, order="C") for name, array in sorted(arrays.items())}
        for name, array in ordered.items():
            if name == _METADATA:
                raise ValueError(f"an array cannot be called {name!r}: {path} is not written")
            if array.dtype not in _NAMES:
                raise TypeError(f"{name} has dtype {array.dtype}, which {path} cannot hold: expected numbers or bools")
            if finite and not _is_finite(array):
                raise ValueError(f"{name} holds NaN or infinite numbers: {path} is not written")
        document = self._sealed({**about, "arrays": {name: _checksum(array) for name, array in ordered.items()}})
        header: dict[str, Any] = {_METADATA: {_ABOUT: json.dumps(document)}}
        at = 0
        for name, array in ordered.items():
            place = [at, at + array.nbytes]
            header[name] = {"dtype": _NAMES[array.dtype], "shape": list(array.shape), "data_offsets": place}
            at = place[1]
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with replacing(path) as temporary, temporary.open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for array in ordered.values():
                file.write(raw_bytes(array))
        return path

    def read_arrays(self, path: str | Path, *, finite: bool = True) -> tuple[dict[str, Any], Arrays]:
        """The JSON and the arrays of a file that ``write_arrays`` wrote."""
        path = Path(path)
        with self.reading(path), path.open("rb") as file:
            header, size = _read_header(file)
            metadata = header.pop(_METADATA, None)
            if not isinstance(metadata, dict) or not isinstance(metadata.get(_ABOUT), str):
                raise ValueError("it is a safetensors file of something else")
            about = self._unsealed(parse_json(metadata[_ABOUT].encode()))
            checksums = about.pop("arrays")
            if checksums.keys() != header.keys():
                raise ValueError(f"it holds the arrays {sorted(header)}, expected {sorted(checksums)}")
            arrays = _read_arrays(file, header, size)
            for name, array in arrays.items():
                if _checksum(array) != checksums[name]:
                    raise ValueError(f"{name} does not match its checksum")
                if finite and not _is_finite(array):
                    raise ValueError(f"{name} holds NaN or infinite numbers")
            return about, arrays

    def _sealed(self, content: Mapping[str, Any]) -> dict[str, Any]:
        document = {"format": self.name, "version": self.version, "library": VERSION, **content}
        try:
            # As it will be read: JSON makes text of keys, and lists of tuples.
            document = parse_json(json.dumps(document, allow_nan=False).encode(), large=self.large)
            return {**document, "crc32": checksum(document)}
        except (TypeError, ValueError, RecursionError) as bad:
            raise ValueError(f"cannot write {self.name}: {bad}; meta and options must be JSON values") from bad

    def _unsealed(self, document: Any) -> dict[str, Any]:
        found = document.get("format") if isinstance(document, dict) else type(document).__name__
        if found != self.name:
            raise ValueError(f"it says format {found!r}, expected {self.name!r}")
        if document.get("version") != self.version:
            raise ValueError(
                f"it has format version {document.get('version')!r}, this library reads {self.version}: "
                f"open it with secret-rl {document.get('library', 'of another version')}"
            )
        if document.get("crc32") != checksum(document):
            raise ValueError("it does not match its checksum: it was changed after it was written")
        return {key: value for key, value in document.items() if key not in ("format", "version", "library", "crc32")}


def write_csv(path: str | Path, header: Iterable[str], rows: Iterable[Iterable[Any]]) -> Path:
    """Write a table, whole or not at all."""
    with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(chain([header], rows))
    return Path(path)


def checksum(document: Mapping[str, Any]) -> int:
    """CRC-32 of a JSON document, its own ``crc32`` left out; the layout of the text does not matter."""
    content = {key: value for key, value in document.items() if key != "crc32"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return zlib.crc32(text.encode())  # lone surrogates, which no terminal or file takes, are refused


def parse_json(content: bytes, *, large: bool = False) -> Any:
    """JSON of finite numbers, and without ``large`` of so few values that they fit in little memory."""
    if not large:
        values = sum(content.count(mark) for mark in (b",", b"[", b"{"))
        if values > _MOST_VALUES or len(content) > _MOST_BYTES:
            raise ValueError(f"its JSON holds {values:,} values in {len(content):,} bytes, more than it should")

    def refuse(constant: str) -> Any:
        raise ValueError(f"it holds the number {constant}")

    return json.loads(content.decode("utf-8"), parse_constant=refuse)


def check_same(folder: Path, what: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """An error unless an unfinished run in a folder has the settings of the one that would resume it."""
    changed = [key for key in sorted(before.keys() | now.keys()) if before.get(key) != now.get(key)]
    if changed:
        differences = "; ".join(f"{key} was {before.get(key)!r}, now {now.get(key)!r}" for key in changed)
        raise ResumeError(
            f"{folder} holds {what} with another {', '.join(changed)} ({printable(differences[:_LONGEST_REASON])}): "
            "repeat that call to go on with it, choose another path, or delete it"
        )


def plain(value: Any) -> Any:
    """A value as JSON gives it back: what is not finite is None, what JSON does not know its text."""
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def whole_number(value: Any, low: int = 0, high: int = 2**31 - 1) -> int:
    """A size that a file states; an error unless it is a whole number from ``low`` to ``high``."""
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{value!r} is not a whole number from {low} to {high}")
    return value


def finite_number(value: Any) -> float:
    """A number that a file states; an error unless it is one and finite."""
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a finite number")
    return float(value)


def raw_bytes(array: Array) -> memoryview:
    """The bytes of an array, without a copy where they lie together already."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else memoryview(b"")


def crc32_of(array: Array, before: int = 0) -> int:
    """CRC-32 of the bytes of an array, in bounded memory also where they are on disk or apart."""
    array = np.atleast_1d(array)
    rows = max(1, _CHUNK // max(array[:1].nbytes, 1))
    for first in range(0, len(array), rows):
        before = zlib.crc32(raw_bytes(array[first : first + rows]), before)
    return before


def _checksum(array: Array) -> int:
    """CRC-32 of an array with its dtype and shape."""
    return crc32_of(array, zlib.crc32(f"{_NAMES[array.dtype]}{list(array.shape)}".encode()))


def _is_finite(array: Array) -> bool:
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


def _read_header(file: BinaryIO) -> tuple[dict[str, Any], int]:
    """The header of a safetensors file, and how many bytes of arrays follow it."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > size - 8:
        raise ValueError(f"it has {size:,} bytes and is not a whole safetensors file")
    if length > _MOST_BYTES:
        raise ValueError(f"its header claims {length:,} bytes, more than it should")
    header = parse_json(file.read(length))
    if not isinstance(header, dict):
        raise ValueError(f"its header is a {type(header).__name__}, expected a JSON object")
    return header, size - 8 - length


def _read_arrays(file: BinaryIO, header: Mapping[str, Any], size: int) -> Arrays:
    """The arrays after a header, which must follow each other and fill the file."""
    arrays: Arrays = {}
    at = 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        dtype, shape = np.dtype(_DTYPES[entry["dtype"]]), tuple(whole_number(side) for side in entry["shape"])
        start, end = entry["data_offsets"]
        if start != at or end != at + math.prod(shape) * dtype.itemsize or end > size or len(shape) > 32:
            raise ValueError(f"{name} of shape {shape} does not fit its bytes {start} to {end} of {size:,}")
        arrays[name] = np.empty(shape, dtype)
        if arrays[name].size and file.readinto(raw_bytes(arrays[name])) != end - start:  # type: ignore[attr-defined]
            raise ValueError(f"it ends within {name}")
        at = end
    if at != size:
        raise ValueError(f"{size - at:,} bytes follow its last array")
    return arrays


class NpyWriter:
    """A ``.npy`` file that grows by rows. ``entry()`` describes it in a JSON header; ``resume`` goes on from there."""

    def __init__(self, path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], rows: int = 0, crc: int = 0) -> None:
        self.path, self.dtype, self.shape, self.rows, self._crc = path, dtype, shape, rows, crc
        self._file = path.open("r+b" if rows else "wb")
        if rows:
            self._file.truncate(_NPY_HEADER + rows * dtype.itemsize * math.prod(shape))
            self._file.seek(0, os.SEEK_END)
        else:
            self._file.write(_npy_header(dtype, (0, *shape)))

    @classmethod
    def resume(cls, folder: Path, entry: Mapping[str, Any]) -> "NpyWriter":
        """Go on after the rows of an entry; what was written since is cut off."""
        rows, *shape = entry["shape"]
        return cls(folder / entry["file"], np.dtype(entry["dtype"]), tuple(shape), rows, entry["crc32"])

    def append(self, rows: Array) -> None:
        """Add rows. Another dtype is fine if it holds the same numbers: an env's ints may come as other ints."""
        if rows.shape[1:] != self.shape:
            raise ValueError(f"{self.path.stem} has rows of shape {rows.shape[1:]}, expected {self.shape}")
        converted = rows.astype(self.dtype, copy=False)
        if converted is not rows and not np.array_equal(converted, rows):
            raise ValueError(f"{self.path.stem} came as {rows.dtype} values that do not fit {self.dtype}")
        self._file.write(raw_bytes(converted))
        self._crc = crc32_of(converted, self._crc)
        self.rows += len(rows)

    def entry(self) -> dict[str, Any]:
        """What the file holds so far, as JSON values."""
        shape = [self.rows, *self.shape]
        return {"file": self.path.name, "dtype": self.dtype.str, "shape": shape, "crc32": self._crc}

    def flush(self) -> None:
        """Make what was written so far survive a power cut."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def complete(self) -> None:
        """Write the number of rows into the header, and close the file."""
        self._file.seek(0)
        self._file.write(_npy_header(self.dtype, (self.rows, *self.shape)))
        self.flush()
        self._file.close()

    def close(self) -> None:
        """Close the file as it is."""
        with suppress(OSError):  # what is left to write does not fit on the disk
            self._file.close()


def map_npy(folder: Path, entry: Mapping[str, Any], *, growing: bool = False) -> Array:
    """Map the rows of an entry, once the file has its size and begins as it should; a growing one may hold more."""
    if Path(entry["file"]).name != entry["file"]:
        raise ValueError(f"it names the file {entry['file']!r} outside the folder: refused")
    path, dtype = folder / entry["file"], np.dtype(entry["dtype"])
    shape = tuple(whole_number(side, high=2**62) for side in entry["shape"])
    if dtype.kind not in "biufSUMmc":
        raise ValueError(f"it says that {entry['file']} holds {dtype}: refused")
    if not path.is_file():
        raise ValueError(f"{path} is missing")
    size, expected = path.stat().st_size, _NPY_HEADER + dtype.itemsize * math.prod(shape)
    if size < expected or (size > expected and not growing):
        raise ValueError(f"{path} has {size:,} bytes, expected {expected:,}: it was truncated or overwritten")
    with path.open("rb") as file:
        beginning = file.read(_NPY_HEADER)
    if beginning != _npy_header(dtype, shape) and not (growing and beginning == _npy_header(dtype, (0, *shape[1:]))):
        raise ValueError(f"the first bytes of {path} are damaged")
    if expected == _NPY_HEADER:
        return np.zeros(shape, dtype)
    return np.asarray(np.memmap(path, dtype, "r", _NPY_HEADER, shape))


def _npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """An ``.npy`` header (format 1.0) of a fixed length, so that the row count can be patched in place."""
    text = repr({"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape})
    prefix = np.lib.format.magic(1, 0) + (_NPY_HEADER - 10).to_bytes(2, "little")
    return prefix + text.encode("latin1").ljust(_NPY_HEADER - 11) + b"\n"
