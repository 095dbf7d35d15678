"""Credit against the truth: worked by hand, right for the oracle, low for those who know nothing."""

import json
from dataclasses import replace

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from tests.evaluation.rows import three_rows

from secret_rl.credit import Attributions, oracle_attributions, uniform_attributions
from secret_rl.evaluation import CreditQuality, credit_quality
from secret_rl.trajectories import Trajectories


def five_steps():
    """An episode of 5 steps after one of 2: a reward of 2 at step 2, one of -1 at step 4, two more unpredicted."""
    return Attributions(
        episode=np.array([1, 1]),
        step=np.array([2, 4]),
        predicted_at=np.array([2, 4]),
        reward=np.array([2.0, -1.0]),
        evidence=np.zeros(2, np.float32),
        weights=np.array([0.5, 0.25, 0.25, 0.0, 0.5, 0.0, 0.5, 0.0], np.float32),
        offsets=np.array([0, 3, 8]),
        rewards_seen=4,
        lengths=np.array([2, 5]),
    )


EVENTS = np.array([True, True, True, False, False, True, False])  # steps 0 and 3 of the second episode


def test_positive_rewards_worked_by_hand():
    quality = credit_quality(five_steps(), EVENTS)
    assert quality.precision == quality.row_precision == pytest.approx(1 / 3)  # 3 credited, step 0 rightly
    assert quality.recall == quality.row_recall == 1.0  # step 3 comes after the reward: not asked for
    assert quality.attention_on_events == 0.5
    assert (quality.rows, quality.coverage, quality.threshold) == (1, 0.5, 0.2)
    assert {d: v for d, v in quality.concentration.items() if v} == {0: 0.5, 1: 0.25, 2: 0.25}
    assert list(quality.concentration) == list(range(-20, 21))


def test_negative_rewards_worked_by_hand():
    quality = credit_quality(five_steps(), EVENTS, rewards="negative")
    assert (quality.precision, quality.recall) == (0.5, 0.5)  # steps 1 and 3 credited, of 0 and 3
    assert quality.attention_on_events == 0.5
    assert {d: v for d, v in quality.concentration.items() if v} == {0: 0.5, 1: 0.5}  # step 1 is 1 after step 0


def test_all_rewards_worked_by_hand():
    quality = credit_quality(five_steps(), EVENTS, rewards="all")
    assert quality.precision == pytest.approx(2 / 5)
    assert quality.recall == pytest.approx(2 / 3)
    assert quality.row_precision == pytest.approx((1 / 3 + 1 / 2) / 2)
    assert quality.row_recall == pytest.approx((1 + 1 / 2) / 2)
    assert quality.rows == 2
    assert {d: v for d, v in quality.concentration.items() if v} == {0: 0.5, 1: 0.375, 2: 0.125}


def test_a_higher_threshold_credits_less():
    quality = credit_quality(five_steps(), EVENTS, 0.3)
    assert (quality.precision, quality.recall, quality.threshold) == (1.0, 1.0, 0.3)
    none = credit_quality(five_steps(), EVENTS, 0.6)
    assert (none.precision, none.recall, none.row_precision) == (0.0, 0.0, 0.0)
    assert none.rows == 1


def test_rewards_without_a_true_event_before_them_are_not_judged():
    events = EVENTS & (np.arange(7) != 2)  # the reward at step 2 has none left
    assert credit_quality(five_steps(), events).rows == 0
    assert credit_quality(five_steps(), events, rewards="all").rows == 1
    assert credit_quality(five_steps(), events, rewards="all").recall == 1.0


def long_episodes(seed, count=6, length=40):
    """One reward at the end of each episode, or of either sign on the way, and up to 4 events early on."""
    rng = np.random.default_rng(seed)
    episodes = []
    for _ in range(count):
        events = np.zeros(length, np.bool_)
        events[rng.choice(length // 2, rng.integers(1, 5), replace=False)] = True
        rewards = np.zeros(length)
        rewards[-1] = 1.0
        rewards[rng.integers(length // 2, length - 1)] = rng.choice([-1.0, 1.0])
        episodes.append(
            {
                "observations": np.zeros(length, int),
                "actions": np.zeros(length, int),
                "rewards": rewards,
                "annotations": {"event": events, "number": rng.normal(size=length)},
            }
        )
    one = spaces.Discrete(1)
    return Trajectories.from_episodes(episodes, observation_space=one, action_space=one)


@pytest.mark.parametrize("rewards", ["positive", "negative", "all"])
@given(st.integers(0, 2**32 - 1))
def test_the_oracle_is_perfect(rewards, seed):
    data = long_episodes(seed)
    oracle = oracle_attributions(data, data.annotations["event"], rewards)
    wanted = {"positive": data.rewards > 0, "negative": data.rewards < 0, "all": data.rewards != 0}[rewards]
    assert len(oracle) == oracle.rewards_seen == wanted.sum()
    quality = credit_quality(oracle, data, rewards=rewards)
    assert quality.rows == len(oracle)
    if not len(oracle):
        return
    assert (quality.precision, quality.recall, quality.row_precision, quality.row_recall) == (1, 1, 1, 1)
    assert (quality.average_precision, quality.strongest, quality.coverage) == (1, 1, 1)
    assert quality.attention_on_events == pytest.approx(1, abs=1e-6)
    assert quality.concentration[0] == pytest.approx(1, abs=1e-6)
    assert sum(quality.concentration.values()) == quality.concentration[0]


@given(st.integers(0, 2**32 - 1))
def test_knowing_nothing_finds_nothing_in_long_episodes(seed):
    data = long_episodes(seed)
    uniform = uniform_attributions(data)
    quality = credit_quality(uniform, data)
    assert (quality.precision, quality.recall) == (0, 0)
    assert 0 < quality.attention_on_events <= 4 / 20 + 1e-6
    assert quality.attention_on_events == pytest.approx(quality.uniform_share, rel=1e-5)
    assert quality.strongest == pytest.approx(quality.uniform_share)
    assert quality.concentration[0] == pytest.approx(quality.attention_on_events)
    for r in range(len(uniform)):
        np.testing.assert_allclose(uniform.row(r), 1 / (uniform.step[r] + 1), rtol=1e-6)


@given(st.integers(0, 2**32 - 1))
def test_references_hand_out_each_reward_whole(seed):
    data = long_episodes(seed)
    for credit in (oracle_attributions(data, data.annotations["event"], "all"), uniform_attributions(data, "all")):
        earned = credit.step_credit()
        for number in range(len(data)):
            steps = slice(int(data.offsets[number]), int(data.offsets[number + 1]))
            assert earned[steps].sum() == pytest.approx(data.returns[number], abs=1e-5)


CAUSES = np.array([-1, -1, -1, -1, -1, -1, 1, 0, 0])  # of steps 3, 4 and 5 of the second; step 4 is not predicted


def test_causes_worked_by_hand():
    quality = credit_quality(three_rows(), CAUSES)
    assert (quality.rows, quality.coverage) == (2, 3 / 4)
    assert quality.attention_on_events == pytest.approx((0.6 + 0.25) / 2)
    assert quality.uniform_share == pytest.approx((1 / 4 + 1 / 5) / 2)
    assert quality.strongest == 0.5  # step 1 of the first row; in the second step 1 has more than step 0
    assert quality.precision == pytest.approx(2 / 5)  # of 0.6 0.3 and 0.25 0.5 0.25
    assert quality.recall == 1.0
    assert quality.average_precision == pytest.approx((1 + 1 / 3) / 2)  # in the second, a tie with step 2
    assert {d: round(v, 6) for d, v in quality.concentration.items() if v} == {-1: 0.05, 0: 0.425, 1: 0.4, 2: 0.125}
    near = credit_quality(three_rows(), CAUSES, 0.4, tolerance=1)
    assert near.attention_on_events == pytest.approx((1.0 + 0.75) / 2)
    assert near.uniform_share == pytest.approx((3 / 4 + 2 / 5) / 2)
    assert (near.strongest, near.precision, near.recall, near.average_precision) == (1, 1, 1, 1)


def test_without_a_cause_there_is_nothing_to_judge():
    quality = credit_quality(three_rows(), np.full(9, -1))
    assert (quality.rows, quality.strongest, quality.precision, quality.recall) == (0, 0, 0, 0)
    assert (quality.average_precision, quality.attention_on_events, sum(quality.concentration.values())) == (0, 0, 0)


def test_one_event_of_several_is_enough_if_any_is_evidence():
    one = replace(
        five_steps(), episode=np.array([1]), step=np.array([4]), predicted_at=np.array([4]), reward=np.array([1.0]),
        weights=np.array([0.9, 0.0, 0.1, 0.0, 0.0], np.float32), offsets=np.array([0, 5]),
    )  # fmt: skip
    seen = np.array([False, False, True, True, True, False, False])  # steps 0 to 2 of the second episode
    every, some = (credit_quality(one, seen, events=events) for events in ("all", "any"))
    assert (every.recall, some.recall, some.row_recall) == (pytest.approx(1 / 3), 1.0, 1.0)
    assert every.average_precision == pytest.approx((1 + 1 + 3 / 5) / 3)
    assert (some.average_precision, some.precision, some.events) == (1.0, 1.0, "any")


def test_rewards_of_zero_are_judged_among_all():
    zero = replace(five_steps(), reward=np.array([0.0, -1.0]))
    assert [credit_quality(zero, EVENTS, rewards=kind).rows for kind in ("positive", "negative", "all")] == [0, 1, 2]


def test_an_oracle_without_events_shares_evenly():
    data = long_episodes(0)
    nothing = oracle_attributions(data, np.zeros(data.steps, np.bool_))
    np.testing.assert_array_equal(nothing.weights, uniform_attributions(data).weights)
    assert credit_quality(nothing, np.zeros(data.steps, np.bool_)).rows == 0


def test_numbers_are_told_as_json_and_in_words():
    quality = credit_quality(five_steps(), EVENTS, rewards="all")
    told = json.loads(json.dumps(quality.to_json()))
    assert (told["precision"], told["rows"], told["concentration"]["1"]) == (0.4, 2, 0.375)
    assert CreditQuality.from_json(told) == quality
    assert str(quality) == (
        "precision 0.400, recall 0.667 at attention > 0.2, average precision 0.725, 50.0% of attention on events "
        "(evenly spread 36.7%); 2 rewards, 50.0% predicted"
    )
    assert "at attention > 0.2 within 2 steps, average" in str(credit_quality(five_steps(), EVENTS, tolerance=2))


def test_the_truth_is_found_or_asked_for_by_name():
    data = long_episodes(1)
    oracle = oracle_attributions(data, data.annotations["event"])
    assert credit_quality(oracle, data) == credit_quality(oracle, data, annotation="event")
    assert credit_quality(oracle, data) == credit_quality(oracle, data.annotations["event"])
    with pytest.raises(ValueError, match="no annotation 'cue': these trajectories hold .'event', 'number'."):
        credit_quality(oracle, data, annotation="cue")
    steps, episodes = data.columns()
    two = Trajectories.from_columns(
        {**steps, "annotations/other": data.rewards > 0}, episodes, data.offsets,
        data.observation_space, data.action_space, {},
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"must be named: .*'event', 'other'.* pass annotation="):
        credit_quality(oracle, two)
    assert credit_quality(oracle, two, annotation="event").precision == 1


def test_causes_may_be_an_annotation():
    data = long_episodes(1)
    causes = np.where(data.rewards > 0, 0, -1)
    steps, episodes = data.columns()
    noted = Trajectories.from_columns(
        {**steps, "annotations/cause": causes}, episodes, data.offsets, data.observation_space, data.action_space, {},
    )  # fmt: skip
    uniform = uniform_attributions(data)
    assert credit_quality(uniform, noted, annotation="cause") == credit_quality(uniform, causes)
    assert credit_quality(uniform, noted) == credit_quality(uniform, data.annotations["event"])


@pytest.mark.parametrize(
    ("truth", "options", "told"),
    [
        (EVENTS[:-1], {}, r"truth of shape \(6,\), but the attributions are of 7 steps"),
        (EVENTS[:, None], {}, r"truth of shape \(7, 1\), but the attributions are of 7 steps"),
        (EVENTS.astype(float), {}, r"float64 values: expected booleans \(events\) or integers \(causes\)"),
        (EVENTS.astype(int), {}, "cause of step 0 is step 1: it must be an earlier one, or -1 .*pass booleans"),
        (np.array([-1, 0, -1, -1, -1, 3, -2]), {}, "cause of step 3 is step 3: it must be an earlier one"),
        (np.array([-1, 0, -1, -1, -1, 2, -2]), {}, "cause of step 4 is step -2: it must be an earlier one"),
        (EVENTS, {"threshold": 1.0}, r"threshold must lie in \[0, 1\), got 1.0"),
        (EVENTS, {"threshold": -0.1}, r"threshold must lie in \[0, 1\), got -0.1"),
        (EVENTS, {"tolerance": -1}, "tolerance must not be negative, got -1"),
        (EVENTS, {"events": "some"}, "events must be 'all' or 'any', got 'some'"),
        (EVENTS, {"rewards": "some"}, "rewards must be one of .*, got 'some'"),
        (EVENTS, {"annotation": "event"}, "annotation='event' names an annotation of trajectories, but the truth is"),
    ],
)
def test_bad_truth_and_choices_are_named(truth, options, told):
    with pytest.raises(ValueError, match=told):
        credit_quality(five_steps(), truth, **options)


@pytest.mark.parametrize("wrong", [-0.5, np.nan])
def test_attention_that_is_none_is_named(wrong):
    broken = five_steps()
    broken.weights[1] = wrong
    with pytest.raises(ValueError, match="attention of row 0 on step 1 is (-0.5|nan)"):
        credit_quality(broken, EVENTS)
