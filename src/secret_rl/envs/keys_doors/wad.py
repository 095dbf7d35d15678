"""The WAD file that the engine plays from: actors, pictures, scripts, and one map whose text can be replaced."""

import zlib
from collections.abc import Iterator
from pathlib import Path
from struct import pack

import numpy as np
from numpy.typing import NDArray

from secret_rl.envs.keys_doors.generator import PuzzleOptions
from secret_rl.envs.keys_doors.puzzle import CELL, COLOURS, Cell, Door, Puzzle, centre

MAP = "MAP01"
RGB = {"red": (214, 32, 32), "green": (24, 180, 48), "blue": (40, 72, 232), "white": (245,) * 3, "black": (16,) * 3}
GOAL_COLOUR = (255, 200, 0)

Picture = NDArray[np.uint8]
Point = tuple[float, float]
Segment = tuple[Point, Point]

_KEY_TYPE, _GOAL_TYPE = 20000, 20100  # numbers of the things in a map: a key's is this plus its colour
_FLOOR, _PIT, _SKY, _FENCE = "KDFLOOR", "KDPIT", "KDSKY", "KDFENCE"

_PLAYER = """
actor KDPlayer : PlayerPawn {
  Radius 16
  Height 56
  Player.DisplayName "Walker"
  States {
  Spawn:
    PLAY A -1
    Stop
  See:
    PLAY A 4
    Loop
  }
}
"""
# A pick-up counts only if some action of its Pickup state succeeds; this one changes nothing.
_THING = """
actor {name} : CustomInventory {number} {{
  Radius 24
  Height 48
  Inventory.PickupMessage ""
  Inventory.PickupSound ""
  +INVENTORY.NOSCREENFLASH
  States {{
  Spawn:
    {sprite} A -1
    Stop
  Pickup:
    TNT1 A 0 A_SetTranslucent(1)
    Stop
  }}
}}
"""
_MAPINFO = f'\nmap {MAP} "Keys and doors" {{ sky1 = "{_SKY}", 0 }}\n'
_KEYCONF = "clearplayerclasses\naddplayerclass KDPlayer\n"


class Wad:
    """A WAD file with one map of up to ``capacity`` bytes of text, which ``put`` replaces in place.

    Replacing the text in the file that a running engine has open takes a tenth of the time of a new engine.
    """

    def __init__(self, path: Path, capacity: int) -> None:
        self.path, self.capacity = path, capacity
        lumps = [*_resources(), (MAP, b""), ("TEXTMAP", b" " * capacity), ("BEHAVIOR", behavior()), ("ENDMAP", b"")]
        directory, data = b"", b""
        for name, lump in lumps:
            if name == "TEXTMAP":
                self._offset = 12 + len(data)
            directory += pack("<2i8s", 12 + len(data), len(lump), name.encode("ascii"))
            data += lump
        path.write_bytes(b"PWAD" + pack("<2i", len(lumps), 12 + len(data)) + data + directory)

    def put(self, text: bytes) -> None:
        """Make ``text`` the text of the map, padded with spaces."""
        assert len(text) <= self.capacity, "most_text() is too small"
        with self.path.open("r+b") as file:
            file.seek(self._offset)
            file.write(text.ljust(self.capacity))


def _resources() -> list[tuple[str, bytes]]:
    """Everything but the map: actors, settings, sprites between their markers, textures between theirs."""
    numbered = list(enumerate(COLOURS, 1))
    y, x = np.indices((64, 64))
    floor = _ground(np.where((x // 32 + y // 32) % 2, 104, 128), (1.0, 1.0, 0.92))  # squares, so that motion shows
    pit = _ground(np.where(y // 16 % 2, 120, 140), (1.0, 0.75, 0.5))  # brown stripes, on which all colours show
    actors = [_THING.format(name=f"KDKey{i}", number=_KEY_TYPE + i, sprite=f"KDK{i}") for i, _ in numbered]
    actors.append(_THING.format(name="KDGoal", number=_GOAL_TYPE, sprite="KDGO"))
    return [
        ("DECORATE", (_PLAYER + "".join(actors)).encode("ascii")),
        ("MAPINFO", _MAPINFO.encode("ascii")),
        ("KEYCONF", _KEYCONF.encode("ascii")),
        ("S_START", b""),
        *((f"KDK{i}A0", png(key_picture(colour), (16, 44))) for i, colour in numbered),
        ("KDGOA0", png(_goal_picture(), (20, 58))),
        ("S_END", b""),
        ("TX_START", b""),
        (_FLOOR, png(floor)),
        (_PIT, png(pit)),
        (_SKY, png(_sky_picture())),
        *((f"{_FENCE}{i}", png(_fence_picture(colour))) for i, colour in numbered),
        ("TX_END", b""),
    ]


# Scripts, in the engine's bytecode (ACS, format 0). No compiler for it can be installed with pip. Scripts report
# through global variables, which the engine shows as USER1 to USER5: held colour, doors opened and keys taken (bit
# masks), goal reached, number of the held key + 1.

_HELD, _OPENED, _TAKEN, _GOAL, _HELD_KEY = 1, 2, 3, 4, 5
_KEY_SCRIPT, _DOOR_SCRIPT, _GOAL_SCRIPT = 1, 2, 3  # arguments: (colour, key); (colour, door, line id); none
_ON_OPEN_SCRIPT = 1004  # a number above 1000 runs as a map opens
_TERM, _PUSH, _EQ, _ADD, _ARGUMENT, _AND = 1, 3, 19, 14, 28, 72
_SHIFT, _UNLESS, _TEXTURE, _BLOCKING = 76, 79, 97, 98
_SET, _GET, _STRING, _OR = 181, 182, 225, 308


def behavior() -> bytes:
    """The BEHAVIOR lump: code, directory of scripts, strings."""

    def clear(*variables: int) -> list[int]:
        return [word for variable in variables for word in (_PUSH, 0, _SET, variable)]

    bit = [_PUSH, 1, _ARGUMENT, 1, _SHIFT]  # 1 << the number of the key or door
    on_open = [*clear(_HELD, _OPENED, _TAKEN, _GOAL, _HELD_KEY), _TERM]
    hold = [_ARGUMENT, 0, _SET, _HELD, _ARGUMENT, 1, _PUSH, 1, _ADD, _SET, _HELD_KEY]  # another key in hand is lost
    key = [*hold, *bit, _OR, _TAKEN, _TERM]
    goal = [_PUSH, 1, _SET, _GOAL, _TERM]

    # A closed door whose colour is held stops blocking, loses its texture on both sides and spends the key.
    is_closed = [_GET, _OPENED, *bit, _AND, _PUSH, 0, _EQ]
    is_held = [_GET, _HELD, _ARGUMENT, 0, _EQ]
    opening = [_ARGUMENT, 2, _PUSH, 0, _BLOCKING]
    for side in (0, 1):
        opening += [_ARGUMENT, 2, _PUSH, side, _PUSH, 1, _PUSH, 0, _STRING, _TEXTURE]  # 1: the middle texture
    opening += [*bit, _OR, _OPENED, *clear(_HELD, _HELD_KEY)]
    door_at = 8 + 4 * (len(on_open) + len(key))
    end = door_at + 4 * (len(is_closed) + 2 + len(is_held) + 2 + len(opening))
    door = [*is_closed, _UNLESS, end, *is_held, _UNLESS, end, *opening, _TERM]

    scripts = ((_ON_OPEN_SCRIPT, 0, on_open), (_KEY_SCRIPT, 2, key), (_DOOR_SCRIPT, 3, door), (_GOAL_SCRIPT, 0, goal))
    code: list[int] = []
    table = [len(scripts)]
    for number, arguments, words in scripts:
        table += [number, 8 + 4 * len(code), arguments]  # 8 bytes of header come before the code
        code += words
    directory_at = 8 + 4 * len(code)
    text_at = directory_at + 4 * len(table) + 8  # after the count of strings and the offset of the only one
    words = [*code, *table, 1, text_at]
    return b"ACS\0" + pack(f"<i{len(words)}i", directory_at, *words) + b"-\0"  # "-" names no texture


# The map of a puzzle as text (UDMF, namespace zdoom). Walls are invisible: blocking lines with a pit behind. A door
# cell has a trigger line on both sides and a fence in the middle, which the door script takes away.

_PLAYER_START, _EXECUTE, _HORIZON = 1, 84, 9
_INSIDE, _OUTSIDE = 0, 1  # sectors
_CEILING, _PIT_DEPTH, _MARGIN = 128, 64, 400
# The sides of a cell, clockwise: the cell beyond, the corner where the side begins, and its direction.
_SIDES = (((-1, 0), (0, 0), (0, 1)), ((0, 1), (0, 1), (1, 0)), ((1, 0), (1, 1), (0, -1)), ((0, -1), (1, 0), (-1, 0)))


def textmap(puzzle: Puzzle) -> bytes:
    """The TEXTMAP lump of a puzzle."""
    vertices: dict[Point, int] = {}
    sides: list[str] = []
    lines: list[str] = []

    def add(segment: Segment, flags: str, front: str, back: str | None = None) -> None:
        """One line; its front is on the right of the way from start to end."""
        v1, v2 = (vertices.setdefault(point, len(vertices)) for point in segment)
        numbers = f"sidefront={len(sides)};" + (f"sideback={len(sides) + 1};" if back is not None else "")
        sides.extend([front] if back is None else [front, back])
        lines.append(f"linedef{{v1={v1};v2={v2};{numbers}{flags}}}")

    inside = f"sector={_INSIDE};"
    for wall in walls(puzzle):
        add(wall, "blocking=true;twosided=true;", inside, f'sector={_OUTSIDE};texturebottom="{_PIT}";')
    right, top = puzzle.width * CELL + _MARGIN, puzzle.height * CELL + _MARGIN
    corners: list[Point] = [(-_MARGIN, -_MARGIN), (-_MARGIN, top), (right, top), (right, -_MARGIN)]
    for border in zip(corners, corners[1:] + corners[:1], strict=True):
        add(border, f"blocking=true;special={_HORIZON};", f'sector={_OUTSIDE};texturemiddle="{_PIT}";')
    for index, door in enumerate(puzzle.doors):
        first, middle, last = _crossings(door)
        fence = f'{inside}texturemiddle="{_FENCE}{door.colour}";'
        add(middle, f"id={index + 1};blocking=true;twosided=true;dontpegbottom=true;", fence, fence)
        script = f"arg0={_DOOR_SCRIPT};arg1={door.colour};arg2={index};arg3={index + 1};"
        flags = f"twosided=true;special={_EXECUTE};{script}playercross=true;repeatspecial=true;"
        add(first, flags, inside, inside)
        add(last, flags, inside, inside)
    text = ['namespace="zdoom";', *_things(puzzle)]
    text += [f"vertex{{x={float(x)};y={float(y)};}}" for x, y in vertices]
    text += lines
    text += [f"sidedef{{{side}}}" for side in sides]
    text += [
        f'sector{{heightfloor={floor};heightceiling={_CEILING};texturefloor="{texture}";'
        'textureceiling="F_SKY1";lightlevel=255;}'
        for floor, texture in ((0, _FLOOR), (-_PIT_DEPTH, _PIT))
    ]
    return "\n".join([*text, ""]).encode("ascii")


def most_text(options: PuzzleOptions) -> int:
    """Bytes that no map of these options exceeds: as many as if every room and every door were there, and more."""
    rooms = options.rows * options.columns
    doors = options.rows * (options.columns - 1) + options.columns * (options.rows - 1)
    return 4096 + 1536 * rooms + 2048 * doors


def walls(puzzle: Puzzle) -> list[Segment]:
    """The outlines of rooms and door cells in units of the engine, the open side on the right of each."""
    doors, open_cells = {door.cell for door in puzzle.doors}, puzzle.open_cells
    segments: list[Segment] = []
    edges: set[tuple[Cell, Cell]] = set()  # start and direction of the sides of room cells
    for x, y in sorted(open_cells):
        for (beyond_x, beyond_y), (start_x, start_y), (dx, dy) in _SIDES:
            if (x + beyond_x, y + beyond_y) in open_cells:
                continue
            start = x + start_x, y + start_y
            if (x, y) in doors:  # the fence ends in the middle of these walls: they are split there
                middle = start[0] + dx / 2, start[1] + dy / 2
                segments += [(start, middle), (middle, (start[0] + dx, start[1] + dy))]
            else:
                edges.add((start, (dx, dy)))
    for start, (dx, dy) in sorted(edges):  # those that go on in the same direction become one: fewer lines load faster
        if ((start[0] - dx, start[1] - dy), (dx, dy)) not in edges:
            end = start
            while (end, (dx, dy)) in edges:
                end = end[0] + dx, end[1] + dy
            segments.append((start, end))
    return [((x0 * CELL, y0 * CELL), (x1 * CELL, y1 * CELL)) for (x0, y0), (x1, y1) in segments]


def _crossings(door: Door) -> list[Segment]:
    """The near edge, the middle and the far edge of a door cell."""
    x, y = door.cell[0] * CELL, door.cell[1] * CELL
    steps = (0, CELL / 2, CELL)
    if door.upright:
        return [((x + step, y), (x + step, y + CELL)) for step in steps]
    return [((x, y + step), (x + CELL, y + step)) for step in steps]


def _things(puzzle: Puzzle) -> Iterator[str]:
    def thing(cell: Cell, what: str) -> str:
        x, y = centre(cell)
        return f"thing{{x={x};y={y};{what}skill1=true;skill2=true;skill3=true;skill4=true;skill5=true;single=true;}}"

    yield thing(puzzle.start, f"angle={puzzle.angle};type={_PLAYER_START};")
    for index, key in enumerate(puzzle.keys):
        call = f"special={_EXECUTE};arg0={_KEY_SCRIPT};arg1={key.colour};arg2={index};"
        yield thing(key.cell, f"type={_KEY_TYPE + key.colour};{call}")
    yield thing(puzzle.goal, f"type={_GOAL_TYPE};special={_EXECUTE};arg0={_GOAL_SCRIPT};")


# Pictures, drawn in code.


def png(picture: Picture, anchor: tuple[int, int] | None = None) -> bytes:
    """A PNG file of an RGBA picture; ``anchor`` is the pixel that stands on a thing's position."""
    height, width, _ = picture.shape
    rows = np.zeros((height, 1 + width * 4), np.uint8)  # each row begins with its filter: none
    rows[:, 1:] = picture.reshape(height, -1)
    parts = [(b"IHDR", pack(">2I5B", width, height, 8, 6, 0, 0, 0))]
    if anchor is not None:
        parts.append((b"grAb", pack(">2i", *anchor)))
    parts += [(b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b"")]
    chunks = (pack(">I", len(data)) + name + data + pack(">I", zlib.crc32(name + data)) for name, data in parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _ground(grey: NDArray[np.generic], tint: tuple[float, float, float]) -> Picture:
    picture = np.full((*grey.shape, 4), 255, np.uint8)
    picture[..., :3] = grey[..., None] * np.array(tint)
    return picture


def _sky_picture() -> Picture:
    """Pale blue over hills; its 1024 pixels go once round, so that every direction looks different."""
    height, width = 128, 1024
    turn = 2 * np.pi * np.arange(width) / width
    ridge = 92 - 14 * np.sin(turn) - 9 * np.sin(2 * turn + 1) - 5 * np.sin(7 * turn)  # (width,) first row of a hill
    picture = np.full((height, width, 4), (171, 171, 255, 255), np.uint8)
    picture[np.arange(height)[:, None] >= ridge] = (111, 111, 143, 255)
    return picture


def _fence_picture(colour: str) -> Picture:
    """Bars and two rails, see-through between them."""
    picture = np.zeros((96, 64, 4), np.uint8)
    x, y = np.arange(64)[None, :], np.arange(96)[:, None]
    picture[(x % 16 < 6) | (y < 10) | ((y >= 56) & (y < 66))] = (*RGB[colour], 255)
    return picture


def key_picture(colour: str) -> Picture:
    """A ring, a shaft and two teeth on a grey rim, 32 x 40, standing on its lower edge."""
    y, x = np.indices((40, 32))
    ring = np.hypot(x - 15.5, y - 10.5)
    shape = ((ring < 10) & (ring > 4)) | ((abs(x - 15.5) < 3) & (y > 18) & (y < 38))
    shape |= (x > 15) & (x < 26) & (((y > 25) & (y < 30)) | ((y > 32) & (y < 37)))
    rim = shape.copy()
    for shift, axis in ((1, 0), (-1, 0), (1, 1), (-1, 1)):
        rim |= np.roll(shape, shift, axis)
    picture = np.zeros((40, 32, 4), np.uint8)
    picture[rim] = (120, 120, 120, 255)
    picture[shape] = (*RGB[colour], 255)
    return picture


def _goal_picture() -> Picture:
    """A golden diamond, 40 x 56."""
    y, x = np.indices((56, 40))
    inside = abs(x - 19.5) / 20 + abs(y - 27.5) / 28
    picture = np.zeros((56, 40, 4), np.uint8)
    picture[inside < 1] = (*GOAL_COLOUR, 255)
    picture[inside < 0.45] = (255, 255, 224, 255)
    return picture
