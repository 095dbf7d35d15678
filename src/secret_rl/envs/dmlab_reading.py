"""What happened in DeepMind Lab's keys-and-doors level, read from what it pays and what it shows.

The level pays 1 for a key and for a door alike, and emits no event that says which. But it paints the colour of the
held key as a square into the picture that has its head-up display: a square after a payment is a new key, and none is
a key that a door has taken.
"""

from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from secret_rl.envs.keys_doors.puzzle import COLOURS

KEY_OR_DOOR, GOAL = 1, 50
"""What the level pays."""
UNSEEN = len(COLOURS) + 1
"""Stands for the colour of a key that was taken and spent between two pictures."""
LEAST_SIZE = (64, 48)
"""Smallest picture, width and height, whose square has some pixels to read."""

_SCREEN = (640, 480)  # what the square is placed on, stretched to the size of the picture
_SQUARE = (20, 52)  # its first and last column and row there, 8 off its edges
_PAINTS = {
    "red": (255, 0, 0),
    "green": (0, 255, 0),
    "blue": (0, 0, 255),
    "white": (255, 255, 255),
    "black": (0, 0, 0),
}
_TOLERANCE = 24  # off the paint, in every channel of every pixel: nothing else in the level is that even


class Happened(NamedTuple):
    """The events of one step: the colours of a key taken and of a door opened (0: none), and whether the goal was."""

    key: int
    door: int
    goal: bool


class Reading:
    """Follows one episode: the level's rules, what it pays and the key it shows tell what happened.

    >>> reading = Reading()
    >>> reading.after(paid=1.0, shown=3), reading.held
    (Happened(key=3, door=0, goal=False), 3)
    >>> reading.after(paid=1.0, shown=0), reading.held
    (Happened(key=0, door=3, goal=False), 0)
    """

    def __init__(self) -> None:
        self.held = 0
        """Colour of the held key, 0 for none."""

    def after(self, paid: float, shown: int | None) -> Happened:
        """The events of a step that paid ``paid`` and left the key ``shown`` (0: none) on the screen.

        ``shown`` is None where the level showed nothing because it was over: then only the goal is told.
        """
        goal = paid >= GOAL
        events = round(paid - GOAL * goal) // KEY_OR_DOOR
        if paid != GOAL * goal + KEY_OR_DOOR * events or not 0 <= events <= 2:
            raise RuntimeError(
                f"the level paid {paid} in one step, but a keys-and-doors level pays {KEY_OR_DOOR} for a key or a door "
                f"and {GOAL} for the goal: use the level that DeepMind Lab brings, or one with its rewards"
            )
        if events == 0 or shown is None:
            return Happened(0, 0, goal)
        before, self.held = self.held, shown
        if shown:  # with two events, a door took the key before
            return Happened(shown, before if events == 2 else 0, goal)
        if events == 2:  # the key lay beside its door
            return Happened(UNSEEN, UNSEEN, goal)
        if before:
            return Happened(0, before, goal)
        raise RuntimeError(
            "the level paid for a key, for nothing was held that opens a door, but shows no key in the upper left of "
            "its picture: use the level that DeepMind Lab brings, or one that paints the held key as it does"
        )


def shown_key(picture: NDArray[np.uint8]) -> int:
    """The colour of the square in the upper left of a picture (height, width, RGB) with the display; 0 for none."""
    height, width, _ = picture.shape
    rows, columns = (
        slice(ceil(_SQUARE[0] * side / screen), _SQUARE[1] * side // screen)
        for side, screen in ((height, _SCREEN[1]), (width, _SCREEN[0]))
    )
    square = picture[rows, columns].astype(np.int16)
    for number, colour in enumerate(COLOURS, 1):
        if np.abs(square - np.array(_PAINTS[colour], np.int16)).max() <= _TOLERANCE:
            return number
    return 0
