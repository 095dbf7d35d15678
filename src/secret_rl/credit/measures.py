"""How well reward signs are predicted, class by class."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secret_rl.credit.options import CLASSES
from secret_rl.files import whole_number

CLASS_NAMES = ("negative", "zero", "positive")


@dataclass(frozen=True)
class Confusion:
    """``counts[i, j]``: steps of class ``CLASSES[i]`` predicted as ``CLASSES[j]``."""

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
        missing = self.present & (self.counts.sum(0) == 0)
        return tuple(sign for sign, absent in zip(CLASSES, missing, strict=True) if absent)

    def to_json(self) -> dict[str, Any]:
        """Accuracy by class name, and the counts."""
        accuracy = {
            name: float(value)
            for name, value, here in zip(CLASS_NAMES, self.accuracy, self.present, strict=True)
            if here
        }
        return {"accuracy": accuracy, "balanced_accuracy": self.balanced_accuracy, "counts": self.counts.tolist()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Confusion":
        """The inverse of ``to_json``; only the counts are read."""
        counts = [[whole_number(count, high=2**62) for count in row] for row in data["counts"]]
        if [len(row) for row in counts] != [len(CLASSES)] * len(CLASSES):
            raise ValueError(f"predictions are counted in {len(CLASSES)} rows of {len(CLASSES)}, got {counts}")
        return cls(np.array(counts, np.int64))

    def __str__(self) -> str:
        return " ".join(
            f"{'-0+'[i]}{value:.3f}"
            for i, (value, here) in enumerate(zip(self.accuracy, self.present, strict=True))
            if here
        )
