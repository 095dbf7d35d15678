"""A keys-and-doors puzzle: what is where, on a grid of cells.

A room is 3 x 2 cells; walls between rooms are one cell thick, and a door is a cell of such a wall. Cells are
(x, y) with x growing to the east and y to the north; the outer wall has x = 0 or y = 0.
"""

from dataclasses import dataclass

ROOM_WIDTH, ROOM_HEIGHT = 3, 2
CELL = 100
"""Side of a cell in units of the engine, as in the original level; the paper's state cells are half of it."""

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
