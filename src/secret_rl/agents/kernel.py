"""The compiled loop of Q-learning on finite tasks.

A step of one learner waits for memory several times over. So a thread plays several learners in turn, a step each:
while one waits, the others go on. What each learns does not depend on that, nor on the number of threads. What chance
has to say is drawn for many steps ahead, which the compiler does several at a time.
"""

from typing import NamedTuple

import numpy as np
from numba import njit, prange, uintp
from numpy.typing import NDArray

from secret_rl.agents.rule import FEW, STEP, choose, draw, highest, improved

LANES = 12  # learners that a thread plays in turn
ROUNDS = 64  # steps of every lane for which lots are drawn at once
EVENT, TERMINATED, ROW = uintp(1), uintp(2), uintp(2**32 - 4)  # parts of an entry of next_rows

TASK = np.dtype(
    [
        ("first", np.uint64),  # its first entry in the tables
        ("size", np.uint64),  # how many entries it has
        ("start", np.uint64),  # entry of the first action in the first state
        ("max_steps", np.uint64),
        ("start_potential", np.float64),
        ("cap", np.float64),
        ("scale", np.float64),
        ("credit_stride", np.uint64),  # 0: credit is the same at all times
        ("credit_first", np.uint64),  # where its credit begins
        ("once", np.uint64),  # entries of credit that are paid once an episode; 0: paid every time
        ("keep_on_truncation", np.bool_),
    ],
    align=True,
)
LANE = np.dtype(
    [
        # what every step needs; times are counted in rounds, a step of every lane each
        ("row", np.uint64),  # entry of the first action in the present state
        ("shift", np.uint64),  # from an entry to the place of its value
        ("lots", np.uint64),  # where its lots begin
        ("end", np.uint64),  # the round that truncates the episode
        # what some do
        ("begin", np.uint64),  # the round before the first step of the episode
        ("gained", np.float64),  # the discounted return so far
        ("potential", np.float64),
        ("earned", np.float64),  # the sum of credit so far
        ("task", np.uint64),
        ("learner", np.uint64),
        ("episode", np.uint64),
        ("position", np.uint64),  # in the learner's stream of random numbers when rounds are counted from 0
        ("first", np.uint64),  # the place of the lane's first value
    ],
    align=True,
)


class Tables(NamedTuple):
    """All tasks of a call, end to end; one entry for each action in each state, and for what fills up a row."""

    next_rows: NDArray[np.uint32]  # entry of the next state's first action | TERMINATED | EVENT: a reward or an end
    rewards: NDArray[np.float64]
    next_potential: NDArray[np.float64]
    credit_rows: NDArray[np.uint64]  # where the row of credit begins
    credit: NDArray[np.float64]


class Learners(NamedTuple):
    """Who learns what."""

    tasks: NDArray[np.uint64]
    keys: NDArray[np.uint64]


@njit(cache=True, inline="always")
def _begin(lane, task, clock):
    """Start an episode after round ``clock``."""
    lane.row = task.start
    lane.begin = clock
    lane.end = clock + task.max_steps
    lane.gained = 0.0
    lane.potential = task.start_potential
    lane.earned = 0.0


@njit(cache=True)
def seat(lane, learner, learners, tasks, unseen, q, clock):
    """Give a lane to a learner that begins to learn after round ``clock``."""
    task = tasks[learners.tasks[learner]]
    lane.task = learners.tasks[learner]
    lane.learner = learner
    lane.position = learners.keys[learner] - clock * STEP
    lane.shift = lane.first - task.first
    lane.episode = 0
    width = uintp(len(unseen))
    for row in range(task.size // width):
        for place in range(width):
            q[lane.first + row * width + place] = unseen[place]
    _begin(lane, task, clock)


@njit(cache=True, inline="always")
def _draw(few, lane, clock, options, lots):
    """Draw the lots of a lane for the rounds after ``clock``."""
    # by name, as lots might overlap the lane: the compiler does eight at once if it need not look again
    first, position = lane.lots, lane.position + (clock + uintp(1)) * STEP
    for i in range(uintp(ROUNDS)):
        lots[first + i] = draw(few, position + i * STEP, options)


@njit(cache=True, inline="always")
def _shaping(lane, task, next_potential, earned, zero, discount):
    """What shaping adds to the reward of a step; ``zero``: nothing of the potential is left after it."""
    earned += lane.earned
    potential = task.scale * (next_potential + min(task.cap, earned))
    potential = 0.0 if zero else potential
    added = discount * potential - lane.potential
    lane.earned = earned
    lane.potential = potential
    return added


@njit(cache=True, inline="always")
def _play(few, shaped, tables, tasks, learners, queue, lanes, unseen, powers, options, q, returns, lengths):
    """Play the learners in the lanes, and as lanes become free those of the queue, to their last episode."""
    next_rows, rewards, next_potential, credit_rows, credit = tables  # by name: reaching into a tuple counts references
    episodes = uintp(returns.shape[1])
    longest = uintp(len(powers) - 1)
    lots = np.empty(len(lanes) * ROUNDS, np.uint64)
    room = uintp(0)
    for task in tasks:
        room = max(room, uintp(task.once))
    paid = np.zeros(uintp(len(lanes)) * room, np.uint64)  # in which episode a row of credit was: when it began, and 1
    active = uintp(len(lanes))
    for number in range(active):
        lanes[number].lots = number * uintp(ROUNDS)
    following = 0
    clock = uintp(0)
    while active:
        drawn = clock
        for number in range(active):
            _draw(few, lanes[number], drawn, options, lots)
        while active and clock < drawn + uintp(ROUNDS):
            turn = clock - drawn
            clock += uintp(1)
            i = uintp(0)
            while i < active:
                lane = lanes[i]
                i += uintp(1)
                entry = lane.row + choose(few, q, lane.row + lane.shift, options, lots[lane.lots + turn])
                onward = uintp(next_rows[entry])
                at = entry + lane.shift
                truncated = clock == lane.end
                if not (shaped or onward & EVENT):  # most steps: a way of their own keeps them short
                    best = highest(few, q, onward + lane.shift, options.actions)
                    q[at] = improved(q[at], 0.0, best, options)
                    lane.row = onward
                    if not truncated:
                        continue
                else:
                    time = clock - lane.begin - uintp(1)
                    terminated = False
                    reward = 0.0
                    if onward & EVENT:
                        terminated = onward & TERMINATED != 0
                        onward &= ROW
                        reward = rewards[entry]
                        lane.gained += powers[min(time, longest)] * reward
                    if shaped:
                        task = tasks[lane.task]
                        earned = credit[credit_rows[entry] + time * task.credit_stride]
                        if task.once and earned != 0.0:
                            place = lane.lots // uintp(ROUNDS) * room + credit_rows[entry] - task.credit_first
                            earned = 0.0 if paid[place] == lane.begin + uintp(1) else earned
                            paid[place] = lane.begin + uintp(1)
                        zero = terminated or (truncated and not task.keep_on_truncation)
                        reward += _shaping(lane, task, next_potential[entry], earned, zero, options.discount)
                    # whether terminated or not: in a branch of its own, its last comparison would become one, too
                    best = highest(few, q, onward + lane.shift, options.actions)
                    q[at] = improved(q[at], reward, 0.0 if terminated else best, options)
                    lane.row = onward
                    if not (terminated or truncated):
                        continue
                returns[lane.learner, lane.episode] = lane.gained
                lengths[lane.learner, lane.episode] = clock - lane.begin
                lane.episode += uintp(1)
                _begin(lane, tasks[lane.task], clock)
                if lane.episode < episodes:
                    continue
                if following < len(queue):
                    seat(lane, queue[following], learners, tasks, unseen, q, clock)
                    _draw(few, lane, drawn, options, lots)
                    following += 1
                else:
                    lane.position += clock * STEP
                    _begin(lane, tasks[lane.task], uintp(0))
                    active -= uintp(1)
                    i -= uintp(1)
                    lanes[i] = lanes[active]


@njit(cache=True, nogil=True)
def play_few(tables, tasks, learners, queue, lanes, unseen, powers, options, q, returns, lengths):
    """``_play`` for up to four actions, without shaping."""
    _play(True, False, tables, tasks, learners, queue, lanes, unseen, powers, options, q, returns, lengths)


@njit(cache=True, nogil=True)
def play_few_shaped(tables, tasks, learners, queue, lanes, unseen, powers, options, q, returns, lengths):
    """``_play`` for up to four actions, with shaping."""
    _play(True, True, tables, tasks, learners, queue, lanes, unseen, powers, options, q, returns, lengths)


@njit(cache=True, nogil=True)
def play_any(tables, tasks, learners, queue, lanes, unseen, powers, options, q, returns, lengths):
    """``_play`` for any number of actions, with shaping or without."""
    _play(False, True, tables, tasks, learners, queue, lanes, unseen, powers, options, q, returns, lengths)


@njit(cache=True, nogil=True)
def _play_queue(shaped, queue, tables, tasks, learners, unseen, powers, options, returns, lengths):
    """Play learners ``queue`` in lanes of this thread's own."""
    if len(queue) == 0:
        return
    size = uintp(0)
    for learner in queue:
        size = max(size, tasks[learners.tasks[learner]].size)
    lanes = np.zeros(min(len(queue), LANES), LANE)
    q = np.empty(uintp(len(lanes)) * size)
    for i in range(len(lanes)):
        lanes[i].first = uintp(i) * size
        seat(lanes[i], queue[i], learners, tasks, unseen, q, uintp(0))
    queue = queue[len(lanes) :]
    if options.actions > FEW:
        play_any(tables, tasks, learners, queue, lanes, unseen, powers, options, q, returns, lengths)
    elif shaped:
        play_few_shaped(tables, tasks, learners, queue, lanes, unseen, powers, options, q, returns, lengths)
    else:
        play_few(tables, tasks, learners, queue, lanes, unseen, powers, options, q, returns, lengths)


@njit(cache=True, parallel=True)
def play_all(plain, plain_ends, shaped, shaped_ends, tables, tasks, learners, unseen, powers, options, out, steps):
    """Play learners ``plain`` (of tasks without shaping) and ``shaped``, each thread those up to its end."""
    for thread in prange(len(plain_ends) - 1):
        queue = plain[plain_ends[thread] : plain_ends[thread + 1]]
        _play_queue(False, queue, tables, tasks, learners, unseen, powers, options, out, steps)
        queue = shaped[shaped_ends[thread] : shaped_ends[thread + 1]]
        _play_queue(True, queue, tables, tasks, learners, unseen, powers, options, out, steps)


@njit(cache=True)
def discount_powers(discount, longest):
    """1, discount, discount**2, ... as repeated products, up to where they change no more."""
    length, power = 1, 1.0
    while length < longest and power * discount != power:
        power *= discount
        length += 1
    powers = np.ones(length)
    for t in range(1, length):
        powers[t] = powers[t - 1] * discount
    return powers
