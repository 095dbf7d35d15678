"""The rule of Q-learning, compiled: every random number, choice and update of the plain and the compiled learner.

``q`` is flat: the values of a state are ``q[row : row + actions]``, and its row is as wide as ``row_width`` says; what
is beyond the actions is -inf, so that it is never chosen. ``few`` (up to four actions) is a constant wherever this is
inlined, so that only one of the two ways is compiled there.

A learner's random numbers are a SplitMix64 stream that begins at the key of its seed. Each step goes on by ``STEP`` and
mixes the position it is at: the upper half of the bits decides whether to explore, the lower half which action to take
among those in question.
"""

from typing import NamedTuple

import numpy as np
from numba import njit, uint64, uintp
from numpy.typing import NDArray

from secret_rl.agents.four import highest_of_four
from secret_rl.envs.triggers.rules import WEYL, mix

FEW = 4
_STREAM = uint64(0x2545F4914F6CDD1D)  # an agent's numbers are independent of the mazes of the same seed
_HALF, _LOWER = uint64(32), uint64(2**32 - 1)
_PARTS = uintp(12)  # divides by 1, 2, 3 and 4: one draw chooses evenly among any number of tied actions
STEP = WEYL


class Options(NamedTuple):
    """What the rule is run with, as the numbers that compiled code takes."""

    actions: np.uint64
    explore_below: np.uint64  # of 2**32
    learning_rate: float
    discount: float


def options(actions: int, learning_rate: float, epsilon: float, discount: float) -> Options:
    """The options of a learner with so many actions."""
    return Options(np.uint64(actions), np.uint64(round(epsilon * 2**32)), float(learning_rate), float(discount))


def row_width(actions: int) -> int:
    """Places per state: a multiple of four, so that two bits of a row's number are free."""
    return -(-actions // FEW) * FEW


def fresh_row(actions: int) -> NDArray[np.float64]:
    """(row_width,) the values of a state never seen."""
    row = np.full(row_width(actions), -np.inf)
    row[:actions] = 0.0
    return row


def _choices() -> NDArray[np.uint8]:
    """Entry ``16 * mask + part``: the action that part stands for when the bits of the mask are in question."""
    table = np.zeros((2**FEW, 16), np.uint8)
    for mask in range(1, 2**FEW):
        among = [action for action in range(FEW) if mask >> action & 1]
        table[mask, : int(_PARTS)] = np.resize(among, int(_PARTS))
    return table.ravel()


_CHOICES = _choices()


def stream_key(seed: int) -> np.uint64:
    """Where the random numbers of a seed begin."""
    return np.uint64(_stream_key(np.uint64(seed)))


@njit(cache=True)
def _stream_key(seed):
    return mix(mix(seed + WEYL) ^ _STREAM)


@njit(cache=True, inline="always")
def highest(few, q, row, actions):
    """The value of the best action."""
    if few:
        return highest_of_four(q, row)[0]
    best = q[row]
    for action in range(uintp(1), uintp(actions)):
        best = q[row + action] if q[row + action] > best else best
    return best


@njit(cache=True, inline="always")
def draw(few, position, options):
    """The lot of a step: what chance has to say in its choice.

    For few actions it is 16 * mask + part: the mask is of all actions where the step explores, and empty otherwise.
    For more it is the random bits.
    """
    bits = mix(position)
    if few:
        everything = ((uint64(1) << options.actions) - uint64(1)) << uint64(4)
        mask = everything if (bits >> _HALF) < options.explore_below else uint64(0)
        return mask + (((bits & _LOWER) * _PARTS) >> _HALF)
    return bits


@njit(cache=True, inline="always")
def choose(few, q, row, options, lot):
    """Epsilon-greedy: any action, or one of those with the highest value, each equally likely."""
    if few:  # look-up instead of branches: what is chosen cannot be predicted, and this is the inner loop
        _, mask = highest_of_four(q, row)
        return uintp(_CHOICES[(mask << uint64(4)) | lot])
    explore = (lot >> _HALF) < options.explore_below
    best = highest(few, q, row, options.actions)
    among = uintp(0)
    for action in range(uintp(options.actions)):
        among += uintp(explore or q[row + action] >= best)
    left = ((lot & _LOWER) * among) >> _HALF  # how many of them to pass over
    for action in range(uintp(options.actions)):
        if explore or q[row + action] >= best:
            if left == uintp(0):
                return action
            left -= uintp(1)
    return uintp(0)  # not reached


@njit(cache=True, inline="always")
def improved(value, reward, following, options):
    """The value of an action after a step; ``following`` is the highest of the next state, 0 where terminated."""
    return value + options.learning_rate * (reward + options.discount * following - value)


@njit(cache=True)
def act(q, row, options, key, step):
    """The choice at step number ``step`` (from 1), for the plain learner."""
    position = key + uint64(step) * STEP
    if options.actions <= FEW:
        return choose(True, q, uintp(row), options, draw(True, position, options))
    return choose(False, q, uintp(row), options, draw(False, position, options))


@njit(cache=True)
def update(q, row, action, reward, next_row, terminated, options):
    """Learn from one step, for the plain learner."""
    if terminated:
        following = 0.0
    elif options.actions <= FEW:
        following = highest(True, q, uintp(next_row), options.actions)
    else:
        following = highest(False, q, uintp(next_row), options.actions)
    at = uintp(row) + uintp(action)
    q[at] = improved(q[at], reward, following, options)
