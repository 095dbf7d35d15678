"""Every choice of the credit model, with its source."""

import math
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

CLASSES = (-1, 0, 1)  # sign of the reward, in the order of the logits
_MOST_LAYERS = 16  # convolutions


class Weights(NamedTuple):
    """Class weights of the loss."""

    negative: float
    zero: float
    positive: float


# Named class weights w(-1), w(0), w(1) of the loss.
CLASS_WEIGHTS = {"paper": Weights(0.499, 0.02, 0.499)}  # appendix A
SEARCHED_ZERO_WEIGHTS = (0.02, 0.1, 0.5, 2.0)  # what "auto" tries for w(0)


@dataclass(frozen=True)
class ModelOptions:
    """The architecture. Paper, section 2.1 and appendix A; departures are listed in ``paper/DEVIATIONS.md``."""

    units: int = 128
    """Units of each dense layer, and size of queries, keys and values."""
    filters: tuple[int, ...] = (32,)
    """Filters of each 3x3 convolution over image observations: (32,) in Triggers, (16, 16) in DMLab."""
    dropout_dense: float = 0.1
    """Dropout after dense layers."""
    dropout_attention: float = 0.0
    """Dropout of attention weights; 0.2 in the paper, where a row that must count events loses one now and then."""
    dropout_block: float = 0.2
    """Dropout in the normalisation block around attention."""
    position_scale: float = 0.3
    """Size of the positional encoding beside the embeddings."""
    max_position_shift: int = 256
    """In training, each episode begins at a random position up to this one: only distances carry meaning."""
    value_gain: float = 3.0
    """How much larger the value projection starts out."""

    def __post_init__(self) -> None:
        if self.units < 2 or self.units % 2:
            raise ValueError(f"units must be an even number of at least 2, got {self.units}")
        if not 1 <= len(self.filters) <= _MOST_LAYERS or min(self.filters) < 1:
            raise ValueError(f"filters must hold 1 to {_MOST_LAYERS} positive numbers, got {self.filters[:20]}")
        for name in ("dropout_dense", "dropout_attention", "dropout_block"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must lie in [0, 1), got {getattr(self, name)}")
        for name in ("position_scale", "value_gain"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not math.isfinite(value):
                raise ValueError(f"{name} must be a number, got {value!r}")
        if self.max_position_shift < 0:
            raise ValueError(f"max_position_shift must not be negative, got {self.max_position_shift}")


@dataclass(frozen=True)
class TrainingOptions:
    """How the predictor is trained. The paper names only the loss; the rest is ours."""

    class_weights: str | tuple[float, float, float] = "auto"
    """w(-1), w(0), w(1); "paper" for the printed ones; "auto" balances the signs and searches the w(0) at which the
    past puts right most mistakes, unless both signs occur and the paper's w(0) already makes use of the past."""
    steps: int | None = None
    """Updates at most; None: 45 times the square root of the number of trajectories, from 600 to 5,000."""
    batch_size: int = 256
    """Trajectories per update."""
    learning_rate: float = 1e-3
    """Of AdamW, after the warm-up; it falls to 0 along a cosine."""
    warmup: int = 200
    """Updates until the full learning rate."""
    weight_decay: float = 0.01
    """Of AdamW, on matrices only."""
    validation: float = 0.1
    """Share of the trajectories held out."""
    evaluate_every: int = 250
    """Updates between two looks at the validation data."""
    patience: int = 8
    """In the last 40 % of the updates, stop after this many looks without progress on the validation data."""
    restarts: int = 3
    """New initialisations where a reward class is never predicted, or the past does not help."""
    looking_cost: float = 0.1
    """Price of attention to steps instead of the sink, once predictions work: it sharpens credit."""
    recolour: bool = False
    """Red, green and blue of pictures trade places at random in each update: for tasks in which things of one colour
    belong together, whichever it is. It takes more updates to learn all colours than those that occur."""
    compile: bool = False
    """Let PyTorch fuse the small kernels of an update on a GPU: about twice as fast, after compiling for a while."""

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "evaluate_every", "patience"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("warmup", "restarts", "weight_decay", "looking_cost"):
            if not getattr(self, name) >= 0:  # NaN is refused too
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if not 0 < self.validation < 1:
            raise ValueError(f"validation must lie between 0 and 1, got {self.validation}")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be positive, got {self.learning_rate}")
        if isinstance(self.class_weights, str):
            if self.class_weights != "auto" and self.class_weights not in CLASS_WEIGHTS:
                raise ValueError(
                    f'class_weights must be "auto", {sorted(CLASS_WEIGHTS)} or three numbers, '
                    f"got {self.class_weights!r}"
                )
        elif len(self.class_weights) != 3 or min(self.class_weights) < 0 or max(self.class_weights) == 0:
            raise ValueError(f"class_weights must be three numbers of at least 0, not all 0, got {self.class_weights}")

    def planned_steps(self, trajectories: int) -> int:
        """Updates at most, for so many trajectories."""
        return self.steps if self.steps is not None else min(max(round(45 * trajectories**0.5), 600), 5000)


def to_json(options: Any) -> dict[str, Any]:
    """Options as JSON values."""
    return asdict(options)
