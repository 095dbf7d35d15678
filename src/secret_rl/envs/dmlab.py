"""Keys and doors in DeepMind Lab itself, for those who have built it; no other file knows Lab.

The level pays 1 for a key and for a door alike, and emits no event that says which. But it paints the colour of the
held key as a square into the frame that has its head-up display: a square after a payment is a new key, and none is a
key that a door has taken.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from secret_rl.checks import check_integer
from secret_rl.envs.keys_doors.env import METADATA, Events, FirstPersonEnv, WorldOptions
from secret_rl.envs.keys_doors.puzzle import COLOURS

LEVEL = "contributed/dmlab30/rooms_keys_doors_puzzle"
FPS = 60
SEEDS = 2**31  # Lab keeps the seed of an episode as a signed 32-bit integer; so many are not negative
LEAST_SIZE = (64, 48)  # width and height of the smallest frame whose square has some pixels to read
KEY_OR_DOOR, GOAL = 1, 50  # what the level pays
UNSEEN = len(COLOURS) + 1  # stands for the colour of a key that was taken and spent between two frames

_RENDERERS = ("software", "hardware")
_WITH_HUD, _PLAIN = "RGB_INTERLEAVED", "DEBUG.CAMERA.PLAYER_VIEW_NO_RETICLE"
_POSITION, _ANGLES = "DEBUG.POS.TRANS", "DEBUG.POS.ROT"
_MOVE, _TURN = "MOVE_BACK_FORWARD", "LOOK_LEFT_RIGHT_PIXELS_PER_FRAME"  # positive: forward, to the right

_SCREEN = (640, 480)  # what the square is placed on, stretched to the size of the frame
_SQUARE = (20, 52)  # its first and last column and row there, 8 off its edges
_PAINTS = ((255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255), (0, 0, 0))  # in the order of COLOURS
_TOLERANCE = 24  # off the paint, in every channel of every pixel: nothing else in the level is that even


@dataclass(frozen=True)
class LabOptions(WorldOptions):
    """How the level is run, beside how it is seen, paid and timed; a frame is 1/60 of a second."""

    level: str = LEVEL
    """The level's script; another one must keep its rewards, its rules and the square of the held key."""
    turn_speed: int = 20
    """Pixels a frame that a mouse would move to turn; 57 are about 360 degrees a second."""
    renderer: str = "software"
    """Draw by ``software`` or by ``hardware``."""
    config: Mapping[str, str] = field(default_factory=dict)
    """More settings of Lab or of the level, such as ``{"levelDirectory": "..."}``: words to words."""
    level_cache: Any = None
    """Keeps compiled maps: an object with Lab's ``fetch(key, path)`` and ``write(key, path)``."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for index, least in enumerate(LEAST_SIZE):
            check_integer(f"size[{index}]", self.size[index], least)
        check_integer("turn_speed", self.turn_speed, 1, 512)
        if self.layout_seed is not None:
            check_integer("layout_seed", self.layout_seed, 0, SEEDS - 1)
        if not isinstance(self.level, str) or not self.level:
            raise ValueError(f"level must be the name of a level's script such as {LEVEL!r}, got {self.level!r}")
        if self.renderer not in _RENDERERS:
            raise ValueError(f"renderer must be one of {', '.join(_RENDERERS)}, got {self.renderer!r}")
        for name, value in self.config.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise TypeError(f"config takes words to words, for Lab does, got {name!r}: {value!r}")
            if name in ("width", "height", "fps"):
                raise ValueError(f"config must leave {name} out: size is an option, {FPS} frames a second are fixed")


class DMLabKeysDoorsEnv(FirstPersonEnv):
    """The paper's keys and doors (section 3) in DeepMind Lab, with the actions and infos of ``KeysDoorsEnv``.

    Lab is on no package registry: build ``deepmind_lab`` from its repository first. ``hud`` shows the agent the level's
    display, with the held key in the upper left and the clock; the view without it, the default, has no cross-hair.

    ``info`` is that of ``KeysDoorsEnv``, keys and doors as colour numbers included, though Lab itself reports no
    events: they are read from rewards and from the display. A key that is taken and spent within one step has the
    number ``UNSEEN``. ``layout_seed`` is the seed of Lab's episode; maps differ from those of ``KeysDoorsEnv`` under
    the same seed.

    The goal ends the episode as it is reached; Lab would run on for 0.2 seconds. As Lab shows nothing more once its
    own 60 seconds are up, the last of ``max_steps`` holds its action for one frame less. Should the level end earlier
    all the same, the episode is truncated with the last frame shown.

    The options are those of ``LabOptions``.
    """

    metadata = METADATA | {"render_fps": 15}

    def __init__(
        self,
        level: str = LEVEL,
        *,
        size: tuple[int, int] = (160, 120),
        frame_skip: int = 4,
        hud: bool = False,
        key_reward: float = 0.0,
        door_reward: float = 1.0,
        goal_reward: float = 50.0,
        max_steps: int = 900,
        layout_seed: int | None = None,
        turn_speed: int = 20,
        renderer: str = "software",
        config: Mapping[str, str] | None = None,
        level_cache: Any = None,
        render_mode: str | None = None,
    ) -> None:
        seen_and_paid = (size, frame_skip, hud, key_reward, door_reward, goal_reward, max_steps, layout_seed)
        options = LabOptions(*seen_and_paid, level, turn_speed, renderer, dict(config or {}), level_cache)
        super().__init__(options, _Engine(options), render_mode)

    def _begin(self, options: dict[str, Any]) -> None:
        if options:
            raise ValueError(f"reset takes no options here, got {options!r}: give them to gym.make")
        fixed = self.options.layout_seed
        self._layout_seed = int(fixed) if fixed is not None else int(self.np_random.integers(SEEDS))
        self._over = True  # should the engine fail
        self._now, self._held = self._engine.begin(self._layout_seed), 0

    def _advance(self, action: int, last: bool) -> tuple[Events, bool]:
        frames = self.options.frame_skip
        paid, shown = self._engine.step(action, frames - 1 if last and frames > 1 else frames)
        events, self._held = read_events(self._held, paid, None if shown is None else shown.key)
        self._now = self._now._replace(frame=self._now.frame.copy()) if shown is None else shown
        return events, shown is None


class _Snapshot(NamedTuple):
    """What the level shows after a step."""

    frame: NDArray[np.uint8]  # (height, width, RGB)
    position: tuple[float, float]
    angle: float
    key: int  # colour of the key on the screen, 0 for none


class _Engine:
    """One Lab, started with its first episode."""

    def __init__(self, options: LabOptions) -> None:
        self._make = _deepmind_lab().Lab
        self._options = options
        self._lab: Any = None
        self._actions: list[NDArray[np.intc]] = []

    def begin(self, seed: int) -> _Snapshot:
        """Start an episode, which the seed alone decides: for Lab each is the first."""
        if self._lab is None:
            self._start()
        self._call(self._lab.reset, episode=0, seed=seed)
        return self._snapshot()

    def step(self, action: int, frames: int) -> tuple[float, _Snapshot | None]:
        """Hold an action for some frames: what was paid, and what is shown, if the level is not over."""
        paid = float(self._call(self._lab.step, self._actions[action], num_steps=frames))
        return paid, self._snapshot() if self._lab.is_running() else None

    def close(self) -> None:
        """End the engine."""
        if self._lab is not None:
            lab, self._lab = self._lab, None
            lab.close()

    def _start(self) -> None:
        options, (width, height) = self._options, self._options.size
        names = [_WITH_HUD, _POSITION, _ANGLES] + ([] if options.hud else [_PLAIN])
        config = {**options.config, "width": str(width), "height": str(height), "fps": str(FPS)}
        cache = {} if options.level_cache is None else {"level_cache": options.level_cache}  # older Labs know none
        self._lab = self._make(options.level, names, config=config, renderer=options.renderer, **cache)
        buttons = [part["name"] for part in self._lab.action_spec()]
        pushes = ((_MOVE, 1), (_MOVE, -1), (_TURN, -options.turn_speed), (_TURN, options.turn_speed))
        self._actions = [np.zeros(len(buttons), np.intc) for _ in pushes]
        for action, (name, value) in zip(self._actions, pushes, strict=True):
            action[buttons.index(name)] = value

    def _snapshot(self) -> _Snapshot:
        shown = self._call(self._lab.observations)
        with_hud = shown[_WITH_HUD]
        frame = with_hud if self._options.hud else np.ascontiguousarray(np.moveaxis(shown[_PLAIN], 0, -1))
        x, y, _ = shown[_POSITION].tolist()
        _, yaw, _ = shown[_ANGLES].tolist()
        return _Snapshot(frame, (x, y), yaw % 360.0, shown_key(with_hud))

    def _call(self, call: Any, *arguments: Any, **named: Any) -> Any:
        """Call Lab; if it fails, close it and raise RuntimeError."""
        try:
            return call(*arguments, **named)
        except Exception as failed:
            self.close()
            raise RuntimeError(f"DeepMind Lab failed ({failed}): call reset() to start it again") from failed


def read_events(held: int, paid: float, shown: int | None) -> tuple[Events, int]:
    """The events of a step that paid ``paid`` and left the key ``shown`` (0: none) on the screen; the key held then.

    ``shown`` is None where the level showed nothing because it was over: then only the goal is reported.

    >>> read_events(held=0, paid=1.0, shown=3), read_events(held=3, paid=1.0, shown=0)
    ((Events(key=3, door=0, goal=False), 3), (Events(key=0, door=3, goal=False), 0))
    """
    goal = paid >= GOAL
    count = round(paid - GOAL * goal) // KEY_OR_DOOR
    if paid != GOAL * goal + KEY_OR_DOOR * count or not 0 <= count <= 2:
        raise RuntimeError(
            f"the level paid {paid} in one step, but a keys-and-doors level pays {KEY_OR_DOOR} for a key or a door "
            f"and {GOAL} for the goal: use the level that DeepMind Lab brings, or one with its rewards"
        )
    if count == 0 or shown is None:
        return Events(goal=goal), held
    if shown:  # with two events, a door took the key before
        return Events(shown, held if count == 2 else 0, goal), shown
    if count == 2:  # the key lay beside its door
        return Events(UNSEEN, UNSEEN, goal), 0
    if held:
        return Events(0, held, goal), 0
    raise RuntimeError(
        "the level paid for a key, for nothing was held that opens a door, but shows no key in the upper left of "
        "its picture: use the level that DeepMind Lab brings, or one that paints the held key as it does"
    )


def shown_key(frame: NDArray[np.uint8]) -> int:
    """The colour of the square in the upper left of a frame (height, width, RGB) with the display; 0 for none."""
    height, width, _ = frame.shape
    rows, columns = (
        slice(ceil(_SQUARE[0] * side / screen), _SQUARE[1] * side // screen)
        for side, screen in ((height, _SCREEN[1]), (width, _SCREEN[0]))
    )
    square = frame[rows, columns].astype(np.int16)
    for number, paint in enumerate(_PAINTS, 1):
        if np.abs(square - np.array(paint, np.int16)).max() <= _TOLERANCE:
            return number
    return 0


def _deepmind_lab() -> Any:
    """The library, imported when an environment is made."""
    try:
        import deepmind_lab
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            "secret_rl/DMLabKeysDoors-v0 needs DeepMind Lab, which is on no package registry: build the Python module "
            "deepmind_lab with Bazel from https://github.com/google-deepmind/lab and install it; or play "
            'secret_rl/KeysDoors-v0, the same puzzle on another engine: pip install "secret-rl[doom]"',
            name="deepmind_lab",
        ) from missing
    return deepmind_lab
