"""Learning curves of deep agents."""

from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from secret_rl.files import FileFormat, finite_number, whole_number

_FORMAT = FileFormat("secret-rl deep learning curve", remedy="restore it or train again")


@dataclass(frozen=True, eq=False)
class DeepCurve:
    """What an agent gained when it was evaluated, and in the episodes it learned from; every return is unshaped
    unless its name says otherwise."""

    steps: NDArray[np.int64]
    """(evaluations,) environment steps the agent had learned from."""
    returns: NDArray[np.float64]
    """(evaluations, episodes) sum of the rewards."""
    discounted: NDArray[np.float64]
    """(evaluations, episodes) discounted sum of the rewards."""
    lengths: NDArray[np.int64]
    """(evaluations, episodes) steps of each episode."""
    training_steps: NDArray[np.int64]
    """(training episodes,) environment steps taken when the episode ended."""
    training_returns: NDArray[np.float64]
    """(training episodes,) sum of the rewards."""
    training_shaped_returns: NDArray[np.float64]
    """(training episodes,) sum of the rewards the environments paid the agent, shaping included."""
    training_lengths: NDArray[np.int64]
    """(training episodes,) steps of each episode."""
    seed: int
    discount: float

    def __post_init__(self) -> None:
        for kind, wanted in _SHAPES.items():
            shapes = {name: np.shape(getattr(self, name)) for name in wanted}
            if len({shape[0] if shape else None for shape in shapes.values()}) > 1:
                raise ValueError(f"expected one entry per {kind} in each of {shapes}")
            for name, dimensions in wanted.items():
                if len(shapes[name]) != dimensions:
                    raise ValueError(f"{name} must have {dimensions} dimensions, got shape {shapes[name]}")

    def __len__(self) -> int:
        return len(self.steps)

    def area(self, values: str = "returns") -> float:
        """Mean of ``returns`` or ``discounted`` over all of training: the area under the curve by its length."""
        if values not in ("returns", "discounted"):
            raise ValueError(f'values must be "returns" or "discounted", got {values!r}')
        if not len(self):
            raise ValueError("the curve has no evaluation: train with evaluate_every other than 0")
        means = getattr(self, values).mean(1)
        span = self.steps[-1] - self.steps[0]
        trapezoids = np.diff(self.steps) * (means[1:] + means[:-1]) / 2
        return float(trapezoids.sum() / span) if span else float(means.mean())

    def save(self, path: str | Path) -> Path:
        """Write one safetensors file, whole or not at all."""
        arrays = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in _NUMBERS}
        return _FORMAT.write_arrays(path, {"seed": int(self.seed), "discount": float(self.discount)}, arrays)

    @classmethod
    def load(cls, path: str | Path) -> "DeepCurve":
        """Read what ``save`` wrote."""
        about, arrays = _FORMAT.read_arrays(path)
        with _FORMAT.reading(Path(path)):
            for name, array in arrays.items():
                if array.dtype.kind not in "iuf":
                    raise ValueError(f"{name} is {array.dtype}")
            seed, discount = whole_number(about["seed"], high=2**64), finite_number(about["discount"])
            return cls(**arrays, seed=seed, discount=discount)


_NUMBERS = ("seed", "discount")
_SHAPES = {
    "evaluation": {"steps": 1, "returns": 2, "discounted": 2, "lengths": 2},
    "training episode": {
        "training_steps": 1, "training_returns": 1, "training_shaped_returns": 1, "training_lengths": 1,
    },
}  # fmt: skip
