"""What a training was asked to do, as JSON values that can be compared."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm
from torch import Tensor, nn

_LONG = 200  # characters of a description that are worth reading


def described(value: Any) -> Any:
    """JSON values that are equal for equal options.

    Arrays, weights and files of paths that exist count by content; classes and functions by name; objects that do not
    say what they hold by their type.
    """
    told = _described(value)
    return told if len(str(told)) <= _LONG else f"{type(value).__name__} {_hash(str(told).encode())}"


def _described(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)} {_hash(np.ascontiguousarray(value).tobytes())}"
    if isinstance(value, BaseAlgorithm):
        return {type(value).__name__: _described(dict(value.policy.state_dict()))}
    if isinstance(value, nn.Module):
        return {type(value).__name__: _described(dict(value.state_dict()))}
    if isinstance(value, Mapping):
        return {str(key): _described(part) for key, part in sorted(value.items(), key=lambda pair: str(pair[0]))}
    if isinstance(value, list | tuple | set | frozenset):
        return [_described(part) for part in (value if isinstance(value, list | tuple) else sorted(value, key=str))]
    if is_dataclass(value) and not isinstance(value, type):
        return {type(value).__name__: {field.name: _described(getattr(value, field.name)) for field in fields(value)}}
    if isinstance(getattr(value, "values", None), Mapping):  # a table
        return {type(value).__name__: _described(value.values)}
    if hasattr(value, "potential"):  # a shaping
        told = [getattr(value, name, None) for name in ("potential", "discount", "scale")]
        return {type(value).__name__: _described(told)}
    name = getattr(value, "__qualname__", None)
    return f"{value.__module__}.{name}" if name else f"{type(value).__module__}.{type(value).__qualname__}"


def _hash(content: bytes) -> str:
    return sha256(content).hexdigest()[:16]
