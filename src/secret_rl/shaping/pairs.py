"""What (observation, action) pairs are worth, remembered, so that a pair that comes again costs a lookup.

For models that read transitions, the next observation is part of a pair, too.
"""

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secret_rl.trajectories.nested import map_arrays

_REMEMBERED = 1 << 16  # pairs
_LONGEST_KEY = 512  # bytes; of larger pairs, pictures for one, a digest is kept


class KnownPairs:
    """Pairs and their worth; ``worth`` of (observations, actions, ...), one row each, is asked for new ones."""

    def __init__(self, worth: Callable[..., NDArray[np.float64]]) -> None:
        self._worth = worth
        self.known: dict[bytes, float] = {}

    def of_one(self, *pair: Any) -> tuple[bytes, float]:
        """The key and the worth of one pair."""
        key = _short(b"".join(map(_content, pair)))
        value = self.known.get(key)
        if value is None:
            value = float(self._worth(*(map_arrays(lambda part: np.asarray(part)[None], nest) for nest in pair))[0])
            self._remember({key: value})
        return key, value

    def of_rows(self, pairs: Sequence[Any], n: int) -> tuple[list[bytes], list[float]]:
        """(n,) the keys and the worth of many pairs; those not known are asked for together, and equal ones once."""
        keys = pair_keys(pairs, n)
        values: list[Any] = list(map(self.known.get, keys))
        if None in values:
            new = {key: i for i, (key, value) in enumerate(zip(keys, values, strict=True)) if value is None}
            rows = list(new.values())
            worth = self._worth(*(map_arrays(lambda array: array[rows], nest) for nest in pairs))
            found = dict(zip(new, worth.tolist(), strict=True))
            self._remember(found)
            values = [found[key] if value is None else value for key, value in zip(keys, values, strict=True)]
        return keys, values

    def _remember(self, found: dict[bytes, float]) -> None:
        if len(self.known) + len(found) <= _REMEMBERED:
            self.known.update(found)


def pair_keys(pairs: Sequence[Any], n: int) -> list[bytes]:
    """(n,) bytes that are equal where pairs are: as of one pair at a time, cut from one array."""
    parts = [_bytes(array, n) for nest in pairs for array in _leaves(nest)]
    content = np.ascontiguousarray(np.concatenate(parts, axis=1))  # (n, bytes)
    keys: list[bytes] = content.view(f"V{content.shape[1]}")[:, 0].tolist()
    return keys if content.shape[1] <= _LONGEST_KEY else list(map(_short, keys))


def _bytes(array: NDArray[Any], n: int) -> NDArray[np.uint8]:
    """(n, bytes of a row)"""
    return np.ascontiguousarray(array).reshape(n, -1).view(np.uint8)


def _leaves(nest: Any) -> list[Any]:
    """The arrays of a nest in an order of its own: environments list entries as they like."""
    if isinstance(nest, dict):
        return [leaf for name in sorted(nest) for leaf in _leaves(nest[name])]
    if isinstance(nest, tuple):
        return [leaf for part in nest for leaf in _leaves(part)]
    return [nest]


def _content(nest: Any) -> bytes:
    if isinstance(nest, np.ndarray | np.generic):  # at once: every step of a single environment comes through here
        return nest.tobytes()
    return b"".join([np.asarray(leaf).tobytes() for leaf in _leaves(nest)])


def _short(content: bytes) -> bytes:
    return content if len(content) <= _LONGEST_KEY else blake2b(content, digest_size=16).digest()
