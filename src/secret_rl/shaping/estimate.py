"""Table potentials estimated from trajectories of the target: of credit (paper, section 2.2), or of value alone.

A kind of potential is a function registered with ``register_kind``; ``KINDS`` has all of them.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secret_rl.shaping.core import CoverageWarning, Values, check_number, row_of
from secret_rl.shaping.table import StateOf, TablePotential, canonical, check_source
from secret_rl.trajectories import Trajectories
from secret_rl.trajectories.nested import named_arrays

Credit = Any
"""Who earned each reward: ``Attributions`` of any credit method. Each row has ``episode``, ``step`` and ``reward``, and
``weights[offsets[row]:offsets[row + 1]]`` of steps 0, 1, ... of its episode; ``lengths`` are those of all episodes."""
VisitValues = Callable[["Evidence", Any], Values]


@dataclass(frozen=True)
class Kind:
    """A kind of potential that is estimated from trajectories; see ``register_kind``."""

    name: str
    summary: str
    values: VisitValues
    """(evidence, visits) to (visits,), the value of each visit of a state."""
    needs_credit: bool
    rewards: str
    tables_only: bool


KINDS: dict[str, Kind] = {}
"""Kinds of potentials by name; see ``estimate_potential``."""


def register_kind(
    name: str, summary: str, *, needs_credit: bool = True, rewards: str = "positive", tables_only: bool = False
) -> Callable[[VisitValues], VisitValues]:
    """Add a kind of potential for ``estimate_potential``, ``learn_potential`` and ``secret-rl potential``.

    >>> @register_kind("wait", "minus the steps until the episode ends", needs_credit=False)
    ... def wait(evidence, visits):
    ...     time = np.arange(visits.count) - visits.starts[visits.episode]
    ...     return (time - evidence.data.lengths[visits.episode]).astype(float)
    >>> del KINDS["wait"]

    Args:
        name: What to ask for.
        summary: A few words for ``--help``.
        needs_credit: Whether attributions are needed; ``evidence.credit`` holds them.
        rewards: Which rewards count by default, "positive" or "all"; ``evidence.paid`` holds them.
        tables_only: Whether it needs ``visits.numbers``, which number the states; it then is a total over visits by
            trajectory instead of a mean over visits.
    """

    def register(values: VisitValues) -> VisitValues:
        KINDS[name] = Kind(name, summary, values, needs_credit, rewards, tables_only)
        return values

    return register


def estimate_potential(
    trajectories: Trajectories,
    attributions: Credit | None = None,
    kind: str = "pending",
    *,
    rewards: str | None = None,
    delay_discount: float = 0.95,
    state: StateOf | None = None,
) -> TablePotential:
    """A potential over the states that target trajectories visit; states they do not visit get 0.

    ``kind`` is one of

    - ``"paper"``: as printed, the redistributed return of the pair that led to a state, summed over visits and divided
      by the number of trajectories. It slows learning more often than not.
    - ``"pending"``: of the reward still to come, discounted by the wait for it, the share that past steps have already
      earned, mean over visits. It stays until the reward is paid.
    - ``"cumulative"``: all credit earned so far, mean over visits.
    - ``"value"``: Monte-Carlo value, mean over visits. It needs no attributions: the baseline that credit has to beat.
    - ``"mixed"``: pending for rewards that were attributed, value for the others.

    Args:
        trajectories: Of the target.
        attributions: Who earned their rewards; "value" needs none.
        kind: See above.
        rewards: "positive" or "all"; by default all for "paper", as printed, and positive ones for the others.
        delay_discount: Of reward still to come, for "pending", "value" and "mixed" (1: none). It need not be the
            agent's.
        state: Where states come from, as for ``TablePotential``; by default the ``states`` of the trajectories.
    """
    evidence = Evidence(trajectories, attributions, kind, rewards, delay_discount)
    last = trajectories.final_states if state is None else trajectories.final_observations
    visits = Visits(trajectories, last is not None)
    visits.numbers, keys = _numbered(_states_visited(visits, state))
    sums = totals(visits.numbers, evidence.kind.values(evidence, visits), len(keys))
    by = len(trajectories) if evidence.kind.tables_only else np.bincount(visits.numbers, minlength=len(keys))
    values = dict(zip(keys, (sums / by).tolist(), strict=True))
    return TablePotential(values, state=state, reward_bound=largest_return(trajectories))


class Visits:
    """Every visit of a state: T + 1 in an episode of T steps where the last one is known (``last``), else T."""

    numbers: NDArray[np.int64]
    """(visits,) which state each visit is of; tables only."""

    def __init__(self, data: Trajectories, last: bool) -> None:
        self.data = data
        self.lengths = data.lengths + last
        self.count = int(self.lengths.sum())
        self.starts = np.cumsum(self.lengths) - self.lengths
        self.episode, time = _within(self.lengths)
        self.of_step = np.flatnonzero(time < data.lengths[self.episode])
        """(steps,) the visit before each step."""
        self.last = np.flatnonzero(time == data.lengths[self.episode])
        """(episodes,) the visit after the last step, or () if it is not known."""

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


def _states_visited(visits: Visits, state: StateOf | None) -> Any:
    """The state of each visit: (visits, ...) rows, or a list of keys that a function of one observation made."""
    data = visits.data
    if state is None and data.states is None:
        remedy = "say with state= how to make states of observations, as ObservationKey(), GridKey(...) or a function"
        raise ValueError(f'the trajectories hold no states: collect them where info has "state", or {remedy}')
    check_source(state, data.observation_space)
    known: list[tuple[Any, Any, NDArray[Any]]] = [(data.observations, data.states, visits.of_step)]
    if len(visits.last):
        known.append((data.final_observations, data.final_states, visits.last))
    if state is None or hasattr(state, "rows"):
        rows = np.concatenate([states if state is None else state.rows(nest) for nest, states, _ in known])
        return rows[np.argsort(np.concatenate([places for *_, places in known]))]
    found: list[Any] = [None] * visits.count
    for nest, states, places in known:
        for i, place in enumerate(places.tolist()):
            info = {} if states is None else {"state": states[i]}
            found[place] = canonical(state(row_of(data.observation_space, nest, i), info))
    return found


class CreditRows:
    """The rows of attributions whose rewards count, their weights end to end."""

    def __init__(self, data: Trajectories, credit: Credit | None, kind: str, paid: Values) -> None:
        if credit is None:
            raise ValueError(f'kind="{kind}" needs attributions of the trajectories: secret.attribute(trajectories)')
        same = np.array_equal(credit.lengths, data.lengths)
        places = data.offsets[credit.episode] + credit.step if same else None
        if not same or not np.array_equal(credit.reward, np.asarray(data.rewards)[places]):
            raise ValueError("the attributions are of other trajectories than these: attribute the same ones")
        kept = paid[places] != 0
        if not kept.any() and kind != "mixed":
            sign = "positive " if paid.min() >= 0 else ""
            warnings.warn(
                f"none of the {np.count_nonzero(paid):,} {sign}rewards was predicted correctly, so the potential is 0 "
                "everywhere: if the target's dynamics differ from the source's, adapt(secret, trajectories) first",
                CoverageWarning,
                stacklevel=4,
            )
        sizes = np.diff(credit.offsets)
        self.weights = np.asarray(credit.weights, np.float64)[np.repeat(kept, sizes)]
        self.sizes = sizes[kept]
        self.firsts = np.cumsum(self.sizes) - self.sizes
        self.episode, self.step = credit.episode[kept], credit.step[kept]
        self.reward = np.asarray(credit.reward, np.float64)[kept]

    def step_credit(self, data: Trajectories) -> Values:
        """(steps,) what each step earned."""
        row, step = _within(self.sizes)
        return totals(data.offsets[self.episode[row]] + step, self.weights * self.reward[row], data.steps)


class Evidence:
    """What a potential of some kind is estimated from, checked."""

    def __init__(
        self,
        data: Trajectories,
        attributions: Credit | None,
        kind: str,
        rewards: str | None,
        discount: float,
        *,
        tables: bool = True,
    ) -> None:
        names = sorted(name for name, found in KINDS.items() if tables or not found.tables_only)
        if kind not in names:
            raise ValueError(f"kind must be one of {names}, got {kind!r}")
        rewards = rewards or KINDS[kind].rewards
        if rewards not in ("positive", "all"):
            raise ValueError(f'rewards must be "positive" or "all", got {rewards!r}')
        self.data, self.kind = data, KINDS[kind]
        self.discount = check_number("delay_discount", discount, lambda number: 0 < number <= 1, "in (0, 1]")
        paid = np.asarray(data.rewards, np.float64)
        self.paid: Values = np.maximum(paid, 0) if rewards == "positive" else paid
        """(steps,) the rewards that count, 0 elsewhere."""
        if not self.paid.any():
            none = f"none of the {len(data):,} trajectories holds a {'positive ' * (rewards == 'positive')}reward"
            remedy = "collect more, or with success_share, or use OnlineCredit, which needs none"
            raise ValueError(f"{none} to estimate from: {remedy}")
        self.credit: Any = CreditRows(data, attributions, kind, self.paid) if self.kind.needs_credit else None
        """Who earned them."""


@register_kind("pending", "of the reward to come, what is earned already")
def _pending(evidence: Evidence, visits: Visits) -> Values:
    """Visit t of an episode gets, of every reward i >= t discounted by i - t, what steps before t earned of it."""
    rows = evidence.credit
    running = np.concatenate([[0.0], np.cumsum(rows.weights)])
    row, step = _within(rows.step)  # the steps before a reward: in the state after them it is still to come
    first = rows.firsts[row]
    known = np.minimum(step + 1, rows.sizes[row])  # a reward that was predicted ahead of time has fewer weights
    earned = running[first + known] - running[first]
    still = evidence.discount ** (rows.step[row] - step - 1.0)
    return totals(visits.starts[rows.episode[row]] + step + 1, earned * rows.reward[row] * still, visits.count)


@register_kind("cumulative", "all credit so far")
def _cumulative(evidence: Evidence, visits: Visits) -> Values:
    """Visit t of an episode gets what steps before t earned."""
    running = np.concatenate([[0.0], np.cumsum(visits.after(evidence.credit.step_credit(evidence.data)))])
    return np.asarray(running[1:] - running[visits.starts][visits.episode])


@register_kind("value", "Monte-Carlo value, which needs no model", needs_credit=False)
def _value(evidence: Evidence, visits: Visits) -> Values:
    """Visit t of an episode gets the discounted sum of rewards from step t on."""
    return visits.before(_returns(evidence.data, evidence.paid, evidence.discount))


@register_kind("mixed", "pending for rewards that the past decides, value for the others")
def _mixed(evidence: Evidence, visits: Visits) -> Values:
    rows, others = evidence.credit, evidence.paid.copy()
    others[evidence.data.offsets[rows.episode] + rows.step] = 0.0
    return _pending(evidence, visits) + visits.before(_returns(evidence.data, others, evidence.discount))


@register_kind("paper", "as printed", rewards="all", tables_only=True)
def _paper(evidence: Evidence, visits: Visits) -> Values:
    """Each visit gets what the pair before it earned, at all of its visits in the trajectory together."""
    data, earned = evidence.data, evidence.credit.step_credit(evidence.data)
    actions = [_numbered(np.asarray(array))[0] for _, array in named_arrays("", data.actions)]
    pairs = np.column_stack([visits.episode[visits.of_step], visits.numbers[visits.of_step], *actions])
    numbers = np.unique(pairs, axis=0, return_inverse=True)[1].ravel()
    return visits.after(totals(numbers, earned, len(numbers))[numbers])


def _returns(data: Trajectories, paid: Values, discount: float) -> Values:
    """(steps,) the discounted sum of rewards from each step on."""
    values, following = np.zeros(data.steps), np.zeros(len(data))
    starts, lengths = np.asarray(data.offsets[:-1]), data.lengths
    for t in range(int(lengths.max()) - 1, -1, -1):
        here = np.flatnonzero(lengths > t)
        following[here] = paid[starts[here] + t] + discount * following[here]
        values[starts[here] + t] = following[here]
    return values


def largest_return(data: Trajectories) -> float:
    """Of the positive rewards of an episode."""
    positive = np.maximum(np.asarray(data.rewards, np.float64), 0)
    return float(np.add.reduceat(positive, data.offsets[:-1]).max())


def totals(places: NDArray[Any], amounts: Values, count: int) -> Values:
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
