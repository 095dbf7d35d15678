"""Credit that is known to be right, or known to know nothing: bounds for what other methods reach."""

from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from secret_rl.credit.base import (
    REWARD_KINDS,
    Attributions,
    NotFittedError,
    Specs,
    check_specs,
    read_model,
    register_method,
    specs_of,
    write_model,
)
from secret_rl.credit.report import FitReport, Verdict
from secret_rl.credit.reward_classes import RewardClasses
from secret_rl.trajectories.nested import arrays_of

if TYPE_CHECKING:
    from secret_rl.trajectories import Trajectories

_DIGEST = 16  # bytes that stand for an (observation, action) pair


def oracle_attributions(data: "Trajectories", truth: NDArray[np.bool_], rewards: str = "positive") -> Attributions:
    """Every reward shared out equally among the true events before it; ``truth`` (steps,) marks them."""
    return _attributions(data, np.asarray(truth, np.bool_), rewards)


def uniform_attributions(data: "Trajectories", rewards: str = "positive") -> Attributions:
    """Every reward shared out equally among all steps up to it."""
    return _attributions(data, np.ones(data.steps, np.bool_), rewards)


def _attributions(data: "Trajectories", marked: NDArray[np.bool_], rewards: str) -> Attributions:
    if rewards not in REWARD_KINDS:
        raise ValueError(f"rewards must be one of {sorted(REWARD_KINDS)}, got {rewards!r}")
    signs = np.sign(np.asarray(data.rewards)).astype(np.int64)
    rows = np.flatnonzero(np.isin(signs, REWARD_KINDS[rewards]) & (signs != 0))
    episode = np.searchsorted(data.offsets, rows, side="right") - 1
    step = rows - data.offsets[episode]
    weights = []
    for e, t in zip(episode.tolist(), step.tolist(), strict=True):
        share = marked[data.offsets[e] : data.offsets[e] + t + 1].astype(np.float32)
        weights.append(share / share.sum() if share.any() else np.full(t + 1, 1 / (t + 1), np.float32))
    sizes = step + 1
    return Attributions(
        episode=episode,
        step=step,
        predicted_at=step,
        reward=np.asarray(data.rewards)[rows].astype(np.float64),
        evidence=np.zeros(len(rows), np.float32),
        weights=np.concatenate(weights).astype(np.float32) if weights else np.zeros(0, np.float32),
        offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        rewards_seen=len(rows),
        lengths=data.lengths,
    )


class _Reference:
    """What the references share: a report, the spaces they were fitted on, and a file."""

    name: ClassVar[str]
    verdict: ClassVar[Verdict]

    def __init__(self, annotation: str | None = None, *, seed: int = 0, device: str = "auto") -> None:  # noqa: ARG002
        self.annotation = annotation
        self.report: FitReport | None = None
        self._specs: Specs | None = None
        self._arrays: dict[str, NDArray[Any]] = {}

    def fit(self, data: "Trajectories", *, checkpoint: Any = None, progress: bool | None = None) -> Self:  # noqa: ARG002
        """Count what ``step_credit`` needs; there is nothing to resume."""
        self._arrays = self._counted(data)
        self._specs = specs_of(data.observation_space, data.action_space)
        self.report = FitReport(RewardClasses.of(np.asarray(data.rewards)), self.verdict)
        return self

    def attribute(self, data: "Trajectories", *, rewards: str = "all", progress: bool | None = None) -> Attributions:  # noqa: ARG002
        """Equal shares of each reward for all steps that count, up to it."""
        self.check_spaces(data.observation_space, data.action_space)
        return _attributions(data, self._marked(data), rewards)

    def check_spaces(self, observation_space: Any, action_space: Any) -> None:
        """ValueError where it was fitted on other spaces."""
        if self._specs is not None:
            check_specs(self._specs, specs_of(observation_space, action_space))

    def save(self, path: str | Path) -> Path:
        """Write one file."""
        if self.report is None or self._specs is None:
            raise NotFittedError("there is nothing to save yet: call fit first")
        about = {"specs": list(self._specs), "report": self.report.to_json(), "annotation": self.annotation}
        return write_model(path, self.name, about, self._arrays)

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto") -> Self:  # noqa: ARG003  runs anywhere
        """Read what ``save`` wrote."""
        return read_model(path, cls.name, cls._built)

    @classmethod
    def _built(cls, about: dict[str, Any], arrays: dict[str, Any]) -> Self:
        loaded = cls(None if about["annotation"] is None else str(about["annotation"]))
        observation_space, action_space = about["specs"]
        loaded._specs, loaded._arrays = (observation_space, action_space), arrays
        loaded.report = FitReport.from_json(about["report"])
        share, pairs = arrays["share"], arrays["pairs"]
        if pairs.dtype != np.uint8 or pairs.shape != (*share.shape, _DIGEST) or not ((share >= 0) & (share <= 1)).all():
            raise ValueError(f"its shares of shape {share.shape} do not fit pairs of shape {pairs.shape}")
        return loaded

    def _counted(self, data: "Trajectories") -> dict[str, NDArray[Any]]:
        """Digests of (observation, action) ``pairs`` and the ``share`` of a reward that each earns."""
        raise NotImplementedError

    def _marked(self, data: "Trajectories") -> NDArray[np.bool_]:
        """(steps,) which steps earn something."""
        raise NotImplementedError


@register_method("uniform")
class Uniform(_Reference):
    """Every step up to a reward earns the same share of it. ``attribute`` needs no fit."""

    verdict = "not learned"

    def _counted(self, data: "Trajectories") -> dict[str, NDArray[Any]]:
        """Of any pair: one over the mean number of steps up to a reward."""
        steps = np.diff(uniform_attributions(data, "all").offsets)
        share = np.array([1.0 / steps.mean() if len(steps) else 0.0])
        return {"pairs": np.zeros((1, _DIGEST), np.uint8), "share": share}

    def _marked(self, data: "Trajectories") -> NDArray[np.bool_]:
        return np.ones(data.steps, np.bool_)

    def step_credit(self, observations: Any, actions: Any, next_observations: Any = None) -> NDArray[np.float64]:  # noqa: ARG002
        """(steps,) one over the mean number of steps up to a reward."""
        if self.report is None:
            raise NotFittedError("how many steps share a reward is not known yet: call fit")
        return np.full(len(arrays_of(actions)[0]), float(self._arrays["share"][0]))


@register_method("oracle")
class Oracle(_Reference):
    """The true events before a reward earn it, in equal shares: an annotation of the trajectories marks them.

    Args:
        annotation: Which one; by default the only annotation of bools.
        seed: Without effect.
        device: Without effect.
    """

    verdict = "credit"

    def _counted(self, data: "Trajectories") -> dict[str, NDArray[Any]]:
        """Of each pair that is ever a true event: how often it is one."""
        pairs, which = np.unique(_pairs(data.observations, data.actions), axis=0, return_inverse=True)
        share = np.bincount(which.ravel(), weights=self._marked(data)) / np.bincount(which.ravel())
        return {"pairs": pairs[share > 0], "share": share[share > 0]}

    def _marked(self, data: "Trajectories") -> NDArray[np.bool_]:
        flags = [name for name, array in data.annotations.items() if array.dtype == np.bool_]
        if self.annotation is None and len(flags) == 1:
            self.annotation = flags[0]
        if self.annotation not in flags:
            raise ValueError(
                f"the oracle needs an annotation of bools that marks true events; it was given {self.annotation!r}, "
                f"the trajectories have {', '.join(flags) or 'none'}"
            )
        return np.asarray(data.annotations[self.annotation])

    def step_credit(self, observations: Any, actions: Any, next_observations: Any = None) -> NDArray[np.float64]:  # noqa: ARG002
        """(steps,) how often the pair was a true event in the trajectories of ``fit``; 0 where it was never met."""
        if self.report is None:
            raise NotFittedError("which pairs are events is not known yet: call fit")
        known = dict(zip(map(bytes, self._arrays["pairs"]), self._arrays["share"].tolist(), strict=True))
        return np.array([known.get(bytes(pair), 0.0) for pair in _pairs(observations, actions)], np.float64)


def _pairs(observations: Any, actions: Any) -> NDArray[np.uint8]:
    """(steps, bytes) a digest of each (observation, action) pair."""
    columns = []
    for array in (*arrays_of(observations), *arrays_of(actions)):
        rows = np.asarray(array)
        rows = rows.astype(np.float64 if rows.dtype.kind == "f" else np.int64) if rows.dtype != np.uint8 else rows
        columns.append(np.ascontiguousarray(rows).reshape(len(rows), -1).view(np.uint8))
    joined = np.concatenate(columns, axis=1)
    return np.array([list(blake2b(bytes(row), digest_size=_DIGEST).digest()) for row in joined], np.uint8)
