"""What data and a fit must be able to show before attention is called credit, and the words for when they cannot.

Warnings are given one call below ``Fitting.run``, or two, so that they point at the line that called ``fit``.
"""

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from secret_rl.credit.classes import RewardClasses
from secret_rl.credit.measures import Confusion
from secret_rl.files import finite_number, plain, whole_number

if TYPE_CHECKING:
    from secret_rl.trajectories import Trajectories

Verdict = Literal["credit", "not learned", "past not needed"]
_SURE = 3.0  # standard errors by which the past must help
_LEAST_GAIN = 0.03
_OF_POOLED = 0.7  # what a pooled past gains, attention must gain so much of
_DECIDED = 0.9  # mean probability of the true class from which the present decides it
_MOST_MISSED = 0.25  # gain that must be out of the question before the past is not needed
MIN_EPISODES = 10


class NotLearnedWarning(UserWarning):
    """The past may decide rewards, but the model has not learned how: the attention is not credit."""


class PastNotNeededWarning(UserWarning):
    """The present decides rewards as well as the past does: there is no credit to assign."""


class RewardBalanceWarning(UserWarning):
    """Rewards of some class are missing where they are needed."""


@dataclass(frozen=True)
class Gain:
    """How much better held-out rewards are predicted than the present allows, where it leaves them open."""

    share: float
    """Of the uncertainty that the present leaves, the share that is removed; at most 1."""
    error: float
    """The standard error of the share, over episodes."""

    @classmethod
    def of(
        cls,
        said: NDArray[np.float32],
        guess: NDArray[np.float32],
        weights: NDArray[np.float32],
        lengths: NDArray[np.int64],
    ) -> "Gain":
        """From log-probabilities (steps,) with the past and by the best guess without it, and weights of the steps."""
        starts = np.cumsum(lengths) - lengths
        gained = np.add.reduceat(weights * (said - guess).astype(np.float64), starts)
        open_ = float((weights * -guess.astype(np.float64)).sum())
        if not open_ > 0:
            return cls(0.0, 0.0)
        n = len(gained)
        return cls(float(gained.sum()) / open_, float(gained.std()) * n**0.5 / open_)

    @property
    def highest(self) -> float:
        """What it may be at most, with 95 % confidence."""
        return self.share + 2 * self.error

    @property
    def sure(self) -> bool:
        """Whether the past helps, beyond chance."""
        return self.share >= _LEAST_GAIN and self.share > _SURE * self.error


@dataclass(frozen=True)
class FitReport:
    """What fitting found out."""

    classes: RewardClasses
    class_counts: tuple[int, ...]
    """Steps of each class of reward."""
    verdict: Verdict
    """"credit": the past decides rewards, and the model uses it. "not learned": the past may decide, but the model has
    not learned how. "past not needed": the present tells as much."""
    gain: Gain
    """Of the model."""
    pooled_gain: Gain | None
    """Of a predictor that pools the past; None where the model's gain left no doubt."""
    decided: tuple[float, ...]
    """Of each class, the mean probability that the present gives it where it occurs, held out."""
    uncertain: float
    """Rewards that the present leaves open in the data: the sum of its errors."""
    calibration_error: float
    """Of the predictor without memory, held out."""
    validation: Confusion
    """Predictions on held-out trajectories."""
    steps: int
    """Updates up to the weights that were kept."""
    seconds: float
    curve: tuple[dict[str, Any], ...] = ()
    """Loss and gain along the way."""

    @property
    def history_gain(self) -> float:
        """Of the uncertainty that the present leaves about held-out rewards, the share that the past removes."""
        return self.gain.share

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return {
            "classes": self.classes.to_json(),
            "class_counts": list(self.class_counts),
            "verdict": self.verdict,
            "gain": vars(self.gain),
            "pooled_gain": None if self.pooled_gain is None else vars(self.pooled_gain),
            "decided": list(self.decided),
            "uncertain": self.uncertain,
            "calibration_error": self.calibration_error,
            "validation": self.validation.to_json(),
            "steps": self.steps,
            "seconds": round(self.seconds, 2),
            "curve": plain(self.curve),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "FitReport":
        """The inverse of ``to_json``, of any JSON: ValueError, TypeError or KeyError where it is not a report."""
        if data["verdict"] not in get_args(Verdict):
            raise ValueError(f"the verdict is {data['verdict']!r}")
        classes = RewardClasses.from_json(data["classes"])
        report = cls(
            classes=classes,
            class_counts=tuple(whole_number(count, high=2**62) for count in data["class_counts"]),
            verdict=data["verdict"],
            gain=_gain(data["gain"]),
            pooled_gain=None if data["pooled_gain"] is None else _gain(data["pooled_gain"]),
            decided=tuple(map(finite_number, data["decided"])),
            uncertain=finite_number(data["uncertain"]),
            calibration_error=finite_number(data["calibration_error"]),
            validation=Confusion.from_json(data["validation"]),
            steps=whole_number(data["steps"]),
            seconds=finite_number(data["seconds"]),
            curve=tuple(_numbers(entry) for entry in data["curve"]),
        )
        if not len(report.class_counts) == len(report.decided) == len(report.validation.counts) == len(classes):
            raise ValueError(f"it has {len(classes)} classes of reward, but not as many numbers about them")
        return report

    def __str__(self) -> str:
        counts = ", ".join(
            f"{count:,} of {name}" for name, count in zip(self.classes.names, self.class_counts, strict=True)
        )
        rows = [
            f"verdict       {self.verdict}",
            f"rewards       {counts}",
            f"present       leaves {self.uncertain:,.0f} of them open",
            f"past          removes {self.gain.share:.1%} of what is open (held-out trajectories)",
            f"accuracy      {self._accuracy()}",
            f"training      {self.steps:,} updates, {self.seconds:.0f} s",
        ]
        return "\n".join(rows)

    def _accuracy(self) -> str:
        return ", ".join(
            f"{value:.3f} of {name}"
            for name, value, here in zip(
                self.classes.names, self.validation.accuracy, self.validation.present, strict=True
            )
            if here
        )


def _gain(data: Any) -> Gain:
    return Gain(finite_number(data["share"]), finite_number(data["error"]))


def _numbers(entry: Any) -> dict[str, Any]:
    """A point of a curve: numbers by name, None where one was not finite."""
    for value in entry.values():
        if value is not None and type(value) is not int:
            finite_number(value)
    return dict(entry)


def judge(gain: Gain, pooled: Gain | None, decided: NDArray[np.float64], few_pairs: bool) -> Verdict:
    """The verdict on a fit; ``decided`` (class,) are those of the classes that are held out.

    Chance and a past that is too hard to learn from look alike. Where the data hold ``few_pairs`` of observation and
    action, and enough rewards to rule out a larger gain, a past that decided them would have been found.
    """
    if gain.sure and (pooled is None or not pooled.sure or gain.share >= _OF_POOLED * pooled.share):
        return "credit"
    if pooled is not None and pooled.sure:
        return "not learned"
    ruled_out = few_pairs and all(found.highest < _MOST_MISSED for found in (gain, pooled) if found is not None)
    return "past not needed" if ruled_out or (decided >= _DECIDED).all() else "not learned"


def check_rewards(data: "Trajectories") -> None:
    """Refuse data that credit cannot be learned from."""
    rewards = np.asarray(data.rewards)
    bad = np.flatnonzero(~np.isfinite(rewards))
    if len(bad):
        episode = int(np.searchsorted(data.offsets, bad[0], side="right")) - 1
        raise ValueError(
            f"the reward of step {bad[0] - data.offsets[episode]} of episode {episode} is {rewards[bad[0]]}, one of "
            f"{len(bad):,} that are not finite: drop these episodes or repair the rewards"
        )
    if not rewards.any():
        raise ValueError(
            f"no reward in {len(data):,} trajectories ({data.steps:,} steps): there is nothing to assign "
            "credit for; collect with a policy that meets rewards, or with success_share"
        )
    if len(data) < MIN_EPISODES:
        raise ValueError(f"{len(data)} trajectories are too few to fit and validate on: give at least {MIN_EPISODES}")


def check_held_out(classes: RewardClasses, all_counts: NDArray[np.int64], held_out: NDArray[np.int64]) -> None:
    """Warn where no reward of a class that the data has is held out."""
    for name, count, here in zip(classes.names, all_counts.tolist(), held_out.tolist(), strict=True):
        if count and not here:
            warnings.warn(
                f"none of the {count:,} rewards of {name} is held out: nothing tells whether they are predicted; give "
                "more trajectories or a larger validation share",
                RewardBalanceWarning,
                stacklevel=5,
            )


def warn_of(report: FitReport, trajectories: int) -> None:
    """Warn where a fit gives no reason to call its attention credit."""
    if report.verdict == "past not needed":
        why = (
            "every reward is the same"
            if len(report.classes) == 1
            else "the current observation and action predict rewards as well as the whole past does"
        )
        warnings.warn(
            f"past not needed: {why}, so there is no credit to assign. If it should be needed, hide "
            "what gives rewards away (secret_rl.views crops, masks or drops parts of observations), and use data that "
            "holds failures as well as successes",
            PastNotNeededWarning,
            stacklevel=4,
        )
    elif report.verdict == "not learned":
        pooled = report.pooled_gain
        seen = f", though even a pooled past removes {pooled.share:.0%}" if pooled and pooled.sure else ""
        warnings.warn(
            f"not learned: the present leaves about {report.uncertain:,.0f} rewards of {trajectories:,} trajectories "
            f"open, and the model's past removes {report.gain.share:.0%} of that{seen}: its attention is not credit. "
            "Give more updates (steps=...), or more trajectories: tasks of which a few hundred rewards are open "
            "have been learned from 2,500 trajectories",
            NotLearnedWarning,
            stacklevel=4,
        )
