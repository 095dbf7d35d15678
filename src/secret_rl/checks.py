"""Whole numbers that users give, checked in one place."""


def check_integer(name: str, value: object, low: int, high: int | None = None) -> int:
    """The value as an int; raise unless it is a whole number from ``low`` to ``high``."""
    expected = f"an integer from {low} to {high}" if high is not None else f"an integer of at least {low}"
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be {expected}, got {value!r}")
    number = int(value.__index__())
    if number < low or (high is not None and number > high):
        raise ValueError(f"{name} must be {expected}, got {value!r}")
    return number
