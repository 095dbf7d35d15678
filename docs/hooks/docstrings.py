"""Docstrings of the code as Markdown: examples and indented code are set as code."""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)  # up to an empty line
_INDENTED = re.compile(r"::\n\n((?:[ ]{4}.*\n?|\n)+)")


class Examples(griffe.Extension):
    """Puts fences around doctests, which Markdown would take for quotations."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called once for everything that was read."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """A docstring with its code in fences."""
    text = _EXAMPLE.sub(lambda example: f"```pycon\n{example[0]}\n```", text)
    return _INDENTED.sub(lambda code: ":\n\n```python\n" + _dedented(code[1]) + "\n```\n\n", text).rstrip()


def _dedented(code: str) -> str:
    return "\n".join(line.removeprefix("    ") for line in code.strip("\n").splitlines())
