"""The scripts of every map, assembled by hand into the engine's bytecode (ACS, format 0).

Scripts speak to the outside through global variables, which the engine shows as USER1 to USER5. No compiler for
them can be installed with pip, and these are short enough to write down word by word.
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
_HEADER = 8  # bytes before the code: the mark and the place of the directory


def behavior() -> bytes:
    """The BEHAVIOR lump: code, directory of scripts, strings."""
    code: list[int] = []
    directory: list[int] = []
    for number, arguments, words_at in (
        (_RESET_SCRIPT + _ON_OPEN, 0, _reset),
        (KEY_SCRIPT, 2, _key),
        (DOOR_SCRIPT, 3, _door),
        (GOAL_SCRIPT, 0, _goal),
    ):
        address = _HEADER + 4 * len(code)
        directory += [number, address, arguments]
        code += words_at(address)
    table = [len(directory) // 3, *directory]
    directory_at = _HEADER + 4 * len(code)
    text_at = directory_at + 4 * len(table) + 8  # after the count of strings and the place of the only one
    words = [*code, *table, 1, text_at]
    return b"ACS\0" + pack(f"<i{len(words)}i", directory_at, *words) + b"-\0"  # "-" names no texture


def _reset(_address: int) -> list[int]:
    """As a map opens, nothing has happened."""
    return [*_clear(HELD, OPENED, TAKEN, GOAL, HELD_KEY), _TERM]


def _key(_address: int) -> list[int]:
    """Hold the key: another one in hand is lost."""
    held = [_ARGUMENT, 0, _SET, HELD, _ARGUMENT, 1, _PUSH, 1, _ADD, _SET, HELD_KEY]
    return [*held, *_bit(1), _OR, TAKEN, _TERM]


def _door(address: int) -> list[int]:
    """Open the door and spend the key, if its colour is held and the door is still closed."""
    is_closed = [_GET, OPENED, *_bit(1), _AND, _PUSH, 0, _EQ]
    is_held = [_GET, HELD, _ARGUMENT, 0, _EQ]
    unblock = [_ARGUMENT, 2, _PUSH, 0, _BLOCKING]
    vanish = []
    for side in (0, 1):
        vanish += [_ARGUMENT, 2, _PUSH, side, _PUSH, _MIDDLE, _PUSH, 0, _STRING, _TEXTURE]
    opening = [*unblock, *vanish, *_bit(1), _OR, OPENED, *_clear(HELD, HELD_KEY)]
    end = address + 4 * (len(is_closed) + 2 + len(is_held) + 2 + len(opening))
    return [*is_closed, _UNLESS, end, *is_held, _UNLESS, end, *opening, _TERM]


def _goal(_address: int) -> list[int]:
    return [_PUSH, 1, _SET, GOAL, _TERM]


def _clear(*variables: int) -> list[int]:
    return [word for variable in variables for word in (_PUSH, 0, _SET, variable)]


def _bit(argument: int) -> list[int]:
    """1 shifted by a script argument."""
    return [_PUSH, 1, _ARGUMENT, argument, _SHIFT]
