"""Commands that make, read and play trajectories."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import secret_rl
from secret_rl.cli.command import Command, command, options_of
from secret_rl.cli.fields import Data, Env, EnvOptions

_MOVES = {"w": 0, "s": 1, "a": 2, "d": 3, "\x1b[A": 0, "\x1b[B": 1, "\x1b[D": 2, "\x1b[C": 3}


@command("collect", resumable=True)
class Collect(Command):
    """Play episodes with a random policy and save them.

    An interrupted collection goes on where it stopped when the same command is given again.
    """

    env: Env  # Gymnasium id, for example secret_rl/Triggers-v0.
    out: Path  # Folder to write.
    episodes: int = 10_000  # Episodes to keep.
    seed: int = 0  # Decides everything random.
    success_share: float | None = None  # Keep rolling out until this share of the episodes holds a positive reward.
    option: EnvOptions = ()  # Options of the environment, for example: --option size=8 triggers=3 prizes=1
    workers: int = 1  # Processes to share the work (threads for compiled environments); the result is the same.
    ray: str | None = None  # Have them on Ray: "auto", an address, or "local" for one that ends with this.
    overwrite: bool = False  # Replace what is at OUT.
    shard: str | None = None  # Append to OUT under this name, beside other processes; each needs a seed of its own.
    compress: bool = False  # Compress pictures, without loss.

    def run(self) -> None:
        """Collect and save."""
        started = time.perf_counter()
        how = self.given("seed", "success_share", "workers", "ray", "out", "overwrite", "shard", "compress")
        data = secret_rl.collect(self.env, self.episodes, env_options=options_of(self.option), **how)
        seconds, summary = time.perf_counter() - started, data.summary()
        self.saved(
            f"{summary}\nsaved       {self.out} in {seconds:.1f} s",
            {"saved": self.out, "seconds": round(seconds, 2), "summary": summary.to_json(), "meta": dict(data.meta)},
        )


@command("info")
class Info(Command):
    """Say what saved trajectories hold."""

    data: Data  # Folder that trajectories were saved to.
    verify: bool = False  # Compare every byte with the stored checksums, however large the data.

    def run(self) -> None:
        """Print the summary."""
        data = secret_rl.Trajectories.load(self.data, verify=self.verify or None)
        size = sum(file.stat().st_size for file in self.data.rglob("*.npy"))
        shards = [shard.name for shard in data.shards]
        fields = {name: f"{array.dtype} {array.shape}" for name, array in data.columns().items()}
        lines = [
            str(data.summary()),
            *([f"shards      {len(shards):,}, from {shards[0]} to {shards[-1]}"] if shards else []),
            f"on disk     {size / 1e6:,.1f} MB",
            *(f"{key:<13} {json.dumps(value)}" for key, value in data.meta.items()),
            f"observation   {data.observation_space}\naction        {data.action_space}\nfields",
            *(f"  {name:<32}{description}" for name, description in fields.items()),
        ]
        content = {"summary": data.summary().to_json(), "meta": dict(data.meta), "fields": fields}
        self.answer("\n".join(lines), {**content, "bytes": size, "shards": shards})


@command("play")
class Play(Command):
    """Walk a Triggers maze in the terminal: arrow keys or w a s d; r for another maze, q to leave."""

    option: EnvOptions = ()  # Options of the maze, for example: --option size=8 triggers=3 layout_seed=7
    seed: int | None = None  # Decides the random mazes.

    def run(self) -> None:
        """Play until the player leaves."""
        import gymnasium as gym

        from secret_rl.envs import TRIGGERS_ID

        env = gym.make(TRIGGERS_ID, render_mode="ansi", **options_of(self.option))
        shown = sys.stderr if self.json else sys.stdout
        returns: list[float] = []
        total, over, message = 0.0, False, "A you, T switch, P prize; arrows or w a s d, r new maze, q quit"
        env.reset(seed=self.seed)
        with _keys() as keys:
            while True:
                screen = "\x1b[H\x1b[2J" if shown.isatty() else ""
                print(f"{screen}{env.render()}\n{message}", file=shown, flush=True)
                key = next((key for key in keys if key in _MOVES or key in "rq" or over), "q")
                if key == "q":
                    break
                if key == "r" or over:
                    env.reset()
                    total, over, message = 0.0, False, "a new maze"
                    continue
                _, reward, terminated, truncated, info = env.step(_MOVES[key])
                total, over = total + float(reward), terminated or truncated
                message = f"prize: {reward:+g}" if reward else "switch activated" if info["trigger_activated"] else ""
                if over:
                    returns.append(total)
                    why = "no prize left" if terminated else "out of time"
                    message += f"  episode over ({why}), return {total:+g}; any key for another maze"
        if self.json:
            self.answer("", {"returns": returns})


@contextmanager
def _keys() -> Iterator[Iterator[str]]:
    """Key presses as they come from a terminal, or the characters of piped input."""

    def read() -> Iterator[str]:
        while key := sys.stdin.read(1):
            yield key + sys.stdin.read(2) if key == "\x1b" else key

    if not sys.stdin.isatty():
        yield read()
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield read()
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
