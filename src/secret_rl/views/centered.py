"""What surrounds the agent in an image of the whole."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from secret_rl.trajectories.nested import Array, Nest
from secret_rl.views.parts import as_box, integer, keep, name_of, space_at, value_at


@dataclass(frozen=True)
class CenteredView:
    """The ``window`` x ``window`` cells around the agent, of an image (rows, columns, channels) that marks its cell.

    In the image, ``channel`` is not 0 in exactly one cell: where the agent is. In the view, where that would tell
    nothing, it tells what lies beyond the edge: 1 there, and 0 inside; all other channels are 0 there. So the full
    state of Triggers, (agent, trigger, prize), becomes the crop (wall, trigger, prize) that the paper's credit model
    sees, and one environment serves both: the agent sees the whole, credit a part.

    >>> import secret_rl as srl
    >>> whole = srl.collect("secret_rl/Triggers-v0", 10, env_options={"window": None})
    >>> crops = srl.collect("secret_rl/Triggers-v0", 10, env_options={"window": 3})
    >>> srl.apply_view(whole, CenteredView(3)).equals(crops)
    True
    """

    window: int
    """Side of the view (odd); it may be larger than the image."""
    channel: int = 0
    """The channel that marks the cell of the agent."""
    key: str | None = None
    """The entry of a ``Dict`` observation to look at; None: the observation itself."""

    def __post_init__(self) -> None:
        keep(self, window=integer("window", self.window), channel=integer("channel", self.channel))
        keep(self, key=name_of("key", self.key))
        if self.window < 1 or self.window % 2 == 0:
            raise ValueError(
                f"window must be a positive odd number, so that the agent is in the middle, got {self.window}: "
                f"use {max(self.window - 1, 1)} or {max(self.window + 1, 1)}"
            )
        if self.channel < 0:
            raise ValueError(f"channel must be counted from the front, from 0, got {self.channel}")

    def space(self, observation_space: gym.Space[Any], /) -> gym.Space[Any]:
        """A ``Box`` of (window, window, channels)."""
        return space_at(self, self.key, observation_space, self._centered_space)

    def rows(self, nest: Nest, /) -> Nest:
        """(rows, window, window, channels)"""
        return cast(Nest, value_at(self, self.key, nest, self._centered))

    def one(self, observation: Any, /) -> Any:
        """(window, window, channels)"""
        return value_at(self, self.key, observation, lambda part: self._centered(np.asarray(part)[None])[0])

    def _centered_space(self, space: gym.Space[Any]) -> gym.Space[Any]:
        box = as_box(self, space)
        self._check_shape(box.shape)
        mark_low, mark_high = box.low[..., self.channel], box.high[..., self.channel]
        if ((mark_low > 0) | (mark_high < 0)).any() or not ((mark_low < 0) | (mark_high > 0)).any():
            raise ValueError(
                f"channel {self.channel} of {box} cannot mark one cell for {self}: expected bounds that hold 0 in "
                "every cell and more in some; choose another channel"
            )
        # Every cell of the image may come to lie in every cell of the view, and so may what is beyond its edge.
        low, high = np.minimum(box.low.min((0, 1)), 0), np.maximum(box.high.max((0, 1)), 0)  # (channels,)
        low[self.channel], high[self.channel] = 0, 1
        shape = (self.window, self.window, box.shape[2])
        return gym.spaces.Box(np.broadcast_to(low, shape), np.broadcast_to(high, shape), dtype=box.dtype.type)

    def _centered(self, images: Array) -> Array:
        self._check_shape(images.shape[1:])
        count, height, width, channels = images.shape
        which, cells = (images[..., self.channel] != 0).reshape(count, height * width).nonzero()
        if len(which) != count or (which != np.arange(count)).any():
            marked = np.bincount(which, minlength=count)
            row = int((marked != 1).argmax())
            raise ValueError(
                f"channel {self.channel} marks {marked[row]} cells in row {row}, but {self} needs exactly one, the "
                "agent's: choose the channel that shows the agent and nothing else"
            )
        around, outside = _surroundings(height, width, self.window)
        beyond = outside[cells]  # (rows, window * window)
        views: Array = images.reshape(-1, channels)[around[cells] + (which * (height * width))[:, None]]
        views[beyond] = 0
        views[..., self.channel] = beyond
        return views.reshape(count, self.window, self.window, channels)

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        if len(shape) != 3 or self.channel >= shape[2]:
            raise ValueError(
                f"{self} does not fit an observation of shape {shape}: expected (rows, columns, channels) with more "
                f"than {self.channel} channels"
            )


@lru_cache(maxsize=16)
def _surroundings(height: int, width: int, window: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """(cells, window * window) what cell of an image lies where around each cell, and what lies beyond its edge."""
    offsets = np.arange(window) - window // 2
    rows = np.repeat(np.arange(height), width)[:, None, None] + offsets[:, None]  # (cells, window, 1)
    columns = np.tile(np.arange(width), height)[:, None, None] + offsets  # (cells, 1, window)
    beyond = (rows < 0) | (rows >= height) | (columns < 0) | (columns >= width)
    cells = np.where(beyond, 0, rows * width + columns)
    return cells.reshape(height * width, -1), beyond.reshape(height * width, -1)
