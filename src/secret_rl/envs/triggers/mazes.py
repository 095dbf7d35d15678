"""Batches of mazes stepped by the compiled rules, and whole episodes of random play."""

from typing import Any, NamedTuple

import numpy as np
from numba import njit, uint64
from numpy.typing import NDArray

from secret_rl.envs.triggers import rules
from secret_rl.envs.triggers.rules import CHANNELS, TriggersOptions

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
    rules.clear(geo, live.layouts[i], base, live.places[i], live.boards, live.codes)
    rules.draw_layout(geo, rules.episode_key(live.seeds[i], live.episodes[i]), live.layouts[i])
    live.places[i], live.left[i] = rules.set_up(geo, live.layouts[i], base, live.boards, live.codes)
    live.steps[i], live.over[i] = 0, False


@njit(cache=True)
def _reset(geo, live, mask, out):
    observations = out.observations.reshape(-1)
    pixels = geo.span * geo.span * CHANNELS
    for i in range(len(mask)):
        base = i * geo.side * geo.side
        if mask[i]:
            _begin(geo, live, i)
        rules.observe(geo, base, live.places[i], live.boards, observations, i * pixels)
        out.states[i] = rules.state_of(geo, base, live.places[i], live.left[i])


@njit(cache=True)
def _step(geo, live, actions, autoreset, out, last):
    """Step every maze into ``out``, all zeros before; ``last`` takes the final outcomes of SAME_STEP, if any (True)."""
    # The arrays by name: reaching into a tuple of arrays counts references, which costs more than a step.
    places, lefts, steps, over, boards, codes = live[3:]
    pictures, rewards, terminateds, truncateds, states, activateds = out
    observations, last_observations = pictures.reshape(-1), last.observations.reshape(-1)
    pixels = geo.span * geo.span * CHANNELS
    replaced = False
    for i, action in enumerate(actions):
        base = i * geo.side * geo.side
        if over[i]:  # only under NEXT_STEP: this step is the reset
            _begin(geo, live, i)
        else:
            place, left, reward, activated, terminated = rules.advance(geo, places[i], lefts[i], action, boards, codes)
            places[i], lefts[i] = place, left
            steps[i] += 1
            truncated = not terminated and steps[i] >= geo.max_steps
            rewards[i], terminateds[i], truncateds[i], activateds[i] = reward, terminated, truncated, activated
            if terminated or truncated:
                if autoreset == SAME_STEP:
                    rules.observe(geo, base, place, boards, last_observations, i * pixels)
                    last.states[i] = rules.state_of(geo, base, place, left)
                    last.activated[i] = activated
                    replaced = True
                    activateds[i] = False  # describes the reset, as the observation does
                    _begin(geo, live, i)
                else:
                    over[i] = True
        rules.observe(geo, base, places[i], boards, observations, i * pixels)
        states[i] = rules.state_of(geo, base, places[i], lefts[i])
    return replaced


class Mazes:
    """``n`` mazes of the same options. Maze ``i``, seeded with ``s``, plays the episodes of seed ``s``."""

    def __init__(self, options: TriggersOptions, n: int) -> None:
        self.options, self.n = options, n
        self._geometry = options.geometry()
        self.shape = (self._geometry.span, self._geometry.span, CHANNELS)
        board, codes = rules.blank_maze(self._geometry)
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
        """Step every maze: what each gave, and the final outcomes that SAME_STEP replaced by a reset, if any."""
        out, final = self._empty(), None
        if _step(self._geometry, self._live, actions, autoreset, out, self._last):
            final, self._last = self._last, self._empty()
        return out, final

    def contents(self, i: int) -> MazeContents:
        """What is in maze ``i`` now, for drawing and for tests."""
        geo, live = self._geometry, self._live

        def position(place: Any) -> tuple[int, int]:
            return divmod(int(rules.cell_of(geo, int(place))), geo.size)

        there = [position(place) if live.left[i] >> k & 1 else None for k, place in enumerate(live.layouts[i, 1:])]
        triggers, prizes = (tuple(filter(None, part)) for part in (there[: geo.triggers], there[geo.triggers :]))
        return MazeContents(geo.size, position(live.places[i] - i * geo.side**2), triggers, prizes)

    def _empty(self) -> Outcome:
        observations, states = np.empty((self.n, *self.shape), np.uint8), np.zeros(self.n, np.int64)
        terminated, truncated, activated = (np.zeros(self.n, np.bool_) for _ in range(3))
        return Outcome(observations, np.zeros(self.n), terminated, truncated, states, activated)


@njit(cache=True, nogil=True)
def _roll(
    geo, seeds, write, lengths, successes, observations, final_observations,
    actions, rewards, terminateds, truncateds, states, final_states, activateds,
):  # fmt: skip
    """Play the first episode of each seed with uniformly random actions; with ``write``, record it."""
    board, codes = rules.blank_maze(geo)
    layout = np.empty(1 + geo.triggers + geo.prizes, np.int32)
    pixels = geo.span * geo.span * CHANNELS
    observations, final_observations = observations.reshape(-1), final_observations.reshape(-1)
    at = 0
    for e in range(len(seeds)):
        key = rules.episode_key(seeds[e], 0)
        rules.draw_layout(geo, key, layout)
        place, left = rules.set_up(geo, layout, 0, board, codes)
        stream, bits = key ^ rules.ACTION_STREAM, uint64(0)
        step, terminated, success = 0, False, False
        while not terminated and step < geo.max_steps:
            if step & 31 == 0:  # 64 random bits are 32 actions
                stream += rules.WEYL
                bits = rules.mix(stream)
            action = np.int64(bits & uint64(3))
            bits >>= uint64(2)
            if write:
                rules.observe(geo, 0, place, board, observations, at * pixels)
                states[at] = rules.state_of(geo, 0, place, left)
                actions[at] = action
            place, left, reward, activated, terminated = rules.advance(geo, place, left, action, board, codes)
            step += 1
            success |= reward > 0
            if write:
                rewards[at], activateds[at], terminateds[at] = reward, activated, terminated
                truncateds[at] = (not terminated) and step == geo.max_steps
                at += 1
        if write:
            rules.observe(geo, 0, place, board, final_observations, e * pixels)
            final_states[e] = rules.state_of(geo, 0, place, left)
        lengths[e], successes[e] = step, success
        rules.clear(geo, layout, 0, place, board, codes)


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
        arrays = {name: array if name.startswith("final") else array[: offsets[-1]] for name, array in arrays.items()}
        annotations = {"trigger_activated": arrays.pop("trigger_activated")}
        return {"offsets": offsets, **arrays, "annotations": annotations}

    def _run(self, seeds: NDArray[np.uint64], write: bool) -> dict[str, Any]:
        # Enough for the longest possible episodes: pages that are never touched cost no memory.
        episodes = len(seeds) if write else 0
        rows = episodes * self._geometry.max_steps
        arrays: dict[str, Any] = {
            "lengths": np.empty(len(seeds), np.int64),
            "successes": np.empty(len(seeds), np.bool_),
            "observations": np.empty((rows, *self._shape), np.uint8),
            "final_observations": np.empty((episodes, *self._shape), np.uint8),
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
