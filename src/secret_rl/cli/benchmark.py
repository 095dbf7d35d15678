"""The command that compares credit methods."""

import os
import platform
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

from secret_rl.cli.command import Command, UsageError, command
from secret_rl.cli.fields import one_of
from secret_rl.credit.base import methods

if TYPE_CHECKING:
    Method = str
else:
    Method = one_of(methods())


@command("benchmark", resumable=True)
class Benchmark(Command):
    """Compare credit methods on tasks whose rewards have known causes.

    Every method, task and seed is a cell. What is in the folder already is not computed again: the same command goes
    on after an interruption, and a new method or task only adds its cells.
    """

    out: Path = Path("runs/benchmark")  # Folder of data, models, cells and the leaderboard.
    methods: tuple[Method, ...] = ()  # Which methods; by default all.
    tasks: tuple[str, ...] = ()  # Which tasks; by default all whose rewards the past decides, but for keys_doors.
    seeds: int = 3  # Fits of each method on each task.
    jobs: int = 0  # Processes on this machine; by default one for each core.
    ray: str | None = None  # Run on Ray: "auto", an address, or "local" for one of --jobs workers that ends with this.
    quick: bool = False  # Small data and short training, one seed, four tasks: five minutes on two cores.
    explorers: bool = False  # Write a page for each task, too, that shows the methods on the same episodes.
    list_tasks: bool = False  # Only say which tasks there are.

    def run(self) -> None:
        """Run what is missing, and write the leaderboard."""
        from secret_rl.evaluation import benchmark, worth
        from secret_rl.evaluation.leaderboard import leaderboard
        from secret_rl.report.leaderboard import write_explorers, write_leaderboard
        from secret_rl.sweep import Failure, Workers
        from secret_rl.tasks import tasks

        if self.list_tasks:
            known = tasks()
            width = max(map(len, known))
            lines = [
                fill(f"{name:{width}}  {task.description}", 80, subsequent_indent=" " * (width + 2))
                for name, task in known.items()
            ]
            self.answer("\n".join(lines), {name: task.description for name, task in known.items()})
            return
        if self.seeds < 1 or self.jobs < 0:
            raise UsageError(f"--seeds must be at least 1 and --jobs 0 or more, got {self.seeds} and {self.jobs}")
        few = benchmark.QUICK_TASKS if self.quick and not self.tasks else self.tasks
        cells = benchmark.cells_of(self.methods, few, 1 if self.quick else self.seeds, quick=self.quick)
        workers = Workers(self.jobs or os.cpu_count() or 1, self.ray)
        failed = benchmark.run(self.out, cells, workers)
        failed |= worth.run(self.out, [cell for cell in cells if cell not in failed], workers)
        board = leaderboard(self.out, cells)
        pages = write_explorers(self.out, self.out, cells) if self.explorers else []
        about = f"{_command(self)}, {datetime.now(UTC).date()}, {_machine()}."
        written = write_leaderboard(board, self.out, about, worth=worth.compared(self.out, cells))
        lines = [
            f"{s.method:28} AP {s.average_precision:.2f}  rank {s.rank:4.1f}  first {s.first:2d} of {s.tasks}"
            for s in board.standings
        ]
        lines += [f"failed  {Failure(cell.name, asdict(cell), reason)}" for cell, reason in failed.items()]
        lines += [f"again   {self._repeated()}"] if failed else []
        lines += [f"saved   {path}" for path in (written[0], *pages)]
        self.answer(
            "\n".join(lines),
            {
                "leaderboard": written[1],
                "explorers": pages,
                "failed": {cell.name: reason for cell, reason in failed.items()},
            },
        )

    def _repeated(self) -> str:
        """The command that computes what is missing, and nothing else."""
        words = [_command(self).strip("`"), f"--out {self.out}", f"--jobs {self.jobs}" * bool(self.jobs)]
        words += [f"--ray {self.ray}" if self.ray else "", "--explorers" * self.explorers]
        return " ".join(word for word in words if word)


def _command(options: Benchmark) -> str:
    words = ["secret-rl benchmark", *(["--quick"] if options.quick else [f"--seeds {options.seeds}"])]
    words += [f"--{name} {' '.join(value)}" for name in ("methods", "tasks") if (value := getattr(options, name))]
    return f"`{' '.join(words)}`"


def _machine() -> str:
    return f"{platform.machine()}, {os.cpu_count()} cores, one thread a cell"
