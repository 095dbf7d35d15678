"""A fixed Triggers maze as arrays: every state that can be reached, by trying the compiled rules."""

import numpy as np
from numba import njit

from secret_rl.envs.tabular import TabularModel
from secret_rl.envs.triggers.rules import (
    CHANNELS,
    TriggersOptions,
    advance,
    blank_maze,
    clear,
    draw_layout,
    observe,
    set_up,
    state_of,
)

ACTIONS = 4
_MAX_BYTES = 2**30


def tabulate(options: TriggersOptions) -> TabularModel:
    """The maze of ``layout_seed`` as a model; states are numbered in the order of a search from the start."""
    if options.layout_seed is None:
        raise ValueError(
            "a table of states needs one fixed maze, but layout_seed is None, which draws a new maze each episode: "
            "set layout_seed, e.g. gym.make('secret_rl/Triggers-v0', layout_seed=0)"
        )
    geo = options.geometry()
    masks = 2 ** (options.triggers + options.prizes)
    size = options.num_states * (geo.span**2 * CHANNELS + 80) + masks * geo.side**2 * (CHANNELS + 2)
    if size > _MAX_BYTES:
        raise OverflowError(
            f"a table of up to {options.num_states:,} states would take {size / 2**30:,.1f} GiB, more than "
            f"{_MAX_BYTES / 2**30:g}: use a smaller size or window, or fewer triggers and prizes"
        )
    empty = geo._replace(triggers=0, prizes=0)  # the same maze when nothing but the agent is in it
    found, next_states, rewards, terminated, states, observations = _search(geo, empty, options.num_states, masks)
    return TabularModel.of(
        next_states[:found].copy(),
        rewards[:found].copy(),
        terminated[:found].copy(),
        start=0,
        max_steps=geo.max_steps,
        states=states[:found].copy(),
        observations=observations.reshape(-1, geo.span, geo.span, CHANNELS)[:found].copy(),
    )


@njit(cache=True)
def _search(geo, empty, num_states, masks):
    """Breadth first from the start; arrays have room for every state there may be, untouched where there is none."""
    pixels = geo.span * geo.span * CHANNELS
    next_states = np.empty((num_states, ACTIONS), np.int32)
    rewards = np.zeros((num_states, ACTIONS))
    terminated = np.empty((num_states, ACTIONS), np.bool_)
    states = np.empty(num_states, np.int64)
    observations = np.empty(num_states * pixels, np.uint8)
    places = np.empty(num_states, np.int64)
    lefts = np.empty(num_states, np.int64)
    over = np.zeros(num_states, np.bool_)  # reached by the end of an episode only
    number_of = np.full(num_states, -1, np.int32)
    # What is in the maze when the objects of a mask are left, the agent not drawn.
    board, codes = blank_maze(geo)
    boards = np.empty((masks, len(board)), board.dtype)
    all_codes = np.empty((masks, len(codes)), codes.dtype)
    known = np.zeros(masks, np.bool_)

    layout = np.empty(1 + geo.triggers + geo.prizes, np.int32)
    draw_layout(geo, geo.fixed_key, layout)
    place, left = set_up(geo, layout, 0, board, codes)
    clear(empty, layout, 0, place, board, codes)
    boards[left], all_codes[left], known[left] = board, codes, True
    places[0], lefts[0], states[0] = place, left, state_of(geo, 0, place, left)
    number_of[states[0]] = 0
    found, number = 1, 0
    here = np.empty(1, np.int32)
    while number < found:
        place, left = places[number], lefts[number]
        here[0] = place
        for action in range(ACTIONS):
            board[:] = boards[left]
            codes[:] = all_codes[left]
            set_up(empty, here, 0, board, codes)
            if action == 0:
                observe(geo, 0, place, board, observations, number * pixels)
            if over[number]:
                next_states[number, action] = number
                terminated[number, action] = True
                continue
            after, left_after, reward, _, ends = advance(geo, place, left, action, board, codes)
            state = state_of(geo, 0, after, left_after)
            if number_of[state] < 0:
                number_of[state] = found
                places[found], lefts[found], states[found], over[found] = after, left_after, state, ends
                found += 1
                if not known[left_after]:
                    clear(empty, here, 0, after, board, codes)
                    boards[left_after], all_codes[left_after], known[left_after] = board, codes, True
            next_states[number, action] = number_of[state]
            rewards[number, action] = reward
            terminated[number, action] = ends
        number += 1
    return found, next_states, rewards, terminated, states, observations
