"""Online SECRET: credit learned from scratch while the agent learns, with no source data (the paper's future work)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from paper import records
from paper.credit_runs import RESULTS, machine
from paper.online_runs import TEST_EVERY, Condition, Panel, learn
from paper.transfer_runs import CURVES, best_return_of
from secret_rl import sweep
from secret_rl.envs import TRIGGERS_ID
from secret_rl.evaluation import LearningCurves, compare
from secret_rl.report import plot_learning_curves, save_figure
from secret_rl.sweep import Workers

FRACTION = 0.9  # of the best return


@dataclass(frozen=True)
class OnlineResult:
    """Both kinds of agents."""

    name: str
    panels: Sequence[Panel]

    @property
    def path(self) -> Path:
        """Where the numbers are kept."""
        return RESULTS / f"{self.name}.json"

    def curves(self, panel: Panel) -> Path:
        """Where the learning curves of a panel are kept."""
        return CURVES / self.name / f"{panel.agent}.safetensors"


TABULAR = (Condition("none"), Condition("value", "value"), Condition("pending", "pending"))
DQN = (
    Condition("none"),
    Condition("none, rewarded replay", None, 0.25),
    Condition("value, credited replay", "learned value", 0.25),
    Condition("pending, credited replay", "learned", 0.25),
)


def result(quick: bool) -> OnlineResult:
    """One switch and one prize, from scratch."""
    panels = [
        Panel("8x8 1T1P, tabular", "tabular", TABULAR, 400, 8, 2, {"first": 50, "growth": 1.5}),
        Panel("8x8 1T1P, DQN", "DQN", DQN, 60_000, 5, 1, {"first": 200, "growth": 1.5}, 1),
    ]
    if quick:
        small = {"tabular": {"length": 150, "mazes": 2, "seeds": 1}, "DQN": {"length": 10_000, "mazes": 2}}
        panels = [replace(panel, **small[panel.agent]) for panel in panels]
    return OnlineResult("online-quick" if quick else "online", panels)


def run(result: OnlineResult, command: str, workers: Workers | None = None) -> Path:
    """Let every agent learn; panels that are there already are kept."""
    record = records.load(result.path)
    missing = [
        panel
        for panel in result.panels
        if not (records.entry_of(record, settings_of(panel)) and result.curves(panel).is_file())
    ]
    cells = [cell for panel in missing for cell in _cells(panel)]
    found, failures = sweep.run(cells, records.CELLS / result.name, workers)
    for panel in missing:
        count = len(_cells(panel))
        runs, found = found[:count], found[count:]
        if None in runs:
            continue
        curves, about = _joined(panel, runs)
        result.curves(panel).parent.mkdir(parents=True, exist_ok=True)
        curves.save(result.curves(panel))
        entry = {"label": panel.label, "settings": settings_of(panel), **about, **_compared(curves, panel)}
        records.keep(result.path, record, entry, command)
        rows = entry["beside_none"]["conditions"]
        areas = ", ".join(f"{name} {row['area']['value']:.3f}" for name, row in rows.items())
        print(f"  {panel.label}: {areas}", flush=True)
    sweep.check(failures, command)
    return result.path


def _cells(panel: Panel) -> list[sweep.Cell]:
    """One for each condition, maze and seed."""
    return [
        sweep.Cell(
            f"{panel.label}, {panel.conditions[place[0]].label}, maze {place[1]}, seed {place[2]}",
            {**settings_of(panel), "place": list(place)},
            partial(learn, panel, place),
        )
        for place in np.ndindex(len(panel.conditions), panel.mazes, panel.seeds)
    ]


def _joined(panel: Panel, runs: Sequence[Mapping[str, Any]]) -> tuple[LearningCurves, dict[str, Any]]:
    """Unshaped returns of every run, and what was learned of credit meanwhile."""
    shape = len(panel.conditions), panel.mazes, panel.seeds
    returns = np.array([run["returns"] for run in runs]).reshape(*shape, -1)
    labels = [condition.label for condition in panel.conditions]
    optimal = [best_return_of(gym.make(TRIGGERS_ID, **panel.env(maze)).unwrapped.tabular()) for maze in range(shape[1])]
    about = {}
    for label, some in zip(labels, np.array(runs, object).reshape(len(labels), -1), strict=True):
        about[label] = {
            "refits": [run["refits"] for run in some],
            "accepted": [run["accepted"] for run in some],
            "first_accepted": [run["first_accepted"] for run in some],
            "reasons": [run["reasons"] for run in some],
            "episodes_by_point": [run["episodes"] for run in some] if panel.agent == "DQN" else None,
        }
    curves = LearningCurves(dict(zip(labels, returns, strict=True)), optimal=np.array(optimal))
    return curves, {"machine": machine(torch.device("cpu")), "online": about}


def episodes_needed(curves: LearningCurves, panel: Panel, about: Mapping[str, Any]) -> dict[str, list[int | None]]:
    """Condition -> episodes that each run had played when it was first seen at 90 % of the best return."""
    assert curves.optimal is not None
    needed: dict[str, list[int | None]] = {}
    for label in curves:
        runs = curves[label].reshape(panel.mazes * panel.seeds, -1)
        goals = np.repeat(FRACTION * curves.optimal, panel.seeds)
        needed[label] = []
        for number, (points, goal) in enumerate(zip(runs, goals, strict=True)):
            means = np.convolve(points, np.ones(panel.window) / panel.window, "valid")
            there = np.flatnonzero(means >= goal)
            played = about[label]["episodes_by_point"]
            point = int(there[0]) + panel.window - 1 if len(there) else None
            needed[label].append(None if point is None else point + 1 if played is None else played[number][point])
    return needed


def _compared(curves: LearningCurves, panel: Panel) -> dict[str, Any]:
    """Every condition beside none, and beside the rival that learns from the same episodes without attention."""
    unit = "episodes" if panel.agent == "tabular" else f"tests, one every {TEST_EVERY:,} steps"
    beside_none = compare(curves, "none", unit=unit)
    rival = next(name for name in curves if name.startswith("value"))
    beside_value = compare(curves, rival, unit=unit)
    last = panel.conditions[-1].label
    return {
        "beside_none": beside_none.to_json(),
        "table": beside_none.to_markdown(),
        "over_value": beside_value[last].improvement.to_json(),  # type: ignore[union-attr]
    }


def settings_of(panel: Panel) -> dict[str, Any]:
    """What a panel depends on, as JSON gives it back."""
    return json.loads(json.dumps(asdict(panel)))


def table(result: OnlineResult) -> Path:
    """Every panel's comparison, as Markdown."""
    record = records.load(result.path)
    sections = {}
    for panel in result.panels:
        entry = records.entry_of(record, settings_of(panel))
        content = None if entry is None else [entry["table"].rstrip(), "", *_section(result, panel, entry), ""]
        sections[panel.label] = content
    return records.write_page(RESULTS / f"{result.name}.md", "Online SECRET from scratch", _NOTE, sections, record)


_NOTE = (
    "No source data: the credit model is fitted to the agent's own episodes as they come, and its potential is swapped "
    "in between them. Value: the same schedule and the same episodes, without attention. Credited replay: a quarter of "
    "each batch is drawn among transitions that raised the potential or were rewarded; rewarded replay: the same "
    "without a potential."
)


def _section(result: OnlineResult, panel: Panel, entry: Mapping[str, Any]) -> list[str]:
    """Episodes to 90 % of the best return, and what became of the refits."""
    lines = []
    if result.curves(panel).is_file():
        curves = LearningCurves.load(result.curves(panel))
        how = f"over {panel.window} episodes" if panel.agent == "tabular" else "in a test"
        lines += [f"| condition | episodes to {FRACTION:.0%} of the best return {how}, median | runs that got there |"]
        lines += ["| --- | --- | --- |"]
        for label, needed in episodes_needed(curves, panel, entry["online"]).items():
            median = float(np.median([np.inf if n is None else n for n in needed]))
            shown = f"{median:,.0f}" if np.isfinite(median) else "not reached"
            lines += [f"| {label} | {shown} | {sum(n is not None for n in needed)} of {len(needed)} |"]
        lines += [""]
    for condition in panel.conditions:
        if condition.potential is not None:
            about = entry["online"][condition.label]
            firsts = [episodes for episodes in about["first_accepted"] if episodes is not None]
            when = f"; the first after {np.median(firsts):,.0f} episodes (median)" if firsts else ""
            accepted, refits = sum(about["accepted"]), sum(about["refits"])
            lines += [f"{condition.label}: {accepted} of {refits} refits gave a potential{when}.", ""]
    over = entry["over_value"]
    last, rival = panel.conditions[-1].label, next(c.label for c in panel.conditions if c.label.startswith("value"))
    lines += [f"P(improvement) of {last} over {rival}: {over['value']:.2f} [{over['low']:.2f}, {over['high']:.2f}]."]
    return lines


def figure(result: OnlineResult) -> list[Path]:
    """The learning curves, a figure for each kind of agent; of those that are on this machine."""
    written: list[Path] = []
    for panel in result.panels:
        if result.curves(panel).is_file():
            axis = {} if panel.agent == "tabular" else {"spacing": TEST_EVERY, "xlabel": "steps"}
            curves = {panel.label: LearningCurves.load(result.curves(panel))}
            name = RESULTS / f"{result.name}-{panel.agent.lower()}"
            written += save_figure(plot_learning_curves(curves, window=panel.window, **axis), name)
    return written


def main(quick: bool, command: str, analyse_only: bool = False, *, workers: Workers | None = None) -> list[str]:
    """Run, and write the table and the figures."""
    asked = result(quick)
    if not analyse_only:
        run(asked, command, workers)
    return [str(path) for path in (table(asked), *figure(asked))]
