"""Text of strangers, made fit to be shown."""

import re

# Controls but newline and tab, marks that change the direction of text, separators of lines, and lone surrogates.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: object) -> str:
    """Text with a mark in place of each character that would steer a terminal or cannot be encoded.

    Names and messages may come from files, and files from anywhere. Newlines and tabs stay.

    >>> printable("a title: \\x1b]0;new\\x07")
    'a title: �]0;new�'
    """
    return _UNSAFE.sub("\N{REPLACEMENT CHARACTER}", str(text))
