"""A leaderboard as files: pages for readers, explorers, CSV and JSON for plots of one's own, two figures."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from secret_rl.atomic import replace_text
from secret_rl.credit.attributions import Attributions
from secret_rl.evaluation.benchmark import HELD_OUT, JUDGE, Cell, credit_path, data_of, fitted_method, outcome_of
from secret_rl.evaluation.leaderboard import BOUNDS, NUMBERS, Leaderboard, Row
from secret_rl.evaluation.statistics import Estimate
from secret_rl.evaluation.worth import CONDITIONS, INSTANCES, SEEDS, TARGETS
from secret_rl.files import plain, write_csv
from secret_rl.report.explorer import explore
from secret_rl.report.figures import plot_heat_map, plot_ranks, save_figure
from secret_rl.tasks import task_of

NAME = "leaderboard"  # how files begin
_EPISODES = 12  # on an explorer page
_COLUMNS = (*NUMBERS, "agreement", "fit_seconds", "attribution_seconds", "megabytes")
_LEGEND = (
    "*AP*: average precision of the steps before a reward, ranked by credit, over all rewards with a known cause in "
    "held-out episodes; a reward that the method does not attribute counts 0. Mean over seeds, with the 95 % bootstrap "
    "interval. *attributed*: the share that it attributes, *AP there*: over those alone. *precision* and *recall*: at "
    "the method's own threshold of credit. *deletion*: how much more the probability of the reward falls when credited "
    "steps are replaced than when random ones are, by a SECRET model of another seed as judge; - where that model has "
    "not learned the task. *agreement*: overlap of the credit of two seeds. *fit*, *attribute*: processor seconds, one "
    "thread; *memory*: by how much it rises in the fit."
)
_STANDINGS = (
    "*AP*: average precision of the steps that truly earned a reward, mean over tasks and seeds, with the 95 % "
    "bootstrap interval over both; 0 on a task that the method cannot read. *rank*: mean over tasks of the place by "
    "average precision; what is equal to the hundredth shares a place. Methods that are given the truth are not ranked."
)

Worth = Mapping[tuple[str, str], Mapping[str, Estimate]]
"""By task and method, as ``evaluation.worth.compared`` gives it."""


def write_leaderboard(
    board: Leaderboard, folder: str | Path, about: str, worth: Worth = MappingProxyType({})
) -> list[Path]:
    """Write a leaderboard into a folder: Markdown, CSV, JSON, two figures as PNG and SVG, and a page for each task.

    Args:
        board: What to write.
        folder: Where. A task's page links to the explorer that ``write_explorers`` wrote, if that is there.
        about: Command, machine and date: where the numbers come from.
        worth: What credit is worth to an agent, for a section of the task's page.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    page, data = folder / f"{NAME}.md", folder / f"{NAME}.json"
    rows = [row.to_json() for row in board.rows.values()]
    standings = [plain({**vars(s), "average_precision": s.average_precision.to_json()}) for s in board.standings]
    learned = [
        {"task": task, "method": method, **{name: estimate.to_json() for name, estimate in found.items()}}
        for (task, method), found in worth.items()
    ]
    content = {"about": about, "standings": standings, "rows": plain(rows), "worth": learned}
    replace_text(data, json.dumps(content, indent=1) + "\n")
    figures = [
        path
        for kind, figure in (("heat", _heat(board)), ("ranks", _ranks(board)))
        for path in save_figure(figure, folder / f"{NAME}-{kind}")
    ]
    replace_text(page, _overview(board, about))
    pages = [folder / f"{task}.md" for task in board.tasks]
    for task, path in zip(board.tasks, pages, strict=True):
        own = {method: found for (of, method), found in worth.items() if of == task}
        replace_text(path, _task_page(board, task, about, own, (folder / _explorer(task)).is_file()))
    return [page, data, _write_table(board, folder / f"{NAME}.csv"), *figures, *pages]


def write_explorers(folder: Path, out: Path, cells: Sequence[Cell]) -> list[Path]:
    """Write an explorer page for each task: held-out episodes as SECRET sees them, and the credit of all methods.

    Args:
        folder: Of the benchmark.
        out: Where.
        cells: Those of the benchmark; fits with the first seed are shown.
    """
    written = []
    for task in dict.fromkeys(cell.task for cell in cells):
        own = {c.method: credit_path(folder, c) for c in cells if c.task == task and c.seed == 0}
        beside = {m: Attributions.load(path) for m, path in own.items() if m != JUDGE and path.is_file()}
        shown = next((c for c in cells if (c.task, c.method, c.seed) == (task, JUDGE, 0)), None)
        if shown is None or "average_precision" not in (outcome_of(folder, shown) or {}):
            continue
        data = data_of(folder, shown, HELD_OUT)
        marked = replace(data.trajectories, annotations={"true event": data.causes()}, trusted=True)
        path = out / _explorer(task)
        explore(
            fitted_method(folder, shown), marked, path, trajectories=_EPISODES, beside=beside,
            title=f"Credit methods on {task}", progress=False,
        )  # fmt: skip
        written.append(path)
    return written


def _explorer(task: str) -> str:
    return f"{task}-explorer.html"  # the site makes <task>.html of the task's page


def _overview(board: Leaderboard, about: str) -> str:
    """Standings, figures, and the tasks."""
    lines = ["# Standings", ""]
    if board.standings:
        tasks = board.standings[0].tasks
        lines += _table(
            ["method", f"mean AP, {tasks} tasks", "mean rank", "first, or within its interval"],
            [
                [s.method, _interval(s.average_precision), f"{s.rank:.1f}", f"{s.first} of {s.tasks}"]
                for s in board.standings
            ],
        )
    lines += [_STANDINGS, ""]
    lines += [f"![Average precision of each method on each task]({NAME}-heat.png)", ""]
    lines += [f"![Ranks of the methods over the tasks]({NAME}-ranks.png)", ""]
    lines += _table(["task", "what decides"], [[f"[{t}]({t}.md)", task_of(t).description] for t in board.tasks])
    return "\n".join([*lines, about, ""])


def _task_page(board: Leaderboard, task: str, about: str, worth: Mapping[str, Any], explorer: bool) -> str:
    known = task_of(task)
    lines = [f"# {task}", "", f"{known.description} ({known.source}; {known.episodes:,} source episodes.)", ""]
    if explorer:
        lines += [f"[Compare the methods on the same episodes]({_explorer(task)})", ""]
    rows = [board.rows[method, task] for method in board.methods if (method, task) in board.rows]
    rows.sort(key=lambda row: -np.nan_to_num(board.score(row.method, task), nan=-1))
    titles = ["method", "AP", "AP there", "attributed", "precision", "recall", "deletion", "agreement"]
    lines += _table([*titles, "verdicts", "fit", "attribute", "memory"], [_cells(row) for row in rows])
    lines += [_LEGEND, ""]
    if worth:
        lines += ["## Worth to an agent", ""]
        lines += _table(["method", *CONDITIONS], [[method, *_worth_cells(found)] for method, found in worth.items()])
        lines += [
            f"Tabular Q-learning in {INSTANCES} held-out instances, {SEEDS} learners in each for every fit of the "
            f"method, {known.practice:,} episodes: mean discounted, unshaped return over training as a share of the "
            f"best. *none*: no shaping. *value*: the Monte-Carlo value of {TARGETS:,} random target trajectories, no "
            "credit. *zero-shot*: `OnlineCredit` of the method, no target trajectory. *pending*: its pending credit of "
            "the target trajectories. The same settings for all methods.",
            "",
        ]
    return "\n".join([*lines, about, ""])


def _worth_cells(found: Mapping[str, Estimate]) -> list[str]:
    return [f"{found[name]:.2f}" if name in found else "-" for name in CONDITIONS]


def _cells(row: Row) -> list[str]:
    if row.refused is not None:
        return [row.method, f"cannot read it: {row.refused}", *[""] * 10]
    if row.average_precision is None:
        return [row.method, "no truth to judge by", *[""] * 6, _verdicts(row), *[""] * 3]
    numbers = [_number(row.numbers[name]) for name in (*NUMBERS, "agreement")]
    seconds = [
        f"{row.numbers[name] or 0:.{digits}f} s" for name, digits in (("fit_seconds", 0), ("attribution_seconds", 2))
    ]
    memory = row.numbers["megabytes"]
    return [
        row.method, _interval(row.average_precision), *numbers, _verdicts(row), *seconds,
        "-" if memory is None else f"{memory:.0f} MB",
    ]  # fmt: skip


def _interval(estimate: Estimate) -> str:
    """With its interval, where there is one."""
    return f"{estimate:.2f}" if np.isfinite(estimate.low) else f"{estimate.value:.2f}"


def _verdicts(row: Row) -> str:
    return ", ".join(f"{count} {verdict}" for verdict, count in row.verdicts.items())


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(cells) + " |" for cells in (titles, ["---"] * len(titles), *rows)]
    return [*lines, ""]


def _write_table(board: Leaderboard, path: Path) -> Path:
    header = ["method", "task", "seeds", "average_precision", "low", "high", *_COLUMNS, "refused"]

    def cells(row: Row) -> list[object]:
        precision = row.average_precision
        ends = ["", "", ""] if precision is None else [precision.value, precision.low, precision.high]
        numbers = ["" if (value := row.numbers.get(name)) is None else value for name in _COLUMNS]
        return [row.method, row.task, row.seeds, *ends, *numbers, row.refused or ""]

    return write_csv(path, header, (cells(row) for row in board.rows.values()))


def _heat(board: Leaderboard) -> Any:
    """Average precision, methods by tasks: best methods first, bounds last."""
    order = _ordered(board)
    values = [[board.score(method, task) for task in board.tasks] for method in order]
    return plot_heat_map(np.array(values).reshape(len(order), -1), order, board.tasks, "average precision")


def _ranks(board: Leaderboard) -> Any:
    """The rank of each method on each task, and the mean."""
    ranks = np.array([standing.ranks for standing in board.standings]).reshape(len(board.standings), -1)
    names = [standing.method for standing in board.standings]
    return plot_ranks(names, ranks, [standing.rank for standing in board.standings])


def _ordered(board: Leaderboard) -> list[str]:
    ranked = [standing.method for standing in board.standings]
    others = [method for method in board.methods if method not in ranked]
    return [*ranked, *sorted(others, key=lambda method: method in BOUNDS)]
