"""The command that makes the paper's results."""

import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from tyro.conf import Positional


@dataclass(frozen=True)
class Paper:
    """Make a result of the paper, from a clone of the repository."""

    names: Positional[tuple[str, ...]] = ()
    """Which results; all of them if none is named."""
    quick: bool = False
    """A small size for two cores."""

    def run(self) -> None:
        """Hand over to the paper package of the clone."""
        if not Path("paper", "__main__.py").is_file():
            raise FileNotFoundError(
                "the paper's results are run from the root of a clone of the repository, where the paper folder is"
            )
        sys.path.insert(0, str(Path.cwd()))
        paper = import_module("paper.__main__")
        paper.main([*self.names, *(["--quick"] if self.quick else [])])
