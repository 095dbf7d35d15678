"""Mazes side by side, reset and stepped by the compiled rules: the body of the single and the vector env."""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from secret_rl.envs.triggers.options import TriggersOptions
from secret_rl.envs.triggers.rules import (
    CHANNELS,
    advance,
    blank_maze,
    cell_of,
    clear,
    draw_layout,
    episode_key,
    observe,
    set_up,
    state_of,
)

NEXT_STEP, SAME_STEP, DISABLED = 0, 1, 2  # what step does with a maze whose episode is over

_SEED_MASK = 2**64 - 1


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


class Outcome(NamedTuple):
    """What one step, or a reset, of each maze gave."""

    observations: NDArray[np.uint8]  # (mazes, span, span, channels)
    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    states: NDArray[np.int64]
    activated: NDArray[np.bool_]


@njit(cache=True)
def _begin(geo, live, i):
    """Start the next episode of maze ``i``."""
    base = i * geo.side * geo.side
    live.episodes[i] += 1
    clear(geo, live.layouts[i], base, live.places[i], live.boards, live.codes)
    draw_layout(geo, episode_key(live.seeds[i], live.episodes[i]), live.layouts[i])
    place, left = set_up(geo, live.layouts[i], base, live.boards, live.codes)
    live.places[i] = place
    live.left[i] = left
    live.steps[i] = 0
    live.over[i] = False


@njit(cache=True)
def _reset(geo, live, mask, out):
    pixels = geo.span * geo.span * CHANNELS
    for i in range(len(mask)):
        base = i * geo.side * geo.side
        if mask[i]:
            _begin(geo, live, i)
        observe(geo, base, live.places[i], live.boards, out.observations, i * pixels)
        out.states[i] = state_of(geo, base, live.places[i], live.left[i])


@njit(cache=True)
def _step(geo, live, actions, autoreset, out, last):
    """Step every maze; ``last`` takes the final observations of SAME_STEP. Gives how many episodes ended."""
    # The arrays by name: reaching into a tuple of arrays counts references, which costs more than a step.
    places, lefts, steps, over, boards, codes = live[3:]
    observations, rewards, terminateds, truncateds, states, activateds = out
    pixels = geo.span * geo.span * CHANNELS
    ended = 0
    for i in range(len(actions)):
        base = i * geo.side * geo.side
        if over[i]:  # only under NEXT_STEP: this step is the reset
            _begin(geo, live, i)
            rewards[i] = 0.0
            terminateds[i] = False
            truncateds[i] = False
            activateds[i] = False
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
                    observe(geo, base, place, boards, last.observations, ended * pixels)
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
        self.options = options
        self.n = n
        self._geometry = options.geometry()
        board, codes = blank_maze(self._geometry)
        objects = options.triggers + options.prizes
        self._live = _Live(
            seeds=np.zeros(n, np.uint64),
            episodes=np.full(n, -1),
            layouts=np.tile(np.flatnonzero(codes == 0)[:1].astype(np.int32), (n, 1 + objects)),
            places=np.arange(n) * len(codes) + np.flatnonzero(codes == 0)[0],
            left=np.zeros(n, np.int64),
            steps=np.zeros(n, np.int64),
            over=np.ones(n, np.bool_),
            boards=np.tile(board, n),
            codes=np.tile(codes, n),
        )
        self._last = self._empty()
        self.shape = (self._geometry.span, self._geometry.span, CHANNELS)

    @property
    def over(self) -> NDArray[np.bool_]:
        """Which mazes have no episode under way: before the first reset, and after the end of one."""
        return self._live.over

    def seed(self, i: int, seed: int) -> None:
        """Make the next reset of maze ``i`` the first episode of ``seed``."""
        self._live.seeds[i] = seed & _SEED_MASK
        self._live.episodes[i] = -1

    def reset(self, mask: NDArray[np.bool_]) -> Outcome:
        """Start the next episode where ``mask`` is set; observe every maze."""
        out = self._empty()
        for array in (out.rewards, out.terminated, out.truncated, out.activated):
            array[:] = 0
        _reset(self._geometry, self._live, mask, out)
        return self._shaped(out, self.n)

    def step(self, actions: NDArray[np.int64], autoreset: int) -> tuple[Outcome, Outcome | None]:
        """Step every maze: what each gave, and the final outcomes replaced by a reset under SAME_STEP."""
        out = self._empty()
        ended = _step(
            self._geometry, self._live, actions, autoreset, out, self._last
        )  # fmt: skip
        if ended == 0 or autoreset != SAME_STEP:
            return self._shaped(out, self.n), None
        final = self._last
        self._last = self._empty()
        return self._shaped(out, self.n), self._shaped(final, ended)

    def contents(self, i: int) -> "MazeContents":
        """What is in maze ``i`` now, for drawing and for tests."""
        size = self.options.size

        def position(place: Any) -> tuple[int, int]:
            row, column = divmod(int(cell_of(self._geometry, int(place))), size)
            return row, column

        base = i * self._geometry.side**2

        there = self._live.layouts[i, 1:]
        left = [bool(self._live.left[i] >> k & 1) for k in range(len(there))]
        triggers = self.options.triggers
        return MazeContents(
            size=size,
            agent=position(self._live.places[i] - base),
            triggers=tuple(position(p) for p, here in zip(there[:triggers], left[:triggers], strict=True) if here),
            prizes=tuple(position(p) for p, here in zip(there[triggers:], left[triggers:], strict=True) if here),
        )

    def _empty(self) -> Outcome:
        geo = self._geometry
        return Outcome(
            observations=np.empty(self.n * geo.span * geo.span * CHANNELS, np.uint8),
            rewards=np.empty(self.n),
            terminated=np.empty(self.n, np.bool_),
            truncated=np.empty(self.n, np.bool_),
            states=np.empty(self.n, np.int64),
            activated=np.empty(self.n, np.bool_),
        )

    def _shaped(self, out: Outcome, rows: int) -> Outcome:
        """The first rows, observations as pictures."""
        pictures = out.observations.reshape(self.n, *self.shape)
        if rows == self.n:
            return Outcome(pictures, out.rewards, out.terminated, out.truncated, out.states, out.activated)
        return Outcome._make(array[:rows] for array in (pictures, *out[1:]))


class MazeContents(NamedTuple):
    """Positions are (row, column); activated triggers and collected prizes are gone."""

    size: int
    agent: tuple[int, int]
    triggers: tuple[tuple[int, int], ...]
    prizes: tuple[tuple[int, int], ...]
