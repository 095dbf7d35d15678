"""Whole episodes of random play at compiled speed, written into flat arrays."""

from typing import Any

import numpy as np
from numba import njit, uint64
from numpy.typing import NDArray

from secret_rl.envs.triggers.options import TriggersOptions
from secret_rl.envs.triggers.rules import (
    ACTION_STREAM,
    CHANNELS,
    WEYL,
    advance,
    blank_maze,
    clear,
    draw_layout,
    episode_key,
    mix,
    observe,
    set_up,
    state_of,
)


@njit(cache=True, nogil=True)
def _roll(
    geo, seeds, write, lengths, successes, observations, final_observations,
    actions, rewards, terminateds, truncateds, states, final_states, activateds,
):  # fmt: skip
    """Play the first episode of each seed with uniformly random actions; write it down if asked to."""
    board, codes = blank_maze(geo)
    places = np.empty(1 + geo.triggers + geo.prizes, np.int32)
    pixels = geo.span * geo.span * CHANNELS
    at = 0
    for e in range(len(seeds)):
        key = episode_key(seeds[e], 0)
        draw_layout(geo, key, places)
        place, left = set_up(geo, places, 0, board, codes)
        stream = key ^ ACTION_STREAM
        bits = uint64(0)
        step = 0
        terminated = False
        success = False
        while not terminated and step < geo.max_steps:
            if step & 31 == 0:  # 64 random bits are 32 actions
                stream += WEYL
                bits = mix(stream)
            action = np.int64(bits & uint64(3))
            bits >>= uint64(2)
            if write:
                observe(geo, 0, place, board, observations, at * pixels)
                states[at] = state_of(geo, 0, place, left)
                actions[at] = action
            place, left, reward, activated, terminated = advance(geo, place, left, action, board, codes)
            step += 1
            success |= reward > 0
            if write:
                rewards[at] = reward
                activateds[at] = activated
                terminateds[at] = terminated
                truncateds[at] = (not terminated) and step == geo.max_steps
                at += 1
        if write:
            observe(geo, 0, place, board, final_observations, e * pixels)
            final_states[e] = state_of(geo, 0, place, left)
        lengths[e] = step
        successes[e] = success
        clear(geo, places, 0, place, board, codes)


class RandomEpisodes:
    """Random play of Triggers as ``secret_rl.collect`` wants it: a pure function of each episode's seed.

    Episode ``s`` has the maze that ``reset(seed=s)`` gives.
    """

    def __init__(self, options: TriggersOptions) -> None:
        self._geometry = options.geometry()
        self._state_dtype: Any = np.int32 if options.num_states <= 2**31 else np.int64
        span = self._geometry.span
        self._shape = (span, span, CHANNELS)
        self.bytes_per_episode = self._geometry.max_steps * (span * span * CHANNELS + 16)

    def outcomes(self, seeds: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Whether each episode holds a positive reward, without writing it down."""
        return self._run(seeds, write=False)["successes"]  # type: ignore[no-any-return]

    def record(self, seeds: NDArray[np.uint64]) -> dict[str, Any]:
        """The episodes as flat arrays by the field names of ``Trajectories``."""
        arrays = self._run(seeds, write=True)
        offsets = np.concatenate([[0], np.cumsum(arrays.pop("lengths"))])
        del arrays["successes"]
        steps = int(offsets[-1])
        for name in ("observations", "final_observations"):
            arrays[name] = arrays[name].reshape(-1, *self._shape)
        per_episode = ("final_observations", "final_states")
        arrays = {name: a if name in per_episode else a[:steps] for name, a in arrays.items()}
        arrays["annotations"] = {"trigger_activated": arrays.pop("trigger_activated")}
        return {"offsets": offsets, **arrays}

    def _run(self, seeds: NDArray[np.uint64], write: bool) -> dict[str, Any]:
        # Room for the longest possible episodes: what stays unused is never touched, so it costs no memory.
        rows = len(seeds) * self._geometry.max_steps if write else 0
        episodes = len(seeds) if write else 0
        pixels = int(np.prod(self._shape))
        arrays: dict[str, Any] = {
            "lengths": np.empty(len(seeds), np.int64),
            "successes": np.empty(len(seeds), np.bool_),
            "observations": np.empty(rows * pixels, np.uint8),
            "final_observations": np.empty(episodes * pixels, np.uint8),
            "actions": np.empty(rows, np.uint8),
            "rewards": np.empty(rows, np.float32),
            "terminated": np.empty(rows, np.bool_),
            "truncated": np.empty(rows, np.bool_),
            "states": np.empty(rows, self._state_dtype),
            "final_states": np.empty(episodes, self._state_dtype),
            "trigger_activated": np.empty(rows, np.bool_),
        }
        _roll(self._geometry, seeds, write, *arrays.values())
        return arrays
