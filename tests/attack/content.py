"""The content of files, without what differs between two equal runs: times and dates, and checksums that cover them."""

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

from secret_rl import Trajectories

ABSENT = "absent"
_OF_THE_DAY = {"date", "seconds", "crc32", "start_time"}


def content_of(folder: Path) -> dict[str, str]:
    """Every file and folder below a folder, hidden ones included, with a digest."""
    return {
        str(path.relative_to(folder)): "folder" if path.is_dir() else digest_of(path)
        for path in sorted(folder.rglob("*"))
    }


def digest_of(path: Path) -> str:
    """A digest of one file; of a broken one, of its bytes."""
    raw = path.read_bytes()
    try:
        read = {".json": _json, ".safetensors": _safetensors}[path.suffix]
        return _digest(read(raw))
    except (KeyError, ValueError, struct.error):
        return _digest(raw)


def store_digest(path: Path) -> str:
    """A digest of trajectories as the library reads them; ``ABSENT`` where there are none."""
    try:
        data = Trajectories.load(path, verify=True)
    except FileNotFoundError:
        return ABSENT
    return trajectories_digest(data)


def trajectories_digest(data: Trajectories) -> str:
    """A digest of every array, and of what is known about them."""
    steps, episodes = data.columns()
    arrays = {**steps, **episodes, "offsets": data.offsets}
    said = json.dumps([dict(data.meta), str(data.observation_space), str(data.action_space)], sort_keys=True)
    return _digest(said.encode() + _arrays(arrays))


def differences(found: dict[str, str], expected: dict[str, str]) -> list[str]:
    """What one content has that another has not, in words."""
    missing = sorted(expected.keys() - found.keys())
    left = sorted(found.keys() - expected.keys())
    other = sorted(name for name in found.keys() & expected.keys() if found[name] != expected[name])
    words = (("missing", missing), ("left behind", left), ("other content in", other))
    return [f"{what} {', '.join(names[:4])}" for what, names in words if names]


def temporaries(folder: Path) -> list[str]:
    """Files and folders that are never to be left behind."""
    marks = (".writing", ".saving", ".replaced")
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob(".*") if any(mark in path.name for mark in marks)
    )


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()[:16]


def _json(raw: bytes) -> bytes:
    return json.dumps(_lasting(json.loads(raw)), sort_keys=True).encode()


def _safetensors(raw: bytes) -> bytes:
    (size,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + size])
    about = {name: _lasting(_parsed(text)) for name, text in header.pop("__metadata__", {}).items() if name != "crc32"}
    return json.dumps([header, about], sort_keys=True).encode() + raw[8 + size :]


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lasting(part) for key, part in value.items() if key not in _OF_THE_DAY}
    return [_lasting(part) for part in value] if isinstance(value, list) else value


def _arrays(arrays: dict[str, Any]) -> bytes:
    said = b""
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        said += f"{name} {array.dtype} {np.shape(arrays[name])}".encode() + array.tobytes()
    return said
