"""PPO in new maps of keys and doors, paid for credit of other maps or for true events: all learners in one batch."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

import secret_rl as srl
from paper import keys_doors_credit, records
from paper.batched_tasks import device_of
from paper.credit_runs import RESULTS, machine
from paper.keys_doors_study import DEVELOPMENT_MAPS
from paper.pixel_ppo import Bonus, PixelOptions, Played, pixel_ppo
from secret_rl.envs import KEYS_DOORS_ID
from secret_rl.evaluation import statistics
from secret_rl.evaluation.comparison import Table

EVENTS = ("key_picked", "door_opened")  # infos that a rollout must hold
SOLVED, WINDOW = 0.8, 50  # the goal rate, and the episodes it is taken over
# Of random play, 0 of 120 episodes reached the goal on maps 100 to 105; with 900 steps, 7 % did.
WORLD: dict[str, Any] = {
    "preset": "3x3", "core": 3, "size": (40, 30), "frame_skip": 8, "max_steps": 450, "goal_reward": 5.0,
}  # fmt: skip
HELD_OUT_MAPS = 3_200_000  # to be looked at when everything else is settled
_TOLD = 10  # rollouts between two lines that tell how it goes
_NOTE = (
    "A new map, no trajectory of it. *True events*: 0.5 for the first key and the first door of each colour in an "
    "episode. *Credit bonus*: what each step would earn by a model of other maps, of two rooms by two."
)


@dataclass(eq=False)
class TrueEvents:
    """Pays for the first key and the first door of each colour in an episode: a bound for credit."""

    key: float = 0.5
    door: float = 0.5
    _met: NDArray[np.bool_] | None = field(default=None, repr=False)

    def paid(self, rollout: Played) -> NDArray[np.float32]:
        """(steps, environments)."""
        colours = [rollout.infos[name].astype(np.int64) for name in EVENTS]
        steps, n = colours[0].shape
        if self._met is None:
            self._met = np.zeros((len(EVENTS), n, 256), np.bool_)
        found, rows = np.zeros((steps, n), np.float32), np.arange(n)
        for step in range(steps):
            for met, worth, colour in zip(self._met, (self.key, self.door), colours, strict=True):
                now = colour[step]
                found[step] += worth * ((now > 0) & ~met[rows, now])
                met[rows, now] = True
            self._met[:, rollout.ended[step]] = False
        return found


@dataclass(eq=False)
class StepCredit:
    """Pays ``scale`` times the credit of each step above a threshold, in all at most ``cap`` an episode."""

    secret: srl.Secret
    scale: float = 1.0
    threshold: float = 0.1
    cap: float = 2.0
    _earned: NDArray[np.float64] | None = field(default=None, repr=False)

    def paid(self, rollout: Played) -> NDArray[np.float32]:
        """(steps, environments)."""
        steps, n = rollout.actions.shape
        seen = rollout.observations.reshape(steps * n, *rollout.observations.shape[2:])
        credit = self.secret.step_credit(seen, rollout.actions.reshape(-1)).reshape(steps, n)
        credit = self.scale * np.where(credit > self.threshold, credit, 0.0)
        earned = np.zeros(n) if self._earned is None else self._earned
        found = np.zeros((steps, n), np.float32)
        for step in range(steps):
            found[step] = np.minimum(credit[step], self.cap - earned)
            earned = np.where(rollout.ended[step], 0.0, earned + found[step])
        self._earned = earned
        return found


@dataclass(frozen=True)
class Condition:
    """What learners are paid beside the reward."""

    label: str
    bonus: str | None = None
    """"true" (``TrueEvents``) or "credit" (``StepCredit``)."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of the bonus."""


CONDITIONS = (
    Condition("none"),
    Condition("true events", "true"),
    Condition("credit bonus", "credit"),
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
    credit: str = "2x2-defaults"
    """The task of ``keys_doors_credit`` whose models tell credit; map ``m`` has the model of seed ``m``."""
    ppo: PixelOptions = field(default_factory=PixelOptions)

    @property
    def learners(self) -> list[tuple[Condition, int]]:
        """The condition and the map of each."""
        return [(c, number) for c in self.conditions for number in range(self.maps) for _ in range(self.seeds)]


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
    paid = {"the goal alone pays": 0.0, "doors and the goal pay": 1.0}
    panels = [Panel(f"3x3, {label}", {**WORLD, "door_reward": reward}, CONDITIONS) for label, reward in paid.items()]
    if quick:
        small = replace(PixelOptions(), side_by_side=2, rollout=16, filters=8, units=16)
        few: dict[str, Any] = {"maps": 2, "seeds": 1, "steps": 64, "first_map": DEVELOPMENT_MAPS, "ppo": small}
        panels = [replace(panels[0], conditions=CONDITIONS[:2], **few)]
    return Result("keys_doors_bonus-quick" if quick else "keys_doors_bonus", panels)


def run(result: Result, command: str, *, only: str | None = None, device: str = "auto") -> Path:
    """Let the learners of every panel learn in one batch; panels that are there already are kept."""
    record = records.load(result.path)
    for panel in result.panels:
        if only in (None, panel.label) and records.entry_of(record, settings_of(panel)) is None:
            entry = {"label": panel.label, "settings": settings_of(panel), **learned(panel, device)}
            records.keep(result.path, record, entry, command)
    return result.path


def learned(panel: Panel, device: str) -> dict[str, Any]:
    """How many episodes of each learner ended and how many reached the goal, rollout by rollout."""
    bonuses = [_bonus(panel, condition, number, device) for condition, number in panel.learners]
    makers = [partial(_made, {**panel.world, "layout_seed": panel.first_map + n}) for _, n in panel.learners]
    ended, reached, speeds = [], [], []
    each = panel.ppo.rollout * panel.ppo.side_by_side
    for now in pixel_ppo(
        makers, panel.steps, panel.ppo, bonuses=bonuses, success="goal_reached", infos=EVENTS, device=device
    ):
        ended.append([len(own) for own in now.success])
        reached.append([int(own.sum()) for own in now.success])
        speeds.append(len(makers) * each / now.seconds)
        if len(ended) % _TOLD == 0:
            rates = _rates(ended[-_TOLD:], reached[-_TOLD:]).reshape(len(panel.conditions), -1).mean(1)
            told = ", ".join(f"{c.label} {rate:.2f}" for c, rate in zip(panel.conditions, rates, strict=True))
            print(f"  {panel.label}, {now.steps:,} steps ({speeds[-1]:,.0f} a second): {told}", flush=True)
    shape = len(panel.conditions), panel.maps, panel.seeds, len(ended)
    columns = {"ended": ended, "reached": reached}
    return {
        "machine": machine(device_of(device)),
        "steps_per_second": float(np.median(speeds)),
        "steps_per_rollout": each,
        **{name: np.array(column).T.reshape(shape).tolist() for name, column in columns.items()},
    }


def _rates(ended: Any, reached: Any) -> NDArray[np.float64]:
    """(learners,) the goal rate over some rollouts."""
    return np.asarray(np.sum(reached, 0) / np.maximum(np.sum(ended, 0), 1))


def _made(options: Mapping[str, Any]) -> gym.Env[Any, Any]:
    return gym.make(KEYS_DOORS_ID, **options)


def _bonus(panel: Panel, condition: Condition, number: int, device: str) -> Bonus | None:
    if condition.bonus is None:
        return None
    if condition.bonus == "true":
        return TrueEvents(**condition.options)
    credit = keys_doors_credit.result(quick=False)
    task = credit.task(panel.credit)
    return StepCredit(keys_doors_credit.model_of(credit, task, number % task.seeds, device), **condition.options)


def settings_of(panel: Panel) -> dict[str, Any]:
    """What a panel depends on, as JSON gives it back."""
    return json.loads(json.dumps(asdict(panel)))  # type: ignore[no-any-return]


def steps_to(entry: Mapping[str, Any], rate: float = SOLVED, window: int = WINDOW) -> NDArray[np.float64]:
    """(conditions, maps, seeds) steps until so many of the last episodes reached the goal; infinite for never."""
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
    sections = {panel.label: _section(panel, records.entry_of(record, settings_of(panel))) for panel in result.panels}
    path = result.path.with_suffix(".md")
    return records.write_page(path, "Keys and doors: PPO that is paid for credit", _NOTE, sections, record)


def _section(panel: Panel, entry: Mapping[str, Any] | None) -> list[str] | None:
    if entry is None:
        return None
    steps = steps_to(entry)
    rates = np.array(entry["reached"]).sum(-1) / np.maximum(np.array(entry["ended"]).sum(-1), 1)
    spent = np.minimum(steps, panel.steps)
    rows = []
    for number, condition in enumerate(panel.conditions):
        faster = "" if number == 0 else f"{statistics.ratio(spent[0], spent[number]):.2f}"
        solved = f"{statistics.mean(np.isfinite(steps[number])):.0%}"
        rows.append(
            [condition.label, f"{statistics.mean(rates[number]):.3f}", solved, f"{spent[number].mean():,.0f}", faster]
        )
    header = ["condition", "goal rate", "solved", "steps to solve", "times as fast"]
    notes = [
        f"{panel.maps} maps x {panel.seeds} learners x {panel.steps:,} steps, {entry['steps_per_second']:,.0f} steps a "
        f"second in all. *solved*: {SOLVED:.0%} of the last {WINDOW} episodes reached the goal; *steps to solve*: the "
        f"mean, the budget where not; *times as fast*: the ratio to those of {panel.conditions[0].label}.",
    ]
    return [Table(header, rows, notes).to_markdown().rstrip(), ""]


def main(quick: bool, command: str, analyse_only: bool = False, *, only: str | None = None) -> list[str]:
    """Run, and write the table."""
    this = result(quick)
    if not analyse_only:
        run(this, command, only=only)
    return [str(table(this))]
