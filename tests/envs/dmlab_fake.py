"""A stand-in for ``deepmind_lab``: the part of its Python API that the environment uses, as strict as the real one.

Its level is an open field with 60 frames a second. What happens when is a script that the episode's seed decides: keys
and doors that pay 1, a goal that pays 50 and ends the episode 0.2 seconds later. After 60 seconds it ends anyway.
"""

import operator
from math import cos, radians, sin
from types import ModuleType
from typing import ClassVar

import numpy as np

LEVEL = "contributed/dmlab30/rooms_keys_doors_puzzle"
PACE = 320 / 60  # units a frame
TURN = 0.11  # degrees a pixel
PAINTS = ((255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255), (0, 0, 0))
LOOKS = ("LOOK_LEFT_RIGHT_PIXELS_PER_FRAME", "LOOK_DOWN_UP_PIXELS_PER_FRAME")
MOVES, BUTTONS = ("STRAFE_LEFT_RIGHT", "MOVE_BACK_FORWARD"), ("FIRE", "JUMP", "CROUCH")
LOW, HIGH = [-512, -512, -1, -1, 0, 0, 0], [512, 512, 1, 1, 1, 1, 1]  # of each
SETTINGS = {"width", "height", "fps", "levelDirectory", "appendCommand", "mixerSeed"}
NO_HUD = "DEBUG.CAMERA.PLAYER_VIEW_NO_RETICLE"
OBSERVATIONS = {"RGB_INTERLEAVED", NO_HUD, "DEBUG.POS.TRANS", "DEBUG.POS.ROT"}


def random_script(seed):
    """Frame -> event (kind, colour): keys that replace each other, doors that take them, some at once, and a goal."""
    rng = np.random.default_rng(seed)
    script, held, frame = {}, 0, 0
    while frame < 1500:
        frame += int(rng.integers(10, 80))
        for at in (frame, frame + 1) if rng.random() < 0.3 else (frame,):
            kind = "door" if held and (at > frame or rng.random() < 0.5) else "key"
            if at > frame and kind == script[frame][0]:
                break  # two keys are never so close
            script[at] = (kind, held if kind == "door" else int(rng.integers(1, 6)))
            held = 0 if kind == "door" else script[at][1]
    return {**script, frame + 10: ("goal", 0)}


class Lab:
    """``deepmind_lab.Lab``."""

    made: ClassVar[list["Lab"]] = []
    script = staticmethod(random_script)
    seconds = 60.0
    fail_at: ClassVar[int | None] = None  # a frame at which the engine fails

    def __init__(self, level, observations, config, renderer, level_cache=None):
        assert type(observations) is list and isinstance(config, dict)
        assert all(isinstance(word, str) for pair in config.items() for word in pair)
        assert renderer in ("software", "hardware") and not config.keys() - SETTINGS
        assert not set(observations) - OBSERVATIONS
        if level != LEVEL:
            raise RuntimeError(f"Invalid levelName flag '{level}'")
        self.level, self.config, self.renderer, self.level_cache = level, dict(config), renderer, level_cache
        self.width, self.height, self._asked = int(config["width"]), int(config["height"]), observations
        self._running = self.closed = False
        self.resets: list[tuple[int, int | None]] = []
        Lab.made.append(self)

    def reset(self, episode, seed):
        assert not self.closed, "the real one crashes"
        assert isinstance(episode, int) and isinstance(seed, int)
        assert -(2**31) <= seed < 2**31, "the real one keeps the lower 32 bits"
        self.resets.append((episode, seed))
        self.events = self.script(seed)
        self.x, self.y, self.yaw, self.held = 500.0 + seed % 100, 500.0, 90.0 * (seed % 4) - 180, 0
        self.frames, self._ends = 0, self.seconds
        self.truth: list[tuple[str, int]] = []
        self._running = True
        return True

    def is_running(self):
        return self._running

    def step(self, action, num_steps):
        assert self._running, "wrong status to advance"
        assert action.shape == (7,) and action.dtype == np.intc
        assert (action >= LOW).all() and (action <= HIGH).all() and operator.index(num_steps) > 0, "undefined behaviour"
        reward = 0.0
        for _ in range(num_steps):
            if self.frames == self.fail_at:
                self._running = False
                raise ValueError('Failed to advance environment "out of memory"')
            reward += self._frame(int(action[0]), int(action[3]))
            if self.frames / 60 >= self._ends:
                self._running = False
                break
        return reward

    def action_spec(self):
        assert not self.closed, "the real one crashes"
        parts = zip((*LOOKS, *MOVES, *BUTTONS), LOW, HIGH, strict=True)
        return [{"name": name, "min": low, "max": high} for name, low, high in parts]

    def observations(self):
        assert self._running, "wrong status for call to observations()"
        return {name: self._observe(name) for name in self._asked}

    def close(self):
        was_open, self.closed, self._running = not self.closed, True, False
        return was_open

    def _frame(self, look, move):
        self.yaw = (self.yaw - TURN * look + 180) % 360 - 180
        self.x += PACE * move * cos(radians(self.yaw))
        self.y += PACE * move * sin(radians(self.yaw))
        self.frames += 1
        if self.frames not in self.events:
            return 0.0
        kind, colour = self.events[self.frames]
        self.truth.append((kind, colour))
        if kind == "goal":
            self._ends = min(self.seconds, self.frames / 60 + 0.2)
            return 50.0
        self.held = colour if kind == "key" else 0
        return 1.0

    def _observe(self, name):
        if name.startswith("DEBUG.POS"):
            return np.array([self.x, self.y, 24.125] if name.endswith("TRANS") else [0.0, self.yaw, 0.0])
        rows, columns = np.mgrid[: self.height, : self.width]  # a view that changes with position and direction
        picture = np.stack([(rows + self.x) % 120, (columns + self.y) % 120, (columns + self.yaw) % 90], -1)
        picture = (60 + picture).astype(np.uint8)  # like no paint
        if name == NO_HUD:
            return np.ascontiguousarray(picture.transpose(2, 0, 1))
        if self.held:  # the display, laid out for 640 x 480
            sides = ((self.width, 640), (self.height, 480))
            columns, rows = (slice(12 * side // full, 60 * side // full) for side, full in sides)
            picture[rows, columns] = PAINTS[self.held - 1]
        picture[self.height // 2, self.width // 2] = 200  # the cross-hair
        return picture


def module():
    """A module to put in the place of ``deepmind_lab``, with a ``Lab`` of its own."""
    fake = ModuleType("deepmind_lab")
    fake.Lab = type("Lab", (Lab,), {})
    Lab.made.clear()
    return fake
