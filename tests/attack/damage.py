"""Ways to damage a file: without a thought for its checksums, or so that they fit the damage."""

import io
import json
import math
import pickle
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from secret_rl import files

Files = dict[str, bytes]
_DEEP, _LONG = "@deep@", "@long@"  # become what json.dumps cannot write
_ABOUT = "secret_rl"  # entry of a safetensors file's metadata that is ours
_RAW, _JSON = 0.5, 0.2  # shares; the rest is sealed again
_BOMBS = 0.002  # share of files that are small and claim to be large


@dataclass(frozen=True)
class Damage:
    """What is done to some files: their new bytes, or None where they are gone."""

    kind: str
    changes: dict[str, bytes | None]
    sealed: bool = False
    """Whether checksums fit: what is then read may be something else, but must be fit for use."""


def draw(originals: Files, rng: np.random.Generator) -> Damage:
    """Damage to one of some files that belong together."""
    name = str(rng.choice(sorted(originals)))
    raw, way = originals[name], rng.random()
    if way < _BOMBS:
        return Damage(f"bomb in {name}", {name: _bomb(raw, rng)})
    if way < _RAW:
        kind = _one(list(_RAW_KINDS), rng)
        return Damage(f"{kind} {name}", {name: _RAW_KINDS[kind](raw, rng)})
    if way < _RAW + _JSON and not _is_npy(raw):
        return Damage(f"JSON of {name}", {name: _with_json(raw, rng, sealed=False)})
    if _is_npy(raw):
        return _sealed_column(originals, name, rng)
    return Damage(f"sealed JSON of {name}", {name: _with_json(raw, rng, sealed=True)}, sealed=True)


def _one(choices: Sequence[Any], rng: np.random.Generator) -> Any:
    return choices[int(rng.integers(len(choices)))]


# Damage that knows nothing of what a file holds.


def _place(raw: bytes, rng: np.random.Generator) -> tuple[int, int]:
    """(first, last) of a range; often small, since headers are."""
    size = len(raw)
    first = int(rng.integers(size + 1)) if rng.random() < 0.7 else int(rng.integers(min(size, 64) + 1))
    return first, min(size, first + int(2 ** rng.uniform(0, 10)))


def _flipped(raw: bytes, rng: np.random.Generator) -> bytes:
    damaged = bytearray(raw)
    for _ in range(int(rng.integers(1, 9)) if raw else 0):
        damaged[int(rng.integers(len(raw)))] ^= 1 << int(rng.integers(8))
    return bytes(damaged)


def _with_part(change: Callable[[bytes, np.random.Generator], bytes]) -> Callable[..., bytes]:
    """Some bytes in the middle replaced."""

    def changed(raw: bytes, rng: np.random.Generator) -> bytes:
        first, last = _place(raw, rng)
        return raw[:first] + change(raw[first:last], rng) + raw[last:]

    return changed


_RAW_KINDS: dict[str, Callable[[bytes, np.random.Generator], bytes | None]] = {
    "bits flipped in": _flipped,
    "bytes overwritten in": _with_part(lambda part, rng: rng.bytes(len(part))),
    "zeros in": _with_part(lambda part, rng: bytes(len(part))),
    "bytes missing in": _with_part(lambda part, rng: b""),
    "block twice in": _with_part(lambda part, rng: part * 2),
    "truncated": lambda raw, rng: raw[: int(rng.integers(len(raw) + 1))],
    "extended": lambda raw, rng: raw + rng.bytes(int(2 ** rng.uniform(0, 12))),
    "other format in": lambda raw, rng: _one(_foreign_files(), rng),
    "empty": lambda raw, rng: b"",
    "gone": lambda raw, rng: None,
}


@cache
def _foreign_files() -> list[bytes]:
    """Small files of other formats, some of them hostile."""
    numbers = io.BytesIO()
    np.save(numbers, np.arange(20.0))
    empty = b"{}"
    return [
        numbers.getvalue(), b"PK\x03\x04" * 9, pickle.dumps({"a": [1, 2]}), b"\x89PNG\r\n\x1a\n" * 9,
        b"null", b"[]", empty, b"\xef\xbb\xbf{}", b"\xff\xfe\x00", b"a,b\n1,2\n", b"[" * 100_000, b'{"a":' * 50_000,
        b'{"format": NaN}', b"1" * 10_000, len(empty).to_bytes(8, "little") + empty, bytes(4096), b"\xff" * 64,
        (2**62).to_bytes(8, "little") + empty, b'{"format": "\\ud800"}',
    ]  # fmt: skip


def _bomb(raw: bytes, rng: np.random.Generator) -> bytes:
    """A small file of very many values."""
    text = (b'{"format": [' if rng.random() < 0.5 else b"[") + b"[],{}," * 700_000 + b"0" + b"]"
    text += b"}" if text.startswith(b"{") else b""
    return len(text).to_bytes(8, "little") + text if _is_safetensors(raw) else text


# Damage to JSON, of a document or in the header of a safetensors file.


def _with_json(raw: bytes, rng: np.random.Generator, *, sealed: bool) -> bytes:
    if _is_safetensors(raw):
        return _safetensors(raw, rng, sealed=sealed)
    try:
        document = json.loads(raw)
    except ValueError:  # a picture or a table
        return _flipped(raw, rng)
    for _ in range(int(rng.integers(1, 3))):
        document = _changed(document, rng, nasty=not sealed)
    if sealed and isinstance(document, dict):
        seal(document)
    return _text(document)


def seal(document: dict[str, Any]) -> None:
    """Give a document the checksum of its content, where it has one at all and can have one."""
    if "crc32" in document:
        try:
            document["crc32"] = files.checksum(document)
        except (ValueError, TypeError, RecursionError):
            document["crc32"] = 0


def _text(document: Any) -> bytes:
    text = json.dumps(document).replace(f'"{_DEEP}"', "[" * 60_000 + "]" * 60_000)
    return text.replace(f'"{_LONG}"', "9" * 5_000).encode()


def _changed(value: Any, rng: np.random.Generator, *, nasty: bool, depth: int = 0) -> Any:
    """A JSON value with one of its parts replaced, removed, doubled or renamed."""
    if isinstance(value, dict | list) and value and (depth == 0 or rng.random() < 0.75):
        key = _one(list(value) if isinstance(value, dict) else range(len(value)), rng)
        way = rng.random()
        if way < 0.06:
            del value[key]
        elif way < 0.1:
            if isinstance(value, dict):
                value[f"{key} "] = value.pop(key)
            else:
                value.insert(key, value[key])
        else:
            value[key] = _changed(value[key], rng, nasty=nasty, depth=depth + 1)
        return value
    return _other(value, rng, nasty)


def _other(value: Any, rng: np.random.Generator, nasty: bool) -> Any:
    """Something else in place of a value: near it, or of another kind."""
    if isinstance(value, bool | int | float) and abs(value) < 2**60 and rng.random() < 0.5:
        near = [value + 1, value - 1, -value, value * 2, value * 1000, 0, value + 0.5, 1, 2**31, 2**40, -(2**63)]
        return _one(near, rng)
    others = [
        None, True, False, -1, 0, 1, 2**31 - 1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400, 1e308, -1e308, 1e-320, 0.5,
        "", "x", "../../../etc/passwd", "/dev/zero", "x" * 5_000, "\x00", "\x1b[2J", "é\u202e", [], {}, [[]], [0] * 500,
        [1, 2, 3], {"a": 1}, {"type": "Box"}, [value], {"value": value}, str(value)[:200], [2**31, 2**31], [-1],
    ]  # fmt: skip
    if nasty:
        others += [math.nan, math.inf, "\ud800", _DEEP, _LONG, 10**4000]
    if isinstance(value, dict) and "type" in value and rng.random() < 0.7:
        return _space(rng)
    return _one(others, rng)


def _space(rng: np.random.Generator) -> Any:
    """The description of a space that is too large, or none."""
    box = {"type": "Box", "low": 0, "high": 1, "shape": [3], "dtype": "float32"}
    spaces = [
        {**box, "shape": [2**31, 2**31]}, {**box, "shape": [2**20, 2**10]}, {**box, "shape": [-1]},
        {**box, "shape": [10**6] * 40}, {**box, "shape": [1] * 70}, {**box, "dtype": "O"}, {**box, "dtype": "V8"},
        {**box, "dtype": "S1000000000"}, {**box, "low": "nan"}, {**box, "low": 2, "high": 1}, {**box, "shape": []},
        {**box, "low": [0] * 5}, {**box, "shape": [0]}, {**box, "low": "inf", "high": "-inf"},
        {"type": "Discrete", "n": 2**62, "start": 0, "dtype": "int64"},
        {"type": "Discrete", "n": 10**30, "start": 0, "dtype": "int64"},
        {"type": "Discrete", "n": -3, "start": 0, "dtype": "int64"},
        {"type": "Discrete", "n": 5, "start": 10**30, "dtype": "int64"},
        {"type": "MultiBinary", "n": 2**40}, {"type": "MultiBinary", "n": [2**20, 2**12]},
        {"type": "MultiDiscrete", "nvec": [2**40] * 3, "start": [0] * 3, "dtype": "int64"},
        {"type": "MultiDiscrete", "nvec": [[2, 3], [4]], "start": [0], "dtype": "int8"},
        {"type": "Dict", "spaces": [["a", box], ["a", box]]}, {"type": "Dict", "spaces": []},
        {"type": "Tuple", "spaces": [box] * 2000}, {"type": "Tuple", "spaces": []}, {"type": "Text"}, {"type": None},
    ]  # fmt: skip
    return _one(spaces, rng)


# Arrays, sealed again.


def _numbers(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Other numbers of the same dtype and shape."""
    other, way = array.copy(), rng.random()
    flat = other.reshape(-1)
    if not other.size:
        return other
    if way < 0.25:
        flat.view(np.uint8)[:] = np.frombuffer(rng.bytes(other.nbytes), np.uint8) & (1 if array.dtype == bool else 255)
    elif array.dtype.kind == "f":
        place = int(rng.integers(flat.size)) if way < 0.7 else slice(None)
        flat[place] = rng.choice([np.nan, np.inf, -np.inf, 0.0, -1.0, 1e30])
    elif array.dtype.kind == "b":
        flat[int(rng.integers(flat.size))] ^= True
    else:
        limits = np.iinfo(array.dtype)
        edges = np.array([limits.min, limits.max, 0, 1, limits.max // 2], array.dtype)
        flat[int(rng.integers(flat.size))] = rng.choice(edges)
        if way < 0.5:
            rng.shuffle(flat)
    return other


def _sealed_column(originals: Files, name: str, rng: np.random.Generator) -> Damage:
    """A column of a store with other numbers, shape or dtype; its header agrees with it."""
    folder = Path(name).parent
    header_name = str(folder / "header.json")
    header = json.loads(originals[header_name])
    columns = header["arrays"]
    column, entry = next((column, entry) for column, entry in columns.items() if entry["file"] == Path(name).name)
    shape, dtype = tuple(entry["shape"]), np.dtype(entry["dtype"])
    size = dtype.itemsize * math.prod(shape)  # a column that is not finished may hold more
    array = np.frombuffer(originals[name][256 : 256 + size], dtype).reshape(shape)
    way = rng.random()
    if column == "offsets" and way < 0.6:
        array = _offsets(array, rng)
    elif way < 0.7:
        array = _numbers(array, rng)
    elif way < 0.8:
        array = array[: int(rng.integers(len(array) + 1))]
    elif way < 0.9:
        array = array.reshape(*((-1, 1) if rng.random() < 0.5 else (1, -1)), *shape[1:])
    else:
        others = ("<i8", "<f8", "<u8", "<M8[s]", "<f4", "<i4", "|u1", "|b1", "|i1", "<c8")
        fitting = [other for other in others if np.dtype(other).itemsize == dtype.itemsize and other != dtype.str]
        array = array.view(_one(fitting, rng)) if fitting else array
    entry |= {"shape": list(array.shape), "dtype": array.dtype.str, "crc32": zlib.crc32(array.tobytes())}
    seal(header)
    described = repr({"descr": np.lib.format.dtype_to_descr(array.dtype), "fortran_order": False, "shape": array.shape})
    start = np.lib.format.magic(1, 0) + (246).to_bytes(2, "little") + described.encode("latin1").ljust(245) + b"\n"
    changes = {name: start + array.tobytes(), header_name: _text(header)}
    return Damage(f"sealed {name}", changes, sealed=True)


def _offsets(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    other = array.copy()
    place = int(rng.integers(len(other)))
    ways = [other[-1] + 5, -1, 2**62, -(2**63), other[max(place - 1, 0)], 0, other[-1], 2**31]
    other[place] = _one(ways, rng)
    return other


def _safetensors(raw: bytes, rng: np.random.Generator, *, sealed: bool) -> bytes:
    """Other entries of the header, or other arrays; sealed again as this library does it."""
    (length,) = struct.unpack("<Q", raw[:8])
    header, data = json.loads(raw[8 : 8 + length]), raw[8 + length :]
    metadata = header.pop("__metadata__", {})
    about = json.loads(metadata.get(_ABOUT, "{}"))
    way = rng.random()
    if not sealed or way < 0.5:
        if way < 0.35 or not header:
            about = _changed(about, rng, nasty=not sealed)
        else:
            header = _changed(header, rng, nasty=not sealed)
    else:
        header, data = _other_arrays(header, data, rng)
    if sealed and isinstance(about, dict):
        if isinstance(about.get("arrays"), dict) and way >= 0.4:
            about["arrays"] = {name: _sum(entry, data) for name, entry in header.items()}
        seal(about)
    header["__metadata__"] = {**metadata, _ABOUT: _text(about).decode()}
    text = _text(header)
    return len(text).to_bytes(8, "little") + text + data


def _other_arrays(header: dict[str, Any], data: bytes, rng: np.random.Generator) -> tuple[dict[str, Any], bytes]:
    dtypes = {name: np.dtype(code) for name, code in files._DTYPES.items()}
    arrays = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        arrays[name] = np.frombuffer(data[first:last], dtypes[entry["dtype"]]).reshape(entry["shape"])
    name = _one(list(arrays), rng) if arrays else None
    way = rng.random()
    if name is None or way < 0.05:
        arrays["extra"] = np.zeros(3, np.float32)
    elif way < 0.1:
        del arrays[name]
    elif way < 0.65:
        arrays[name] = _numbers(arrays[name], rng)
    elif way < 0.75:
        arrays[name] = arrays[name].reshape(-1)[: int(rng.integers(arrays[name].size + 1))]
    elif way < 0.85:
        arrays[name] = arrays[name][None] if rng.random() < 0.5 else arrays[name].reshape(-1)
    else:
        arrays[name] = np.zeros(arrays[name].shape, _one(list(dtypes.values()), rng))
    names = {dtype: code for code, dtype in dtypes.items()}
    header, data = {}, b""
    for name, array in arrays.items():
        offsets = [len(data), len(data) + array.nbytes]
        header[name] = {"dtype": names[array.dtype], "shape": list(array.shape), "data_offsets": offsets}
        data += array.tobytes()
    return header, data


def _sum(entry: Any, data: bytes) -> int:
    """The checksum of an array as its entry describes it."""
    try:
        first, last = entry["data_offsets"]
        return zlib.crc32(data[first:last], zlib.crc32(f"{entry['dtype']}{list(entry['shape'])}".encode()))
    except (KeyError, TypeError, ValueError):
        return 0


def _is_npy(raw: bytes) -> bool:
    return raw.startswith(b"\x93NUMPY")


def _is_safetensors(raw: bytes) -> bool:
    return raw[8:9] == b"{"
