"""The command that makes a potential of credit."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

import secret_rl
from secret_rl.cli.command import Command, UsageError, command
from secret_rl.cli.fields import Data, one_of
from secret_rl.credit.base import load_method
from secret_rl.shaping import KINDS
from secret_rl.shaping.core import warn_unless_credit

if TYPE_CHECKING:
    Kind = str
else:
    Kind = one_of(tuple(KINDS))


@command("potential")
class Potential(Command):
    """Estimate a potential from trajectories of the target, for learn and for PotentialShaping."""

    data: Data  # Folder that trajectories of the target were saved to.
    out: Path  # File to write.
    kind: Annotated[Kind, arg(help=" ".join(f"{name}: {kind.summary}." for name, kind in KINDS.items()))] = "pending"
    model: Path | None = None  # File written by fit.
    adapt: int = 0  # First fine-tune the model on the trajectories, for so many updates.
    delay_discount: float = 0.95  # Of reward still to come, for pending, value and mixed.
    device: str = "auto"  # cpu, cuda, mps, or auto.

    def run(self) -> None:
        """Estimate and save."""
        data = secret_rl.Trajectories.load(self.data)
        attributions = None
        if KINDS[self.kind].needs_credit:
            if self.model is None:
                raise UsageError(f"--kind {self.kind} needs a credit model: give --model, a file written by fit")
            secret = load_method(self.model, device=self.device)
            if self.adapt:
                secret = secret_rl.adapt(secret, data, steps=self.adapt)
            warn_unless_credit(secret)
            attributions = secret.attribute(data)
            self.note(f"attributed  {len(attributions):,} of {attributions.rewards_seen:,} rewards")
        potential = secret_rl.estimate_potential(data, attributions, **self.given("kind", "delay_discount"))
        potential.save(self.out)
        self.saved(
            f"potential   {len(potential):,} states, |Phi| up to {potential.bound:.3g}\nsaved       {self.out}",
            {"saved": self.out, "kind": self.kind, "states": len(potential), "bound": potential.bound},
        )
