"""The ``secret-rl`` command: the same steps as the library, from a terminal."""

import io
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from secret_rl.atomic import check_writable
from secret_rl.checks import printable
from secret_rl.cli.command import Command, UsageError, find_command, leads, processes, say, summaries
from secret_rl.progress import no_bars
from secret_rl.version import VERSION

_EXPECTED_ERRORS = (ValueError, TypeError, OSError, RuntimeError, ModuleNotFoundError)
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_HELP = """usage: secret-rl COMMAND ...

Find out which past actions earned a reward.

{commands}

secret-rl COMMAND --help lists the options of one. --version prints the version.
--print-completion bash (or zsh, fish) prints a script that completes commands,
options, methods and environments; eval "$(secret-rl --print-completion bash)"
uses it.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 130 interrupted,
143 terminated."""


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code; ``--help`` lists them."""
    words = sys.argv[1:] if arguments is None else arguments
    if isinstance(sys.stdout, io.TextIOWrapper):
        with suppress(OSError):  # a closed pipe
            sys.stdout.reconfigure(errors="replace")  # any text can be printed
    if os.environ.get("NO_COLOR"):  # no-color.org; Rich knows it, the help of commands is asked by this
        os.environ.setdefault("PYTHON_TYRO_ANSI_CODES", "False")
    command: Command | None = None
    before, warnings.formatwarning = warnings.formatwarning, _warning_line  # type: ignore[assignment]
    with _stoppable() as received:
        try:
            if not _answered(words):
                command = _parse(words)
                if isinstance(out := getattr(command, "out", None), Path):
                    check_writable(out)  # not after hours of work
                with no_bars() if command.quiet else nullcontext():
                    command.run()
            sys.stdout.flush()  # here, where a closed pipe can be distinguished from a failure
        except BaseException as error:
            # A library that is interrupted may raise an error of its own instead.
            if not received and not isinstance(error, KeyboardInterrupt):
                return _failed(error, words, command)
            terminated = signal.SIGTERM in received
            if not leads():
                return 143 if terminated else 130
            again = ": the same command goes on where this one stopped" if command and command.resumable else ""
            say(f"\n{'terminated' if terminated else 'interrupted'}{again}", sys.stderr)
            return 143 if terminated else 130
        finally:
            warnings.formatwarning = before
    return 0


def _answered(words: list[str]) -> bool:
    """Answer what needs no command."""
    first, *others = words or ["--help"]
    if first in ("--help", "-h"):
        known = summaries()
        width = max(map(len, known))
        say(_HELP.format(commands="\n".join(f"  {name:{width}}  {about}" for name, about in known.items())), sys.stdout)
    elif first == "--version":
        say(f"secret-rl {VERSION}", sys.stdout)
    elif first in ("--print-completion", "--complete"):
        from secret_rl.cli.completion import candidates, script

        say(script(others) if first == "--print-completion" else "\n".join(candidates(others)), sys.stdout)
    else:
        return False
    return True


def _failed(error: BaseException, words: list[str], command: Command | None) -> int:
    """Report an error that users can do something about; any other is raised again."""
    if isinstance(error, BrokenPipeError):  # the reader of the output has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    from secret_rl.cli.errors import in_options

    name = "secret-rl" if leads() else f"secret-rl (process {os.environ['RANK']})"
    if isinstance(error, UsageError):
        hint = " ".join(["secret-rl", *(word for word in words[:1] if word in summaries()), "--help"])
        say(f"{name}: {error}\nsee {hint}", sys.stderr)
        return 2
    if isinstance(error, _EXPECTED_ERRORS) or type(error).__module__ == "gymnasium.error":
        if isinstance(error, OSError) and error.filename is not None and error.strerror:
            say(f"{name}: {error.filename}: {error.strerror}", sys.stderr)
        else:
            say(f"{name}: {in_options(error, command) or type(error).__name__}", sys.stderr)
        return 1
    raise error


def _parse(words: list[str]) -> Command:
    from secret_rl.cli.errors import meant, parse

    name, *others = words
    found = find_command(name)
    if found is None:
        raise UsageError(f"there is no command {name!r}: {meant(name, summaries())}")
    if processes() > 1 and not found.distributed:
        raise UsageError(f"{name} runs in one process: give the command without torchrun")
    return parse(found, name, others)


def _warning_line(message: Warning | str, category: type[Warning], *_: object) -> str:
    """A warning in one line, without its place in the code and the colours of Gymnasium."""
    return printable(f"secret-rl: {category.__name__}: {_COLOUR.sub('', str(message))}\n")


@contextmanager
def _stoppable() -> Iterator[list[int]]:
    """SIGTERM ends a command as Ctrl-C does; yields the signals received. A signal that is ignored stays ignored."""
    received: list[int] = []

    def stop(number: int, _: object) -> None:
        received.append(number)
        raise KeyboardInterrupt

    in_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM) if in_main}
    changed = {number: handler for number, handler in before.items() if handler not in (None, signal.SIG_IGN)}
    for number in changed:
        signal.signal(number, stop)
    try:
        yield received
    finally:
        for number, handler in changed.items():
            signal.signal(number, handler)
