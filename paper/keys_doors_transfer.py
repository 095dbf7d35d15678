"""In-domain transfer in the 3D task: PPO on held-out maps of keys and doors, with and without shaping."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import secret_rl as srl
from paper import keys_doors_credit, records
from paper.credit_runs import RESULTS
from paper.keys_doors_credit import DEVELOPMENT_MAPS
from paper.keys_doors_runs import learn
from paper.keys_doors_study import WORLD, Condition, Files, Study, jobs, left_by, slug, target_of
from secret_rl import sweep
from secret_rl.envs import KEYS_DOORS_ID
from secret_rl.envs.keys_doors import Wanderer
from secret_rl.evaluation import Bootstrap, Estimate, LearningCurves, difference, median_time, ratio, share_reached
from secret_rl.shaping import TablePotential
from secret_rl.sweep import Workers

RATE = 0.8  # of goals among the last WINDOW training episodes of all actors together
WINDOW = 25  # more, and its first filling, of episodes that are long at first, would take most of the time
SPACING = 2_000  # steps between two points of a curve
RUNS = Path("runs/paper/keys_doors")
# Doors pay 1, again and again: what is earned is spent when one opens. A pick-up is worth 0.06 to 0.14: rewards of five
# colours were remembered, one of which looked for this key, and the frames around it share what it is given.
ONLINE = {"threshold": 0.03, "scale": 4.0, "reset_on_reward": True}
# What pays on the target maps. Where doors do not, keys earn nothing for a long time.
TARGETS: dict[str, dict[str, Any]] = {"Doors and the goal pay": {}, "The goal alone pays": {"door_reward": 0.0}}
# With the paper's 0.00019 and 0.0011, and actions of 4 tics, one of three agents on maps 100 to 102 had not learned in
# 150,000 steps; with 8 tics the two were not compared.
PPO: dict[str, Any] = {"learning_rate": 3e-4, "ent_coef": 0.01}
SOURCE_CREDIT = keys_doors_credit.result(quick=False)
CONDITIONS = (
    Condition("none"),
    Condition("value", "value"),
    Condition("paper", "paper"),
    Condition("pending", "pending"),
    Condition("mixed", "mixed"),
    Condition("OnlineCredit", "OnlineCredit", options=ONLINE),
    Condition("learned pending", "learned"),
    Condition("known way", "way"),
)


@dataclass(frozen=True)
class Panel:
    """A study of one kind of maps."""

    label: str
    study: Study
    files: Files
    window: int = WINDOW


@dataclass(frozen=True)
class TransferResult:
    """Studies, and where their results go."""

    name: str
    panels: Sequence[Panel]

    @property
    def path(self) -> Path:
        """Where the numbers are kept."""
        return RESULTS / f"{self.name}.json"


def result(quick: bool, credit: Sequence[Path] = (), runs: Path = RUNS) -> TransferResult:
    """The full size, or a small one for a quick look; credit models are those of ``keys_doors_credit`` by default."""
    if not quick:
        models = credit or [SOURCE_CREDIT.model("2x2", seed) for seed in range(SOURCE_CREDIT.task("2x2").seeds)]
        studies = {label: Study(CONDITIONS, world={**WORLD, **paid}, ppo=PPO) for label, paid in TARGETS.items()}
        return TransferResult(
            "keys_doors_transfer",
            [Panel(label, study, Files(runs / slug(label), models)) for label, study in studies.items()],
        )
    few = tuple(condition for condition in CONDITIONS if condition.label in ("none", "value", "OnlineCredit"))
    study = Study(
        few, maps=1, seeds=2, steps=6_000, first_map=DEVELOPMENT_MAPS, target_trajectories=20, ppo={"n_envs": 6}
    )
    folder = runs / "quick"
    panel = Panel("a quick look", study, Files(folder, (folder / "credit.safetensors",)), 10)
    return TransferResult("keys_doors_transfer-quick", [panel])


def run(result: TransferResult, command: str, workers: Workers | None = None) -> Path:
    """Do what is not done yet, then put together what there is."""
    failures = []
    for panel in result.panels:
        if result.name.endswith("-quick"):
            small_credit(panel.study.world, panel.files.credit[0])
        elif not all(path.is_file() for path in panel.files.credit):
            keys_doors_credit.run(SOURCE_CREDIT, command, workers, only="2x2")
        failures += learn(panel.study, panel.files, workers)
    path = gather(result, command)
    sweep.check(failures, command)
    return path


def small_credit(world: Mapping[str, Any], path: Path, *, episodes: int = 40, steps: int = 60) -> None:
    """A credit model for a quick look, fitted on the spot on a few random maps; it has learned next to nothing."""
    if path.is_file():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    env = {**world, "max_steps": 150}
    data = srl.collect(KEYS_DOORS_ID, episodes, Wanderer, seed=1, env_options=env, progress=False)
    options: dict[str, Any] = {
        "filters": (8, 8),
        "units": 16,
        "batch_size": 8,
    }
    srl.Secret(seed=0, steps=steps, **options).fit(data, progress=False).save(path)


def gather(result: TransferResult, command: str) -> Path:
    """The numbers of all runs that are there, in one file that the page and the figures are made of."""
    record: dict[str, Any] = {"panels": []}
    for panel in result.panels:
        entry = _gathered(panel)
        if entry is not None:
            records.keep(result.path, record, entry, command)
    if not record["panels"]:
        folders = ", ".join(str(panel.files.folder) for panel in result.panels)
        raise FileNotFoundError(f"no run of this study is in {folders}: run it first, without --analyse")
    return result.path


def _gathered(panel: Panel) -> dict[str, Any] | None:
    study, files = panel.study, panel.files
    found = [(job, left_by(study, files, job)) for job in jobs(study)]
    there = [(job, content) for job, content in found if content is not None]
    if not there:
        return None
    runs = [
        {"condition": condition.label, "map": number, "seed": seed, "time": _time(content, panel.window),
         "played": content["played"], "steps_per_second": content["played"] / content["seconds"],
         "curve": curve(content, study.steps, panel.window).round(3).tolist()}
        for (condition, number, seed), content in there
    ]  # fmt: skip
    targets = [target_of(study, files, number) for number in range(study.maps)]
    for number, target in enumerate(targets):
        if target is not None:
            target["mixed_from_value"] = _mixed_from_value(panel, number)
    return {
        "label": panel.label, "settings": _settings(panel),
        "machine": "; ".join(sorted({content["machine"] for _, content in there})),
        "targets": [target and {k: v for k, v in target.items() if k != "settings"} for target in targets],
        "runs": runs, "missing": len(found) - len(there),
    }  # fmt: skip


def _mixed_from_value(panel: Panel, number: int) -> float | None:
    """How far *mixed* lies from *value* over the states of a map: the mean distance over the mean value."""
    made = {c.potential: panel.files.potential(c, number) for c in panel.study.conditions}
    paths = [made.get(kind) for kind in ("value", "mixed")]
    if not all(path is not None and path.is_file() for path in paths):
        return None
    value, mixed = (TablePotential.load(path).values for path in paths if path is not None)
    return sum(abs(mixed[state] - value[state]) for state in value) / sum(abs(v) for v in value.values())


def _settings(panel: Panel) -> dict[str, Any]:
    study = panel.study
    own = {
        "conditions": [vars(condition) for condition in study.conditions], "maps": study.maps, "seeds": study.seeds,
        "steps": study.steps, "first_map": study.first_map, "world": dict(study.world),
        "acting": dict(study.acting), "ppo": dict(study.ppo), "learning": dict(study.learning),
        "target_trajectories": study.target_trajectories, "discount": study.discount, "policy": study.policy,
        "stop": [study.stop_rate, study.stop_episodes], "rate": RATE, "window": panel.window,
    }  # fmt: skip
    return json.loads(json.dumps(own, default=dict))  # type: ignore[no-any-return]


def _time(content: Mapping[str, Any], window: int) -> int | None:
    """Steps until the goal rate of ``window`` episodes in a row was reached; None: never."""
    rates = _rates(content, window)
    reached = np.flatnonzero(rates[window - 1 :] >= RATE - 1e-9)
    return int(content["steps"][window - 1 + reached[0]]) if len(reached) else None


def _rates(content: Mapping[str, Any], window: int) -> NDArray[np.float64]:
    """(episodes,) goals among the last ``window`` episodes up to each, over ``window``.

    So those to come count as failures: the first to end are those that reach the goal, and all of them do.
    """
    total = np.cumsum(np.asarray(content["goals"], np.float64))
    return np.asarray((total - np.concatenate([np.zeros(window), total])[: len(total)]) / window)


def curve(content: Mapping[str, Any], steps: int, window: int) -> NDArray[np.float64]:
    """(points,) the goal rate every SPACING steps; it stays where a run was ended."""
    at = np.arange(0, steps + 1, SPACING)
    rates = np.concatenate([[0.0], _rates(content, window)])
    return np.asarray(rates[np.searchsorted(content["steps"], at, side="right")])


def times(entry: Mapping[str, Any], label: str) -> NDArray[np.float64]:
    """(maps, seeds) steps to the goal rate; infinite where it was not reached, NaN where there was no run."""
    settings = entry["settings"]
    found = np.full((settings["maps"], settings["seeds"]), np.nan)
    for one in entry["runs"]:
        if one["condition"] == label:
            found[one["map"], one["seed"]] = np.inf if one["time"] is None else one["time"]
    return found


def speed_up(mine: NDArray[np.float64], base: NDArray[np.float64], budget: int) -> tuple[Estimate, Estimate] | None:
    """How many times as many steps the baseline took: of the means, and the geometric mean over pairs of runs.

    Over the seeds that all maps have in both; a run that never got there counts as if it had at the last step. None
    where there is no interval to tell, with a single pair or none.
    """
    whole = ~(np.isnan(mine) | np.isnan(base)).any(0)
    ours, theirs = (np.minimum(part[:, whole], budget) for part in (mine, base))
    bootstrap = _bootstrap(*ours.shape)
    if bootstrap is None:
        return None
    logs = difference(np.log(theirs), np.log(ours), bootstrap)
    return ratio(theirs, ours, bootstrap), Estimate(*(float(np.exp(n)) for n in (logs.value, logs.low, logs.high)))


def _bootstrap(maps: int, seeds: int) -> Bootstrap | None:
    """Over maps and seeds, or over seeds on the only map; None where one run is all there is."""
    if maps * seeds < 2:
        return None
    return Bootstrap("both" if maps > 1 else "seeds")


def table(result: TransferResult) -> Path:
    """Steps to the goal rate, as Markdown."""
    record = records.load(result.path)
    sections: dict[str, list[str] | None] = {}
    for panel in result.panels:
        entry = records.entry_of(record, _settings(panel))
        sections[panel.label] = None if entry is None else [*_section(panel, entry), *_targets_table(entry)]
    note = (
        "Credit was fitted on trajectories of random maps; each held-out map is learned by PPO agents (`paper_ppo`). "
        "*value*, *paper*, *pending*, *mixed* (pending for rewards that the past decides, value for the others): "
        "tables over the cell of 50 units and the held key, made from "
        f"{result.panels[0].study.target_trajectories:,} trajectories of a wanderer on the map; *learned pending*: the "
        "same credit, from pictures alone; *OnlineCredit*: no trajectory of the map; *known way*: not a method but a "
        "measure for them, what the best way through the map would still earn, made with the truth about keys and "
        "doors."
    )
    return records.write_page(RESULTS / f"{result.name}.md", "In-domain transfer in 3D", note, sections, record)


def _section(panel: Panel, entry: Mapping[str, Any]) -> list[str]:
    study, budget = panel.study, panel.study.steps
    base = times(entry, study.conditions[0].label)
    titles = ("condition", "runs", "reached", "median steps", "speed-up", "geometric mean")
    lines = ["| " + " | ".join(row) + " |" for row in (titles, ["---"] * len(titles))]
    for condition in study.conditions:
        mine = times(entry, condition.label)
        there = mine[~np.isnan(mine)]
        cells = [condition.label, str(len(there))]
        if len(there):
            median = median_time(there)
            cells += [f"{share_reached(there):.0%}", "-" if median is None else f"{median:,.0f}"]
            beside = None if condition is study.conditions[0] else speed_up(mine, base, budget)
            cells += ["", ""] if beside is None else [f"{estimate:.2f}" for estimate in beside]
        lines.append("| " + " | ".join([*cells, *[""] * (6 - len(cells))]) + " |")
    missing = f" {entry['missing']} runs are missing." if entry["missing"] else ""
    paid = {"door_reward": 1.0, "goal_reward": 50.0, "frame_skip": 4, **study.world}
    acting = {**paid, **study.acting}
    speed = np.median([one["steps_per_second"] for one in entry["runs"]])
    return [
        *lines, "",
        f"{study.maps} maps (`layout_seed` {study.first_map:,} and following) x {study.seeds} seeds x {budget:,} steps "
        f"at most, {speed:,.0f} steps a second in the median run.{missing} Goal rate: the share of the last "
        f"{panel.window} training episodes, of all actors together, that ended at the goal. Training ends once it is "
        f"{study.stop_rate:.0%} over {study.stop_episodes} episodes.",
        "",
        "Speed-up: mean steps without shaping over mean steps with it, and the geometric mean over pairs of runs; a "
        "run that never got there counts with all its steps. 95 % bootstrap intervals over maps and seeds. Steps of "
        "target trajectories are not counted.",
        "",
        f"A door pays {paid['door_reward']:g} and the goal {paid['goal_reward']:g} (50 in the paper); "
        f"pictures of {'x'.join(map(str, study.world['size']))}. Scale of the shaping and options "
        f"of OnlineCredit: {_shaping_note(study)}. Agents hold an action for {acting['frame_skip']} tics, those who "
        f"played the trajectories for {paid['frame_skip']}; PPO with {_options_note(study.ppo)}.",
        "",
    ]  # fmt: skip


def _options_note(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in options.items()) or "the paper's options"


def _shaping_note(study: Study) -> str:
    scales = []
    for condition in study.conditions[1:]:
        more = "".join(f", {name} {value}" for name, value in condition.options.items())
        scales.append(f"{condition.label} {condition.scale:g}{more}")
    return "; ".join(scales)


def _targets_table(entry: Mapping[str, Any]) -> list[str]:
    lines = [
        "The target trajectories:",
        "",
        "| map | steps | to the goal | rewards predicted | *mixed* from *value* |",
        "| --- | --- | --- | --- | --- |",
    ]
    for number, target in enumerate(entry["targets"]):
        if target is not None:
            shares = [target.get("coverage"), target.get("mixed_from_value")]
            cells = " | ".join("" if share is None else f"{share:.1%}" for share in shares)
            lines.append(f"| {number} | {target['steps']:,} | {target['goals']:.1%} | {cells} |")
    return [*lines, "", "*mixed* from *value*: their mean distance over the states, over the mean of *value*.", ""]


def figures(result: TransferResult) -> list[Path]:
    """The goal rates over steps, of conditions whose runs are all there."""
    from secret_rl.report import plot_learning_curves, save_figure  # so that runs need no pictures

    record, written = records.load(result.path), []
    for panel in result.panels:
        entry, bootstrap = records.entry_of(record, _settings(panel)), _bootstrap(panel.study.maps, panel.study.seeds)
        drawn = {} if entry is None else _complete(panel, entry)
        if drawn and bootstrap is not None:
            axes = {"spacing": SPACING, "xlabel": "steps", "ylabel": "goal rate"}
            drawing = plot_learning_curves(LearningCurves(drawn), bootstrap=bootstrap, **axes)
            written += save_figure(drawing, RESULTS / f"{result.name}-{slug(panel.label)}")
    return written


def _complete(panel: Panel, entry: Mapping[str, Any]) -> dict[str, NDArray[np.float64]]:
    """(maps, seeds, points) the curves of each condition whose runs are all there."""
    maps, seeds, found = panel.study.maps, panel.study.seeds, {}
    for condition in panel.study.conditions:
        mine = {(one["map"], one["seed"]): one["curve"] for one in entry["runs"] if one["condition"] == condition.label}
        if len(mine) == maps * seeds:
            found[condition.label] = np.array([[mine[m, s] for s in range(seeds)] for m in range(maps)])
    return found


def main(quick: bool, command: str, analyse_only: bool = False, *, workers: Workers | None = None) -> list[str]:
    """Run, and write the table and the figure."""
    made = result(quick)
    if not analyse_only:
        run(made, command, workers)
    elif any(panel.files.folder.is_dir() for panel in made.panels):  # runs may have been made elsewhere
        gather(made, command)
    return [str(path) for path in (table(made), *figures(made))]
