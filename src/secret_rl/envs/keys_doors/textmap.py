"""A puzzle as the text of a map (UDMF, namespace zdoom).

Walls are invisible: blocking lines with a pit behind. A door cell has a trigger line on both sides and a fence in
the middle, which the door script takes away.
"""

from collections.abc import Iterator

from secret_rl.envs.keys_doors.acs import DOOR_SCRIPT, GOAL_SCRIPT, KEY_SCRIPT
from secret_rl.envs.keys_doors.options import PuzzleOptions
from secret_rl.envs.keys_doors.puzzle import CELL, Cell, Door, Puzzle, centre, check, room_cells

KEY_TYPE, GOAL_TYPE = 20000, 20100
"""Numbers of the things in a map: a key's is this plus its colour."""
FLOOR, PIT, SKY, FENCE = "KDFLOOR", "KDPIT", "KDSKY", "KDFENCE"
_PLAYER_START, _EXECUTE, _HORIZON = 1, 84, 9
_INSIDE, _OUTSIDE = 0, 1  # sectors
_CEILING, _PIT_DEPTH, _MARGIN = 128, 64, 400

_SIDES = (((-1, 0), (0, 0), (0, 1)), ((0, 1), (0, 1), (1, 0)), ((1, 0), (1, 1), (0, -1)), ((0, -1), (1, 0), (-1, 0)))
"""The sides of a cell, clockwise: the cell beyond, the corner where the side begins, and its direction."""

Point = tuple[float, float]
Segment = tuple[Point, Point]


def textmap(puzzle: Puzzle) -> bytes:
    """The TEXTMAP lump, of a puzzle that passed ``check``."""
    check(puzzle)
    lines = _Lines()
    step_down = _side(_OUTSIDE, f'texturebottom="{PIT}";')
    for start, end in walls(puzzle):
        lines.add(start, end, "blocking=true;twosided=true;", _side(_INSIDE), step_down)
    for start, end in _border(puzzle):
        lines.add(start, end, f"blocking=true;special={_HORIZON};", _side(_OUTSIDE, f'texturemiddle="{PIT}";'))
    for index, door in enumerate(puzzle.doors):
        first, middle, last = _crossings(door)
        fence = _side(_INSIDE, f'texturemiddle="{FENCE}{door.colour}";')
        line_id = index + 1
        lines.add(*middle, f"id={line_id};blocking=true;twosided=true;dontpegbottom=true;", fence, fence)
        script = f"arg0={DOOR_SCRIPT};arg1={door.colour};arg2={index};arg3={line_id};"
        for start, end in (first, last):
            flags = f"twosided=true;special={_EXECUTE};{script}playercross=true;repeatspecial=true;"
            lines.add(start, end, flags, _side(_INSIDE), _side(_INSIDE))
    return "\n".join(['namespace="zdoom";', *_things(puzzle), *lines.text(), *_sectors(), ""]).encode("ascii")


def most_text(options: PuzzleOptions) -> int:
    """Bytes that no map of these options exceeds: as many as if every room and every door were there, and more."""
    rooms = options.rows * options.columns
    doors = options.rows * (options.columns - 1) + options.columns * (options.rows - 1)
    return 4096 + 1536 * rooms + 2048 * doors


def walls(puzzle: Puzzle) -> list[Segment]:
    """The outlines of rooms and door cells in units of the engine, the open side on the right of each."""
    doors = {door.cell for door in puzzle.doors}
    open_cells = {cell for room in puzzle.rooms for cell in room_cells(room)} | doors
    halves: list[Segment] = []
    edges: set[tuple[Cell, Cell]] = set()  # start and direction of the sides of room cells
    for x, y in sorted(open_cells):
        for (beyond_x, beyond_y), (start_x, start_y), (dx, dy) in _SIDES:
            if (x + beyond_x, y + beyond_y) in open_cells:
                continue
            start = x + start_x, y + start_y
            if (x, y) in doors:  # the fence ends in the middle of these walls: they are split there
                middle = start[0] + dx / 2, start[1] + dy / 2
                halves += [(start, middle), (middle, (start[0] + dx, start[1] + dy))]
            else:
                edges.add((start, (dx, dy)))
    segments = [*halves, *_runs(edges)]
    return [((x0 * CELL, y0 * CELL), (x1 * CELL, y1 * CELL)) for (x0, y0), (x1, y1) in segments]


def _runs(edges: set[tuple[Cell, Cell]]) -> Iterator[Segment]:
    """Edges that go on in the same direction, as one: fewer lines load faster."""
    for start, (dx, dy) in sorted(edges):
        if ((start[0] - dx, start[1] - dy), (dx, dy)) in edges:
            continue  # part of a run that begins before
        end = start
        while (end, (dx, dy)) in edges:
            end = end[0] + dx, end[1] + dy
        yield start, end


def _crossings(door: Door) -> tuple[Segment, Segment, Segment]:
    """The near edge, the middle and the far edge of a door cell."""
    x, y = door.cell[0] * CELL, door.cell[1] * CELL
    segments: list[Segment] = []
    for step in (0, CELL / 2, CELL):
        if door.upright:
            segments.append(((x + step, y), (x + step, y + CELL)))
        else:
            segments.append(((x, y + step), (x + CELL, y + step)))
    return segments[0], segments[1], segments[2]


def _border(puzzle: Puzzle) -> list[Segment]:
    right, top = puzzle.width * CELL + _MARGIN, puzzle.height * CELL + _MARGIN
    corners: list[Point] = [(-_MARGIN, -_MARGIN), (-_MARGIN, top), (right, top), (right, -_MARGIN)]
    return list(zip(corners, corners[1:] + corners[:1], strict=True))


def _things(puzzle: Puzzle) -> Iterator[str]:
    always = "skill1=true;skill2=true;skill3=true;skill4=true;skill5=true;single=true;"
    x, y = centre(puzzle.start)
    yield f"thing{{x={x};y={y};angle={puzzle.angle};type={_PLAYER_START};{always}}}"
    for index, key in enumerate(puzzle.keys):
        x, y = centre(key.cell)
        call = f"special={_EXECUTE};arg0={KEY_SCRIPT};arg1={key.colour};arg2={index};"
        yield f"thing{{x={x};y={y};type={KEY_TYPE + key.colour};{call}{always}}}"
    x, y = centre(puzzle.goal)
    yield f"thing{{x={x};y={y};type={GOAL_TYPE};special={_EXECUTE};arg0={GOAL_SCRIPT};{always}}}"


def _sectors() -> Iterator[str]:
    for floor, texture in ((0, FLOOR), (-_PIT_DEPTH, PIT)):
        yield (
            f'sector{{heightfloor={floor};heightceiling={_CEILING};texturefloor="{texture}";'
            'textureceiling="F_SKY1";lightlevel=255;}'
        )


def _side(sector: int, texture: str = "") -> str:
    return f"sector={sector};{texture}"


class _Lines:
    """Lines with their vertices, each vertex once, and sides."""

    def __init__(self) -> None:
        self._vertices: dict[Point, int] = {}
        self._sides: list[str] = []
        self._lines: list[str] = []

    def add(self, start: Point, end: Point, flags: str, front: str, back: str | None = None) -> None:
        """One line; its front is on the right of the way from ``start`` to ``end``."""
        v1, v2 = (self._vertices.setdefault(point, len(self._vertices)) for point in (start, end))
        sides = f"sidefront={len(self._sides)};"
        self._sides.append(front)
        if back is not None:
            sides += f"sideback={len(self._sides)};"
            self._sides.append(back)
        self._lines.append(f"linedef{{v1={v1};v2={v2};{sides}{flags}}}")

    def text(self) -> Iterator[str]:
        """Vertices, lines and sides."""
        yield from (f"vertex{{x={float(x)};y={float(y)};}}" for x, y in self._vertices)
        yield from self._lines
        yield from (f"sidedef{{{side}}}" for side in self._sides)
