"""Attention against the step that earned each reward: worked by hand, right for those who know, low for others."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secret_rl.credit import Attributions
from secret_rl.evaluation import attention_by_place, cause_quality


def two_rows():
    """An episode of 3 steps, then one of 6: rewards at step 2 of the first and at steps 3 and 5 of the second."""
    return Attributions(
        episode=np.array([0, 1, 1]),
        step=np.array([2, 3, 5]),
        predicted_at=np.array([2, 3, 4]),
        reward=np.array([1.0, 1.0, 1.0]),
        weights=np.array([0.5, 0.3, 0.2, 0.1, 0.6, 0.3, 0.0, 0.25, 0.5, 0.25, 0.0, 0.0], np.float32),
        offsets=np.array([0, 3, 7, 12]),
        rewards_seen=4,
        lengths=np.array([3, 6]),
    )


CAUSES = np.array([-1, -1, -1, -1, -1, -1, 1, 0, 0])  # of steps 3, 4 and 5 of the second; step 4 is not predicted


def test_worked_by_hand():
    quality = cause_quality(two_rows(), CAUSES, tolerance=0)
    assert quality.rows == 2 and quality.predicted == pytest.approx(2 / 3)
    assert quality.share == pytest.approx((0.6 + 0.25) / 2)
    assert quality.uniform_share == pytest.approx((1 / 4 + 1 / 5) / 2)
    assert quality.strongest == 0.5  # step 1 of the first row; in the second step 1 has more than step 0
    assert quality.precision == pytest.approx(2 / 5)  # of 0.6 0.3 and 0.25 0.5 0.25
    assert quality.recall == 1.0
    assert {d: round(v, 6) for d, v in quality.concentration.items() if v} == {-1: 0.05, 0: 0.425, 1: 0.4, 2: 0.125}
    assert json.loads(json.dumps(quality.to_json()))["rows"] == 2
    assert "within 0 steps" in str(quality)


def test_steps_beside_the_cause_count_within_the_tolerance():
    quality = cause_quality(two_rows(), CAUSES, tolerance=1, threshold=0.4)
    assert quality.share == pytest.approx((1.0 + 0.75) / 2)
    assert quality.uniform_share == pytest.approx((3 / 4 + 2 / 5) / 2)
    assert (quality.strongest, quality.precision, quality.recall) == (1.0, 1.0, 1.0)


def test_without_a_cause_there_is_nothing_to_judge():
    quality = cause_quality(two_rows(), np.full(9, -1))
    assert (quality.rows, quality.predicted, quality.share, quality.precision, quality.recall) == (0, 0, 0, 0, 0)


@given(st.integers(0, 2**32 - 1), st.integers(0, 6))
def test_all_attention_on_the_cause_is_perfect_and_a_uniform_row_is_what_it_says(seed, tolerance):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 30, 5)
    step = np.array([rng.integers(1, length) for length in lengths])
    cause = np.array([rng.integers(0, at) for at in step])
    starts = np.concatenate([[0], np.cumsum(lengths)])
    causes = np.full(starts[-1], -1)
    causes[starts[:-1] + step] = cause
    sizes = step + 1

    def judged(weights):
        rows = Attributions(
            np.arange(5), step, step, np.ones(5), np.concatenate(weights).astype(np.float32),
            np.concatenate([[0], np.cumsum(sizes)]), 5, lengths,
        )  # fmt: skip
        return cause_quality(rows, causes, tolerance=tolerance)

    perfect = judged([np.eye(size)[at] for size, at in zip(sizes, cause, strict=True)])
    assert (perfect.share, perfect.strongest, perfect.precision, perfect.recall, perfect.predicted) == (1, 1, 1, 1, 1)
    uniform = judged([np.full(size, 1 / size) for size in sizes])
    assert uniform.share == pytest.approx(uniform.uniform_share) == pytest.approx(perfect.uniform_share)


@pytest.mark.parametrize(
    ("causes", "options", "told"),
    [
        (CAUSES[1:], {}, r"shape \(8,\).*9 steps"),
        (np.where(CAUSES == 1, 3, CAUSES), {}, "cause of step 3 is step 3: it must be an earlier one"),
        (CAUSES, {"threshold": 1.0}, "threshold must lie in"),
        (CAUSES, {"tolerance": -1}, "tolerance must not be negative, got -1"),
    ],
)
def test_bad_input_is_named(causes, options, told):
    with pytest.raises(ValueError, match=told):
        cause_quality(two_rows(), causes, **options)


def test_attention_by_place_is_the_mean_over_visits_of_the_rows_chosen():
    places = np.array([[0, 0], [0, 1], [1, 1], [0, 0], [0, 0], [1, 1], [0, 1], [0, 1], [0, 1]])
    heat = attention_by_place(two_rows(), places, (2, 3))
    assert heat[0, 0] == pytest.approx((0.5 + 0.1 + 0.6 + 0.25 + 0.5) / 5)
    assert heat[0, 1] == pytest.approx((0.3 + 0.0 + 0.0 + 0.0) / 4)
    assert heat[1, 1] == pytest.approx((0.2 + 0.3 + 0.25) / 3)
    assert np.isnan(heat[1, 0]) and np.isnan(heat[:, 2]).all()
    one = attention_by_place(two_rows(), places, (2, 3), rows=np.array([True, False, False]))
    assert (one[0, 0], one[0, 1], one[1, 1]) == pytest.approx((0.5, 0.3, 0.2))


def test_places_outside_the_grid_and_of_other_trajectories_are_named():
    places = np.zeros((9, 2), int)
    with pytest.raises(ValueError, match=r"shape \(8, 2\).*9 steps"):
        attention_by_place(two_rows(), places[1:], (2, 2))
    places[3] = 2, 0
    with pytest.raises(ValueError, match="do not lie in a grid of shape"):
        attention_by_place(two_rows(), places, (2, 2))
    with pytest.raises(ValueError, match="rows of shape"):
        attention_by_place(two_rows(), places, (3, 2), rows=np.array([True]))
