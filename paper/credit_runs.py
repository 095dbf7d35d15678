"""What the paper's credit results share: mazes, runs that can be taken up, tables beside the printed numbers."""

import json
import platform
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import secret_rl as srl
from paper import records
from paper.variants import predictor
from secret_rl import sweep
from secret_rl.atomic import replace_text
from secret_rl.credit import NotLearnedWarning, PastNotNeededWarning
from secret_rl.sweep import Workers

RESULTS = Path(__file__).parent / "results"
DATA, MODELS = Path("runs/paper/data"), Path("runs/paper/models")
THRESHOLD = 0.2  # appendix A
METHOD = "residual, values 5 times larger"  # in the settings of every run: what an earlier method made is not taken up


@dataclass(frozen=True)
class Mazes:
    """A set of trajectories of random play; two sets with different seeds share no maze but by chance."""

    triggers: int
    prizes: int
    episodes: int
    seed: int
    size: int = 8
    window: int | None = 3
    inverted: bool = False
    success_share: float | None = None

    @property
    def name(self) -> str:
        """Names the file that holds them."""
        window = "full" if self.window is None else f"w{self.window}"
        parts = [
            f"{self.size}x{self.size}",
            f"{self.triggers}t{self.prizes}p",
            window,
            f"n{self.episodes}",
            f"s{self.seed}",
        ]
        return "-".join(parts + ["inverted"] * self.inverted)

    def load(self) -> srl.Trajectories:
        """The trajectories, collected if they are not there yet."""
        path = DATA / self.name
        with records.one_at_a_time(path):
            if not path.is_dir():
                options = {
                    "size": self.size,
                    "triggers": self.triggers,
                    "prizes": self.prizes,
                    "window": self.window,
                    "inverted": self.inverted,
                }
                srl.collect(
                    "secret_rl/Triggers-v0", self.episodes, seed=self.seed, success_share=self.success_share,
                    env_options=options, out=path,
                )  # fmt: skip
        return srl.Trajectories.load(path, verify=False)


@dataclass(frozen=True)
class Cell:
    """One row of a table: where credit is learned, with which options, and where it is judged."""

    label: str
    source: Mazes
    targets: Mapping[str, Mazes]
    options: Mapping[str, Any] = field(default_factory=dict)
    episodes: int | None = None
    """Use only the first so many source episodes."""
    variant: str | None = None
    """A model of ``paper.variants`` instead of the library's."""
    class_weights: tuple[float, float, float] | None = None
    """Weights in the loss of negative, zero and positive rewards, instead of the library's."""

    @property
    def learning(self) -> dict[str, Any]:
        """How credit is learned, for settings: what is left as it is is not named."""
        named = {"variant": self.variant, "class_weights": self.class_weights}
        return {"method": METHOD, "options": dict(self.options), **{k: v for k, v in named.items() if v is not None}}


@dataclass(frozen=True)
class Result:
    """A table or figure of the paper."""

    name: str
    title: str
    cells: Sequence[Cell]
    seeds: int
    printed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """label -> {"accuracy", "precision", "recall"} as the paper prints them."""
    note: str = ""

    @property
    def path(self) -> Path:
        """Where the numbers are kept."""
        return RESULTS / f"{self.name}.json"


def run(result: Result, command: str, workers: Workers | None = None, device: str = "auto") -> Path:
    """Fit and judge every cell with every seed; what is there already, with the same settings, is not run again."""
    record: dict[str, Any] = {"runs": []}
    if result.path.is_file():
        record = json.loads(result.path.read_text(encoding="utf-8"))
        record["runs"] = [r for r in record["runs"] if r["settings"].get("method") == METHOD]
    known = {(r["label"], r["seed"], json.dumps(r["settings"], sort_keys=True)) for r in record["runs"]}
    # every cell once before any twice: an interrupted table has no empty rows
    asked = [{"label": c.label, "seed": s, "settings": _settings(c)} for s in range(result.seeds) for c in result.cells]
    cells = {cell.label: cell for cell in result.cells}
    missing = [
        one for one in asked if (one["label"], one["seed"], json.dumps(one["settings"], sort_keys=True)) not in known
    ]
    calls = [partial(judge, cells[one["label"]], one["seed"], device) for one in missing]
    made = [
        sweep.Cell(f"{one['label']}, seed {one['seed']}", one, call) for one, call in zip(missing, calls, strict=True)
    ]
    outcomes, failures = sweep.run(made, records.CELLS / result.name, workers)
    for one, outcome in zip(missing, outcomes, strict=True):
        if outcome is not None:
            record["runs"].append({**one, **outcome})
            record |= {"command": command, "date": datetime.now(UTC).date().isoformat()}
            print(f"  {one['label']}, seed {one['seed']}: {_line(outcome)}", flush=True)
    if missing:
        replace_text(result.path, json.dumps(record, indent=1) + "\n")
    sweep.check(failures, command)
    return result.path


def fitted(cell: Cell, seed: int, device: str = "auto") -> srl.Secret:
    """The credit model of a cell, fitted if it is not there yet."""
    episodes = cell.source.episodes if cell.episodes is None else cell.episodes
    named = {**cell.options, **({} if cell.class_weights is None else {"class_weights": cell.class_weights})}
    options = "".join(f"-{key}={value}" for key, value in sorted(named.items()))
    name = f"{METHOD}-{cell.source.name}-first{episodes}{options}-seed{seed}.safetensors"
    if cell.variant is not None:
        return _fit(cell, seed, device, episodes)
    path = MODELS / name
    with records.one_at_a_time(path):
        if not path.is_file():
            _fit(cell, seed, device, episodes).save(path)
        return srl.Secret.load(path, device=device)


def _fit(cell: Cell, seed: int, device: str, episodes: int) -> srl.Secret:
    data = cell.source.load()[:episodes]
    secret = srl.Secret(seed=seed, device=device, **cell.options)
    with warnings.catch_warnings(), predictor(cell.variant):
        for category in (NotLearnedWarning, PastNotNeededWarning):  # the verdict is in the tables
            warnings.simplefilter("ignore", category)
        secret.fit(data, weights=_by_sign(data, cell.class_weights), progress=False)
    return secret


def _by_sign(data: srl.Trajectories, class_weights: tuple[float, float, float] | None) -> Any:
    """(steps,) weights by the sign of the reward."""
    if class_weights is None:
        return None
    return np.array(class_weights)[np.sign(np.asarray(data.rewards)).astype(int) + 1]


def judge(cell: Cell, seed: int, device: str) -> dict[str, Any]:
    """A run: the model of a cell, and how right its credit is."""
    secret = fitted(cell, seed, device)
    assert secret.report is not None
    report = secret.report.to_json()
    del report["curve"]
    targets = {}
    for name, mazes in cell.targets.items():
        target = mazes.load()
        quality = srl.credit_quality(secret.attribute(target, rewards="positive"), target, THRESHOLD)
        targets[name] = {**quality.to_json(), "accuracy": secret.evaluate(target).balanced_accuracy}
    return {"fit": report, "machine": machine(secret.device), "targets": targets}


def table(result: Result, metrics: Sequence[str] = ("accuracy", "precision", "recall")) -> Path:
    """The measured numbers beside the printed ones, as Markdown."""
    record = json.loads(result.path.read_text(encoding="utf-8"))
    lines = [f"# {result.title}", ""]
    if result.note:
        lines += [result.note, ""]
    header = ["", "held-out mazes", "seeds (verdict: credit)"]
    header += [f"{metric} (paper)" for metric in metrics] + [
        "attention on events",
        "rewards attributed",
        "history gain",
    ]
    lines += ["| " + " | ".join(header) + " |", "| " + " | ".join(["---"] * len(header)) + " |"]
    for cell in result.cells:
        runs = _runs_of(record, cell)
        if not runs:
            lines.append(f"| {cell.label} | not run |" + " |" * (len(header) - 2))
            continue
        for target in cell.targets:
            printed = result.printed.get(cell.label if len(cell.targets) == 1 else target, {})
            row = [cell.label, target, f"{len(runs)} ({sum(r['fit']['verdict'] == 'credit' for r in runs)})"]
            for metric in metrics:
                ours = interval([r["targets"][target][metric] for r in runs])
                row.append(f"{ours} ({printed[metric]})" if metric in printed else ours)
            row.append(interval([r["targets"][target]["attention_on_events"] for r in runs]))
            row.append(interval([r["targets"][target]["coverage"] for r in runs]))
            row.append(interval([r["fit"]["gain"]["share"] for r in runs]))
            lines.append("| " + " | ".join(row) + " |")
    machines = sorted({r["machine"] for r in record["runs"]})
    lines += [
        "",
        "Mean over seeds with a 95 % bootstrap interval; in brackets the seeds whose fit came to the verdict *credit*.",
        "History gain: of the uncertainty that the present leaves about held-out rewards, the share the past removes.",
        "",
        f"Precision and recall at attention > {THRESHOLD}, pooled over correctly predicted positive rewards.",
        "",
        f"`{record['command']}`, {record['date']}, {'; '.join(machines)}.",
        "",
    ]
    path = RESULTS / f"{result.name}.md"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def figure(result: Result, metrics: Sequence[str] = ("precision", "recall"), xlabel: str = "") -> Path:
    """Each metric over the cells, with intervals."""
    from secret_rl.report import figures  # so that runs need no pictures

    record = json.loads(result.path.read_text(encoding="utf-8"))
    cells = [cell for cell in result.cells if _runs_of(record, cell)]
    labels = [cell.label for cell in cells]
    with figures.rc_settings():
        canvas, [axes], _ = figures.panels(1, width=4.8, height=2.4)
        colors = (figures.BLUE, figures.ORANGE, figures.GREEN)
        for shift, (metric, color) in enumerate(zip(metrics, colors, strict=False)):
            target = next(iter(cells[0].targets))
            values = [[r["targets"][target][metric] for r in _runs_of(record, cell)] for cell in cells]
            means = [float(np.mean(v)) for v in values]
            errors = np.abs(np.array([_bootstrap(v) for v in values]).T - means)
            places = np.arange(len(labels)) + 0.08 * shift
            axes.errorbar(places, means, yerr=errors, marker="o", capsize=3, color=color, label=f"{metric}, ours")
            printed = [result.printed.get(label, {}).get(metric) for label in labels]
            known = [(i, float(p.split("±")[0])) for i, p in enumerate(printed) if p]
            if known:
                axes.plot(*zip(*known, strict=True), "x--", color=color, alpha=0.6, label=f"{metric}, paper")
        axes.set_xticks(range(len(labels)), labels)
        axes.set(ylim=(-0.02, 1.05), xlabel=xlabel)
        axes.legend(fontsize="small", frameon=False)
        figures.open_axes(axes)
    return figures.save_figure(canvas, RESULTS / result.name)[0]


def concentration_figure(result: Result) -> Path:
    """Attention by signed distance to the nearest true event, a panel per target (the paper's figure)."""
    from secret_rl.report import plot_concentration, save_figure  # so that runs need no pictures

    record = json.loads(result.path.read_text(encoding="utf-8"))
    cell = result.cells[0]
    panels = {}
    for target in cell.targets:
        rows = [r["targets"][target]["concentration"] for r in _runs_of(record, cell)]
        panels[target] = {int(d): float(np.mean([row[d] for row in rows])) for d in rows[0]}
    drawing = plot_concentration(panels, xlabel="steps from the nearest switch")
    return save_figure(drawing, RESULTS / result.name)[0]


def _settings(cell: Cell) -> dict[str, Any]:
    """What a run depends on, as JSON gives it back."""
    return json.loads(json.dumps({  # type: ignore[no-any-return]
        "source": asdict(cell.source),
        "episodes": cell.episodes,
        "targets": {name: asdict(mazes) for name, mazes in cell.targets.items()},
        **cell.learning,
    }))  # fmt: skip


def _runs_of(record: Mapping[str, Any], cell: Cell) -> list[dict[str, Any]]:
    settings = _settings(cell)
    return [r for r in record["runs"] if r["label"] == cell.label and r["settings"] == settings]


def interval(values: Sequence[float]) -> str:
    """The mean over seeds with its 95 % bootstrap interval."""
    low, high = _bootstrap(values)
    mean = float(np.mean(values))
    return f"{mean:.3f}" if high - low < 5e-4 else f"{mean:.3f} [{low:.3f}, {high:.3f}]"


def _bootstrap(values: Sequence[float]) -> tuple[float, float]:
    """A 95 % interval of the mean by resampling seeds."""
    rng = np.random.default_rng(0)
    means = rng.choice(np.asarray(values, float), (2000, len(values))).mean(1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def _line(outcome: Mapping[str, Any]) -> str:
    quality = "; ".join(
        f"{name} precision {t['precision']:.3f} recall {t['recall']:.3f} accuracy {t['accuracy']:.3f}"
        for name, t in outcome["targets"].items()
    )
    fit = outcome["fit"]
    return f"{quality} ({fit['seconds']:.0f} s, {fit['verdict']}, gain {fit['gain']['share']:.2f})"


def machine(device: Any) -> str:
    """What computed, in words."""
    import torch

    if device.type == "cuda":
        return f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}"
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads, PyTorch {torch.__version__}"
