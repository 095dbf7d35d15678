"""How commands speak: notes for people, one JSON document for machines, progress and errors on standard error."""

import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TextIO

from secret_rl.checks import printable
from secret_rl.credit.diagnosis import FitReport
from secret_rl.report.record import doubt_of, json_text
from secret_rl.shaping.potentials import NotCreditWarning


class UsageError(ValueError):
    """Options that are out of range or do not fit each other: the command line is wrong, not the data."""


def say(text: object, file: TextIO) -> None:
    """Print what may hold text from a file."""
    print(printable(text), file=file, flush=True)


class Terminated(KeyboardInterrupt):
    """SIGTERM, which is cleaned up after as Ctrl-C is."""


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
            say(text, sys.stderr if self.json else sys.stdout)

    def doubt(self, report: FitReport | None) -> None:
        """Warn where the attention of a model is not credit."""
        why = doubt_of(report)
        if report is not None and why is not None:
            warnings.warn(f"{report.verdict}: {why}", NotCreditWarning, stacklevel=2)

    def answer(self, text: object, content: Mapping[str, Any]) -> None:
        """Tell what was asked for, once per command: in words, or as JSON."""
        # JSON escapes all that is not ASCII, and of the controls all but one.
        say(json_text(content).replace("\x7f", "\\u007f") if self.json else text, sys.stdout)

    def saved(self, text: object, content: Mapping[str, Any]) -> None:
        """The same of a command whose answer is in a file: the words are a note."""
        if self.json:
            self.answer(text, content)
        else:
            self.note(text)
