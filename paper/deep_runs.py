"""What the paper's results with deep agents share: conditions, held-out mazes, one batch of learners, tables."""

import json
import platform
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

import secret_rl as srl
from paper import records
from paper.batched_dqn import DqnOptions, dqn_many
from paper.batched_ppo import PpoOptions, ppo_many
from paper.credit_runs import METHOD, MODELS, RESULTS, Cell, fitted
from paper.transfer_runs import CURVES, HELD_OUT_LAYOUTS, adapted_to, best_return_of
from secret_rl import sweep
from secret_rl.envs import TRIGGERS_ID
from secret_rl.envs.tabular import TabularModel, TabularShaping
from secret_rl.evaluation import LearningCurves, compare
from secret_rl.sweep import Workers
from secret_rl.views import CenteredView

SOURCE_LAYOUTS = 500_000  # first of the mazes that agents whose weights are transferred were trained in
CREDIT_VIEW = CenteredView(3)  # of the whole maze that agents see, what the credit model does
ADAPTING_SEED, ADAPTING_EPISODES = 2_719, 5_000  # random play that credit is fine-tuned to, none of it in target mazes
TEST_EVERY = 5_000
PPO_TEST_EVERY = 20_480  # five rollouts
DQN, PPO = "DQN, batched", "PPO, batched"


@dataclass(frozen=True)
class Condition:
    """What an agent is given beside the task."""

    label: str
    potential: str | None = None
    """A kind of ``estimate_potential``, "OnlineCredit" or "learned"; with ", adapted": of the adapted model. With
    ", once", ``OnlineCredit`` pays a pair once an episode."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of ``DqnOptions`` or ``PpoOptions``."""
    transferred: bool = False
    """Start from the weights of an agent that was trained in source mazes."""
    scale: float = 0.3
    """Of OnlineCredit."""


@dataclass(frozen=True)
class Deep:
    """One panel: where credit was learned, and the mazes it is taken to."""

    label: str
    source: Cell
    triggers: int
    prizes: int
    inverted: bool
    conditions: Sequence[Condition]
    steps: int
    mazes: int = 8
    seeds: int = 3
    size: int = 8
    target_trajectories: int = 1_000
    models: int = 5
    """Credit models of as many seeds; maze ``m`` has model ``m``, modulo their number."""
    source_mazes: int = 64
    source_steps: int = 150_000
    first_layout: int = HELD_OUT_LAYOUTS
    agent: str = DQN
    """Or batched PPO, or an algorithm of Stable-Baselines3: "DQN", "PPO"."""

    def env(self, layout: int, **changes: Any) -> dict[str, Any]:
        """Options of a maze in which the whole state is observed."""
        options = {"size": self.size, "triggers": self.triggers, "prizes": self.prizes, "inverted": self.inverted}
        return options | {"window": None, "layout_seed": layout} | changes

    def layout(self, maze: int) -> int:
        """The layout of a target maze."""
        return self.first_layout + maze


@dataclass(frozen=True)
class DeepResult:
    """A figure of the paper."""

    name: str
    title: str
    panels: Sequence[Deep]
    note: str = ""

    @property
    def path(self) -> Path:
        """Where the numbers are kept."""
        return RESULTS / f"{self.name}.json"

    def curves(self, panel: Deep) -> Path:
        """Where the learning curves of a panel are kept."""
        return CURVES / self.name / f"{panel.label.replace(' ', '-')}.safetensors"


def run(result: DeepResult, command: str, workers: Workers | None = None, device: str = "auto") -> Path:
    """Let every agent learn; panels that are there already are kept.

    Batched agents of as many steps are one cell; an agent of Stable-Baselines3 is a cell of its own.
    """
    record = records.load(result.path)
    missing = [
        panel
        for panel in result.panels
        if not (records.entry_of(record, settings_of(panel)) and result.curves(panel).is_file())
    ]
    groups = [
        [panel for panel in missing if (panel.agent, panel.steps) == kind]
        for kind in sorted({(panel.agent, panel.steps) for panel in missing})
    ]
    cells = [_cells(panels, device) for panels in groups]
    found, failures = sweep.run([cell for own in cells for cell in own], records.CELLS / result.name, workers)
    for panels, own in zip(groups, cells, strict=True):
        results, found = found[: len(own)], found[len(own) :]
        if None in results:
            continue
        joined = results[0] if _is_batched(panels[0]) else _each_joined(panels, results)
        for panel, one in zip(panels, joined, strict=True):
            learned = _curves(panel, {name: np.array(part) for name, part in one["returns"].items()}, one["optimal"])
            result.curves(panel).parent.mkdir(parents=True, exist_ok=True)
            learned.save(result.curves(panel))
            entry = {"label": panel.label, "settings": settings_of(panel), **one["about"], **_compared(learned, panel)}
            records.keep(result.path, record, entry, command)
            rows = entry["beside_first"]["conditions"]
            areas = ", ".join(f"{name} {row['area']['value']:.3f}" for name, row in rows.items())
            print(f"  {panel.label}: {areas}", flush=True)
    sweep.check(failures, command)
    return result.path


def _is_batched(panel: Deep) -> bool:
    return panel.agent in (DQN, PPO)


def _cells(panels: Sequence[Deep], device: str) -> list[sweep.Cell]:
    """Of panels with the same agent and number of steps."""
    if _is_batched(panels[0]):
        name = f"{panels[0].agent}, {panels[0].steps:,} steps"
        settings = {"panels": [settings_of(panel) for panel in panels]}
        return [sweep.Cell(name, settings, partial(learn_together, panels, device))]
    from paper import sb3_runs

    return [cell for panel in panels for cell in sb3_runs.cells_of(panel, settings_of(panel))]


def _each_joined(panels: Sequence[Deep], results: Sequence[Any]) -> list[dict[str, Any]]:
    from paper import sb3_runs

    joined, first = [], 0
    for panel in panels:
        last = first + len(panel.conditions) * panel.mazes * panel.seeds
        returns, about = sb3_runs.joined(panel, results[first:last])
        joined.append({"returns": returns, "optimal": None, "about": about})
        first = last
    return joined


@dataclass(frozen=True)
class _Prepared:
    models: list[TabularModel]  # conditions x mazes, like those that follow
    shapings: list[TabularShaping]
    options: list[DqnOptions | PpoOptions]
    initial: list[Any]
    optimal: np.ndarray  # (mazes,)
    about: dict[str, Any]


def _prepare(panel: Deep, device: str) -> _Prepared:
    """Every condition in every maze as a task, with its potential."""
    secrets = [fitted(panel.source, seed, device) for seed in range(panel.models)]
    models: list[TabularModel] = []
    shapings: dict[str, list[TabularShaping]] = {condition.label: [] for condition in panel.conditions}
    successes = []
    for maze in range(panel.mazes):
        options = panel.env(panel.layout(maze))
        data = target_data(panel, maze)
        successes.append(float(data.successful.mean()))
        potentials = Potentials(panel, maze, data, secrets[maze % len(secrets)])
        env = gym.make(TRIGGERS_ID, **options)
        models.append(env.unwrapped.tabular())  # type: ignore[attr-defined]
        for condition in panel.conditions:
            potential = potentials.of(condition)
            discount = options_of(panel)(**condition.options).discount
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # of potentials as they are estimated: the curves tell
                shaped = srl.PotentialShaping(env, potential or srl.shaping.NoPotential(), discount)
            shapings[condition.label].append(TabularShaping.of(models[-1], **shaped.tabular_shaping(models[-1])))
    weights = None
    if any(condition.transferred for condition in panel.conditions):
        weights = _source_agents(panel, device)
    return _Prepared(
        models * len(shapings),
        [shaping for column in shapings.values() for shaping in column],
        [options_of(panel)(**c.options) for c in panel.conditions for _ in range(panel.mazes)],
        [weights if c.transferred else None for c in panel.conditions for _ in range(panel.mazes)],
        np.array([best_return_of(model) for model in models]),
        {
            "successful_target_trajectories": float(np.mean(successes)),
            "mazes_without_success": sum(share == 0 for share in successes),
        },
    )


def options_of(panel: Deep) -> type[DqnOptions] | type[PpoOptions]:
    """What the options of its conditions are options of."""
    return PpoOptions if panel.agent == PPO else DqnOptions


def test_every_of(panel: Deep) -> int:
    """Steps between two tests of its agents."""
    return PPO_TEST_EVERY if panel.agent == PPO else TEST_EVERY


def target_data(panel: Deep, maze: int) -> srl.Trajectories:
    """Random play in a target maze, the whole state observed."""
    layout = panel.layout(maze)
    return srl.collect(
        TRIGGERS_ID, panel.target_trajectories, seed=layout, env_options=panel.env(layout), progress=False
    )


class Potentials:
    """The potentials of one maze, each made once."""

    def __init__(self, panel: Deep, maze: int, data: srl.Trajectories, secret: srl.Secret) -> None:
        self._panel, self._maze, self._data, self._secret = panel, maze, data, secret
        self._seen = srl.views.apply_view(data, CREDIT_VIEW)
        self._made: dict[str, Any] = {}

    def of(self, condition: Condition) -> Any:
        """The potential of a condition; None is no shaping, also where the data hold nothing to estimate from."""
        name = condition.potential
        if name is None:
            return None
        kind, *words = name.split(", ")
        if kind == "OnlineCredit":
            secret = adapted_elsewhere(self._panel, self._secret) if "adapted" in words else self._secret
            # repeat: as OnlineCredit was when the first committed results were made
            repeat = "once" not in words
            return srl.OnlineCredit(secret, observation=CREDIT_VIEW, scale=condition.scale, repeat=repeat)
        if name not in self._made:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # few rewards, zero coverage: the curves tell
                self._made[name] = self._make(name)
        return self._made[name]

    def _make(self, name: str) -> Any:
        kind, _, adapted = name.partition(", ")
        if not self._data.successful.any():
            return None
        secret = self._secret
        if adapted:
            kind_of_maze = (self._panel.size, self._panel.triggers, self._panel.prizes, self._panel.inverted)
            secret = adapted_to(kind_of_maze, self._panel.layout(self._maze), secret, self._seen)
        discount = DqnOptions().discount
        if kind == "learned":
            return srl.learn_potential(
                self._data, secret.attribute(self._seen), "pending", delay_discount=discount, progress=False
            )
        credit = None if kind == "value" else secret.attribute(self._seen)
        return srl.estimate_potential(self._data, credit, kind, delay_discount=discount)


def adapted_elsewhere(panel: Deep, secret: srl.Secret) -> srl.Secret:
    """The model fine-tuned to random play in other mazes of the panel's kind."""
    path = MODELS / f"adapted-{METHOD}-{panel.label}-seed{secret.seed}.safetensors"
    with records.one_at_a_time(path):
        if path.is_file():
            return srl.Secret.load(path, device="cpu")
        mazes = replace(panel.source.source, episodes=ADAPTING_EPISODES, seed=ADAPTING_SEED, inverted=panel.inverted)
        adapted = srl.adapt(secret, mazes.load(), progress=False)
        adapted.save(path)
        return adapted


def _source_agents(panel: Deep, device: str) -> Any:
    """(seeds, parameters) agents that learned in other mazes, of the source's kind."""
    mazes = [
        gym.make(TRIGGERS_ID, **panel.env(SOURCE_LAYOUTS + maze, inverted=False)).unwrapped.tabular()  # type: ignore[attr-defined]
        for maze in range(panel.source_mazes)
    ]
    learned = dqn_many([mazes], panel.seeds, panel.source_steps, seed=1, test_every=panel.source_steps, device=device)
    return learned.weights[0]


def learn_together(panels: Sequence[Deep], device: str) -> list[dict[str, Any]]:
    """All learners of all panels, of one kind of agent, in one batch: their returns, and what they were made with."""
    prepared = [_prepare(panel, device) for panel in panels]
    models = [model for part in prepared for model in part.models]
    options: list[Any] = [options for part in prepared for options in part.options]
    shapings = [shaping for part in prepared for shaping in part.shapings]
    given: dict[str, Any] = {"shapings": shapings, "test_every": test_every_of(panels[0]), "device": device}
    seeds, steps = panels[0].seeds, panels[0].steps
    if panels[0].agent == PPO:  # the same seeds in all conditions, others in every maze
        own = [maze * seeds for panel in panels for _ in panel.conditions for maze in range(panel.mazes)]
        joined = ppo_many(models, seeds, steps, options, seed=own, **given)
    else:
        initial = [weights for part in prepared for weights in part.initial]
        joined = dqn_many(models, seeds, steps, options, initial=initial, **given)
    on_gpu = torch.cuda.is_available() and device in ("auto", "cuda")
    named = torch.cuda.get_device_name() if on_gpu else f"{platform.machine()} CPU"
    found, first = [], 0
    for panel, part in zip(panels, prepared, strict=True):
        returns = {}
        for condition in panel.conditions:
            returns[condition.label] = joined.discounted[first : first + panel.mazes].astype(np.float64)
            first += panel.mazes
        about = {"machine": f"{named}, PyTorch {torch.__version__}", **part.about}
        curves = {name: values.tolist() for name, values in returns.items()}
        found.append({"returns": curves, "optimal": part.optimal.tolist(), "about": about})
    return found


def _curves(panel: Deep, returns: dict[str, Any], optimal: Any) -> LearningCurves:
    needed = [condition.label for condition in panel.conditions if _is_estimated(condition)]
    return LearningCurves(returns, optimal=optimal, collected=dict.fromkeys(needed, panel.target_trajectories))


def _is_estimated(condition: Condition) -> bool:
    """Whether its potential is made from target trajectories."""
    return condition.potential is not None and not condition.potential.startswith("OnlineCredit")


def _compared(curves: LearningCurves, panel: Deep) -> dict[str, Any]:
    """The comparison with the first condition, over all of training."""
    unit = f"tests, one every {TEST_EVERY:,} steps"
    compared = compare(curves, panel.conditions[0].label, unit=unit)
    return {"beside_first": compared.to_json(), "table": compared.to_markdown()}


def settings_of(panel: Deep) -> dict[str, Any]:
    """What a panel depends on, as JSON gives it back."""
    content = asdict(replace(panel, source=None)) | {  # type: ignore[arg-type]
        "source": {"mazes": asdict(panel.source.source), **panel.source.learning},
        "source_layouts": SOURCE_LAYOUTS,
        "options": asdict(options_of(panel)()),
    }
    return json.loads(json.dumps(content))


def table(result: DeepResult) -> Path:
    """Every panel's comparison, as Markdown."""
    record = records.load(result.path)
    sections = {panel.label: _section(panel, records.entry_of(record, settings_of(panel))) for panel in result.panels}
    return records.write_page(RESULTS / f"{result.name}.md", result.title, result.note, sections, record)


def _section(panel: Deep, entry: Mapping[str, Any] | None) -> list[str] | None:
    if entry is None:
        return None
    note = f"{panel.steps:,} steps of training."
    if any(_is_estimated(condition) for condition in panel.conditions):
        note += (
            f" {panel.target_trajectories:,} target trajectories of random play per maze for the potentials that are "
            f"estimated, {entry['successful_target_trajectories']:.1%} of them successful; "
            f"{entry['mazes_without_success']} of {panel.mazes} mazes without any, where those are 0."
        )
    return [entry["table"].rstrip(), "", note, ""]


def figure(result: DeepResult) -> list[Path]:
    """The learning curves; nothing where those of a panel are not on this machine."""
    from secret_rl.report import plot_learning_curves, save_figure  # so that runs need no pictures

    if not all(result.curves(panel).is_file() for panel in result.panels):
        return []
    drawn = {}
    for panel in result.panels:
        curves = LearningCurves.load(result.curves(panel))
        first, *others = panel.conditions
        for title, group in (
            (panel.label, [condition for condition in others if not condition.options]),
            (f"{panel.label}, other ways to spend it", [condition for condition in others if condition.options]),
        ):
            if group:
                labels = [first.label, *(condition.label for condition in group)]
                drawn[title] = LearningCurves({label: curves[label] for label in labels})
    drawing = plot_learning_curves(drawn, spacing=TEST_EVERY, xlabel="steps", columns=2)
    return list(save_figure(drawing, RESULTS / result.name))


def make(result: DeepResult, command: str, analyse_only: bool, workers: Workers | None = None) -> list[str]:
    """Run, and write the table and the figure."""
    if not analyse_only:
        run(result, command, workers)
    return [str(path) for path in (table(result), *figure(result))]


def quickly(panels: Sequence[Deep], quick: bool) -> Sequence[Deep]:
    """Two mazes, one seed, few steps, for a quick look."""
    if not quick:
        return panels
    small = {"mazes": 2, "seeds": 1, "models": 1, "steps": 10_000, "source_steps": 5_000, "target_trajectories": 300}
    return [replace(panel, **small) for panel in panels]
