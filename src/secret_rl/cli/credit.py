"""Commands that learn credit, read it out, judge it and show it."""

import inspect
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from tyro.conf import OmitArgPrefixes

import secret_rl
from secret_rl.cli.command import Command, UsageError, command, processes
from secret_rl.cli.fields import Data, EnvId, Model, one_of
from secret_rl.credit.base import CreditMethod, load_method, method_class, methods
from secret_rl.credit.secret.options import ModelOptions, TrainingOptions
from secret_rl.loggers import TensorBoardLogger

if TYPE_CHECKING:
    Method = str
else:
    Method = one_of(methods())


@command("fit", resumable=True)
class Fit(Command):
    """Learn credit from saved trajectories.

    An interrupted fit goes on where it stopped when the same command is given again. Several processes share a fit:
    torchrun --nproc-per-node 2 -m secret_rl.cli fit DATA --out FILE
    """

    data: Data  # Folder that trajectories were saved to.
    out: Path  # File to write the model to; a folder of that name, ending in .run, keeps the record for report.
    method: Method = "secret"  # Credit method.
    # Decides everything random; on one machine the result is the same to the bit, with the same number of threads.
    seed: int = 0
    device: str = "auto"  # cpu, cuda, mps, or auto.
    tensorboard: Path | None = None  # Folder to log to, for TensorBoard.
    model: Annotated[ModelOptions, OmitArgPrefixes] = field(default_factory=ModelOptions)  # Architecture.
    training: Annotated[TrainingOptions, OmitArgPrefixes] = field(default_factory=TrainingOptions)  # Training.

    distributed: ClassVar[bool] = True

    def run(self) -> None:
        """Fit and save."""
        from secret_rl.credit.secret.group import Group
        from secret_rl.report.runs import RunFolder, folder_of

        data = secret_rl.Trajectories.load(self.data)
        method: Any = method_class(self.method)
        chosen, defaults = ({**asdict(a), **asdict(b)} for a, b in ((self.model, self.training), _DEFAULTS))
        options = _accepted(method, f"method {self.method}", chosen, defaults)
        new = method(seed=self.seed, device=self.device, **options)
        given = self.given("data", "method", "seed") | {"device": getattr(new, "device", self.device)}
        checkpoint = self.out.with_name(f"{self.out.name}.partial")
        if self.tensorboard is not None and "logger" not in inspect.signature(new.fit).parameters:
            raise UsageError(f"--tensorboard: method {self.method} logs nothing")
        if processes() > 1 and "distributed" not in inspect.signature(new.fit).parameters:
            raise UsageError(f"--method {self.method} fits in one process: give the command without torchrun")
        group = Group.join(new.device) if processes() > 1 else Group()
        logs = self.tensorboard if group.leads else None

        def fitted() -> CreditMethod:
            if hasattr(new, "estimate") and not (self.quiet or self.json):
                estimate = new.estimate(data)
                if group.leads:
                    print(f"estimate      {estimate}", file=sys.stderr)
            with nullcontext() if logs is None else TensorBoardLogger(logs) as logger:
                new.fit(data, checkpoint=checkpoint, **({} if logger is None else {"logger": logger}))
            group.leave()
            new.save(self.out)
            return new  # type: ignore[no-any-return]

        if not group.leads:
            if group.of_first(True):
                fitted()
            return

        with RunFolder(folder_of(self.out), "fit", {**given, **options}, {"data": data.fingerprint}) as record:
            if not group.of_first(record.lacks("model")):
                group.leave()
            secret = record.once("model", fitted, lambda: load_method(self.out, device=self.device))
            assert secret.report is not None
            results, judged = {"data": data.summary().to_json(), "fit": secret.report.to_json()}, ""
            if sum(array.dtype == np.bool_ for array in data.annotations.values()) == 1:  # the truth is known
                held_out = data[data.split_indices(self.training.validation, seed=self.seed)[1]]
                quality = secret_rl.credit_quality(secret.attribute(held_out, rewards="positive"), held_out)
                results["quality"] = {"held out for validation": quality.to_json()}
                judged = f"\ncredit        {quality}"
            record.finish(**results)
        self.saved(f"{secret.report}{judged}\nsaved         {self.out}", secret.report.to_json())


_DEFAULTS = (ModelOptions(), TrainingOptions())


def _accepted(
    function: Callable[..., Any], what: str, options: Mapping[str, Any], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """The options that a function takes, those not given by its own defaults.

    A ``UsageError`` where one was given that it does not take.
    """
    taken = inspect.signature(function).parameters
    foreign = [name for name, value in options.items() if name not in taken and value != defaults[name]]
    if foreign:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in foreign)
        raise UsageError(f"{flags}: {what} has no such option")
    return {
        name: value if value != defaults[name] or own is inspect.Parameter.empty else own
        for name, value, own in ((name, value, taken[name].default) for name, value in options.items() if name in taken)
    }


@dataclass(frozen=True)
class _WithModel(Command):
    """A command that applies a fitted model to trajectories."""

    model: Model  # File written by fit.
    data: Data  # Folder that trajectories were saved to.
    device: str = field(default="auto", kw_only=True)  # cpu, cuda, mps, or auto.

    def load(self) -> "tuple[CreditMethod, secret_rl.Trajectories]":
        """The model, with a warning unless its attention is credit, and the trajectories."""
        from secret_rl.report.runs import doubt_of
        from secret_rl.shaping.core import NotCreditWarning

        secret = load_method(self.model, device=self.device)
        data = secret_rl.Trajectories.load(self.data)
        if (doubt := doubt_of(secret.report)) is not None:
            warnings.warn(f"{secret.report.verdict}: {doubt}", NotCreditWarning, stacklevel=2)  # type: ignore[union-attr]
        return secret, data


@command("attribute")
class Attribute(_WithModel):
    """Say which steps earned each reward of saved trajectories."""

    out: Path  # File to write: .safetensors, or .csv for a table.
    rewards: Literal["positive", "negative", "all"] = "all"  # Which rewards.
    decided: bool = False  # Also attribute rewards that the present decides; of these, attention is not credit.
    threshold: float = 0.01  # Smallest attention to write to a .csv table.

    def run(self) -> None:
        """Attribute and save."""
        secret, data = self.load()
        options = _accepted(
            secret.attribute, f"attribution by {secret.name}", {"decided": self.decided}, {"decided": False}
        )
        attributions = secret.attribute(data, rewards=self.rewards, **options)
        if self.out.suffix == ".csv":
            attributions.to_csv(self.out, self.threshold)
        else:
            attributions.save(self.out)
        self.saved(
            f"{len(attributions):,} of {attributions.rewards_seen:,} rewards {'' if self.decided else 'left open '}"
            f"attributed ({attributions.coverage:.1%}); saved {self.out}",
            {
                "saved": self.out,
                "rewards": attributions.rewards_seen,
                "attributed": len(attributions),
                "coverage": attributions.coverage,
                "verdict": None if secret.report is None else secret.report.verdict,
            },
        )


@command("quality")
class Quality(_WithModel):
    """Compare credit with the truth that trajectories are annotated with, on data held out from fit."""

    threshold: float = 0.2  # Attention from which a step counts as credited.
    annotation: str | None = None  # Which annotation is the truth, if there are several.
    rewards: Literal["positive", "negative", "all"] = "positive"  # Which rewards.
    tolerance: int = 0  # Count a credited step as right within so many steps of a true event.
    # Whether a reward should credit all true events before it, or any one of them.
    events: Literal["all", "any"] = "all"

    def run(self) -> None:
        """Attribute, compare and print."""
        secret, data = self.load()
        attributions = secret.attribute(data, rewards=self.rewards)
        how = self.given("threshold", "tolerance", "events", "annotation", "rewards")
        quality = secret_rl.credit_quality(attributions, data, **how)
        self.answer(quality, quality.to_json())


@command("explore")
class Explore(_WithModel):
    """Make a page to look at credit with: trajectories, their rewards, and the steps that earned them.

    The page is one HTML file that needs no network; open it in a browser.
    """

    out: Path = Path("explorer.html")  # File to write.
    trajectories: int = 50  # How many to show: successful, mispredicted and long ones are among them.
    episodes: tuple[int, ...] = ()  # Show these instead, by number.
    beside: tuple[Path, ...] = ()  # Files of other methods, whose credit for the same rewards is shown below.
    annotation: str | None = None  # The truth that credit is judged by; needed unless exactly one is boolean.
    report: Path | None = None  # Page to link to; by default report.html beside the page, if it is there.
    # Show the values and the shaped reward of this potential, a file; by default of the model's own credit.
    potential: Path | None = None
    discount: float = 0.99  # Of the shaped reward.
    # Gymnasium id to play episodes again in, for example minigrid:MiniGrid-Unlock-v0; by default the one of the data.
    env: EnvId | None = None
    replay: bool = True  # Play episodes again to see them; without, only what is stored is shown.
    title: str = "Credit explorer"  # Heading of the page.

    def run(self) -> None:
        """Make the page."""
        from secret_rl.report import explore

        self.load()  # the warning
        others = {path.stem: load_method(path, device=self.device) for path in self.beside}
        if len(others) < len(self.beside):
            raise UsageError(
                f"--beside names methods by their files: give {', '.join(map(str, self.beside))} other names"
            )
        made = explore(out=self.out, **{**self.settings(), "episodes": self.episodes or None, "beside": others})
        lines = [f"saved       {made.path} ({made.bytes / 1e6:.2f} MB, {len(made.episodes)} trajectories)"]
        lines += [f"note        {note}" for note in made.notes]
        content = {"page": made.path, "bytes": made.bytes, "episodes": made.episodes, "notes": made.notes}
        self.saved("\n".join(lines), content)
