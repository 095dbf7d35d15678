"""Learning curves."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """What an agent gained while it learned, and the options it learned with."""

    returns: NDArray[np.float64]
    """(episodes,) discounted sum of the unshaped rewards of each episode."""
    lengths: NDArray[np.int64]
    """(episodes,) steps of each episode."""
    seed: int
    learning_rate: float
    epsilon: float
    discount: float

    def __len__(self) -> int:
        return len(self.returns)
