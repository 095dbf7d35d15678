"""The short way for tables over ``info["state"]``: a whole step of n environments in one compiled call."""

from collections.abc import Mapping
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from secret_rl.shaping.potentials import Mask, Potential, Values
from secret_rl.shaping.table import TablePotential
from secret_rl.shaping.terms import Terms


class Paid(NamedTuple):
    """What a step paid, in all and by where an episode goes on or has just ended; elsewhere 0."""

    rewards: Values
    """(n,) shaped"""
    shaping: Values
    going_on: tuple[Mask, Values, Values] | None
    """where, unshaped rewards, shaping; None: every episode ended"""
    over: tuple[Mask, Values, Values] | None
    """the same; None: no episode ended"""


class TableSteps:
    """Steps of environments that reset within them, for a table whose states are whole numbers that infos tell."""

    def __init__(self, terms: Terms, table: TablePotential) -> None:
        from secret_rl.shaping.kernel import pay  # compiled: only where it is used

        self._table, self._pay = table, pay
        self._first, self._values = table.array  # type: ignore[misc]
        self._terms = terms.scale, terms.discount, terms.keep_on_truncation

    @classmethod
    def of(cls, terms: Terms) -> "TableSteps | None":
        """Where the potential has such a form; None: go the long way."""
        potential: Potential = terms.potential
        # A subclass may answer otherwise. An overflow is the long way's to report.
        if type(potential) is not TablePotential or potential.state is not None or potential.array is None:
            return None
        return cls(terms, potential) if isfinite(terms.scale * potential.bound * 2) else None

    def states(self, infos: Mapping[str, Any], mask: Mask | None = None) -> NDArray[np.int64] | None:
        """(n,) the states that infos tell, where the mask is set (None: everywhere); None: not as whole numbers."""
        states, there = infos.get("state"), infos.get("_state")
        # Who asks for states that are not in the table is to be told: not the short way's business.
        if self._table.watching or not (isinstance(states, np.ndarray) and states.dtype == np.int64):
            return None
        if there is not None:
            needed = len(there) if mask is None else np.count_nonzero(mask)
            if np.count_nonzero(there if mask is None else there & mask) < needed:
                return None
        return states if states.ndim == 1 and states.flags.c_contiguous else None

    def step(
        self, before: Values, rewards: Values, terminated: Mask, truncated: Mask, states: Any, last_states: Any
    ) -> Paid:
        """Pay for a step; ``before`` (n,), the scaled Phi of the present states, follows."""
        n = len(states)
        out, masks = np.empty((6, n)), np.empty((2, n), np.bool_)
        over = self._pay(
            self._values, self._first, *self._terms, states, last_states, terminated, truncated, before, rewards, out,
            masks,
        )  # fmt: skip
        going_on = (masks[0], out[2], out[3]) if over < n else None
        return Paid(out[0], out[1], going_on, (masks[1], out[4], out[5]) if over else None)
