"""PPO in new maps of keys and doors, paid for credit of other maps or for true events: all learners in one batch."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from itertools import groupby, product
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

import secret_rl as srl
from paper import keys_doors_credit, records
from paper.batched_tasks import device_of
from paper.credit_runs import MODELS, RESULTS, machine
from paper.keys_doors_credit import DEVELOPMENT_MAPS, MORE_ASTRAY, SMALL, digest
from paper.pixel_bonuses import EVENTS, GOAL, STATE, Novelty, StatePotential, StepCredit, TrueEvents
from paper.pixel_ppo import Bonus, PixelOptions, pixel_ppo
from secret_rl.envs import KEYS_DOORS_ID
from secret_rl.envs.keys_doors import Wanderer
from secret_rl.evaluation import LearningCurves, statistics
from secret_rl.evaluation.comparison import Table

SOLVED, WINDOW = 0.8, 50  # the goal rate, and the episodes it is taken over
# First looked at when everything else was settled: 3,200,000 to 3,200,004 were, and then what credit pays was changed.
HELD_OUT_MAPS = 3_300_000
# On maps 100 to 103, random play reaches the goal in less than one episode of a hundred in so few steps.
FOUR_ROOMS: dict[str, Any] = {
    "preset": "2x2-easy", "rows": 2, "columns": 2, "core": 2, "frame_skip": 8, "max_steps": 150, "goal_reward": 5.0,
    **SMALL,
}  # fmt: skip
_EVERY = 10  # rollouts between two lines that say how it goes
_NOTE = (
    "New maps, no trajectory of any but for *value*. *True events*: 0.5 for the first key and the first door of each "
    "colour in an episode; *true keys*: for the keys alone. *Credit bonus*: what each step earns of later rewards of "
    "doors, by a model of other maps; *credit as a potential*: the same, added up. *Value*: the plain value of 1,000 "
    "trajectories of the map, as a potential of the cell and the held key. *RND*: random network distillation."
)


@dataclass(frozen=True)
class Condition:
    """What learners are paid beside the reward."""

    label: str
    bonuses: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The options of each: "true" (``TrueEvents``), "credit" (``StepCredit``), "value" (``StatePotential``) and
    "novelty" (``Novelty``)."""


_FOR_LONGER = "none", "credit bonus", "credit as a potential"
_WHERE_DOORS_PAY = "none", "true keys", "credit bonus"
CREDIT: dict[str, Any] = {"threshold": 0.4, "scale": 0.5, "cap": 1.5}
CONDITIONS = (
    Condition("none"),
    Condition("true events", {"true": {}}),
    Condition("true keys", {"true": {"door": 0.0}}),
    Condition("credit bonus", {"credit": CREDIT}),
    Condition("credit as a potential", {"credit": {**CREDIT, "discount": PixelOptions().discount}}),
    Condition("value of 1,000 trajectories", {"value": {}}),
    Condition("RND", {"novelty": {}}),
)


@dataclass(frozen=True)
class Panel:
    """One kind of maps, and all that learns in them at once."""

    label: str
    world: Mapping[str, Any]
    """Options of the environment."""
    conditions: Sequence[Condition]
    steps: int = 1_000_000
    """Of each learner."""
    maps: int = 5
    seeds: int = 3
    first_map: int = HELD_OUT_MAPS
    credit: str = "2x2-transitions"
    """The task of ``keys_doors_credit`` whose models give credit."""
    models: int = 3
    """Of as many seeds; map ``m`` has model ``m``, modulo their number."""
    target_trajectories: int = 1_000
    """Of a wanderer on the map, for its value."""
    ppo: PixelOptions = field(default_factory=lambda: PixelOptions(filters=16))

    @property
    def learners(self) -> list[tuple[int, int]]:
        """The map and the seed of each learner of a condition."""
        return list(product(range(self.maps), range(self.seeds)))

    def world_of(self, number: int) -> dict[str, Any]:
        """Options of a map."""
        return {**self.world, "layout_seed": self.first_map + number}


@dataclass(frozen=True)
class Result:
    """The panels of a study."""

    name: str
    panels: Sequence[Panel]

    @property
    def path(self) -> Path:
        """Where the numbers are kept."""
        return RESULTS / f"{self.name}.json"


def result(quick: bool) -> Result:
    """Held-out maps; or, for a quick look, two development maps and few steps."""
    longer, with_doors = ([c for c in CONDITIONS if c.label in few] for few in (_FOR_LONGER, _WHERE_DOORS_PAY))
    goal_alone: dict[str, Any] = {**FOUR_ROOMS, "door_reward": 0.0}
    panels = [
        Panel("the goal alone pays", goal_alone, CONDITIONS, steps=144_384),
        Panel("the goal alone pays, for longer", goal_alone, longer, steps=209_920),
        Panel(
            "doors and the goal pay, 900 steps an episode", {**FOUR_ROOMS, "max_steps": 900}, with_doors, steps=40_960
        ),
    ]
    if quick:
        small = replace(PixelOptions(), side_by_side=4, rollout=16, filters=8, units=16)
        few: dict[str, Any] = {"maps": 2, "seeds": 1, "steps": 64, "first_map": DEVELOPMENT_MAPS, "ppo": small}
        few["target_trajectories"] = 4
        quick_ones = [c for c in CONDITIONS if "credit" not in c.bonuses]  # there is no model
        panels = [replace(panels[0], conditions=quick_ones, **few)]
    return Result("keys_doors_bonus-quick" if quick else "keys_doors_bonus", panels)


def run(result: Result, command: str, *, only: str | None = None, device: str = "auto") -> Path:
    """Let all learners learn, those of as many steps in one batch; conditions that are there already are kept.

    Args:
        result: What to run.
        command: To repeat it.
        only: A condition, in the panels that have it.
        device: Where to learn.
    """
    record = records.load(result.path)
    missing = [
        (panel, condition)
        for panel in result.panels
        for condition in panel.conditions
        if only in (None, condition.label) and records.entry_of(record, settings_of(panel, condition)) is None
    ]
    for _, groups in groupby(missing, lambda group: (group[0].steps, group[0].ppo)):
        together = list(groups)
        for (panel, condition), found in zip(together, learned(together, device), strict=True):
            settings = settings_of(panel, condition)
            entry = {"label": f"{panel.label}: {condition.label}", "settings": settings, **found}
            records.keep(result.path, record, entry, command)
    return result.path


def learned(groups: Sequence[tuple[Panel, Condition]], device: str) -> list[dict[str, Any]]:
    """For each panel and condition, how many episodes of each learner ended and how many reached the goal."""
    steps, ppo = groups[0][0].steps, groups[0][0].ppo
    if any((panel.steps, panel.ppo) != (steps, ppo) for panel, _ in groups):
        raise ValueError("panels that are learned together need the same steps and options")
    learners = [(*group, *learner) for group in groups for learner in group[0].learners]
    bonuses = _bonuses(learners, device)
    makers = [partial(gym.make, KEYS_DOORS_ID, **panel.world_of(number)) for panel, _, number, _ in learners]
    ends = np.cumsum([len(panel.learners) for panel, _ in groups])[:-1]
    ended, reached, speeds = [], [], []
    each = ppo.rollout * ppo.side_by_side
    for now in pixel_ppo(makers, steps, ppo, bonuses=bonuses, success=GOAL, infos=(*EVENTS, STATE), device=device):
        ended.append([len(own) for own in now.success])
        reached.append([int(own.sum()) for own in now.success])
        speeds.append(len(makers) * each / now.seconds)
        if len(ended) % _EVERY == 0:
            print(f"  {now.steps:,} steps ({np.median(speeds[-_EVERY:]):,.0f} a second)", flush=True)
            rates = np.sum(reached[-_EVERY:], 0) / np.maximum(np.sum(ended[-_EVERY:], 0), 1)
            for (panel, condition), own in zip(groups, np.split(rates, ends), strict=True):
                print(f"    {panel.label}, {condition.label}: {own.mean():.2f}", flush=True)
    about = {
        "machine": machine(device_of(device)), "steps_per_second": float(np.median(speeds)), "steps_per_rollout": each,
    }  # fmt: skip
    columns = zip(*(np.split(np.array(column).T, ends) for column in (ended, reached)), strict=True)
    return [
        {**about, "ended": _by_map(panel, own[0]), "reached": _by_map(panel, own[1])}
        for (panel, _), own in zip(groups, columns, strict=True)
    ]


def _by_map(panel: Panel, of_learners: NDArray[np.int64]) -> Any:
    """(maps, seeds, rollouts), as JSON holds it."""
    return of_learners.reshape(panel.maps, panel.seeds, -1).tolist()


def _bonuses(learners: Sequence[tuple[Panel, Condition, int, int]], device: str) -> list[list[Bonus]]:
    """Those of each learner; learners of a panel and a condition share what does not depend on the map or the seed."""
    made: dict[Any, Bonus] = {}
    found = []
    for panel, condition, number, seed in learners:
        own = {"true": (), "credit": (number % panel.models,), "value": (number,), "novelty": (number, seed)}
        keys = [(panel.label, condition.label, kind, *own[kind]) for kind in condition.bonuses]
        for key, (kind, options) in zip(keys, condition.bonuses.items(), strict=True):
            if key not in made:
                made[key] = _bonus(kind, options, panel, number, seed, device)
        found.append([made[key] for key in keys])
    return found


def _bonus(kind: str, options: Mapping[str, Any], panel: Panel, number: int, seed: int, device: str) -> Bonus:
    if kind == "true":
        return TrueEvents(**options)
    if kind == "novelty":
        return Novelty(seed=seed, device=str(device_of(device)), **options)
    if kind == "value":
        return StatePotential(_value(panel, number).lookup, PixelOptions().discount)
    return StepCredit(_secret(panel.credit, number % panel.models, device), **options)


def _value(panel: Panel, number: int) -> srl.TablePotential:
    """The value of states of a map, estimated from trajectories of it if that was not done yet."""
    world = panel.world_of(number)
    path = MODELS / f"keys_doors_bonus-value-{digest([world, panel.target_trajectories])}.json"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        policy = partial(Wanderer, astray=MORE_ASTRAY)
        data = srl.collect(
            KEYS_DOORS_ID, panel.target_trajectories, policy, number, workers=os.cpu_count() or 1, env_options=world
        )
        srl.estimate_potential(data, kind="value", delay_discount=PixelOptions().discount).save(path)
    return srl.TablePotential.load(path)


@cache
def _secret(task: str, seed: int, device: str) -> srl.Secret:
    """The credit model of a task and a seed."""
    credit = keys_doors_credit.result(quick=False)
    return keys_doors_credit.model_of(credit, credit.task(task), seed, device)


def settings_of(panel: Panel, condition: Condition) -> dict[str, Any]:
    """What the runs of a condition depend on, as JSON gives it back."""
    own = {**asdict(panel), "condition": asdict(condition)}
    del own["conditions"]
    if "credit" not in condition.bonuses:
        del own["credit"], own["models"]
    if "value" not in condition.bonuses:
        del own["target_trajectories"]
    return json.loads(json.dumps(own))  # type: ignore[no-any-return]


def steps_to(entry: Mapping[str, Any], rate: float = SOLVED, window: int = WINDOW) -> NDArray[np.float64]:
    """(maps, seeds) steps until so many of the last episodes reached the goal; infinite for never."""
    ended, reached = (np.array(entry[name]) for name in ("ended", "reached"))
    found = np.full(ended.shape[:-1], np.inf)
    for place in np.ndindex(found.shape):
        totals = np.stack([np.cumsum(column[place]) for column in (ended, reached)])
        for now in range(ended.shape[-1]):
            before = np.searchsorted(totals[0], totals[0, now] - window, side="right") - 1
            first = totals[:, before] if before >= 0 else np.zeros(2)
            episodes, goals = totals[:, now] - first
            if episodes >= window and goals >= rate * episodes:
                found[place] = (now + 1) * entry["steps_per_rollout"]
                break
    return found


def table(result: Result) -> Path:
    """Every panel's conditions, as Markdown."""
    record = records.load(result.path)
    sections = {panel.label: _section(panel, record) for panel in result.panels}
    path = result.path.with_suffix(".md")
    return records.write_page(path, "Keys and doors: PPO that is paid for credit", _NOTE, sections, record)


def _section(panel: Panel, record: Mapping[str, Any]) -> list[str] | None:
    found = {c.label: records.entry_of(record, settings_of(panel, c)) for c in panel.conditions}
    entries = {label: entry for label, entry in found.items() if entry is not None}
    if not entries:
        return None
    first = next(iter(entries))
    spent = {label: np.minimum(steps_to(entry), panel.steps) for label, entry in entries.items()}
    rows = []
    for label, entry in entries.items():
        rates = np.array(entry["reached"]).sum(-1) / np.maximum(np.array(entry["ended"]).sum(-1), 1)
        faster = "" if label == first else f"{statistics.ratio(spent[first], spent[label]):.2f}"
        solved = f"{statistics.mean(np.isfinite(steps_to(entry))):.0%}"
        rows.append([label, f"{statistics.mean(rates):.3f}", solved, f"{spent[label].mean():,.0f}", faster])
    header = ["condition", "goal rate", "solved", "steps to solve", "times as fast"]
    speeds = sorted({(entry["machine"], round(entry["steps_per_second"], -2)) for entry in entries.values()})
    notes = [
        f"{panel.maps} maps x {panel.seeds} learners x {panel.steps:,} steps a condition. *solved*: {SOLVED:.0%} of "
        f"the last {WINDOW} episodes reached the goal; *steps to solve*: the mean, the budget where not; *times as "
        f"fast*: the ratio to those of {first}. Steps a second of all learners that were run at once: "
        + ", ".join(f"{speed:,.0f} ({name})" for name, speed in speeds)
        + ".",
    ]
    missing = [label for label, entry in found.items() if entry is None]
    if missing:
        notes.append(f"Not run: {', '.join(missing)}.")
    return [Table(header, rows, notes).to_markdown().rstrip(), ""]


def figures(result: Result) -> list[Path]:
    """The goal rates over steps of each panel that was run."""
    from secret_rl.report import plot_learning_curves, save_figure  # so that runs need no pictures

    record, written = records.load(result.path), []
    for number, panel in enumerate(result.panels, 1):
        entries = [(c.label, records.entry_of(record, settings_of(panel, c))) for c in panel.conditions]
        rates = {label: _rates(entry) for label, entry in entries if entry is not None}
        if rates and panel.maps > 1 and panel.seeds > 1:  # else there is no interval
            points = next(iter(rates.values())).shape[-1]
            steps = np.arange(1, points + 1) * _EVERY * panel.ppo.rollout * panel.ppo.side_by_side
            axes: dict[str, Any] = {"spacing": steps.tolist(), "xlabel": "steps", "ylabel": "goal rate"}
            drawing = plot_learning_curves(LearningCurves(rates), **axes)
            written += save_figure(drawing, result.path.with_name(f"{result.name}-{number}"))
    return written


def _rates(entry: Mapping[str, Any]) -> NDArray[np.float64]:
    """(maps, seeds, points) the share of episodes that reached the goal, every few rollouts."""
    whole = len(entry["ended"][0][0]) // _EVERY * _EVERY
    columns = (np.array(entry[name])[..., :whole] for name in ("reached", "ended"))
    reached, ended = (column.reshape(*column.shape[:2], -1, _EVERY).sum(-1) for column in columns)
    return reached / np.maximum(ended, 1)


def main(quick: bool, command: str, analyse_only: bool = False, *, only: str | None = None) -> list[str]:
    """Run, and write the table and the figures."""
    this = result(quick)
    if not analyse_only:
        run(this, command, only=only)
    return [str(path) for path in (table(this), *figures(this))]
