"""A stand-in for ``deepmind_lab``: its documented Python API, as strict as the real one, around a small world.

The world follows the level's rules: a map from each episode's seed, 60 frames a second, walls and fences that stop
a player 30 units wide, keys and doors that pay 1, a goal that pays 50 and ends the episode 0.2 seconds later, and
60 seconds in all. What really happened is kept in ``truth`` for tests to compare with.
"""

import operator
from math import cos, radians, sin
from types import ModuleType
from typing import ClassVar

import numpy as np

from secret_rl.envs.keys_doors import COLOURS, PRESETS, generate
from secret_rl.envs.keys_doors.puzzle import CELL, Status, centre

LEVEL = "contributed/dmlab30/rooms_keys_doors_puzzle"
BORDER = CELL
"""Lab's maps have outer walls of two cells, puzzles here of one."""
HALF = 15  # of the player's width
PACE = 320 / 60  # units a frame
TURN = 0.11  # degrees a pixel
FENCE = 3  # half of its thickness
PAINTS = {"red": (1, 0, 0), "green": (0, 1, 0), "blue": (0, 0, 1), "white": (1, 1, 1), "black": (0, 0, 0)}
ACTIONS = [
    ("LOOK_LEFT_RIGHT_PIXELS_PER_FRAME", -512, 512),
    ("LOOK_DOWN_UP_PIXELS_PER_FRAME", -512, 512),
    ("STRAFE_LEFT_RIGHT", -1, 1),
    ("MOVE_BACK_FORWARD", -1, 1),
    ("FIRE", 0, 1),
    ("JUMP", 0, 1),
    ("CROUCH", 0, 1),
]
SETTINGS = {"width", "height", "fps", "levelDirectory", "appendCommand", "mixerSeed"}
NO_HUD = "DEBUG.CAMERA.PLAYER_VIEW_NO_RETICLE"
OBSERVATIONS = {"RGB_INTERLEAVED", NO_HUD, "DEBUG.POS.TRANS", "DEBUG.POS.ROT"}


class Lab:
    """``deepmind_lab.Lab``: the part of its API that the environment uses."""

    made: ClassVar[list["Lab"]] = []
    puzzle_options = PRESETS["dmlab-like"]
    seconds = 60.0
    fail_at: ClassVar[int | None] = None  # a frame at which the engine fails

    def __init__(self, level, observations, config=None, renderer="software", level_cache=None):
        config = {} if config is None else config
        if type(observations) is not list or not isinstance(config, dict):
            raise TypeError("argument 2 must be list, argument 3 dict")
        if not all(isinstance(word, str) for pair in config.items() for word in pair):
            raise TypeError("bad argument type for built-in operation")
        if renderer not in ("", "software", "hardware"):
            raise RuntimeError(f'Failed to set renderer must be "hardware" or "software" actual "{renderer}"!')
        if level != LEVEL:
            raise RuntimeError(f"Invalid levelName flag '{level}'")
        if unknown := config.keys() - SETTINGS:
            raise RuntimeError(f"Failed to init environment - unknown settings {sorted(unknown)}")
        if unknown := set(observations) - OBSERVATIONS:
            raise ValueError(f"Unknown observation '{unknown}'.")
        self.level, self.config, self.renderer, self.level_cache = level, dict(config), renderer, level_cache
        self.width, self.height = int(config.get("width", "320")), int(config.get("height", "240"))
        self._fps = int(config.get("fps", "60"))
        self._asked = list(observations)
        self._running = self.closed = False
        self.resets: list[tuple[int, int | None]] = []
        Lab.made.append(self)

    # ---- the documented API ----

    def reset(self, episode=-1, seed=None):
        assert not self.closed, "the real one crashes"
        operator.index(episode)
        if not isinstance(seed, int):
            raise ValueError(f"'seed' must be int or None, was '{type(seed).__name__}'.")
        assert -(2**31) <= seed < 2**31, "the real one keeps the lower 32 bits"
        self.resets.append((episode, seed))
        self.begin(generate(self.puzzle_options, seed % 2**31))
        return True

    def num_steps(self):
        return self._frames

    def is_running(self):
        return self._running

    def step(self, action, num_steps=1):
        if not isinstance(action, np.ndarray):
            raise TypeError(f"argument 1 must be numpy.ndarray, not {type(action).__name__}")
        num_steps = operator.index(num_steps)
        if not self._running:
            raise RuntimeError("Environment in wrong status to advance.")
        if action.shape != (len(ACTIONS),) or action.dtype != np.intc:
            raise ValueError(f"action must have shape ({len(ACTIONS)}) and dtype np.intc")
        for value, (name, low, high) in zip(action.tolist(), ACTIONS, strict=True):
            assert low <= value <= high, f"{name} {value} is out of range: undefined behaviour"
        assert num_steps > 0, "undefined behaviour"
        reward = 0.0
        for _ in range(num_steps):
            if self._frames == self.fail_at:
                self._running = False
                raise ValueError('Failed to advance environment "out of memory"')
            reward += self._frame(*action.tolist())
            self._frames += 1
            time = self._frames / self._fps
            if time >= self.seconds or (self._goal_time is not None and time > self._goal_time + 0.2):
                self._running = False
                break
        return reward

    def action_spec(self):
        assert not self.closed, "the real one crashes"
        return [{"name": name, "min": low, "max": high} for name, low, high in ACTIONS]

    def observations(self):
        if not self._running:
            raise RuntimeError("Environment in wrong status for call to observations()")
        return {name: self._observe(name) for name in self._asked}

    def close(self):
        was_open, self.closed, self._running = not self.closed, True, False
        return was_open

    # ---- the world ----

    @property
    def status(self):
        """The true situation, as planners take it."""
        return Status(self.held, self.taken, self.opened)

    @property
    def place(self):
        """The true position in the puzzle's coordinates."""
        return self.x - BORDER, self.y - BORDER

    def begin(self, puzzle):
        """Start an episode on this puzzle."""
        self.puzzle, self._open_cells = puzzle, puzzle.open_cells
        self.x, self.y = (side + BORDER for side in centre(puzzle.start))
        self.yaw = float(puzzle.angle)
        self.held, self.taken, self.opened = -1, 0, 0
        self._goal_time = None
        self._frames = 0
        self.truth: list[tuple[str, int]] = []
        self._running = True

    def _frame(self, look, _look_up, strafe, move, _fire, _jump, _crouch):
        assert strafe == 0, "the scripts here never strafe"
        self.yaw = (self.yaw - TURN * look + 180) % 360 - 180
        dx, dy = (PACE * move * turned(radians(self.yaw)) for turned in (cos, sin))
        if self._free(self.x + dx, self.y):
            self.x += dx
        if self._free(self.x, self.y + dy):
            self.y += dy
        return self._touch()

    def _free(self, x, y):
        """Whether the player fits at a place: in no wall and in no closed fence."""
        x, y = x - BORDER, y - BORDER
        corners = [(x + i * HALF, y + j * HALF) for i in (-1, 1) for j in (-1, 1)]
        if any((a // CELL, b // CELL) not in self._open_cells for a, b in corners):
            return False
        for door in self.puzzle.closed_doors(self.status):
            middle_x, middle_y = centre(door.cell)
            across, along = (x - middle_x, y - middle_y) if door.upright else (y - middle_y, x - middle_x)
            if abs(across) < HALF + FENCE and abs(along) < CELL / 2 + HALF:
                return False
        return True

    def _touch(self):
        reward = 0.0
        x, y = self.place
        for index, key in enumerate(self.puzzle.keys):
            if not self.taken >> index & 1 and _reaches(centre(key.cell), x, y):
                self.taken, self.held = self.taken | 1 << index, index
                self.truth.append(("key", key.colour))
                reward += 1.0
        for index, door in enumerate(self.puzzle.doors):
            middle_x, middle_y = centre(door.cell)
            inside = max(abs(x - middle_x), abs(y - middle_y)) < CELL / 2 + HALF + 1  # Quake reaches 1 unit further
            fits = self.held >= 0 and self.puzzle.keys[self.held].colour == door.colour
            if inside and fits and not self.opened >> index & 1:
                self.opened, self.held = self.opened | 1 << index, -1
                self.truth.append(("door", door.colour))
                reward += 1.0
        if self._goal_time is None and _reaches(centre(self.puzzle.goal), x, y):
            self._goal_time = (self._frames + 1) / self._fps
            self.truth.append(("goal", 0))
            reward += 50.0
        return reward

    def _observe(self, name):
        if name == "DEBUG.POS.TRANS":
            return np.array([self.x, self.y, 24.125])
        if name == "DEBUG.POS.ROT":
            return np.array([0.0, self.yaw, 0.0])
        picture = self._view()
        if name == NO_HUD:
            return np.ascontiguousarray(picture.transpose(2, 0, 1))
        if self.held >= 0:  # the display, laid out for 640 x 480
            sides = ((self.width, 640), (self.height, 480))
            columns, rows = (slice(12 * side // full, 60 * side // full) for side, full in sides)
            picture[rows, columns] = np.array(PAINTS[COLOURS[self.puzzle.keys[self.held].colour - 1]]) * 255
        picture[self.height // 2, self.width // 2] = 200  # the cross-hair
        return picture

    def _view(self):
        """A sky and a floor that change with the place and the direction."""
        rows, columns = np.mgrid[: self.height, : self.width]
        bearing = columns * 90 / self.width + self.yaw
        sky = np.stack([150 + 40 * np.sin(np.radians(bearing)), 190 + 0 * rows, 250 - rows % 16], -1)
        floor = np.stack([(rows + self.x) % 120, (columns + self.y) % 120, (bearing + rows) % 90], -1)
        return np.where((rows < self.height / 2)[..., None], sky, floor).astype(np.uint8)


def _reaches(thing, x, y):
    """Whether a player at (x, y) picks up a thing."""
    return -50 < x - thing[0] < 44 and abs(y - thing[1]) < 36


def module():
    """A module to put in the place of ``deepmind_lab``, with a ``Lab`` of its own."""
    fake = ModuleType("deepmind_lab")
    fake.Lab = type("Lab", (Lab,), {})
    Lab.made.clear()
    return fake
