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
from secret_rl.cli.command import UsageError, commands, say
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
    words = sys.argv[1:] if arguments is None else arguments
    if isinstance(sys.stdout, io.TextIOWrapper):
        with suppress(OSError):  # a closed pipe
            sys.stdout.reconfigure(errors="replace")  # any text can be printed
    command: Any = None
    before, warnings.formatwarning = warnings.formatwarning, _warning_line  # type: ignore[assignment]
    with _stoppable() as received:
        try:
            if words[:1] == ["--version"]:
                print(f"secret-rl {secret_rl.__version__}")
            elif words[:1] == ["--print-completion"]:
                print(_completion_script(words[1:]))
            else:
                command = _parse(words)
                if isinstance(out := getattr(command, "out", None), Path):
                    check_writable(out)  # not after hours of work
                with no_bars() if command.quiet else nullcontext():
                    command.run()
            sys.stdout.flush()  # here, where a closed pipe can be distinguished from a failure
        except BaseException as error:
            # A library that is interrupted may raise an error of its own instead.
            if not received and not isinstance(error, KeyboardInterrupt):
                return _failed(error, words)
            terminated = signal.SIGTERM in received
            again = ": the same command goes on where this one stopped" if command and command.resumable else ""
            say(f"\n{'terminated' if terminated else 'interrupted'}{again}", sys.stderr)
            return 143 if terminated else 130
        finally:
            warnings.formatwarning = before
    return 0


def _failed(error: BaseException, words: list[str]) -> int:
    """Report an error that users can do something about; any other is raised again."""
    if isinstance(error, BrokenPipeError):  # the reader of the output has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    if isinstance(error, UsageError):
        hint = " ".join(["secret-rl", *(word for word in words[:1] if word in commands()), "--help"])
        say(f"secret-rl: {error}\nsee {hint}", sys.stderr)
        return 2
    if isinstance(error, _EXPECTED_ERRORS):
        say(f"secret-rl: {type(error).__name__}: {error}", sys.stderr)
        return 1
    raise error


def _parse(words: list[str]) -> Any:
    return tyro.extras.subcommand_cli_from_dict(commands(), prog="secret-rl", description=_DESCRIPTION, args=words)


def _completion_script(words: list[str]) -> str:
    if len(words) != 1 or words[0] not in _SHELLS:
        raise UsageError(f"--print-completion takes one of {', '.join(_SHELLS)}, got {' '.join(words) or 'nothing'}")
    text = io.StringIO()
    with suppress(SystemExit), redirect_stdout(text):
        _parse(["--tyro-print-completion", words[0]])
    if words[0] != "bash":
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
