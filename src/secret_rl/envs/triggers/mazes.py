"""Batches of mazes stepped by the compiled rules, and whole episodes of random play."""

from typing import Any, NamedTuple

import numpy as np
from numba import njit, uint64
from numpy.typing import NDArray

from secret_rl.envs.triggers.rules import (
    ACTION_STREAM,
    CHANNELS,
    WEYL,
    TriggersOptions,
    advance,
    blank_maze,
    cell_of,
    clear,
    draw_layout,
    episode_key,
    mix,
    observe,
    set_up,
    state_of,
)

NEXT_STEP, SAME_STEP, DISABLED = 0, 1, 2  # what step does with a maze whose episode is over


class MazeContents(NamedTuple):
    """Positions are (row, column); activated triggers and collected prizes are gone."""

    size: int
    agent: tuple[int, int]
    triggers: tuple[tuple[int, int], ...]
    prizes: tuple[tuple[int, int], ...]


class Outcome(NamedTuple):
    """What one step, or a reset, of each maze gave."""

    observations: NDArray[np.uint8]  # (mazes, span, span, channels)
    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    states: NDArray[np.int64]
    activated: NDArray[np.bool_]


class _Live(NamedTuple):
    """What changes while mazes are played, one row per maze."""

    seeds: NDArray[np.uint64]
    episodes: NDArray[np.int64]  # number of the episode under this seed; -1 before the first reset
    layouts: NDArray[np.int32]  # (mazes, 1 + objects) places of the agent's start, triggers, prizes
    places: NDArray[np.int64]
    left: NDArray[np.int64]
    steps: NDArray[np.int64]
    over: NDArray[np.bool_]
    boards: NDArray[np.uint8]
    codes: NDArray[np.int16]


@njit(cache=True)
def _begin(geo, live, i):
    """Start the next episode of maze ``i``."""
    base = i * geo.side * geo.side
    live.episodes[i] += 1
    clear(geo, live.layouts[i], base, live.places[i], live.boards, live.codes)
    draw_layout(geo, episode_key(live.seeds[i], live.episodes[i]), live.layouts[i])
    live.places[i], live.left[i] = set_up(geo, live.layouts[i], base, live.boards, live.codes)
    live.steps[i] = 0
    live.over[i] = False


@njit(cache=True)
def _reset(geo, live, mask, out):
    observations = out.observations.reshape(-1)
    pixels = geo.span * geo.span * CHANNELS
    for i in range(len(mask)):
        base = i * geo.side * geo.side
        if mask[i]:
            _begin(geo, live, i)
        observe(geo, base, live.places[i], live.boards, observations, i * pixels)
        out.states[i] = state_of(geo, base, live.places[i], live.left[i])


@njit(cache=True)
def _step(geo, live, actions, autoreset, out, last):
    """Step every maze into ``out``, all zeros before; ``last`` takes the final outcomes of SAME_STEP.

    Returns how many episodes ended.
    """
    # The arrays by name: reaching into a tuple of arrays counts references, which costs more than a step.
    places, lefts, steps, over, boards, codes = live[3:]
    pictures, rewards, terminateds, truncateds, states, activateds = out
    observations, last_observations = pictures.reshape(-1), last.observations.reshape(-1)
    pixels = geo.span * geo.span * CHANNELS
    ended = 0
    for i in range(len(actions)):
        base = i * geo.side * geo.side
        if over[i]:  # only under NEXT_STEP: this step is the reset
            _begin(geo, live, i)
        else:
            place, left, reward, activated, terminated = advance(geo, places[i], lefts[i], actions[i], boards, codes)
            places[i] = place
            lefts[i] = left
            steps[i] += 1
            truncated = not terminated and steps[i] >= geo.max_steps
            rewards[i] = reward
            terminateds[i] = terminated
            truncateds[i] = truncated
            activateds[i] = activated
            if terminated or truncated:
                if autoreset == SAME_STEP:
                    observe(geo, base, place, boards, last_observations, ended * pixels)
                    last.states[ended] = state_of(geo, base, place, left)
                    last.activated[ended] = activated
                    activateds[i] = False  # describes the reset, as the observation does
                    _begin(geo, live, i)
                else:
                    over[i] = True
                ended += 1
        observe(geo, base, places[i], boards, observations, i * pixels)
        states[i] = state_of(geo, base, places[i], lefts[i])
    return ended


class Mazes:
    """``n`` mazes of the same options. Maze ``i``, seeded with ``s``, plays the episodes of seed ``s``."""

    def __init__(self, options: TriggersOptions, n: int) -> None:
        self.options, self.n = options, n
        self._geometry = options.geometry()
        self.shape = (self._geometry.span, self._geometry.span, CHANNELS)
        board, codes = blank_maze(self._geometry)
        first_cell = np.flatnonzero(codes == 0)[0]  # where everything is until the first reset
        self._live = _Live(
            seeds=np.zeros(n, np.uint64),
            episodes=np.full(n, -1),
            layouts=np.full((n, 1 + options.triggers + options.prizes), first_cell, np.int32),
            places=np.arange(n) * len(codes) + first_cell,
            left=np.zeros(n, np.int64),
            steps=np.zeros(n, np.int64),
            over=np.ones(n, np.bool_),
            boards=np.tile(board, n),
            codes=np.tile(codes, n),
        )
        self._last = self._empty()

    @property
    def over(self) -> NDArray[np.bool_]:
        """Which mazes have no episode under way: before the first reset, and after the end of one."""
        return self._live.over

    def seed(self, i: int, seed: int) -> None:
        """Make the next reset of maze ``i`` the first episode of ``seed``."""
        self._live.seeds[i] = seed & (2**64 - 1)
        self._live.episodes[i] = -1

    def reset(self, mask: NDArray[np.bool_]) -> Outcome:
        """Start the next episode where ``mask`` is set; observe every maze."""
        out = self._empty()
        _reset(self._geometry, self._live, mask, out)
        return out

    def step(self, actions: NDArray[np.int64], autoreset: int) -> tuple[Outcome, Outcome | None]:
        """Step every maze: what each gave, and the final outcomes replaced by a reset under SAME_STEP."""
        out = self._empty()
        ended = _step(self._geometry, self._live, actions, autoreset, out, self._last)
        if ended == 0 or autoreset != SAME_STEP:
            return out, None
        final = Outcome._make(array[:ended] for array in self._last)
        self._last = self._empty()
        return out, final

    def contents(self, i: int) -> MazeContents:
        """What is in maze ``i`` now, for drawing and for tests."""
        geo, live = self._geometry, self._live

        def position(place: Any) -> tuple[int, int]:
            row, column = divmod(int(cell_of(geo, int(place))), geo.size)
            return row, column

        objects = [(k, place) for k, place in enumerate(live.layouts[i, 1:]) if live.left[i] >> k & 1]
        return MazeContents(
            size=geo.size,
            agent=position(live.places[i] - i * geo.side**2),
            triggers=tuple(position(place) for k, place in objects if k < geo.triggers),
            prizes=tuple(position(place) for k, place in objects if k >= geo.triggers),
        )

    def _empty(self) -> Outcome:
        observations, states = np.empty((self.n, *self.shape), np.uint8), np.empty(self.n, np.int64)
        terminated, truncated, activated = (np.zeros(self.n, np.bool_) for _ in range(3))
        return Outcome(observations, np.zeros(self.n), terminated, truncated, states, activated)


@njit(cache=True, nogil=True)
def _roll(
    geo, seeds, write, lengths, successes, observations, final_observations,
    actions, rewards, terminateds, truncateds, states, final_states, activateds,
):  # fmt: skip
    """Play the first episode of each seed with uniformly random actions; with ``write``, record it."""
    board, codes = blank_maze(geo)
    layout = np.empty(1 + geo.triggers + geo.prizes, np.int32)
    pixels = geo.span * geo.span * CHANNELS
    at = 0
    for e in range(len(seeds)):
        key = episode_key(seeds[e], 0)
        draw_layout(geo, key, layout)
        place, left = set_up(geo, layout, 0, board, codes)
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
        clear(geo, layout, 0, place, board, codes)


class RandomEpisodes:
    """Random play of Triggers for ``secret_rl.collect``: episode ``s`` has the maze of ``reset(seed=s)``."""

    def __init__(self, options: TriggersOptions) -> None:
        self._geometry = options.geometry()
        self._state_dtype: Any = np.int32 if options.num_states <= 2**31 else np.int64
        self._shape = (self._geometry.span, self._geometry.span, CHANNELS)
        self.bytes_per_episode = self._geometry.max_steps * (self._geometry.span**2 * CHANNELS + 16)

    def outcomes(self, seeds: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Whether each episode holds a positive reward, without recording it."""
        return self._run(seeds, write=False)["successes"]  # type: ignore[no-any-return]

    def record(self, seeds: NDArray[np.uint64]) -> dict[str, Any]:
        """The episodes as flat arrays by the field names of ``Trajectories``."""
        arrays = self._run(seeds, write=True)
        del arrays["successes"]
        offsets = np.concatenate([[0], np.cumsum(arrays.pop("lengths"))])
        for name, array in arrays.items():
            if name.endswith("observations"):
                array = array.reshape(-1, *self._shape)
            arrays[name] = array if name.startswith("final") else array[: offsets[-1]]
        arrays["annotations"] = {"trigger_activated": arrays.pop("trigger_activated")}
        return {"offsets": offsets, **arrays}

    def _run(self, seeds: NDArray[np.uint64], write: bool) -> dict[str, Any]:
        # Enough for the longest possible episodes: pages that are never touched cost no memory.
        rows = len(seeds) * self._geometry.max_steps if write else 0
        episodes = len(seeds) if write else 0
        pixels = self._geometry.span**2 * CHANNELS
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
