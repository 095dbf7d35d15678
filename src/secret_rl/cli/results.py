"""Commands that show results: pages of runs, and the paper's tables and figures."""

import os
import sys
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path

from tyro.conf import Positional

from secret_rl.cli.command import Command, UsageError, command


@command("report")
class Report(Command):
    """One HTML page of one or several runs: configuration, data, training, credit quality, learning curves, verdict.

    The page is one file that needs no network and runs no script. Of several runs it shows what differs.
    """

    # Folders left by fit (ending in .run), learn, demo or train(folder=...), and models written by fit.
    runs: Positional[tuple[Path, ...]]
    # File to write; by default report.html in the folder of the run, or here if there are several.
    out: Path | None = None

    def run(self) -> None:
        """Write the page."""
        from secret_rl.report import write_report

        if not self.runs:
            raise UsageError("name at least one run to report")
        alone = len(self.runs) == 1 and self.runs[0].is_dir()
        path = write_report(self.runs, self.out or (self.runs[0] if alone else Path()) / "report.html")
        self.saved(f"report      {path}", {"report": path, "runs": list(self.runs)})


@command("paper", resumable=True)
class Paper(Command):
    """Make a result of the paper, from a clone of the repository."""

    names: Positional[tuple[str, ...]] = ()  # Which results; all of them if none is named.
    quick: bool = False  # A small size for two cores.
    jobs: int | None = None  # Runs at a time, each in a process of its own; by default one, in this one.
    # Run on Ray: "auto", an address, or "local" for a Ray of --jobs workers that ends with this.
    ray: str | None = None

    def run(self) -> None:
        """Call the paper package of the clone."""
        if not Path("paper", "__main__.py").is_file():
            raise FileNotFoundError("the paper's results are run from the root of a clone, where the paper folder is")
        sys.path.insert(0, str(Path.cwd()))
        notes = sys.stderr if self.json else sys.stdout
        with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere if self.quiet else notes):
            where = [
                word for name in ("jobs", "ray") if (value := getattr(self, name)) for word in (f"--{name}", str(value))
            ]
            words = [*self.names, *(["--quick"] if self.quick else []), *where]
            files = import_module("paper.__main__").main(words)
        if self.json:
            self.answer("", {"files": files})
