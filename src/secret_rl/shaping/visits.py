"""What each visit of a state in trajectories is worth: of credit (paper, section 2.2), or of value alone."""

import warnings
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from secret_rl.shaping.potentials import CoverageWarning, Values
from secret_rl.trajectories import Trajectories
from secret_rl.trajectories.nested import map_arrays

MEANS = ("pending", "cumulative", "value", "mixed")
"""Kinds of potentials that are a mean over visits; see ``estimate_potential``."""


class Credit(Protocol):
    """Who earned each reward: ``Attributions``, of any credit assigner.

    The weights of row ``r`` are ``weights[offsets[r]:offsets[r + 1]]``, for steps 0, 1, ... of its episode.
    """

    @property
    def episode(self) -> NDArray[np.int64]:
        """(rows,) number of the episode."""

    @property
    def step(self) -> NDArray[np.int64]:
        """(rows,) step of the episode at which the reward came."""

    @property
    def reward(self) -> Values:
        """(rows,)"""

    @property
    def weights(self) -> NDArray[Any]:
        """Row after row."""

    @property
    def offsets(self) -> NDArray[np.int64]:
        """(rows + 1,) where the weights of each row begin."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(episodes,) steps of every episode."""


class Visits:
    """Every visit of a state: T + 1 in an episode of T steps where the last one is known (``last``), else T."""

    def __init__(self, data: Trajectories, last: bool) -> None:
        self.lengths = data.lengths + last
        self.count = int(self.lengths.sum())
        self.starts = np.cumsum(self.lengths) - self.lengths
        self.episode = np.repeat(np.arange(len(data)), self.lengths)
        time = np.arange(self.count) - self.starts[self.episode]
        self.of_step = np.flatnonzero(time < data.lengths[self.episode])
        """(steps,) the visit before each step."""
        self.last = np.flatnonzero(time == data.lengths[self.episode])
        """(episodes,) the visit after the last step, or () if it is not known."""

    def joined(self, steps: Any, finals: Any) -> Any:
        """(visits, ...) a nest of what was there before each step and, where last visits are known, at the end."""
        if not len(self.last):
            return steps
        order = np.argsort(np.concatenate([self.of_step, self.last]))
        return map_arrays(lambda array, final: np.concatenate([array, final])[order], steps, finals)

    def before(self, of_steps: Values) -> Values:
        """(visits,) what belongs to each step at the visit before it; 0 after the last."""
        values = np.zeros(self.count)
        values[self.of_step] = of_steps
        return values

    def after(self, of_steps: Values) -> Values:
        """(visits,) what belongs to each step at the visit after it; 0 at the first."""
        values = np.zeros(self.count + 1)
        values[self.of_step + 1] = of_steps
        values[self.starts] = 0.0  # where the last state is not known, the next visit is another episode's
        return values[: self.count]


def visit_values(
    data: Trajectories, kind: str, visits: Visits, paid: Values, rows: "Rows | None", discount: float
) -> Values:
    """(visits,) what a potential that is a mean over visits is the mean of.

    ``paid`` (steps,) are the rewards that count, and ``rows`` who earned them; ``"value"`` needs none.
    """
    if rows is None:
        return visits.before(_values(data, paid, discount))
    if kind == "cumulative":
        return _cumulative(data, visits, rows)
    pending = _pending(visits, rows, discount)
    if kind == "mixed":
        others = paid.copy()
        others[data.offsets[rows.episode] + rows.step] = 0.0
        return pending + visits.before(_values(data, others, discount))
    return pending


def check_options(kind: str, kinds: tuple[str, ...], rewards: str, discount: float) -> None:
    """An error for options that no potential is estimated with."""
    if kind not in kinds:
        raise ValueError(f"kind must be one of {sorted(kinds)}, got {kind!r}")
    if rewards not in ("positive", "all"):
        raise ValueError(f'rewards must be "positive" or "all", got {rewards!r}')
    if not 0 < discount <= 1:
        raise ValueError(f"discount must lie in (0, 1], got {discount}")


def rewards_paid(data: Trajectories, rewards: str) -> Values:
    """(steps,) the rewards that count: all, or the positive ones; an error where there are none."""
    if not len(data):
        raise ValueError("no trajectories were given: collect some in the target environment")
    paid = np.asarray(data.rewards, np.float64)
    paid = np.maximum(paid, 0) if rewards == "positive" else paid
    if not paid.any():
        raise ValueError(
            f"none of the {len(data):,} trajectories holds a {'positive ' * (rewards == 'positive')}reward, so there "
            "is nothing to estimate a potential from: collect more, or with success_share, or use OnlineCredit, which "
            "needs no target trajectories"
        )
    return paid


def largest_return(data: Trajectories) -> float:
    """Of the positive rewards of an episode."""
    positive = np.maximum(np.asarray(data.rewards, np.float64), 0)
    return float(np.add.reduceat(positive, data.offsets[:-1]).max())


class Rows:
    """Attribution rows of some rewards, their weights end to end."""

    def __init__(self, credit: Credit, kept: NDArray[np.bool_]) -> None:
        sizes = np.diff(credit.offsets)
        self.weights = np.asarray(credit.weights, np.float64)[np.repeat(kept, sizes)]
        self.sizes = sizes[kept]
        self.firsts = np.cumsum(self.sizes) - self.sizes
        self.episode, self.step = credit.episode[kept], credit.step[kept]
        self.reward = np.asarray(credit.reward, np.float64)[kept]

    @classmethod
    def of(cls, data: Trajectories, credit: Credit | None, kind: str, paid: Values) -> "Rows | None":
        """Those of the rewards that count, checked; None for the one kind that needs no credit."""
        return None if kind == "value" else cls(*_checked(data, credit, kind, paid))

    def step_credit(self, data: Trajectories) -> Values:
        """(steps,) what each step earned."""
        row, step = _within(self.sizes)
        return totals(data.offsets[self.episode[row]] + step, self.weights * self.reward[row], data.steps)


def _pending(visits: Visits, rows: Rows, discount: float) -> Values:
    """Visit t of an episode gets, of every reward i >= t discounted by i - t, what steps before t earned of it."""
    running = np.concatenate([[0.0], np.cumsum(rows.weights)])
    row, step = _within(rows.step)  # the steps before a reward: in the state after them it is still to come
    first = rows.firsts[row]
    known = np.minimum(step + 1, rows.sizes[row])  # a reward that was predicted ahead of time has fewer weights
    earned = running[first + known] - running[first]
    still = discount ** (rows.step[row] - step - 1.0)
    return totals(visits.starts[rows.episode[row]] + step + 1, earned * rows.reward[row] * still, visits.count)


def _cumulative(data: Trajectories, visits: Visits, rows: Rows) -> Values:
    """Visit t of an episode gets what steps before t earned."""
    running = np.concatenate([[0.0], np.cumsum(visits.after(rows.step_credit(data)))])
    earned: Values = running[1:] - running[visits.starts][visits.episode]
    return earned


def _values(data: Trajectories, paid: Values, discount: float) -> Values:
    """(steps,) the discounted sum of rewards from each step on."""
    values, following = np.zeros(data.steps), np.zeros(len(data))
    starts, lengths = np.asarray(data.offsets[:-1]), data.lengths
    for t in range(int(lengths.max()) - 1, -1, -1):
        here = np.flatnonzero(lengths > t)
        following[here] = paid[starts[here] + t] + discount * following[here]
        values[starts[here] + t] = following[here]
    return values


def _checked(data: Trajectories, credit: Credit | None, kind: str, paid: Values) -> tuple[Credit, NDArray[np.bool_]]:
    """Attributions of these trajectories and which rows count, with a warning where they say nothing."""
    if credit is None:
        raise ValueError(f'kind="{kind}" needs attributions of the trajectories: secret.attribute(trajectories)')
    if not np.array_equal(credit.lengths, data.lengths):
        raise ValueError(
            f"the attributions are of {len(credit.lengths):,} other trajectories, of {int(np.sum(credit.lengths)):,} "
            f"steps, than these {len(data):,} of {data.steps:,}: attribute the same ones"
        )
    places = data.offsets[credit.episode] + credit.step
    if not np.array_equal(credit.reward, np.asarray(data.rewards)[places]):
        raise ValueError(
            "the attributions are of other trajectories: of as many steps, but with other rewards; attribute the "
            "same ones"
        )
    kept = paid[places] != 0
    if not kept.any() and kind != "mixed":
        sign = "positive " if paid.min() >= 0 else ""
        warnings.warn(
            f"none of the {np.count_nonzero(paid):,} {sign}rewards was predicted correctly, so the potential is 0 "
            "everywhere: if the target's dynamics differ from the source's, adapt(secret, trajectories) first",
            CoverageWarning,
            stacklevel=4,
        )
    return credit, kept


def totals(places: NDArray[Any], amounts: Values, count: int) -> Values:
    """(count,) the amounts that go to each place, added up."""
    return np.asarray(np.bincount(places, amounts, count), np.float64)


def _within(sizes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of rows with so many entries: (entries,) the row of each entry, and (entries,) its number in the row."""
    row = np.repeat(np.arange(len(sizes)), sizes)
    return row, np.arange(len(row)) - (np.cumsum(sizes) - sizes)[row]
