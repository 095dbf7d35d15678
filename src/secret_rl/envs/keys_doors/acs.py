"""The three scripts of every map, assembled by hand into the engine's bytecode (ACS, format 0).

Scripts speak to the outside through global variables, which the engine shows as USER1 to USER5.
"""

from struct import pack

HELD, OPENED, TAKEN, GOAL, HELD_KEY = 1, 2, 3, 4, 5
"""Global variables: held colour, doors opened and keys taken (bit masks), goal reached, held key's number + 1."""
KEY_SCRIPT, DOOR_SCRIPT, GOAL_SCRIPT = 1, 2, 3
"""Arguments: (colour, key); (colour, door, line id); none."""

_RESET_SCRIPT, _ON_OPEN = 4, 1000  # the directory adds 1000 to the number of a script that runs as a map opens
_TERM, _PUSH, _EQ, _ADD, _ARGUMENT, _AND = 1, 3, 19, 14, 28, 72
_SHIFT, _UNLESS, _TEXTURE, _BLOCKING = 76, 79, 97, 98
_SET, _GET, _STRING, _OR = 181, 182, 225, 308
_MIDDLE = 1  # which part of a wall SetLineTexture paints


def behavior() -> bytes:
    """The BEHAVIOR lump."""
    code = b""
    directory = []
    for number, arguments, words in (
        (_RESET_SCRIPT + _ON_OPEN, 0, [*_clear(HELD, OPENED, TAKEN, GOAL, HELD_KEY), _TERM]),
        (KEY_SCRIPT, 2, _key()),
        (DOOR_SCRIPT, 3, []),
        (GOAL_SCRIPT, 0, [_PUSH, 1, _SET, GOAL, _TERM]),
    ):
        address = 8 + len(code)
        if number == DOOR_SCRIPT:
            words = _door(address)  # its jumps hold addresses
        directory.append((number, address, arguments))
        code += pack(f"<{len(words)}i", *words)
    table = pack("<i", len(directory)) + b"".join(pack("<3i", *entry) for entry in directory)
    text_at = 8 + len(code) + len(table) + 8
    strings = pack("<2i", 1, text_at) + b"-\0"  # "-" names no texture
    return b"ACS\0" + pack("<i", 8 + len(code)) + code + table + strings


def _clear(*variables: int) -> list[int]:
    return [word for variable in variables for word in (_PUSH, 0, _SET, variable)]


def _bit(argument: int) -> list[int]:
    return [_PUSH, 1, _ARGUMENT, argument, _SHIFT]


def _key() -> list[int]:
    """Hold the key: another one in hand is lost."""
    held = [_ARGUMENT, 0, _SET, HELD, _ARGUMENT, 1, _PUSH, 1, _ADD, _SET, HELD_KEY]
    return [*held, *_bit(1), _OR, TAKEN, _TERM]


def _door(address: int) -> list[int]:
    """Open the door and spend the key, if its colour is held and the door is still closed."""
    is_closed = [_GET, OPENED, *_bit(1), _AND, _PUSH, 0, _EQ]
    is_held = [_GET, HELD, _ARGUMENT, 0, _EQ]
    clear = [
        word for side in (0, 1) for word in (_ARGUMENT, 2, _PUSH, side, _PUSH, _MIDDLE, _PUSH, 0, _STRING, _TEXTURE)
    ]
    opening = [_ARGUMENT, 2, _PUSH, 0, _BLOCKING, *clear, *_bit(1), _OR, OPENED, *_clear(HELD, HELD_KEY)]
    length = len(is_closed) + 2 + len(is_held) + 2 + len(opening)
    end = address + 4 * length
    return [*is_closed, _UNLESS, end, *is_held, _UNLESS, end, *opening, _TERM]
