"""The ``secret-rl`` command: the same steps as the library, from a terminal."""

import io
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import gymnasium as gym
import tyro

import secret_rl
from secret_rl.atomic import check_writable
from secret_rl.checks import printable
from secret_rl.cli.completion import completion_script
from secret_rl.cli.credit import Attribute, Fit, Quality
from secret_rl.cli.data import Collect, Info
from secret_rl.cli.demo import Demo
from secret_rl.cli.explore import Explore
from secret_rl.cli.learning import Learn, Potential
from secret_rl.cli.output import Terminated, UsageError, say
from secret_rl.cli.play import Play
from secret_rl.cli.reporting import Report
from secret_rl.cli.results import Paper
from secret_rl.progress import no_bars

_EXPECTED_ERRORS = (ValueError, TypeError, OSError, RuntimeError, ModuleNotFoundError, gym.error.Error)

_COLOUR = re.compile(r"\x1b\[[\d;]*m")

_COMMANDS: dict[str, Callable[..., Any]] = {
    "collect": Collect,
    "info": Info,
    "play": Play,
    "fit": Fit,
    "attribute": Attribute,
    "quality": Quality,
    "explore": Explore,
    "potential": Potential,
    "learn": Learn,
    "report": Report,
    "paper": Paper,
    "demo": Demo,
}

_DESCRIPTION = """Find out which past actions earned a reward.

--version prints the version. --print-completion bash (or zsh, fish) prints a script that completes commands, options \
and files; eval "$(secret-rl --print-completion bash)" uses it.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 130 interrupted, 143 terminated."""


def main(arguments: list[str] | None = None) -> int:
    """Run a command; give its exit code: those that ``--help`` lists."""
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
            print(completion_script(arguments[1:], _parse))
            return 0
        command = _parse(arguments)
        if isinstance(out := getattr(command, "out", None), Path):
            check_writable(out)  # not after hours of work
        with no_bars() if getattr(command, "quiet", False) else nullcontext():
            command.run()
        sys.stdout.flush()  # here, where a closed pipe can be told from a failure
    except BaseException as error:
        # A library that is interrupted may raise an error of its own instead.
        if received or isinstance(error, KeyboardInterrupt):
            return _stopped(command, signal.SIGTERM in received)
        return _failed(error, arguments)
    finally:
        warnings.formatwarning = before
    return 0


def _stopped(command: Any, terminated: bool) -> int:
    again = ": the same command goes on where this one stopped" if getattr(command, "resumable", False) else ""
    say(f"\n{'terminated' if terminated else 'interrupted'}{again}", sys.stderr)
    return 143 if terminated else 130


def _failed(error: BaseException, arguments: list[str]) -> int:
    """Report an error that users can do something about; any other is raised again."""
    if isinstance(error, BrokenPipeError):  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    if isinstance(error, UsageError):
        hint = " ".join(["secret-rl", *(word for word in arguments[:1] if word in _COMMANDS), "--help"])
        say(f"secret-rl: {error}\nsee {hint}", sys.stderr)
        return 2
    if isinstance(error, _EXPECTED_ERRORS):
        say(f"secret-rl: {type(error).__name__}: {error}", sys.stderr)
        return 1
    raise error


def _parse(arguments: list[str]) -> Any:
    return tyro.extras.subcommand_cli_from_dict(_COMMANDS, prog="secret-rl", description=_DESCRIPTION, args=arguments)


def _warning_line(message: Warning | str, category: type[Warning], *_: object) -> str:
    """A warning as people read it: what, not where in the code, and without the colours of Gymnasium."""
    return printable(f"secret-rl: {category.__name__}: {_COLOUR.sub('', str(message))}\n")


@contextmanager
def _stoppable() -> Iterator[list[int]]:
    """SIGTERM ends a command as Ctrl-C does; gives the signals that came. One that is ignored stays so."""
    received: list[int] = []

    def stop(number: int, _: object) -> None:
        received.append(number)
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    main_thread = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM) if main_thread}
    for number, handler in before.items():
        if handler not in (None, signal.SIG_IGN):
            signal.signal(number, stop)
    try:
        yield received
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)


@contextmanager
def _any_text() -> Iterator[None]:
    """Standard output takes any text meanwhile: a question mark stands for what its encoding lacks."""
    out = sys.stdout
    if not isinstance(out, io.TextIOWrapper) or out.errors != "strict":
        yield
        return
    with suppress(OSError):  # a pipe that is closed by now
        out.reconfigure(errors="replace")
    try:
        yield
    finally:
        with suppress(OSError):
            out.reconfigure(errors="strict")
