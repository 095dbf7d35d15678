"""Fitting credit on to a target whose dynamics differ from those of the source."""

from dataclasses import replace
from typing import TYPE_CHECKING

from secret_rl.credit.checkpoint import Checkpoint
from secret_rl.credit.fitting import Fitting
from secret_rl.credit.secret import NotFittedError, Secret
from secret_rl.progress import progress_bar

if TYPE_CHECKING:
    from secret_rl.trajectories import Trajectories

_LOOKS = 6  # at the validation data


def adapt(
    secret: Secret,
    trajectories: "Trajectories",
    *,
    steps: int = 300,
    learning_rate: float | None = None,
    batch_size: int = 128,
    recolour: bool | None = None,
    seed: int | None = None,
    progress: bool | None = None,
) -> Secret:
    """A copy of a fitted model, trained a little further on the rewards of target trajectories.

    A model that reads (observation, action) pairs reads them wrongly where actions have come to mean something else;
    a few hundred updates put that right. ``learning_rate``, ``recolour`` and ``seed`` are those of the model unless
    given. The model itself is left as it is. ``report`` and ``queries`` of the copy are of the target.
    """
    if secret.report is None:
        raise NotFittedError("there is nothing to adapt yet: call fit, or Secret.load")
    model = secret.fitted_for(trajectories)
    options = replace(
        secret.training_options,
        steps=steps,
        batch_size=batch_size,
        learning_rate=secret.training_options.learning_rate if learning_rate is None else learning_rate,
        warmup=steps // 10,
        evaluate_every=max(1, steps // _LOOKS),
        recolour=secret.training_options.recolour if recolour is None else recolour,
    )
    adapted = Secret.of(secret, options, secret.seed if seed is None else seed)
    with progress_bar(progress, "updates") as tick:
        fitting = Fitting(
            trajectories, secret.specs, secret.model_options, options, adapted.seed, adapted.device,
            Checkpoint(None, {}), tick, initial=model.state_dict(), classes=secret.reward_classes,
        )  # fmt: skip
        adapted.take(fitting.run(), secret.specs)
    return adapted.remember(trajectories)
