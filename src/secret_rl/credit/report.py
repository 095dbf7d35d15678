"""What a fit reports: how well rewards are predicted, what the past gains, and the verdict.

A verdict other than "credit" means that attention must not be taken for credit.
"""

import math
import sys
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from secret_rl.credit.reward_classes import RewardClasses
from secret_rl.display import facts_html
from secret_rl.files import plain

if TYPE_CHECKING:
    from secret_rl.trajectories import Trajectories

Verdict = Literal["credit", "not learned", "past not needed"]
IN_WORDS: dict[Verdict, str] = {
    "credit": "the past decides rewards that the present leaves open, and the model uses it",
    "not learned": "the past may decide the rewards, but the model has not learned how",
    "past not needed": "the present predicts the rewards as well as the past does",
}
_SURE = 4.0  # standard errors by which the past must help: the weights kept are the best of many on these episodes
_LEAST_GAIN = 0.01
_OF_POOLED = 0.7  # what a pooled past gains, attention must gain so much of
DECIDED = 0.9  # mean probability of the true class from which the present decides it
EVIDENCE = 0.1  # log-probability that looking back must add to a class; below, it is inferred
_MOST_MISSED = 0.25  # gain that must be out of the question before the past is not needed
MIN_EPISODES = 10


@dataclass(frozen=True, repr=False)
class Confusion:
    """``counts[i, j]``: steps of class i predicted as class j."""

    counts: NDArray[np.int64]

    def __repr__(self) -> str:
        return f"Confusion({self.counts.tolist()})"

    @property
    def present(self) -> NDArray[np.bool_]:
        """(class,) whether any step is of the class."""
        return np.asarray(self.counts.sum(1) > 0)

    @property
    def accuracy(self) -> NDArray[np.float64]:
        """(class,) share of each class predicted correctly; NaN where the class is absent."""
        with np.errstate(invalid="ignore"):
            return np.asarray(np.diag(self.counts) / self.counts.sum(1))

    @property
    def balanced_accuracy(self) -> float:
        """Mean accuracy of the classes present: the paper's "reward prediction accuracy"."""
        return float(np.nanmean(self.accuracy))

    def to_json(self) -> dict[str, Any]:
        """The accuracy of each class, None where it is absent, and the counts."""
        accuracy = [float(value) if here else None for value, here in zip(self.accuracy, self.present, strict=True)]
        return {"accuracy": accuracy, "balanced_accuracy": self.balanced_accuracy, "counts": self.counts.tolist()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Confusion":
        """The inverse of ``to_json``; only the counts are read."""
        return cls(np.array(data["counts"], np.int64))


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
        past: NDArray[np.float32],
        present: NDArray[np.float32],
        weights: NDArray[np.float32],
        lengths: NDArray[Any],
    ) -> "Gain":
        """From log-probabilities (steps,) with the past and by the best guess without it, and weights of the steps."""
        gained = np.add.reduceat(weights * (past - present).astype(np.float64), np.cumsum(lengths) - lengths)
        open_ = float((weights * -present.astype(np.float64)).sum())
        if not open_ > 0:
            return cls(0.0, 0.0)
        return cls(float(gained.sum()) / open_, float(gained.std()) * len(gained) ** 0.5 / open_)

    @property
    def highest(self) -> float:
        """What it may be at most, with 95 % confidence."""
        return self.share + 2 * self.error

    @property
    def sure(self) -> bool:
        """Whether the past helps, beyond chance."""
        return self.share >= _LEAST_GAIN and self.share > _SURE * self.error


_GAINS = ("gain", "pooled_gain", "explained")
_DROP = "if observations hold a clock, a position or noise that rewards do not depend on, drop it (views.DropView)"


@dataclass(frozen=True)
class FitReport:
    """What fitting found out. A method leaves out what it does not measure."""

    classes: RewardClasses
    verdict: Verdict
    """"credit": the past decides rewards, and the model uses it. "not learned": the past may decide, but the model has
    not learned how. "past not needed": the present predicts rewards as well."""
    class_counts: tuple[int, ...] = ()
    """Steps of each class of reward."""
    gain: Gain | None = None
    """Of the model."""
    pooled_gain: Gain | None = None
    """Of a predictor that pools the past; None where the model's gain left no doubt."""
    explained: Gain | None = None
    """Of methods that predict something else than what the present leaves open: how much less they err than a guess."""
    explains: str = ""
    """What that is: returns, rewards, actions."""
    decided: tuple[float, ...] = ()
    """Of each class, the mean probability that the present gives it where it occurs, held out."""
    evidence: tuple[float, ...] = ()
    """Of each class, what looking back adds to its log-probability where the present leaves it open, held out."""
    uncertain: float = 0.0
    """Rewards that the present leaves open in the data: the sum of its errors."""
    calibration_error: float | None = None
    """How far probabilities without the past are from the frequencies they stand for, held out."""
    distinct_steps: bool = False
    """Whether hardly any two steps are alike, though they are no pictures."""
    validation: Confusion | None = None
    """Predictions on held-out trajectories."""
    steps: int = 0
    """Updates up to the weights that were kept."""
    seconds: float = 0.0
    curve: tuple[dict[str, Any], ...] = ()
    """Loss and gain along the way."""

    @property
    def history_gain(self) -> float:
        """Share of the uncertainty about held-out rewards, left by the present, that the past removes; or NaN."""
        return math.nan if self.gain is None else self.gain.share

    @property
    def inferred(self) -> tuple[str, ...]:
        """Open classes that the model predicts where it finds nothing: attention of their rows is no credit."""
        of_classes = zip(self.classes.names, self.decided, self.evidence, strict=bool(self.evidence))
        return tuple(name for name, decided, found in of_classes if decided < DECIDED and found < EVIDENCE)

    @property
    def accuracy(self) -> str:
        """The accuracy of each class in words: ``neg 0.972  zero 1.000  pos 0.994``."""
        if self.validation is None:
            return ""
        signs = self.classes.signs.tolist()
        by_sign = len(set(signs)) == len(signs)
        names = [("zero", "pos", "neg")[sign] for sign in signs] if by_sign else self.classes.names
        found = zip(names, self.validation.accuracy, self.validation.present, strict=True)
        return "  ".join(f"{name} {value:.3f}" for name, value, present in found if present)

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values."""
        gains = {name: (gain := getattr(self, name)) and vars(gain) for name in _GAINS}
        validation = None if self.validation is None else self.validation.to_json()
        content = {**vars(self), **gains, "classes": self.classes.to_json(), "validation": validation}
        return dict(plain(content | {"seconds": round(self.seconds, 2)}))

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "FitReport":
        """The inverse of ``to_json``."""
        tuples = {name: tuple(data[name]) for name in ("class_counts", "decided", "evidence", "curve")}
        gains = {name: data[name] and Gain(**data[name]) for name in _GAINS}
        validation = None if data["validation"] is None else Confusion.from_json(data["validation"])
        classes = RewardClasses.from_json(data["classes"])
        return cls(**{**data, **tuples, **gains, "classes": classes, "validation": validation})

    def __str__(self) -> str:
        rows: dict[str, str] = {"verdict": f"{self.verdict}: {IN_WORDS[self.verdict]}"}
        if self.class_counts:
            counted = zip(self.classes.names, self.class_counts, strict=True)
            rows["rewards"] = ", ".join(f"{count:,} of {name}" for name, count in counted)
        if self.gain is not None:
            rows["present"] = f"leaves {self.uncertain:,.0f} of them open"
            rows["past"] = f"removes {self.gain.share:.1%} of what is open (held-out trajectories)"
        if self.explained is not None:
            rows["explains"] = f"{self.explained.share:.1%} of what varies in {self.explains} (held-out trajectories)"
        if self.verdict == "credit" and self.inferred:
            names = " and ".join(self.inferred)
            rows["evidence"] = f"none for {names}: predicted where nothing else is found; its attention is no credit"
        if self.validation is not None and self.steps:
            rows["accuracy"] = self.accuracy
        if self.distinct_steps:
            rows["steps"] = f"hardly any two are alike, which makes fitting slow: {_DROP}"
        rows["training"] = f"{self.steps:,} updates, {self.seconds:.0f} s"
        return "\n".join(f"{name:<14}{text}" for name, text in rows.items())

    def __repr__(self) -> str:
        return f"FitReport(verdict={self.verdict!r}, {self.steps:,} updates)"

    def _repr_html_(self) -> str:
        return facts_html(str(self))


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
    return "past not needed" if ruled_out or (decided >= DECIDED).all() else "not learned"


def check_rewards(data: "Trajectories") -> None:
    """Refuse data that credit cannot be learned from."""
    if not np.any(data.rewards):
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
            _warn(
                RewardBalanceWarning,
                f"none of the {count:,} rewards of {name} is held out: whether they are predicted is unknown; give "
                "more trajectories or a larger validation share",
            )


def warn_of(report: FitReport, trajectories: int) -> None:
    """Warn where a fit gives no reason to call its attention credit."""
    if report.verdict == "past not needed":
        same = "every reward is the same"
        why = "the current observation and action predict rewards as well as the whole past does"
        _warn(
            PastNotNeededWarning,
            f"past not needed: {same if len(report.classes) == 1 else why}, so there is no credit to assign. If it "
            "should be needed, hide what gives rewards away (secret_rl.views crops, masks or drops parts of "
            "observations), and use data that holds failures as well as successes",
        )
    elif report.explained is not None and report.verdict == "not learned":
        _warn(
            NotLearnedWarning,
            f"not learned: the model explains {report.explained.share:.0%} of what varies in {report.explains} of "
            "held-out trajectories, too little to trust its credit. Give more trajectories, or try another method",
        )
    elif report.verdict == "not learned":
        pooled = report.pooled_gain
        alike = f". Hardly any two steps are alike: {_DROP}" if report.distinct_steps else ""
        seen = f", though even a pooled past removes {pooled.share:.0%}" if pooled and pooled.sure else ""
        _warn(
            NotLearnedWarning,
            f"not learned: the present leaves about {report.uncertain:,.0f} rewards of {trajectories:,} trajectories "
            f"open, and the model's past removes {report.history_gain:.0%} of that{seen}: its attention is not credit. "
            "Give more trajectories, more updates if you limited them (steps=...), or another seed: tasks of which a "
            f"few hundred rewards are open have been learned from 2,500 trajectories{alike}",
        )


def _warn(category: type[UserWarning], message: str) -> None:
    """Warn at the line that called this package."""
    level, frame = 1, sys._getframe(0)
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("secret_rl.credit"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
