"""Table potentials estimated from trajectories of the target: of credit (paper, section 2.2), or of value alone."""

import warnings
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from secret_rl.shaping.potentials import CoverageWarning
from secret_rl.shaping.states import StateOf, canonical, state_rows
from secret_rl.shaping.table import TablePotential
from secret_rl.trajectories import Trajectories
from secret_rl.trajectories.nested import named_arrays

Values = NDArray[np.float64]


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


def estimate_potential(
    trajectories: Trajectories,
    attributions: Credit | None = None,
    kind: str = "pending",
    *,
    rewards: str | None = None,
    reading: str = "printed",
    discount: float = 0.95,
    state: StateOf | None = None,
) -> TablePotential:
    """A potential over the states that target trajectories visit; states they do not visit get 0.

    ``kind`` is one of

    - ``"paper"``: as printed, the redistributed return of the pair that led to a state, summed over visits and divided
      by the number of trajectories. ``reading="printed"`` sums what a pair earned over its visits in a trajectory
      before it is counted at every visit; ``"once"`` counts each visit's own credit. It slows learning more often
      than not: it falls off right behind the step that earned a reward.
    - ``"pending"``: of the reward still to come, discounted by the wait for it, the share that past steps have already
      earned, mean over visits. It stays until the reward is paid.
    - ``"cumulative"``: all credit earned so far, mean over visits.
    - ``"value"``: Monte-Carlo value, mean over visits. It needs no attributions: the baseline that credit has to beat.

    ``discount`` is that of ``"pending"`` and ``"value"``, and need not be the agent's: the trajectories are slower than
    the agent will be, and a smaller one leans towards their quick successes (1: no discount).

    ``rewards`` is "positive" or "all"; by default all for ``"paper"``, as printed, and positive ones for the others.
    ``state`` tells where states come from, as for ``TablePotential``; by default the ``states`` of the trajectories.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {sorted(KINDS)}, got {kind!r}")
    if reading not in ("printed", "once"):
        raise ValueError(f'reading must be "printed" or "once", got {reading!r}')
    rewards = rewards or ("all" if kind == "paper" else "positive")
    if rewards not in ("positive", "all"):
        raise ValueError(f'rewards must be "positive" or "all", got {rewards!r}')
    if not 0 < discount <= 1:
        raise ValueError(f"discount must lie in (0, 1], got {discount}")
    paid = np.asarray(trajectories.rewards, np.float64)
    paid = np.maximum(paid, 0) if rewards == "positive" else paid
    _check_rewards(trajectories, paid, rewards)
    visits = _Visits(trajectories, state)
    if kind == "value":
        of_visits = visits.before(_values(trajectories, paid, discount))
    else:
        rows = _Rows(*_checked(trajectories, attributions, kind, paid))
        of_visits = _KINDS[kind](trajectories, visits, rows, reading, discount)
    return visits.potential(of_visits, total=kind == "paper", reward_bound=_largest_return(trajectories))


def mean_over_visits(
    trajectories: Trajectories, after_steps: Values, *, state: StateOf | None = None, reward_bound: float
) -> TablePotential:
    """A table of what each state holds on the average, given what it is after each step and 0 at the start."""
    if not len(trajectories):
        raise ValueError("no trajectories were given: collect some in the target environment")
    visits = _Visits(trajectories, state)
    return visits.potential(visits.after(after_steps), total=False, reward_bound=reward_bound)


class _Visits:
    """Every visit of a state: T + 1 in an episode of T steps where the last state is known, else T."""

    def __init__(self, data: Trajectories, state: StateOf | None) -> None:
        self._data, self._state = data, state
        last = (data.final_states if state is None else data.final_observations) is not None
        self.lengths = data.lengths + last
        self.count = int(self.lengths.sum())
        self.starts = np.cumsum(self.lengths) - self.lengths
        self.episode = np.repeat(np.arange(len(data)), self.lengths)
        time = np.arange(self.count) - self.starts[self.episode]
        self.of_step = np.flatnonzero(time < data.lengths[self.episode])
        """(steps,) the visit before each step."""
        self._last = np.flatnonzero(time == data.lengths[self.episode])
        """(episodes,) the visit after the last step, or () if it is not known."""
        self.numbers, self.keys = _numbered(self._states())

    def _states(self) -> Any:
        """The state of each visit: an array with one row each, or a list of keys."""
        data, state = self._data, self._state
        if state is None and data.states is None:
            raise ValueError(
                'the trajectories hold no states: collect them from an environment whose info has "state", or tell '
                "with state= how to make states of observations, as Observed(), Cells(...) or a function"
            )
        known: list[tuple[Any, Any, NDArray[Any]]] = [(data.observations, data.states, self.of_step)]
        if len(self._last):
            known.append((data.final_observations, data.final_states, self._last))
        if state is not None and not hasattr(state, "rows"):  # a function of one observation: one at a time
            keys: list[Any] = [None] * self.count
            for nest, states, places in known:
                for i, place in enumerate(places.tolist()):
                    keys[place] = canonical(state(_row(nest, i), {} if states is None else {"state": states[i]}))
            return keys
        parts = [np.asarray(state_rows(state, nest, states)) for nest, states, _ in known]
        rows = np.concatenate(parts)
        rows[np.concatenate([places for _, _, places in known])] = np.concatenate(parts)
        return rows

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

    def potential(self, of_visits: Values, *, total: bool, reward_bound: float) -> TablePotential:
        """The mean over the visits of each state; or their total by the number of trajectories."""
        sums = _totals(self.numbers, of_visits, len(self.keys))
        by = len(self._data) if total else np.bincount(self.numbers, minlength=len(self.keys))
        return TablePotential(
            dict(zip(self.keys, (sums / by).tolist(), strict=True)),
            state=self._state,
            reward_bound=reward_bound,
        )


class _Rows:
    """Attribution rows of some rewards, their weights end to end."""

    def __init__(self, credit: Credit, kept: NDArray[np.bool_]) -> None:
        sizes = np.diff(credit.offsets)
        self.weights = np.asarray(credit.weights, np.float64)[np.repeat(kept, sizes)]
        self.sizes = sizes[kept]
        self.firsts = np.cumsum(self.sizes) - self.sizes
        self.episode, self.step = credit.episode[kept], credit.step[kept]
        self.reward = np.asarray(credit.reward, np.float64)[kept]

    def step_credit(self, data: Trajectories) -> Values:
        """(steps,) what each step earned."""
        row, step = _within(self.sizes)
        return _totals(data.offsets[self.episode[row]] + step, self.weights * self.reward[row], data.steps)


def _paper(data: Trajectories, visits: _Visits, rows: _Rows, reading: str, discount: float) -> Values:  # noqa: ARG001
    """Each visit gets what the pair before it earned."""
    earned = rows.step_credit(data)
    if reading == "printed":  # at all of its visits in the trajectory together
        episodes = np.repeat(np.arange(len(data)), data.lengths)
        pairs = [episodes, visits.numbers[visits.of_step], *(array for _, array in named_arrays("", data.actions))]
        numbers = _together([_numbered(np.asarray(column))[0] for column in pairs])
        earned = _totals(numbers, earned, len(numbers))[numbers]
    return visits.after(earned)


def _pending(data: Trajectories, visits: _Visits, rows: _Rows, reading: str, discount: float) -> Values:  # noqa: ARG001
    """Visit t of an episode gets, of every reward i >= t discounted by i - t, what steps before t earned of it."""
    running = np.concatenate([[0.0], np.cumsum(rows.weights)])
    row, step = _within(rows.step)  # the steps before a reward: in the state after them it is still to come
    first = rows.firsts[row]
    known = np.minimum(step + 1, rows.sizes[row])  # a reward that was predicted ahead of time has fewer weights
    earned = running[first + known] - running[first]
    still = discount ** (rows.step[row] - step - 1.0)
    return _totals(visits.starts[rows.episode[row]] + step + 1, earned * rows.reward[row] * still, visits.count)


def _cumulative(data: Trajectories, visits: _Visits, rows: _Rows, reading: str, discount: float) -> Values:  # noqa: ARG001
    """Visit t of an episode gets what steps before t earned."""
    running = np.concatenate([[0.0], np.cumsum(visits.after(rows.step_credit(data)))])
    earned: Values = running[1:] - running[visits.starts][visits.episode]
    return earned


_KINDS: dict[str, Callable[[Trajectories, _Visits, _Rows, str, float], Values]] = {
    "paper": _paper,
    "pending": _pending,
    "cumulative": _cumulative,
}
KINDS = (*_KINDS, "value")


def _values(data: Trajectories, paid: Values, discount: float) -> Values:
    """(steps,) the discounted sum of rewards from each step on."""
    values, following = np.zeros(data.steps), np.zeros(len(data))
    starts, lengths = np.asarray(data.offsets[:-1]), data.lengths
    for t in range(int(lengths.max()) - 1, -1, -1):
        here = np.flatnonzero(lengths > t)
        following[here] = paid[starts[here] + t] + discount * following[here]
        values[starts[here] + t] = following[here]
    return values


def _check_rewards(data: Trajectories, paid: Values, rewards: str) -> None:
    if not len(data):
        raise ValueError("no trajectories were given: collect some in the target environment")
    if not paid.any():
        raise ValueError(
            f"none of the {len(data):,} trajectories holds a {'positive ' * (rewards == 'positive')}reward, so there "
            "is nothing to estimate a potential from: collect more, or with success_share, or use OnlineCredit, which "
            "needs no target trajectories"
        )


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
    if not kept.any():
        sign = "positive " if paid.min() >= 0 else ""
        warnings.warn(
            f"none of the {np.count_nonzero(paid):,} {sign}rewards was predicted correctly, so the potential is 0 "
            "everywhere: if the target's dynamics differ from the source's, adapt(secret, trajectories) first",
            CoverageWarning,
            stacklevel=3,
        )
    return credit, kept


def _totals(places: NDArray[Any], amounts: Values, count: int) -> Values:
    """(count,) the amounts that go to each place, added up."""
    return np.asarray(np.bincount(places, amounts, count), np.float64)


def _within(sizes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of rows with so many entries: (entries,) the row of each entry, and (entries,) its number in the row."""
    row = np.repeat(np.arange(len(sizes)), sizes)
    return row, np.arange(len(row)) - (np.cumsum(sizes) - sizes)[row]


def _numbered(states: Any) -> tuple[NDArray[np.int64], list[Any]]:
    """(rows,) which of the distinct rows each is, and the distinct rows as keys."""
    if isinstance(states, list):
        numbers: dict[Any, int] = {}
        return np.array([numbers.setdefault(key, len(numbers)) for key in states], np.int64), list(numbers)
    distinct, found = np.unique(states, axis=0, return_inverse=True)
    return np.asarray(found, np.int64).ravel(), [canonical(row) for row in distinct]


def _together(columns: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """(rows,) which of the distinct combinations of several numbers each row is."""
    numbers = columns[0]
    for column in columns[1:]:
        numbers = np.unique(numbers * (int(column.max()) + 1) + column, return_inverse=True)[1].ravel()
    return numbers


def _row(nest: Any, i: int) -> Any:
    if isinstance(nest, dict):
        return {key: _row(part, i) for key, part in nest.items()}
    return tuple(_row(part, i) for part in nest) if isinstance(nest, tuple) else nest[i]


def _largest_return(data: Trajectories) -> float:
    """Of the positive rewards of an episode."""
    positive = np.maximum(np.asarray(data.rewards, np.float64), 0)
    return float(np.add.reduceat(positive, data.offsets[:-1]).max())
