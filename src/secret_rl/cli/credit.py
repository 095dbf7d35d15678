"""Commands that learn credit and read it out."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from tyro.conf import OmitArgPrefixes, Positional

import secret_rl
from secret_rl.cli.output import Output
from secret_rl.credit.options import ModelOptions, TrainingOptions
from secret_rl.evaluation import CreditQuality
from secret_rl.report.record import RunFolder, folder_of


@dataclass(frozen=True)
class Fit(Output):
    """Learn credit from saved trajectories.

    An interrupted fit goes on where it stopped when the same command is given again.
    """

    data: Positional[Path]
    """Folder that trajectories were saved to."""
    out: Path
    """File to write the model to; a folder of that name, ending in .run, keeps the record for report."""
    held_out: Path | None = None
    """Trajectories to judge credit on, if they tell the truth; by default those that are held out for validation."""
    seed: int = 0
    """Decides everything random; on one machine the result is the same to the bit, with the same number of threads."""
    device: str = "auto"
    """cpu, cuda, mps, or auto."""
    model: Annotated[ModelOptions, OmitArgPrefixes] = field(default_factory=ModelOptions)
    """Architecture."""
    training: Annotated[TrainingOptions, OmitArgPrefixes] = field(default_factory=TrainingOptions)
    """Training."""

    resumable: ClassVar[bool] = True

    def run(self) -> None:
        """Fit and save."""
        data = secret_rl.Trajectories.load(self.data)
        held_out = None if self.held_out is None else secret_rl.Trajectories.load(self.held_out)
        options = {**vars(self.model), **vars(self.training)}
        new = secret_rl.Secret(seed=self.seed, device=self.device, **options)
        given = {"data": self.data, "held_out": self.held_out, "seed": self.seed, "device": new.device}
        checkpoint = self.out.with_name(f"{self.out.name}.partial")

        def fitted() -> secret_rl.Secret:
            if not self.quiet and not self.json:
                print(f"estimate      {new.estimate(data)}", file=sys.stderr)
            new.fit(data, checkpoint=checkpoint).save(self.out)
            return new

        with RunFolder(folder_of(self.out), "fit", {**given, **options}, {"data": data.fingerprint}) as record:
            secret = record.once("model", fitted, lambda: secret_rl.Secret.load(self.out, device=self.device))
            assert secret.report is not None
            quality = self._judged(secret, data, held_out)
            record.finish(
                data=data.summary().to_json(),
                fit=secret.report.to_json(),
                quality={name: found.to_json() for name, found in quality.items()},
            )
        told = "".join(f"\ncredit        {found}" for found in quality.values())
        self.saved(f"{secret.report}{told}\nsaved         {self.out}", secret.report.to_json())

    def _judged(
        self, secret: secret_rl.Secret, data: secret_rl.Trajectories, held_out: secret_rl.Trajectories | None
    ) -> dict[str, CreditQuality]:
        """Credit beside the truth, by the name of the trajectories; nothing where the truth is not known."""
        name, judged = str(self.held_out), held_out
        if judged is None:
            name = "held out for validation"
            judged = data[data.split_indices(secret.training_options.validation, seed=self.seed)[1]]
        if sum(array.dtype == np.bool_ for array in judged.annotations.values()) != 1:
            return {}
        return {name: secret_rl.credit_quality(secret.attribute(judged, rewards="positive"), judged)}


@dataclass(frozen=True)
class Attribute(Output):
    """Say which steps earned each reward of saved trajectories."""

    model: Positional[Path]
    """File written by fit."""
    data: Positional[Path]
    """Folder that trajectories were saved to."""
    out: Path
    """File to write: .safetensors, or .csv for a table."""
    rewards: Literal["positive", "negative", "all"] = "all"
    """Which rewards."""
    tolerance: int = 0
    """Count a prediction as correct within so many steps of the reward."""
    decided: bool = False
    """Also attribute rewards that the present decides; of these, attention is not credit."""
    readout: Literal["attention", "attention x value", "leave-one-out"] = "attention"
    """What credit is: attention; times the size of what was attended to; or how much less likely the reward is without
    the step."""
    threshold: float = 0.01
    """Smallest attention to write to a .csv table."""
    device: str = "auto"
    """cpu, cuda, mps, or auto."""

    def run(self) -> None:
        """Attribute and save."""
        secret = secret_rl.Secret.load(self.model, device=self.device)
        data = secret_rl.Trajectories.load(self.data)
        self.doubt(secret.report)
        attributions = secret.attribute(
            data, rewards=self.rewards, tolerance=self.tolerance, decided=self.decided, readout=self.readout
        )
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


@dataclass(frozen=True)
class Quality(Output):
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
    """Count a credited step as right within so many steps of a true event."""
    events: Literal["all", "any"] = "all"
    """Whether a reward should credit all true events before it, or any one of them."""
    reward_tolerance: int = 0
    """Count a prediction as correct within so many steps of the reward."""
    device: str = "auto"
    """cpu, cuda, mps, or auto."""

    def run(self) -> None:
        """Attribute, compare and print."""
        secret = secret_rl.Secret.load(self.model, device=self.device)
        data = secret_rl.Trajectories.load(self.data)
        self.doubt(secret.report)
        attributions = secret.attribute(data, rewards=self.rewards, tolerance=self.reward_tolerance)
        quality = secret_rl.credit_quality(
            attributions, data, self.threshold, tolerance=self.tolerance, events=self.events,
            annotation=self.annotation, rewards=self.rewards,
        )  # fmt: skip
        self.answer(quality, quality.to_json())
