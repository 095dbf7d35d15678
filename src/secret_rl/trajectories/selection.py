"""Which of the episodes drawn are kept, so that a stated share of them is successful."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


class TooFewSuccessesError(RuntimeError):
    """The share of successful episodes asked for was not found within the draws allowed."""


@dataclass
class Selection:
    """Decides episode by episode, in the order they are drawn, until enough are kept.

    Without a share every episode is kept. With one, a successful episode is always kept and a failed one only
    while the share of successes among the kept stays at or above it: so every prefix of the kept episodes holds
    the share too, and nothing depends on how draws are grouped into blocks.
    """

    episodes: int
    success_share: float | None = None
    max_draws: int | None = None
    kept: int = 0
    successes: int = 0
    drawn: int = 0
    """Draws up to the last one kept, once ``complete``; all draws before that."""

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise ValueError(f"episodes must be at least 1, got {self.episodes}")
        if self.success_share is not None and not 0 < self.success_share <= 1:
            raise ValueError(
                f"success_share must lie in (0, 1], got {self.success_share}: it is the share of the episodes kept "
                "that hold a positive reward; None keeps every episode"
            )

    @property
    def complete(self) -> bool:
        """Whether all episodes asked for are kept."""
        return self.kept >= self.episodes

    def choose(self, successful: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The positions, in a block of draws, of the episodes to keep."""
        room = self.episodes - self.kept
        if self.success_share is None:
            chosen = np.arange(min(len(successful), room))
        else:
            chosen = self._with_share(successful, room)
        self.kept += len(chosen)
        self.successes += int(np.count_nonzero(successful[chosen]))
        self.drawn += int(chosen[-1]) + 1 if self.complete else len(successful)
        if self.max_draws is not None and self.drawn >= self.max_draws and not self.complete:
            raise TooFewSuccessesError(
                f"{self.drawn:,} episodes were rolled out and {self.successes:,} of those kept hold a positive "
                f"reward, too few for {self.episodes:,} episodes with success_share={self.success_share}: lower the "
                "share, collect with a policy that succeeds more often, or raise max_draws"
            )
        return chosen

    def _with_share(self, successful: NDArray[np.bool_], room: int) -> NDArray[np.int64]:
        assert self.success_share is not None
        chosen: list[NDArray[np.int64]] = []
        kept, successes = self.kept, self.successes
        end = self.kept + room
        previous = -1
        for hit in [*np.flatnonzero(successful).tolist(), len(successful)]:
            # failures between two successes: as many as the share allows
            allowed = math.floor(successes / self.success_share + 1e-9) - kept
            failures = max(0, min(allowed, hit - previous - 1, end - kept))
            chosen.append(np.arange(previous + 1, previous + 1 + failures))
            kept += failures
            if kept == end or hit == len(successful):
                break
            chosen.append(np.array([hit]))
            kept += 1
            successes += 1
            previous = hit
            if kept == end:
                break
        return np.concatenate(chosen)
