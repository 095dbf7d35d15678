"""A keys-and-doors puzzle: what is where on a grid of cells, and its shortest solution.

A room is 3 x 2 cells; walls between rooms are one cell thick, and a door is a cell of such a wall. Cells are
(x, y) with x growing to the east and y to the north; the outer wall has x = 0 or y = 0.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

ROOM_WIDTH, ROOM_HEIGHT = 3, 2
CELL = 100  # side of a cell in units of the engine, as in the original level; the paper's state cells are half of it

COLOURS = ("red", "green", "blue", "white", "black")
"""Colours of keys and doors; number 1 is the first, 0 stands for no key."""
MAX_THINGS = 30  # keys, or doors, of a map: the engine's scripts keep them as bits of a signed 32-bit integer

Cell = tuple[int, int]
Room = tuple[int, int]
N = TypeVar("N")
M = TypeVar("M")


@dataclass(frozen=True)
class Key:
    """A key that opens doors of its colour."""

    colour: int
    cell: Cell


@dataclass(frozen=True)
class Door:
    """A door between two rooms; ``cell`` is its cell in the wall."""

    colour: int
    rooms: tuple[Room, Room]
    cell: Cell

    @property
    def upright(self) -> bool:
        """Whether it is passed from west to east, so that its fence runs from north to south."""
        return self.rooms[0][1] == self.rooms[1][1]

    def entrance(self, room: Room) -> Cell:
        """The cell of ``room`` in front of this door."""
        x, y = self.cell
        step = -1 if room == min(self.rooms) else 1  # the smaller room is to the west or the south
        return (x + step, y) if self.upright else (x, y + step)


class Status(NamedTuple):
    """Progress in a puzzle: the held key (-1: none), and the keys taken and doors opened as bit masks."""

    held: int
    taken: int
    opened: int


START = Status(-1, 0, 0)


@dataclass(frozen=True)
class Puzzle:
    """One map. Rooms are (column, row); keys and doors are numbered by their index in these tuples."""

    columns: int
    rows: int
    rooms: tuple[Room, ...]
    """Rooms that exist; the start room is first, then those behind the core doors in order."""
    keys: tuple[Key, ...]
    """The core keys come first, in the order of the solution."""
    doors: tuple[Door, ...]
    """The core doors come first, in the order of the solution."""
    goal: Cell
    start: Cell
    angle: int
    """Degrees the player faces at the start: 0 east, 90 north."""
    core: int

    @property
    def width(self) -> int:
        """Cells from west to east, outer walls included."""
        return self.columns * (ROOM_WIDTH + 1) + 1

    @property
    def height(self) -> int:
        """Cells from south to north, outer walls included."""
        return self.rows * (ROOM_HEIGHT + 1) + 1

    @property
    def open_cells(self) -> set[Cell]:
        """The cells of all rooms and doors."""
        return {cell for room in self.rooms for cell in room_cells(room)} | {door.cell for door in self.doors}

    def closed_doors(self, status: Status) -> list[Door]:
        """The doors that were not opened."""
        return [door for index, door in enumerate(self.doors) if not status.opened >> index & 1]

    def cells_left(self, status: Status) -> list[Cell]:
        """The cells of keys that were not taken, of closed doors and of the goal."""
        keys = [key.cell for index, key in enumerate(self.keys) if not status.taken >> index & 1]
        return [*keys, *(door.cell for door in self.closed_doors(status)), self.goal]


def room_origin(room: Room) -> Cell:
    """The south-west cell of a room."""
    return room[0] * (ROOM_WIDTH + 1) + 1, room[1] * (ROOM_HEIGHT + 1) + 1


def room_cells(room: Room) -> list[Cell]:
    """The cells of a room."""
    left, bottom = room_origin(room)
    return [(left + x, bottom + y) for y in range(ROOM_HEIGHT) for x in range(ROOM_WIDTH)]


def room_of(cell: Cell) -> Room | None:
    """The room that a cell lies in; None for walls and doors."""
    column, inner_x = divmod(cell[0] - 1, ROOM_WIDTH + 1)
    row, inner_y = divmod(cell[1] - 1, ROOM_HEIGHT + 1)
    return (column, row) if inner_x < ROOM_WIDTH and inner_y < ROOM_HEIGHT else None


def centre(cell: Cell) -> tuple[float, float]:
    """The middle of a cell in units of the engine."""
    return (cell[0] + 0.5) * CELL, (cell[1] + 0.5) * CELL


def neighbours(cell: Cell) -> list[Cell]:
    """The four cells, or rooms, next to one."""
    x, y = cell
    return [(x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)]


class Move(NamedTuple):
    """One step of a plan: take key ``number``, open door ``number``, or reach the goal (number 0)."""

    kind: str
    number: int


def plan(puzzle: Puzzle, status: Status = START, room: Room | None = None) -> list[Move] | None:
    """The fewest pick-ups and doors that lead to the goal from ``status`` in ``room``; None if nothing does.

    A search over ``Status`` and rooms: every object lies in a cell that can be walked around.
    """
    first_room = room if room is not None else puzzle.rooms[0]
    key_rooms, goal_room = [room_of(key.cell) for key in puzzle.keys], room_of(puzzle.goal)
    reached = cache(partial(reach, puzzle, room=first_room))

    def moves(here: Status) -> Iterator[tuple[Move, Status]]:
        rooms = reached(here.opened)
        for index, key_room in enumerate(key_rooms):
            if not here.taken >> index & 1 and key_room in rooms:
                yield Move("key", index), Status(index, here.taken | 1 << index, here.opened)
        colour = puzzle.keys[here.held].colour if here.held >= 0 else None
        for index, door in enumerate(puzzle.doors):
            if door.colour == colour and not here.opened >> index & 1 and not rooms.isdisjoint(door.rooms):
                yield Move("door", index), Status(-1, here.taken, here.opened | 1 << index)

    found = _shortest(status, lambda here: goal_room in reached(here.opened), moves)
    return None if found is None else [*found, Move("goal", 0)]


def _shortest(start: N, arrived: Callable[[N], bool], moves: Callable[[N], Iterable[tuple[M, N]]]) -> list[M] | None:
    """The fewest moves from ``start`` to where one has arrived, by a breadth-first search; None if none lead there."""
    ways: dict[N, list[M]] = {start: []}
    waiting = deque([start])
    while waiting:
        here = waiting.popleft()
        if arrived(here):
            return ways[here]
        for move, after in moves(here):
            if after not in ways:
                ways[after] = [*ways[here], move]
                waiting.append(after)
    return None


def reach(puzzle: Puzzle, opened: int, room: Room) -> frozenset[Room]:
    """The rooms that can be reached from ``room`` through the doors of the bit mask ``opened``."""
    pairs = [door.rooms for index, door in enumerate(puzzle.doors) if opened >> index & 1]
    return flood(room, lambda here: {there for pair in pairs if here in pair for there in pair})


def flood(start: N, beside: Callable[[N], Iterable[N]]) -> frozenset[N]:
    """All that can be reached from ``start``."""
    found, waiting = {start}, [start]
    while waiting:
        near = set(beside(waiting.pop())) - found
        found |= near
        waiting.extend(near)
    return frozenset(found)


def path(puzzle: Puzzle, status: Status, start: Cell, end: Cell) -> list[Cell] | None:
    """The shortest way from ``start`` to ``end`` by open cells, both included, around objects and closed doors."""
    cells = puzzle.open_cells - (set(puzzle.cells_left(status)) - {start, end})
    route = _shortest(start, end.__eq__, lambda here: [(near, near) for near in neighbours(here) if near in cells])
    return None if route is None else [start, *route]


def door_causes(data: Any) -> NDArray[np.int64]:
    """(steps,) for each step of ``Trajectories`` that opened a door, the step that took its key; -1 for all others."""
    if missing := {"key_picked", "door_opened"} - data.annotations.keys():
        raise ValueError(f"no annotation {' and '.join(sorted(missing))}: collect data from secret_rl/KeysDoors-v0")
    picked, opened = (np.asarray(data.annotations[name]) for name in ("key_picked", "door_opened"))
    starts = np.repeat(data.offsets[:-1] - data.offsets[0], np.diff(data.offsets))
    causes = np.full(len(opened), -1, np.int64)
    for step in np.flatnonzero(opened):
        taken = np.flatnonzero(picked[starts[step] : step] == opened[step])
        causes[step] = taken[-1] if len(taken) else -1
    return causes
