"""Potentials that need no trajectories: none, a function, an event, visit counts, and one that is exchanged."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from math import sqrt
from typing import Any

import gymnasium as gym
import numpy as np

from secret_rl.shaping.core import (
    Batch,
    Info,
    Mask,
    Potential,
    PotentialLike,
    Values,
    check_number,
    check_spaces,
    load_potential,
)
from secret_rl.shaping.table import StateOf, batch_states, canonical, check_source

_DIGEST = 16  # bytes that stand for a state in counts


class NoPotential:
    """Phi = 0 everywhere: what shaping is compared with."""

    bound = 0.0
    reward_bound = None

    def init(self, n: int, /) -> Values:
        """n zeros."""
        return np.zeros(n)

    def step(self, carry: Values, batch: Batch, /) -> tuple[Values, Values]:  # noqa: ARG002
        """(n,) 0"""
        return carry, carry

    def tabulate(self, model: Any) -> dict[str, Any]:  # noqa: ARG002
        """Nothing to add to a task."""
        return {}

    def __repr__(self) -> str:
        return "NoPotential()"


@dataclass(frozen=True)
class FunctionPotential:
    """Phi is a function of (observation, info), called for one environment at a time."""

    function: Callable[[Any, Info], float]

    def init(self, n: int, /) -> None:
        """Nothing is remembered."""

    def step(self, carry: None, batch: Batch, /) -> tuple[None, Values]:
        """(n,) what the function gives."""
        return carry, batch.spread([self.function(batch.observation(i), batch.info(i)) for i in batch.rows.tolist()])


class EventCredit:
    """Phi adds up ``amount`` for every step whose info reports an event: the truth, for calibration.

    >>> import gymnasium as gym, secret_rl as srl
    >>> env = gym.make("secret_rl/Triggers-v0", layout_seed=1)
    >>> env = srl.PotentialShaping(env, srl.shaping.EventCredit("trigger_activated", amount=0.25), discount=0.99)
    """

    def __init__(self, event: str, *, amount: float = 0.25, reward: float = 1.0) -> None:
        self.event = event
        self.reward_bound = check_number("reward", reward, lambda number: number > 0, "a positive number")
        between = f"between 0 and the reward of {reward}"
        self.amount = check_number("amount", amount, lambda number: 0 < number < reward, between)
        self.bound = 0.95 * self.reward_bound

    def __repr__(self) -> str:
        return f"EventCredit({self.event!r}, amount={self.amount})"

    def init(self, n: int, /) -> Values:
        """(n,) the sums."""
        return np.zeros(n)

    def step(self, carry: Values, batch: Batch, /) -> tuple[Values, Values]:
        """(n,) Add ``amount`` where the event happened."""
        carry = np.where(batch.starts, 0.0, carry)
        if np.count_nonzero(batch.steps):
            happened = batch.only(batch.steps).entry(self.event)
            if happened is None:
                names = sorted(batch.info(int(np.argmax(batch.steps))))
                raise ValueError(f"info has no entry {self.event!r} (it has {names}): name another event")
            carry[batch.steps] += self.amount * happened.astype(np.bool_)
        return carry, np.minimum(carry, self.bound)


@dataclass(frozen=True)
class VisitCounts:
    """Phi adds up 1 / sqrt(n) for every step that is the n-th visit of a state in training: count-based exploration.

    As a bonus it pays each step for how new the state is that it led to. Here 0.1 / sqrt(n):

    >>> import gymnasium as gym
    >>> from secret_rl.shaping import CreditBonus, ObservationKey, VisitCounts
    >>> env = CreditBonus(gym.make("FrozenLake-v1", is_slippery=False), VisitCounts(ObservationKey()), scale=0.1)
    >>> _ = env.reset(seed=0)
    >>> [round(env.step(action)[1], 3) for action in (1, 3, 1, 3)]  # down and up again, twice
    [0.1, 0.1, 0.071, 0.071]

    Counts belong to the wrapper, are shared by all environments in it, and never start anew.
    """

    state: StateOf | None = None
    """Where states come from, as in ``TablePotential``: None for ``info["state"]``."""

    def __post_init__(self) -> None:
        check_source(self.state)

    def init(self, n: int, /) -> "_Visits":
        """No state was visited."""
        return _Visits(np.zeros(n), Counter())

    def step(self, carry: "_Visits", batch: Batch, /) -> tuple["_Visits", Values]:
        """(n,) Count what the steps led to."""
        carry.sums[batch.starts] = 0.0
        stepped = batch.only(batch.steps)
        if stepped.count:
            for row, state in zip(stepped.rows.tolist(), batch_states(self.state, stepped), strict=True):
                key = blake2b(repr(canonical(state)).encode(), digest_size=_DIGEST).digest()
                carry.counts[key] += 1
                carry.sums[row] += 1 / sqrt(carry.counts[key])
        return carry, carry.sums

    def check_spaces(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:  # noqa: ARG002
        """An error where states cannot be made from such observations."""
        check_source(self.state, observation_space)


@dataclass
class _Visits:
    """What ``VisitCounts`` remembers: sums of the episodes under way, and visits by digest of the state."""

    sums: Values
    counts: Counter[bytes]

    def state(self) -> dict[str, Any]:
        """What outlives episodes, as arrays."""
        keys = np.frombuffer(b"".join(self.counts), np.uint8).reshape(-1, _DIGEST)
        return {"visited": keys, "visits": np.array(list(self.counts.values()), np.int64)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a ``state``."""
        visited = zip(state["visited"], state["visits"].tolist(), strict=True)
        self.counts = Counter({key.tobytes(): count for key, count in visited})
        self.sums[:] = 0.0


class ChangingPotential:
    """Phi is another potential's, and ``swap`` puts a new one in its place: dynamic potential-based shaping.

    >>> from secret_rl.shaping import TablePotential
    >>> potential = ChangingPotential(TablePotential({0: 0.25, 1: 0.5}))
    >>> potential.swap(TablePotential({0: 0.0, 1: 1.0}))
    >>> potential
    ChangingPotential(TablePotential(2 states, |Phi| <= 1), swapped 1 times)

    Every environment goes over to the new one when its next episode begins, so that within an episode Phi is one
    function and no policy becomes better or worse than another (Devlin and Kudenko 2012). All environments shaped with
    it follow, within this process.

    Rewards that were *stored* before a swap stay shaped with the old potential: a replay buffer must be relabelled
    (``ReplayShaping``). Wrappers settle ``scale="fit"`` once, with the potential they find.
    """

    present: Potential
    """What episodes that begin now are shaped with."""

    def __init__(self, potential: PotentialLike) -> None:
        self._spaces: tuple[gym.Space[Any], ...] = ()
        self.swaps = -1
        self.swap(potential)

    @property
    def bound(self) -> float | None:
        """Of the present one."""
        return getattr(self.present, "bound", None)

    @property
    def reward_bound(self) -> float | None:
        """Of the present one."""
        return getattr(self.present, "reward_bound", None)

    def __repr__(self) -> str:
        return f"ChangingPotential({self.present!r}, swapped {self.swaps} times)"

    def swap(self, potential: PotentialLike) -> None:
        """Shape episodes that begin from now on with another potential, which must fit the same environments."""
        new = load_potential(potential)
        if isinstance(new, ChangingPotential):
            raise TypeError(f"{new!r} changes on its own: give what it holds, its present")
        if self._spaces:
            check_spaces(new, *self._spaces)
        self.present, self.swaps = new, self.swaps + 1

    def check_spaces(self, *spaces: gym.Space[Any]) -> None:
        """An error where the present one does not fit; later ones will be checked alike."""
        check_spaces(self.present, *spaces)
        self._spaces = spaces

    def init(self, n: int, /) -> list["_Group"]:  # noqa: ARG002
        """No episode has begun."""
        return []

    def step(self, carry: list["_Group"], batch: Batch, /) -> tuple[list["_Group"], Values]:
        """(n,) Phi, each of the potential that was present when the row's episode began."""
        if np.count_nonzero(batch.starts):
            present = self.present
            if not carry or carry[-1].potential is not present:
                carry.append(_Group(present, present.init(len(batch.starts)), np.zeros_like(batch.starts)))
            for group in carry:
                group.members &= ~batch.starts
            carry[-1].members |= batch.starts
            carry = [group for group in carry if group.members.any()]
        phi = np.zeros(len(batch.starts))
        for group in carry:
            part = batch.only(group.members)
            if part.count:
                group.carry, answers = group.potential.step(group.carry, part)
                phi = np.where(part.active, answers, phi)
        return carry, phi


@dataclass
class _Group:
    """Environments whose episodes began with the same potential."""

    potential: Potential
    carry: Any
    members: Mask
