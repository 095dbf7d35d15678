"""What every credit method is worth to PPO: its step credit as a bonus in held-out instances of two tasks, zero-shot.

The credit of every pair is computed once, where the fitted methods are: ``python -m paper.method_worth FOLDER`` after
``secret-rl benchmark --out FOLDER``. Agents learn from that one file, and need neither the methods nor compiled code.
"""

import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paper import records, solving
from paper.batched_ppo import PpoOptions, ppo_many
from paper.batched_tasks import device_of
from paper.credit_runs import RESULTS, machine
from secret_rl import sweep
from secret_rl.atomic import replacing
from secret_rl.envs.tabular import TabularModel, TabularShaping, best_return
from secret_rl.evaluation import LearningCurves
from secret_rl.sweep import Workers

TASKS = ("triggers_8x8_3t1p", "taxi_delivery")
FILE = Path("runs/paper/method_worth.npz")
NONE, COUNT, TRUE = "none", "count bonus", "true events"
_MODEL = ("next_states", "rewards", "terminated", "observations")
_THRESHOLD = 0.1  # of credit, as in OnlineCredit: what is not above it is dropped
_BONUS, _COUNT = 1.0, 0.1  # as chosen for the deep_bonus study, in other mazes
_TAXI = (5, 5, 5, 4)  # rows, columns, places of the passenger (the last is aboard), destinations
_NOTE = (
    "Agents see the whole state, credit methods what they see in their task. A step is paid its credit at "
    "once, where that is above 0.1: each (observation, action) pair once an episode, and credit of 1, a whole reward, "
    "at most. To this comes 0.1 over the root of how often the agent came to a state. *count bonus*: the latter alone. "
    "*none*: neither. *true events*: the steps that truly earn the reward, in equal shares, in place of credit. "
    "Methods were fitted on source trajectories alone; agent *s* of an instance has the fit with seed *s*. The same "
    "settings for all methods: sizes were chosen in other mazes with SECRET's credit, the limit of 1 because without "
    "it agents in the taxi pick up the passenger again and again, at other places. That the bonus fades in the taxi, "
    "and how fast, was chosen with SECRET's credit and true events in other instances, after the runs in which it "
    "stays. There the passenger can be let out and picked up anew, agents do not see whether they were paid already, "
    "and even those that are paid for true events seldom deliver. Other read-outs of SECRET have its step credit."
)


@dataclass(frozen=True)
class Study:
    """How much is learned."""

    name: str = "method_worth"
    tasks: Sequence[str] = TASKS
    fading: Mapping[str, int] = field(default_factory=lambda: {"taxi_delivery": 200_000})
    """Tasks that are learned again with a bonus for credit that falls to 0 over so many steps."""
    instances: int = 8
    fits: int = 3
    steps: int = 1_000_000
    test_every: int = 20_480
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of ``PpoOptions``."""

    @property
    def path(self) -> Path:
        """Where the numbers are kept."""
        return RESULTS / f"{self.name}.json"

    @property
    def panels(self) -> dict[str, tuple[str, int | None]]:
        """By label: the task, and the steps over which the bonus fades, None where it stays."""
        faded = {f"{task}, fading over {steps:,} steps": (task, steps) for task, steps in self.fading.items()}
        return {task: (task, None) for task in self.tasks} | faded


def result(quick: bool) -> Study:
    """The study; or, for a quick look, two instances and few steps."""
    return Study("method_worth-quick", instances=2, fits=1, steps=20_480) if quick else Study()


# What is computed where the methods are.


def save_tables(folder: Path, path: Path = FILE, study: Study | None = None) -> Path:
    """Write the tasks, and the credit of all methods of a benchmark for every pair, to one file.

    Arrays are called ``task/instance/name``; those of credit, ``task/instance/credit/method``, are (fits, states,
    actions). ``pairs`` numbers what looks the same to a method, and ``true`` holds the true events' shares.
    """
    from secret_rl.credit.base import methods
    from secret_rl.evaluation.benchmark import NEEDS_TRUTH, Cell, fitted_method
    from secret_rl.tasks import task_of

    study = study or Study()
    names = [n for n in methods() if n not in NEEDS_TRUTH and Cell("", n, 0).fitted_as == n]  # others share a fit
    arrays: dict[str, NDArray[Any]] = {}
    for task in study.tasks:
        made: Any = task_of(task).instance
        envs = [made(number).unwrapped for number in range(study.instances)]
        fitted = {name: [fitted_method(folder, Cell(task, name, s)) for s in range(study.fits)] for name in names}
        for number, env in enumerate(envs):
            seen = env.tabular()
            whole, true = (_taxi if task.startswith("taxi") else _maze)(env, seen)
            found = {name: np.asarray(getattr(whole, name)) for name in _MODEL}
            found |= {"ends": np.array([whole.start, whole.max_steps]), "true": true, "pairs": _looks(seen)}
            for name, fits in fitted.items():
                found[f"credit/{name}"] = np.stack([_credit(fit, seen) for fit in fits])
            arrays |= {f"{task}/{number}/{name}": array for name, array in found.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    return path


def _pairs_of(seen: TabularModel) -> tuple[Any, Any, Any]:
    """Observation, action and next observation of every pair."""
    states, actions = np.indices(seen.next_states.shape).reshape(2, -1)
    return seen.observations[states], actions, seen.observations[seen.next_states.ravel()]


def _credit(method: Any, seen: TabularModel) -> NDArray[np.float32]:
    """(states, actions)"""
    return np.asarray(method.step_credit(*_pairs_of(seen)), np.float32).reshape(seen.next_states.shape)


def _looks(seen: TabularModel) -> NDArray[np.int32]:
    """(states, actions) the same number for pairs that look the same."""
    observations, actions, _ = _pairs_of(seen)
    rows = np.column_stack([observations.reshape(len(actions), -1), actions])
    _, numbers = np.unique(rows, axis=0, return_inverse=True)
    return numbers.reshape(seen.next_states.shape).astype(np.int32)


def _maze(env: Any, seen: TabularModel) -> tuple[TabularModel, NDArray[np.float32]]:
    """The maze as agents see it, whole; and the share of each pair that activates a switch."""
    from secret_rl.envs.triggers.tabulate import tabulate

    whole = tabulate(replace(env.options, window=None))
    assert np.array_equal(whole.next_states, seen.next_states)
    left = whole.observations[..., 1].astype(np.int64).sum((1, 2))  # switches, in each state
    return whole, (left[whole.next_states] < left[:, None]).astype(np.float32) / env.options.triggers


def _taxi(env: Any, seen: TabularModel) -> tuple[TabularModel, NDArray[np.float32]]:  # noqa: ARG001
    """The taxi's whole state, one-hot; and the pairs that pick up the passenger."""
    parts = np.unravel_index(np.arange(len(seen.next_states)), _TAXI)
    one_hot = [np.eye(size, dtype=np.uint8)[part] for size, part in zip(_TAXI, parts, strict=True)]
    aboard = parts[2] == _TAXI[2] - 1
    picked_up = aboard[seen.next_states] & ~aboard[:, None]
    return seen._replace(observations=np.concatenate(one_hot, 1)), picked_up.astype(np.float32)


# What is learned from the file.


@dataclass(frozen=True)
class _Tables:
    """The tasks of one kind, and credit in them."""

    models: list[TabularModel]
    pairs: list[NDArray[np.int32]]
    credit: dict[str, list[NDArray[np.float32]]]
    """By condition: of each instance, (fits, states, actions)."""

    @classmethod
    def load(cls, path: Path, task: str, instances: int, fits: int) -> "_Tables":
        if not path.is_file():
            raise FileNotFoundError(
                f"{path} is not a file: make it with `python -m paper.method_worth FOLDER`, where FOLDER is that of "
                f"`secret-rl benchmark --tasks {' '.join(TASKS)} --out FOLDER`"
            )
        with np.load(path, allow_pickle=False) as file:
            own = [f"{task}/{number}/" for number in range(instances)]
            models = [
                TabularModel.of(
                    *(file[f"{place}{name}"] for name in _MODEL[:3]),
                    **dict(zip(("start", "max_steps"), file[f"{place}ends"].tolist(), strict=True)),
                    observations=file[f"{place}observations"],
                )
                for place in own
            ]
            names = [n.removeprefix(f"{own[0]}credit/") for n in file.files if n.startswith(f"{own[0]}credit/")]
            credit = {name: [file[f"{place}credit/{name}"][:fits] for place in own] for name in names}
            true = [np.repeat(file[f"{place}true"][None], fits, 0) for place in own]
            return cls(models, [file[f"{place}pairs"] for place in own], {TRUE: true, **credit})

    @property
    def conditions(self) -> list[str]:
        return [NONE, COUNT, *self.credit]

    def tasks(self, condition: str, fits: int) -> list[tuple[TabularModel, TabularShaping]]:
        """Of every instance and fit: the task, and what its pairs earn."""
        found = []
        for number, (model, pairs) in enumerate(zip(self.models, self.pairs, strict=True)):
            for fit in range(fits):
                earned = np.zeros(pairs.max() + 1)
                if condition in self.credit:
                    credit = self.credit[condition][number][fit]
                    earned[pairs] = np.where(credit > _THRESHOLD, credit, 0)
                shaping = TabularShaping.of(model, PpoOptions.discount, pairs=pairs, credit=earned, cap=1.0, once=True)
                found.append((model, shaping))
        return found

    def crc(self, condition: str) -> int:
        """Of the credit of a condition."""
        return zlib.crc32(b"".join(array.tobytes() for array in self.credit.get(condition, [])))


def _options(study: Study, condition: str, fade: int | None) -> PpoOptions:
    spent = {NONE: (0.0, 0.0), COUNT: (0.0, _COUNT)}.get(condition, (_BONUS, _COUNT))
    return PpoOptions(shaping=False, bonus=spent[0], count=spent[1], fade_steps=fade, **study.options)


def run(
    study: Study,
    command: str,
    workers: Workers | None = None,
    *,
    only: str | None = None,
    conditions: Sequence[str] | None = None,
    batch: int = 20,
    device: str = "auto",
    file: Path = FILE,
) -> Path:
    """Let every agent learn, so many conditions of a panel in one batch; what is there already is kept.

    ``only`` is the label of a panel, and ``conditions`` are those to run instead of all.
    """
    if only is not None and only not in study.panels:
        raise ValueError(f"no such task: {only}; choose from {'; '.join(study.panels)}")
    record = records.load(study.path)
    cells, meant = [], []
    for panel, (task, fade) in study.panels.items():
        if only not in (None, panel):
            continue
        tables = _Tables.load(file, task, study.instances, study.fits)
        wanted = [c for c in tables.conditions if c in (conditions or tables.conditions)]
        if fade is not None:  # without a bonus for credit, nothing fades
            wanted = [c for c in wanted if c not in (NONE, COUNT)]
        settings = {c: _settings(study, panel, c, tables) for c in wanted}
        missing = [c for c in wanted if records.entry_of(record, settings[c]) is None]
        for together in (missing[first : first + batch] for first in range(0, len(missing), batch)):
            call = partial(learn, study, file.absolute(), task, together, fade, device)
            cells.append(sweep.Cell(f"{panel}, {', '.join(together)}", {"runs": [settings[c] for c in together]}, call))
            meant.append((panel, {c: settings[c] for c in together}))
    found, failures = sweep.run(cells, records.CELLS / study.name, workers)
    for (panel, together), outcome in zip(meant, found, strict=True):
        for condition, settings in together.items() if outcome is not None else ():
            runs = outcome["runs"][condition]
            entry = {
                "label": f"{panel}, {condition}",
                "settings": settings,
                "machine": outcome["machine"],
                "runs": runs,
            }
            records.keep(study.path, record, entry, command)
            print(f"  {panel}, {condition}: mean return {np.mean(runs['area']):.3f}", flush=True)
    sweep.check(failures, command)
    return study.path


def learn(
    study: Study, file: Path, task: str, conditions: Sequence[str], fade: int | None, device: str
) -> dict[str, Any]:
    """What came of the runs of some conditions, in one batch."""
    tables = _Tables.load(file, task, study.instances, study.fits)
    learned = _learn(study, tables, conditions, fade, device)
    runs = {condition: solving.runs_of(learned, condition, study.test_every) for condition in conditions}
    return {"machine": machine(device_of(device)), "runs": runs}


def _learn(study: Study, tables: _Tables, conditions: Sequence[str], fade: int | None, device: str) -> LearningCurves:
    """(instances, fits) learners for each condition, with the same seeds in all of them."""
    tasks = [task for condition in conditions for task in tables.tasks(condition, study.fits)]
    models, shapings = zip(*tasks, strict=True)
    each = study.instances * study.fits
    curves = ppo_many(
        models, 1, study.steps, [_options(study, c, fade) for c in conditions for _ in range(each)], shapings=shapings,
        seed=list(range(each)) * len(conditions), test_every=study.test_every, device=device,
    )  # fmt: skip
    returns = curves.discounted.astype(np.float64).reshape(len(conditions), study.instances, study.fits, -1)
    best = np.array([best_return(model, PpoOptions.discount) for model in tables.models])
    return LearningCurves(dict(zip(conditions, returns, strict=True)), optimal=best)


def _settings(study: Study, panel: str, condition: str, tables: _Tables) -> dict[str, Any]:
    return {
        "task": panel, "condition": condition, "credit": tables.crc(condition), "instances": study.instances,
        "fits": study.fits, "steps": study.steps, "threshold": _THRESHOLD, "bonus": _BONUS, "count": _COUNT,
        "options": dict(study.options),
    }  # fmt: skip


def table(study: Study) -> Path:
    """Every condition, as Markdown, in the order in which it was run."""
    record = records.load(study.path)
    size = (
        f"{study.instances} instances x {study.fits} seeds x {study.steps:,} steps, tested every {study.test_every:,}"
    )
    sections = {}
    for panel, (task, _) in study.panels.items():
        own = [e for e in record["panels"] if e["settings"]["task"] in (panel, task)]
        entries = {
            e["settings"]["condition"]: e
            for e in own
            if e["settings"]["task"] == panel or e["settings"]["condition"] in (NONE, COUNT)
        }
        order = sorted(entries, key=lambda c: (c not in (NONE, COUNT, TRUE), -np.mean(entries[c]["runs"]["area"])))
        order = [NONE, *(condition for condition in order if condition != NONE)]
        sections[panel] = solving.section({c: entries.get(c) for c in order}, NONE, size)
    return records.write_page(
        study.path.with_suffix(".md"), "What credit methods are worth to PPO", _NOTE, sections, record
    )


def main(
    quick: bool, command: str, analyse_only: bool = False, *, only: str | None = None, batch: int = 20,
    workers: Workers | None = None,
) -> list[str]:  # fmt: skip
    """Run, and write the table."""
    study = result(quick)
    if not analyse_only:
        run(study, command, workers, only=only, batch=batch)
    return [str(table(study))]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("give one folder, that of secret-rl benchmark: python -m paper.method_worth FOLDER")
    print(save_tables(Path(sys.argv[1])))
