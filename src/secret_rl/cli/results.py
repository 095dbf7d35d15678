"""Commands that show what the library does: the demo and the paper's results."""

import sys
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import gymnasium as gym
from tyro.conf import Positional

import secret_rl
from secret_rl.envs import TRIGGERS_ID


@dataclass(frozen=True)
class Demo:
    """Collect trajectories of random play in random mazes, say what they hold, and draw a maze."""

    out: Path = Path("runs/demo")
    """Folder for what the demo makes."""
    episodes: int = 40_000
    """Episodes to collect."""
    seed: int = 0
    """Decides everything random."""
    quiet: bool = False
    """No progress bar."""

    def run(self) -> None:
        """Run the demo."""
        from secret_rl.report.figures import save_frames

        print("Triggers 8x8: activate 3 switches, then collect the prize. Random play in random mazes ...")
        started = time.perf_counter()
        data = secret_rl.collect(
            TRIGGERS_ID,
            self.episodes,
            seed=self.seed,
            success_share=0.25,
            env_options={"triggers": 3, "prizes": 1},
            out=self.out / "mazes",
            overwrite=True,
            progress=False if self.quiet else None,
        )
        print(f"{data.summary()}\ncollected   in {time.perf_counter() - started:.1f} s\n")
        first = data[int(data.successful.argmax())]
        frames: list[Any] = []
        with gym.make(TRIGGERS_ID, render_mode="rgb_array") as env:
            maze: Any = env.unwrapped
            env.reset(seed=int(first.episode_annotations["seed"]))
            frames.append(env.render())
            print("The maze of the first successful episode (A agent, T switch, P prize):")
            maze.render_mode = "ansi"
            print(env.render())
            maze.render_mode = "rgb_array"
            for step, action in enumerate(first.actions):
                env.step(int(action))
                if first.annotations["trigger_activated"][step] or first.rewards[step]:
                    frames.append(env.render())
                    what = "a switch" if first.annotations["trigger_activated"][step] else "the prize"
                    print(f"step {step + 1:>3}: {what}, reward {first.rewards[step]:+g}")
        picture = save_frames(frames, self.out / "maze.png")
        print(f"\nsaved       {self.out / 'mazes'} (open with secret_rl.Trajectories.load)\npicture     {picture}")


@dataclass(frozen=True)
class Paper:
    """Make a result of the paper, from a clone of the repository."""

    names: Positional[tuple[str, ...]] = ()
    """Which results; all of them if none is named."""
    quick: bool = False
    """A small size for two cores."""

    def run(self) -> None:
        """Hand over to the paper package of the clone."""
        if not Path("paper", "__main__.py").is_file():
            raise FileNotFoundError(
                "the paper's results are run from the root of a clone of the repository, where the paper folder is"
            )
        sys.path.insert(0, str(Path.cwd()))
        paper = import_module("paper.__main__")
        paper.main([*self.names, *(["--quick"] if self.quick else [])])
