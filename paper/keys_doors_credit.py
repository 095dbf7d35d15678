"""Credit in the 3D task: whose key opened the door (figure 3, right)."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import secret_rl as srl
from paper import records
from paper.credit_runs import DATA, MODELS, RESULTS, machine
from secret_rl.envs import KEYS_DOORS_ID
from secret_rl.envs.keys_doors import Wanderer, door_causes
from secret_rl.files import replace_text

# Seeds of trajectories: no map is in two of these sets but by chance. Those of seed 3 had a say in w(0) of 3x3, and are
# held out no more.
SOURCE, DEVELOPMENT, HELD_OUT = 1, 2, 4
ASTRAY = 0.03  # learners run into keys backwards, too, which a wanderer that keeps to its ways never shows
TOLERANCE = 5  # steps by which a prediction may miss its reward, and attention its key (appendix A)
# The "no" of this task, a door that stays closed, is a zero: w(0) decides whether the past is consulted. No fit ends
# early: credit goes on getting sharper while the learning rate falls.
OPTIONS: dict[str, Any] = {
    "filters": (16, 16), "class_weights": (0.499, 3.0, 0.499), "batch_size": 64, "steps": 8_000, "patience": 100,
}  # fmt: skip
TWO_DOORS: dict[str, Any] = {"preset": "2x2-easy", "core": 2}
PRESETS: dict[str, dict[str, Any]] = {"2x2": TWO_DOORS, "3x3": {"preset": "3x3"}, "2x2-ppo": TWO_DOORS}
HARDER: dict[str, Any] = {"class_weights": (0.499, 1.0, 0.499), "batch_size": 32}  # episodes are longer, doors rarer
PLAYED: dict[str, Any] = {"size": (40, 30), "frame_skip": 8}  # as the agent has learned it
OWN_OPTIONS: dict[str, dict[str, Any]] = {"3x3": HARDER, "2x2-ppo": HARDER}


@dataclass(frozen=True)
class Maps:
    """Trajectories on random maps, each seen once: of a PPO agent where the label says so, else of a wanderer."""

    label: str
    episodes: int
    seed: int
    world: Mapping[str, Any] = field(default_factory=lambda: {"size": (40, 30)})
    astray: float = ASTRAY
    """The chance that the wanderer begins to act at random for some steps, at each step."""

    def load(self) -> srl.Trajectories:
        """The trajectories, collected if they are not there yet."""
        path = DATA / f"keys_doors-{self.label}-{_digest(asdict(self))}"
        if not path.is_dir():
            policy = trained_player() if self.label.endswith("-ppo") else partial(Wanderer, astray=self.astray)
            srl.collect(
                KEYS_DOORS_ID, self.episodes, policy, self.seed, workers=os.cpu_count() or 1, out=path,
                env_options={**PRESETS[self.label], **self.world},
            )  # fmt: skip
        return srl.Trajectories.load(path, verify=False)


def _digest(settings: Any) -> str:
    """Tells files of other settings apart."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


def trained_player() -> Any:
    """A PPO agent that has learned on random maps."""
    from paper.keys_doors_potentials import player  # so that who only fits needs no agents
    from paper.keys_doors_runs import PLAYER, train_player

    path = MODELS / "keys_doors-player.safetensors"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        print(f"  training the agent that plays: goal rate {train_player(PLAYER, PLAYER.steps, path):.2f}", flush=True)
    return player(PLAYER, path)


@dataclass(frozen=True)
class Result:
    """Where credit is learned and judged, and how."""

    name: str
    sources: Sequence[Maps]
    held_out: Sequence[Maps]
    seeds: int
    options: Mapping[str, Any] = field(default_factory=lambda: dict(OPTIONS))

    @property
    def path(self) -> Path:
        """Where the numbers are kept."""
        return RESULTS / f"{self.name}.json"

    def options_of(self, label: str) -> dict[str, Any]:
        """Of the credit model of some maps."""
        return {**self.options, **OWN_OPTIONS.get(label, {})}

    def model(self, label: str, seed: int) -> Path:
        """The credit model of some maps; another source or other options make another file."""
        source = next(maps for maps in self.sources if maps.label == label)
        digest = _digest([asdict(source), self.options_of(label)])
        return MODELS / f"{self.name}-{label}-{seed}-{digest}.safetensors"


def result(quick: bool) -> Result:
    """The full size, or a small one for a quick look."""
    if quick:
        small = {"size": (40, 30), "max_steps": 200}
        options = {**OPTIONS, "steps": 60, "batch_size": 8, "units": 32, "restarts": 0}
        sources, held_out = Maps("2x2", 60, SOURCE, small), Maps("2x2", 20, DEVELOPMENT, small)
        return Result("keys_doors_credit-quick", [sources], [held_out], seeds=1, options=options)
    return Result(
        "keys_doors_credit",
        [Maps("2x2", 6_400, SOURCE), Maps("3x3", 4_800, SOURCE), Maps("2x2-ppo", 4_800, SOURCE, PLAYED)],
        [Maps("2x2", 1_000, HELD_OUT), Maps("3x3", 1_000, HELD_OUT), Maps("2x2-ppo", 500, HELD_OUT, PLAYED)],
        seeds=3,
    )


def run(result: Result, command: str, *, only: str | None = None, device: str = "auto") -> Path:
    """Fit and judge with every seed; what is there already, with the same settings, is not done again."""
    for seed in range(result.seeds):
        for source, held_out in zip(result.sources, result.held_out, strict=True):
            settings = _settings(result, source, held_out, seed)
            if only in (None, source.label) and _found(result, settings) is None:
                outcome = _fit_and_judge(result, source, held_out, seed, device)
                entry = {"label": f"{source.label}, seed {seed}", "settings": settings, **outcome}
                records.keep(result.path, records.load(result.path), entry, command)
                print(f"  {source.label}, seed {seed}: {outcome['told']}", flush=True)
    return result.path


def _fit_and_judge(result: Result, source: Maps, held_out: Maps, seed: int, device: str) -> dict[str, Any]:
    path = result.model(source.label, seed)
    if path.is_file():
        secret = srl.Secret.load(path, device=device)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        secret = srl.Secret(seed=seed, device=device, **result.options_of(source.label))
        secret.fit(source.load(), checkpoint=path.with_suffix(".partial")).save(path)
    quality = judged(secret, held_out.load())
    assert secret.report is not None
    return {
        "fit": {k: v for k, v in secret.report.to_json().items() if k != "curve"},
        "quality": quality.to_json(),
        "told": str(quality),
        "machine": machine(torch.device(secret.device)),
    }


def judged(secret: srl.Secret, data: srl.Trajectories) -> Any:
    """Of the doors that were opened, whether attention is where their keys were taken."""
    attributions = secret.attribute(data, rewards="positive", tolerance=TOLERANCE)
    return srl.cause_quality(attributions, door_causes(data), tolerance=TOLERANCE)


def _settings(result: Result, source: Maps, held_out: Maps, seed: int) -> dict[str, Any]:
    options = result.options_of(source.label)
    own = {"source": asdict(source), "held_out": asdict(held_out), "seed": seed, "options": options}
    return json.loads(json.dumps(own))  # type: ignore[no-any-return]


def _found(result: Result, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    return records.entry_of(records.load(result.path), settings)


def table(result: Result) -> Path:
    """The numbers beside those asked of them, as Markdown."""
    record = records.load(result.path)
    titles = ("maps", "seed", "predicted", "attention at the key", "uniform", "strongest", "precision", "recall")
    lines = ["# Credit in 3D: whose key opened the door", "", *_row(titles), *_row(["---"] * len(titles))]
    for source, held_out in zip(result.sources, result.held_out, strict=True):
        for seed in range(result.seeds):
            entry = _found(result, _settings(result, source, held_out, seed))
            if entry is None:
                lines += _row([source.label, str(seed), "not run", *[""] * 5])
                continue
            q = entry["quality"]
            numbers = (q[k] for k in ("predicted", "share", "uniform_share", "strongest", "precision", "recall"))
            collapsed = " (collapsed)" if entry["fit"]["collapsed"] else ""
            lines += _row([source.label, f"{seed}{collapsed}", *(f"{number:.3f}" for number in numbers)])
    machines = sorted({entry["machine"] for entry in record["panels"]})
    learned, judged_on = (
        ", ".join(f"{m.episodes:,} ({m.label})" for m in maps) for maps in (result.sources, result.held_out)
    )
    lines += [
        "",
        f"Learned from {learned} trajectories, a new map each, of a wanderer that heads for random keys and doors, in "
        f"2x2-ppo of a PPO agent; judged on {judged_on} others. *predicted*: share of the door rewards predicted to be "
        f"positive within {TOLERANCE} steps. Of those rows: *attention at the key*, the mean share of attention within "
        f"{TOLERANCE} steps of the pick-up of that door's key; *uniform*, the same of rows that spread it evenly; "
        f"*strongest*, the share whose largest weight is there; *precision* and *recall* of weights above 0.2, with "
        f"the same tolerance.",
        "",
        f"`{record.get('command')}`, {record.get('date')}, {'; '.join(machines)}.",
        "",
    ]
    path = RESULTS / f"{result.name}.md"
    replace_text(path, "\n".join(lines))
    return path


def _row(cells: Sequence[str]) -> list[str]:
    return ["| " + " | ".join(cells) + " |"]


def figure(result: Result) -> list[Path]:
    """Attention around the pick-up of the key, the mean over seeds."""
    from secret_rl.report import save_concentration  # so that runs need no pictures

    panels = {}
    for source, held_out in zip(result.sources, result.held_out, strict=True):
        found = [_found(result, _settings(result, source, held_out, seed)) for seed in range(result.seeds)]
        bars = [entry["quality"]["concentration"] for entry in found if entry is not None]
        if bars:
            panels[source.label] = {int(d): float(np.mean([bar[d] for bar in bars])) for d in bars[0]}
    label = "steps from the pick-up of the key"
    return list(save_concentration(panels, RESULTS / result.name, xlabel=label)) if panels else []


def main(quick: bool, command: str, analyse_only: bool = False) -> list[str]:
    """Run, and write the table and the figure."""
    this = result(quick)
    if not analyse_only:
        run(this, command)
    return [str(path) for path in (table(this), *figure(this))]
