"""What the paper's transfer results share: held-out mazes, potentials of each kind, agents, curves and tables."""

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import secret_rl as srl
from paper import credit_runs, records
from paper.credit_runs import METHOD, RESULTS, Cell, fitted, machine
from paper.q_learners import learn_many
from secret_rl import sweep
from secret_rl.envs import TRIGGERS_ID
from secret_rl.envs.tabular import TabularModel, TabularShaping, best_return
from secret_rl.evaluation import LearningCurves, compare
from secret_rl.shaping import PotentialRangeWarning
from secret_rl.sweep import Workers

CURVES = Path("runs/paper/curves")
HELD_OUT_LAYOUTS = 719_000  # first looked at when everything else was settled
DISCOUNT = 0.99

CONDITIONS = ("none", "paper", "pending", "value", "OnlineCredit")
LEARNED = "learned pending"
ADAPTED = ("pending, adapted", "paper, adapted", "OnlineCredit, adapted")


@dataclass(frozen=True)
class Transfer:
    """One panel: where credit was learned, the mazes it is taken to, and what is known of them beforehand."""

    label: str
    source: Cell
    triggers: int
    prizes: int
    size: int = 8
    window: int | None = 3
    inverted: bool = False
    target_trajectories: int = 1_000
    """Of random play in each maze, for the potentials that are estimated; OnlineCredit uses none of them."""
    episodes: int = 1_200
    mazes: int = 32
    seeds: int = 5
    conditions: Sequence[str] = CONDITIONS
    models: int = 5
    """Credit models of as many seeds; seed ``s`` of a maze learns with model ``s``, modulo their number."""
    credit_view: bool = False
    """The credit model sees the 3x3 cells around the agent, whatever is observed."""

    def options(self, maze: int) -> dict[str, Any]:
        """The options of a held-out maze."""
        return {
            "size": self.size,
            "triggers": self.triggers,
            "prizes": self.prizes,
            "window": self.window,
            "inverted": self.inverted,
            "layout_seed": HELD_OUT_LAYOUTS + maze,
        }


@dataclass(frozen=True)
class TransferResult:
    """A figure of the paper."""

    name: str
    title: str
    panels: Sequence[Transfer]
    note: str = ""
    fraction: float = 0.9
    """Of the best return, for the episodes that learning takes."""
    window: int = 20

    @property
    def path(self) -> Path:
        """Where the numbers are kept."""
        return RESULTS / f"{self.name}.json"

    def curves(self, panel: Transfer) -> Path:
        """Where the learning curves of a panel are kept: too large for the repository."""
        return CURVES / self.name / f"{panel.label.replace(' ', '-').replace(',', '')}.safetensors"


def run(result: TransferResult, command: str, workers: Workers | None = None) -> Path:
    """Learn in every maze with every seed under every condition; panels that are there already are kept."""
    record = records.load(result.path)
    missing = [
        panel
        for panel in result.panels
        if not (records.entry_of(record, settings_of(panel)) and result.curves(panel).is_file())
    ]
    cells = [
        sweep.Cell(f"{panel.label}, maze {maze}", {**settings_of(panel), "maze": maze}, partial(learn, panel, maze))
        for panel in missing
        for maze in range(panel.mazes)
    ]
    found, failures = sweep.run(cells, records.CELLS / result.name, workers)
    for panel in missing:
        own, found = found[: panel.mazes], found[panel.mazes :]
        if None in own:
            continue
        curves, about = _joined(panel, own)
        result.curves(panel).parent.mkdir(parents=True, exist_ok=True)
        curves.save(result.curves(panel))
        entry = {"label": panel.label, "settings": settings_of(panel), **about, **_compared(curves, result)}
        records.keep(result.path, record, entry, command)
        print(f"  {panel.label}: {_line(entry)}", flush=True)
    sweep.check(failures, command)
    return result.path


def learn(panel: Transfer, maze: int) -> dict[str, Any]:
    """Unshaped returns of every run in a maze, (seeds, episodes) by condition, and what is known of the maze."""
    secrets = [fitted(panel.source, seed, "cpu") for seed in range(min(panel.seeds, panel.models))]
    returns = {name: np.empty((panel.seeds, panel.episodes)) for name in panel.conditions}
    env = gym.make(TRIGGERS_ID, **panel.options(maze))
    data = srl.collect(
        TRIGGERS_ID, panel.target_trajectories, seed=HELD_OUT_LAYOUTS + maze, env_options=panel.options(maze),
        progress=False,
    )  # fmt: skip
    plain: TabularModel = env.unwrapped.tabular()  # type: ignore[attr-defined]
    adapted = None
    if any(name in ADAPTED for name in panel.conditions):  # once a maze: it takes longer than all else
        kind = (panel.size, panel.triggers, panel.prizes, panel.inverted)
        adapted = adapted_to(kind, HELD_OUT_LAYOUTS + maze, secrets[maze % len(secrets)], data)
    for number, secret in enumerate(secrets):
        potentials = _potentials(panel, data, secret, adapted)
        shapings = [_shaping(env, plain, potential) for potential in potentials.values()]
        seeds = range(number, panel.seeds, len(secrets))
        learned, _ = learn_many([plain] * len(shapings), seeds, panel.episodes, shapings)
        for name, curve in zip(potentials, learned, strict=True):
            returns[name][seeds] = curve
    return {
        "returns": {name: curves.tolist() for name, curves in returns.items()},
        "optimal": best_return_of(plain),
        "successful": float(data.successful.mean()),
        "credit_models": [_about(secret) for secret in secrets],
        "machine": machine(secrets[0].device),
    }


def _joined(panel: Transfer, mazes: Sequence[Mapping[str, Any]]) -> tuple[LearningCurves, dict[str, Any]]:
    """The curves of all mazes, and what they were made with."""
    returns = {name: np.array([maze["returns"][name] for maze in mazes]) for name in panel.conditions}
    estimated = [name for name in panel.conditions if name not in ("none", "OnlineCredit")]
    successes = [maze["successful"] for maze in mazes]
    curves = LearningCurves(
        returns,
        optimal=np.array([maze["optimal"] for maze in mazes]),
        collected=dict.fromkeys(estimated, panel.target_trajectories),
    )
    return curves, {
        "machine": mazes[0]["machine"],
        "credit_models": mazes[0]["credit_models"],
        "successful_target_trajectories": float(np.mean(successes)),
        "mazes_without_success": sum(share == 0 for share in successes),
    }


def best_return_of(model: TabularModel) -> float:
    """The largest discounted return of a maze."""
    return best_return(model, DISCOUNT)


def adapted_to(
    kind: tuple[int, int, int, bool], layout: int, secret: srl.Secret, data: srl.Trajectories
) -> srl.Secret | None:
    """The model fine-tuned to a maze; None where its trajectories hold no positive reward to learn from.

    ``kind`` is the size of the maze, its triggers and prizes, and whether its controls are inverted.
    """
    if not data.successful.any():
        return None
    size, triggers, prizes, inverted = kind
    name = f"{size}x{size}-{triggers}t{prizes}p{'-inverted' * inverted}-layout{layout}"
    path = credit_runs.MODELS / f"adapted-{METHOD}-{name}-n{len(data)}-seed{secret.seed}.safetensors"
    with records.one_at_a_time(path):
        if path.is_file():
            return srl.Secret.load(path, device="cpu")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # few rewards, few validation episodes: the curves tell
            adapted = srl.adapt(secret, data, progress=False)
        adapted.save(path)
        return adapted


def _potentials(
    panel: Transfer, data: srl.Trajectories, secret: srl.Secret, adapted: srl.Secret | None
) -> dict[str, Any]:
    """The potential of each condition; None is no shaping, also where the data hold nothing to estimate from."""
    found: dict[str, Any] = {}
    attributed = {id(secret): None, id(adapted): None}
    view = srl.views.CenteredView(3) if panel.credit_view else None
    seen = data if view is None else srl.views.apply_view(data, view)
    for name in panel.conditions:
        kind, _, which = name.partition(", ")
        model = adapted if which else secret
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of zero coverage and large ranges: the curves tell
            if kind == "none" or model is None:
                found[name] = None
            elif kind == "OnlineCredit":
                # repeat: as OnlineCredit was when the committed results were made
                found[name] = None if model.queries is None else srl.OnlineCredit(model, observation=view, repeat=True)
            elif not data.successful.any():
                found[name] = None
            else:
                if attributed[id(model)] is None and kind != "value":
                    attributed[id(model)] = model.attribute(seen)
                make = srl.learn_potential if kind == LEARNED else srl.estimate_potential
                found[name] = make(data, attributed[id(model)], "pending" if kind == LEARNED else kind)
    return found


def _shaping(env: gym.Env[Any, Any], plain: TabularModel, potential: Any) -> TabularShaping | None:
    if potential is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PotentialRangeWarning)  # of potentials as they are estimated: the curves tell
        return TabularShaping.of(plain, **srl.PotentialShaping(env, potential, DISCOUNT).tabular_shaping(plain))


def _about(secret: srl.Secret) -> dict[str, Any]:
    assert secret.report is not None
    report = secret.report.to_json()
    return {"accuracy": report["validation"]["accuracy"], "verdict": report["verdict"], "gain": report["gain"]}


def _compared(curves: LearningCurves, result: TransferResult) -> dict[str, Any]:
    """The comparison with no shaping, and with the baseline that knows the same trajectories."""
    beside_none = compare(curves, "none", fraction=result.fraction, window=result.window)
    compared = {"beside_none": beside_none.to_json(), "table": beside_none.to_markdown()}
    if "value" in curves.returns:
        beside_value = compare(curves, "value")
        compared["beside_value"] = {
            name: {part: getattr(row, part).to_json() for part in ("difference", "improvement")}
            for name, row in beside_value.conditions.items()
            if row.difference is not None and row.improvement is not None
        }
    return compared


def settings_of(panel: Transfer) -> dict[str, Any]:
    """What a panel depends on, as JSON gives it back."""
    content = asdict(replace(panel, source=None)) | {  # type: ignore[arg-type]
        "source": {
            "mazes": asdict(panel.source.source),
            **panel.source.learning,
            "episodes": panel.source.episodes,
        },
        "first_layout": HELD_OUT_LAYOUTS,
    }
    if not panel.credit_view:
        del content["credit_view"]
    return json.loads(json.dumps(content))


def table(result: TransferResult) -> Path:
    """Every panel's comparison, as Markdown."""
    record = records.load(result.path)
    sections = {panel.label: _section(panel, records.entry_of(record, settings_of(panel))) for panel in result.panels}
    return records.write_page(RESULTS / f"{result.name}.md", result.title, result.note, sections, record)


def _section(panel: Transfer, entry: Mapping[str, Any] | None) -> list[str] | None:
    if entry is None:
        return None
    lines = [entry["table"].rstrip(), ""]
    if "beside_value" in entry:
        chances = [
            f"{name} {_estimate(parts['improvement'])}"
            for name, parts in entry["beside_value"].items()
            if name not in ("none", "paper", "paper, adapted")
        ]
        lines += [f"P(improvement) over value, paired: {'; '.join(chances)}.", ""]
    return [
        *lines,
        f"{panel.target_trajectories:,} target trajectories of random play per maze, "
        f"{entry['successful_target_trajectories']:.1%} of them successful; {entry['mazes_without_success']} of "
        f"{panel.mazes} mazes without any, where estimated potentials are 0.",
        "",
    ]


def figure(result: TransferResult) -> list[Path]:
    """The learning curves; nothing where those of a panel are not on this machine."""
    from secret_rl.report import plot_learning_curves, save_figure  # so that runs need no pictures

    if not all(result.curves(panel).is_file() for panel in result.panels):
        return []
    panels = {panel.label: LearningCurves.load(result.curves(panel)) for panel in result.panels}
    return list(save_figure(plot_learning_curves(panels, window=result.window), RESULTS / result.name))


def make(result: TransferResult, command: str, analyse_only: bool, workers: Workers | None = None) -> list[str]:
    """Run, and write the table and the figure."""
    if not analyse_only:
        run(result, command, workers)
    return [str(path) for path in (table(result), *figure(result))]


def quickly(panels: Sequence[Transfer], quick: bool) -> Sequence[Transfer]:
    """Few mazes, seeds and trajectories, for a quick look."""
    if not quick:
        return panels
    small = {"mazes": 4, "seeds": 2, "episodes": 400, "target_trajectories": 300}
    return [replace(panel, **small) for panel in panels]


def _estimate(value: Mapping[str, Any]) -> str:
    return f"{value['value']:.2f} [{value['low']:.2f}, {value['high']:.2f}]"


def _line(entry: Mapping[str, Any]) -> str:
    rows = entry["beside_none"]["conditions"]
    return ", ".join(f"{name} {row['area']['value']:.3f}" for name, row in rows.items())
