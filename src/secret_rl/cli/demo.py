"""The main job, start to end: source mazes, credit, held-out mazes, learning with and without it."""

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import secret_rl
from secret_rl.cli.command import Command, UsageError, command
from secret_rl.cli.learning import returns_of, verdict, write_curves
from secret_rl.progress import progress_bar

if TYPE_CHECKING:
    import gymnasium as gym

    from secret_rl.evaluation import LearningCurves
    from secret_rl.report.runs import RunFolder

_HELD_OUT = 1_000_000  # layout seeds from here on are mazes that the source never draws but by chance
_JUDGED = 20  # source trajectories for each one in held-out mazes that credit is judged on


@command("demo", resumable=True)
class Demo(Command):
    """Learn credit in random mazes, take it to held-out ones, and see how much faster an agent learns there.

    The task: activate every switch, then collect the prize; a prize taken too early costs 1. Everything is kept in a
    folder: the credit model, a page that shows credit, the learning curves, the verdict, and a report of all. What an
    interrupted demo had finished is kept when the same command is given again.
    """

    out: Path = Path("runs/demo")  # Folder for what the demo makes.
    trajectories: int = 20_000  # Source trajectories of random play.
    updates: int = 3_000  # Updates of the credit model.
    mazes: int = 8  # Held-out mazes to learn in.
    seeds: int = 5  # Agents in each maze, of each kind: none, value and credit.
    episodes: int = 1_200  # Episodes that each agent plays.
    target_trajectories: int = 1_000  # Of random play in each held-out maze, for the potential of value alone.
    size: int = 8  # Side of the mazes.
    switches: int = 3  # Switches to activate before the prize.
    seed: int = 0  # Decides everything random.

    def run(self) -> None:
        """Run the demo."""
        from secret_rl.report import explore, write_report
        from secret_rl.report.runs import RunFolder

        for name in ("trajectories", "updates", "mazes", "seeds", "episodes", "target_trajectories"):
            if getattr(self, name) < 1:
                raise UsageError(f"--{name.replace('_', '-')} must be at least 1, got {getattr(self, name)}")
        if self.mazes * self.seeds < 2:
            raise UsageError("one agent in one maze gives no interval: raise --mazes or --seeds")
        started, model = time.perf_counter(), self.out / "credit.safetensors"
        with RunFolder(self.out, "demo", self.settings()) as record:
            self.note("1. Random play in random mazes, until a quarter of the episodes succeed ...")
            source = record.once(
                "source",
                lambda: self._collect(self.trajectories, self.seed, out=self.out / "source", overwrite=True),
                lambda: secret_rl.Trajectories.load(self.out / "source"),
            )
            self.note(source.summary())

            self.note("\n2. Learning to predict each reward; attention to the past is credit ...")
            secret = record.once("credit", lambda: self._fit(source, model), lambda: secret_rl.Secret.load(model))
            assert secret.report is not None
            self.note(secret.report)
            held_out = self._collect(max(10, self.trajectories // _JUDGED), _HELD_OUT + self.seed)
            quality = secret_rl.credit_quality(secret.attribute(held_out, rewards="positive"), held_out)
            page = self.out / "explorer.html"
            explore(secret, held_out, page, trajectories=20, report=self.out / "report.html")
            self.note(f"held-out mazes: {quality}\nwhich steps earned their rewards: {page.resolve().as_uri()}")

            self.note(f"\n3. Q-learning in {self.mazes} held-out mazes, {self.seeds} agents of each kind ...")
            curves = self._learn(secret, record)
            comparison, words = verdict(curves, fraction=0.9)
            files = write_curves(curves, comparison, self.out)
            content = record.finish(
                data=source.summary().to_json(),
                fit=secret.report.to_json(),
                quality={"held-out mazes": quality.to_json()},
                seconds=round(time.perf_counter() - started, 1),
                comparison=comparison.to_json(),
                verdict=words,
            )
        report = write_report([self.out], self.out / "report.html")
        self.note(f"\n{comparison}\n")
        self.answer(f"{words}\n", {**content, "report": report})
        self.note("\n".join(f"saved       {path}" for path in (model, page, *files)))
        self.note(f"done        in {time.perf_counter() - started:.0f} s\nexplorer    {page.resolve().as_uri()}")
        self.note(f"report      {report.resolve().as_uri()}")
        self.note("deep agents DQN and PPO that are paid for credit: examples/sb3_dqn.py (two minutes), docs/agents.md")

    @property
    def _mazes(self) -> dict[str, Any]:
        return {"size": self.size, "triggers": self.switches, "prizes": 1}

    def _collect(self, episodes: int, seed: int, **how: Any) -> "secret_rl.Trajectories":
        from secret_rl.envs import TRIGGERS_ID

        return secret_rl.collect(TRIGGERS_ID, episodes, seed=seed, success_share=0.25, env_options=self._mazes, **how)

    def _fit(self, source: "secret_rl.Trajectories", path: Path) -> "secret_rl.Secret":
        secret = secret_rl.Secret(seed=self.seed, steps=self.updates)
        secret.fit(source, checkpoint=self.out / "credit.partial").save(path)
        return secret

    def _learn(self, secret: "secret_rl.Secret", record: "RunFolder") -> "LearningCurves":
        import gymnasium as gym

        from secret_rl.envs import TRIGGERS_ID
        from secret_rl.envs.tabular import best_return
        from secret_rl.evaluation import LearningCurves

        returns: dict[str, list[Any]] = {"none": [], "value": [], "OnlineCredit": []}
        optimal = []
        potential = secret_rl.OnlineCredit(secret)
        with progress_bar(None, "mazes", self.mazes) as tick:
            for maze in range(self.mazes):
                options = {**self._mazes, "layout_seed": _HELD_OUT + self.seed * self.mazes + maze}
                env = gym.make(TRIGGERS_ID, **options)
                target = secret_rl.collect(TRIGGERS_ID, self.target_trajectories, seed=self.seed, env_options=options)
                shaped = secret_rl.PotentialShaping(env, potential, discount=0.99)
                tasks = {"none": env, "value": by_value(env, target), "OnlineCredit": shaped}
                optimal.append(best_return(env.unwrapped.tabular(), 0.99))  # type: ignore[attr-defined]
                for name, task in tasks.items():
                    returns[name].append(record.array(f"maze{maze}-{name}", partial(self._agents, task)))
                tick("", maze + 1, self.mazes)
        return LearningCurves(returns, optimal=optimal, collected={"value": self.target_trajectories})

    def _agents(self, task: "gym.Env[Any, Any]") -> NDArray[np.float64]:
        """(seeds, episodes) unshaped returns in one maze."""
        agents = [secret_rl.QLearning(seed=seed) for seed in range(self.seeds)]
        return np.stack([returns_of(agent, task, self.episodes) for agent in agents])


def by_value(env: "gym.Env[Any, Any]", target: "secret_rl.Trajectories") -> "gym.Env[Any, Any]":
    """Shaped by the value of trajectories of the same maze, the baseline to beat; as it is where none succeeds."""
    if not target.successful.any():
        return env
    return secret_rl.PotentialShaping(env, secret_rl.estimate_potential(target, kind="value"), discount=0.99)
