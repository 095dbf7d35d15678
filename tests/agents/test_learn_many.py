"""Many learners in one call: each learns what it would alone, however many there are and on however many threads."""

import os
import subprocess
import sys

import numba
import numpy as np
import pytest
from tests.agents.tasks import Shaping, random_model

from secret_rl.agents import QLearning, learn_many
from secret_rl.agents.kernel import LANES
from secret_rl.agents.tabular import CompiledRun
from secret_rl.envs.triggers import TriggersEnv


@pytest.fixture
def threads():
    """Sets the number of threads for one test."""
    before = numba.get_num_threads()
    yield numba.set_num_threads
    numba.set_num_threads(before)


def shaped_maze(maze):
    env = TriggersEnv(size=4, triggers=1, prizes=1 + maze % 2, layout_seed=maze, max_steps=20 + maze)
    return Shaping(env, lambda s: (s % 5) / 10, lambda s, a, t: (s + a) % 3 / (10 + t), 0.4, 0.95, maze % 2 == 0)


def test_each_learner_learns_what_it_would_alone(threads):
    """More learners than lanes, tasks of different sizes, with and without shaping, in one call."""
    threads(1)
    envs = [env for maze in range(4) for env in (shaped_maze(maze), shaped_maze(maze).env)]
    envs.append(TriggersEnv(size=6, triggers=2, layout_seed=9))
    seeds = [7, 2**64 - 1, 0, 8, 9]
    assert 4 * len(seeds) > LANES + 3
    models = [env.get_wrapper_attr("tabular")() for env in envs]
    returns, lengths = learn_many(models, seeds, 60, 0.2, 0.15, 0.95, with_lengths=True)
    assert returns.shape == lengths.shape == (9, 5, 60)
    np.testing.assert_array_equal(returns, learn_many(models, seeds, 60, 0.2, 0.15, 0.95))
    for m, env in enumerate(envs):
        for s, seed in enumerate(seeds):
            alone = QLearning(learning_rate=0.2, epsilon=0.15, discount=0.95, seed=seed).learn(env, 60)
            np.testing.assert_array_equal(returns[m, s], alone.returns)
            np.testing.assert_array_equal(lengths[m, s], alone.lengths)
    assert len(np.unique(returns.sum(-1))) > 20


def test_defaults_are_those_of_the_learner():
    env = TriggersEnv(size=4, triggers=1, layout_seed=2)
    np.testing.assert_array_equal(learn_many([env.tabular()], [3], 50)[0, 0], QLearning(seed=3).learn(env, 50).returns)


def test_threads_change_nothing(threads):
    models = [shaped_maze(maze).tabular() for maze in range(3)] + [shaped_maze(maze).env.tabular() for maze in range(3)]
    seeds = range(5)
    threads(1)
    alone = learn_many(models, seeds, 40, discount=0.95)
    for count in range(2, numba.config.NUMBA_NUM_THREADS + 1):
        threads(count)
        np.testing.assert_array_equal(learn_many(models, seeds, 40, discount=0.95), alone)
    np.testing.assert_array_equal(learn_many(models[::-1], seeds, 40, discount=0.95)[::-1], alone)
    np.testing.assert_array_equal(learn_many(models[2:3], [4], 40, discount=0.95)[0, 0], alone[2, 4])


def test_calls_from_several_threads_at_once_wait_for_each_other():
    """Where Numba has only its own threading layer, they would end the process otherwise."""
    code = """
from concurrent.futures import ThreadPoolExecutor
import numba
from secret_rl.agents import learn_many
from secret_rl.envs.triggers import TriggersEnv
model = TriggersEnv(size=4, triggers=1, layout_seed=2).tabular()
with ThreadPoolExecutor(4) as pool:
    results = list(pool.map(lambda _: learn_many([model], range(8), 500), range(16)))
print(all((result == results[0]).all() for result in results), numba.threading_layer())
"""
    environment = {**os.environ, "NUMBA_THREADING_LAYER": "workqueue"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "workqueue"]


def test_any_number_of_actions():
    for actions in (1, 2, 6):
        models = [random_model(task, actions=actions) for task in range(3)]
        models.append(models[0]._replace(potential=np.arange(6.0)))
        returns = learn_many(models, [1, 2], 30)
        for m, model in enumerate(models):
            alone = np.empty(30)
            CompiledRun(model, 2, 0.1, 0.1, 0.99).play(alone, np.empty(30, np.int64))
            np.testing.assert_array_equal(returns[m, 1], alone)


def test_credit_may_be_shared_between_models_and_constant_in_time():
    model = shaped_maze(0).tabular()
    rows = len(model.credit)
    column = np.random.default_rng(0).random((rows, 1)).astype(np.float32)
    repeated = model._replace(credit=np.broadcast_to(column, model.credit.shape))
    written_out = model._replace(credit=np.repeat(column, model.max_steps, 1))
    one, other, same = learn_many([repeated, written_out, repeated], [0, 1], 40, discount=0.95)
    np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, learn_many([model], [0, 1], 40, discount=0.95)[0])


def test_what_cannot_be_learned_is_refused():
    model = random_model(0)
    with pytest.raises(ValueError, match="nothing to learn: 0 models and 1 seeds"):
        learn_many([], [0], 5)
    with pytest.raises(ValueError, match="1 models and 0 seeds"):
        learn_many([model], [], 5)
    with pytest.raises(ValueError, match=r"the models have \[3, 4\] actions"):
        learn_many([model, random_model(0, actions=4)], [0], 5)
    with pytest.raises(ValueError, match="model 1: next_states must lie from 0 to 5, got 6"):
        learn_many([model, model._replace(next_states=model.next_states + 1)], [0], 5)
