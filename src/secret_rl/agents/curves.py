"""Learning curves."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """What an agent gained while it learned, and what it learned with."""

    returns: NDArray[np.float64]
    """(episodes,) discounted sum of the unshaped rewards of each episode."""
    lengths: NDArray[np.int64]
    """(episodes,) steps of each episode."""
    seed: int
    learning_rate: float
    epsilon: float
    discount: float

    def __post_init__(self) -> None:
        for name in ("returns", "lengths"):
            if np.ndim(getattr(self, name)) != 1:
                raise ValueError(f"{name} must have one entry per episode, got shape {np.shape(getattr(self, name))}")
        if len(self.returns) != len(self.lengths):
            raise ValueError(f"{len(self.returns)} returns but {len(self.lengths)} lengths: expected one per episode")

    def __len__(self) -> int:
        return len(self.returns)
