"""A keys-and-doors puzzle: what is where, on a grid of cells.

A room is 3 x 2 cells; walls between rooms are one cell thick, and a door is a cell of such a wall. Cells are
(x, y) with x growing to the east and y to the north; the outer wall has x = 0 or y = 0.
"""

from dataclasses import dataclass

ROOM_WIDTH, ROOM_HEIGHT = 3, 2
CELL = 100
"""Side of a cell in units of the engine, as in the original level; the paper's state cells are half of it."""

COLOURS = ("red", "green", "blue", "white", "black")
"""Colours of keys and doors; number 1 is the first, 0 stands for no key."""
MAX_THINGS = 30
"""Most keys and most doors of a map: the engine's scripts keep them as bits of a signed word of 32."""

Cell = tuple[int, int]
Room = tuple[int, int]


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
        """Whether one passes it from west to east, so that its fence runs from north to south."""
        return self.rooms[0][1] == self.rooms[1][1]

    def entrance(self, room: Room) -> Cell:
        """The cell of ``room`` in front of this door."""
        low = room == min(self.rooms)  # the room to the west or the south
        x, y = self.cell
        if self.upright:
            return (x - 1 if low else x + 1, y)
        return (x, y - 1 if low else y + 1)


@dataclass(frozen=True)
class Puzzle:
    """One map. Rooms are (column, row); keys, doors and the goal are named by their place in these tuples."""

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


def room_origin(room: Room) -> Cell:
    """The south-west cell of a room."""
    return room[0] * (ROOM_WIDTH + 1) + 1, room[1] * (ROOM_HEIGHT + 1) + 1


def room_cells(room: Room) -> list[Cell]:
    """The cells of a room."""
    left, bottom = room_origin(room)
    return [(left + x, bottom + y) for y in range(ROOM_HEIGHT) for x in range(ROOM_WIDTH)]


def room_of(cell: Cell) -> Room | None:
    """The room that a cell lies in; None for walls and doors."""
    x, y = cell[0] - 1, cell[1] - 1
    column, inner_x = divmod(x, ROOM_WIDTH + 1)
    row, inner_y = divmod(y, ROOM_HEIGHT + 1)
    return (column, row) if inner_x < ROOM_WIDTH and inner_y < ROOM_HEIGHT else None


def centre(cell: Cell) -> tuple[float, float]:
    """The middle of a cell in units of the engine."""
    return (cell[0] + 0.5) * CELL, (cell[1] + 0.5) * CELL


def check(puzzle: Puzzle) -> None:
    """Raise where a puzzle is not one: an engine given such a map ends without a word."""
    rooms = set(puzzle.rooms)
    if not rooms or len(rooms) < len(puzzle.rooms):
        raise ValueError(f"rooms must be one or more, each once, got {puzzle.rooms}")
    for room in rooms:
        if not (0 <= room[0] < puzzle.columns and 0 <= room[1] < puzzle.rows):
            raise ValueError(f"room {room} lies outside the grid of {puzzle.columns} columns and {puzzle.rows} rows")
    _check_doors(puzzle, rooms)
    if len(puzzle.keys) > MAX_THINGS or len(puzzle.doors) > MAX_THINGS:
        counts = f"{len(puzzle.keys)} keys and {len(puzzle.doors)} doors"
        raise ValueError(f"{counts}, but the engine's scripts count up to {MAX_THINGS} of each: use fewer")
    things: tuple[Key | Door, ...] = (*puzzle.keys, *puzzle.doors)
    for thing in things:
        if not 1 <= thing.colour <= len(COLOURS):
            raise ValueError(f"{thing} has a colour outside 1 to {len(COLOURS)}: {', '.join(COLOURS)}")
    places = [puzzle.start, puzzle.goal, *(key.cell for key in puzzle.keys)]
    for cell in places:
        if room_of(cell) not in rooms:
            raise ValueError(f"cell {cell} lies in no room: the start, the goal and keys must")
    if len(set(places)) < len(places):
        raise ValueError(f"the start, the goal and the keys must have cells of their own, got {places}")


def _check_doors(puzzle: Puzzle, rooms: set[Room]) -> None:
    for door in puzzle.doors:
        low, high = min(door.rooms), max(door.rooms)
        if not {low, high} <= rooms or abs(high[0] - low[0]) + abs(high[1] - low[1]) != 1:
            raise ValueError(f"{door} must lie between two neighbouring rooms of the puzzle")
        if door.entrance(low) not in room_cells(low) or door.entrance(high) not in room_cells(high):
            raise ValueError(f"{door} must have its cell in the wall between its rooms")
    if len({frozenset(door.rooms) for door in puzzle.doors}) < len(puzzle.doors):
        raise ValueError(f"two rooms may share one door only, got {puzzle.doors}")
