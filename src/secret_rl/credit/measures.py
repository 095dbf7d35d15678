"""How well reward classes are predicted."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secret_rl.files import whole_number


@dataclass(frozen=True)
class Confusion:
    """``counts[i, j]``: steps of class i predicted as class j."""

    counts: NDArray[np.int64]

    @property
    def present(self) -> NDArray[np.bool_]:
        """(class,) whether any step is of the class."""
        return np.asarray(self.counts.sum(1) > 0)

    @property
    def accuracy(self) -> NDArray[np.float64]:
        """(class,) share of each class predicted correctly; NaN where the class is absent."""
        with np.errstate(invalid="ignore"):
            return np.asarray(np.diag(self.counts) / self.counts.sum(1))

    @property
    def balanced_accuracy(self) -> float:
        """Mean accuracy of the classes present: the paper's "reward prediction accuracy"."""
        return float(np.nanmean(self.accuracy))

    @property
    def never_predicted(self) -> tuple[int, ...]:
        """Classes that are present but never predicted: the sign of a collapse."""
        return tuple(np.flatnonzero(self.present & (self.counts.sum(0) == 0)).tolist())

    def to_json(self) -> dict[str, Any]:
        """The accuracy of each class, None where it is absent, and the counts."""
        accuracy = [float(value) if here else None for value, here in zip(self.accuracy, self.present, strict=True)]
        return {"accuracy": accuracy, "balanced_accuracy": self.balanced_accuracy, "counts": self.counts.tolist()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Confusion":
        """The inverse of ``to_json``; only the counts are read."""
        counts = [[whole_number(count, high=2**62) for count in row] for row in data["counts"]]
        if not counts or [len(row) for row in counts] != [len(counts)] * len(counts):
            raise ValueError(f"predictions are counted in a square table, got {counts}")
        return cls(np.array(counts, np.int64))
