"""Attention over the places of a map."""

import numpy as np
import pytest
from tests.evaluation.rows import three_rows

from secret_rl.evaluation import attention_by_place


def test_attention_by_place_is_the_mean_over_visits_of_the_rows_chosen():
    places = np.array([[0, 0], [0, 1], [1, 1], [0, 0], [0, 0], [1, 1], [0, 1], [0, 1], [0, 1]])
    heat = attention_by_place(three_rows(), places, (2, 3))
    assert heat[0, 0] == pytest.approx((0.5 + 0.1 + 0.6 + 0.25 + 0.5) / 5)
    assert heat[0, 1] == pytest.approx((0.3 + 0.0 + 0.0 + 0.0) / 4)
    assert heat[1, 1] == pytest.approx((0.2 + 0.3 + 0.25) / 3)
    assert np.isnan(heat[1, 0]) and np.isnan(heat[:, 2]).all()
    one = attention_by_place(three_rows(), places, (2, 3), rows=np.array([True, False, False]))
    assert (one[0, 0], one[0, 1], one[1, 1]) == pytest.approx((0.5, 0.3, 0.2))


def test_places_outside_the_grid_and_of_other_trajectories_are_named():
    places = np.zeros((9, 2), int)
    with pytest.raises(ValueError, match=r"shape \(8, 2\).*9 steps"):
        attention_by_place(three_rows(), places[1:], (2, 2))
    places[3] = 2, 0
    with pytest.raises(ValueError, match="do not lie in a grid of shape"):
        attention_by_place(three_rows(), places, (2, 2))
    with pytest.raises(ValueError, match="rows of shape"):
        attention_by_place(three_rows(), places, (3, 2), rows=np.array([True]))
