"""What a view hides. Every view says what it does to a space, to many rows, and to one observation.

A reward that can be told from the present observation teaches nothing about the past: the paper crops its mazes
for that reason. A MiniGrid view shows the carried key in the agent's own cell; masking that cell hides it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

import gymnasium as gym
import numpy as np

from secret_rl.trajectories.nested import Array, Nest
from secret_rl.views.parts import as_box, as_dict, check_names, integer, keep, name_of, space_at, value_at


@runtime_checkable
class View(Protocol):
    """What a predictor gets to see. A view of your own is a frozen dataclass whose fields are JSON values."""

    def space(self, observation_space: gym.Space[Any], /) -> gym.Space[Any]:
        """The space of what is left of an observation; an error where the view does not fit."""

    def rows(self, nest: Nest, /) -> Nest:
        """(rows, ...) what is left of many observations at once; the given arrays stay as they are."""

    def one(self, observation: Any, /) -> Any:
        """What is left of one observation."""


@dataclass(frozen=True)
class CropView:
    """The middle ``window`` x ``window`` cells of an image, (rows, columns) or (rows, columns, channels).

    Cell ``side // 2`` is the middle of a side, the exact centre where the side is odd.
    """

    window: int
    """Side of the crop (odd)."""
    key: str | None = None
    """The entry of a ``Dict`` observation to look at; None: the observation itself."""

    def __post_init__(self) -> None:
        keep(self, window=integer("window", self.window), key=name_of("key", self.key))
        if self.window < 1 or self.window % 2 == 0:
            raise ValueError(
                f"window must be a positive odd number, so that the crop has a centre cell, got {self.window}: "
                f"use {max(self.window - 1, 1)} or {max(self.window + 1, 1)}"
            )

    def space(self, observation_space: gym.Space[Any], /) -> gym.Space[Any]:
        """A ``Box`` of (window, window) or (window, window, channels)."""
        return space_at(self, self.key, observation_space, self._crop_space)

    def rows(self, nest: Nest, /) -> Nest:
        """(rows, window, window[, channels])"""
        return cast(Nest, value_at(self, self.key, nest, self._crop))

    def one(self, observation: Any, /) -> Any:
        """(window, window[, channels])"""
        return value_at(self, self.key, observation, lambda part: self._crop(np.asarray(part)[None])[0])

    def _crop_space(self, space: gym.Space[Any]) -> gym.Space[Any]:
        box = as_box(self, space)
        middle = self._middle(box.shape)
        return gym.spaces.Box(box.low[middle], box.high[middle], dtype=box.dtype.type)

    def _crop(self, images: Array) -> Array:
        # Copied out of the larger rows: whole episodes are gathered fastest from arrays without gaps.
        return np.ascontiguousarray(images[(slice(None), *self._middle(images.shape[1:]))])

    def _middle(self, shape: tuple[int, ...]) -> tuple[slice, ...]:
        if len(shape) not in (2, 3):
            raise ValueError(
                f"{self} does not fit an observation of shape {shape}: expected (rows, columns) or "
                "(rows, columns, channels); hide parts of other shapes with MaskView"
            )
        shorter = min(shape[:2])
        if self.window > shorter:
            raise ValueError(
                f"{self} is larger than an image of {shape[0]}x{shape[1]}: "
                f"use a window of at most {shorter - 1 + shorter % 2}"
            )
        return tuple(
            slice(side // 2 - self.window // 2, side // 2 - self.window // 2 + self.window) for side in shape[:2]
        )


@dataclass(frozen=True)
class MaskView:
    """One region of a ``Box`` observation overwritten: ``MaskView(((3, 4), (6, 7)))`` hides one cell of an image."""

    region: tuple[tuple[int, int], ...]
    """(start, stop) for each axis, stop excluded; axes that are left out at the end are masked whole."""
    value: float | tuple[float, ...] = 0
    """What is seen instead: one number, or one for each masked entry of the last axis (the channels of a cell)."""
    key: str | None = None
    """The entry of a ``Dict`` observation to look at; None: the observation itself."""

    def __post_init__(self) -> None:
        keep(self, region=_region(self.region), value=_numbers(self.value), key=name_of("key", self.key))

    def space(self, observation_space: gym.Space[Any], /) -> gym.Space[Any]:
        """The same space, once it is known to hold the region and the value."""
        return space_at(self, self.key, observation_space, self._check_space)

    def rows(self, nest: Nest, /) -> Nest:
        """(rows, ...) as given, with the region overwritten in a copy."""
        return cast(Nest, value_at(self, self.key, nest, self._mask))

    def one(self, observation: Any, /) -> Any:
        """The observation with the region overwritten in a copy."""
        return value_at(self, self.key, observation, lambda part: self._mask(np.asarray(part)[None])[0])

    def _check_space(self, space: gym.Space[Any]) -> gym.Space[Any]:
        box = as_box(self, space)
        region = self._slices(box.shape)
        low, high, fill = box.low[region], box.high[region], self._fill(box.dtype, box.shape)
        if not ((low <= fill) & (fill <= high)).all():
            raise ValueError(
                f"value {self.value} of {self} lies outside {box} there: use one from {low.max()} to {high.min()}"
            )
        return space

    def _mask(self, rows: Array) -> Array:
        masked = np.array(rows)  # in memory, also where the rows are mapped from disk
        masked[(slice(None), *self._slices(rows.shape[1:]))] = self._fill(rows.dtype, rows.shape[1:])
        return masked

    def _slices(self, shape: tuple[int, ...]) -> tuple[slice, ...]:
        if len(self.region) > len(shape) or any(
            stop > side for (_, stop), side in zip(self.region, shape, strict=False)
        ):
            raise ValueError(
                f"region {self.region} of {self} lies outside an observation of shape {shape}: "
                f"expected at most {len(shape)} (start, stop) pairs, each with stop at most the length of its axis"
            )
        return tuple(slice(start, stop) for start, stop in self.region)

    def _fill(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """The value as the numbers of an observation: () or (masked entries of the last axis,)."""
        fill = np.asarray(self.value)
        lowest, highest = _limits(dtype)
        if not ((lowest <= fill) & (fill <= highest) & ((fill == np.floor(fill)) | (dtype.kind == "f"))).all():
            raise ValueError(
                f"value {self.value} of {self} is not a {dtype}, which the observation is made of: "
                f"use {'numbers' if dtype.kind == 'f' else 'integers'} from {lowest} to {highest}"
            )
        if fill.ndim:
            start, stop = self.region[-1] if len(self.region) == len(shape) else (0, shape[-1])
            if len(fill) != stop - start:
                raise ValueError(
                    f"value {self.value} of {self} holds {len(fill)} numbers, but {stop - start} entries of the last "
                    f"axis of {shape} are masked: give one number, or {stop - start}"
                )
        return fill.astype(dtype)


@dataclass(frozen=True)
class DropView:
    """A ``Dict`` observation without some of its entries."""

    keys: tuple[str, ...]
    """The entries to leave out."""
    squeeze: bool = False
    """Give the one entry that remains by itself, out of the ``Dict``."""
    key: str | None = None
    """The entry of a ``Dict`` observation to look at, itself a ``Dict``; None: the observation itself."""

    def __post_init__(self) -> None:
        if isinstance(self.keys, str) or not isinstance(self.keys, Iterable):
            raise TypeError(f"keys must be a tuple of strings, got {self.keys!r}: write keys=({self.keys!r},)")
        keep(
            self, keys=tuple(name_of("keys", name, optional=False) for name in self.keys), key=name_of("key", self.key)
        )
        if not isinstance(self.squeeze, bool):
            raise TypeError(f"squeeze must be True or False, got {self.squeeze!r}")
        if not self.keys and not self.squeeze:
            raise ValueError("keys is (), so there is nothing to drop: name at least one entry, or leave the view out")

    def space(self, observation_space: gym.Space[Any], /) -> gym.Space[Any]:
        """A ``Dict`` of the entries that remain, or the space of the only one."""
        return space_at(self, self.key, observation_space, self._drop_space)

    def rows(self, nest: Nest, /) -> Nest:
        """The arrays that remain, as they were."""
        return cast(Nest, value_at(self, self.key, nest, self._drop))

    def one(self, observation: Any, /) -> Any:
        """The entries that remain, as they were."""
        return value_at(self, self.key, observation, self._drop)

    def _drop_space(self, space: gym.Space[Any]) -> gym.Space[Any]:
        kept = self._drop(as_dict(self, space).spaces)
        return kept if self.squeeze else gym.spaces.Dict(list(kept.items()))

    def _drop(self, parts: Mapping[str, Any]) -> Any:
        check_names(self, self.keys, parts)
        kept = {name: part for name, part in parts.items() if name not in self.keys}
        if not kept:
            raise ValueError(f"{self} drops every entry of {list(parts)}: leave at least one")
        if not self.squeeze:
            return kept
        if len(kept) > 1:
            raise ValueError(
                f"{self} leaves {len(kept)} entries, {list(kept)}, but squeeze=True expects one: "
                "drop the others too, or use squeeze=False"
            )
        return next(iter(kept.values()))


def _region(region: Any) -> tuple[tuple[int, int], ...]:
    lists = isinstance(region, tuple | list) and all(isinstance(pair, tuple | list) for pair in region)
    if not lists or not region or {len(pair) for pair in region} != {2}:
        raise TypeError(
            f"region must be a tuple of (start, stop) pairs, one for each axis, got {region!r}: "
            "a region of one axis is written ((start, stop),)"
        )
    pairs = tuple((integer("start", start), integer("stop", stop)) for start, stop in region)
    for start, stop in pairs:
        if not 0 <= start < stop:
            raise ValueError(f"region {pairs} holds ({start}, {stop}): expected 0 <= start < stop, from the front")
    return pairs


def _numbers(value: Any) -> float | tuple[float, ...]:
    numbers = np.asarray(value)
    if numbers.dtype.kind not in "iuf" or numbers.ndim > 1 or not numbers.size:
        raise TypeError(f"value must be one number, or one for each masked entry of the last axis, got {value!r}")
    if not np.isfinite(numbers).all():
        raise ValueError(f"value must be finite, got {value!r}")
    plain: Any = numbers.tolist()
    return tuple(plain) if numbers.ndim else plain


def _limits(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    if dtype.kind == "b":
        return 0, 1
    limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    return limits.min, limits.max
