"""The deletion test: what credited steps are replaced with, and how much less likely the reward then is."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secret_rl.credit.attributions import Attributions
from secret_rl.credit.base import CreditMethod, inspector
from secret_rl.trajectories import Trajectories
from secret_rl.trajectories.nested import map_arrays


def deletion_test(
    judge: CreditMethod, data: Trajectories, attributions: Attributions, threshold: float = 0.2, *, seed: int = 0
) -> float | None:
    """How much more the probability of a reward falls when credited steps go than when random ones do.

    For each row, the steps with credit above the threshold, or the strongest one, are replaced with steps drawn from
    all episodes; then as many random steps before the reward are. A judge, not the method under test, gives the
    probabilities: one whose report says that it predicts rewards by their past.

    Args:
        judge: A fitted model.
        data: What the attributions are of.
        attributions: Of any method.
        threshold: Credit above which a step counts.
        seed: Of the steps drawn.

    Returns:
        The mean difference, from -1 to 1: 0 for credit no better than chance. None without rows, or if the judge does
        not know.
    """
    if judge.report is None or judge.report.verdict != "credit" or not len(attributions):
        return None
    rng = np.random.default_rng(seed)
    credited, random = [], []  # (row, step) pairs
    for row in range(len(attributions)):
        weights, at = attributions.row(row), int(attributions.step[row])
        earlier = weights[:at]  # the step of the reward itself stays
        if not len(earlier):
            continue
        chosen = np.flatnonzero(earlier > threshold) if (earlier > threshold).any() else np.array([earlier.argmax()])
        credited += [(row, step) for step in chosen.tolist()]
        random += [(row, step) for step in rng.choice(at, len(chosen), replace=False).tolist()]
    whole = data[attributions.episode]  # an episode for each row
    classes = judge.report.classes.index(attributions.reward)
    kept, without, control = (
        _probabilities(judge, changed, attributions.step, classes)
        for changed in (whole, _replaced(whole, data, credited, rng), _replaced(whole, data, random, rng))
    )
    known = kept > 0.5  # a reward that the judge does not expect cannot be expected less
    return float((control - without)[known].mean()) if known.any() else None


def _probabilities(
    judge: CreditMethod, data: Trajectories, step: NDArray[np.int64], classes: NDArray[np.integer[Any]]
) -> NDArray[np.float64]:
    """(rows,) the probability of the class of the reward at a step of each episode."""
    outlook = inspector(judge, data)
    found = [outlook.probabilities(row)[step[row], classes[row]] for row in range(len(data))]
    return np.array(found, np.float64)


def _replaced(
    whole: Trajectories, data: Trajectories, places: list[tuple[int, int]], rng: np.random.Generator
) -> Trajectories:
    """The episodes with some of their steps, observation and action, replaced with any of the data."""
    rows = np.array([whole.offsets[row] + step for row, step in places], np.int64)
    donors = rng.integers(data.steps, size=len(rows))

    def changed(array: Any, other: Any) -> Any:
        array = np.array(array)
        array[rows] = np.asarray(other)[donors]
        return array

    observations, actions = (
        map_arrays(changed, getattr(whole, name), getattr(data, name)) for name in ("observations", "actions")
    )
    return replace(whole, observations=observations, actions=actions, trusted=True)
