"""The main job, start to end: source mazes, credit, held-out mazes, learning with and without it."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import secret_rl
from secret_rl.cli.learning import curves_of, verdict, write_curves
from secret_rl.envs import TRIGGERS_ID
from secret_rl.envs.tabular import best_return
from secret_rl.evaluation import LearningCurves
from secret_rl.files import replace_text
from secret_rl.progress import progress_bar

_HELD_OUT = 1_000_000  # layout seeds from here on are mazes that the source never draws but by chance
_THRESHOLD = 0.9


@dataclass(frozen=True)
class Demo:
    """Learn credit in random mazes, take it to held-out ones, and see how much faster an agent learns there.

    The task: activate every switch, then collect the prize; a prize taken too early costs 1. Everything is kept
    in a folder: the credit model, the learning curves as a picture and as numbers, and the verdict.
    """

    out: Path = Path("runs/demo")
    """Folder for what the demo makes."""
    trajectories: int = 20_000
    """Source trajectories of random play."""
    updates: int = 3_000
    """Updates of the credit model."""
    mazes: int = 8
    """Held-out mazes to learn in."""
    seeds: int = 5
    """Agents in each maze, with and without credit."""
    episodes: int = 1_200
    """Episodes that each agent plays."""
    size: int = 8
    """Side of the mazes."""
    switches: int = 3
    """Switches to activate before the prize."""
    seed: int = 0
    """Decides everything random."""
    quiet: bool = False
    """No progress bars."""

    def run(self) -> None:
        """Run the demo."""
        for name in ("trajectories", "updates", "mazes", "seeds", "episodes"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} must be at least 1, got {getattr(self, name)}")
        started = time.perf_counter()
        self.out.mkdir(parents=True, exist_ok=True)
        source = self._collect()
        secret = self._fit(source)
        self._draw_credit(secret, source)
        curves = self._learn(secret)
        comparison, words = verdict(curves, fraction=_THRESHOLD)
        files = write_curves(curves, comparison, self.out)
        replace_text(self.out / "verdict.json", json.dumps(self._record(words), indent=1) + "\n")
        print(f"\n{comparison}\n\n{words}\n")
        print("\n".join(f"saved       {path}" for path in (self.out / "credit.safetensors", *files)))
        print(f"done        in {time.perf_counter() - started:.0f} s")

    @property
    def _mazes(self) -> dict[str, Any]:
        return {"size": self.size, "triggers": self.switches, "prizes": 1}

    def _collect(self) -> secret_rl.Trajectories:
        print("1. Random play in random mazes, until a quarter of the episodes succeed ...", flush=True)
        data = secret_rl.collect(
            TRIGGERS_ID,
            self.trajectories,
            seed=self.seed,
            success_share=0.25,
            env_options=self._mazes,
            out=self.out / "source",
            overwrite=True,
            progress=False if self.quiet else None,
        )
        print(data.summary())
        return data

    def _fit(self, source: secret_rl.Trajectories) -> secret_rl.Secret:
        print("\n2. Learning to predict the sign of each reward; attention to the past is credit ...", flush=True)
        secret = secret_rl.Secret(
            seed=self.seed, steps=self.updates, batch_size=128, evaluate_every=max(1, self.updates // 12)
        )
        secret.fit(source, checkpoint=self.out / "credit.partial", progress=False if self.quiet else None)
        secret.save(self.out / "credit.safetensors")
        print(secret.report)
        return secret

    def _draw_credit(self, secret: secret_rl.Secret, source: secret_rl.Trajectories) -> None:
        """Frames of an episode at the steps that earned its prize, as the model says."""
        from secret_rl.report.figures import save_frames

        shown = source[source.successful][:1]
        attributions = secret.attribute(shown, rewards="positive")
        if not len(attributions):
            return
        frames: list[Any] = []
        with gym.make(TRIGGERS_ID, render_mode="rgb_array", **self._mazes) as env:
            env.reset(seed=int(shown.episode_annotations["seed"][0]))
            weights = attributions.row(0)
            for step, action in enumerate(shown.actions[: len(weights)]):  # type: ignore[index]
                env.step(int(action))
                if weights[step] > 0.1:
                    print(f"   step {step + 1:>3} earned {weights[step]:.0%} of the prize at step {len(weights)}")
                    frames.append(env.render())
        if frames:
            print(f"   picture: {save_frames(frames, self.out / 'credit.png')}")

    def _learn(self, secret: secret_rl.Secret) -> LearningCurves:
        print(f"\n3. Q-learning in {self.mazes} held-out mazes, {self.seeds} agents each ...", flush=True)
        returns: dict[str, list[Any]] = {"none": [], "OnlineCredit": []}
        optimal = []
        potential = secret_rl.OnlineCredit(secret)
        with progress_bar(False if self.quiet else None, "mazes") as tick:
            for maze in range(self.mazes):
                options = {**self._mazes, "layout_seed": _HELD_OUT + self.seed * self.mazes + maze}
                env = gym.make(TRIGGERS_ID, **options)
                shaped = secret_rl.PotentialShaping(env, potential, discount=0.99)
                optimal.append(best_return(env.unwrapped.tabular(), 0.99))  # type: ignore[attr-defined]
                for name, task in (("none", env), ("OnlineCredit", shaped)):
                    returns[name].append(curves_of(task, self.episodes, self.seeds))
                tick("", maze + 1, self.mazes)
        return LearningCurves({name: np.stack(parts) for name, parts in returns.items()}, optimal=np.array(optimal))

    def _record(self, words: str) -> dict[str, Any]:
        settings = {name: str(value) if isinstance(value, Path) else value for name, value in vars(self).items()}
        return {"verdict": words, "settings": settings}
