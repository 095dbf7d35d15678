"""Classes of rewards, gains, verdicts and reports."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secret_rl.credit import RewardClasses
from secret_rl.credit.report import Confusion, FitReport, Gain, judge

numbers = st.floats(-1e6, 1e6, allow_subnormal=False)
some_rewards = st.one_of(
    st.lists(st.sampled_from([0.0, 1.0, -1.0, 0.5, -0.01]), min_size=1, max_size=50),
    st.lists(numbers, min_size=1, max_size=60),
    st.lists(st.sampled_from([0.0, 0.3, 0.1 + 0.2, 1.0, np.nextafter(1.0, 2.0)]), min_size=1, max_size=9),
)


@given(some_rewards, st.booleans())
def test_every_reward_falls_into_the_class_whose_range_holds_it(rewards, timed):
    rewards = np.array(rewards)
    found = RewardClasses.of(rewards, np.arange(len(rewards)) if timed else None)
    index = found.index(rewards)
    assert set(index) == set(range(len(found))), "no class is empty"
    ranges = [(-np.inf, *found.edges)[c] for c in index], [(*found.edges, np.inf)[c] for c in index]
    assert ((ranges[0] <= rewards) & (rewards < ranges[1])).all()
    np.testing.assert_array_equal(found.signs[index], np.sign(rewards), "signs are never mixed")
    assert (np.diff(found.edges) > 0).all() and (np.diff(found.values) > 0).all()
    for c in range(len(found)):
        held = rewards[index == c]
        assert held.min() <= found.values[c] <= held.max()
        assert found.values[c] == pytest.approx(held.mean())
    assert (np.diff(index[np.argsort(rewards, kind="stable")]) >= 0).all(), "a larger reward is of no lower class"
    assert RewardClasses.from_json(json.loads(json.dumps(found.to_json()))) == found


@given(st.sets(numbers, min_size=1, max_size=8), st.data())
def test_few_distinct_rewards_are_classes_of_their_own(distinct, data):
    repeats = data.draw(st.lists(st.integers(1, 9), min_size=len(distinct), max_size=len(distinct)))
    found = RewardClasses.of(np.repeat(sorted(distinct), repeats))
    assert found.values == tuple(sorted(distinct)), "to the last bit"


@given(st.integers(100, 2000), st.integers(0, 2**32 - 1))
def test_many_distinct_rewards_are_binned_with_about_equal_counts(count, seed):
    rewards = np.random.default_rng(seed).normal(size=count)
    found = RewardClasses.of(rewards)
    for sign in (-1, 1):
        counts = np.bincount(found.index(rewards[np.sign(rewards) == sign]))[np.flatnonzero(found.signs == sign)]
        assert len(counts) == 4
        assert counts.max() - counts.min() <= 4


def test_common_rewards_stay_alone_among_many():
    rng = np.random.default_rng(0)
    rewards = np.concatenate([np.zeros(800), np.full(50, 0.5), np.full(50, -1.0), rng.uniform(0, 1, 100)])
    found = RewardClasses.of(rewards)
    assert {-1.0, 0.0, 0.5} < set(found.values)
    for value in (-1.0, 0.0, 0.5):
        assert set(rewards[found.index(rewards) == found.values.index(value)]) == {value}
    assert 4 <= (found.signs == 1).sum() - 1 <= 6, "four bins, or one more on either side of what stands alone"


def late_successes(noise=0.0, count=200, length=50):
    """Rewards and their steps: a success pays the more the sooner it comes; failures cost 1."""
    rng = np.random.default_rng(0)
    times = rng.integers(1, length, count)
    rewards = np.where(rng.random(count) < 0.5, 1 - 0.9 * times / length, -1.0)
    return rewards + noise * rng.normal(size=count) * (rewards > 0), times


def test_a_success_that_pays_less_with_time_is_one_class():
    rewards, times = late_successes()
    found = RewardClasses.of(rewards, times)
    assert found.signs.tolist() == [-1, 1]
    assert found.values[1] == pytest.approx(rewards[rewards > 0].mean())
    assert (found.signs[found.index(rewards)] == np.sign(rewards)).all()
    assert len(RewardClasses.of(rewards)) > 2, "without the steps nobody can tell"
    assert len(RewardClasses.of(*late_successes(noise=0.2))) > 2, "here something else decides, too"
    assert len(RewardClasses.of(-rewards, times)) == 2, "costs that grow, as well"


def test_rewards_that_the_data_did_not_hold_are_in_the_nearest_class():
    found = RewardClasses.of(np.array([-1.0, 0.0, 1.0, 3.0]))
    assert found.index(np.array([-9.0, -0.6, -0.4, 0.4, 0.6, 1.9, 2.1, 99.0])).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert found.names == ("-1", "0", "+1", "+3") and found.signs.tolist() == [-1, 0, 1, 1] and len(found) == 4
    assert RewardClasses.of(np.array([2.0, 2.0])).index(np.array([-1.0, 5.0])).tolist() == [0, 0]


def test_bins_next_to_each_other_are_as_good():
    rng = np.random.default_rng(0)
    rewards = np.concatenate([rng.uniform(-1, 0, 400), rng.uniform(0, 2, 400), np.full(100, 5.0), np.zeros(100)])
    found = RewardClasses.of(rewards)
    assert found.binned == (True,) * 4 + (False,) + (True,) * 4 + (False,)
    right = found.right(np.eye(len(found)))
    np.testing.assert_array_equal(right, right.T)
    assert [np.flatnonzero(row).tolist() for row in right[[0, 1, 3, 4, 5, 8, 9]]] == [
        [0, 1], [0, 1, 2], [2, 3], [4], [5, 6], [7, 8], [9],
    ], "of one sign, and bins only"  # fmt: skip
    few = RewardClasses.of(np.array([-1.0, -0.5, 0.0, 1.0]))
    assert not few.binned
    np.testing.assert_array_equal(few.right(right[:, :4]), right[:, :4])


SURE, UNSURE, NONE = Gain(0.4, 0.05), Gain(0.4, 0.2), Gain(0.02, 0.05)
MORE, LESS = Gain(0.9, 0.05), Gain(0.1, 0.01)
OPEN, DECIDED = np.array([0.5, 1.0]), np.array([0.95, 1.0])


@pytest.mark.parametrize(
    ("gain", "pooled", "decided", "few_pairs", "verdict"),
    [
        (SURE, None, OPEN, True, "credit"),
        (SURE, UNSURE, OPEN, True, "credit"),
        (SURE, LESS, OPEN, False, "credit"),
        (SURE, MORE, OPEN, True, "not learned"),
        (UNSURE, SURE, OPEN, True, "not learned"),
        (UNSURE, SURE, DECIDED, True, "not learned"),
        (UNSURE, NONE, OPEN, True, "not learned"),
        (NONE, UNSURE, OPEN, True, "not learned"),
        (NONE, NONE, OPEN, True, "past not needed"),
        (NONE, NONE, OPEN, False, "not learned"),
        (UNSURE, UNSURE, DECIDED, True, "past not needed"),
        (UNSURE, UNSURE, DECIDED, False, "past not needed"),
        (Gain(0.009, 0.0), None, DECIDED, True, "past not needed"),
    ],
)
def test_the_verdict(gain, pooled, decided, few_pairs, verdict):
    assert judge(gain, pooled, decided, few_pairs) == verdict


@given(st.lists(st.integers(1, 6), min_size=2, max_size=30), st.integers(0, 2**32 - 1))
def test_a_gain_is_the_share_of_the_open_loss_that_goes(lengths, seed):
    rng = np.random.default_rng(seed)
    lengths = np.array(lengths)
    steps = lengths.sum()
    guess, said = (np.log(rng.uniform(0.05, 0.95, steps)).astype(np.float32) for _ in range(2))
    weights = rng.random(steps).astype(np.float32)
    found = Gain.of(said, guess, weights, lengths)
    before, after = -(weights * guess).sum(), -(weights * said).sum()
    assert found.share == pytest.approx(1 - after / before, rel=1e-3, abs=1e-4)
    assert Gain.of(guess, guess, weights, lengths) == Gain(0.0, 0.0)
    assert Gain.of(np.zeros_like(guess), guess, weights, lengths).share == pytest.approx(1)
    assert Gain.of(said, guess, np.zeros_like(weights), lengths) == Gain(0.0, 0.0)


def test_the_error_of_a_gain_is_that_of_a_mean_over_episodes():
    rng = np.random.default_rng(0)

    def gain():
        said = np.log(np.repeat(rng.uniform(0.2, 1, 100), 3)).astype(np.float32)  # the steps of an episode go together
        return Gain.of(said, np.full(300, np.log(0.5), np.float32), np.ones(300, np.float32), np.full(100, 3))

    many = [gain() for _ in range(300)]
    assert np.std([g.share for g in many]) == pytest.approx(np.mean([g.error for g in many]), rel=0.15)


REPORT = FitReport(
    classes=RewardClasses((0.0, 1.0), (0.5,)),
    class_counts=(90, 10),
    verdict="credit",
    gain=Gain(0.8, 0.1),
    pooled_gain=None,
    decided=(1.0, 0.5),
    evidence=(0.0, 2.5),
    uncertain=12.5,
    calibration_error=0.01,
    distinct_steps=True,
    validation=Confusion(np.array([[9, 0], [1, 4]])),
    steps=7,
    seconds=1.5,
    curve=({"step": 7, "loss": float("nan")},),
)


def test_a_report_comes_back_from_json():
    again = FitReport.from_json(REPORT.to_json())
    assert again.to_json() == REPORT.to_json() and str(again) == str(REPORT)
    assert again.curve == ({"step": 7, "loss": None},)
    assert str(REPORT).splitlines()[0].split(maxsplit=2)[:2] == ["verdict", "credit:"]
    said = ("90 of 0, 10 of +1", "leaves 12 of them open", "removes 80.0%", "hardly any two are alike", "pos 0.800")
    assert all(words in str(REPORT) for words in (*said, "7 updates"))


def test_a_report_names_outcomes_without_evidence():
    assert not REPORT.inferred, "the present decides zeros"
    either = replace(REPORT, decided=(0.5, 0.5))
    assert either.inferred == ("0",) and "none for 0:" in str(either)
    assert "none for" not in str(replace(either, verdict="not learned")), "there is no credit at all"
    assert replace(either, evidence=(0.2, 2.5)).inferred == () == replace(either, evidence=()).inferred


def test_accuracy_is_the_mean_over_the_classes_that_occur():
    confusion = Confusion(np.array([[0, 0, 0], [1, 8, 1], [3, 0, 1]]))
    assert confusion.present.tolist() == [False, True, True]
    assert np.isnan(confusion.accuracy[0])
    assert confusion.accuracy[1:].tolist() == [0.8, 0.25]
    assert confusion.balanced_accuracy == pytest.approx(0.525)
    assert confusion.to_json()["accuracy"] == [None, 0.8, 0.25]
    np.testing.assert_array_equal(Confusion.from_json(confusion.to_json()).counts, confusion.counts)
