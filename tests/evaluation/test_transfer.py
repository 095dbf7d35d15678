"""Measures of learning: worked by hand, equal to slow loops, and unmoved by what should not matter."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from secret_rl.evaluation import (
    area_under_curve,
    episodes_to_threshold,
    final_performance,
    median_time,
    share_reached,
    smooth,
    target_time,
)

LEVELS = st.sampled_from([-1.0, 0.0, 0.25, 0.5, 1.0])  # exact in binary: no rounding in slow loops
SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 12))


def same_shape(draw_shape):
    return draw_shape.flatmap(lambda s: st.tuples(arrays(np.float64, s, elements=LEVELS), st.integers(1, s[-1])))


RETURNS_AND_WINDOW = same_shape(SHAPES)


def slow_episodes_to_threshold(returns, thresholds, window):
    found = np.full(returns.shape[:2], np.inf)
    for maze, seed in np.ndindex(found.shape):
        for played in range(window, returns.shape[-1] + 1):
            if sum(returns[maze, seed, played - window : played]) / window >= thresholds[maze]:
                found[maze, seed] = played
                break
    return found


@given(RETURNS_AND_WINDOW, LEVELS)
def test_episodes_to_threshold_equal_a_slow_loop(case, threshold):
    returns, window = case
    fast = episodes_to_threshold(returns, threshold, window=window)
    np.testing.assert_array_equal(fast, slow_episodes_to_threshold(returns, [threshold] * len(returns), window))
    each = np.linspace(-1.03, 1.03, len(returns))  # another threshold for each maze
    fast = episodes_to_threshold(returns, each, window=window)
    np.testing.assert_array_equal(fast, slow_episodes_to_threshold(returns, each, window))


@given(RETURNS_AND_WINDOW, LEVELS, st.sampled_from([0.5, 2.0, 64.0]), st.sampled_from([-4.0, 0.5]))
def test_episodes_to_threshold_do_not_depend_on_units(case, threshold, scale, shift):
    returns, window = case
    plain = episodes_to_threshold(returns, threshold, window=window)
    moved = episodes_to_threshold(returns * scale + shift, threshold * scale + shift, window=window)
    np.testing.assert_array_equal(plain, moved)
    of_best = episodes_to_threshold(returns, fraction=0.5, optimal=np.full(len(returns), 1.0), window=window)
    scaled = episodes_to_threshold(returns * scale, fraction=0.5, optimal=scale, window=window)
    np.testing.assert_array_equal(of_best, scaled)
    np.testing.assert_array_equal(of_best, episodes_to_threshold(returns, 0.5, window=window))


@given(RETURNS_AND_WINDOW, LEVELS, LEVELS)
def test_a_higher_threshold_is_never_reached_sooner(case, one, other):
    returns, window = case
    low, high = sorted([one, other])
    sooner, later = (episodes_to_threshold(returns, level, window=window) for level in (low, high))
    assert (sooner <= later).all()
    assert share_reached(sooner) >= share_reached(later)


@given(RETURNS_AND_WINDOW)
def test_smoothing_is_the_mean_of_every_window(case):
    returns, window = case
    smoothed = smooth(returns, window)
    assert smoothed.shape == (*returns.shape[:2], returns.shape[-1] - window + 1)
    for last in range(window, returns.shape[-1] + 1):
        np.testing.assert_allclose(smoothed[..., last - window], returns[..., last - window : last].mean(-1))


@given(
    SHAPES.flatmap(lambda s: st.tuples(*(arrays(np.float64, s, elements=st.floats(-10, 10)) for _ in range(2)))),
    st.floats(-5, 5),
    st.floats(-5, 5),
    st.floats(-5, 5),
)
def test_area_is_linear_and_blind_to_the_order_of_episodes(pair, a, b, shift):
    x, y = pair
    np.testing.assert_allclose(
        area_under_curve(a * x + b * y + shift),
        a * area_under_curve(x) + b * area_under_curve(y) + shift,
        atol=1e-9,
    )
    np.testing.assert_allclose(area_under_curve(x[..., ::-1]), area_under_curve(x), atol=1e-12)
    np.testing.assert_allclose(area_under_curve(x), smooth(x, x.shape[-1])[..., 0], atol=1e-9)
    np.testing.assert_allclose(area_under_curve(x), final_performance(x, 1.0), atol=1e-12)


def test_measures_worked_by_hand():
    returns = np.array([[[0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.5]]])
    assert area_under_curve(returns) == [[0.35]]
    assert final_performance(returns) == [[0.5]]
    assert final_performance(returns, 0.2) == [[0.75]]
    assert final_performance(returns, 0.01) == [[0.5]]  # one episode at least
    assert episodes_to_threshold(returns, 1.0, window=1) == [[3.0]]
    assert episodes_to_threshold(returns, 1.0, window=2) == [[4.0]]
    assert episodes_to_threshold(returns, 1.0, window=3) == [[np.inf]]
    assert episodes_to_threshold(returns, 0.0, window=4) == [[4.0]]  # never before a whole window


def test_rounding_does_not_hide_an_optimal_run():
    best = 0.99 ** np.arange(1, 60)
    returns = np.broadcast_to(best[:, None, None], (59, 1, 120)).astype(np.float32)
    for window in (1, 7, 50):
        reached = episodes_to_threshold(returns, fraction=1.0, optimal=best, window=window)
        np.testing.assert_array_equal(reached, window)
    assert np.isinf(episodes_to_threshold(returns * np.float32(0.9999), fraction=1.0, optimal=best, window=7)).all()


def test_float32_returns_are_summed_in_float64():
    returns = np.full((1, 1, 1_000_000), 0.1, np.float32)
    exact = float(np.float32(0.1))
    assert area_under_curve(returns)[0, 0] == pytest.approx(exact, rel=1e-12)
    assert smooth(returns, 500_000)[0, 0, -1] == pytest.approx(exact, rel=1e-9)


def test_target_time_counts_what_was_collected():
    returns = np.zeros((2, 2, 6))
    returns[0, 0, 2:] = returns[1, 1, 4:] = 1.0
    lengths = np.arange(1, 25).reshape(2, 2, 6)
    time = target_time(returns, 1.0, window=1, lengths=lengths, collected=[100, 200], collected_steps=[1_000, 3_000])
    never = np.inf
    np.testing.assert_array_equal(time.episodes, [[3, never], [never, 5]])
    np.testing.assert_array_equal(time.total_episodes, [[103, never], [never, 205]])
    np.testing.assert_array_equal(time.steps, [[1 + 2 + 3, never], [never, 19 + 20 + 21 + 22 + 23]])
    np.testing.assert_array_equal(time.total_steps, [[1_006, never], [never, 3_105]])


def test_steps_are_told_only_as_far_as_they_are_known():
    returns = np.ones((1, 2, 3))
    lengths = np.full((1, 2, 3), 7)
    plain = target_time(returns, 1.0, window=1, collected=10)
    assert (plain.steps, plain.total_steps) == (None, None)
    known = target_time(returns, 1.0, window=1, collected=10, lengths=lengths)
    assert known.total_steps is None  # the steps collected are not known
    np.testing.assert_array_equal(known.steps, 7)
    np.testing.assert_array_equal(target_time(returns, 1.0, window=1, lengths=lengths).total_steps, 7)


def test_runs_that_never_reach_it_are_counted():
    never = np.inf
    assert share_reached([[3, never], [never, 5]]) == 0.5
    assert median_time([[3, 9], [never, 5]]) == 7
    assert median_time([[3, never], [never, 5]]) is None  # between 5 and never
    assert median_time([[3, never, 5]]) == 5
    assert median_time([[never]]) is None
    assert (share_reached([[never]]), share_reached([[1.0]])) == (0, 1)


@pytest.mark.parametrize(
    ("returns", "message"),
    [
        (np.zeros((3, 4)), r"returns have shape \(3, 4\), expected \(mazes, seeds, episodes\)"),
        (np.zeros((3, 0, 4)), r"returns have shape \(3, 0, 4\), expected .* at least one of each"),
        ([], r"returns have shape \(0,\)"),
        ([[[1.0, 2.0], [1.0]]], "every run must have the same number of episodes"),
        ([[["a"]]], "returns are of type <U1, expected real numbers"),
        (np.ones((1, 1, 2), bool), "returns are of type bool"),
        ([[[0.0, 1.0]], [[2.0, np.nan]]], "returns hold nan at maze 1, seed 0, episode 1: repeat or leave out"),
        ([[[0.0, -np.inf]]], "returns hold -inf at maze 0, seed 0, episode 1"),
    ],
)
@pytest.mark.parametrize(
    "measure",
    [area_under_curve, final_performance, lambda r: smooth(r, 1), lambda r: episodes_to_threshold(r, 1.0, window=1)],
)
def test_bad_returns_are_refused(measure, returns, message):
    with pytest.raises(ValueError, match=message):
        measure(returns)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({}, "a threshold is needed and nobody set it: pass threshold=..., or fraction=... with optimal=..."),
        ({"threshold": 1.0, "fraction": 0.5, "optimal": 1.0}, "both threshold=1.0 and fraction=0.5 are set"),
        ({"fraction": 0.5}, "fraction=0.5 of what. Pass optimal="),
        ({"fraction": 1.5, "optimal": 1.0}, r"fraction must lie in \(0, 1\], got 1.5"),
        ({"fraction": 0.0, "optimal": 1.0}, r"fraction must lie in \(0, 1\], got 0.0"),
        ({"fraction": 0.9, "optimal": [1.0, -2.0]}, "optimal return -2 of maze 1 is not positive"),
        ({"fraction": 0.9, "optimal": [1.0, 0.0]}, "optimal return 0 of maze 1 is not positive"),
        (
            {"fraction": 0.9, "optimal": [1.0] * 3},
            r"optimal has shape \(3,\), expected one number or one for each of 2",
        ),
        ({"threshold": [1.0] * 3}, r"threshold has shape \(3,\)"),
        ({"threshold": np.nan}, "threshold must be finite, got nan"),
        ({"threshold": 1.0, "window": 0}, r"window must lie in \[1, 5\], the number of episodes, got 0"),
        ({"threshold": 1.0, "window": 6}, r"window must lie in \[1, 5\]"),
        ({"threshold": 1.0, "collected": -1}, "collected must be whole numbers of at least 0, got -1"),
        ({"threshold": 1.0, "collected": 0.5}, "collected must be whole numbers of at least 0, got 0.5"),
        ({"threshold": 1.0, "lengths": np.ones((2, 3, 4), int)}, r"lengths have shape \(2, 3, 4\), but the returns"),
        ({"threshold": 1.0, "lengths": np.zeros((2, 3, 5), int)}, "lengths must be whole numbers of at least 1"),
        ({"threshold": 1.0, "lengths": np.ones((2, 3, 5))}, "whole numbers of at least 1, got float64"),
    ],
)
def test_bad_thresholds_and_costs_are_refused(how, message):
    with pytest.raises(ValueError, match=message):
        target_time(np.zeros((2, 3, 5)), **{"window": 1, **how})


def test_bad_shares_and_times_are_refused():
    for share in (0, 1.1, -0.5):
        with pytest.raises(ValueError, match=r"share must lie in \(0, 1\]"):
            final_performance(np.zeros((1, 1, 5)), share)
    for times in ([], [np.nan]):
        with pytest.raises(ValueError, match="at least one is needed, and none may be NaN"):
            median_time(times)
