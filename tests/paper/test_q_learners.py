"""Many tabular learners at once learn what each would alone."""

from types import SimpleNamespace

import numba
import numpy as np
import pytest
from paper.q_learners import learn_many
from tests.agents.tasks import ModelEnv, random_model

from secret_rl.agents import QLearning
from secret_rl.envs.tabular import tabular_of
from secret_rl.envs.triggers import TriggersEnv
from secret_rl.shaping import OnlineCredit, PotentialShaping, TablePotential


def shaped_maze(maze):
    env = TriggersEnv(size=4, triggers=1, prizes=1 + maze % 2, layout_seed=maze, max_steps=20 + maze)
    table = TablePotential({state: state % 5 / 10 for state in range(256)})
    credit = OnlineCredit(SimpleNamespace(step_credit=lambda _, actions: actions % 3 / 10), repeat=maze > 2)
    return PotentialShaping(env, credit if maze % 2 else table, 0.95, truncation="keep" if maze < 2 else "zero")


def test_each_of_many_learners_learns_what_it_would_alone_on_any_number_of_threads():
    """Tasks of different sizes and numbers of actions, with and without shaping, in one call."""
    envs = [env for maze in range(4) for env in (shaped_maze(maze), shaped_maze(maze).env)]
    envs += [TriggersEnv(size=6, triggers=2, layout_seed=9), ModelEnv(random_model(0, actions=6), arrays=True)]
    models, shapings = zip(*map(tabular_of, envs), strict=True)
    seeds = [7, 2**64 - 1, 0]
    before = numba.get_num_threads()
    try:
        for threads in range(1, numba.config.NUMBA_NUM_THREADS + 1):
            numba.set_num_threads(threads)
            returns, lengths = learn_many(models, seeds, 60, shapings, discount=0.95)
            assert returns.shape == lengths.shape == (10, 3, 60)
            for m, env in enumerate(envs):
                for s, seed in enumerate(seeds):
                    alone = QLearning(seed=seed, discount=0.95).learn(env, 60).curve
                    np.testing.assert_array_equal(returns[m, s], alone.returns)
                    np.testing.assert_array_equal(lengths[m, s], alone.lengths)
    finally:
        numba.set_num_threads(before)
    assert len(np.unique(returns.sum(-1))) > 20
    with pytest.raises(ValueError, match="shaped with discount 0.95"):
        learn_many(models[:1], [3], 50, shapings[:1])
