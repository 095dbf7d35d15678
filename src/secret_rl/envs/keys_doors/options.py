"""The options of a keys-and-doors world, checked once."""

from dataclasses import dataclass, replace
from typing import Any

from secret_rl.checks import check_integer
from secret_rl.envs.keys_doors.puzzle import COLOURS, MAX_THINGS
from secret_rl.envs.keys_doors.shrinking import SMALLEST

MAX_GRID = 5
MAX_PER_ROOM = 2
"""Keys and goals in one room, as in the original level."""

Count = int | tuple[int, int]
"""A number, or the least and the most of a number that each map draws."""


def span(count: Count) -> tuple[int, int]:
    """The least and the most of a count."""
    return (count, count) if isinstance(count, int) else count


def _count(name: str, value: Any, low: int, high: int | None) -> Count:
    """A checked count, with NumPy's integers and the lists of JSON made plain."""
    if not isinstance(value, tuple | list):
        check_integer(name, value, low, high)
        return int(value)
    if len(value) != 2:
        raise ValueError(f"{name} must be a number or (least, most), got {value!r}")
    check_integer(f"{name}[0]", value[0], low, high)
    check_integer(f"{name}[1]", value[1], low, high)
    if value[0] > value[1]:
        raise ValueError(f"{name} must be (least, most) with least <= most, got {value!r}")
    return int(value[0]), int(value[1])


@dataclass(frozen=True)
class PuzzleOptions:
    """What defines a distribution of puzzles; a count is a number or a (least, most) that each map draws."""

    rows: int = 3
    """Rooms from north to south."""
    columns: int = 3
    """Rooms from west to east."""
    core: Count = 3
    """Steps (take a key, open its door) between the start and the goal, each possible only after the one before."""
    traps: Count = 0
    """Dead-end rooms whose door takes the key of a core door: opening one spends the key."""
    red_herrings: Count = 0
    """Dead-end rooms with a key and a door of their own colour."""
    easy_extra: Count = 0
    """0 or 1: a key in the start room and its door there, to a dead-end room; its colour is its own, or a red herring's
    where colours are used up. A map that has neither has none if the count is a range."""
    extra_openable_doors: Count = 0
    """Further doors, of the colour of some key, between two rooms that are there; none is a way around a core step. A
    map that has no place for one has fewer if the count is a range."""
    unopenable_doors: Count = 0
    """Doors of a colour that no key has."""
    useless_keys: Count = 0
    """Keys of a colour that no door has; a map whose colours are used up has fewer if the count is a range."""

    def __post_init__(self) -> None:
        check_integer("rows", self.rows, 1, MAX_GRID)
        check_integer("columns", self.columns, 1, MAX_GRID)
        for name, low, high in (
            ("core", 1, len(COLOURS)),
            ("traps", 0, None),
            ("red_herrings", 0, None),
            ("easy_extra", 0, 1),  # the start room holds a core key and one more object
            ("extra_openable_doors", 0, None),
            ("unopenable_doors", 0, None),
            ("useless_keys", 0, None),
        ):
            object.__setattr__(self, name, _count(name, getattr(self, name), low, high))
        self._check_rooms()
        self._check_colours()

    def most(self, name: str) -> int:
        """The largest value that the count ``name`` may take."""
        return span(getattr(self, name))[1]

    def _check_rooms(self) -> None:
        rooms = self.rows * self.columns
        core, traps, herrings = self.most("core"), self.most("traps"), self.most("red_herrings")
        easy, further = self.most("easy_extra"), self.most("extra_openable_doors")
        needed = core + 1 + traps + herrings + easy
        if needed > rooms:
            raise ValueError(
                f"{core} core doors, {traps} traps, {herrings} red herrings and {easy} easy extras each lead to a room "
                f"of their own: with the start {needed} rooms, but a {self.rows}x{self.columns} grid has {rooms}: "
                "use more rows or columns, or fewer doors"
            )
        walls = self.rows * (self.columns - 1) + self.columns * (self.rows - 1)
        doors = needed - 1 + further + self.most("unopenable_doors")
        if doors > MAX_THINGS:
            raise ValueError(f"{doors} doors, but the engine's scripts count up to {MAX_THINGS}: use fewer")
        if doors > walls:
            raise ValueError(
                f"{doors} doors ({self.most('unopenable_doors')} of them unopenable), but only {walls} walls of a "
                f"{self.rows}x{self.columns} grid lie between two rooms: use more rows or columns, or fewer doors"
            )
        if span(self.extra_openable_doors)[0] and min(self.rows, self.columns) < 2:
            raise ValueError(
                "extra_openable_doors join rooms that are there already, but those of a "
                f"{self.rows}x{self.columns} grid are all joined: use two rows and two columns or more"
            )
        objects = core + herrings + easy + self.most("useless_keys") + 1
        if objects > MAX_PER_ROOM * needed:
            raise ValueError(
                f"{objects - 1} keys and the goal, but {needed} rooms hold {MAX_PER_ROOM * needed} objects, "
                f"{MAX_PER_ROOM} in each: use fewer useless keys"
            )
        if objects - 1 > MAX_THINGS:
            raise ValueError(f"{objects - 1} keys, but the engine's scripts count up to {MAX_THINGS}: use fewer")

    def _check_colours(self) -> None:
        useless = span(self.useless_keys)[0]  # a range gives way to the other parts where colours run out
        needed = self.most("core") + self.most("red_herrings")
        needed += (self.most("unopenable_doors") > 0) + (useless > 0)
        needed += span(self.easy_extra)[0] if not self.most("red_herrings") else 0  # else it may share theirs
        if needed > len(COLOURS):
            raise ValueError(
                f"core, red herrings, an easy extra, unopenable doors and useless keys need {needed} colours, but "
                f"there are {len(COLOURS)}: {', '.join(COLOURS)}; use a shorter core or fewer red herrings, or a range "
                "such as useless_keys=(0, 1)"
            )


PRESETS = {
    "2x2-easy": PuzzleOptions(rows=2, columns=2, core=1),
    "3x3": PuzzleOptions(rows=3, columns=3, core=3),
    "dmlab-like": PuzzleOptions(
        rows=3,
        columns=3,
        core=(1, 3),
        traps=1,
        red_herrings=1,
        easy_extra=(0, 1),
        extra_openable_doors=(0, 1),
        unopenable_doors=2,
        useless_keys=(0, 1),
    ),
}
"""Named puzzles; ``dmlab-like`` has the parts of DeepMind Lab's ``rooms_keys_doors_puzzle``."""


@dataclass(frozen=True)
class WorldOptions:
    """How a puzzle is seen, paid and timed."""

    size: tuple[int, int] = (160, 120)
    """Width and height of the observation in pixels, from 8 x 8; the paper's agents see 160 x 120.

    What the engine does not draw is averaged down from the nearest larger shape that it does: a picture of another
    shape (84 x 84 comes from 160 x 120) is squeezed, never cropped. Wider shapes show more to the sides.
    """
    frame_skip: int = 4
    """Engine tics (35 a second) for which an action is held."""
    hud: bool = False
    """Show the held key as a square in the lower left corner; off as in the paper's view."""
    key_reward: float = 0.0
    """Reward of a pick-up; the original level gives 1, which the paper removes."""
    door_reward: float = 1.0
    """Reward of opening any door."""
    goal_reward: float = 50.0
    """Reward of the goal, which ends the episode."""
    max_steps: int = 900
    """Time limit in agent steps (60 seconds of 60 frames, 4 frames a step, in the original)."""
    layout_seed: int | None = None
    """Fixes the map, start included; None: a new random map each episode."""

    def __post_init__(self) -> None:
        if not isinstance(self.size, tuple | list) or len(self.size) != 2:
            raise TypeError(f"size must be (width, height), e.g. (160, 120), got {self.size!r}")
        object.__setattr__(self, "size", tuple(self.size))  # lists come from JSON
        check_integer("size[0]", self.size[0], SMALLEST)
        check_integer("size[1]", self.size[1], SMALLEST)
        check_integer("frame_skip", self.frame_skip, 1, 100)
        check_integer("max_steps", self.max_steps, 1)
        if not isinstance(self.hud, bool):
            raise TypeError(f"hud must be True or False, got {self.hud!r}")
        for name in ("key_reward", "door_reward", "goal_reward"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < float("inf"):
                raise ValueError(f"{name} must be a finite number, got {value!r}")
        if self.layout_seed is not None:
            check_integer("layout_seed", self.layout_seed, 0, 2**64 - 1)


def puzzle_options(preset: str, changes: dict[str, Any]) -> PuzzleOptions:
    """The preset, with some of its options changed.

    >>> puzzle_options("2x2-easy", {"core": 2}) == PuzzleOptions(rows=2, columns=2, core=2)
    True
    """
    if preset not in PRESETS:
        raise ValueError(f"no preset {preset!r}: use one of {', '.join(PRESETS)}, and options to change it")
    return replace(PRESETS[preset], **changes)
