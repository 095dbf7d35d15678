"""Values from outside, checked: whole numbers that users give, and text that will be shown on a terminal."""

import re

# Controls but newline and tab, marks that change the direction of text, separators of lines, and lone surrogates.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def check_integer(name: str, value: object, low: int, high: int | None = None) -> int:
    """The value as an int; raise unless it is a whole number from ``low`` to ``high``."""
    expected = f"an integer from {low} to {high}" if high is not None else f"an integer of at least {low}"
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be {expected}, got {value!r}")
    number = int(value.__index__())
    if number < low or (high is not None and number > high):
        raise ValueError(f"{name} must be {expected}, got {value!r}")
    return number


def printable(text: object) -> str:
    """Text with a mark in place of each character that would steer a terminal or cannot be encoded.

    Names and messages may come from files, and files from anywhere. Newlines and tabs stay.

    >>> printable("a title: \\x1b]0;new\\x07")
    'a title: �]0;new�'
    """
    return _UNSAFE.sub("\N{REPLACEMENT CHARACTER}", str(text))
