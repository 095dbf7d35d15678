"""Learning curves."""

from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from secret_rl.files import replacing

_FORMAT = "secret-rl learning curve 1"


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

    def save(self, path: str | Path) -> Path:
        """Write one ``.npz`` file, whole or not at all."""
        path = Path(path)
        arrays = {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)}
        arrays["seed"] = np.asarray(self.seed, np.uint64)
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, format=np.array(_FORMAT), **arrays)  # type: ignore[arg-type]
        return path

    @classmethod
    def load(cls, path: str | Path) -> "LearningCurve":
        """Read what ``save`` wrote."""
        try:
            with np.load(path, allow_pickle=False) as content:
                if str(content["format"]) != _FORMAT:
                    raise ValueError(f"format {content['format']}, expected {_FORMAT!r}")
                return cls(
                    content["returns"], content["lengths"], int(content["seed"]),
                    *(float(content[name]) for name in ("learning_rate", "epsilon", "discount")),
                )  # fmt: skip
        except FileNotFoundError:
            raise
        except Exception as broken:
            raise ValueError(f"{path} cannot be read as a learning curve: {broken}") from broken
