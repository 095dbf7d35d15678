"""The command that learns with credit and without."""

from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import secret_rl
from secret_rl.cli.command import Command, UsageError, command, options_of
from secret_rl.cli.fields import Env, EnvOptions
from secret_rl.env_ids import known_id
from secret_rl.progress import progress_bar

if TYPE_CHECKING:
    import gymnasium as gym

    from secret_rl.evaluation import ComparedCondition, Comparison, LearningCurves
    from secret_rl.report.runs import RunFolder


@command("learn", resumable=True)
class Learn(Command):
    """Tabular Q-learning, without shaping and with it, and how they compare.

    The environment needs discrete actions and info["state"] or discrete observations. Agents that an interrupted
    command had finished are kept when the same command is given again.
    """

    env: Env  # Gymnasium id, for example secret_rl/Triggers-v0.
    out: Path  # Folder for the learning curves.
    episodes: int = 1_000  # Episodes that each agent plays.
    seeds: int = 5  # Agents, each with a seed of its own.
    # Shape with this table, a file written by potential; or with a learned potential that was saved.
    potential: Path | None = None
    # Shape with the credit of this model as it happens: a file written by fit; no target trajectories needed.
    credit: Path | None = None
    scale: float = 1.0  # Of the potential.
    option: EnvOptions = ()  # Options of the environment, for example: --option size=8 layout_seed=7
    learning_rate: float = 0.1  # Of Q-learning.
    epsilon: float = 0.1  # Share of steps that explore.
    discount: float = 0.99  # Of the agent, and of the shaping.
    threshold: float | None = None  # Also report how many episodes it takes to reach this mean return.

    def run(self) -> None:
        """Learn, compare and save."""
        import gymnasium as gym

        from secret_rl.credit.base import load_method
        from secret_rl.evaluation import LearningCurves
        from secret_rl.report.runs import RunFolder

        if self.seeds < 2:
            raise UsageError(f"--seeds must be at least 2, for intervals, got {self.seeds}")
        with known_id(self.env):
            env = gym.make(self.env, **options_of(self.option))
        tasks: dict[str, gym.Env[Any, Any]] = {"none": env}
        shaped = partial(secret_rl.PotentialShaping, env, discount=self.discount, scale=self.scale)
        if self.potential is not None:
            tasks["potential"] = shaped(self.potential)
        if self.credit is not None:
            tasks["OnlineCredit"] = shaped(secret_rl.OnlineCredit(load_method(self.credit)))
        settings = {**self.settings(), "option": options_of(self.option)}
        with RunFolder(self.out, "learn", settings, {"potential": self.potential, "credit": self.credit}) as record:
            curves = LearningCurves(self._learn(tasks, record))
            comparison, words = verdict(curves, threshold=self.threshold)
            files = write_curves(curves, comparison, self.out)
            record.finish(comparison=comparison.to_json(), verdict=words if len(tasks) > 1 else None)
        self.answer(f"{comparison}\n\n{words}\n" if len(tasks) > 1 else f"{comparison}\n", comparison.to_json())
        self.note("\n".join(f"saved       {path}" for path in files))

    def _learn(self, tasks: "dict[str, gym.Env[Any, Any]]", record: "RunFolder") -> dict[str, NDArray[np.float64]]:
        """Condition -> (1, seeds, episodes)."""
        numbers = self.given("learning_rate", "epsilon", "discount")
        returns: dict[str, list[NDArray[np.float64]]] = {name: [] for name in tasks}
        agents = list(product(tasks, range(self.seeds)))
        with progress_bar(None, "agents", len(agents)) as tick:
            for done, (name, seed) in enumerate(agents):
                tick(name, done, len(agents))
                learn = partial(returns_of, secret_rl.QLearning(seed=seed, **numbers), tasks[name], self.episodes)
                returns[name].append(record.array(f"{name}-{seed}", learn))
        return {name: np.stack(parts)[None] for name, parts in returns.items()}


def returns_of(agent: "secret_rl.QLearning", env: Any, episodes: int) -> NDArray[np.float64]:
    """(episodes,) unshaped returns of an agent that learns in an environment."""
    return agent.learn(env, episodes, progress=False).curve.returns


def verdict(
    curves: "LearningCurves", fraction: float | None = None, threshold: float | None = None
) -> "tuple[Comparison, str]":
    """The comparison, and its gist in a sentence about the last condition."""
    from secret_rl.evaluation import Bootstrap, compare
    from secret_rl.report.runs import WINDOW

    bootstrap, window = Bootstrap("both" if curves.mazes > 1 else "seeds"), min(WINDOW, curves.episodes)
    comparison = compare(curves, threshold=threshold, fraction=fraction, window=window, bootstrap=bootstrap)
    name = curves.names[-1]
    before, after = comparison["none"], comparison[name]
    if fraction is None and threshold is None:
        words = f"{name}: mean return {after.area.value:.2f} over training instead of {before.area.value:.2f}"
        return comparison, words + _hedge(after)
    goal = f"{fraction:.0%} of optimal" if fraction is not None else f"a return of {threshold:g}"
    sooner, later = (
        f"more than {curves.episodes:,}" if row.episodes_to_threshold is None else f"{row.episodes_to_threshold:,.0f}"
        for row in (after, before)
    )
    return comparison, f"{name}: reached {goal} in {sooner} instead of {later} episodes" + _hedge(after)


def _hedge(row: "ComparedCondition") -> str:
    """What a verdict must not hide: an interval that holds no effect."""
    found = row.difference
    if found is None or not found.low <= 0 <= found.high:
        return ""
    return f"; this may be chance: the mean return differs by {found:+.2f}, an interval that holds 0"


def write_curves(curves: "LearningCurves", comparison: "Comparison", folder: Path) -> list[Path]:
    """The curves as numbers and as a picture, in the folder of a run."""
    from secret_rl.report import plot_learning_curves, save_figure
    from secret_rl.report.runs import CURVES, WINDOW

    curves.save(folder / CURVES)
    curves.to_csv(folder / "curves.csv")
    figure = plot_learning_curves(curves, window=min(WINDOW, curves.episodes), bootstrap=comparison.bootstrap)
    return [folder / CURVES, folder / "curves.csv", *save_figure(figure, folder / "curves")]
