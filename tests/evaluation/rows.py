"""Attributions that tests of measures share."""

import numpy as np

from secret_rl.credit import Attributions


def three_rows():
    """An episode of 3 steps, then one of 6: rewards at step 2 of the first and at steps 3 and 5 of the second."""
    return Attributions(
        episode=np.array([0, 1, 1]),
        step=np.array([2, 3, 5]),
        predicted_at=np.array([2, 3, 4]),
        reward=np.array([1.0, 1.0, 1.0]),
        evidence=np.zeros(3, np.float32),
        weights=np.array([0.5, 0.3, 0.2, 0.1, 0.6, 0.3, 0.0, 0.25, 0.5, 0.25, 0.0, 0.0], np.float32),
        offsets=np.array([0, 3, 7, 12]),
        rewards_seen=4,
        lengths=np.array([3, 6]),
    )
