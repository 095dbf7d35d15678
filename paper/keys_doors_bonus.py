"""What learners in keys and doors are paid beside the reward: true events, or credit of a model of other maps."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

import secret_rl as srl
from paper.pixel_ppo import Played

EVENTS = ("key_picked", "door_opened")  # infos that a rollout must hold


@dataclass(eq=False)
class TrueEvents:
    """Pays for the first key and the first door of each colour in an episode: a bound for credit."""

    key: float = 0.5
    door: float = 0.5
    _met: NDArray[np.bool_] | None = field(default=None, repr=False)

    def paid(self, rollout: Played) -> NDArray[np.float32]:
        """(steps, environments)."""
        colours = [rollout.infos[name].astype(np.int64) for name in EVENTS]
        steps, n = colours[0].shape
        if self._met is None:
            self._met = np.zeros((len(EVENTS), n, 256), np.bool_)
        found, rows = np.zeros((steps, n), np.float32), np.arange(n)
        for step in range(steps):
            for met, worth, colour in zip(self._met, (self.key, self.door), colours, strict=True):
                now = colour[step]
                found[step] += worth * ((now > 0) & ~met[rows, now])
                met[rows, now] = True
            self._met[:, rollout.ended[step]] = False
        return found


@dataclass(eq=False)
class StepCredit:
    """Pays ``scale`` times the credit of each step above a threshold, in all at most ``cap`` an episode."""

    secret: srl.Secret
    scale: float = 1.0
    threshold: float = 0.1
    cap: float = 2.0
    _earned: NDArray[np.float64] | None = field(default=None, repr=False)

    def paid(self, rollout: Played) -> NDArray[np.float32]:
        """(steps, environments)."""
        steps, n = rollout.actions.shape
        seen = rollout.observations.reshape(steps * n, *rollout.observations.shape[2:])
        credit = self.secret.step_credit(seen, rollout.actions.reshape(-1)).reshape(steps, n)
        credit = self.scale * np.where(credit > self.threshold, credit, 0.0)
        earned = np.zeros(n) if self._earned is None else self._earned
        found = np.zeros((steps, n), np.float32)
        for step in range(steps):
            found[step] = np.minimum(credit[step], self.cap - earned)
            earned = np.where(rollout.ended[step], 0.0, earned + found[step])
        self._earned = earned
        return found
