"""Learning curves are checked when they are made."""

import numpy as np
import pytest

from secret_rl.agents import LearningCurve


def test_what_is_no_curve_is_refused():
    assert len(LearningCurve(np.zeros(3), np.zeros(3, int), 0, 0.1, 0.1, 0.99)) == 3
    with pytest.raises(ValueError, match="3 returns but 2 lengths"):
        LearningCurve(np.zeros(3), np.zeros(2, int), 0, 0.1, 0.1, 0.99)
    with pytest.raises(ValueError, match="one entry per episode"):
        LearningCurve(np.zeros((3, 1)), np.zeros(3, int), 0, 0.1, 0.1, 0.99)
