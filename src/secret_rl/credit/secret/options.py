"""Every choice of the credit model, with its source."""

from dataclasses import dataclass

PAPER_WEIGHTS = (0.499, 0.02, 0.499)  # appendix A: of negative rewards, zeros and positive ones in the loss
WEIGHTS = ("residual", "paper")
PRECISIONS = ("float32", "bf16")


@dataclass(frozen=True)
class ModelOptions:
    """The architecture. Paper, section 2.1 and appendix A; departures are listed in ``paper/DEVIATIONS.md``."""

    units: int = 64
    """Units of each dense layer, and size of queries, keys and values."""
    filters: tuple[int, ...] = (32,)
    """Filters of each 3x3 convolution over image observations: (32,) in Triggers, (16, 16) in DMLab."""
    dropout_dense: float = 0.1
    """Dropout after dense layers."""
    dropout_block: float = 0.2
    """Dropout in the normalisation block around attention."""
    dropout_steps: float = 0.4
    """How often a row fails to see an earlier step in training. What was not seen may then have been there, so that
    each outcome needs evidence of its own; without, a model finds one and infers the other from its absence."""
    transitions: bool = False
    """Steps are attended to as (observation, action, next observation): for effects that only the next observation
    shows, or that chance decides."""

    def __post_init__(self) -> None:
        if self.units < 2 or self.units % 2:
            raise ValueError(f"units must be an even number of at least 2, got {self.units}")
        if not self.filters or min(self.filters) < 1:
            raise ValueError(f"filters must hold positive numbers, at least one, got {self.filters}")
        for name in ("dropout_dense", "dropout_block", "dropout_steps"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must lie in [0, 1), got {getattr(self, name)}")


@dataclass(frozen=True)
class TrainingOptions:
    """How the predictor is trained. The paper names only the loss; the rest is ours."""

    weights: str = "residual"
    """Of steps in the loss. "residual": the error of a predictor without memory, so that only what the past decides
    is learned from it; "paper": by the sign of the reward, as printed."""
    steps: int | None = None
    """Updates at most; None: 30 times the square root of the number of trajectories, from 1,500 to 4,000, and up to
    three times as many while it still learns."""
    batch_size: int = 64
    """Trajectories per update."""
    learning_rate: float = 2e-3
    """Of AdamW, after the warm-up; once learning has come to rest, it falls to 0."""
    warmup: int = 100
    """Updates until the full learning rate."""
    weight_decay: float = 0.01
    """Of AdamW, on matrices only."""
    validation: float = 0.1
    """Share of the trajectories held out."""
    evaluate_every: int = 50
    """Updates between two validations."""
    patience: int = 4
    """Validations without progress after which learning has come to rest."""
    attention_penalty: float = 0.1
    """Added to the loss for attention to steps instead of the sink, once predictions work: it sharpens credit."""
    precision: str = "float32"
    """Of products in updates: "float32", or "bf16" for GPUs. Sums, weights, validation and credit are float32."""

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "evaluate_every", "patience"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("warmup", "weight_decay", "attention_penalty"):
            if not getattr(self, name) >= 0:  # NaN is refused too
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if not 0 < self.validation < 1:
            raise ValueError(f"validation must lie between 0 and 1, got {self.validation}")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be positive, got {self.learning_rate}")
        if self.weights not in WEIGHTS:
            raise ValueError(f"weights must be one of {', '.join(WEIGHTS)}, got {self.weights!r}")

        if self.precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, got {self.precision!r}")

    def planned_steps(self, trajectories: int) -> int:
        """Updates at most, for so many trajectories."""
        return self.steps if self.steps is not None else min(max(round(30 * trajectories**0.5), 1500), 4000)
