"""Commands: what every one has, and the registry that ``secret-rl --help`` and shell completion list.

A command is one class, in a module beside this one that ``OURS`` names, or of a package of yours that names it in the
entry-point group ``secret_rl.commands``; docs/command-line.md shows one. Only the module of the command that is run is
imported, and it imports PyTorch, NumPy and Gymnasium only where it needs them: ``--help`` is quick.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, ClassVar, TextIO, TypeVar, dataclass_transform

from secret_rl.checks import printable
from secret_rl.plugins import load_plugins

OURS = {
    "collect": ("data", "Play episodes with a random policy and save them."),
    "info": ("data", "Say what saved trajectories hold."),
    "fit": ("credit", "Learn credit from saved trajectories."),
    "quality": ("credit", "Compare credit with the truth that trajectories are annotated with."),
    "attribute": ("credit", "Say which steps earned each reward of saved trajectories."),
    "explore": ("credit", "Make a page to look at credit with."),
    "potential": ("potential", "Estimate a potential from trajectories of the target."),
    "learn": ("learning", "Q-learning without and with shaping, and how they compare."),
    "report": ("results", "Make one page of one or several runs."),
    "play": ("data", "Walk a Triggers maze in the terminal."),
    "benchmark": ("benchmark", "Compare credit methods on tasks with known causes."),
    "paper": ("results", "Make a result of the paper, from a clone."),
    "demo": ("demo", "All of it, in about two minutes."),
}
"""Our commands in the order of ``--help``: module beside this one, and what it does in a line."""

_registered: dict[str, "type[Command]"] = {}


def processes() -> int:
    """How many processes of torchrun run this command."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "TORCHELASTIC_RUN_ID" in os.environ else 1


def leads() -> bool:
    """Whether this process speaks for all of them: it is the first, or alone."""
    return processes() == 1 or os.environ.get("RANK") == "0"


class UsageError(ValueError):
    """Options that are out of range or do not fit each other: the command line is wrong, not the data."""


def say(text: object, file: TextIO) -> None:
    """Print text that may come from a file."""
    print(printable(text), file=file, flush=True)


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command line option is a field, and its help the text below the field; ``run`` does the work.

    An option ``out`` that is a path is checked for writing before the work begins.
    """

    quiet: bool = False  # No progress bars and no notes: only answers and errors.
    json: bool = False  # Print one JSON document, for machines; all else goes to standard error.

    resumable: ClassVar[bool] = False  # Whether the same command continues after an interruption.
    distributed: ClassVar[bool] = False  # Whether several processes of torchrun can share the work.

    def run(self) -> None:
        """Do the work."""
        raise NotImplementedError

    def note(self, text: object) -> None:
        """Report progress to people."""
        if not self.quiet:
            say(text, sys.stderr if self.json else sys.stdout)

    def answer(self, text: object, content: Mapping[str, Any]) -> None:
        """Print the result, once per command: as text, or as JSON."""
        if self.json:  # which escapes all that is not ASCII, and of the control characters all but one
            from secret_rl.files import plain

            text = json.dumps(plain(content), indent=1, allow_nan=False).replace("\x7f", "\\u007f")
        say(text, sys.stdout)

    def saved(self, text: object, content: Mapping[str, Any]) -> None:
        """The same of a command whose result is in a file: the text is a note."""
        if self.json:
            self.answer(text, content)
        else:
            self.note(text)

    def settings(self) -> dict[str, Any]:
        """The options that decide the result."""
        return {name: value for name, value in vars(self).items() if name not in ("out", "quiet", "json")}

    def given(self, *names: str) -> dict[str, Any]:
        """Some of the options, for a call of the library that has the same."""
        return {name: getattr(self, name) for name in names}


C = TypeVar("C", bound=Command)


@dataclass_transform(frozen_default=True)
def command(name: str, *, resumable: bool = False) -> Callable[[type[C]], type[C]]:
    """Make a frozen dataclass of a subclass of ``Command``, and register it.

    Args:
        name: What users type.
        resumable: Whether the same command continues after an interruption.
    """

    def register(cls: type[C]) -> type[C]:
        by = f"secret_rl.cli.{OURS[name][0]}" if name in OURS else getattr(_registered.get(name), "__module__", None)
        if by not in (None, cls.__module__):
            raise ValueError(f"command {name!r} is registered already, by {by}")
        cls.resumable = resumable
        _registered[name] = made = dataclass(frozen=True)(cls)
        return made

    return register


def find_command(name: str) -> type[Command] | None:
    """The command of a name, if there is one."""
    if name not in OURS:
        return _of_plugins().get(name)
    import_module(f"secret_rl.cli.{OURS[name][0]}")
    return _registered[name]


@cache
def summaries() -> dict[str, str]:
    """Every command by its name, with what it does: ours, then those of plug-ins."""
    others = {name: (cls.__doc__ or "").strip().partition("\n")[0] for name, cls in _of_plugins().items()}
    return {name: summary for name, (_, summary) in OURS.items()} | others


def commands() -> dict[str, type[Command]]:
    """Every command by its name; this imports them all."""
    return {name: cls for name in summaries() if (cls := find_command(name))}


@cache
def _of_plugins() -> dict[str, type[Command]]:
    load_plugins("secret_rl.commands")
    return {name: cls for name, cls in _registered.items() if name not in OURS}


def options_of(pairs: tuple[str, ...]) -> dict[str, Any]:
    """KEY=VALUE words; a value is JSON where it reads as such, else a string."""
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"--option takes KEY=VALUE words, got {pair!r}")
        try:
            options[key] = json.loads(value)
        except json.JSONDecodeError:
            options[key] = {"None": None, "True": True, "False": False}.get(value, value)
    return options
