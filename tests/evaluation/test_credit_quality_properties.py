"""Credit against the truth on random rows: equal to loops over steps and orders, and as its words promise."""

import sys
from dataclasses import replace
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secret_rl.credit import Attributions
from secret_rl.evaluation import credit_quality


def some_rows(rng, *, longest=7, ties=False):
    """Rewards of every kind on random attention, some predicted early or late; booleans that mark events."""
    count = int(rng.integers(1, 6))
    lengths = rng.integers(2, longest + 1, count)
    step = rng.integers(1, lengths)
    predicted_at = np.clip(step + rng.integers(-1, 2, count), 0, lengths - 1)
    rows = [rng.integers(0, 3, at + 1) + 1e-3 if ties else rng.random(at + 1) ** 4 for at in predicted_at]
    weights = np.concatenate([row / row.sum() for row in rows]).astype(np.float32)
    attributions = Attributions(
        np.arange(count), step, predicted_at, rng.choice([-1.0, 0.0, 2.0], count),
        np.zeros(count, np.float32), weights,
        np.concatenate([[0], np.cumsum(predicted_at + 1)]), count + 2, lengths,
    )  # fmt: skip
    return attributions, rng.random(lengths.sum()) < 0.3


def some_causes(rng, attributions):
    """For the step of each row an earlier step, or -1."""
    starts = np.cumsum(attributions.lengths) - attributions.lengths
    causes = np.full(attributions.lengths.sum(), -1)
    causes[starts + attributions.step] = rng.integers(-1, attributions.step)
    return causes


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


def by_hand(attributions, truth, threshold, tolerance, events, rewards):
    """The measures by loops over rows and steps."""
    starts = np.cumsum(attributions.lengths) - attributions.lengths
    right = credited = found = wanted = 0
    rows = []
    for r in range(len(attributions)):
        reward, first, weights = attributions.reward[r], starts[r], attributions.row(r)
        if rewards != "all" and not (reward > 0 if rewards == "positive" else reward < 0):
            continue
        if truth.dtype == np.bool_:
            true = np.flatnonzero(truth[first : first + len(weights)])
        else:
            cause = truth[first + attributions.step[r]]
            true = np.array([cause] if cause >= 0 else [], int)
        if not len(true):
            continue
        distance = np.abs(np.arange(len(weights))[:, None] - true)  # (steps, events)
        near = (distance <= tolerance).any(1)
        chosen = weights > threshold
        hits = [bool(chosen[distance[:, e] <= tolerance].any()) for e in range(len(true))]
        scores = [weights[distance[:, e] <= tolerance].max(initial=-1) for e in range(len(true))]
        top = weights == weights.max()
        if events == "any":
            hits = [any(hits)]
        right, credited = right + (chosen & near).sum(), credited + chosen.sum()
        found, wanted = found + sum(hits), wanted + len(hits)
        rows.append(
            {
                "average_precision": worst_average_precision(scores, weights[~near], events == "any"),
                "strongest": (top & near).sum() / top.sum(),
                "row_precision": (chosen & near).sum() / max(chosen.sum(), 1),
                "row_recall": np.mean(hits),
                "attention_on_events": weights[near].sum(),
                "uniform_share": near.mean(),
            }
        )  # fmt: skip
    measures = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]} if rows else {}
    pooled = {"precision": right / max(credited, 1), "recall": found / max(wanted, 1), "rows": len(rows)}
    return {**measures, **pooled}


@given(
    st.integers(0, 2**32 - 1), st.floats(0, 0.9), st.integers(0, 3), st.sampled_from(["all", "any"]),
    st.sampled_from(["positive", "negative", "all"]), st.booleans(), st.booleans(),
)  # fmt: skip
def test_measures_equal_loops_over_steps_and_orders(seed, threshold, tolerance, events, rewards, ties, causes):
    rng = np.random.default_rng(seed)
    attributions, truth = some_rows(rng, longest=6, ties=ties)
    if causes:
        truth = some_causes(rng, attributions)
    threshold = float(np.float32(threshold))  # weights are compared as they are stored
    quality = credit_quality(attributions, truth, threshold, tolerance=tolerance, events=events, rewards=rewards)
    for name, value in by_hand(attributions, truth, threshold, tolerance, events, rewards).items():
        assert getattr(quality, name) == pytest.approx(value, abs=1e-6), name
    assert quality.coverage == attributions.coverage
    assert sum(quality.concentration.values()) == pytest.approx(float(quality.rows > 0))


@given(st.integers(0, 2**32 - 1), st.sampled_from(["all", "any"]), st.booleans())
def test_a_larger_tolerance_never_finds_less(seed, events, ties):
    rng = np.random.default_rng(seed)
    attributions, marked = some_rows(rng, longest=30, ties=ties)
    for truth in (marked, some_causes(rng, attributions)):
        found = [
            credit_quality(attributions, truth, tolerance=t, events=events, rewards="all") for t in (0, 1, 2, 5, 50)
        ]
        for name in ("precision", "recall", "average_precision", "strongest", "attention_on_events", "uniform_share"):
            values = [getattr(quality, name) for quality in found]
            assert all(later >= earlier - 1e-9 for earlier, later in pairwise(values)), name


@given(st.integers(0, 2**32 - 1), st.integers(0, 4))
def test_causes_and_marked_steps_agree_where_each_row_has_one_event(seed, tolerance):
    rng = np.random.default_rng(seed)
    attributions, _ = some_rows(rng, longest=20)
    attributions = replace(attributions, reward=np.ones(len(attributions)), predicted_at=attributions.step)
    sizes = attributions.step + 1
    weights = [rng.dirichlet(np.full(size, 0.3)) for size in sizes]
    attributions = replace(
        attributions,
        weights=np.concatenate(weights).astype(np.float32),
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
        rewards_seen=len(attributions),
    )
    causes = some_causes(rng, attributions)
    starts = np.repeat(np.cumsum(attributions.lengths) - attributions.lengths, attributions.lengths)
    marked = np.zeros(len(causes), np.bool_)
    marked[(starts + causes)[causes >= 0]] = True
    by_cause, by_event = (credit_quality(attributions, truth, tolerance=tolerance) for truth in (causes, marked))
    assert by_cause.rows == marked.sum()
    assert by_cause == by_event


@given(st.integers(0, 2**32 - 1), st.integers(0, 6))
def test_attention_on_one_step_near_the_cause_is_perfect_and_an_even_row_is_the_base_rate(seed, tolerance):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 30, 5)
    step = rng.integers(1, lengths)
    cause = rng.integers(0, step)
    causes = np.full(lengths.sum(), -1)
    causes[np.cumsum(lengths) - lengths + step] = cause
    sizes = step + 1

    def judged(weights):
        rows = Attributions(
            np.arange(5), step, step, np.ones(5), np.zeros(5, np.float32), np.concatenate(weights).astype(np.float32),
            np.concatenate([[0], np.cumsum(sizes)]), 5, lengths,
        )  # fmt: skip
        return credit_quality(rows, causes, tolerance=tolerance)

    beside = np.clip(cause + rng.integers(-tolerance, tolerance + 1, 5), 0, step)
    perfect = judged([np.eye(size)[at] for size, at in zip(sizes, beside, strict=True)])
    assert (perfect.precision, perfect.recall, perfect.average_precision, perfect.strongest) == (1, 1, 1, 1)
    assert (perfect.attention_on_events, perfect.coverage) == (1, 1)
    even = judged([np.full(size, 1 / size) for size in sizes])
    assert even.attention_on_events == pytest.approx(even.uniform_share) == pytest.approx(perfect.uniform_share)
    assert even.strongest == pytest.approx(even.uniform_share)
    if tolerance == 0:
        assert even.average_precision == pytest.approx(even.uniform_share)


def test_many_rows_are_judged_in_parts(monkeypatch):
    attributions, marked = some_rows(np.random.default_rng(3), longest=30)
    whole = credit_quality(attributions, marked, rewards="all")
    monkeypatch.setattr(sys.modules[credit_quality.__module__], "_WEIGHTS_AT_A_TIME", 20)
    parts = credit_quality(attributions, marked, rewards="all")
    assert parts.rows == whole.rows > 1
    for name, value in parts.to_json().items():
        assert value == (pytest.approx(whole.to_json()[name])), name
