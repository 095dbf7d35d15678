"""Q-learning on finite tasks at compiled speed: one learner, or mazes x conditions x seeds in one call."""

from collections.abc import Sequence
from threading import Lock
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from numba import get_num_threads
from numpy.typing import NDArray

from secret_rl.agents.kernel import (
    LANE,
    LANES,
    TASK,
    Learners,
    Tables,
    discount_powers,
    play_all,
    play_any,
    play_few,
    play_few_shaped,
    seat,
)
from secret_rl.agents.options import check_options, check_seed, check_shaping_discount
from secret_rl.agents.rule import FEW, fresh_row, options, row_width, stream_key
from secret_rl.checks import check_integer
from secret_rl.envs.tabular import TabularModel, check, distinct_credit

# Not every threading layer of Numba takes calls from two threads at once; those that do not end the process.
_ONE_CALL = Lock()
_STEPS_AT_A_TIME = 1 << 23  # between two looks at the progress bar, or at Ctrl-C


class Packed(NamedTuple):
    """Models as compiled code takes them."""

    tables: Tables
    tasks: NDArray[Any]  # (models,) of TASK
    shaped: NDArray[np.bool_]  # (models,)


def pack(models: Sequence[TabularModel]) -> Packed:
    """Lay models of equally many actions end to end."""
    actions = models[0].next_states.shape[1]
    width = row_width(actions)
    sizes = [len(model.next_states) * width for model in models]
    firsts = np.concatenate([[0], np.cumsum(sizes)])
    if firsts[-1] >= 2**32:
        raise ValueError(
            f"{firsts[-1] // width:,} states of {actions} actions are more than tables hold: learn fewer models at once"
        )
    columns = [np.zeros(firsts[-1], dtype) for dtype in (np.uint32, np.float64, np.float64, np.uint64)]
    credit_parts = [np.zeros(1)]  # what pairs of models without shaping earn
    credit_firsts: dict[int, int] = {}  # models may share a table of credit
    tasks = np.zeros(len(models), TASK)
    shaped = np.zeros(len(models), np.bool_)
    for number, model in enumerate(models):
        part = slice(firsts[number], firsts[number + 1])
        next_rows, rewards, next_potential, credit_rows = (c[part].reshape(-1, width)[:, :actions] for c in columns)
        next_rows[:] = firsts[number] + model.next_states * np.int64(width) + 2 * model.terminated
        next_rows |= model.terminated | (model.rewards != 0)
        rewards[:] = model.rewards
        credit = np.asarray(distinct_credit(model.credit), np.float64)
        shaped[number] = np.any(model.potential) or credit.any()
        if shaped[number]:
            if id(model.credit) not in credit_firsts:
                credit_firsts[id(model.credit)] = sum(map(len, credit_parts))
                credit_parts.append(credit.ravel())
            next_potential[:] = model.potential[model.next_states]
            credit_rows[:] = credit_firsts[id(model.credit)] + model.pairs * np.int64(credit.shape[1])
        tasks[number] = (
            firsts[number],
            sizes[number],
            firsts[number] + model.start * width,
            model.max_steps,
            model.scale * model.potential[model.start],
            model.cap,
            model.scale,
            shaped[number] and credit.shape[1] > 1,
            credit_firsts.get(id(model.credit), 0),
            credit.size if shaped[number] and model.once else 0,
            model.keep_on_truncation,
        )
    return Packed(Tables._make([*columns, np.concatenate(credit_parts)]), tasks, shaped)


class CompiledRun:
    """One learner on one task, played some episodes at a time."""

    def __init__(self, model: TabularModel, seed: int, learning_rate: float, epsilon: float, discount: float) -> None:
        check(model)
        self.at_a_time = max(1, _STEPS_AT_A_TIME // model.max_steps)
        self._shape = model.next_states.shape
        self._packed = pack([model])
        self._options = options(self._shape[1], learning_rate, epsilon, discount)
        self._learners = Learners(np.zeros(1, np.uint64), np.array([stream_key(seed)]))
        self._powers = discount_powers(float(discount), model.max_steps)
        self._unseen = fresh_row(self._shape[1])
        self._q = np.empty(int(self._packed.tasks["size"][0]))
        self._lanes = np.zeros(1, LANE)
        seat(self._lanes[0], np.uint64(0), self._learners, self._packed.tasks, self._unseen, self._q, np.uint64(0))

    @property
    def values(self) -> NDArray[np.float64]:
        """(states, actions) what has been learned so far."""
        return self._q.reshape(self._shape[0], -1)[:, : self._shape[1]].copy()

    def play(self, returns: NDArray[np.float64], lengths: NDArray[np.int64]) -> None:
        """Play on for as many episodes as there are entries to fill."""
        self._lanes["episode"] = 0
        queue = np.empty(0, np.uint64)
        kernel = play_any if self._shape[1] > FEW else play_few_shaped if self._packed.shaped[0] else play_few
        kernel(
            self._packed.tables, self._packed.tasks, self._learners, queue, self._lanes, self._unseen, self._powers,
            self._options, self._q, returns[None], lengths[None],
        )  # fmt: skip


@overload
def learn_many(
    models: Sequence[TabularModel],
    seeds: Sequence[int],
    episodes: int,
    learning_rate: float = ...,
    epsilon: float = ...,
    discount: float = ...,
    *,
    with_lengths: Literal[False] = ...,
) -> NDArray[np.float64]: ...
@overload
def learn_many(
    models: Sequence[TabularModel],
    seeds: Sequence[int],
    episodes: int,
    learning_rate: float = ...,
    epsilon: float = ...,
    discount: float = ...,
    *,
    with_lengths: Literal[True],
) -> tuple[NDArray[np.float64], NDArray[np.int64]]: ...
def learn_many(
    models: Sequence[TabularModel],
    seeds: Sequence[int],
    episodes: int,
    learning_rate: float = 0.1,
    epsilon: float = 0.1,
    discount: float = 0.99,
    *,
    with_lengths: bool = False,
) -> NDArray[np.float64] | tuple[NDArray[np.float64], NDArray[np.int64]]:
    """(models, seeds, episodes) unshaped, discounted returns: what ``QLearning(seed=s).learn`` gives on each model.

    One compiled call on all threads; the number of threads (``numba.set_num_threads``) does not change the numbers.
    With ``with_lengths``, the steps of each episode come second.

    >>> import gymnasium as gym, secret_rl
    >>> envs = [gym.make("secret_rl/Triggers-v0", size=4, triggers=1, layout_seed=maze) for maze in range(3)]
    >>> learn_many([env.unwrapped.tabular() for env in envs], seeds=range(5), episodes=200).shape
    (3, 5, 200)
    """
    check_options(learning_rate, epsilon, discount)
    episodes = check_integer("episodes", episodes, 1)
    models = list(models)
    keys = np.array([stream_key(check_seed(seed)) for seed in seeds], np.uint64)
    if not models or not len(keys):
        raise ValueError(f"nothing to learn: {len(models)} models and {len(keys)} seeds, expected at least one of each")
    for number, model in enumerate(models):
        try:
            check(model)
            check_shaping_discount(model.discount, discount)
        except ValueError as wrong:
            raise ValueError(f"model {number}: {wrong}") from None
    counts = sorted({model.next_states.shape[1] for model in models})
    if len(counts) > 1:
        raise ValueError(f"the models have {counts} actions: call learn_many once for each number of actions")
    packed = pack(models)
    learners = Learners(np.repeat(np.arange(len(models), dtype=np.uint64), len(keys)), np.tile(keys, len(models)))
    shaped = packed.shaped[learners.tasks.astype(np.int64)]
    returns = np.empty((len(learners.tasks), episodes))
    lengths = np.empty(returns.shape, np.int64)
    with _ONE_CALL:
        threads = get_num_threads()
        play_all(
            *_shares(np.flatnonzero(~shaped), threads), *_shares(np.flatnonzero(shaped), threads),
            packed.tables, packed.tasks, learners, fresh_row(counts[0]),
            discount_powers(float(discount), max(model.max_steps for model in models)),
            options(counts[0], learning_rate, epsilon, discount), returns, lengths,
        )  # fmt: skip
    shape = (len(models), len(keys), episodes)
    return (returns.reshape(shape), lengths.reshape(shape)) if with_lengths else returns.reshape(shape)


def _shares(learners: NDArray[np.int64], threads: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Learners in the order of the threads that play them, and where each thread's begin and end.

    Learners side by side share a task, which then stays in the cache: they go together. The groups are shuffled, so
    that no thread gets all of a condition in which episodes are long.
    """
    groups = np.array_split(learners, max(threads, len(learners) // LANES))
    mixed = [groups[i] for i in np.random.default_rng(0).permutation(len(groups))]
    shares = [np.concatenate(mixed[thread::threads]) for thread in range(threads)]
    ends = np.concatenate([[0], np.cumsum([len(share) for share in shares])])
    return np.concatenate(shares).astype(np.uint64), ends
