"""The ``secret-rl`` command: the same steps as the library, from a terminal."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import gymnasium as gym
import tyro
from tyro.conf import OmitArgPrefixes, Positional, arg

import secret_rl
from secret_rl.credit.options import ModelOptions, TrainingOptions
from secret_rl.envs import TRIGGERS_ID

_EXPECTED_ERRORS = (ValueError, TypeError, OSError, RuntimeError, ModuleNotFoundError, gym.error.Error)
_MOVES = {"w": 0, "s": 1, "a": 2, "d": 3, "\x1b[A": 0, "\x1b[B": 1, "\x1b[D": 2, "\x1b[C": 3}


@dataclass(frozen=True)
class Collect:
    """Play episodes with a random policy and save them.

    An interrupted collection goes on where it stopped when the same command is given again.
    """

    env: Positional[str]
    """Gymnasium id, for example secret_rl/Triggers-v0."""
    out: Path
    """Folder to write."""
    episodes: int = 10_000
    """Episodes to keep."""
    seed: int = 0
    """Decides everything random."""
    success_share: float | None = None
    """Keep rolling out until this share of the episodes holds a positive reward."""
    option: Annotated[tuple[str, ...], arg(metavar="KEY=VALUE")] = ()
    """Options of the environment, for example: --option size=8 triggers=3 prizes=1"""
    workers: int = 1
    """Processes to share the work (threads for compiled environments); the result is the same."""
    overwrite: bool = False
    """Replace what is at OUT."""
    quiet: bool = False
    """No progress bar and no summary."""

    def run(self) -> None:
        """Collect and save."""
        started = time.perf_counter()
        data = secret_rl.collect(
            self.env,
            self.episodes,
            seed=self.seed,
            success_share=self.success_share,
            env_options=_options(self.option),
            workers=self.workers,
            out=self.out,
            overwrite=self.overwrite,
            progress=False if self.quiet else None,
        )
        if not self.quiet:
            print(data.summary())
            print(f"saved       {self.out} in {time.perf_counter() - started:.1f} s")


@dataclass(frozen=True)
class Info:
    """Say what saved trajectories hold."""

    data: Positional[Path]
    """Folder that trajectories were saved to."""
    verify: bool = False
    """Compare every byte with the stored checksums, however large the data."""
    json: bool = False
    """Print JSON, for machines."""

    def run(self) -> None:
        """Print the summary."""
        data = secret_rl.Trajectories.load(self.data, verify=self.verify or None)
        steps, episodes = data.columns()
        fields = {name: f"{a.dtype} {a.shape}" for name, a in {**steps, **episodes}.items()}
        if self.json:
            content = {"summary": data.summary().to_json(), "meta": dict(data.meta), "fields": fields}
            print(json.dumps(content, indent=1))
            return
        print(data.summary())
        for key, value in data.meta.items():
            print(f"{key:<13} {json.dumps(value)}")
        print(f"observation   {data.observation_space}\naction        {data.action_space}\nfields")
        for name, description in fields.items():
            print(f"  {name:<32}{description}")


@dataclass(frozen=True)
class Play:
    """Walk a Triggers maze in the terminal: arrow keys or w a s d; r for another maze, q to leave."""

    size: int = 8
    """Cells along each side."""
    triggers: int = 3
    """Switches to activate before the prizes."""
    prizes: int = 1
    """Prizes to collect."""
    inverted: bool = False
    """Swap up with down and left with right."""
    layout_seed: int | None = None
    """Play one fixed maze."""
    seed: int | None = None
    """Decides the random mazes."""

    def run(self) -> None:
        """Play until the player leaves."""
        env = gym.make(
            TRIGGERS_ID,
            size=self.size,
            triggers=self.triggers,
            prizes=self.prizes,
            inverted=self.inverted,
            layout_seed=self.layout_seed,
            render_mode="ansi",
        )
        screen = "\x1b[H\x1b[2J" if sys.stdout.isatty() else ""
        env.reset(seed=self.seed)
        total, over, message = 0.0, False, "A you, T switch, P prize; arrows or w a s d, r new maze, q quit"
        with _keys() as keys:
            print(f"{screen}{env.render()}\n{message}", flush=True)
            for key in keys:
                if key == "q":
                    break
                if key == "r" or over:
                    env.reset()
                    total, over, message = 0.0, False, "a new maze"
                elif key in _MOVES:
                    _, reward, terminated, truncated, info = env.step(_MOVES[key])
                    total, over = total + float(reward), terminated or truncated
                    message = "switch activated" if info["trigger_activated"] else ""
                    if reward:
                        message = f"prize: {reward:+g}"
                    if over:
                        why = "no prize left" if terminated else "out of time"
                        message += f"  episode over ({why}), return {total:+g}; any key for another maze"
                else:
                    continue
                print(f"{screen}{env.render()}\n{message}", flush=True)


@dataclass(frozen=True)
class Fit:
    """Learn credit from saved trajectories.

    An interrupted fit goes on where it stopped when the same command is given again.
    """

    data: Positional[Path]
    """Folder that trajectories were saved to."""
    out: Path
    """File to write the model to."""
    seed: int = 0
    """Decides everything random."""
    device: str = "auto"
    """cpu, cuda, mps, or auto."""
    model: Annotated[ModelOptions, OmitArgPrefixes] = field(default_factory=ModelOptions)
    """Architecture."""
    training: Annotated[TrainingOptions, OmitArgPrefixes] = field(default_factory=TrainingOptions)
    """Training."""
    quiet: bool = False
    """No progress bar and no report."""
    json: bool = False
    """Print the report as JSON, for machines."""

    def run(self) -> None:
        """Fit and save."""
        data = secret_rl.Trajectories.load(self.data)
        options = {**vars(self.model), **vars(self.training)}
        secret = secret_rl.Secret(seed=self.seed, device=self.device, **options)
        checkpoint = self.out.with_name(f"{self.out.name}.partial")
        secret.fit(data, checkpoint=checkpoint, progress=False if self.quiet or self.json else None)
        secret.save(self.out)
        assert secret.report is not None
        if self.json:
            print(json.dumps(secret.report.to_json(), indent=1))
        elif not self.quiet:
            print(f"{secret.report}\nsaved         {self.out}")


@dataclass(frozen=True)
class Attribute:
    """Say which steps earned each reward of saved trajectories."""

    model: Positional[Path]
    """File written by fit."""
    data: Positional[Path]
    """Folder that trajectories were saved to."""
    out: Path
    """File to write: .npz, or .csv for a table."""
    rewards: Literal["positive", "negative", "all"] = "all"
    """Which rewards."""
    tolerance: int = 0
    """Count a prediction as correct within so many steps of the reward."""
    threshold: float = 0.01
    """Smallest attention to write to a .csv table."""
    device: str = "auto"
    """cpu, cuda, mps, or auto."""

    def run(self) -> None:
        """Attribute and save."""
        secret = secret_rl.Secret.load(self.model, device=self.device)
        data = secret_rl.Trajectories.load(self.data)
        attributions = secret.attribute(data, rewards=self.rewards, tolerance=self.tolerance)
        if self.out.suffix == ".csv":
            attributions.to_csv(self.out, self.threshold)
        else:
            attributions.save(self.out)
        print(
            f"{len(attributions):,} of {attributions.rewards_seen:,} rewards attributed "
            f"({attributions.coverage:.1%}); saved {self.out}"
        )


@dataclass(frozen=True)
class Quality:
    """Compare credit with the truth that trajectories are annotated with."""

    model: Positional[Path]
    """File written by fit."""
    data: Positional[Path]
    """Folder that trajectories were saved to, held out from fit."""
    threshold: float = 0.2
    """Attention from which a step counts as credited."""
    annotation: str | None = None
    """Which annotation is the truth, if there are several."""
    rewards: Literal["positive", "negative", "all"] = "positive"
    """Which rewards."""
    tolerance: int = 0
    """Count a prediction as correct within so many steps of the reward."""
    device: str = "auto"
    """cpu, cuda, mps, or auto."""
    json: bool = False
    """Print JSON, for machines."""

    def run(self) -> None:
        """Attribute, compare and print."""
        secret = secret_rl.Secret.load(self.model, device=self.device)
        data = secret_rl.Trajectories.load(self.data)
        attributions = secret.attribute(data, rewards=self.rewards, tolerance=self.tolerance)
        quality = secret_rl.credit_quality(
            attributions, data, self.threshold, annotation=self.annotation, rewards=self.rewards
        )
        print(json.dumps(quality.to_json(), indent=1) if self.json else quality)


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


def _options(pairs: tuple[str, ...]) -> dict[str, Any]:
    """KEY=VALUE words; a value is JSON where it reads as such, else a string."""
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ValueError(f"--option takes KEY=VALUE words, got {pair!r}")
        try:
            options[key] = json.loads(value)
        except json.JSONDecodeError:
            options[key] = {"None": None, "True": True, "False": False}.get(value, value)
    return options


@contextmanager
def _keys() -> Iterator[Iterator[str]]:
    """Key presses as they come from a terminal, or the characters of piped input."""

    def read(next_character: Callable[[], str]) -> Iterator[str]:
        while character := next_character():
            if character == "\x1b":
                character += next_character() + next_character()
            yield character

    def one() -> str:
        return sys.stdin.read(1)

    if not sys.stdin.isatty():
        yield read(one)
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield read(one)
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


_COMMANDS: dict[str, Callable[..., Any]] = {
    "collect": Collect,
    "info": Info,
    "play": Play,
    "fit": Fit,
    "attribute": Attribute,
    "quality": Quality,
    "paper": Paper,
    "demo": Demo,
}


def main(arguments: list[str] | None = None) -> int:
    """Run a command; give the exit code: 0 done, 1 refused or failed, 2 wrong usage, 130 interrupted."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["--version"]:
        print(f"secret-rl {secret_rl.__version__}")
        return 0
    command = tyro.extras.subcommand_cli_from_dict(
        _COMMANDS,
        prog="secret-rl",
        description="Find out which past actions earned a reward. --version prints the version.",
        args=arguments,
    )
    try:
        command.run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except _EXPECTED_ERRORS as error:
        print(f"secret-rl: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
