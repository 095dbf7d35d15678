"""What files and objects hold, without what differs between two equal runs: dates, times and checksums of them."""

import hashlib
import json
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from secret_rl import Trajectories

ABSENT = "absent"
_OF_THE_DAY = {"date", "seconds", "crc32", "start_time"}
_CACHES = {"_checkpoint", "_known", "_watching", "_asked_in_vain", "_unpaid", "_largest", "seconds"}


def content_of(folder: Path) -> dict[str, str]:
    """Every file and folder below a folder, hidden ones included, with a digest."""
    found = sorted(folder.rglob("*"))
    return {str(path.relative_to(folder)): "folder" if path.is_dir() else digest_of(path) for path in found}


def digest_of(path: Path) -> str:
    """A digest of one file; of a broken one, of its bytes."""
    raw = path.read_bytes()
    with suppress(ValueError, struct.error):
        if path.suffix == ".json":
            raw = json.dumps(_lasting(json.loads(raw)), sort_keys=True).encode()
        if path.suffix == ".safetensors":
            (size,) = struct.unpack("<Q", raw[:8])
            header = json.loads(raw[8 : 8 + size])
            about = _lasting({name: _parsed(text) for name, text in header.pop("__metadata__", {}).items()})
            raw = json.dumps([header, about], sort_keys=True).encode() + raw[8 + size :]
    return hashlib.sha256(raw).hexdigest()[:16]


def store_digest(path: Path) -> str:
    """A digest of trajectories as the library reads them; ``ABSENT`` where there are none."""
    try:
        return hashlib.sha256(repr(digest(Trajectories.load(path, verify=True))).encode()).hexdigest()[:16]
    except FileNotFoundError:
        return ABSENT


def differences(found: dict[str, str], expected: dict[str, str]) -> list[str]:
    """What one content has that another has not, in words."""
    missing = sorted(expected.keys() - found.keys())
    left = sorted(found.keys() - expected.keys())
    other = sorted(name for name in found.keys() & expected.keys() if found[name] != expected[name])
    words = (("missing", missing), ("left behind", left), ("other content in", other))
    return [f"{what} {', '.join(names[:4])}" for what, names in words if names]


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lasting(part) for key, part in value.items() if key not in _OF_THE_DAY}
    return [_lasting(part) for part in value] if isinstance(value, list) else value


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Everything that an object holds: arrays, and the text of other values, by where they are."""
    parts: Any = None
    if isinstance(value, torch.Tensor):
        yield path, value.detach().cpu().numpy()
    elif isinstance(value, np.ndarray | None | bool | int | float | str | bytes | np.generic | gym.Space):
        yield path, value if isinstance(value, np.ndarray) else str(value)
    elif isinstance(value, torch.nn.Module):
        parts = value.state_dict()
    elif isinstance(value, Trajectories):
        parts = [value.columns(), value.offsets, value.meta, value.observation_space, value.action_space]
    elif isinstance(value, Mapping | list | tuple):
        parts = value
    elif callable(value) or not hasattr(value, "__dict__"):
        yield path, type(value).__name__
    else:
        parts = {name: part for name, part in vars(value).items() if name not in _CACHES}
    if parts is not None and path.count("/") < 20:
        for key, part in parts.items() if isinstance(parts, Mapping) else enumerate(parts):
            yield from _leaves(part, f"{path}/{key}")


def digest(value: Any) -> Any:
    """What an object holds, as values that compare."""
    return sorted(
        (path, (leaf.dtype.str, leaf.shape, leaf.tobytes()) if isinstance(leaf, np.ndarray) else leaf)
        for path, leaf in _leaves(value)
    )


def not_finite(value: Any) -> bool:
    """Whether an object holds arrays or tensors of numbers that are not finite."""
    arrays = (leaf for _, leaf in _leaves(value) if isinstance(leaf, np.ndarray) and leaf.dtype.kind == "f")
    return not all(np.isfinite(array).all() for array in arrays)
