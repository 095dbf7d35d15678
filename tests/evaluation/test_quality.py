"""Credit against the truth: worked by hand, equal to loops, right for the oracle, low for uniform credit."""

import json
from dataclasses import replace
from itertools import pairwise, permutations

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from secret_rl.credit import Attributions, oracle_attributions, uniform_attributions
from secret_rl.evaluation import CreditQuality, credit_quality
from secret_rl.trajectories import Trajectories

SEEDS = st.integers(0, 2**32 - 1)


def attributions(lengths, episode, step, rows, *, reward=1.0, predicted_at=None, rewards_seen=None):
    """Rows of attention, each up to the step at which its reward was predicted."""
    count = len(rows)
    return Attributions(
        episode=np.array(episode),
        step=np.array(step),
        predicted_at=np.array(step if predicted_at is None else predicted_at),
        reward=np.array(np.broadcast_to(reward, count), np.float64),
        evidence=np.zeros(count, np.float32),
        weights=np.concatenate(rows).astype(np.float32),
        offsets=np.concatenate([[0], np.cumsum([len(row) for row in rows])]),
        rewards_seen=count if rewards_seen is None else rewards_seen,
        lengths=np.array(lengths),
    )


# An episode of 5 steps after one of 2: a reward of 2 at step 2, one of -1 at step 4, two more unpredicted.
TWO_ROWS = attributions(
    [2, 5], [1, 1], [2, 4], [[0.5, 0.25, 0.25], [0.0, 0.5, 0.0, 0.5, 0.0]], reward=[2.0, -1.0], rewards_seen=4
)
EVENTS = np.array([True, True, True, False, False, True, False])  # steps 0 and 3 of the second episode


def concentration(quality):
    return {d: round(v, 6) for d, v in quality.concentration.items() if v}


def test_events_worked_by_hand():
    positive = credit_quality(TWO_ROWS, EVENTS)
    assert positive.precision == pytest.approx(1 / 3)  # 3 credited, step 0 rightly
    assert positive.recall == 1.0  # step 3 comes after the reward and does not count
    assert (positive.rows, positive.coverage, positive.threshold, positive.attention_on_events) == (1, 0.5, 0.2, 0.5)
    assert concentration(positive) == {0: 0.5, 1: 0.25, 2: 0.25}
    assert list(positive.concentration) == list(range(-20, 21))
    negative = credit_quality(TWO_ROWS, EVENTS, rewards="negative")
    assert (negative.precision, negative.recall, negative.attention_on_events) == (0.5, 0.5, 0.5)  # 1 and 3, of 0 and 3
    assert concentration(negative) == {0: 0.5, 1: 0.5}


def some_rows(rng, *, longest=7, ties=False):
    """Rewards of every kind on random attention, some predicted early or late; marked events, and causes."""
    count = int(rng.integers(1, 6))
    lengths = rng.integers(2, longest + 1, count)
    step = rng.integers(1, lengths)
    predicted_at = np.clip(step + rng.integers(-1, 2, count), 0, lengths - 1)
    rows = [rng.integers(0, 3, at + 1) + 1e-3 if ties else rng.random(at + 1) ** 4 for at in predicted_at]
    given = attributions(
        lengths, np.arange(count), step, [row / row.sum() for row in rows],
        reward=rng.choice([-1.0, 0.0, 2.0], count), predicted_at=predicted_at, rewards_seen=count + 2,
    )  # fmt: skip
    causes = np.full(lengths.sum(), -1)
    causes[np.cumsum(lengths) - lengths + step] = rng.integers(-1, step)
    return given, rng.random(lengths.sum()) < 0.3, causes


def worst_average_precision(events, others, any_event):
    """By the textbook, in the worst of all orders in which the scores do not rise."""
    if max(events) < 0:  # no step of the row is near
        return 0.0
    items = [(score, True) for score in events] + [(score, False) for score in others]
    worst = 1.0
    for order in permutations(items):
        if any(a[0] < b[0] for a, b in pairwise(order)):
            continue
        right = [is_event for _, is_event in order]
        precisions = [sum(right[: i + 1]) / (i + 1) for i, is_event in enumerate(right) if is_event]
        worst = min(worst, precisions[0] if any_event else sum(precisions) / len(precisions))
    return worst


def by_hand(given, truth, threshold, tolerance, events, rewards):
    """The measures by loops over rows and events."""
    starts = np.cumsum(given.lengths) - given.lengths
    right = credited = found = wanted = 0
    names = ("average_precision", "strongest", "attention_on_events", "uniform_share")
    rows = []
    for r in range(len(given)):
        reward, first, weights = given.reward[r], starts[r], given.row(r)
        if rewards != "all" and not (reward > 0 if rewards == "positive" else reward < 0):
            continue
        if truth.dtype == np.bool_:
            true = np.flatnonzero(truth[first : first + len(weights)])
        else:
            cause = truth[first + given.step[r]]
            true = np.array([cause] if cause >= 0 else [], int)
        if not len(true):
            continue
        within = np.abs(np.arange(len(weights))[:, None] - true) <= tolerance  # (steps, events)
        near, chosen, top = within.any(1), weights > threshold, weights == weights.max()
        hits = [bool(chosen[within[:, e]].any()) for e in range(len(true))]
        scores = [weights[within[:, e]].max(initial=-1) for e in range(len(true))]
        hits = [any(hits)] if events == "any" else hits
        right, credited = right + (chosen & near).sum(), credited + chosen.sum()
        found, wanted = found + sum(hits), wanted + len(hits)
        rows.append((
            worst_average_precision(scores, weights[~near], events == "any"), (top & near).sum() / top.sum(),
            weights[near].sum(), near.mean(),
        ))  # fmt: skip
    measures = dict(zip(names, np.mean(rows or [[0] * 4], 0), strict=True))
    pooled = {"precision": right / max(credited, 1), "recall": found / max(wanted, 1), "rows": len(rows)}
    return {**measures, **pooled}


@given(
    SEEDS, st.floats(0, 0.9), st.integers(0, 3), st.sampled_from(["all", "any"]),
    st.sampled_from(["positive", "negative", "all"]), st.booleans(), st.booleans(),
)  # fmt: skip
def test_measures_equal_loops_over_steps_and_orders(seed, threshold, tolerance, events, rewards, ties, by_cause):
    rows, marked, causes = some_rows(np.random.default_rng(seed), longest=6, ties=ties)
    truth = causes if by_cause else marked
    threshold = float(np.float32(threshold))  # weights are compared as they are stored
    quality = credit_quality(rows, truth, threshold, tolerance=tolerance, events=events, rewards=rewards)
    for name, value in by_hand(rows, truth, threshold, tolerance, events, rewards).items():
        assert getattr(quality, name) == pytest.approx(value, abs=1e-6), name
    assert (quality.coverage, quality.threshold, quality.events) == (rows.coverage, threshold, events)
    assert sum(quality.concentration.values()) == pytest.approx(float(quality.rows > 0))


def long_episodes(seed, count=6, length=40):
    """One reward at the end of each episode, one of either sign on the way, and up to 4 events early on."""
    rng = np.random.default_rng(seed)
    episodes = []
    for _ in range(count):
        events = np.zeros(length, np.bool_)
        events[rng.choice(length // 2, rng.integers(1, 5), replace=False)] = True
        rewards = np.zeros(length)
        rewards[-1] = 1.0
        rewards[rng.integers(length // 2, length - 1)] = rng.choice([-1.0, 1.0])
        annotations = {"event": events, "cause": np.where(rewards > 0, 0, -1), "number": rng.normal(size=length)}
        nothing = np.zeros(length, int)
        episodes.append({"observations": nothing, "actions": nothing, "rewards": rewards, "annotations": annotations})
    one = spaces.Discrete(1)
    return Trajectories.from_episodes(episodes, observation_space=one, action_space=one)


@given(SEEDS, st.sampled_from(["positive", "negative", "all"]))
def test_the_oracle_is_perfect_and_uniform_credit_is_the_base_rate(seed, rewards):
    data = long_episodes(seed)
    oracle, uniform = oracle_attributions(data, data.annotations["event"], rewards), uniform_attributions(data, rewards)
    wanted = {"positive": data.rewards > 0, "negative": data.rewards < 0, "all": data.rewards != 0}[rewards]
    assert len(oracle) == oracle.rewards_seen == len(uniform) == wanted.sum()
    if not len(oracle):
        return
    quality = credit_quality(oracle, data, rewards=rewards)
    assert (quality.rows, quality.precision, quality.recall) == (len(oracle), 1, 1)
    assert (quality.average_precision, quality.strongest, quality.coverage) == (1, 1, 1)
    assert quality.attention_on_events == pytest.approx(1, abs=1e-6)
    assert quality.concentration[0] == sum(quality.concentration.values()) == pytest.approx(1, abs=1e-6)
    even = credit_quality(uniform, data, rewards=rewards)
    assert (even.precision, even.recall) == (0, 0)
    assert even.attention_on_events == pytest.approx(even.uniform_share, rel=1e-5)
    assert even.strongest == pytest.approx(even.uniform_share)
    for credit in (oracle, uniform):  # each reward is handed out whole
        assert credit.step_credit().sum() == pytest.approx(data.rewards[wanted].sum(), abs=1e-4)


def test_the_truth_is_found_or_chosen_by_name():
    data = long_episodes(1)
    oracle = oracle_attributions(data, data.annotations["event"])
    assert credit_quality(oracle, data) == credit_quality(oracle, data, annotation="event")
    assert credit_quality(oracle, data) == credit_quality(oracle, data.annotations["event"])
    by_cause = credit_quality(oracle, data, annotation="cause")
    assert by_cause == credit_quality(oracle, data.annotations["cause"]) != credit_quality(oracle, data)
    with pytest.raises(ValueError, match="no annotation 'cue': these trajectories hold .'cause', 'event', 'number'."):
        credit_quality(oracle, data, annotation="cue")
    two = replace(data, annotations={**data.annotations, "other": data.rewards > 0}, trusted=True)
    with pytest.raises(ValueError, match=r"must be named: pass annotation=.*'event', 'number', 'other'"):
        credit_quality(oracle, two)


def test_numbers_as_json_and_as_text():
    quality = credit_quality(TWO_ROWS, EVENTS, rewards="all")
    content = json.loads(json.dumps(quality.to_json()))
    assert (content["precision"], content["rows"], content["concentration"]["1"]) == (0.4, 2, 0.375)
    assert CreditQuality.from_json(content) == quality
    assert str(quality) == (
        "precision 0.400, recall 0.667 at attention > 0.2, average precision 0.725, 50.0% of attention on events "
        "(evenly spread 36.7%); 2 rewards, 50.0% predicted"
    )
    assert "nothing to judge" in str(credit_quality(TWO_ROWS, np.zeros_like(EVENTS)))
    assert "at attention > 0.2 within 2 steps, average" in str(credit_quality(TWO_ROWS, EVENTS, tolerance=2))


@pytest.mark.parametrize(
    ("truth", "options", "message"),
    [
        (EVENTS[:-1], {}, r"truth of shape \(6,\), but the attributions are of 7 steps"),
        (EVENTS.astype(float), {}, r"float64 values: expected booleans \(events\) or integers \(causes\)"),
        (EVENTS.astype(int), {}, "cause of step 0 is step 1: it must be an earlier one, or -1 .*pass booleans"),
        (np.array([-1, 0, -1, -1, -1, 2, -2]), {}, "cause of step 4 is step -2: it must be an earlier one"),
        (EVENTS, {"threshold": 1.0}, r"threshold must lie in \[0, 1\), got 1.0"),
        (EVENTS, {"tolerance": -1}, "tolerance must not be negative, got -1"),
        (EVENTS, {"events": "some"}, "events must be 'all' or 'any', got 'some'"),
        (EVENTS, {"rewards": "some"}, "rewards must be one of .*, got 'some'"),
        (EVENTS, {"annotation": "event"}, "annotation='event' names an annotation of trajectories, but the truth is"),
    ],
)
def test_bad_truth_choices_and_attention_are_refused(truth, options, message):
    with pytest.raises(ValueError, match=message):
        credit_quality(TWO_ROWS, truth, **options)
    for wrong in (-0.5, np.nan):
        broken = replace(TWO_ROWS, weights=np.where(np.arange(8) == 1, wrong, TWO_ROWS.weights))
        with pytest.raises(ValueError, match=f"attention of row 0 on step 1 is {wrong}"):
            credit_quality(broken, EVENTS)
