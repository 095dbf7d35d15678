"""The command that shows what runs came to."""

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from secret_rl.cli.output import Output, UsageError


@dataclass(frozen=True)
class Report(Output):
    """One HTML page of one or several runs: configuration, data, training, credit quality, learning curves, verdict.

    The page is one file that needs no network and runs no script. Of several runs it shows what differs, and draws
    together what was learned in the same tasks.
    """

    runs: Positional[tuple[Path, ...]]
    """Folders left by fit (ending in .run), learn, demo or train(folder=...), and models written by fit."""
    out: Path | None = None
    """File to write; by default report.html in the folder of the run, or here if there are several."""

    def run(self) -> None:
        """Write the page."""
        from secret_rl.report import write_report

        if not self.runs:
            raise UsageError("name at least one run to report")
        out = self.out
        if out is None:
            out = self.runs[0] / "report.html" if len(self.runs) == 1 and self.runs[0].is_dir() else Path("report.html")
        path = write_report(self.runs, out)
        self.saved(f"report      {path}", {"report": path, "runs": list(self.runs)})
