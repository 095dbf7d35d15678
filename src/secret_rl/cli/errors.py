"""Errors in one line, in the words of the command line."""

import re
from collections.abc import Iterable
from contextlib import redirect_stderr
from difflib import get_close_matches
from io import StringIO
from itertools import dropwhile, takewhile
from typing import Any

from secret_rl.cli.command import Command, UsageError

_RULE = re.compile(r" *[─-]{4,}")
_NUMBERS = {"invalid literal for int() with base 10": "a whole number", "could not convert string to float": "a number"}


def parse(found: type[Command], name: str, words: list[str]) -> Command:
    """The command that words spell; a ``UsageError`` in one line where they do not."""
    import tyro

    box = StringIO()
    try:
        with redirect_stderr(box):
            parsed: Command = tyro.cli(found, prog=f"secret-rl {name}", args=words)
    except SystemExit as leaving:
        if leaving.code in (None, 0):  # --help
            raise
        raise UsageError(_refused(found, words, box.getvalue())) from None
    return parsed


def meant(word: str, known: Iterable[str]) -> str:
    """A suggestion for a word that nobody knows."""
    close = get_close_matches(word, known := list(known), 1, 0.6)
    return f"did you mean {close[0]}?" if close else f"expected one of {', '.join(known)}"


def in_options(message: object, command: Command | None) -> str:
    """An error of the library in one line; names of arguments that are options of the command become options."""
    text = " ".join(str(message).split())
    if command is None:
        return text
    from secret_rl.cli.completion import options_of

    options = {option[2:].replace("-", "_"): option for option in options_of(type(command))}
    for name, option in options.items():
        text = re.sub(rf"(?<![\w-]){name}=True\b", option, text)
        text = re.sub(rf"(?<![\w-]){name}=(?=[\w\"'.(])", f"{option} ", text)
        text = re.sub(rf"(?<![\w.-]){name}=(?=\W|$)", option, text)
        text = re.sub(rf"(?<![\w.-]){name}(?= must )", option, text)
    return text


def _refused(found: type[Command], words: list[str], box: str) -> str:
    """The message in the box that tyro draws, as one line."""
    from secret_rl.cli.completion import options_of

    options = [*options_of(found), "--help"]
    for word in words:
        option = word.partition("=")[0].replace("_", "-")
        if option.startswith("--") and option not in options:
            close = get_close_matches(option[2:], [known[2:] for known in options], 1)
            return f"there is no option {option}" + "".join(f": did you mean --{known}?" for known in close)
    # The frame is one character and a space on each side; spaces alone where the terminal has no Unicode.
    title, *lines = [
        line.strip("╭─╮ ") if not at else line[2:].rstrip("│ ") for at, line in enumerate(box.splitlines())
    ]
    below = dropwhile(_RULE.fullmatch, filter(None, lines))
    content = list(takewhile(lambda line: not _RULE.fullmatch(line), below))
    text = " ".join(" ".join(content).split())
    if title.startswith("Required options"):
        missing = [line.strip() for line in content if re.match(r" {4}\S", line)]
        return f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
    if match := re.match(r"Missing value for argument '([^']+)'", text):
        option = match[1]
        return f"{option} takes a value" if option.startswith("--") else f"{option.upper()} is missing"
    if match := re.match(r"invalid choice '(.*?)' for argument '([^']+)'\. Expected one of \((.*)\)\.", text):
        choices = [choice.strip("' ") for choice in match[3].split(",") if choice]
        return f"{match[2]} has no {match[1]!r}: {meant(match[1], choices)}"
    if match := re.match(r"Error parsing (--\S+): (.*?): (.*)", text):
        expected = _NUMBERS.get(match[2])
        return f"{match[1]} takes {expected}, got {match[3]}" if expected else f"{match[1]}: {match[2]}: {match[3]}"
    if match := re.match(r"Error parsing \S+: (.*)", text):
        return _with_dashes(match[1], options)
    if match := re.match(r"Unrecognized options: (.*)", text):
        return f"nothing takes {match[1]}"
    return text


def _with_dashes(text: str, options: Iterable[Any]) -> str:
    """A message about an option that begins with its name."""
    name, space, rest = text.partition(" ")
    option = f"--{name.replace('_', '-')}"
    return f"{option}{space}{rest}" if option in options else text
