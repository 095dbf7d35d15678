"""A fixed Triggers maze as arrays: every state that can be reached, by trying the compiled rules."""

import numpy as np
from numba import njit

from secret_rl.envs.tabular import TabularModel
from secret_rl.envs.triggers import rules
from secret_rl.envs.triggers.rules import CHANNELS, TriggersOptions

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
    size = options.num_states * (geo.span**2 * CHANNELS + 80)
    if size > _MAX_BYTES:
        raise OverflowError(
            f"a table of up to {options.num_states:,} states would take {size / 2**30:,.1f} GiB, more than "
            f"{_MAX_BYTES / 2**30:g}: use a smaller size or window, or fewer triggers and prizes"
        )
    found, *arrays = _search(geo, options.num_states)
    next_states, rewards, terminated, states, pixels = (array[:found].copy() for array in arrays)
    observations = pixels.reshape(-1, geo.span, geo.span, CHANNELS)
    ends = {"start": 0, "max_steps": geo.max_steps}
    return TabularModel.of(next_states, rewards, terminated, states=states, observations=observations, **ends)


@njit(cache=True)
def _search(geo, num_states):
    """Breadth first from the start; arrays have room for every state there may be, untouched where there is none."""
    next_states = np.empty((num_states, ACTIONS), np.int32)
    rewards = np.zeros((num_states, ACTIONS))
    terminated = np.empty((num_states, ACTIONS), np.bool_)
    states = np.empty(num_states, np.int64)
    observations = np.empty((num_states, geo.span * geo.span * CHANNELS), np.uint8)
    places = np.empty(num_states, np.int64)
    lefts = np.empty(num_states, np.int64)
    over = np.zeros(num_states, np.bool_)  # reached by the end of an episode only
    number_of = np.full(num_states, -1, np.int32)

    board, codes = rules.blank_maze(geo)
    layout = np.empty(1 + geo.triggers + geo.prizes, np.int32)
    rules.draw_layout(geo, geo.fixed_key, layout)
    places[0], lefts[0] = layout[0], (1 << (geo.triggers + geo.prizes)) - 1
    states[0] = rules.state_of(geo, 0, places[0], lefts[0])
    number_of[states[0]] = 0
    found, number = 1, 0
    while number < found:
        layout[0], left = places[number], lefts[number]
        for action in range(ACTIONS):
            place, _ = rules.set_up(geo, layout, 0, board, codes)
            for i in range(geo.triggers + geo.prizes):
                if not left >> i & 1:
                    rules.remove(layout[i + 1], board, codes)
            if action == 0:
                rules.observe(geo, 0, place, board, observations[number], 0)
            if over[number]:
                next_states[number, action] = number
                terminated[number, action] = True
            else:
                place, left_after, reward, _, ends = rules.advance(geo, place, left, action, board, codes)
                state = rules.state_of(geo, 0, place, left_after)
                if number_of[state] < 0:
                    number_of[state] = found
                    places[found], lefts[found], states[found], over[found] = place, left_after, state, ends
                    found += 1
                next_states[number, action] = number_of[state]
                rewards[number, action] = reward
                terminated[number, action] = ends
            rules.clear(geo, layout, 0, place, board, codes)
        number += 1
    return found, next_states, rewards, terminated, states, observations
