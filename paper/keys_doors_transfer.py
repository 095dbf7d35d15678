"""In-domain transfer in the 3D task: PPO on held-out maps of keys and doors, with and without shaping."""

import argparse
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
from paper.keys_doors_runs import learn
from paper.keys_doors_study import DEVELOPMENT_MAPS, Condition, Files, Study, jobs, left_by, target_of
from secret_rl.envs import KEYS_DOORS_ID
from secret_rl.envs.keys_doors import Wanderer
from secret_rl.evaluation import Bootstrap, Estimate, LearningCurves, difference, median_time, ratio, share_reached

RATE = 0.8  # of goals among the last WINDOW training episodes of all actors together
WINDOW = 25  # more, and its first filling, of episodes that are long at first, would take most of the time
SPACING = 2_000  # steps between two points of a curve
RUNS = Path("runs/paper/keys_doors")
# Doors pay 1, again and again: what is earned is spent when one opens. A pick-up is worth 0.06 to 0.14: rewards of five
# colours were remembered, one of which looked for this key, and the frames around it share what it is given.
ONLINE = {"threshold": 0.03, "scale": 4.0, "reset_on_reward": True}
SOURCE_CREDIT = keys_doors_credit.result(quick=False)
CONDITIONS = (
    Condition("none"),
    Condition("value", "value"),
    Condition("paper", "paper"),
    Condition("pending", "pending"),
    Condition("OnlineCredit", "OnlineCredit", options=ONLINE),
    Condition("learned pending", "learned"),
)


@dataclass(frozen=True)
class TransferResult:
    """The study, and where its results go."""

    name: str
    study: Study
    files: Files
    window: int = WINDOW

    @property
    def path(self) -> Path:
        """Where the numbers are kept."""
        return RESULTS / f"{self.name}.json"


def result(quick: bool, credit: Sequence[Path] = (), runs: Path = RUNS) -> TransferResult:
    """The full size, or a small one for a quick look; credit models are those of ``keys_doors_credit`` by default."""
    if not quick:
        models = credit or [SOURCE_CREDIT.model("2x2", seed) for seed in range(SOURCE_CREDIT.seeds)]
        return TransferResult("keys_doors_transfer", Study(CONDITIONS), Files(runs / "transfer", models))
    few = tuple(condition for condition in CONDITIONS if condition.label in ("none", "value", "OnlineCredit"))
    study = Study(
        few, maps=1, seeds=2, steps=6_000, first_map=DEVELOPMENT_MAPS, target_trajectories=20, ppo={"n_envs": 6}
    )
    folder = runs / "transfer-quick"
    return TransferResult("keys_doors_transfer-quick", study, Files(folder, (folder / "credit.safetensors",)), 10)


def run(result: TransferResult, command: str, *, workers: int | None = None, limit: float = float("inf")) -> Path:
    """Do what is not done yet, for so many seconds at most; then put together what there is."""
    if result.name.endswith("-quick"):
        small_credit(result.study.world, result.files.credit[0])
    elif not all(path.is_file() for path in result.files.credit):
        keys_doors_credit.run(SOURCE_CREDIT, command, only="2x2")
    learn(result.study, result.files, workers=workers, limit=limit)
    return gather(result, command)


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
        "restarts": 0,
        "class_weights": (0.0, 0.01, 1.0),
    }
    srl.Secret(seed=0, steps=steps, **options).fit(data, progress=False).save(path)


def gather(result: TransferResult, command: str) -> Path:
    """The numbers of all runs that are there, in one file that the page and the figure are made of."""
    study, files = result.study, result.files
    found = [(job, left_by(study, files, job)) for job in jobs(study)]
    there = [(job, content) for job, content in found if content is not None]
    if not there:
        raise FileNotFoundError(f"no run of this study is in {files.folder}: run it first, without --analyse")
    runs = [
        {"condition": condition.label, "map": number, "seed": seed, "time": _time(content, result.window),
         "played": content["played"], "steps_per_second": content["played"] / content["seconds"],
         "curve": curve(content, study.steps, result.window).round(3).tolist()}
        for (condition, number, seed), content in there
    ]  # fmt: skip
    targets = [target_of(study, files, number) for number in range(study.maps)]
    entry = {
        "label": "transfer", "settings": _settings(result),
        "machine": "; ".join(sorted({content["machine"] for _, content in there})),
        "targets": [target and {k: v for k, v in target.items() if k != "settings"} for target in targets],
        "runs": runs, "missing": len(found) - len(there),
    }  # fmt: skip
    records.keep(result.path, {"panels": []}, entry, command)
    return result.path


def _settings(result: TransferResult) -> dict[str, Any]:
    study = result.study
    own = {
        "conditions": [vars(condition) for condition in study.conditions], "maps": study.maps, "seeds": study.seeds,
        "steps": study.steps, "first_map": study.first_map, "world": dict(study.world),
        "ppo": dict(study.ppo), "learning": dict(study.learning),
        "target_trajectories": study.target_trajectories, "discount": study.discount, "policy": study.policy,
        "stop": [study.stop_rate, study.stop_episodes], "rate": RATE, "window": result.window,
    }  # fmt: skip
    return json.loads(json.dumps(own, default=dict))  # type: ignore[no-any-return]


def _time(content: Mapping[str, Any], window: int) -> int | None:
    """Steps until the goal rate of ``window`` episodes in a row was reached; None: never."""
    rates = _rates(content, window)
    reached = np.flatnonzero(rates[window - 1 :] >= RATE - 1e-9)
    return int(content["steps"][window - 1 + reached[0]]) if len(reached) else None


def _rates(content: Mapping[str, Any], window: int) -> NDArray[np.float64]:
    """(episodes,) the share of goals among the last ``window`` episodes up to each, or all while there are fewer."""
    total = np.concatenate([[0], np.cumsum(np.asarray(content["goals"], np.float64))])
    ends = np.arange(1, len(total))
    first = np.maximum(ends - window, 0)
    return np.asarray((total[ends] - total[first]) / (ends - first))


def curve(content: Mapping[str, Any], steps: int, window: int) -> NDArray[np.float64]:
    """(points,) the goal rate every SPACING steps, 0 before any episode is over; it stays where a run was ended."""
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
    entry = records.entry_of(record, _settings(result))
    sections = {"Steps to a goal rate of 80 %": None if entry is None else _told(result, entry)}
    if entry is not None:
        sections["The target trajectories"] = _targets_told(entry)
    note = (
        "Credit was fitted on trajectories of random maps; each held-out map is learned by PPO agents with the paper's "
        "options (`paper_ppo`). *value*, *paper*, *pending*: tables over the cell of 50 units and the held key, made "
        f"from {result.study.target_trajectories:,} trajectories on the map; *learned pending*: the same credit, from "
        "pictures alone; *OnlineCredit*: no trajectory of the map."
    )
    return records.write_page(RESULTS / f"{result.name}.md", "In-domain transfer in 3D", note, sections, record)


def _told(result: TransferResult, entry: Mapping[str, Any]) -> list[str]:
    study, budget = result.study, result.study.steps
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
    paid = {"door_reward": 1.0, "goal_reward": 50.0, **study.world}
    speed = np.median([one["steps_per_second"] for one in entry["runs"]])
    return [
        *lines, "",
        f"{study.maps} maps (`layout_seed` {study.first_map:,} and following) x {study.seeds} seeds x {budget:,} steps "
        f"at most, {speed:,.0f} steps a second in the median run.{missing} Goal rate: the share of the last "
        f"{result.window} training episodes, of all actors together, that ended at the goal. Training ends once it is "
        f"{study.stop_rate:.0%} over {study.stop_episodes} episodes.",
        "",
        "Speed-up: mean steps without shaping over mean steps with it, and the geometric mean over pairs of runs; a "
        "run that never got there counts with all its steps. 95 % bootstrap intervals over maps and seeds. Steps of "
        "target trajectories are not counted.",
        "",
        f"A door pays {paid['door_reward']:g} and the goal {paid['goal_reward']:g} (50 in the paper); "
        f"pictures of {'x'.join(map(str, study.world['size']))}. Scale of the shaping and options "
        f"of OnlineCredit: {_shaping_told(study)}.",
        "",
    ]  # fmt: skip


def _shaping_told(study: Study) -> str:
    told = []
    for condition in study.conditions[1:]:
        more = "".join(f", {name} {value}" for name, value in condition.options.items())
        told.append(f"{condition.label} {condition.scale:g}{more}")
    return "; ".join(told)


def _targets_told(entry: Mapping[str, Any]) -> list[str]:
    lines = ["| map | steps | to the goal | rewards predicted |", "| --- | --- | --- | --- |"]
    for number, target in enumerate(entry["targets"]):
        if target is not None:
            covered = f"{target['coverage']:.1%}" if "coverage" in target else ""
            lines.append(f"| {number} | {target['steps']:,} | {target['goals']:.1%} | {covered} |")
    return [*lines, ""]


def figure(result: TransferResult) -> list[Path]:
    """The goal rates over steps, of conditions whose runs are all there."""
    from secret_rl.report.learning_curves import save_learning_curves  # so that runs need no pictures

    entry = records.entry_of(records.load(result.path), _settings(result))
    if entry is None:
        return []
    shape, drawn = (result.study.maps, result.study.seeds), {}
    for condition in result.study.conditions:
        mine = {(one["map"], one["seed"]): one["curve"] for one in entry["runs"] if one["condition"] == condition.label}
        if len(mine) == shape[0] * shape[1]:
            drawn[condition.label] = np.array([[mine[m, s] for s in range(shape[1])] for m in range(shape[0])])
    bootstrap = _bootstrap(*shape)
    if not drawn or bootstrap is None:
        return []
    return list(
        save_learning_curves(
            LearningCurves(drawn), RESULTS / result.name, spacing=SPACING, xlabel="steps", ylabel="goal rate",
            bootstrap=bootstrap,
        )
    )  # fmt: skip


def main(quick: bool, command: str, analyse_only: bool = False) -> list[str]:
    """Run, and write the table and the figure."""
    made = result(quick)
    if not analyse_only:
        run(made, command)
    elif made.files.folder.is_dir():  # runs may have been made elsewhere
        gather(made, command)
    return [str(path) for path in (table(made), *figure(made))]


def _alone() -> None:
    """Runs only, with a limit of time: ``python -m paper.keys_doors_transfer``."""
    parser = argparse.ArgumentParser(prog="python -m paper.keys_doors_transfer", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small size")
    parser.add_argument(
        "--credit", type=Path, nargs="+", default=[], help="credit models (default: those of keys_doors_credit, in 2x2)"
    )
    parser.add_argument("--runs", type=Path, default=RUNS, help="folder for what runs leave behind")
    parser.add_argument("--workers", type=int, help="processes (default: one for each core)")
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds after which no run is started")
    options = parser.parse_args()
    made = result(options.quick, options.credit, options.runs)
    command = f"python -m paper keys_doors_transfer{' --quick' if options.quick else ''}"
    print(f"  {run(made, command, workers=options.workers, limit=options.limit)}")


if __name__ == "__main__":
    _alone()
