"""The deletion test, with a judge who is right: true credit is faithful, even credit no better than chance."""

from types import SimpleNamespace

import numpy as np
import pytest
from tests.credit.conftest import GOOD_CUE, SIGNS, cue_trajectories

from secret_rl.credit.references import oracle_attributions, uniform_attributions
from secret_rl.evaluation.deletion import deletion_test


class Judge:
    """Expects the reward if, and only if, the cue is in the episode."""

    def __init__(self, verdict="credit", knows=True):
        self.report = SimpleNamespace(verdict=verdict, classes=SIGNS)
        self._knows = knows

    def inspector(self, data):
        def probabilities(episode):
            seen = np.asarray(data[episode].observations) == GOOD_CUE
            paid = (0.9 if seen.any() else 0.1) if self._knows else 0.4
            return np.tile([0.0, 1 - paid, paid], (len(seen), 1))

        return SimpleNamespace(probabilities=probabilities)


@pytest.fixture(scope="module")
def data():
    return cue_trajectories(300, kinds=(1, 0))


def test_true_credit_is_faithful_and_even_credit_is_chance(data):
    truth = np.asarray(data.annotations["cue"], np.bool_)
    true = deletion_test(Judge(), data, oracle_attributions(data, truth))
    even = deletion_test(Judge(), data, uniform_attributions(data))
    assert true > 0.6
    assert abs(even) < 0.15


def test_wrong_credit_is_worse_than_chance(data):
    truth = np.asarray(data.annotations["cue"], np.bool_)
    assert deletion_test(Judge(), data, oracle_attributions(data, ~truth), threshold=0.05) < -0.05


def test_a_judge_who_does_not_know_says_nothing(data):
    credit = uniform_attributions(data)
    assert deletion_test(Judge("not learned"), data, credit) is None
    assert deletion_test(Judge(knows=False), data, credit) is None
    assert deletion_test(Judge(), data, credit[np.zeros(len(credit), np.bool_)]) is None


def test_the_episodes_themselves_stay_as_they_are(data):
    before = np.array(data.observations)
    deletion_test(Judge(), data, uniform_attributions(data))
    np.testing.assert_array_equal(data.observations, before)
