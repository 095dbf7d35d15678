"""Credit where the truth is known, to calibrate against."""

from collections.abc import Mapping
from math import isfinite
from typing import Any


class EventCredit:
    """Phi adds up ``amount`` for every step whose info tells of an event: the truth, for calibration.

    >>> potential = EventCredit("trigger_activated", amount=0.25)
    >>> potential.begin(None, {}), potential.step(0, None, 0.0, {"trigger_activated": True})
    (0.0, 0.25)
    """

    def __init__(self, event: str, *, amount: float = 0.25, reward: float = 1.0) -> None:
        if not (reward > 0 and isfinite(reward)):
            raise ValueError(f"reward must be a positive number, got {reward!r}")
        if not 0 < amount < reward:
            raise ValueError(f"amount must lie between 0 and the reward of {reward}, got {amount!r}")
        self.event, self.amount = event, float(amount)
        self.bound, self.reward_bound = 0.95 * float(reward), float(reward)
        self._sum = 0.0

    def __repr__(self) -> str:
        return f"EventCredit({self.event!r}, amount={self.amount})"

    def fresh(self) -> "EventCredit":
        """One with a memory of its own."""
        return EventCredit(self.event, amount=self.amount, reward=self.reward_bound)

    def begin(self, observation: Any, info: Mapping[str, Any], /) -> float:  # noqa: ARG002
        """Nothing has happened yet."""
        self._sum = 0.0
        return 0.0

    def step(self, action: Any, observation: Any, reward: float, info: Mapping[str, Any], /) -> float:  # noqa: ARG002
        """Add ``amount`` if the event happened."""
        if self.event not in info:
            raise ValueError(f"info tells nothing of {self.event!r} (it has {sorted(info)}): name another event")
        self._sum += self.amount * bool(info[self.event])
        return min(self._sum, self.bound)
