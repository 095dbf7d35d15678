"""Commands that make and read trajectories."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from tyro.conf import Positional, arg

import secret_rl
from secret_rl.cli.output import Output, UsageError


@dataclass(frozen=True)
class Collect(Output):
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

    resumable: ClassVar[bool] = True

    def run(self) -> None:
        """Collect and save."""
        started = time.perf_counter()
        data = secret_rl.collect(
            self.env,
            self.episodes,
            seed=self.seed,
            success_share=self.success_share,
            env_options=options_of(self.option),
            workers=self.workers,
            out=self.out,
            overwrite=self.overwrite,
        )
        seconds, summary = time.perf_counter() - started, data.summary()
        self.saved(
            f"{summary}\nsaved       {self.out} in {seconds:.1f} s",
            {"saved": self.out, "seconds": round(seconds, 2), "summary": summary.to_json(), "meta": dict(data.meta)},
        )


@dataclass(frozen=True)
class Info(Output):
    """Say what saved trajectories hold."""

    data: Positional[Path]
    """Folder that trajectories were saved to."""
    verify: bool = False
    """Compare every byte with the stored checksums, however large the data."""

    def run(self) -> None:
        """Print the summary."""
        data = secret_rl.Trajectories.load(self.data, verify=self.verify or None)
        steps, episodes = data.columns()
        fields = {name: f"{a.dtype} {a.shape}" for name, a in {**steps, **episodes}.items()}
        lines = [
            str(data.summary()),
            *(f"{key:<13} {json.dumps(value)}" for key, value in data.meta.items()),
            f"observation   {data.observation_space}\naction        {data.action_space}\nfields",
            *(f"  {name:<32}{description}" for name, description in fields.items()),
        ]
        content = {"summary": data.summary().to_json(), "meta": dict(data.meta), "fields": fields}
        self.answer("\n".join(lines), content)


def options_of(pairs: tuple[str, ...]) -> dict[str, Any]:
    """KEY=VALUE words; a value is JSON where it reads as such, else a string."""
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"--option takes KEY=VALUE words, got {pair!r}")
        try:
            options[key] = json.loads(value)
        except json.JSONDecodeError:
            options[key] = {"None": None, "True": True, "False": False}.get(value, value)
    return options
