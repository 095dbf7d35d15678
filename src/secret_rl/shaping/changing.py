"""A potential that is exchanged for another while agents learn."""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import batch_space

from secret_rl.shaping.potentials import Infos, Mask, Potential, Values, VectorPotential
from secret_rl.shaping.side_by_side import vectorised
from secret_rl.shaping.terms import PotentialLike, check_spaces, load_potential


class ChangingPotential:
    """Phi is another potential's, and ``swap`` puts a new one in its place: dynamic potential-based shaping.

    >>> from secret_rl.shaping import TablePotential
    >>> potential = ChangingPotential(TablePotential({0: 0.25, 1: 0.5}))
    >>> potential.begin(None, {"state": 0})
    0.25
    >>> potential.swap(TablePotential({0: 0.0, 1: 1.0}))
    >>> potential.step(0, None, 0.0, {"state": 1})  # the episode goes on as it began
    0.5
    >>> potential.begin(None, {"state": 1})
    1.0

    Every environment goes over to the new one when its next episode begins, so that within an episode Phi is one
    function and what shaping pays still adds up to discount^T Phi_T - Phi_0: no policy becomes better or worse than
    another (Devlin and Kudenko 2012). All copies follow, those of ``fresh`` and ``vector`` too, within this process.

    Rewards that were *stored* before a swap stay shaped with the old potential: a replay buffer must be relabelled
    (``ReplayShaping``). Wrappers settle ``scale="fit"`` once, with the potential they find: give later ones the same
    range, or scale them yourself.
    """

    def __init__(self, potential: PotentialLike) -> None:
        self._shared = _Shared(load_potential(potential))
        self._own: Potential | None = None  # of the episode that goes on
        self._own_is_of: Potential | None = None

    @property
    def present(self) -> Potential:
        """What episodes that begin now are shaped with."""
        return self._shared.potential

    @property
    def swaps(self) -> int:
        """How often it was exchanged."""
        return self._shared.swaps

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
            raise TypeError(f"{new!r} changes on its own: swap in what it holds, its present")
        if self._shared.spaces is not None:
            check_spaces(new, *self._shared.spaces)
        self._shared.swaps += 1
        self._shared.potential = new  # at once: an environment in another thread sees the old one or the new one

    def begin(self, observation: Any, info: Mapping[str, Any], /) -> float:
        """Phi of a first state, of the potential that is present now."""
        present = self.present
        if self._own is None or self._own_is_of is not present:
            self._own, self._own_is_of = present.fresh(), present
        return self._own.begin(observation, info)

    def step(self, action: Any, observation: Any, reward: float, info: Mapping[str, Any], /) -> float:
        """Phi after a step, of the potential that the episode began with."""
        if self._own is None:
            raise RuntimeError(_NOT_BEGUN)
        return self._own.step(action, observation, reward, info)

    def fresh(self) -> "ChangingPotential":
        """One with a memory of its own, which changes with this one."""
        other = object.__new__(ChangingPotential)
        other._shared, other._own, other._own_is_of = self._shared, None, None
        return other

    def vector(self, n: int) -> "_VectorChanging | None":
        """n of them; one at a time if ``check_spaces`` has not told what the environments are like."""
        return None if self._shared.spaces is None else _VectorChanging(self._shared, n)

    def check_spaces(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:
        """An error where the present one does not fit; later ones will be checked alike."""
        check_spaces(self.present, observation_space, action_space)
        self._shared.spaces = observation_space, action_space


_NOT_BEGUN = "no episode has begun: tell the potential with begin(observation, info)"


class _Shared:
    """What all copies look at."""

    def __init__(self, potential: Potential) -> None:
        if isinstance(potential, ChangingPotential):
            raise TypeError(f"{potential!r} changes already: use it as it is")
        self.potential = potential
        self.swaps = 0
        self.spaces: tuple[gym.Space[Any], gym.Space[Any]] | None = None


class _VectorChanging:
    """n environments, each asked with the potential that its episode began with."""

    def __init__(self, shared: _Shared, n: int) -> None:
        assert shared.spaces is not None
        self._shared, self._n = shared, n
        self._spaces = tuple(batch_space(space, n) for space in shared.spaces)
        self._groups: list[_Group] = []

    def begin(self, started: Mask, observations: Any, infos: Infos, /) -> Values:
        """(n,) Phi where ``started``, of the potential that is present now."""
        present = self._shared.potential
        if not self._groups or self._groups[-1].potential is not present:
            several = vectorised(present, self._n, *self._spaces)
            self._groups.append(_Group(present, several, np.zeros(self._n, np.bool_)))
        newest = self._groups[-1]
        for group in self._groups:
            group.members = (group.members | started) if group is newest else (group.members & ~started)
        self._groups = [group for group in self._groups if group.members.any()]
        return newest.several.begin(started, observations, infos)

    def step(self, active: Mask, actions: Any, observations: Any, rewards: Values, infos: Infos, /) -> Values:
        """(n,) Phi where ``active``."""
        if len(self._groups) == 1 and self._groups[0].members[active].all():
            return self._groups[0].several.step(active, actions, observations, rewards, infos)
        values, asked = np.zeros(self._n), np.zeros(self._n, np.bool_)
        for group in self._groups:
            mask = active & group.members
            if mask.any():
                values[mask] = group.several.step(mask, actions, observations, rewards, infos)[mask]
                asked |= mask
        if (active & ~asked).any():
            raise RuntimeError(_NOT_BEGUN)
        return values

    def __repr__(self) -> str:
        return f"{self._n} x ChangingPotential({self._shared.potential!r}, swapped {self._shared.swaps} times)"


class _Group:
    """Environments whose episodes began with the same potential."""

    def __init__(self, potential: Potential, several: VectorPotential, members: Mask) -> None:
        self.potential, self.several, self.members = potential, several, members
