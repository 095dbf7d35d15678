"""Credit that is known to be right, or known to know nothing: what a measure of credit must tell apart."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from secret_rl.credit.attribution import KINDS, Attributions

if TYPE_CHECKING:
    from secret_rl.trajectories import Trajectories


def oracle_attributions(data: "Trajectories", truth: NDArray[np.bool_], rewards: str = "positive") -> Attributions:
    """Every reward shared out equally among the true events before it; ``truth`` (steps,) marks them."""
    return _attributions(data, np.asarray(truth, np.bool_), rewards)


def uniform_attributions(data: "Trajectories", rewards: str = "positive") -> Attributions:
    """Every reward shared out equally among all steps up to it."""
    return _attributions(data, np.ones(data.steps, np.bool_), rewards)


def _attributions(data: "Trajectories", marked: NDArray[np.bool_], rewards: str) -> Attributions:
    signs = np.sign(np.asarray(data.rewards)).astype(np.int64)
    rows = np.flatnonzero(np.isin(signs, KINDS[rewards]) & (signs != 0))
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
