"""The ``secret-rl`` command: the same steps as the library, from a terminal."""

import io
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import gymnasium as gym
import tyro

import secret_rl
from secret_rl.atomic import check_writable
from secret_rl.checks import printable
from secret_rl.cli.command import Terminated, UsageError, commands, say
from secret_rl.progress import no_bars

_EXPECTED_ERRORS = (ValueError, TypeError, OSError, RuntimeError, ModuleNotFoundError, gym.error.Error)
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_SHELLS = ("bash", "zsh", "fish")
_DESCRIPTION = """Find out which past actions earned a reward.

--version prints the version. --print-completion bash (or zsh, fish) prints a script that completes commands, options \
and files; eval "$(secret-rl --print-completion bash)" uses it.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 130 interrupted, 143 terminated."""


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code; ``--help`` lists them."""
    with _any_text(), _stoppable() as received:
        return _main(sys.argv[1:] if arguments is None else arguments, received)


def _main(arguments: list[str], received: list[int]) -> int:
    command: Any = None
    before, warnings.formatwarning = warnings.formatwarning, _warning_line  # type: ignore[assignment]
    try:
        if arguments[:1] == ["--version"]:
            print(f"secret-rl {secret_rl.__version__}")
            return 0
        if arguments[:1] == ["--print-completion"]:
            print(_completion_script(arguments[1:]))
            return 0
        command = _parse(arguments)
        if isinstance(out := getattr(command, "out", None), Path):
            check_writable(out)  # not after hours of work
        with no_bars() if command.quiet else nullcontext():
            command.run()
        sys.stdout.flush()  # here, where a closed pipe can be distinguished from a failure
    except BaseException as error:
        # A library that is interrupted may raise an error of its own instead.
        if received or isinstance(error, KeyboardInterrupt):
            terminated = signal.SIGTERM in received
            again = ": the same command goes on where this one stopped" if command and command.resumable else ""
            say(f"\n{'terminated' if terminated else 'interrupted'}{again}", sys.stderr)
            return 143 if terminated else 130
        return _failed(error, arguments)
    finally:
        warnings.formatwarning = before
    return 0


def _failed(error: BaseException, arguments: list[str]) -> int:
    """Report an error that users can do something about; any other is raised again."""
    if isinstance(error, BrokenPipeError):  # the reader of the output has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    if isinstance(error, UsageError):
        hint = " ".join(["secret-rl", *(word for word in arguments[:1] if word in commands()), "--help"])
        say(f"secret-rl: {error}\nsee {hint}", sys.stderr)
        return 2
    if isinstance(error, _EXPECTED_ERRORS):
        say(f"secret-rl: {type(error).__name__}: {error}", sys.stderr)
        return 1
    raise error


def _parse(arguments: list[str]) -> Any:
    return tyro.extras.subcommand_cli_from_dict(commands(), prog="secret-rl", description=_DESCRIPTION, args=arguments)


def _completion_script(arguments: list[str]) -> str:
    if len(arguments) != 1 or arguments[0] not in _SHELLS:
        got = " ".join(arguments) or "nothing"
        raise UsageError(f"--print-completion takes one of {', '.join(_SHELLS)}, got {got}")
    text = io.StringIO()
    with suppress(SystemExit), redirect_stdout(text):
        _parse(["--tyro-print-completion", arguments[0]])
    if arguments[0] != "bash":
        return text.getvalue()
    # Bash completes files better itself: the generated script puts earlier words before the one that is being typed.
    return f"""{text.getvalue().replace('COMPREPLY=($(compgen -f -- "$cur"))', "COMPREPLY=()")}
_secret_rl() {{
  _tyro_secret_rl
  if [[ -z "${{COMPREPLY[*]}}" ]]; then COMPREPLY=(); fi
}}
complete -o default -F _secret_rl secret-rl
"""


def _warning_line(message: Warning | str, category: type[Warning], *_: object) -> str:
    """A warning in one line, without its place in the code and the colours of Gymnasium."""
    return printable(f"secret-rl: {category.__name__}: {_COLOUR.sub('', str(message))}\n")


@contextmanager
def _stoppable() -> Iterator[list[int]]:
    """SIGTERM ends a command as Ctrl-C does; yields the signals received. A signal that is ignored stays ignored."""
    received: list[int] = []

    def stop(number: int, _: object) -> None:
        received.append(number)
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    main_thread = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM) if main_thread}
    changed = {number: handler for number, handler in before.items() if handler not in (None, signal.SIG_IGN)}
    for number in changed:
        signal.signal(number, stop)
    try:
        yield received
    finally:
        for number, handler in changed.items():
            signal.signal(number, handler)


@contextmanager
def _any_text() -> Iterator[None]:
    """Standard output takes any text: what its encoding lacks becomes a question mark."""
    out = sys.stdout
    if not isinstance(out, io.TextIOWrapper) or out.errors != "strict":
        yield
        return
    with suppress(OSError):  # a closed pipe
        out.reconfigure(errors="replace")
    try:
        yield
    finally:
        with suppress(OSError):
            out.reconfigure(errors="strict")
