"""Table potentials estimated from trajectories of the target: of credit (paper, section 2.2), or of value alone."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from secret_rl.shaping.potentials import Values
from secret_rl.shaping.states import StateOf, canonical, state_rows
from secret_rl.shaping.table import TablePotential
from secret_rl.shaping.visits import (
    MEANS,
    Credit,
    Rows,
    Visits,
    check_options,
    largest_return,
    rewards_paid,
    totals,
    visit_values,
)
from secret_rl.trajectories import Trajectories
from secret_rl.trajectories.nested import named_arrays

KINDS = ("paper", *MEANS)


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
    - ``"mixed"``: pending for rewards that were attributed, value for the others: those that the present decides, which
      ``secret.attribute`` leaves out, and those that are not predicted.

    ``discount`` is that of ``"pending"``, ``"value"`` and ``"mixed"``, and need not be the agent's: the trajectories
    are slower than the agent will be, and a smaller one leans towards their quick successes (1: no discount).

    ``rewards`` is "positive" or "all"; by default all for ``"paper"``, as printed, and positive ones for the others.
    ``state`` tells where states come from, as for ``TablePotential``; by default the ``states`` of the trajectories.
    """
    rewards = rewards or ("all" if kind == "paper" else "positive")
    check_options(kind, KINDS, rewards, discount)
    if reading not in ("printed", "once"):
        raise ValueError(f'reading must be "printed" or "once", got {reading!r}')
    paid = rewards_paid(trajectories, rewards)
    visits = _StateVisits(trajectories, state)
    rows = Rows.of(trajectories, attributions, kind, paid)
    if kind == "paper" and rows is not None:
        of_visits = _paper(trajectories, visits, rows, reading)
    else:
        of_visits = visit_values(trajectories, kind, visits, paid, rows, discount)
    return visits.potential(of_visits, total=kind == "paper", reward_bound=largest_return(trajectories))


def mean_over_visits(
    trajectories: Trajectories, after_steps: Values, *, state: StateOf | None = None, reward_bound: float
) -> TablePotential:
    """A table of what each state holds on the average, given what it is after each step and 0 at the start."""
    if not len(trajectories):
        raise ValueError("no trajectories were given: collect some in the target environment")
    visits = _StateVisits(trajectories, state)
    return visits.potential(visits.after(after_steps), total=False, reward_bound=reward_bound)


class _StateVisits(Visits):
    """Visits with the states that are visited."""

    def __init__(self, data: Trajectories, state: StateOf | None) -> None:
        super().__init__(data, (data.final_states if state is None else data.final_observations) is not None)
        self._data, self._state = data, state
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
        if len(self.last):
            known.append((data.final_observations, data.final_states, self.last))
        if state is not None and not hasattr(state, "rows"):  # a function of one observation: one at a time
            keys: list[Any] = [None] * self.count
            for nest, states, places in known:
                for i, place in enumerate(places.tolist()):
                    keys[place] = canonical(state(_row(nest, i), {} if states is None else {"state": states[i]}))
            return keys
        rows = [np.asarray(state_rows(state, nest, states)) for nest, states, _ in known]
        return self.joined(rows[0], rows[-1])

    def potential(self, of_visits: Values, *, total: bool, reward_bound: float) -> TablePotential:
        """The mean over the visits of each state; or their total by the number of trajectories."""
        sums = totals(self.numbers, of_visits, len(self.keys))
        by = len(self._data) if total else np.bincount(self.numbers, minlength=len(self.keys))
        return TablePotential(
            dict(zip(self.keys, (sums / by).tolist(), strict=True)),
            state=self._state,
            reward_bound=reward_bound,
        )


def _paper(data: Trajectories, visits: _StateVisits, rows: Rows, reading: str) -> Values:
    """Each visit gets what the pair before it earned."""
    earned = rows.step_credit(data)
    if reading == "printed":  # at all of its visits in the trajectory together
        episodes = np.repeat(np.arange(len(data)), data.lengths)
        pairs = [episodes, visits.numbers[visits.of_step], *(array for _, array in named_arrays("", data.actions))]
        numbers = _together([_numbered(np.asarray(column))[0] for column in pairs])
        earned = totals(numbers, earned, len(numbers))[numbers]
    return visits.after(earned)


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
