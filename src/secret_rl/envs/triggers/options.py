"""The options of a Triggers maze, checked once."""

from dataclasses import dataclass

from secret_rl.checks import check_integer
from secret_rl.envs.triggers.rules import MAX_OBJECTS, Geometry, geometry

MAX_SIZE = 256


@dataclass(frozen=True)
class TriggersOptions:
    """What defines a distribution of mazes, or one maze if ``layout_seed`` is given."""

    size: int = 8
    """Cells along each side of the square grid."""
    triggers: int = 3
    """Switches that must all be activated before a prize pays +1."""
    prizes: int = 1
    """Prizes; the episode terminates when all are gone."""
    window: int | None = 3
    """Side of the agent-centred crop that is observed (odd); None: the full state."""
    inverted: bool = False
    """Up and down swap, left and right swap (the paper's changed dynamics)."""
    layout_seed: int | None = None
    """Fixes the maze, start cell included; None: a new random maze each episode."""
    max_steps: int | None = None
    """Time limit; None: 50 up to 8x8 and 100 above, as in the paper (appendix A)."""

    def __post_init__(self) -> None:
        check_integer("size", self.size, 1, MAX_SIZE)
        check_integer("triggers", self.triggers, 0)
        check_integer("prizes", self.prizes, 1)
        if not isinstance(self.inverted, bool):
            raise TypeError(f"inverted must be True or False, got {self.inverted!r}")
        if self.layout_seed is not None:
            check_integer("layout_seed", self.layout_seed, 0, 2**64 - 1)
        if self.max_steps is not None:
            check_integer("max_steps", self.max_steps, 1)
        if self.window is not None:
            check_integer("window", self.window, 1)
            if self.window % 2 == 0:
                raise ValueError(
                    f"window must be odd, so that the agent has a centre cell, got {self.window}: "
                    f"use {self.window - 1} or {self.window + 1}, or None for the full state"
                )
        objects = self.triggers + self.prizes
        cells = self.size**2
        if objects + 1 > cells:
            raise ValueError(
                f"{self.triggers} triggers, {self.prizes} prizes and the agent need {objects + 1} cells, but a "
                f"{self.size}x{self.size} grid has {cells}: use a larger size or fewer objects"
            )
        if objects > MAX_OBJECTS:
            raise ValueError(
                f"{self.triggers} triggers and {self.prizes} prizes are {objects} objects, but at most "
                f"{MAX_OBJECTS} fit in a state number: use fewer"
            )

    @property
    def time_limit(self) -> int:
        """The step at which an episode truncates."""
        return self.max_steps if self.max_steps is not None else (50 if self.size <= 8 else 100)

    @property
    def num_states(self) -> int:
        """One more than the largest ``info["state"]``."""
        return int(self.size**2 * 2 ** (self.triggers + self.prizes))

    def geometry(self) -> Geometry:
        """The same options as the numbers that the compiled rules work with."""
        return geometry(
            self.size,
            self.triggers,
            self.prizes,
            self.window,
            self.inverted,
            self.layout_seed,
            self.time_limit,
        )
