"""Random puzzles from a seed, each with a solution."""

from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, TypeVar

import numpy as np

from secret_rl.checks import check_integer
from secret_rl.envs.keys_doors import puzzle as on_grid
from secret_rl.envs.keys_doors.puzzle import COLOURS, MAX_THINGS, Cell, Door, Key, Puzzle, Room, neighbours, room_cells

MAX_GRID = 5
MAX_PER_ROOM = 2  # keys and goals, as in the original level
ATTEMPTS = 1000
_ATTEMPTS_WITH_EXTRA_DOORS = 50  # after these a map does without extra doors, if it may

Count = int | tuple[int, int]  # a number, or the least and the most of a number that each map draws
T = TypeVar("T")


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
        for name in _COUNTS:
            low, high = int(name == "core"), {"core": len(COLOURS), "easy_extra": 1}.get(name)
            value = getattr(self, name)
            ends = value if isinstance(value, tuple | list) else (value, value)
            plain = tuple(check_integer(name, end, low, high) for end in ends)  # from NumPy, or a list from JSON
            if len(plain) != 2 or plain[0] > plain[1]:
                raise ValueError(f"{name} must be a number or (least, most) with least <= most, got {value!r}")
            object.__setattr__(self, name, plain if plain[0] < plain[1] else plain[0])

    def least(self, name: str) -> int:
        """The smallest value that the count ``name`` may take."""
        return int(np.min(getattr(self, name)))

    def most(self, name: str) -> int:
        """The largest value that the count ``name`` may take."""
        return int(np.max(getattr(self, name)))


# In the order in which a map draws them.
_COUNTS = ("core", "traps", "red_herrings", "unopenable_doors", "useless_keys", "easy_extra", "extra_openable_doors")

PRESETS = {
    "2x2-easy": PuzzleOptions(rows=2, columns=2, core=1),
    "3x3": PuzzleOptions(rows=3, columns=3, core=3),
    "dmlab-like": PuzzleOptions(
        rows=3, columns=3, core=(1, 3), traps=1, red_herrings=1, easy_extra=(0, 1), extra_openable_doors=(0, 1),
        unopenable_doors=2, useless_keys=(0, 1),
    ),
}  # fmt: skip
"""Named puzzles; ``dmlab-like`` has the parts of DeepMind Lab's ``rooms_keys_doors_puzzle``."""


def preset_options(preset: str, **changes: Any) -> PuzzleOptions:
    """The preset, with some of its options changed."""
    if preset not in PRESETS:
        raise ValueError(f"no preset {preset!r}: use one of {', '.join(PRESETS)}, and options to change it")
    return replace(PRESETS[preset], **changes)


def generate(options: PuzzleOptions, seed: int) -> Puzzle:
    """The puzzle of ``seed``.

    >>> puzzle = generate(PuzzleOptions(rows=2, columns=2, core=2), seed=7)
    >>> len(puzzle.keys), len(puzzle.doors), puzzle == generate(PuzzleOptions(rows=2, columns=2, core=2), seed=7)
    (2, 2, True)
    """
    rng = np.random.default_rng(seed)
    counts = {name: int(rng.integers(options.least(name), options.most(name) + 1)) for name in _COUNTS}
    for attempt in range(ATTEMPTS):
        if attempt == _ATTEMPTS_WITH_EXTRA_DOORS:
            counts["extra_openable_doors"] = options.least("extra_openable_doors")
        try:
            puzzle = _Draft(options, counts, rng).finished()
        except _Full:
            continue
        if on_grid.plan(puzzle) is not None:
            return puzzle
    fewer = f"fewer doors and keys (there are {len(COLOURS)} colours), or ranges such as (0, 1)"
    raise ValueError(f"no puzzle with {options} found in {ATTEMPTS} attempts: use more rows or columns, {fewer}")


class _Full(Exception):
    """No place, or no colour, is left for the next part of a draft."""


class _Draft:
    """A puzzle in the making: rooms and what they hold, before cells are chosen."""

    def __init__(self, options: PuzzleOptions, counts: dict[str, int], rng: np.random.Generator) -> None:
        self._options, self._counts, self._rng = options, counts, rng
        self.objects: dict[Room, int] = {}  # how many lie in each room
        self.keys: list[tuple[int, Room]] = []  # colour, room
        self.doors: list[tuple[int, Room, Room]] = []  # colour, from, to

    @property
    def rooms(self) -> list[Room]:
        """Those of the core come first, in its order."""
        return list(self.objects)

    def finished(self) -> Puzzle:
        """The puzzle; raises _Full where this draft has no place for a part."""
        self._add_all()
        if max(len(self.keys), len(self.doors)) > MAX_THINGS:
            raise _Full
        core = self._counts["core"]
        doors = tuple(self._door(colour, here, there) for colour, here, there in self.doors)
        cells = self._object_cells(doors)
        goal = cells[self.rooms[core]].pop()  # the last core room holds the goal
        keys = tuple(Key(colour, cells[room].pop()) for colour, room in self.keys)
        taken = {goal, *(key.cell for key in keys)}
        start = self._one([cell for cell in room_cells(self.rooms[0]) if cell not in taken])
        angle = 90 * int(self._rng.integers(4))
        size = self._options.columns, self._options.rows
        return Puzzle(*size, tuple(self.rooms), keys, doors, goal, start, angle, core)

    def _add_all(self) -> None:
        """The core first, then everything beside it."""
        options, counts = self._options, self._counts
        self._colours = [int(colour) + 1 for colour in self._rng.permutation(len(COLOURS))]
        self.objects[int(self._rng.integers(options.columns)), int(self._rng.integers(options.rows))] = 0
        core = counts["core"]
        for _ in range(core):  # a key and a door to a new room
            colour, newest, all_rooms = self._new_colour(), self.rooms[-1:], self.rooms
            door_from_newest = bool(self._rng.integers(2))  # or the key lies there: else the step before is optional
            self._add_key(colour, all_rooms if door_from_newest else newest)
            self._add_door(colour, newest if door_from_newest else all_rooms)
        self.objects[self.rooms[core]] += 1  # the goal
        for _ in range(counts["traps"]):
            step = int(self._rng.integers(core))  # behind its own door a core key is spent already
            self._add_door(self.keys[step][0], self.rooms[: step + 1])
        for _ in range(counts["red_herrings"]):
            colour = self._new_colour()
            self._add_key(colour, self.rooms[: core + 1])
            self._add_door(colour, self.rooms[: core + 1])
        unopenable = self._new_colour() if counts["unopenable_doors"] else 0
        herring = self.keys[core][0] if len(self.keys) > core else None
        if counts["easy_extra"] and (self._colours or herring or options.least("easy_extra")):
            colour = herring if herring and not self._colours else self._new_colour()
            self._add_key(colour, self.rooms[:1])
            self._add_door(colour, self.rooms[:1])
        for _ in range(counts["extra_openable_doors"]):
            self._add_openable(core)
        for _ in range(counts["unopenable_doors"]):
            here, there = self._one(self._unjoined())
            self.objects.setdefault(there, 0)
            self.doors.append((unopenable, here, there))
        if counts["useless_keys"] and (self._colours or options.least("useless_keys")):
            colour = self._new_colour()
            for _ in range(counts["useless_keys"]):
                self._add_key(colour, self.rooms)

    def _new_colour(self) -> int:
        if not self._colours:
            raise _Full
        return self._colours.pop()

    def _add_key(self, colour: int, rooms: list[Room]) -> None:
        room = self._one([room for room in rooms if self.objects[room] < MAX_PER_ROOM])
        self.objects[room] += 1
        self.keys.append((colour, room))

    def _add_door(self, colour: int, rooms: list[Room]) -> None:
        """A door from one of ``rooms`` to a new room beside it."""
        pairs = [(here, there) for here in rooms for there in self._beside(here) if there not in self.objects]
        here, there = self._one(pairs)
        self.objects[there] = 0
        self.doors.append((colour, here, there))

    def _add_openable(self, core: int) -> None:
        """A door of some key's colour between two rooms that have none, such that all core steps stay needed."""
        colours = sorted({colour for colour, _ in self.keys})
        doors = [(colour, *pair) for pair in self._unjoined() if pair[1] in self.objects for colour in colours]
        self.doors.append(self._one([door for door in doors if not self._shortcut(door, core)]))

    def _shortcut(self, door: tuple[int, Room, Room], core: int) -> bool:
        """Whether with this door some core door could stay closed, if keys were never spent nor lost (they are)."""
        goal, doors = self.rooms[core], [*self.doors, door]
        return any(goal in self._reached(doors[:step] + doors[step + 1 :]) for step in range(core))

    def _reached(self, doors: list[tuple[int, Room, Room]]) -> set[Room]:
        """The rooms reached from the start through doors whose colour lies in one of these rooms."""
        rooms, before = {self.rooms[0]}, 0
        while len(rooms) > before:
            before = len(rooms)
            colours = {colour for colour, room in self.keys if room in rooms}
            for colour, *pair in doors:
                if colour in colours and not rooms.isdisjoint(pair):
                    rooms.update(pair)
        return rooms

    def _unjoined(self) -> list[tuple[Room, Room]]:
        """Pairs of a room and a place beside it, room or not, that no door joins; pairs of rooms come both ways."""
        joined = {frozenset(door[1:]) for door in self.doors}
        return [(a, b) for a in self.rooms for b in self._beside(a) if frozenset((a, b)) not in joined]

    def _beside(self, room: Room) -> list[Room]:
        columns, rows = self._options.columns, self._options.rows
        return [(x, y) for x, y in neighbours(room) if 0 <= x < columns and 0 <= y < rows]

    def _door(self, colour: int, here: Room, there: Room) -> Door:
        width, height = on_grid.ROOM_WIDTH, on_grid.ROOM_HEIGHT
        (left, bottom), upright = on_grid.room_origin(min(here, there)), here[1] == there[1]
        along = int(self._rng.integers(height if upright else width))
        cell = (left + width, bottom + along) if upright else (left + along, bottom + height)
        return Door(colour, (here, there), cell)

    def _object_cells(self, doors: tuple[Door, ...]) -> dict[Room, list[Cell]]:
        """Cells for the objects of each room; no object blocks the path between two doors."""
        chosen = {}
        for room, count in self.objects.items():
            entrances = {door.entrance(room) for door in doors if room in door.rooms}
            cells = room_cells(room)
            free = [cell for cell in cells if cell not in entrances]
            taken = self._one([some for some in combinations(free, count) if _connected(set(cells) - set(some))])
            chosen[room] = [taken[i] for i in self._rng.permutation(count)]
        return chosen

    def _one(self, choices: list[T]) -> T:
        if not choices:
            raise _Full
        return choices[int(self._rng.integers(len(choices)))]


def _connected(cells: set[Cell]) -> bool:
    return on_grid.flood(min(cells), lambda cell: cells.intersection(neighbours(cell))) == cells
