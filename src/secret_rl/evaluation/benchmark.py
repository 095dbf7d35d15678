"""Credit methods on tasks with known causes: a cell is a method, a task and a seed, and one file.

Cells run in parallel, in any order and on any day; what is there is never computed again.
"""

import inspect
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from secret_rl.credit.attributions import Attributions
from secret_rl.credit.base import load_method, method_class, methods
from secret_rl.evaluation.deletion import deletion_test
from secret_rl.evaluation.quality import credit_quality
from secret_rl.files import FileFormat, FileFormatError, plain
from secret_rl.progress import Show, progress_bar
from secret_rl.sweep import Workers, run_each
from secret_rl.tasks import Data, load_data, task_of, tasks
from secret_rl.version import VERSION

SOURCE, HELD_OUT = 0, 1_001  # seeds of the data
THRESHOLD = 0.2  # of credit, for precision and recall, unless a method has its own
JUDGE, JUDGE_SEED = "secret", 1_000  # who judges the deletion test; no cell has this seed
NEEDS_TRUTH = ("oracle",)  # methods that read the causes
_TRUTH = "cause"  # the annotation for them
QUICK_TASKS = ("triggers_8x8_1t1p", "key_to_door_apples", "taxi_delivery", "memory_len")
_DELETED = 200  # rewards of the deletion test
_QUICK = {"steps": 150, "units": 32}
_FORMAT = FileFormat("secret-rl benchmark cell", remedy="delete it: the same command computes it again")


@dataclass(frozen=True, order=True)
class Cell:
    """One method on one task with one seed."""

    task: str
    method: str
    seed: int
    quick: bool = False

    @property
    def name(self) -> str:
        """Names its files."""
        return f"{self.task}/{self.method}-s{self.seed}{'-quick' * self.quick}"

    @property
    def fitted_as(self) -> str:
        """The method whose fit this one uses: its own, or for another read-out that of the method it reads."""
        return getattr(method_class(self.method), "fitted_as", self.method)

    def settings(self) -> dict[str, Any]:
        """What the outcome depends on."""
        task = task_of(self.task)
        size = {"episodes": task.quick if self.quick else task.episodes, "held_out": 100 if self.quick else 500}
        settings: dict[str, Any] = plain({**asdict(self), **size, "version": VERSION})
        return settings


def default_tasks() -> list[str]:
    """The tasks that are compared: all whose rewards the past decides, but for costly ones."""
    return [name for name, task in tasks().items() if task.past_matters and not task.costly]


def cells_of(
    method_names: Sequence[str] = (), task_names: Sequence[str] = (), seeds: int = 3, *, quick: bool = False
) -> list[Cell]:
    """The cells of a benchmark, seed by seed, so that an interrupted table has few empty places.

    Args:
        method_names: By default all methods.
        task_names: By default ``default_tasks``.
        seeds: How many.
        quick: A small size.
    """
    chosen, wanted = list(method_names or methods()), list(task_names or default_tasks())
    for name in chosen:
        method_class(name)  # an unknown one is refused
    for name in wanted:
        task_of(name)
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    return [Cell(task, method, seed, quick) for seed in range(seeds) for task in wanted for method in chosen]


def outcome_of(folder: Path, cell: Cell) -> dict[str, Any] | None:
    """What a cell came to; None if it was not run with these settings."""
    path = folder / "cells" / f"{cell.name}.json"
    if not path.is_file():
        return None
    content = _FORMAT.read_json(path)
    outcome: dict[str, Any] = content["outcome"]
    return outcome if content["settings"] == cell.settings() else None


def judge_of(cell: Cell) -> Cell:
    """The fit that judges the deletion test of a cell: of SECRET, with a seed that no cell has."""
    return replace(cell, method=JUDGE, seed=JUDGE_SEED)


def run(
    folder: Path, cells: Sequence[Cell], workers: Workers | None = None, *, progress: Show = None
) -> dict[Cell, str]:
    """Run the cells that are missing.

    Args:
        folder: Of data, models and results.
        cells: Those wanted.
        workers: Where they run.
        progress: Show a progress bar; by default if the terminal is interactive.

    Returns:
        The cells that failed, with the reason. A method that cannot read a task has not failed: its cell says so.
    """
    missing = [cell for cell in cells if outcome_of(folder, cell) is None]
    # Cells that share a fit run one after the other, in one process.
    groups: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in missing:
        groups.setdefault((cell.task, cell.fitted_as, cell.seed, cell.quick), []).append(cell)
    judges = [judge for judge in dict.fromkeys(map(judge_of, missing)) if _effort_of(folder, judge) is None]
    failed: dict[Cell, str] = {}
    with progress_bar(progress, "cells") as tick:
        done = len(cells) - len(missing)
        for _ in run_each([partial(_fitted, folder, judge) for judge in judges], workers, fresh=True):
            tick("judges of the deletion test", done, len(cells))  # a task that the judge cannot read has none
        shared = list(groups.values())
        # fresh: a process that has used memory before says less of what a fit takes
        for number, reason in run_each([partial(run_group, folder, group) for group in shared], workers, fresh=True):
            done += len(shared[number])
            if reason is not None:
                failed |= {cell: reason for cell in shared[number] if outcome_of(folder, cell) is None}
            tick(shared[number][-1].name, done, len(cells))
    return failed


def run_group(folder: Path, cells: Sequence[Cell]) -> None:
    """Fit once, and write the outcome of each cell that has none."""
    for cell in cells:
        if outcome_of(folder, cell) is not None:  # written before the process was killed
            continue
        try:
            outcome = _measured(folder, cell)
        except FileFormatError:  # a damaged file says nothing about the method
            raise
        except (ValueError, TypeError) as refusal:  # such spaces, or such rewards, are not for this method
            outcome = {"refused": str(refusal)}
        path = folder / "cells" / f"{cell.name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        _FORMAT.write_json(path, {"settings": cell.settings(), "outcome": plain(outcome)})


def credit_path(folder: Path, cell: Cell) -> Path:
    """Where the attributions of a cell's held-out episodes are."""
    return folder / "credit" / f"{cell.name}.safetensors"


def model_path(folder: Path, cell: Cell) -> Path:
    """Where the fitted model of a cell is."""
    return folder / "models" / f"{replace(cell, method=cell.fitted_as).name}.safetensors"


def data_of(folder: Path, cell: Cell, seed: int) -> Data:
    """Source or held-out data of a cell; the truth is an annotation for methods that need it alone."""
    settings = cell.settings()
    episodes = settings["episodes" if seed == SOURCE else "held_out"]
    data = load_data(task_of(cell.task), episodes, seed, folder / "data")
    if cell.method in NEEDS_TRUTH:
        return replace(data, trajectories=replace(data.trajectories, annotations={_TRUTH: data.truth}, trusted=True))
    return data


def _facts(folder: Path, cell: Cell) -> Path:
    """Where it is kept what the fit of a cell took; written last, so what is there is complete."""
    return model_path(folder, cell).with_suffix(".json")


def _effort_of(folder: Path, cell: Cell) -> dict[str, Any] | None:
    """What the fit of a cell took; None if there is none with these settings."""
    if not _facts(folder, cell).is_file():
        return None
    content = _FORMAT.read_json(_facts(folder, cell))
    effort: dict[str, Any] = content["effort"]
    return effort if content["settings"] == replace(cell, method=cell.fitted_as).settings() else None


def _fitted(folder: Path, cell: Cell) -> tuple[Any, dict[str, Any]]:
    """The fitted method of a cell, and what fitting took; kept in files, for other cells that use it."""
    method: Any = method_class(cell.fitted_as)
    path = model_path(folder, cell)
    if (known := _effort_of(folder, cell)) is not None:
        return load_method(path, device="cpu"), known
    taken = inspect.signature(method).parameters
    options: dict[str, Any] = {name: value for name, value in (_QUICK if cell.quick else {}).items() if name in taken}
    if cell.method in NEEDS_TRUTH:
        options["annotation"] = _TRUTH
    source = data_of(folder, cell, SOURCE).trajectories
    new = method(seed=cell.seed, device="auto" if task_of(cell.task).costly else "cpu", **options)
    with warnings.catch_warnings(), _measuring() as effort:
        warnings.simplefilter("ignore", UserWarning)  # the verdict is in the table
        new.fit(source, progress=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    new.save(path)
    settings = replace(cell, method=cell.fitted_as).settings()
    _FORMAT.write_json(_facts(folder, cell), {"settings": settings, "effort": effort})
    return new, effort


def fitted_method(folder: Path, cell: Cell) -> Any:
    """The method of a cell, fitted if it is not yet."""
    method, _ = _fitted(folder, cell)
    return method if cell.fitted_as == cell.method else method_class(cell.method).of(method)  # type: ignore[attr-defined]


def _measured(folder: Path, cell: Cell) -> dict[str, Any]:
    """Everything that the benchmark says of a cell."""
    method = fitted_method(folder, cell)
    task, held_out = task_of(cell.task), data_of(folder, cell, HELD_OUT)
    report = {"verdict": method.report.verdict, "fit": _effort_of(folder, cell)}
    wanted = task.judged_rewards(held_out)
    if not task.past_matters or not wanted.any():  # there is no truth to judge by
        return report
    with _measuring() as reading:
        credit: Attributions = method.attribute(held_out.trajectories, rewards=task.judged, progress=False)
    path = credit_path(folder, cell)
    path.parent.mkdir(parents=True, exist_ok=True)
    credit = credit[wanted[held_out.trajectories.offsets[credit.episode] + credit.step]]
    credit.save(path)
    threshold = getattr(method, "threshold", THRESHOLD)
    quality = credit_quality(
        credit, held_out.truth, threshold, tolerance=task.tolerance, events=task.events, rewards="all"
    )
    predicted = len(credit) / max(int(wanted.sum()), 1)
    return report | {
        "average_precision": quality.average_precision * predicted,  # 0 for a reward without a row
        "attributed_precision": quality.average_precision,
        "attributed": predicted,
        "precision": quality.precision,
        "recall": quality.recall * predicted,
        "threshold": threshold,
        "deletion": _deletion(folder, cell, held_out, credit, threshold),
        "reading": reading,
    }


def _deletion(folder: Path, cell: Cell, held_out: Data, credit: Attributions, threshold: float) -> float | None:
    """The deletion test of some of the rewards."""
    judge = judge_of(cell)
    if _effort_of(folder, judge) is None:
        return None
    rng = np.random.default_rng(0)
    some = rng.permutation(len(credit))[:_DELETED]
    return deletion_test(_fitted(folder, judge)[0], held_out.trajectories, credit[np.sort(some)], threshold)


def agreement(folder: Path, cells: Sequence[Cell]) -> float | None:
    """How much credit is the same in fits with different seeds: the mean overlap of the rows of two, from 0 to 1."""
    found = [Attributions.load(credit_path(folder, cell)) for cell in cells if credit_path(folder, cell).is_file()]
    overlaps = []
    for one, two in combinations(found, 2):
        rows = {place: r for r, place in enumerate(zip(two.episode.tolist(), two.step.tolist(), strict=True))}
        for r, place in enumerate(zip(one.episode.tolist(), one.step.tolist(), strict=True)):
            if place in rows:
                first, second = one.row(r), two.row(rows[place])
                both = min(len(first), len(second))
                overlaps.append(float(np.minimum(first[:both], second[:both]).sum()))
    return float(np.mean(overlaps)) if overlaps else None


@contextmanager
def _measuring() -> Iterator[dict[str, Any]]:
    """Seconds of the processor, and megabytes that memory rises by at most (where the system says: Linux)."""
    effort: dict[str, Any] = {"seconds": None, "megabytes": None}
    reset, status = Path("/proc/self/clear_refs"), Path("/proc/self/status")
    before = None
    with suppress(OSError):
        reset.write_text("5")  # the peak is the present again
        before = _peak(status)
    started = time.process_time()
    yield effort
    effort["seconds"] = time.process_time() - started
    if before is not None:
        effort["megabytes"] = (_peak(status) - before) / 1e3


def _peak(status: Path) -> float:
    """Kilobytes of memory at most, since it was reset."""
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return float(line.split()[1])
