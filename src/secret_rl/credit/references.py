"""Credit that is known to be right, or known to know nothing: bounds for what other methods reach."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from secret_rl.credit.attributions import Attributions
from secret_rl.credit.base import ArrayMethod, register_method
from secret_rl.credit.report import FitReport
from secret_rl.credit.reward_classes import RewardClasses
from secret_rl.trajectories.nested import arrays_of

if TYPE_CHECKING:
    from secret_rl.trajectories import Trajectories


def oracle_attributions(data: "Trajectories", truth: NDArray[Any], rewards: str = "positive") -> Attributions:
    """Every reward shared out equally among its true events: ``truth`` (steps,) as ``credit_quality`` takes it.

    Booleans mark the events. Integers are causes: the step of the same episode that earned this step's reward, or -1
    where it is not known; such a reward is shared out evenly.
    """
    truth = np.asarray(truth)
    if truth.dtype == np.bool_:
        return Attributions.shared(data, truth, rewards)
    even = uniform_attributions(data, rewards)
    row, step = even.places()
    cause = truth[data.offsets[even.episode] + even.step][row]
    within = step - data.offsets[even.episode][row]
    weights = np.where(cause < 0, even.weights, within == cause).astype(np.float32)
    return replace(even, weights=weights)


def uniform_attributions(data: "Trajectories", rewards: str = "positive") -> Attributions:
    """Every reward shared out equally among all steps up to it."""
    return Attributions.shared(data, np.ones(data.steps), rewards)


@register_method("uniform")
class Uniform(ArrayMethod):
    """Every step up to a reward earns the same share of it, as in IRCR (Gangwani et al., 2020).

    ``attribute`` needs no fit.
    """

    def __init__(self, *, seed: int = 0, device: str = "auto") -> None:  # noqa: ARG002  nothing is random
        super().__init__()

    def fit(self, data: "Trajectories", *, checkpoint: Any = None, progress: bool | None = None) -> Self:  # noqa: ARG002
        """Count the steps that share a reward."""
        steps = np.diff(uniform_attributions(data, "all").offsets)
        share = np.array(1.0 / steps.mean() if len(steps) else 0.0)
        return self._fitted(data, FitReport(RewardClasses.of(data.rewards), "not learned"), {"share": share})

    def attribute(self, data: "Trajectories", *, rewards: str = "all", progress: bool | None = None) -> Attributions:  # noqa: ARG002
        """Equal shares of each reward for all steps up to it."""
        self.check_spaces(data.observation_space, data.action_space)
        return uniform_attributions(data, rewards)

    def step_credit(self, observations: Any, actions: Any, next_observations: Any = None) -> NDArray[np.float64]:  # noqa: ARG002
        """(steps,) one over the mean number of steps up to a reward."""
        return np.full(len(arrays_of(actions)[0]), float(self._array("share")))


@register_method("recency")
class Recency(Uniform):
    """The later a step before a reward, the more it earns: each ``decay`` times as much as the next.

    Args:
        decay: From 0 to 1.
        seed: Without effect.
        device: Without effect.
    """

    def __init__(self, decay: float = 0.9, *, seed: int = 0, device: str = "auto") -> None:
        if not 0 < decay <= 1:
            raise ValueError(f"decay must lie in (0, 1], got {decay}")
        super().__init__(seed=seed, device=device)
        self.options["decay"] = float(decay)

    def attribute(self, data: "Trajectories", *, rewards: str = "all", progress: bool | None = None) -> Attributions:
        """Shares of each reward that fall with the distance to it."""
        even = super().attribute(data, rewards=rewards, progress=progress)
        row, _ = even.places()
        distance = even.offsets[row + 1] - 1 - np.arange(len(row))
        weights = self.options["decay"] ** distance.astype(np.float64)
        total = np.bincount(row, weights=weights, minlength=len(even))
        return replace(even, weights=(weights / total[row]).astype(np.float32))


@register_method("oracle")
class Oracle(ArrayMethod):
    """The true events before a reward earn it, in equal shares: an annotation of the trajectories marks them.

    Args:
        annotation: Which one, of bools or of causes (``oracle_attributions``); by default the only one of bools.
        seed: Without effect.
        device: Without effect.
    """

    def __init__(self, annotation: str | None = None, *, seed: int = 0, device: str = "auto") -> None:  # noqa: ARG002
        super().__init__(annotation=annotation)

    def fit(self, data: "Trajectories", *, checkpoint: Any = None, progress: bool | None = None) -> Self:  # noqa: ARG002
        """Count how often each pair is a true event."""
        pairs, which = np.unique(_pairs(data.observations, data.actions), axis=0, return_inverse=True)
        share = np.bincount(which.ravel(), weights=self._marks(data)) / np.bincount(which.ravel())
        arrays: dict[str, NDArray[Any]] = {"pairs": pairs[share > 0], "share": share[share > 0]}
        return self._fitted(data, FitReport(RewardClasses.of(data.rewards), "credit"), arrays)

    def attribute(self, data: "Trajectories", *, rewards: str = "all", progress: bool | None = None) -> Attributions:  # noqa: ARG002
        """Equal shares of each reward for the true events up to it."""
        self.check_spaces(data.observation_space, data.action_space)
        return oracle_attributions(data, self._truth(data), rewards)

    def step_credit(self, observations: Any, actions: Any, next_observations: Any = None) -> NDArray[np.float64]:  # noqa: ARG002
        """(steps,) how often the pair was a true event in the trajectories of ``fit``; 0 where it was never met."""
        known = dict(zip(map(bytes, self._array("pairs")), self._array("share").tolist(), strict=True))
        return np.array([known.get(bytes(pair), 0.0) for pair in _pairs(observations, actions)], np.float64)

    def _truth(self, data: "Trajectories") -> NDArray[Any]:
        truths = [name for name, array in data.annotations.items() if array.dtype.kind in "bi"]
        flags = [name for name in truths if data.annotations[name].dtype == np.bool_]
        if self.options["annotation"] is None and len(flags) == 1:
            self.options["annotation"] = flags[0]
        if (name := self.options["annotation"]) not in truths:
            raise ValueError(
                f"the oracle needs an annotation of bools that marks true events; it was given {name!r}, "
                f"the trajectories have {', '.join(flags) or 'none'}"
            )
        return np.asarray(data.annotations[name])

    def _marks(self, data: "Trajectories") -> NDArray[np.bool_]:
        """(steps,) which steps are events, or causes of a reward."""
        truth = self._truth(data)
        if truth.dtype == np.bool_:
            return truth
        rows = (np.repeat(data.offsets[:-1], data.lengths) + truth)[truth >= 0]
        return np.bincount(rows, minlength=data.steps) > 0


def _pairs(observations: Any, actions: Any) -> NDArray[np.uint8]:
    """(steps, bytes) of each (observation, action) pair."""
    columns = []
    for array in (*arrays_of(observations), *arrays_of(actions)):
        rows = np.asarray(array)
        if not (rows.dtype == np.uint8 and rows.ndim > 2):  # images stay small; numbers may come in any type
            rows = rows.astype(np.float64 if rows.dtype.kind == "f" else np.int64)
        columns.append(np.ascontiguousarray(rows).reshape(len(rows), -1).view(np.uint8))
    return np.concatenate(columns, axis=1)
