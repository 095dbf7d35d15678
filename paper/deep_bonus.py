"""Deep agents that spend credit as a bonus: DQN and PPO in held-out mazes, beside other ways to explore."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from paper import records, solving
from paper.deep_runs import DQN, PPO, Condition, Deep, DeepResult, learn_together, settings_of, test_every_of
from paper.scenarios import credit_of
from secret_rl import sweep
from secret_rl.evaluation import LearningCurves
from secret_rl.sweep import Workers

LAYOUTS = 820_000  # first looked at when options were settled
DEVELOPMENT_LAYOUTS, DEVELOPMENT_MAZES = 100, 8  # what options were chosen in: no table has them
_CREDIT, _ADAPTED = "OnlineCredit, once", "OnlineCredit, adapted, once"
_COUNT = {"count": 0.1}
_REPLAY = {"priority": 0.25}
_DQN_BONUS = {"bonus": 3.0, "shaping": False, "fade_steps": None}
_PPO_BONUS = {"bonus": 1 / Condition.scale, "shaping": False}  # a step is paid its credit
_DQN_CONDITIONS = (
    Condition("none"),
    Condition("rewarded replay", None, _REPLAY),
    Condition("value", "value"),
    Condition("count bonus", None, _COUNT),
    Condition("OnlineCredit", _CREDIT),
    Condition("credit bonus", _CREDIT, _DQN_BONUS),
    Condition("credit bonus, credited replay", _CREDIT, {**_DQN_BONUS, **_REPLAY}),
    Condition("fading credit bonus, credited replay", _CREDIT, {**_DQN_BONUS, **_REPLAY, "fade_steps": 200_000}),
    Condition("credit bonus steers, true reward is learned", _CREDIT, {**_DQN_BONUS, "exact": True}),
    Condition("the same, credited replay", _CREDIT, {**_DQN_BONUS, **_REPLAY, "exact": True}),
)
_BEST = "credit bonus, credited replay"
_EASIER_CONDITIONS = (*_DQN_CONDITIONS[:4], *(c for c in _DQN_CONDITIONS if c.label == _BEST))
_SPENT = ("credit bonus", _BEST, f"fading {_BEST}")
_ELSEWHERE_CONDITIONS = tuple(c for c in _DQN_CONDITIONS if c.label == "none" or c.label in _SPENT)
_INVERTED_CONDITIONS = (
    *_DQN_CONDITIONS[:2],
    Condition("weight transfer", transferred=True),
    Condition("credit bonus, adapted", _ADAPTED, _DQN_BONUS),
    Condition("credit bonus, adapted, credited replay", _ADAPTED, {**_DQN_BONUS, **_REPLAY}),
)
_PPO_CONDITIONS = (
    Condition("none"),
    Condition("value", "value"),
    Condition("count bonus", None, _COUNT),
    Condition("OnlineCredit", _CREDIT),
    Condition("credit bonus", _CREDIT, _PPO_BONUS),
    Condition("credit bonus, count bonus", _CREDIT, {**_PPO_BONUS, **_COUNT}),
    Condition("fading credit bonus, count bonus", _CREDIT, {**_PPO_BONUS, **_COUNT, "fade_steps": 500_000}),
)
# With the paper's exploration, over 250,000 steps, an agent cannot follow credit for most of its training.
_EXPLORATION = {"epsilon_steps": 30_000, "epsilon_final": 0.05}
_PANELS: Sequence[tuple[str, str, tuple[int, int, int], str, Sequence[Condition]]] = (
    # the agent, the task, its triggers, prizes and size, where credit was learned, and what is compared
    (DQN, "8x8 3T1P", (3, 1, 8), "3T1P", _DQN_CONDITIONS),
    (DQN, "8x8 3T1P, credit of 1T1P", (3, 1, 8), "1T1P", _ELSEWHERE_CONDITIONS),
    (DQN, "8x8 1T1P", (1, 1, 8), "1T1P", _EASIER_CONDITIONS),
    (DQN, "8x8 1T2P", (1, 2, 8), "1T2P", _EASIER_CONDITIONS),
    (DQN, "8x8 1T1P, inverted controls", (1, 1, 8), "1T1P", _INVERTED_CONDITIONS),
    (DQN, "8x8 1T2P, inverted controls", (1, 2, 8), "1T2P", _INVERTED_CONDITIONS),
    (PPO, "8x8 3T1P", (3, 1, 8), "3T1P", _PPO_CONDITIONS),
    (PPO, "12x12 3T1P", (3, 1, 12), "3T1P", _PPO_CONDITIONS),
    (PPO, "8x8 3T1P, credit of 1T1P", (3, 1, 8), "1T1P", _PPO_CONDITIONS[:1] + _PPO_CONDITIONS[3:]),
    (PPO, "8x8 1T1P", (1, 1, 8), "1T1P", _PPO_CONDITIONS),
    (PPO, "8x8 1T2P", (1, 2, 8), "1T2P", _PPO_CONDITIONS),
)
_STEPS = {DQN: 300_000, PPO: 1_000_000}
_NOTE = (
    "Agents see the whole maze, the credit model the 3x3 cells around the agent. *value*: the value of 1,000 target "
    "trajectories, as a potential; nothing else needs any. *OnlineCredit*: 0.3 times the credit, as a potential. "
    "*Credit bonus*: a step is paid its credit at once and keeps it, times 0.9 (DQN) or 1 (PPO), each pair once an "
    "episode. It is not policy-invariant while it lasts; *fading*: to 0 over 200,000 (DQN) or 500,000 steps (PPO). "
    "*Count bonus*: 0.1 over the root of how often the agent came to a state. *Credited replay*: a quarter of each "
    "batch is drawn among transitions that raised the potential or were rewarded; *rewarded replay*: the same without "
    "a potential. *Credit bonus steers, true reward is learned*: the network that acts learns with the bonus; a second "
    "one, which is tested, learns the task's own rewards from the same batches, so that its best policy is the task's. "
    "*credit of 1T1P*: learned with one switch, used with three. *Inverted controls*: weights come from "
    "agents that learned in 64 mazes with ordinary controls; *adapted* credit was fine-tuned to 5,000 trajectories of "
    "random play in other mazes with inverted controls. DQN explores at random in 5 % of the steps from 30,000 steps "
    "on, with a discount of 0.9; PPO has a discount of 0.99. How much a bonus pays, that each pair is paid once, and "
    "what is combined were chosen in other mazes."
)


def result(quick: bool) -> DeepResult:
    """Every agent in every held-out task; or, for a quick look, two development mazes and few steps."""
    panels = [_panel(*given, quick) for given in _PANELS]
    if quick:
        small: dict[str, Any] = {"mazes": 2, "seeds": 1, "models": 1, "target_trajectories": 300}
        first = [panel for panel in _in_development(panels) if panel.label.endswith(_PANELS[0][1])]
        panels = [replace(panel, **small, steps=test_every_of(panel)) for panel in first]
    return DeepResult(
        name="deep_bonus-quick" if quick else "deep_bonus",
        title="Deep agents that spend credit as a bonus",
        panels=panels,
        note=_NOTE,
    )


def development() -> DeepResult:
    """The same in the mazes that options are chosen in."""
    held_out = result(quick=False)
    title = f"{held_out.title}: development mazes"
    return replace(held_out, name="deep_bonus-development", title=title, panels=_in_development(held_out.panels))


def _in_development(panels: Sequence[Deep]) -> list[Deep]:
    return [replace(panel, first_layout=DEVELOPMENT_LAYOUTS, mazes=DEVELOPMENT_MAZES) for panel in panels]


def _panel(
    agent: str, task: str, kind: tuple[int, int, int], scenario: str, conditions: Sequence[Condition], quick: bool
) -> Deep:
    triggers, prizes, size = kind
    if agent == DQN:
        conditions = tuple(replace(c, options={**_EXPLORATION, **c.options}) for c in conditions)
    return Deep(
        f"{agent.split(',')[0]}, {task}", credit_of(scenario, quick), triggers, prizes, "inverted" in task, conditions,
        _STEPS[agent], mazes=16, seeds=5, size=size, agent=agent, first_layout=LAYOUTS,
    )  # fmt: skip


def run(
    result: DeepResult, command: str, workers: Workers | None = None, *, only: str | None = None, batch: int = 1,
    device: str = "auto",
) -> Path:  # fmt: skip
    """Let every agent learn, so many conditions of a panel in one batch; what is there already is kept.

    ``only`` is the label of a panel, "PPO, 8x8 3T1P".
    """
    labels = [panel.label for panel in result.panels]
    if only is not None and only not in labels:
        raise ValueError(f"no such task: {only}; choose from {'; '.join(labels)}")
    record = records.load(result.path)
    together: list[Deep] = []
    for panel in (panel for panel in result.panels if only in (None, panel.label)):
        missing = [c for c in panel.conditions if records.entry_of(record, settings_of(_cell(panel, c))) is None]
        kinds = [tuple(group) for _, group in groupby(missing, lambda c: c.options.get("exact", False))]
        batches = [kind[first : first + batch] for kind in kinds for first in range(0, len(kind), batch)]
        together += [replace(panel, conditions=conditions) for conditions in batches]
    cells = [
        sweep.Cell(
            f"{panel.label}, {', '.join(c.label for c in panel.conditions)}",
            settings_of(panel),
            partial(learn_together, [panel], device),
        )
        for panel in together
    ]
    found, failures = sweep.run(cells, records.CELLS / result.name, workers)
    for panel, outcome in zip(together, found, strict=True):
        for condition in panel.conditions if outcome is not None else ():
            cell, [learned] = _cell(panel, condition), outcome
            own = LearningCurves({condition.label: learned["returns"][condition.label]}, optimal=learned["optimal"])
            result.curves(cell).parent.mkdir(parents=True, exist_ok=True)
            own.save(result.curves(cell))
            runs = solving.runs_of(own, condition.label, test_every_of(panel))
            entry = {"label": cell.label, "settings": settings_of(cell), **learned["about"], "runs": runs}
            records.keep(result.path, record, entry, command)
            print(f"  {cell.label}: mean return {np.mean(runs['area']):.3f}", flush=True)
    sweep.check(failures, command)
    return result.path


def _cell(panel: Deep, condition: Condition) -> Deep:
    """One condition of a panel."""
    return replace(panel, label=f"{panel.label}, {condition.label}", conditions=(condition,))


def table(result: DeepResult) -> Path:
    """Every panel's conditions, as Markdown."""
    record = records.load(result.path)
    sections = {panel.label: _section(panel, record) for panel in result.panels}
    return records.write_page(result.path.with_suffix(".md"), result.title, result.note, sections, record)


def _section(panel: Deep, record: Mapping[str, Any]) -> list[str] | None:
    found = {c.label: records.entry_of(record, settings_of(_cell(panel, c))) for c in panel.conditions}
    size = f"{panel.mazes} mazes x {panel.seeds} seeds x {panel.steps:,} steps, tested every {test_every_of(panel):,}"
    return solving.section(found, panel.conditions[0].label, size)


def main(
    quick: bool, command: str, analyse_only: bool = False, *, only: str | None = None, batch: int = 1,
    workers: Workers | None = None,
) -> list[str]:  # fmt: skip
    """Run, and write the table."""
    this = result(quick)
    if not analyse_only:
        run(this, command, workers, only=only, batch=batch)
    return [str(table(this))]
