"""The numbers of the paper's DQN (appendix A), and what credit may be spent on beside the reward."""

from dataclasses import dataclass

FILTERS = (8, 16, 16)  # of three 3x3 convolutions
STRIDES = (2, 1, 1)
UNITS = 64  # of the dense layer behind them


@dataclass(frozen=True, kw_only=True)
class DqnOptions:
    """Defaults that the paper does not give say so."""

    learning_rate: float = 0.00025
    """Of RMSProp."""
    decay: float = 0.95
    """Of the mean of squared gradients; not in the paper."""
    stabiliser: float = 1e-6
    """Added to its root; not in the paper. With the 0.01 of other work these small gradients hardly move anything."""
    discount: float = 0.9
    """Not in the paper. With 0.99 this small network overestimates values until agents only walk about."""
    epsilon_steps: int = 250_000
    """Over these, exploration falls from 1 to ``epsilon_final``."""
    epsilon_final: float = 0.01
    epsilon_test: float = 0.001
    random_steps: int = 5_000
    """Transitions of random play before learning begins."""
    target_every: int = 2_000
    """Steps between two copies of the network that values are bootstrapped from."""
    replay: int = 1_000_000
    batch_size: int = 32
    """Not in the paper."""
    train_every: int = 4
    """Steps between two updates; not in the paper."""
    clip: float = 10.0
    """Largest norm of a gradient; not in the paper."""

    shaping: bool = True
    """Add the potential's shaping to the rewards, where a task has a potential."""
    priority: float = 0.0
    """Share of each batch drawn among transitions that raised the potential or were rewarded."""
    bootstrap: float = 0.0
    """How much of the bootstrapped value is the potential itself at first; falls to 0 over ``fade_steps``."""
    bonus: float = 0.0
    """Times the rise of the potential, added to the reward at first. Until it has faded, over ``fade_steps``, other
    policies may be optimal."""
    fade_steps: int = 100_000
    start_from_potential: bool = False
    """Fit all values of a state to its potential before learning (Wiewiora 2003: what shaping amounts to)."""

    def __post_init__(self) -> None:
        for name, low, high in (
            ("learning_rate", 0, 1), ("decay", 0, 1), ("discount", 0, 1), ("epsilon_final", 0, 1),
            ("epsilon_test", 0, 1), ("priority", 0, 1), ("bootstrap", 0, 1),
        ):  # fmt: skip
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"{name} must lie from {low} to {high}, got {getattr(self, name)!r}")
        for name in ("epsilon_steps", "target_every", "replay", "batch_size", "train_every", "fade_steps"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
        if self.random_steps < 0 or self.stabiliser <= 0 or self.clip <= 0 or self.bonus < 0:
            raise ValueError(f"random_steps and bonus must be at least 0, stabiliser and clip more, got {self}")
