"""What a learner may be told, checked once."""

from typing import Any

from secret_rl.checks import check_integer


def check_options(learning_rate: Any, epsilon: Any, discount: Any) -> None:
    """Raise for numbers that Q-learning cannot work with."""
    for name, value, zero_allowed in (
        ("learning_rate", learning_rate, False),
        ("epsilon", epsilon, True),
        ("discount", discount, False),
    ):
        allowed = "[0, 1]" if zero_allowed else "(0, 1]"
        if isinstance(value, bool) or not hasattr(value, "__float__"):
            raise TypeError(f"{name} must be a number in {allowed}, got {value!r}")
        if not (0 < value <= 1 or (zero_allowed and value == 0)):  # NaN, too
            raise ValueError(f"{name} must lie in {allowed}, got {value!r}")


def check_seed(seed: Any) -> int:
    """The seed as an int."""
    return check_integer("seed", seed, 0, 2**64 - 1)


def check_shaping_discount(shaping: float | None, own: float) -> None:
    """Raise where rewards were shaped for another discount: that would change which policies are best."""
    if shaping is not None and shaping != own:
        raise ValueError(
            f"the rewards are shaped with discount {shaping}, but the agent's is {own}: "
            f"give both the same, e.g. QLearning(discount={shaping})"
        )
