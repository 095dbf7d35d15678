"""Random puzzles from a seed, each with a solution."""

from itertools import combinations
from typing import TypeVar

import numpy as np

from secret_rl.envs.keys_doors.options import MAX_PER_ROOM, PuzzleOptions, span
from secret_rl.envs.keys_doors.planner import plan
from secret_rl.envs.keys_doors.puzzle import (
    COLOURS,
    ROOM_HEIGHT,
    ROOM_WIDTH,
    Cell,
    Door,
    Key,
    Puzzle,
    Room,
    room_cells,
    room_origin,
)

ATTEMPTS = 1000
_GIVE_WAY = 50  # attempts after which a map does without extra doors, if it may

_COUNTS = (
    "core",
    "traps",
    "red_herrings",
    "unopenable_doors",
    "useless_keys",
    "easy_extra",
    "extra_openable_doors",
)

T = TypeVar("T")


def generate(options: PuzzleOptions, seed: int) -> Puzzle:
    """The puzzle of ``seed``: the core, then what is beside it.

    >>> puzzle = generate(PuzzleOptions(rows=2, columns=2, core=2), seed=7)
    >>> len(puzzle.keys), len(puzzle.doors), puzzle == generate(PuzzleOptions(rows=2, columns=2, core=2), seed=7)
    (2, 2, True)
    """
    rng = np.random.default_rng(seed)
    spans = {name: span(getattr(options, name)) for name in _COUNTS}
    counts = {name: int(rng.integers(least, most + 1)) for name, (least, most) in spans.items()}
    for attempt in range(ATTEMPTS):
        if attempt == _GIVE_WAY:
            counts["extra_openable_doors"] = spans["extra_openable_doors"][0]
        puzzle = _Draft(options, counts, rng).finished()
        if puzzle is not None:
            return puzzle
    raise ValueError(
        f"no puzzle with {options} was found in {ATTEMPTS} attempts: use more rows or columns, or fewer doors and keys"
    )


class _Full(Exception):
    """No room is left for the next part of a draft: begin another."""


class _Draft:
    """A puzzle in the making: rooms and what they hold, before cells are chosen."""

    def __init__(self, options: PuzzleOptions, counts: dict[str, int], rng: np.random.Generator) -> None:
        self._options, self._counts, self._rng = options, counts, rng
        self.rooms: list[Room] = []
        self.held: dict[Room, int] = {}  # objects in each room
        self.keys: list[tuple[int, Room]] = []  # colour, room
        self.doors: list[tuple[int, Room, Room]] = []  # colour, from, to

    def finished(self) -> Puzzle | None:
        """The puzzle, or None where this draft leads nowhere."""
        try:
            core = self._fill()
        except _Full:
            return None
        doors = tuple(self._door(colour, here, there) for colour, here, there in self.doors)
        cells = self._object_cells(doors)
        if cells is None:
            return None
        goal = cells[self.rooms[core]].pop()  # the last core room holds the goal
        keys = tuple(Key(colour, cells[room].pop()) for colour, room in self.keys)
        taken = {goal, *(key.cell for key in keys)}
        start = self._one([cell for cell in room_cells(self.rooms[0]) if cell not in taken])
        angle = 90 * int(self._rng.integers(4))
        size = self._options.columns, self._options.rows
        puzzle = Puzzle(*size, tuple(self.rooms), keys, doors, goal, start, angle, core)
        return puzzle if plan(puzzle) is not None else None

    def _fill(self) -> int:
        options, counts = self._options, self._counts
        colours = [int(colour) + 1 for colour in self._rng.permutation(len(COLOURS))]
        self._add_room((int(self._rng.integers(options.columns)), int(self._rng.integers(options.rows))))
        core = counts["core"]
        for _ in range(core):
            self._add_core_step(colours.pop())
        self.held[self.rooms[core]] += 1  # the goal
        for _ in range(counts["traps"]):
            step = int(self._rng.integers(core))  # behind its own door a core key is spent already
            here, there = self._new_door(self.rooms[: step + 1])
            self.doors.append((self.keys[step][0], here, there))
        for _ in range(counts["red_herrings"]):
            colour = colours.pop()
            self._add_key(colour, self.rooms[: core + 1])
            here, there = self._new_door(self.rooms[: core + 1])
            self.doors.append((colour, here, there))
        unopenable = colours.pop() if counts["unopenable_doors"] else 0
        if counts["easy_extra"]:
            self._add_easy_extra(colours, core)
        for _ in range(counts["extra_openable_doors"]):
            self._add_openable(core)
        for _ in range(counts["unopenable_doors"]):
            self._add_unopenable(unopenable)
        if counts["useless_keys"] and colours:
            colour = colours.pop()
            for _ in range(counts["useless_keys"]):
                self._add_key(colour, self.rooms)
        return core

    def _add_core_step(self, colour: int) -> None:
        """A key and a door to a new room, one of the two in the newest core room: else the step before is optional."""
        newest, all_rooms = self.rooms[-1:], list(self.rooms)
        door_from_newest = bool(self._rng.integers(2))
        self._add_key(colour, all_rooms if door_from_newest else newest)
        here, there = self._new_door(newest if door_from_newest else all_rooms)
        self.doors.append((colour, here, there))

    def _add_room(self, room: Room) -> None:
        self.rooms.append(room)
        self.held[room] = 0

    def _add_key(self, colour: int, rooms: list[Room]) -> None:
        room = self._one([room for room in rooms if self.held[room] < MAX_PER_ROOM])
        self.held[room] += 1
        self.keys.append((colour, room))

    def _new_door(self, rooms: list[Room]) -> tuple[Room, Room]:
        """One of ``rooms`` and a new room beside it."""
        pairs = [(here, there) for here in rooms for there in self._beside(here) if there not in self.held]
        here, there = self._one(pairs)
        self._add_room(there)
        return here, there

    def _add_easy_extra(self, colours: list[int], core: int) -> None:
        """A key and a door to a new room, both at the start; it shares a red herring's colour if no other is left."""
        if not colours and len(self.keys) == core:
            return
        colour = colours.pop() if colours else self.keys[core][0]
        self._add_key(colour, self.rooms[:1])
        self.doors.append((colour, *self._new_door(self.rooms[:1])))

    def _add_openable(self, core: int) -> None:
        """A door of some key's colour between two rooms that have none, such that all core steps stay needed."""
        colours = sorted({colour for colour, _ in self.keys})
        doors = [(colour, *pair) for pair in self._unjoined() if pair[1] in self.held for colour in colours]
        self.doors.append(self._one([door for door in doors if not self._shortcut(door, core)]))

    def _shortcut(self, door: tuple[int, Room, Room], core: int) -> bool:
        """Whether with this door some core door could stay closed, if keys were never spent nor lost.

        They are, so this also refuses doors that would lead to no solution; those that pass are none for certain.
        """
        goal = self.rooms[core]
        doors = [*self.doors, door]
        return any(goal in self._reached(doors[:step] + doors[step + 1 :]) for step in range(core))

    def _reached(self, doors: list[tuple[int, Room, Room]]) -> set[Room]:
        """The rooms that one gets to from the start through doors whose colour lies in one of these rooms."""
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

    def _add_unopenable(self, colour: int) -> None:
        """A door between two rooms that have none, or to a new room that nothing else leads to."""
        here, there = self._one(self._unjoined())
        if there not in self.held:
            self._add_room(there)
        self.doors.append((colour, here, there))

    def _beside(self, room: Room) -> list[Room]:
        column, row = room
        beside = ((column + 1, row), (column - 1, row), (column, row + 1), (column, row - 1))
        return [(x, y) for x, y in beside if 0 <= x < self._options.columns and 0 <= y < self._options.rows]

    def _door(self, colour: int, here: Room, there: Room) -> Door:
        low, high = min(here, there), max(here, there)
        left, bottom = room_origin(low)
        if low[1] == high[1]:
            cell = left + ROOM_WIDTH, bottom + int(self._rng.integers(ROOM_HEIGHT))
        else:
            cell = left + int(self._rng.integers(ROOM_WIDTH)), bottom + ROOM_HEIGHT
        return Door(colour, (here, there), cell)

    def _object_cells(self, doors: tuple[Door, ...]) -> dict[Room, list[Cell]] | None:
        """Cells for the objects of each room, such that one can walk around them from every door to every other."""
        chosen = {}
        for room, count in self.held.items():
            entrances = {door.entrance(room) for door in doors if room in door.rooms}
            cells = room_cells(room)
            free = [cell for cell in cells if cell not in entrances]
            choices = [taken for taken in combinations(free, count) if _connected(set(cells) - set(taken))]
            if not choices:
                return None
            taken = self._one(choices)
            chosen[room] = [taken[i] for i in self._rng.permutation(count)]
        return chosen

    def _one(self, choices: list[T]) -> T:
        if not choices:
            raise _Full
        return choices[int(self._rng.integers(len(choices)))]


def _connected(cells: set[Cell]) -> bool:
    waiting = [min(cells)]
    left = cells - set(waiting)
    while waiting:
        x, y = waiting.pop()
        near = left & {(x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)}
        left -= near
        waiting.extend(near)
    return not left
