"""Estimates and intervals: equal to SciPy's and to slow loops, right as often as they say, and paired."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from secret_rl.evaluation import Bootstrap, Estimate, aggregate, difference, interquartile_mean, mean, ratio, statistics
from secret_rl.evaluation import probability_of_improvement as improvement

SCHEMES = ["both", "mazes", "seeds"]
QUICK = Bootstrap(draws=200)
UNITS = st.tuples(st.integers(2, 6), st.integers(2, 6))
RUNS = UNITS.flatmap(lambda shape: arrays(np.float64, shape, elements=st.floats(-5, 5)))
PAIRS = UNITS.flatmap(lambda s: st.tuples(*(arrays(np.float64, s, elements=st.integers(0, 3)) for _ in range(2))))


def runs(seed, mazes=12, seeds=4, between=1.0, within=0.5, centre=0.0):
    rng = np.random.default_rng(seed)
    return centre + rng.normal(0, between, (mazes, 1)) + rng.normal(0, within, (mazes, seeds))


def width(estimate):
    return estimate.high - estimate.low


def ends(estimate):
    return estimate.value, estimate.low, estimate.high


def all_counts(bootstrap, mazes, seeds):
    return np.concatenate(list(bootstrap.counts(mazes, seeds)))


@given(RUNS, st.sampled_from(SCHEMES), st.integers(0, 1000))
def test_the_estimate_and_every_draw_are_what_scipy_and_a_slow_loop_make_of_them(values, scheme, seed):
    bootstrap = Bootstrap(scheme, draws=5, seed=seed)
    drawn = [np.repeat(values.ravel(), counts.astype(int)) for counts in all_counts(bootstrap, *values.shape)]
    for ours, public, slow in (
        (statistics.means, mean, np.mean),
        (statistics.trimmed_means, interquartile_mean, lambda x: stats.trim_mean(x, 0.25, axis=None)),
    ):
        _, draws = statistics.draw(ours, values[..., None], bootstrap)
        np.testing.assert_allclose(draws[:, 0], [slow(one) for one in drawn], atol=1e-9)
        for part in (values, values[:, :1]):
            assert public(part, QUICK).value == pytest.approx(slow(part), abs=1e-9)


@given(PAIRS)
def test_the_probability_of_improvement_is_that_of_a_slow_loop(pair):
    mine, theirs = pair
    points = sum(1.0 if a > b else 0.5 if a == b else 0.0 for a, b in zip(mine.flat, theirs.flat, strict=True))
    forth, back = improvement(mine, theirs, QUICK), improvement(theirs, mine, QUICK)
    assert forth.value == pytest.approx(points / mine.size)
    assert 0 <= forth.low <= forth.value + 1e-12 and forth.value <= forth.high + 1e-12 <= 1 + 1e-9
    # Turned around, everything is turned around: ties are worth one half to both.
    assert ends(back) == pytest.approx((1 - forth.value, 1 - forth.high, 1 - forth.low))


@given(UNITS, st.integers(0, 1000))
def test_draws_take_what_they_say(units, seed):
    mazes, seeds = units
    both, whole, strata = (
        all_counts(Bootstrap(scheme, draws=50, seed=seed), *units).reshape(50, *units) for scheme in SCHEMES
    )
    assert (whole == whole[..., :1]).all() and (whole[..., 0].sum(1) == mazes).all()
    assert (strata.sum(2) == seeds).all()
    assert (both.sum((1, 2)) == mazes * seeds).all() and (both.sum(2) % seeds == 0).all()
    np.testing.assert_array_equal(both.sum(2), whole.sum(2))  # the same mazes, their seeds drawn too
    assert not (both == both[..., :1]).all()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_seed_alone_decides_the_draws_and_blocks_make_no_difference(scheme, monkeypatch):
    bootstrap = Bootstrap(scheme, draws=101)
    at_once = all_counts(bootstrap, 5, 3)
    assert (at_once != all_counts(Bootstrap(scheme, draws=101, seed=4), 5, 3)).any()
    monkeypatch.setattr(statistics, "_BYTES_AT_A_TIME", 8 * 15 * 7)
    blocks = list(bootstrap.counts(5, 3))
    assert [len(block) for block in blocks] == [7] * 14 + [3]  # which bounds memory
    np.testing.assert_array_equal(np.concatenate(blocks), at_once)


def assert_scipys(ours, data, statistic, **how):
    """An interval is that of SciPy's bootstrap, but for the draws."""
    rng = np.random.default_rng(5)
    found = stats.bootstrap(data, statistic, method="percentile", n_resamples=10_000, rng=rng, batch=1_000, **how)
    low, high = found.confidence_interval
    assert (ours.low, ours.high) == pytest.approx((low, high), abs=0.04 * width(ours))


TRIMMED = lambda x, axis: stats.trim_mean(x, 0.25, axis=axis)  # noqa: E731


@pytest.mark.parametrize(("ours", "theirs"), [(mean, np.mean), (interquartile_mean, TRIMMED)])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_intervals_of_single_values_are_scipys(ours, theirs, confidence):
    """One seed per maze is a plain bootstrap; seeds within mazes are that of several samples."""
    values, several = np.random.default_rng(0).exponential(size=(23, 1)), runs(2, mazes=6, seeds=7)
    for scheme in ("mazes", "both"):
        found = ours(values, Bootstrap(scheme, confidence=confidence))
        assert_scipys(found, (values[:, 0],), theirs, confidence_level=confidence)
    found = ours(several, Bootstrap("seeds", confidence=confidence))
    pooled = lambda *mazes, axis: theirs(np.concatenate(mazes, axis), axis=axis)  # noqa: E731
    assert_scipys(found, tuple(several), pooled, confidence_level=confidence)


@pytest.mark.parametrize(
    ("ours", "statistic"),
    [
        (ratio, lambda x, y, axis: x.mean(axis) / y.mean(axis)),
        (difference, lambda x, y, axis: (x - y).mean(axis)),
        (improvement, lambda x, y, axis: (x > y).mean(axis)),
    ],
)
def test_comparisons_are_scipys_paired_bootstrap(ours, statistic):
    theirs = runs(3, mazes=25, seeds=1, centre=4.0)
    mine = 1.5 * theirs + runs(4, mazes=25, seeds=1, between=0.3)
    found = ours(mine, theirs, Bootstrap("mazes"))
    assert_scipys(found, (mine[:, 0], theirs[:, 0]), statistic, paired=True, vectorized=True)


@pytest.mark.slow
def test_intervals_hold_the_truth_as_often_as_theory_says():
    """At 90 %, percentiles of 30 mazes and 300 draws should hold it 0.88 of the time; Student's t is the control."""
    mazes, seeds, repeats = 30, 3, 600
    rng = np.random.default_rng(0)
    held = dict.fromkeys([*SCHEMES, "own", "iqm", "improvement", "student"], 0)
    for number in range(repeats):
        own = rng.normal(0, 1, (mazes, 1))  # the truth over all mazes is 0
        values = own + rng.normal(0, 1, (mazes, seeds))
        rival = values + rng.normal(0, 1, (mazes, 1)) + rng.normal(0, 1, (mazes, seeds))
        how = {name: Bootstrap(name, draws=300, confidence=0.9, seed=number) for name in SCHEMES}
        for name, estimate, truth in (
            *((scheme, mean(values, how[scheme]), 0) for scheme in SCHEMES),
            ("own", mean(values, how["seeds"]), own.mean()),
            ("iqm", interquartile_mean(values, how["mazes"]), 0),
            ("improvement", improvement(rival, values, how["mazes"]), 0.5),
        ):
            held[name] += estimate.low <= truth <= estimate.high
        of_mazes = values.mean(1)
        held["student"] += abs(of_mazes.mean()) <= stats.t.ppf(0.95, mazes - 1) * stats.sem(of_mazes)
    share = {name: count / repeats for name, count in held.items()}
    assert share["student"] == pytest.approx(0.9, abs=0.05)  # four standard errors
    for name in ("mazes", "iqm", "improvement"):
        assert share[name] == pytest.approx(0.88, abs=0.055), (name, share)
    assert share["mazes"] <= share["both"] <= share["student"] + 0.05  # both: var x 7/6 here
    assert share["own"] == pytest.approx(0.82, abs=0.065)  # 3 seeds: var x 2/3
    assert share["seeds"] < 0.75  # these mazes say nothing of others


def test_pairing_takes_the_differences_between_mazes_out():
    theirs = runs(5, mazes=30, seeds=5, between=10.0, within=0.1, centre=50.0)
    mine = theirs + 1.0 + 0.1 * runs(6, mazes=30, seeds=5)
    for scheme in ("both", "mazes"):
        bootstrap = Bootstrap(scheme)
        unpaired = np.hypot(width(mean(mine, bootstrap)), width(mean(theirs, bootstrap)))
        assert width(difference(mine, theirs, bootstrap)) < unpaired / 20
        of_ratio = unpaired / theirs.mean()
        assert width(ratio(mine, theirs, bootstrap)) < of_ratio / 5
    unrelated = theirs[np.random.default_rng(0).permutation(30)]  # pairs that are none
    assert width(difference(mine, unrelated)) > unpaired / 2


def test_ratios_worked_by_hand():
    tops = np.arange(1.0, 101.0)
    for without, expected in (
        ([], (50, 5, 96)),
        ([20, 40], (50, 3, 98)),  # two draws without a ratio: further out at both ends
        (range(6), (50, -np.inf, np.inf)),
    ):
        bottoms = np.ones(100)
        bottoms[list(without)] = np.linspace(0, -1, len(without))
        unbounded = statistics.ratio_estimate(50, 1, tops, bottoms, 0.9)
        assert ends(unbounded) == expected
    assert str(unbounded) == "50.000 [unbounded]"
    assert unbounded.to_json() == {"value": 50, "low": None, "high": None}
    theirs = np.array([[1.0, 3.0], [2.0, 2.0]])
    assert ratio(3 * theirs, theirs) == Estimate(3, 3, 3) == Estimate.from_json(Estimate(3, 3, 3).to_json())
    assert str(ratio(3 * theirs, theirs)) == "3.000 [3.000, 3.000]"
    assert f"{Estimate(1.26, 1, 2):.1f}" == "1.3 [1.0, 2.0]"
    mine = np.array([[1.0, 1.0], [5.0, 9.0]])
    assert ratio(mine, theirs).value == 2  # of the means, not the mean of ratios
    assert ratio(-mine, theirs).value == -2
    for nothing in (np.zeros_like(mine), -mine):
        undefined = ratio(mine, nothing)
        assert np.isnan(undefined.value) and str(undefined) == "undefined"
        assert undefined.to_json() == {"value": None, "low": None, "high": None}


def test_a_curve_is_its_points_one_by_one():
    returns = np.random.default_rng(0).normal(size=(5, 3, 23)) + np.arange(23) / 5
    bootstrap = Bootstrap(draws=150, seed=2)
    curve = aggregate(returns, window=4, points=None, bootstrap=bootstrap)
    np.testing.assert_array_equal(curve.episodes, np.arange(4, 24))
    alone = [ends(mean(values, bootstrap)) for values in np.moveaxis(statistics.smooth(returns, 4), -1, 0)]
    np.testing.assert_allclose(ends(curve), np.transpose(alone))
    few = aggregate(returns, points=7, bootstrap=QUICK).episodes
    assert (len(few), few[0], few[-1]) == (7, 1, 23) and set(np.diff(few)) <= {3, 4}, "spread over the whole curve"


ONES = np.ones((2, 3))


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: Bootstrap("runs"), "resample must be 'both', 'mazes' or 'seeds', got 'runs'"),
        (lambda: Bootstrap(draws=0), "draws must be at least 1, got 0"),
        (lambda: Bootstrap(confidence=95), r"confidence must lie in \(0, 1\), got 95: 0.95 for 95 %"),
        (lambda: mean(ONES[:1]), "1 maze cannot say how mazes differ: run more, or pass .*'seeds'"),
        (lambda: mean(ONES[:, :1], Bootstrap("seeds")), "1 seed per maze cannot say how seeds differ"),
        (lambda: mean(np.zeros(4)), r"values have shape \(4,\), expected \(mazes, seeds\)"),
        (lambda: mean([[1.0, 2.0], [np.inf, 1.0]]), "hold inf at maze 1, seed 0.* use share_reached and median_time"),
        (lambda: ratio(ONES, [[1.0, np.nan]]), "the baseline's values hold nan at maze 0, seed 1"),
        (lambda: ratio(ONES, ONES.T), r"\(2, 3\), the baseline's of \(3, 2\): pairs need the same runs"),
        (lambda: aggregate(ONES[None], points=1), "points must be at least 2, got 1"),
        (lambda: aggregate(ONES[None] * np.nan), "returns hold nan at maze 0, seed 0, episode 0"),
    ],
)
def test_bad_options_and_values_are_refused(ask, message):
    with pytest.raises(ValueError, match=message):
        ask()
