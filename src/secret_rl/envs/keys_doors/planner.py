"""The shortest solution of a puzzle, as pick-ups and doors: the proof that there is one."""

from collections import deque
from typing import NamedTuple

from secret_rl.envs.keys_doors.puzzle import Puzzle, Room, room_of


class Move(NamedTuple):
    """One step of a plan: take key ``number``, open door ``number``, or reach the goal (number 0)."""

    kind: str
    number: int


class Status(NamedTuple):
    """How far a puzzle is: the held key (-1: none), and the keys taken and doors opened as bit masks."""

    held: int
    taken: int
    opened: int


START = Status(-1, 0, 0)


def plan(puzzle: Puzzle, status: Status = START, room: Room | None = None) -> list[Move] | None:
    """The fewest pick-ups and doors that lead to the goal from ``status`` in ``room``; None if nothing does.

    Breadth first over (held key, keys taken, doors opened, rooms reached). It may think in rooms, not cells, because
    objects never stand in the way: each lies in a cell that one can walk around.
    """
    first = (status, reach(puzzle, status.opened, room if room is not None else puzzle.rooms[0]))
    key_rooms = [room_of(key.cell) for key in puzzle.keys]
    goal_room = room_of(puzzle.goal)
    came: dict[Status, tuple[Status, Move] | None] = {status: None}
    waiting = deque([first])
    while waiting:
        here, rooms = waiting.popleft()
        if goal_room in rooms:
            return [*_trace(came, here), Move("goal", 0)]
        for index, key_room in enumerate(key_rooms):
            if not here.taken >> index & 1 and key_room in rooms:
                after = Status(index, here.taken | 1 << index, here.opened)
                if after not in came:
                    came[after] = here, Move("key", index)
                    waiting.append((after, rooms))
        if here.held < 0:
            continue
        colour = puzzle.keys[here.held].colour
        for index, door in enumerate(puzzle.doors):
            if door.colour == colour and not here.opened >> index & 1 and not rooms.isdisjoint(door.rooms):
                after = Status(-1, here.taken, here.opened | 1 << index)
                if after not in came:
                    came[after] = here, Move("door", index)
                    waiting.append((after, rooms | reach(puzzle, after.opened, door.rooms[0])))
    return None


def reach(puzzle: Puzzle, opened: int, room: Room) -> frozenset[Room]:
    """The rooms that one can walk to from ``room`` through the doors of the mask ``opened``."""
    found, waiting = {room}, [room]
    while waiting:
        here = waiting.pop()
        for index, door in enumerate(puzzle.doors):
            if opened >> index & 1 and here in door.rooms:
                other = door.rooms[0] if door.rooms[1] == here else door.rooms[1]
                if other not in found:
                    found.add(other)
                    waiting.append(other)
    return frozenset(found)


def _trace(came: dict[Status, tuple[Status, Move] | None], status: Status) -> list[Move]:
    moves = []
    while (before := came[status]) is not None:
        status, move = before
        moves.append(move)
    return moves[::-1]
