"""Credit in tasks of others, with default settings: is it right, and does the verdict say so?"""

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import secret_rl as srl
from paper import records
from paper.credit_runs import METHOD, RESULTS, THRESHOLD, interval, machine
from paper.tasks.unseen import UNSEEN
from paper.tasks.unseen_small import UNSEEN_SMALL
from paper.tasks.unseen_third import UNSEEN_THIRD
from secret_rl import sweep
from secret_rl.atomic import replace_text
from secret_rl.credit import NotLearnedWarning, PastNotNeededWarning
from secret_rl.credit.rivals import readouts
from secret_rl.sweep import Workers
from secret_rl.tasks import Task, bsuite, load_data, minigrid, mountain_car, no_past, popgym, taxi

DATA = Path("runs/paper/tasks")
SOURCE, HELD_OUT = 0, 1_001  # seeds of the data
_FAMILIES = (bsuite, minigrid, mountain_car, popgym, taxi, no_past)
TASKS: dict[str, Task] = {task.name: task for family in _FAMILIES for task in family.TASKS}
_ALL = TASKS | UNSEEN | UNSEEN_SMALL | UNSEEN_THIRD
_CHOSEN = (
    "Default settings, data as users would have it. The defaults were chosen on these very tasks, with other episodes "
    "to judge on (DEVIATIONS.md), so this tells nothing for sure of a task that they have not met."
)
READOUTS = readouts.READOUTS[:3]
_NUMBERS = ("precision", "recall", "predicted", *READOUTS)


@dataclass(frozen=True)
class Result:
    """Which tasks, and with how many seeds of the model."""

    name: str
    tasks: Sequence[str]
    seeds: int
    held_out: int = 500
    """Episodes that credit is judged on."""
    episodes: int | None = None
    """To learn from; None: as many as the task says."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of ``Secret``; none in the full size."""
    title: str = "Credit in tasks of others"
    chosen: str = _CHOSEN
    """What the tasks had to do with the choice of the defaults."""

    @property
    def path(self) -> Path:
        """Where the numbers are kept."""
        return RESULTS / f"{self.name}.json"

    def settings(self, task: str, seed: int) -> dict[str, Any]:
        """What a run depends on, as JSON gives it back."""
        content = {
            "task": task, "seed": seed, "episodes": self.episodes or _ALL[task].episodes, "held_out": self.held_out,
            "options": dict(self.options), "method": METHOD,
        }  # fmt: skip
        return json.loads(json.dumps(content))  # type: ignore[no-any-return]


def result(quick: bool) -> Result:
    """The full size, or a small one for a quick look."""
    if quick:
        few: dict[str, Any] = {"steps": 100, "units": 32, "batch_size": 32}
        return Result("beyond_triggers-quick", ("memory_len", "taxi_delivery", "taxi_seen"), 1, 100, 300, few)
    return Result("beyond_triggers", tuple(TASKS), 5)


def run(result: Result, command: str, workers: Workers | None = None, *, only: str | None = None) -> Path:
    """Fit and judge every task with every seed; what is there with the same settings stays."""
    if only is not None and only not in result.tasks:
        raise ValueError(f"no such task: {only}; choose from {', '.join(result.tasks)}")
    record = records.load(result.path)
    # every task once before any twice: an interrupted table has no empty rows
    asked = [result.settings(task, seed) for seed in range(result.seeds) for task in result.tasks]
    missing = [s for s in asked if only in (None, s["task"]) and records.entry_of(record, s) is None]
    labels = [f"{settings['task']}, seed {settings['seed']}" for settings in missing]
    cells = [sweep.Cell(label, own, partial(learn, own)) for label, own in zip(labels, missing, strict=True)]
    found, failures = sweep.run(cells, records.CELLS / result.name, workers)
    for label, settings, outcome in zip(labels, missing, found, strict=True):
        if outcome is not None:
            records.keep(result.path, record, {"label": label, "settings": settings, **outcome}, command)
            print(f"  {label}: {_line(outcome)}", flush=True)
    sweep.check(failures, command)
    return result.path


def learn(settings: Mapping[str, Any]) -> dict[str, Any]:
    """One run: fit to the data of a task, and judge on data that the model has not seen."""
    task = _ALL[settings["task"]]
    source = load_data(task, settings["episodes"], SOURCE, DATA)
    secret = srl.Secret(seed=settings["seed"], device="cpu", **settings["options"])
    with warnings.catch_warnings():
        for category in (NotLearnedWarning, PastNotNeededWarning):  # the verdict is in the table
            warnings.simplefilter("ignore", category)
        secret.fit(source.trajectories, progress=False)
    assert secret.report is not None
    fit = {name: value for name, value in secret.report.to_json().items() if name != "curve"}
    found = {"fit": fit, "machine": machine(torch.device("cpu"))}
    return found | ({"quality": judged(secret, task, settings["held_out"])} if task.past_matters else {})


def judged(secret: srl.Secret, task: Task, episodes: int) -> dict[str, float]:
    """Precision, recall and share predicted of attention, and the average precision of each read-out."""
    held_out = load_data(task, episodes, HELD_OUT, DATA)
    found: dict[str, float] = {}
    attention = secret.attribute(held_out.trajectories, rewards=task.judged, progress=False)
    for readout in READOUTS:
        credit = readouts.read_out(secret, held_out.trajectories, attention, readout)
        quality = srl.credit_quality(
            credit, held_out.truth, THRESHOLD, tolerance=task.tolerance, events=task.events, rewards=task.judged
        )
        found[readout] = quality.average_precision
        if readout == "attention":
            found |= {"precision": quality.precision, "recall": quality.recall}
            wanted = task.judged_rewards(held_out)
            predicted = wanted[held_out.trajectories.offsets[credit.episode] + credit.step]
            found["predicted"] = int(predicted.sum()) / max(int(wanted.sum()), 1)
    return found


def table(result: Result) -> Path:
    """The tasks in which the past decides rewards, and those in which it does not, as Markdown."""
    record = records.load(result.path)
    titles = ["task", "verdict", "history gain", "precision", "recall", "predicted"]
    titles += [f"AP {readout}" for readout in READOUTS] + ["updates", "seconds"]
    lines = [f"# {result.title}", "", result.chosen.format(fits=len(record["panels"])), ""]
    lines += ["## Rewards that the past decides", "", *_row(titles), *_row(["---"] * len(titles))]
    lines += [line for name in result.tasks if _ALL[name].past_matters for line in _task_row(result, record, name)]
    titles = ["task", "verdict", "true", "history gain", "updates", "seconds"]
    lines += ["", "## Rewards that the present decides", "", *_row(titles), *_row(["---"] * len(titles))]
    lines += [line for name in result.tasks if not _ALL[name].past_matters for line in _task_row(result, record, name)]
    lines += [
        "",
        f"Mean over seeds with a 95 % bootstrap interval. Judged on {result.held_out} held-out episodes each. "
        "*verdict*: of the fits, how many came to which; *history gain*: of the uncertainty that the present leaves "
        "about held-out rewards, the share that the past removes; *precision* and *recall* at attention > "
        f"{THRESHOLD}; *predicted*: of the rewards with a known cause, the share that the model predicts and the "
        "present leaves open; *AP*: average precision of the steps ranked by each read-out.",
        "",
        *(_about(result, _ALL[name]) for name in result.tasks),
        "",
        f"`{record.get('command')}`, {record.get('date')}, "
        f"{'; '.join(sorted({entry['machine'] for entry in record['panels']}))}.",
        "",
    ]
    path = RESULTS / f"{result.name}.md"
    replace_text(path, "\n".join(lines))
    return path


def _task_row(result: Result, record: Mapping[str, Any], name: str) -> list[str]:
    """The row of a task."""
    found = [records.entry_of(record, result.settings(name, seed)) for seed in range(result.seeds)]
    runs = [entry for entry in found if entry is not None]
    if not runs:
        return _row([name, "not run"])
    verdicts = [entry["fit"]["verdict"] for entry in runs]
    counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts))
    gain = interval([entry["fit"]["gain"]["share"] for entry in runs])
    effort = [f"{np.mean([entry['fit'][key] for entry in runs]):,.0f}" for key in ("steps", "seconds")]
    if not _ALL[name].past_matters:
        return _row([name, counts, f"{verdicts.count('past not needed')} of {len(runs)}", gain, *effort])
    numbers = [interval([entry["quality"][key] for entry in runs]) for key in _NUMBERS]
    return _row([name, counts, gain, *numbers, *effort])


def _about(result: Result, task: Task) -> str:
    how = f", within {task.tolerance} step" * bool(task.tolerance) + ", any cause" * (task.events == "any")
    return f"- {task.name}: {task.description} {task.source}; {result.episodes or task.episodes:,} episodes{how}."


def _row(cells: Sequence[str]) -> list[str]:
    return ["| " + " | ".join(cells) + " |"]


def _line(outcome: Mapping[str, Any]) -> str:
    fit = outcome["fit"]
    quality = "".join(f", {name} {value:.3f}" for name, value in outcome.get("quality", {}).items())
    return (
        f"{fit['verdict']}, gain {fit['gain']['share']:.2f}{quality} ({fit['steps']} updates, {fit['seconds']:.0f} s)"
    )


def main(
    quick: bool, command: str, analyse_only: bool = False, *, only: str | None = None, workers: Workers | None = None
) -> list[str]:
    """Run, and write the table."""
    this = result(quick)
    if not analyse_only:
        run(this, command, workers, only=only)
    return [str(table(this))]
