"""What data and a fit must be able to show before attention is called credit, and the words for when they cannot.

Warnings are given one call below ``Fitting.run``, so that they point at the line that called ``fit``.
"""

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secret_rl.credit.measures import CLASS_NAMES, Confusion
from secret_rl.credit.options import CLASSES
from secret_rl.files import finite_number, plain, whole_number

if TYPE_CHECKING:
    from secret_rl.trajectories import Trajectories

_LITTLE_GAIN = 0.02


class CollapseWarning(UserWarning):
    """A reward class is never predicted: the attention is not credit."""


class NoHistoryWarning(UserWarning):
    """The past does not help to predict rewards: the attention is not credit."""


class RewardBalanceWarning(UserWarning):
    """Rewards of one sign are missing from the data."""


@dataclass(frozen=True)
class FitReport:
    """What fitting found out."""

    class_counts: dict[str, int]
    """Steps by the sign of their reward."""
    class_weights: tuple[float, float, float]
    """w(-1), w(0), w(1) of the loss."""
    validation: Confusion
    """Predictions on held-out trajectories."""
    memoryless: Confusion
    """The same without access to earlier steps."""
    steps: int
    """Updates of the attempt that was kept."""
    attempts: int
    """Initialisations that were tried."""
    seconds: float
    curve: tuple[dict[str, Any], ...] = ()
    """Training and validation loss and accuracy along the way."""
    weight_search: tuple[dict[str, float], ...] = ()
    """Of what is wrong without the past, the share that it puts right, with each w(0) that was tried."""

    @property
    def collapsed(self) -> bool:
        """Whether a class that is present is never predicted."""
        return bool(self.validation.never_predicted)

    @property
    def uses_past(self) -> bool:
        """Whether the past helps to predict rewards; where it does not, attention is not credit."""
        return self.history_gain >= _LITTLE_GAIN

    @property
    def history_gain(self) -> float:
        """How much the past improves the mean accuracy over classes."""
        return self.validation.balanced_accuracy - self.memoryless.balanced_accuracy

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return {
            "class_counts": self.class_counts,
            "class_weights": list(self.class_weights),
            "validation": self.validation.to_json(),
            "memoryless": self.memoryless.to_json(),
            "history_gain": self.history_gain,
            "collapsed": self.collapsed,
            "steps": self.steps,
            "attempts": self.attempts,
            "seconds": round(self.seconds, 2),
            "curve": plain(self.curve),
            "weight_search": list(self.weight_search),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "FitReport":
        """The inverse of ``to_json``, of any JSON: ValueError, TypeError or KeyError where it is not a report."""
        negative, zero, positive = map(finite_number, data["class_weights"])
        return cls(
            class_counts={name: whole_number(data["class_counts"][name], high=2**62) for name in CLASS_NAMES},
            class_weights=(negative, zero, positive),
            validation=Confusion.from_json(data["validation"]),
            memoryless=Confusion.from_json(data["memoryless"]),
            steps=whole_number(data["steps"]),
            attempts=whole_number(data["attempts"]),
            seconds=finite_number(data["seconds"]),
            curve=tuple(_numbers(entry) for entry in data["curve"]),
            weight_search=tuple(_numbers(entry) for entry in data["weight_search"]),
        )

    def __str__(self) -> str:
        counts = ", ".join(f"{count:,} {name}" for name, count in self.class_counts.items())
        rows = [
            f"rewards       {counts}",
            f"accuracy      {self.validation}  (per class, held-out trajectories)",
            f"without past  {self.memoryless}  history gain {self.history_gain:+.3f}",
            f"weights       w(-1), w(0), w(+1) = {', '.join(f'{w:.3g}' for w in self.class_weights)}",
            f"training      {self.steps:,} updates, {self.attempts} attempt(s), {self.seconds:.0f} s",
        ]
        return "\n".join(rows)


def _numbers(entry: Any) -> dict[str, Any]:
    """A point of a curve: numbers by name, None where one was not finite."""
    for value in entry.values():
        if value is not None and type(value) is not int:
            finite_number(value)
    return dict(entry)


def check_rewards(data: "Trajectories") -> NDArray[np.int64]:
    """(class,) steps by the sign of their reward; refuses data that credit cannot be learned from."""
    rewards = np.asarray(data.rewards)
    bad = np.flatnonzero(~np.isfinite(rewards))
    if len(bad):
        episode = int(np.searchsorted(data.offsets, bad[0], side="right")) - 1
        raise ValueError(
            f"the reward of step {bad[0] - data.offsets[episode]} of episode {episode} is {rewards[bad[0]]}, one of "
            f"{len(bad):,} that are not finite: drop these episodes or repair the rewards"
        )
    counts = np.bincount(np.sign(rewards).astype(np.int64) + 1, minlength=3)
    if counts[0] + counts[2] == 0:
        raise ValueError(
            f"no reward in {len(data):,} trajectories ({data.steps:,} steps): there is nothing to assign "
            "credit for; collect with a policy that meets rewards, or with success_share"
        )
    if len(data) < 10:
        raise ValueError(f"{len(data)} trajectories are too few to fit and validate on: give at least 10")
    for index, name in ((2, "positive"), (0, "negative")):
        if counts[index] == 0:
            warnings.warn(
                f"no {name} reward in {len(data):,} trajectories: credit for {name} rewards cannot be learned",
                RewardBalanceWarning,
                stacklevel=4,
            )
    return counts


def check_held_out(counts: NDArray[np.int64], data: "Trajectories", rows: NDArray[np.int64]) -> None:
    """Warn where the held-out steps ``rows`` hold no reward of a sign that the data has."""
    signs = np.sign(np.asarray(data.rewards)[rows])
    for index, name in ((2, "positive"), (0, "negative")):
        if counts[index] and not (signs == CLASSES[index]).any():
            warnings.warn(
                f"none of the {counts[index]:,} {name} rewards is among the {len(rows):,} "
                "steps held out: nothing tells whether they are predicted; give more trajectories or a "
                "larger validation share",
                RewardBalanceWarning,
                stacklevel=4,
            )


def warn_of(report: FitReport, trajectories: int) -> None:
    """Warn where a fit gives no reason to call its attention credit."""
    if report.collapsed:
        missing = [CLASS_NAMES[CLASSES.index(sign)] for sign in report.validation.never_predicted]
        count = report.class_counts[missing[0]]
        share = count / max(trajectories, 1)
        advice = (
            "collect with success_share=0.05 or more"
            if missing[0] == "positive" and share < 0.05
            else "give more trajectories or more steps"
        )
        warnings.warn(
            f"{' and '.join(missing)} rewards are never predicted after {report.attempts} attempts: "
            f"their attention is not credit. {count:,} {missing[0]} rewards in {trajectories:,} trajectories; "
            f"{advice}",
            CollapseWarning,
            stacklevel=4,
        )
    elif not report.uses_past:
        warnings.warn(
            f"the past improves the predictions by {report.history_gain:+.3f} only (with {report.validation}, "
            f"without {report.memoryless}): the current observation and action give the reward away, so attention "
            "is not credit. Hide what gives it away (secret_rl.views crops, masks or drops parts of observations), "
            "and use data that holds failures as well as successes",
            NoHistoryWarning,
            stacklevel=4,
        )
