"""How commands speak: notes for people, one JSON document for machines, progress and errors on standard error."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from secret_rl.report.record import json_text


class UsageError(ValueError):
    """Options that are out of range or do not fit each other: the command line is wrong, not the data."""


@dataclass(frozen=True, kw_only=True)
class Output:
    """The options that every command has."""

    quiet: bool = False
    """No progress bars and no notes: only answers and errors."""
    json: bool = False
    """Print one JSON document, for machines; all else goes to standard error."""

    resumable: ClassVar[bool] = False
    """Whether an interrupted command goes on when it is given again."""

    def note(self, text: object) -> None:
        """Tell people how it goes."""
        if not self.quiet:
            print(text, file=sys.stderr if self.json else sys.stdout, flush=True)

    def answer(self, text: object, content: Mapping[str, Any]) -> None:
        """Tell what was asked for, once per command: in words, or as JSON."""
        print(json_text(content) if self.json else text, flush=True)

    def saved(self, text: object, content: Mapping[str, Any]) -> None:
        """The same of a command whose answer is in a file: the words are a note."""
        if self.json:
            self.answer(text, content)
        else:
            self.note(text)
