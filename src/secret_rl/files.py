"""Every file format of this library: JSON documents, safetensors files, and ``.npy`` files that grow by rows.

A file states its format and version and carries checksums. Readers compare sizes with the bytes that are there before
they take memory, run nothing, and raise ``FileFormatError`` for whatever is wrong. What a checksum fits was written
here, and its values are used as they are. Writers replace a file whole or not at all.
"""

import csv
import json
import math
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secret_rl.atomic import replace_text, replacing
from secret_rl.checks import printable
from secret_rl.version import VERSION

Array = NDArray[Any]
Arrays = dict[str, Array]

_METADATA, _ABOUT = "__metadata__", "secret_rl"  # where a safetensors file holds our JSON
NPY_HEADER = 256  # bytes before the data of a growing file: enough for any row count, so that it can be patched
_CHUNK = 1 << 22
_LONGEST_REASON = 300
_CRC_POLYNOMIAL, _X_TO_0, _X_TO_8 = 0xEDB88320, 1 << 31, 1 << 23  # the highest bit is the lowest power
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
    """A kind of file; ``remedy`` says what to do about a damaged one."""

    name: str
    version: int = 1
    remedy: str = "restore it from a copy"

    @contextmanager
    def reading(self, path: Path) -> Iterator[None]:
        """Whatever the content of ``path`` leads to in the block becomes a ``FileFormatError`` that names it."""
        try:
            yield
        except (FileFormatError, ResumeError, OSError):
            raise
        except Exception as broken:  # also MemoryError and RecursionError
            reason = str(broken) if type(broken) is ValueError else f"{type(broken).__name__}: {broken}"
            reason = printable(" ".join(reason.split())[:_LONGEST_REASON])
            raise FileFormatError(f"{path} cannot be read as {self.name!r}: {reason}; {self.remedy}") from broken

    def write_json(self, path: str | Path, content: Mapping[str, Any]) -> Path:
        """Write a JSON document, whole or not at all."""
        lines = (f"{json.dumps(name)}: {json.dumps(value)}" for name, value in self._signed(content).items())
        replace_text(path, "{\n" + ",\n".join(lines) + "\n}\n")
        return Path(path)

    def read_json(self, path: str | Path) -> dict[str, Any]:
        """The content of a document that ``write_json`` wrote."""
        path = Path(path)
        with self.reading(path):
            return self._checked(json.loads(path.read_bytes()))

    def write_arrays(
        self, path: str | Path, about: Mapping[str, Any], arrays: Mapping[str, Any], *, finite: bool = True
    ) -> Path:
        """Write arrays and JSON about them to one safetensors file, whole or not at all.

        Not by the library of that format, which leaves a file of its own behind when it is killed.
        """
        ordered = {name: np.asarray(array, order="C") for name, array in sorted(arrays.items())}
        header: dict[str, Any] = {}
        at = 0
        for name, array in ordered.items():
            if array.dtype not in _NAMES or name == _METADATA:
                raise TypeError(f"{name} of dtype {array.dtype} cannot be in {path}: expected numbers or bools")
            if finite and array.dtype.kind == "f" and not np.isfinite(array).all():
                raise ValueError(f"{name} holds NaN or infinite numbers: {path} is not written")
            place = [at, at := at + array.nbytes]
            header[name] = {"dtype": _NAMES[array.dtype], "shape": list(array.shape), "data_offsets": place}
        document = self._signed({**about, "arrays": {name: _checksum(array) for name, array in ordered.items()}})
        text = json.dumps({_METADATA: {_ABOUT: json.dumps(document)}, **header}).encode()
        text += b" " * (-len(text) % 8)
        with replacing(path) as temporary, temporary.open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for array in ordered.values():
                file.write(_raw(array))
        return Path(path)

    def read_arrays(self, path: str | Path) -> tuple[dict[str, Any], Arrays]:
        """The JSON and the arrays of a file that ``write_arrays`` wrote."""
        from safetensors import safe_open

        path = Path(path)
        with self.reading(path), safe_open(path, framework="np") as file:  # which compares sizes with the file's
            metadata = file.metadata() or {}
            if _ABOUT not in metadata:
                raise ValueError("it is a safetensors file of something else")
            about = self._checked(json.loads(metadata[_ABOUT]))
            checksums = about.pop("arrays")
            names = sorted(file.keys())
            if names != sorted(checksums):
                raise ValueError(f"it holds the arrays {names}, expected {sorted(checksums)}")
            arrays = {name: file.get_tensor(name) for name in names}
            for name, array in arrays.items():
                if _checksum(array) != checksums[name]:
                    raise ValueError(f"{name} does not match its checksum")
            return about, arrays

    def _signed(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """A document with its format, version and checksum."""
        document = {"format": self.name, "version": self.version, "library": VERSION, **content}
        try:
            # As it will be read: JSON makes text of keys, and lists of tuples.
            document = json.loads(json.dumps(document, allow_nan=False))
            return {**document, "crc32": checksum(document)}
        except (TypeError, ValueError, RecursionError) as bad:
            raise ValueError(f"cannot write {self.name}: {bad}; meta and options must be JSON values") from bad

    def _checked(self, document: Any) -> dict[str, Any]:
        """The content of a document, if it is of this format and version and fits its checksum."""
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


def crc32_of(array: Array, before: int = 0) -> int:
    """CRC-32 of the bytes of an array, in bounded memory also where they are on disk or apart."""
    array = array if array.ndim else np.atleast_1d(array)
    rows = max(1, _CHUNK // max(array[:1].nbytes, 1))
    for first in range(0, len(array), rows):
        before = zlib.crc32(_raw(array[first : first + rows]), before)
    return before


def joined_crc32(first: int, second: int, size: int) -> int:
    """CRC-32 of two strings of bytes end to end, from those of each and the size of the second.

    A CRC is a polynomial modulo another one: the first is multiplied with the power of x that so many bytes stand for.
    """
    power, factor = _X_TO_0, _X_TO_8
    while size:
        power = _crc_product(power, factor) if size & 1 else power
        factor, size = _crc_product(factor, factor), size >> 1
    return _crc_product(power, first) ^ second


def _crc_product(one: int, other: int) -> int:
    product = 0
    for bit in range(31, -1, -1):
        product ^= other if one >> bit & 1 else 0
        other = other >> 1 ^ (_CRC_POLYNOMIAL if other & 1 else 0)
    return product


def _checksum(array: Array) -> int:
    """CRC-32 of an array with its dtype and shape."""
    return crc32_of(array, zlib.crc32(f"{_NAMES[array.dtype]}{list(array.shape)}".encode()))


def _raw(array: Array) -> memoryview:
    """The bytes of an array, without a copy where they lie together already."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else memoryview(b"")


class NpyWriter:
    """A ``.npy`` file that grows by rows. ``entry()`` describes it in a JSON header; ``resume`` goes on from there."""

    def __init__(self, path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], rows: int = 0, crc: int = 0) -> None:
        self.path, self.dtype, self.shape, self.rows, self._crc = path, dtype, shape, rows, crc
        self._file = path.open("r+b" if rows else "wb")
        self._file.truncate(NPY_HEADER + rows * dtype.itemsize * math.prod(shape))
        self._write_header()

    @classmethod
    def resume(cls, folder: Path, entry: Mapping[str, Any]) -> "NpyWriter":
        """Go on after the rows of an entry; what was written since is cut off."""
        rows, *shape = entry["shape"]
        return cls(folder / Path(entry["file"]).name, np.dtype(entry["dtype"]), tuple(shape), rows, entry["crc32"])

    def append(self, rows: Array) -> None:
        """Add rows. Another dtype is fine if it holds the same numbers: an env's ints may come as other ints."""
        if rows.shape[1:] != self.shape:
            raise ValueError(f"{self.path.stem} has rows of shape {rows.shape[1:]}, expected {self.shape}")
        converted = rows.astype(self.dtype, copy=False)
        if converted is not rows and not np.array_equal(converted, rows):
            raise ValueError(f"{self.path.stem} came as {rows.dtype} values that do not fit {self.dtype}")
        self._file.write(_raw(converted))
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
        self._write_header()
        self.flush()
        self._file.close()

    def close(self) -> None:
        """Close the file as it is."""
        with suppress(OSError):  # what is left to write does not fit on the disk
            self._file.close()

    def _write_header(self) -> None:
        self._file.seek(0)
        self._file.write(_npy_header(self.dtype, (self.rows, *self.shape)))
        self._file.seek(0, os.SEEK_END)  # which also flushes it


def map_npy(folder: Path, entry: Mapping[str, Any]) -> Array:
    """Map the rows of an entry."""
    path, dtype, shape = check_npy(folder, entry)
    if not dtype.itemsize * math.prod(shape):
        return np.zeros(shape, dtype)
    return np.asarray(np.memmap(path, dtype, "r", NPY_HEADER, shape))


def check_npy(folder: Path, entry: Mapping[str, Any]) -> tuple[Path, np.dtype[Any], tuple[int, ...]]:
    """Path, dtype and shape of an entry; an error unless its file has the right size and begins as it should."""
    path, dtype, shape = folder / entry["file"], np.dtype(entry["dtype"]), tuple(entry["shape"])
    if path.name != entry["file"]:
        raise ValueError(f"it names the file {entry['file']!r} outside the folder: refused")
    if dtype.hasobject:
        raise ValueError(f"it says that {entry['file']} holds {dtype}: refused")
    if not path.is_file():
        raise ValueError(f"{path} is missing")
    size, expected = path.stat().st_size, NPY_HEADER + dtype.itemsize * math.prod(shape)
    if size != expected:
        raise ValueError(f"{path} has {size:,} bytes, expected {expected:,}: it was truncated or overwritten")
    with path.open("rb") as file:
        if file.read(NPY_HEADER) != _npy_header(dtype, shape):
            raise ValueError(f"the first bytes of {path} are damaged")
    return path, dtype, shape


def _npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """An ``.npy`` header (format 1.0) of a fixed length, so that the row count can be patched in place."""
    text = repr({"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape})
    prefix = np.lib.format.magic(1, 0) + (NPY_HEADER - 10).to_bytes(2, "little")
    return prefix + text.encode("latin1").ljust(NPY_HEADER - 11) + b"\n"
