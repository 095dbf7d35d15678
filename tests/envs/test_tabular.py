"""Tasks as arrays: the same as stepping the environment, and errors where arrays do not fit together."""

from itertools import product

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit, TransformReward
from hypothesis import example, given
from hypothesis import strategies as st

import secret_rl  # noqa: F401  registers the environments
from secret_rl.envs.tabular import TabularModel, TabularShaping, best_return, check_task, tabular_of
from secret_rl.envs.triggers import TriggersEnv, TriggersOptions
from secret_rl.shaping import PotentialShaping, TablePotential
from secret_rl.testing.strategies import triggers_options
from secret_rl.views import CropView, ViewObservation

ID = "secret_rl/Triggers-v0"


@given(triggers_options(fixed=True), st.integers(0, 2**32))
@example(TriggersOptions(size=12, triggers=3, prizes=1, layout_seed=5), 0)
@example(TriggersOptions(size=12, triggers=2, prizes=3, window=None, inverted=True, layout_seed=6), 1)
@example(TriggersOptions(size=2, triggers=0, prizes=3, window=7, layout_seed=7), 2)
def test_walking_the_model_is_stepping_the_env(options, seed):
    env = TriggersEnv(**vars(options))
    model = env.tabular()
    assert model.max_steps == options.time_limit
    rng = np.random.default_rng(seed)
    for _ in range(4):
        observation, info = env.reset()
        here, over, steps = model.start, False, 0
        while not over:
            np.testing.assert_array_equal(model.observations[here], observation)
            assert model.states[here] == info["state"]
            action = rng.integers(4)
            observation, reward, terminated, truncated, info = env.step(action)
            steps += 1
            assert model.rewards[here, action] == reward
            assert model.terminated[here, action] == terminated
            assert truncated == (not terminated and steps == model.max_steps)
            here = model.next_states[here, action]
            over = terminated or truncated
        np.testing.assert_array_equal(model.observations[here], observation)
        assert model.states[here] == info["state"]


def test_a_table_needs_one_maze_and_must_fit_in_memory():
    with pytest.raises(ValueError, match="set layout_seed"):
        TriggersEnv().tabular()
    with pytest.raises(OverflowError, match=r"up to 70,368,744,177,664 states .* fewer triggers"):
        TriggersEnv(size=64, triggers=30, prizes=4, layout_seed=0).tabular()


def test_wrappers_that_change_nothing_and_those_that_shape_are_looked_through():
    env = gym.make(ID, layout_seed=1)
    assert isinstance(env, gym.Wrapper)
    model, shaping = tabular_of(env)
    np.testing.assert_array_equal(model.next_states, env.unwrapped.tabular().next_states)
    assert shaping is None
    table = TablePotential(dict.fromkeys(model.states.tolist(), 1.0))
    _, shaping = tabular_of(PotentialShaping(env, table, 0.9, scale=2.0))
    assert (shaping.discount, shaping.scale, shaping.cap) == (0.9, 2.0, np.inf)
    assert (shaping.potential == 1).all() and shaping.pairs.shape == model.next_states.shape
    assert not shaping.credit.any() and shaping.keep_on_truncation and not shaping.once
    for wrapper in (
        lambda e: TimeLimit(e, 5),
        lambda e: TransformReward(e, lambda r: 2 * r),
        RecordEpisodeStatistics,
        lambda e: ViewObservation(e, CropView(1)),
        lambda e: PotentialShaping(TimeLimit(e, 5), table, 0.9),  # what lies under it may change the task, too
        lambda e: PotentialShaping(PotentialShaping(e, table, 0.9), table, 0.9),
        lambda e: PotentialShaping(e, lambda observation, info: 1.0, 0.9),
    ):
        assert tabular_of(wrapper(env)) is None
    assert tabular_of(gym.make("CartPole-v1")) is None
    assert tabular_of(TriggersEnv(size=64, triggers=30, prizes=4, layout_seed=0)) is None  # too many states: step it
    with pytest.raises(ValueError, match="set layout_seed"):
        tabular_of(gym.make(ID))


def small(**changes):
    model = TabularModel.of([[0, 1], [1, 1]], [[0, 1], [0, 0]], [[False, True], [True, True]], start=0, max_steps=3)
    return model._replace(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"next_states": np.zeros(3, np.int32)}, r"next_states must have shape \(states, actions\), got shape \(3,\)"),
        ({"next_states": np.array([[0, 2], [1, 1]])}, "next_states must lie from 0 to 1, got 2"),
        ({"next_states": np.array([[0, -1], [1, 1]])}, "next_states must lie from 0 to 1, got -1"),
        ({"rewards": np.zeros((2, 3))}, r"rewards must have shape \(2, 2\).* got shape \(2, 3\)"),
        ({"rewards": np.array([[0, 1], [np.nan, 0]])}, r"rewards must be finite, got nan at \(1, 0\)"),
        ({"start": 2}, "start must lie from 0 to 1, got 2"),
        ({"max_steps": 0}, "max_steps must be at least 1, got 0"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(changes, message):
    check_task(small())
    with pytest.raises(ValueError, match=message):
        check_task(small(**changes))
    with pytest.raises(ValueError, match=message):
        TabularModel.of(**small(**changes)._asdict())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"potential": np.zeros(3)}, r"potential must have shape \(2,\)"),
        ({"potential": np.array([0, np.inf])}, r"potential must be finite, got inf at \(1,\)"),
        ({"credit": np.zeros((1, 4))}, r"credit must have shape \(rows,\), got shape \(1, 4\)"),
        ({"pairs": np.array([[0, 1], [0, 0]])}, "pairs must lie from 0 to 0, got 1"),
        ({"cap": float("nan")}, "cap must be 0 or more"),
        ({"scale": float("inf")}, "scale must be finite, got inf"),
    ],
)
def test_shapings_that_do_not_fit_are_refused(changes, message):
    shaping = TabularShaping.of(small(), 0.9)
    with pytest.raises(ValueError, match=message):
        check_task(small(), shaping._replace(**changes))
    with pytest.raises(ValueError, match=message):
        TabularShaping.of(small(), 0.9, **changes)


def test_states_are_whole_numbers():
    with pytest.raises(TypeError, match="next_states must be integers, got float64"):
        TabularModel.of([[0.0]], [[0]], [[False]], start=0, max_steps=1)


@given(st.integers(0, 2**32), st.integers(1, 5), st.floats(0.1, 1))
def test_the_best_return_is_that_of_the_best_action_sequence(seed, steps, discount):
    rng = np.random.default_rng(seed)
    model = TabularModel.of(
        rng.integers(0, 4, (4, 2)), rng.normal(size=(4, 2)), rng.random((4, 2)) < 0.2, start=0, max_steps=steps
    )
    best = -np.inf
    for actions in product(range(2), repeat=steps):
        here, gained = 0, 0.0
        for t, action in enumerate(actions):
            gained += discount**t * model.rewards[here, action]
            if model.terminated[here, action]:
                break
            here = model.next_states[here, action]
        best = max(best, gained)
    assert best_return(model, discount) == pytest.approx(best)


def test_the_best_return_of_a_long_episode_is_found_where_values_settle():
    assert best_return(small(max_steps=10**12), 0.9) == 1
