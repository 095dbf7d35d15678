"""Commands: what every one has, and the registry that ``secret-rl --help`` and shell completion list.

A command is one class, in a module beside this one, or of a package of yours that names it in the entry-point group
``secret_rl.commands``; docs/command-line.md shows one.
"""

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TextIO, TypeVar, dataclass_transform

from tyro.conf import arg

from secret_rl.checks import printable
from secret_rl.files import plain
from secret_rl.plugins import load_plugins

_registered: dict[str, "type[Command]"] = {}


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
        if name in _registered and _registered[name].__module__ != cls.__module__:
            raise ValueError(f"command {name!r} is registered already, by {_registered[name].__module__}")
        cls.resumable = resumable
        _registered[name] = made = dataclass(frozen=True)(cls)
        return made

    return register


@cache
def commands() -> dict[str, Callable[..., Command]]:
    """Every command by its name: those of this package, then those of plug-ins."""
    for module in sorted(Path(__file__).parent.glob("[!_]*.py")):
        import_module(f"secret_rl.cli.{module.stem}")
    load_plugins("secret_rl.commands")
    return dict(_registered)


EnvOptions = Annotated[tuple[str, ...], arg(metavar="KEY=VALUE")]


def one_of(names: Iterable[str]) -> Any:
    """The type of an option whose choices are known at run time."""
    return Literal[tuple(names)]


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
