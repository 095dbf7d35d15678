"""Potentials that need no trajectories: none, a function, an event of the infos, and one that is exchanged."""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any

import gymnasium as gym
import numpy as np

from secret_rl.shaping.core import Batch, Info, Mask, Potential, PotentialLike, Values, check_spaces, load_potential


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


class FunctionPotential:
    """Phi is a function of (observation, info), asked for one environment at a time."""

    def __init__(self, function: Callable[[Any, Info], float]) -> None:
        self.function = function

    def init(self, n: int, /) -> None:
        """Nothing is remembered."""

    def step(self, carry: None, batch: Batch, /) -> tuple[None, Values]:
        """(n,) what the function gives."""
        return carry, batch.spread([self.function(batch.observation(i), batch.info(i)) for i in batch.rows.tolist()])

    def __repr__(self) -> str:
        return f"FunctionPotential({getattr(self.function, '__qualname__', self.function)})"


class EventCredit:
    """Phi adds up ``amount`` for every step whose info reports an event: the truth, for calibration.

    >>> import gymnasium as gym, secret_rl as srl
    >>> env = gym.make("secret_rl/Triggers-v0", layout_seed=1)
    >>> env = srl.PotentialShaping(env, srl.shaping.EventCredit("trigger_activated", amount=0.25), discount=0.99)
    """

    def __init__(self, event: str, *, amount: float = 0.25, reward: float = 1.0) -> None:
        if not (reward > 0 and isfinite(reward)):
            raise ValueError(f"reward must be a positive number, got {reward!r}")
        if not 0 < amount < reward:
            raise ValueError(f"amount must lie between 0 and the reward of {reward}, got {amount!r}")
        self.event, self.amount = event, float(amount)
        self.bound, self.reward_bound = 0.95 * float(reward), float(reward)

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
                raise ValueError(f"info says nothing of {self.event!r} (it has {names}): name another event")
            carry[batch.steps] += self.amount * happened.astype(np.bool_)
        return carry, np.minimum(carry, self.bound)


class ChangingPotential:
    """Phi is another potential's, and ``swap`` puts a new one in its place: dynamic potential-based shaping.

    >>> from secret_rl.shaping import TablePotential
    >>> potential = ChangingPotential(TablePotential({0: 0.25, 1: 0.5}))
    >>> potential.swap(TablePotential({0: 0.0, 1: 1.0}))
    >>> potential
    ChangingPotential(TablePotential(2 states, |Phi| <= 1), swapped 1 times)

    Every environment goes over to the new one when its next episode begins, so that within an episode Phi is one
    function and what shaping pays still adds up to discount^T Phi_T - Phi_0: no policy becomes better or worse than
    another (Devlin and Kudenko 2012). All environments shaped with it follow, within this process.

    Rewards that were *stored* before a swap stay shaped with the old potential: a replay buffer must be relabelled
    (``ReplayShaping``). Wrappers settle ``scale="fit"`` once, with the potential they find: give later ones the same
    range, or scale them yourself.
    """

    def __init__(self, potential: PotentialLike) -> None:
        self.present = self._checked(potential)
        """What episodes that begin now are shaped with."""
        self.swaps = 0
        self._spaces: tuple[gym.Space[Any], gym.Space[Any]] | None = None

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
        new = self._checked(potential)
        if self._spaces is not None:
            check_spaces(new, *self._spaces)
        self.swaps += 1
        self.present = new  # at once: an environment in another thread sees the old one or the new one

    def check_spaces(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:
        """An error where the present one does not fit; later ones will be checked alike."""
        check_spaces(self.present, observation_space, action_space)
        self._spaces = observation_space, action_space

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

    @staticmethod
    def _checked(potential: PotentialLike) -> Potential:
        loaded = load_potential(potential)
        if isinstance(loaded, ChangingPotential):
            raise TypeError(f"{loaded!r} changes on its own: give what it holds, its present")
        return loaded


@dataclass
class _Group:
    """Environments whose episodes began with the same potential."""

    potential: Potential
    carry: Any
    members: Mask
