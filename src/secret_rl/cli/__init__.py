"""The ``secret-rl`` command: the same steps as the library, from a terminal."""

import sys
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import tyro

import secret_rl
from secret_rl.cli.credit import Attribute, Fit, Quality
from secret_rl.cli.data import Collect, Info
from secret_rl.cli.demo import Demo
from secret_rl.cli.learning import Learn, Potential
from secret_rl.cli.play import Play
from secret_rl.cli.results import Paper

_EXPECTED_ERRORS = (ValueError, TypeError, OSError, RuntimeError, ModuleNotFoundError, gym.error.Error)

_COMMANDS: dict[str, Callable[..., Any]] = {
    "collect": Collect,
    "info": Info,
    "play": Play,
    "fit": Fit,
    "attribute": Attribute,
    "quality": Quality,
    "potential": Potential,
    "learn": Learn,
    "paper": Paper,
    "demo": Demo,
}


def main(arguments: list[str] | None = None) -> int:
    """Run a command; give the exit code: 0 done, 1 refused or failed, 2 wrong usage, 130 interrupted."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["--version"]:
        print(f"secret-rl {secret_rl.__version__}")
        return 0
    command = tyro.extras.subcommand_cli_from_dict(
        _COMMANDS,
        prog="secret-rl",
        description="Find out which past actions earned a reward. --version prints the version.",
        args=arguments,
    )
    try:
        command.run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except _EXPECTED_ERRORS as error:
        print(f"secret-rl: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0
