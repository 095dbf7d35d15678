"""Learning curves as data, and measures of their runs: checked, equal to slow loops, the same after saving."""

import csv
import json
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from safetensors import safe_open
from safetensors.numpy import load_file
from tests.sealing import change_arrays

from secret_rl.evaluation import LearningCurves, area_under_curve, final_performance, median_time, share_reached, smooth
from secret_rl.evaluation import episodes_to_threshold as time_to
from secret_rl.files import FileFormatError

SHAPE = (2, 3, 4)
LEVELS = st.sampled_from([-1.0, 0.0, 0.25, 0.5, 1.0])  # exact in binary: no rounding in slow loops
SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 12))
RETURNS_AND_WINDOW = SHAPES.flatmap(lambda s: st.tuples(arrays(np.float64, s, elements=LEVELS), st.integers(1, s[-1])))


def numbers(seed=0, dtype=np.float64):
    return np.random.default_rng(seed).normal(size=SHAPE).astype(dtype)


def everything(dtype=np.float64):
    returns = {"none": numbers(0, dtype), "pending, n=100": numbers(1, dtype)}
    return LearningCurves(returns, optimal=[0.9, 0.8], collected={"pending, n=100": 100})


def assert_same(one, other):
    assert one.names == other.names
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], strict=True)
        np.testing.assert_array_equal(one.collected[name], other.collected[name])
    np.testing.assert_array_equal(one.optimal, other.optimal)


def test_what_was_put_in_comes_out():
    mine, curves = numbers(), everything()
    kept = LearningCurves({"none": mine})
    mine[:] = 7
    np.testing.assert_array_equal(kept["none"], numbers(), "a copy")
    for array in (curves["none"], curves.optimal, curves.collected["none"]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    assert (curves.mazes, curves.seeds, curves.episodes) == SHAPE
    assert list(curves) == ["none", "pending, n=100"] and len(curves) == 2
    np.testing.assert_array_equal(curves["none"], numbers(0))
    np.testing.assert_array_equal(curves.collected["none"], [0, 0])
    np.testing.assert_array_equal(curves.collected["pending, n=100"], [100, 100])
    assert repr(curves) == "LearningCurves of 'none', 'pending, n=100': 2 mazes x 3 seeds x 4 episodes"
    assert LearningCurves({"a": [[[1, 2]]]})["a"].dtype == np.float64
    assert LearningCurves({"a": numbers(dtype=np.float32)})["a"].dtype == np.float32
    with pytest.raises(KeyError, match="no condition 'value': these curves are of 'none', 'pending, n=100'"):
        curves["value"]
    values = numbers()  # runs may be curves of single agents
    tabular = [[SimpleNamespace(returns=run, lengths=run) for run in maze] for maze in values]
    np.testing.assert_array_equal(LearningCurves({"a": tabular})["a"], values)
    tests = np.stack([values, values + 2], -1)  # (mazes, seeds, evaluations, episodes)
    deep = [[SimpleNamespace(returns=run * 9, discounted=run) for run in maze] for maze in tests]
    np.testing.assert_allclose(LearningCurves({"a": deep})["a"], values + 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_round_trip_changes_no_bit(tmp_path, dtype):
    for number, curves in enumerate([everything(dtype), LearningCurves({"only": numbers(2, dtype)})]):
        path = curves.save(tmp_path / "deep" / f"{number}.safetensors")
        assert_same(LearningCurves.load(path), curves)
        assert_same(pickle.loads(pickle.dumps(curves)), curves)  # for other processes
    assert sorted(p.name for p in path.parent.iterdir()) == ["0.safetensors", "1.safetensors"]


def test_other_tools_read_the_arrays_and_the_table(tmp_path):
    curves = everything()
    path = curves.save(tmp_path / "curves.safetensors")
    np.testing.assert_array_equal(load_file(path)["returns"], [numbers(0), numbers(1)])
    with safe_open(path, framework="np") as file:
        assert json.loads(file.metadata()["secret_rl"])["names"] == ["none", "pending, n=100"]
    with curves.to_csv(tmp_path / "curves.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["condition", "maze", "seed", "episode", "return"]
    found = {(r["condition"], int(r["maze"]), int(r["seed"]), int(r["episode"])): float(r["return"]) for r in rows}
    assert found == {(n, *place): curves[n][place] for n in curves for place in np.ndindex(SHAPE)}


def test_other_files_are_refused(tmp_path):
    path = everything().save(tmp_path / "curves.safetensors")
    change_arrays(path, lambda about, arrays: arrays.update(optimal=np.zeros(3)))
    with pytest.raises(FileFormatError, match=r"optimal has shape \(3,\)"):
        LearningCurves.load(path)
    with pytest.raises(FileNotFoundError):
        LearningCurves.load(tmp_path / "nowhere.safetensors")


def slow_episodes_to_threshold(returns, thresholds, window):
    found = np.full(returns.shape[:2], np.inf)
    for maze, seed in np.ndindex(found.shape):
        for played in range(window, returns.shape[-1] + 1):
            if sum(returns[maze, seed, played - window : played]) / window >= thresholds[maze]:
                found[maze, seed] = played
                break
    return found


@given(RETURNS_AND_WINDOW, LEVELS, LEVELS)
def test_episodes_to_threshold_equal_a_slow_loop_and_grow_with_the_threshold(case, one, other):
    returns, window = case
    low, high = sorted([one, other])
    sooner, later = (time_to(returns, level, window=window) for level in (low, high))
    np.testing.assert_array_equal(sooner, slow_episodes_to_threshold(returns, [low] * len(returns), window))
    assert (sooner <= later).all() and share_reached(sooner) >= share_reached(later)
    each = np.linspace(-1.03, 1.03, len(returns))  # another threshold for each maze
    per_maze = time_to(returns, each, window=window)
    np.testing.assert_array_equal(per_maze, slow_episodes_to_threshold(returns, each, window))
    of_best = time_to(returns, fraction=0.5, optimal=np.full(len(returns), 1.0), window=window)
    np.testing.assert_array_equal(of_best, time_to(returns, 0.5, window=window))


@given(SHAPES.flatmap(lambda s: st.tuples(*[arrays(np.float64, s, elements=st.floats(-9, 9))] * 2)), st.floats(-5, 5))
def test_areas_and_smoothing_are_means(pair, a):
    x, y = pair
    np.testing.assert_allclose(area_under_curve(a * x + y), a * area_under_curve(x) + area_under_curve(y), atol=1e-9)
    np.testing.assert_allclose(area_under_curve(x), final_performance(x, 1.0), atol=1e-12)
    for window in range(1, x.shape[-1] + 1):
        expected = np.lib.stride_tricks.sliding_window_view(x, window, -1).mean(-1)
        np.testing.assert_allclose(smooth(x, window), expected, atol=1e-9)


def test_measures_worked_by_hand():
    returns = np.array([[[0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.5]]])
    assert area_under_curve(returns) == [[0.35]]
    assert [final_performance(returns, share)[0, 0] for share in (0.1, 0.2, 0.01)] == [0.5, 0.75, 0.5]
    assert [time_to(returns, 1.0, window=w)[0, 0] for w in (1, 2, 3)] == [3, 4, np.inf]
    assert time_to(returns, 0.0, window=4) == [[4.0]]  # never before a whole window
    never = np.inf
    assert (share_reached([[3, never], [never, 5]]), share_reached([[never]]), share_reached([[1.0]])) == (0.5, 0, 1)
    assert (median_time([[3, 9], [never, 5]]), median_time([[3, never, 5]])) == (7, 5)
    assert median_time([[3, never], [never, 5]]) is None  # between 5 and never


def test_rounding_does_not_hide_an_optimal_run():
    best = 0.99 ** np.arange(1, 60)
    returns = np.broadcast_to(best[:, None, None], (59, 1, 120)).astype(np.float32)
    for window in (1, 7, 50):
        reached = time_to(returns, fraction=1.0, optimal=best, window=window)
        np.testing.assert_array_equal(reached, window)
    assert np.isinf(time_to(returns * np.float32(0.9999), fraction=1.0, optimal=best, window=7)).all()
    many = np.full((1, 1, 1_000_000), 0.1, np.float32)  # summed in float64
    assert area_under_curve(many)[0, 0] == pytest.approx(float(np.float32(0.1)), rel=1e-12)
    assert smooth(many, 500_000)[0, 0, -1] == pytest.approx(float(np.float32(0.1)), rel=1e-9)


def curves_of(**how):
    return LearningCurves(**{"returns": {"a": numbers(), "b": numbers()}, **how})


def reached(window=1, **how):
    return time_to(np.zeros((2, 3, 5)), window=window, **how)


def measured(returns):
    """A measure of an array refuses what curves of it refuse."""
    with pytest.raises(ValueError, match=r"returns (have|hold|are) "):
        area_under_curve(returns)
    LearningCurves({"a": returns})


@pytest.mark.parametrize(
    ("ask", "how", "message"),
    [
        (curves_of, {"returns": {}}, "no condition: pass returns="),
        (curves_of, {"returns": {"a": numbers(), "b": numbers()[:, :2]}}, r"'b' has .*\(2, 2, 4\) but 'a' \(2, 3, 4\)"),
        (curves_of, {"optimal": [1.0] * 3}, r"optimal has shape \(3,\), expected one number or one for each of 2 maz"),
        (curves_of, {"optimal": np.nan}, "optimal must be finite"),
        (curves_of, {"collected": {"c": 1}}, r"collected of \['c'\], but the conditions are \('a', 'b'\)"),
        (curves_of, {"collected": {"a": 0.5}}, "collected of 'a' must be whole numbers of at least 0, got 0.5"),
        (measured, {"returns": np.zeros((3, 4))}, r"of 'a' have shape \(3, 4\), expected \(mazes, seeds, episodes\)"),
        (measured, {"returns": np.zeros((3, 0, 4))}, r"have shape \(3, 0, 4\), expected .* at least one of each"),
        (measured, {"returns": [[[1.0, 2.0], [1.0]]]}, "are no array: every run must have the same number of episodes"),
        (measured, {"returns": [[["a"]]]}, "are of type <U1, expected real numbers"),
        (measured, {"returns": [[[0.0, 1.0]], [[2.0, np.nan]]]}, "hold nan at maze 1, seed 0, episode 1: repeat or "),
        (reached, {}, "a threshold is needed: pass threshold=..., or fraction=... with optimal=..."),
        (reached, {"threshold": 1.0, "fraction": 0.5, "optimal": 1.0}, "both threshold=1.0 and fraction=0.5 are set"),
        (reached, {"fraction": 0.5}, "fraction=0.5 of what. Pass optimal="),
        (reached, {"fraction": 1.5, "optimal": 1.0}, r"fraction must lie in \(0, 1\], got 1.5"),
        (reached, {"fraction": 0.9, "optimal": [1.0, 0.0]}, "optimal return 0 of maze 1 is not positive"),
        (reached, {"threshold": np.nan}, "threshold must be finite, got nan"),
        (reached, {"threshold": 1.0, "window": 0}, r"window must lie in \[1, 5\], the number of episodes, got 0"),
        (final_performance, {"returns": numbers(), "share": 1.1}, r"share must lie in \(0, 1\], got 1.1"),
    ],
)
def test_bad_curves_returns_and_questions_are_refused(ask, how, message):
    with pytest.raises(ValueError, match=message):
        ask(**how)
