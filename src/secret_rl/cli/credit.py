"""Commands that learn credit and read it out."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import OmitArgPrefixes, Positional

import secret_rl
from secret_rl.credit.options import ModelOptions, TrainingOptions


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
