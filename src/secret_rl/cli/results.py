"""The command that makes the paper's results."""

import os
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import ClassVar

from tyro.conf import Positional

from secret_rl.cli.output import Output


@dataclass(frozen=True)
class Paper(Output):
    """Make a result of the paper, from a clone of the repository."""

    names: Positional[tuple[str, ...]] = ()
    """Which results; all of them if none is named."""
    quick: bool = False
    """A small size for two cores."""

    resumable: ClassVar[bool] = True

    def run(self) -> None:
        """Hand over to the paper package of the clone."""
        if not Path("paper", "__main__.py").is_file():
            raise FileNotFoundError(
                "the paper's results are run from the root of a clone of the repository, where the paper folder is"
            )
        sys.path.insert(0, str(Path.cwd()))
        paper = import_module("paper.__main__")
        with Path(os.devnull).open("w") as nowhere:
            told = nowhere if self.quiet else sys.stderr if self.json else sys.stdout
            with redirect_stdout(told):
                files = paper.main([*self.names, *(["--quick"] if self.quick else [])])
        if self.json:
            self.answer("", {"files": files})
