"""Ways to hide part of an observation, for environments and for stored trajectories alike.

A reward that shows in the present observation teaches nothing about the past: the paper crops its mazes for that
reason. A MiniGrid view shows the carried key in the agent's own cell; masking that cell hides it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from secret_rl.checks import check_integer
from secret_rl.trajectories import Trajectories
from secret_rl.trajectories.nested import Array, Nest, map_arrays

__all__ = ["CenteredView", "CropView", "DropView", "MaskView", "View", "ViewObservation", "apply_view"]


@runtime_checkable
class View(Protocol):
    """What a predictor gets to see. A view of your own is any object with these two methods."""

    def space(self, observation_space: gym.Space[Any], /) -> gym.Space[Any]:
        """The space of what is left of an observation; an error where the view does not fit."""

    def rows(self, nest: Nest, /) -> Nest:
        """(rows, ...) what is left of many observations at once; the given arrays stay as they are."""


class _EntryView:
    """A view of an observation, or of the entry ``key`` of a ``Dict`` observation."""

    key: str | None

    def space(self, observation_space: gym.Space[Any], /) -> gym.Space[Any]:
        if self.key is None:
            return self._space(observation_space)
        return gym.spaces.Dict(list(self._changed(self._as_dict(observation_space).spaces, self._space).items()))

    def rows(self, nest: Nest, /) -> Any:
        return self._changed(nest, self._rows)

    def _space(self, space: gym.Space[Any]) -> gym.Space[Any]:
        raise NotImplementedError

    def _rows(self, rows: Any) -> Any:
        raise NotImplementedError

    def _changed(self, value: Any, change: Callable[[Any], Any]) -> Any:
        if self.key is None:
            return change(value)
        self._check_names((self.key,), value)
        return {**value, self.key: change(value[self.key])}

    def _check_names(self, names: Iterable[str], parts: Collection[str]) -> None:
        for name in names:
            if name not in parts:
                raise ValueError(f"{self} names the entry {name!r}, but the observation has {list(parts)}")

    def _as_box(self, space: gym.Space[Any]) -> gym.spaces.Box:
        if isinstance(space, gym.spaces.Box):
            return space
        keys = f"; choose an entry with key=, one of {list(space)}" if isinstance(space, gym.spaces.Dict) else ""
        raise TypeError(f"{self} does not fit {space}: expected a Box{keys}")

    def _as_dict(self, space: gym.Space[Any]) -> gym.spaces.Dict:
        if isinstance(space, gym.spaces.Dict):
            return space
        raise TypeError(f"{self} does not fit {space}: expected a Dict with named entries; leave out key=")


@dataclass(frozen=True)
class CropView(_EntryView):
    """The middle ``window`` x ``window`` cells of an image, (rows, columns) or (rows, columns, channels).

    Cell ``side // 2`` is the middle of a side, the exact centre where the side is odd.
    """

    window: int
    """Side of the crop (odd)."""
    key: str | None = None
    """The entry of a ``Dict`` observation to look at; None: the observation itself."""

    def __post_init__(self) -> None:
        _check_odd(self.window)

    def _space(self, space: gym.Space[Any]) -> gym.Space[Any]:
        box = self._as_box(space)
        middle = self._middle(box.shape)
        return gym.spaces.Box(box.low[middle], box.high[middle], dtype=box.dtype.type)

    def _rows(self, rows: Array) -> Array:
        return np.ascontiguousarray(rows[(slice(None), *self._middle(rows.shape[1:]))])

    def _middle(self, shape: tuple[int, ...]) -> tuple[slice, ...]:
        if len(shape) not in (2, 3) or self.window > min(shape[:2]):
            expected = f"an image of at least {self.window} rows and columns; hide parts of others with MaskView"
            raise ValueError(f"{self} does not fit an observation of shape {shape}: expected {expected}")
        starts = (side // 2 - self.window // 2 for side in shape[:2])
        return tuple(slice(start, start + self.window) for start in starts)


@dataclass(frozen=True)
class MaskView(_EntryView):
    """One region of a ``Box`` observation overwritten: ``MaskView(((3, 4), (6, 7)))`` hides one cell of an image."""

    region: tuple[tuple[int, int], ...]
    """(start, stop) for each axis, stop excluded; axes that are left out at the end are masked whole."""
    value: float = 0
    """What is seen instead."""
    key: str | None = None
    """The entry of a ``Dict`` observation to look at; None: the observation itself."""

    def __post_init__(self) -> None:
        if not self.region or any(np.shape(pair) != (2,) or not 0 <= pair[0] < pair[1] for pair in self.region):
            expected = "a tuple of (start, stop) pairs, 0 <= start < stop, one for each axis"
            raise ValueError(f"region must be {expected}, got {self.region!r}: one axis is written ((start, stop),)")

    def _space(self, space: gym.Space[Any]) -> gym.Space[Any]:
        box = self._as_box(space)
        region = self._slices(box.shape)
        low, high = box.low[region].max(), box.high[region].min()
        if not low <= self.value <= high or (box.dtype.kind != "f" and self.value != int(self.value)):
            raise ValueError(f"value of {self} lies outside {box} there: use a {box.dtype} from {low} to {high}")
        return space

    def _rows(self, rows: Array) -> Array:
        masked = np.array(rows)  # in memory, also where the rows are mapped from disk
        masked[(slice(None), *self._slices(rows.shape[1:]))] = self.value
        return masked

    def _slices(self, shape: tuple[int, ...]) -> tuple[slice, ...]:
        beyond = any(stop > side for (_, stop), side in zip(self.region, shape, strict=False))
        if len(self.region) > len(shape) or beyond:
            raise ValueError(f"region of {self} lies outside an observation of shape {shape}: keep within its axes")
        return tuple(slice(start, stop) for start, stop in self.region)


@dataclass(frozen=True)
class DropView(_EntryView):
    """A ``Dict`` observation without some of its entries."""

    keys: tuple[str, ...]
    """The entries to leave out."""
    squeeze: bool = False
    """Give the one entry that remains by itself, out of the ``Dict``."""
    key: str | None = None
    """The entry of a ``Dict`` observation to look at, itself a ``Dict``; None: the observation itself."""

    def __post_init__(self) -> None:
        if isinstance(self.keys, str) or not all(isinstance(name, str) for name in self.keys):
            raise TypeError(f"keys must be a tuple of strings, got {self.keys!r}: write keys=('image',)")

    def _space(self, space: gym.Space[Any]) -> gym.Space[Any]:
        kept = self._rows(self._as_dict(space).spaces)
        return kept if self.squeeze else gym.spaces.Dict(list(kept.items()))

    def _rows(self, rows: Mapping[str, Any]) -> Any:
        self._check_names(self.keys, rows)
        kept = {name: part for name, part in rows.items() if name not in self.keys}
        if not kept or (self.squeeze and len(kept) > 1):
            expected = "exactly one, for squeeze=True" if self.squeeze else "at least one"
            raise ValueError(f"{self} leaves {len(kept)} entries of {list(rows)}: expected {expected}")
        return next(iter(kept.values())) if self.squeeze else kept


@dataclass(frozen=True)
class CenteredView(_EntryView):
    """The ``window`` x ``window`` cells around the agent, of an image (rows, columns, channels) that marks its cell.

    In the image, ``channel`` is not 0 in exactly one cell: where the agent is. In the view, where that would say
    nothing, it shows what lies beyond the edge: 1 there, and 0 inside; all other channels are 0 there. So the full
    state of Triggers, (agent, trigger, prize), becomes the crop (wall, trigger, prize) that the paper's credit model
    sees, and one environment serves both: the agent sees the whole, credit a part.

    >>> import secret_rl as srl
    >>> whole = srl.collect("secret_rl/Triggers-v0", 10, env_options={"window": None})
    >>> crops = srl.collect("secret_rl/Triggers-v0", 10, env_options={"window": 3})
    >>> srl.views.apply_view(whole, CenteredView(3)).equals(crops)
    True
    """

    window: int
    """Side of the view (odd); it may be larger than the image."""
    channel: int = 0
    """The channel that marks the cell of the agent."""
    key: str | None = None
    """The entry of a ``Dict`` observation to look at; None: the observation itself."""

    def __post_init__(self) -> None:
        _check_odd(self.window)
        check_integer("channel", self.channel, 0)

    def _space(self, space: gym.Space[Any]) -> gym.Space[Any]:
        box = self._as_box(space)
        self._check_shape(box.shape)
        # Every cell of the image may come to lie in every cell of the view, and so may what is beyond its edge.
        low, high = np.minimum(box.low.min((0, 1)), 0), np.maximum(box.high.max((0, 1)), 0)  # (channels,)
        low[self.channel], high[self.channel] = 0, 1
        shape = (self.window, self.window, box.shape[2])
        return gym.spaces.Box(np.broadcast_to(low, shape), np.broadcast_to(high, shape), dtype=box.dtype.type)

    def _rows(self, rows: Array) -> Array:
        self._check_shape(rows.shape[1:])
        count, height, width, channels = rows.shape
        which, cells = (rows[..., self.channel] != 0).reshape(count, height * width).nonzero()
        if len(which) != count or (which != np.arange(count)).any():
            marked = np.bincount(which, minlength=count)
            row = int((marked != 1).argmax())
            found = f"channel {self.channel} marks {marked[row]} cells in row {row}"
            raise ValueError(f"{found}, but {self} needs exactly one, the agent's: choose another channel")
        edge = self.window // 2
        padded = np.zeros((count, height + 2 * edge, width + 2 * edge, channels), rows.dtype)
        padded[..., self.channel] = 1
        inside = padded[:, edge : edge + height, edge : edge + width]
        inside[...] = rows
        inside[..., self.channel] = 0
        first_row, first_column = (first[:, None, None] for first in divmod(cells, width))
        across = np.arange(self.window)
        return np.asarray(padded[which[:, None, None], first_row + across[:, None], first_column + across])

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        if len(shape) != 3 or self.channel >= shape[2]:
            expected = f"(rows, columns, channels) with more than {self.channel} channels"
            raise ValueError(f"{self} does not fit an observation of shape {shape}: expected {expected}")


def _check_odd(window: Any) -> None:
    number = check_integer("window", window, 1)
    if number % 2 == 0:
        raise ValueError(f"window must be odd, to have a centre cell, got {number}: use {number - 1} or {number + 1}")


class ViewObservation(gym.ObservationWrapper[Any, Any, Any], RecordConstructorArgs):
    """An environment seen through a view; for several views, wrap it several times.

    >>> import gymnasium as gym, secret_rl
    >>> from secret_rl.views import CropView, ViewObservation
    >>> env = ViewObservation(gym.make("secret_rl/Triggers-v0", window=7), CropView(3))
    >>> env.observation_space.shape, env.reset(seed=0)[0].shape
    ((3, 3, 3), (3, 3, 3))
    >>> gym.make(env.spec).observation_space.shape
    (3, 3, 3)
    """

    def __init__(self, env: gym.Env[Any, Any], view: View) -> None:
        if isinstance(view, type) or not isinstance(view, View):
            raise TypeError(f"{view!r} is not a view: expected CropView(3), or another object with space and rows")
        RecordConstructorArgs.__init__(self, view=view)  # gym.make(env.spec) makes it again
        gym.ObservationWrapper.__init__(self, env)
        self.view, self.observation_space = view, view.space(env.observation_space)

    def observation(self, observation: Any) -> Any:
        """What the view leaves of it."""
        rows = self.view.rows(map_arrays(lambda part: np.asarray(part)[None], observation))
        return map_arrays(lambda part: part[0], rows)


def apply_view(data: Trajectories, *views: View) -> Trajectories:
    """The same episodes, seen through ``views`` one after another.

    Only the observations, the final ones and their space change, to what an environment wrapped in
    ``ViewObservation`` would have given; ``meta["views"]`` describes the views. What is cropped or masked is a copy in
    memory: for data that does not fit there, give it some episodes at a time.

    >>> import secret_rl as srl
    >>> from secret_rl.views import CropView, apply_view
    >>> data = srl.collect("secret_rl/Triggers-v0", 10, env_options={"window": 7})
    >>> cropped = apply_view(data, CropView(3))
    >>> cropped.equals(srl.collect("secret_rl/Triggers-v0", 10, env_options={"window": 3}))
    True
    >>> cropped.meta["views"]
    ['CropView(window=3, key=None)']
    """
    for view in views:
        data = replace(
            data,
            observation_space=view.space(data.observation_space),
            observations=view.rows(data.observations),
            final_observations=None if data.final_observations is None else view.rows(data.final_observations),
            meta={**data.meta, "views": [*data.meta.get("views", []), str(view)]},
            trusted=isinstance(view, _EntryView),
        )
    return data
