"""Credit in the 3D task: whose key opened the door (figure 3, right)."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import secret_rl as srl
from paper import records
from paper.credit_runs import DATA, MODELS, RESULTS, machine
from secret_rl import sweep
from secret_rl.atomic import replace_text
from secret_rl.credit.rivals.readouts import READOUTS, read_out
from secret_rl.envs import KEYS_DOORS_ID
from secret_rl.envs.keys_doors import Wanderer, door_causes
from secret_rl.evaluation import CreditQuality
from secret_rl.sweep import Workers

# Seeds of trajectories: no map is in two of these sets but by chance. Those of seed 3 had a say in options, and are
# held out no more.
SOURCE, DEVELOPMENT, HELD_OUT = 1, 2, 4
ASTRAY = 0.03  # learners run into keys backwards, too, which a wanderer that keeps to its ways never shows
DEVELOPMENT_MAPS = 100  # first of the maps that options of agents are chosen on
TOLERANCE = 5  # steps by which a prediction may miss its reward, and attention its key (appendix A)
# No fit ends early: credit goes on getting sharper while the learning rate falls.
OPTIONS: dict[str, Any] = {"filters": (16, 16), "batch_size": 64, "steps": 8_000, "patience": 100}
SMALL: dict[str, Any] = {"size": (40, 30)}
TWO_DOORS: dict[str, Any] = {"preset": "2x2-easy", "core": 2, **SMALL}
NINE_ROOMS: dict[str, Any] = {"preset": "3x3", **SMALL}
AS_LEARNED: dict[str, Any] = {**TWO_DOORS, "frame_skip": 8}  # as the PPO agent has learned it
LONGER_ACTIONS: dict[str, Any] = {**AS_LEARNED, "max_steps": 300}  # for PPO that is paid for credit
SHORTER_FIT: dict[str, Any] = {**OPTIONS, "steps": 5_000}
# The same, for PPO that acts at random for long: a key that is taken is seen to be gone.
MORE_ASTRAY = 0.1
OF_TRANSITIONS: dict[str, Any] = {**OPTIONS, "steps": 4_000, "transitions": True}
HARDER: dict[str, Any] = {**OPTIONS, "batch_size": 32}  # longer, doors rarer
ADAPTING: dict[str, Any] = {"batch_size": 32, "steps": 8_000}
_EARLIER = (
    "The method before residual weights, with a weight of zeros, filters and a number of updates chosen for this task."
)
_OTHER_READOUTS = READOUTS[1:3]
_PLAYERS = {"wanderer": "the wanderer", "ppo": "PPO"}


@dataclass(frozen=True)
class Maps:
    """Trajectories on random maps, each seen once."""

    player: str
    """"wanderer" or "ppo" (an agent that has learned on random maps)."""
    episodes: int
    seed: int
    world: Mapping[str, Any] = field(default_factory=lambda: dict(TWO_DOORS))
    """Options of the environment."""
    astray: float = ASTRAY
    """The chance that the wanderer begins to act at random for some steps, at each step."""

    def load(self) -> srl.Trajectories:
        """The trajectories, collected if they are not there yet."""
        path = DATA / f"keys_doors-{self.player}-{digest(asdict(self))}"
        with records.one_at_a_time(path):
            if not path.is_dir():
                policy = partial(Wanderer, astray=self.astray) if self.player == "wanderer" else trained_player()
                srl.collect(
                    KEYS_DOORS_ID, self.episodes, policy, self.seed, workers=os.cpu_count() or 1, out=path,
                    env_options=self.world,
                )  # fmt: skip
        return srl.Trajectories.load(path, verify=False)


@dataclass(frozen=True)
class Task:
    """What credit is learned from and judged on."""

    label: str
    source: Maps
    held_out: Maps
    options: Mapping[str, Any] = field(default_factory=lambda: dict(OPTIONS))
    """Of the credit model, or of ``adapt``."""
    adapts: str | None = None
    """The task whose models are taken further on this source; None: models are new."""
    seeds: int = 3


def digest(settings: Any) -> str:
    """Tells files of other settings apart."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


def trained_player() -> Any:
    """A PPO agent that has learned on random maps."""
    from paper.keys_doors_potentials import player  # so that who only fits needs no agents
    from paper.keys_doors_runs import PLAYER, train_player

    path = MODELS / "keys_doors-player.safetensors"
    with records.one_at_a_time(path):
        if not path.is_file():
            rate = train_player(PLAYER, PLAYER.steps, path)
            print(f"  training the agent that plays: goal rate {rate:.2f}", flush=True)
    return player(PLAYER, path)


@dataclass(frozen=True)
class Result:
    """Where credit is learned and judged, and with how many seeds."""

    name: str
    tasks: Sequence[Task]

    @property
    def path(self) -> Path:
        """Where the numbers are kept."""
        return RESULTS / f"{self.name}.json"

    def task(self, label: str) -> Task:
        """By its label."""
        return next(task for task in self.tasks if task.label == label)

    def model(self, label: str, seed: int) -> Path:
        """The credit model of a task; another source or other options make another file."""
        task = self.task(label)
        first = None if task.adapts is None else self.model(task.adapts, seed).name
        source = digest([asdict(task.source), dict(task.options), first])
        return MODELS / f"{self.name}-{label}-{seed}-{source}.safetensors"


def result(quick: bool) -> Result:
    """The full size, or a small one for a quick look."""
    if quick:
        small = {**TWO_DOORS, "max_steps": 200}
        options = {**OPTIONS, "steps": 60, "batch_size": 8, "units": 32}
        source, held_out = Maps("wanderer", 60, SOURCE, small), Maps("wanderer", 20, DEVELOPMENT, small)
        return Result("keys_doors_credit-quick", [Task("2x2", source, held_out, options, seeds=1)])
    by_ppo, held_out_by_ppo = Maps("ppo", 4_000, SOURCE, AS_LEARNED), Maps("ppo", 500, HELD_OUT, AS_LEARNED)
    more_by_ppo = replace(by_ppo, episodes=10_000)
    return Result(
        "keys_doors_credit",
        [
            Task("2x2-defaults", Maps("wanderer", 6_400, SOURCE), Maps("wanderer", 1_000, HELD_OUT), {}, seeds=5),
            Task("2x2", Maps("wanderer", 6_400, SOURCE), Maps("wanderer", 1_000, HELD_OUT)),
            Task(
                "2x2-longer-actions",
                Maps("wanderer", 6_400, SOURCE, LONGER_ACTIONS),
                Maps("wanderer", 1_000, HELD_OUT, LONGER_ACTIONS),
                SHORTER_FIT,
            ),
            Task(
                "2x2-transitions",
                Maps("wanderer", 6_400, SOURCE, LONGER_ACTIONS, MORE_ASTRAY),
                Maps("wanderer", 1_000, HELD_OUT, LONGER_ACTIONS, MORE_ASTRAY),
                OF_TRANSITIONS,
            ),
            Task(
                "3x3",
                Maps("wanderer", 4_800, SOURCE, NINE_ROOMS),
                Maps("wanderer", 1_000, HELD_OUT, NINE_ROOMS),
                HARDER,
            ),
            Task("2x2-ppo", by_ppo, held_out_by_ppo, HARDER),
            Task("2x2-adapted", by_ppo, held_out_by_ppo, ADAPTING, adapts="2x2"),
            Task("2x2-adapted-more", more_by_ppo, held_out_by_ppo, ADAPTING, adapts="2x2"),
        ],
    )


def run(
    result: Result, command: str, workers: Workers | None = None, *, only: str | None = None, device: str = "auto"
) -> Path:
    """Fit and judge with every seed; what is there already, with the same settings, is not done again."""
    missing = [
        (task, seed)
        for seed in range(max(task.seeds for task in result.tasks))
        for task in result.tasks
        if seed < task.seeds and only in (None, task.label) and _found(result, _settings(task, seed)) is None
    ]
    cells = [
        sweep.Cell(f"{task.label}, seed {seed}", _settings(task, seed), partial(judge, result, task, seed, device))
        for task, seed in missing
    ]
    found, failures = sweep.run(cells, records.CELLS / result.name, workers)
    for cell, outcome in zip(cells, found, strict=True):
        if outcome is not None:
            entry = {"label": cell.name, "settings": cell.settings, **outcome}
            records.keep(result.path, records.load(result.path), entry, command)
            print(f"  {cell.name}: {outcome['told']}", flush=True)
    sweep.check(failures, command)
    return result.path


def model_of(result: Result, task: Task, seed: int, device: str = "auto") -> srl.Secret:
    """The credit model of a task, made if it is not there yet."""
    path = result.model(task.label, seed)
    with records.one_at_a_time(path):
        if path.is_file():
            return srl.Secret.load(path, device=device)
        if task.adapts is None:
            secret = srl.Secret(seed=seed, device=device, **task.options)
            secret.fit(task.source.load(), checkpoint=path.with_suffix(".partial"))
        else:
            first = model_of(result, result.task(task.adapts), seed, device)
            secret = srl.adapt(first, task.source.load(), **task.options)
        secret.save(path)
        return secret


def judge(result: Result, task: Task, seed: int, device: str) -> dict[str, Any]:
    """A run: the model of a task, and how right its credit is."""
    secret, held_out = model_of(result, task, seed, device), task.held_out.load()
    quality, predicted = judged(secret, held_out)
    assert secret.report is not None
    return {
        "fit": {k: v for k, v in secret.report.to_json().items() if k != "curve"},
        "quality": {**quality.to_json(), "predicted": predicted, "share": quality.attention_on_events},
        "other_readouts": other_readouts(secret, held_out),
        "told": str(quality),
        "machine": machine(torch.device(secret.device)),
    }


def other_readouts(secret: srl.Secret, data: srl.Trajectories) -> dict[str, float]:
    """The share of credit at the key by what else credit can be read from."""
    return {name: judged(secret, data, name)[0].attention_on_events for name in _OTHER_READOUTS}


def judged(secret: srl.Secret, data: srl.Trajectories, readout: str = READOUTS[0]) -> tuple[CreditQuality, float]:
    """Whether credit is where the keys of opened doors were taken, and the share of these doors predicted."""
    attention = secret.attribute(data, rewards="positive", tolerance=TOLERANCE)
    attributions = read_out(secret, data, attention, readout)
    causes = door_causes(data)
    quality = srl.credit_quality(attributions, causes, tolerance=TOLERANCE)
    return quality, quality.rows / max(int((causes >= 0).sum()), 1)


def _settings(task: Task, seed: int) -> dict[str, Any]:
    own = {**asdict(task), "seed": seed}
    del own["seeds"]
    return json.loads(json.dumps(own))  # type: ignore[no-any-return]


def _found(result: Result, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    return records.entry_of(records.load(result.path), settings)


def table(result: Result) -> Path:
    """The numbers beside those asked of them, as Markdown."""
    record = records.load(result.path)
    titles = ["maps", "predicted", "attention at the key", "uniform", "strongest", "precision", "recall"]
    titles += [f"at the key: {name}" for name in _OTHER_READOUTS]
    rows = [*_row(titles), *_row(["---"] * len(titles))]
    now, earlier = list(rows), list(rows)
    for task in result.tasks:
        for seed in range(task.seeds):
            label = f"{task.label}, seed {seed}"
            entry = _found(result, _settings(task, seed))
            old = next((other for other in record["panels"] if other["label"] == label), None)
            if entry is None and old is None:
                now += _row([label, "not run", *[""] * (len(titles) - 2)])
            else:
                (now if entry else earlier).extend(_line(label, entry or old))
    lines = ["# Credit in 3D: whose key opened the door", "", *now]
    if len(earlier) > len(rows):
        lines += ["", "## With other settings", "", _EARLIER, "", *earlier]
    machines = sorted({entry["machine"] for entry in record["panels"]})
    lines += [
        "",
        "Trajectories on random maps, a new one each. The wanderer heads for random keys and doors; PPO has learned on "
        "random maps. 2x2-defaults is `Secret()` as it comes.",
        "",
        *(
            f"- {task.label}: {_how_learned(task)} {_maps_note(task.source)}; judged on {_maps_note(task.held_out)}."
            for task in result.tasks
        ),
        "",
        f"*predicted*: share of the door rewards predicted to be positive within {TOLERANCE} steps. Of those rows: "
        f"*attention at the key*, the mean share of attention within {TOLERANCE} steps of the pick-up of that door's "
        f"key; *uniform*, the same of rows that spread it evenly; *strongest*, the share whose largest weight is "
        f"there; *precision* and *recall* of weights above 0.2, with the same tolerance; *at the key*: the share of "
        f"credit that is read in other ways.",
        "",
        f"`{record.get('command')}`, {record.get('date')}, {'; '.join(machines)}.",
        "",
    ]
    path = RESULTS / f"{result.name}.md"
    replace_text(path, "\n".join(lines))
    return path


def _line(label: str, entry: Any) -> list[str]:
    q = entry["quality"]
    numbers = [q[k] for k in ("predicted", "share", "uniform_share", "strongest", "precision", "recall")]
    numbers += [entry.get("other_readouts", {}).get(name) for name in _OTHER_READOUTS]
    verdict = entry["fit"].get("verdict", "credit")
    named = label if verdict == "credit" else f"{label} ({verdict})"
    return _row([named, *("" if number is None else f"{number:.3f}" for number in numbers)])


def _how_learned(task: Task) -> str:
    return "learned from" if task.adapts is None else f"models of {task.adapts}, adapted to"


def _maps_note(maps: Maps) -> str:
    return f"{maps.episodes:,} trajectories of {_PLAYERS[maps.player]}"


def _row(cells: Sequence[str]) -> list[str]:
    return ["| " + " | ".join(cells) + " |"]


def figure(result: Result) -> list[Path]:
    """Attention around the pick-up of the key, the mean over seeds."""
    from secret_rl.report import plot_concentration, save_figure  # so that runs need no pictures

    panels = {}
    for task in result.tasks:
        labels = {f"{task.label}, seed {seed}" for seed in range(task.seeds)}
        found = (entry for entry in records.load(result.path)["panels"] if entry["label"] in labels)
        bars = [entry["quality"]["concentration"] for entry in found]
        if bars:
            panels[task.label] = {int(d): float(np.mean([bar[d] for bar in bars])) for d in bars[0]}
    label = "steps from the pick-up of the key"
    return list(save_figure(plot_concentration(panels, xlabel=label), RESULTS / result.name)) if panels else []


def main(quick: bool, command: str, analyse_only: bool = False, *, workers: Workers | None = None) -> list[str]:
    """Run, and write the table and the figure."""
    this = result(quick)
    if not analyse_only:
        run(this, command, workers)
    return [str(path) for path in (table(this), *figure(this))]
