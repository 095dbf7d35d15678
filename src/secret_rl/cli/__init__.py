"""The ``secret-rl`` command: the same steps as the library, from a terminal."""

import os
import sys
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import gymnasium as gym
import tyro

import secret_rl
from secret_rl.cli.completion import completion_script
from secret_rl.cli.credit import Attribute, Fit, Quality
from secret_rl.cli.data import Collect, Info
from secret_rl.cli.demo import Demo
from secret_rl.cli.explore import Explore
from secret_rl.cli.learning import Learn, Potential
from secret_rl.cli.output import UsageError
from secret_rl.cli.play import Play
from secret_rl.cli.reporting import Report
from secret_rl.cli.results import Paper
from secret_rl.progress import no_bars

_EXPECTED_ERRORS = (ValueError, TypeError, OSError, RuntimeError, ModuleNotFoundError, gym.error.Error)

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

Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 130 interrupted."""


def main(arguments: list[str] | None = None) -> int:
    """Run a command; give the exit code: 0 done, 1 refused or failed, 2 wrong usage, 130 interrupted."""
    arguments = sys.argv[1:] if arguments is None else arguments
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
        with no_bars() if getattr(command, "quiet", False) else nullcontext():
            command.run()
        sys.stdout.flush()  # here, where a closed pipe can be told from a failure
    except KeyboardInterrupt:
        again = ": the same command goes on where this one stopped" if getattr(command, "resumable", False) else ""
        print(f"\ninterrupted{again}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except UsageError as wrong:
        hint = " ".join(["secret-rl", *(word for word in arguments[:1] if word in _COMMANDS), "--help"])
        print(f"secret-rl: {wrong}\nsee {hint}", file=sys.stderr)
        return 2
    except _EXPECTED_ERRORS as error:
        print(f"secret-rl: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    finally:
        warnings.formatwarning = before
    return 0


def _parse(arguments: list[str]) -> Any:
    return tyro.extras.subcommand_cli_from_dict(_COMMANDS, prog="secret-rl", description=_DESCRIPTION, args=arguments)


def _warning_line(message: Warning | str, category: type[Warning], *_: object) -> str:
    """A warning as people read it: what, not where in the code."""
    return f"secret-rl: {category.__name__}: {message}\n"
