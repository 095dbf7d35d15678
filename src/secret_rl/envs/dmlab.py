"""Keys and doors in DeepMind Lab itself, for those who have built it; the only file that knows it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from secret_rl.checks import check_integer
from secret_rl.envs.dmlab_reading import LEAST_SIZE, Happened, Reading, shown_key
from secret_rl.envs.keys_doors.contract import ACTIONS, METADATA, check_action, check_render_mode, reward_of, state_of
from secret_rl.envs.keys_doors.options import WorldOptions

LEVEL = "contributed/dmlab30/rooms_keys_doors_puzzle"
FPS = 60
RENDERERS = ("software", "hardware")
SEEDS = 2**31
"""Lab keeps the seed of an episode as a signed word of 32 bits; these are the ones that are not negative."""
MOST_TURN = 512

_WITH_HUD, _PLAIN = "RGB_INTERLEAVED", "DEBUG.CAMERA.PLAYER_VIEW_NO_RETICLE"
_POSITION, _ANGLES = "DEBUG.POS.TRANS", "DEBUG.POS.ROT"
_MOVE, _TURN = "MOVE_BACK_FORWARD", "LOOK_LEFT_RIGHT_PIXELS_PER_FRAME"  # positive: forward, to the right
_OURS = ("width", "height", "fps")  # settings that options decide


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
        check_integer("turn_speed", self.turn_speed, 1, MOST_TURN)
        if self.layout_seed is not None:
            check_integer("layout_seed", self.layout_seed, 0, SEEDS - 1)
        if not isinstance(self.level, str) or not self.level:
            raise ValueError(f"level must be the name of a level's script such as {LEVEL!r}, got {self.level!r}")
        if self.renderer not in RENDERERS:
            raise ValueError(f"renderer must be one of {', '.join(RENDERERS)}, got {self.renderer!r}")
        for name, value in self.config.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise TypeError(f"config takes words to words, for Lab does, got {name!r}: {value!r}")
            if name in _OURS:
                raise ValueError(
                    f"config must leave {name} out: the size is an option, and {FPS} frames a second fixed"
                )

    @property
    def settings(self) -> dict[str, str]:
        """Everything as Lab takes it."""
        width, height = self.size
        return {**self.config, "width": str(width), "height": str(height), "fps": str(FPS)}


@dataclass(frozen=True)
class Snapshot:
    """What the level shows after a step."""

    picture: NDArray[np.uint8]
    """(height, width, RGB)"""
    position: tuple[float, float]
    angle: float
    key: int
    """Colour of the key on the screen, 0 for none."""


class DMLabKeysDoorsEnv(gym.Env[Any, Any]):
    """The paper's keys and doors (section 3) in DeepMind Lab, with the actions and infos of ``KeysDoorsEnv``.

    Lab is on no package registry: build ``deepmind_lab`` from its repository first. ``hud`` shows the agent the level's
    display, with the held key in the upper left and the clock; the view without it, the default, has no cross-hair.

    ``info`` is that of ``KeysDoorsEnv``, keys and doors as colour numbers included, though Lab itself tells no events:
    see ``dmlab_reading``. A key that is taken and spent within one step has the number ``UNSEEN``. ``layout_seed`` is
    the seed of Lab's episode; maps differ from those of ``KeysDoorsEnv`` under the same seed.

    The goal ends the episode as it is reached; Lab would run on for 0.2 seconds. As Lab shows nothing more once its
    own 60 seconds are up, the last of ``max_steps`` holds its action for one frame less. Should the level end earlier
    all the same, the episode is truncated with the last picture shown.

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
        check_render_mode(render_mode)
        self.options = LabOptions(
            size=size,
            frame_skip=frame_skip,
            hud=hud,
            key_reward=key_reward,
            door_reward=door_reward,
            goal_reward=goal_reward,
            max_steps=max_steps,
            layout_seed=layout_seed,
            level=level,
            turn_speed=turn_speed,
            renderer=renderer,
            config=dict(config or {}),
            level_cache=level_cache,
        )
        self.render_mode = render_mode
        self._engine = Engine(self.options)
        self._now: Snapshot | None = None
        self._reading = Reading()
        self._seed = 0
        self._steps = 0
        self._over = True
        self._closed = False
        width, height = self.options.size
        self.observation_space = gym.spaces.Box(0, 255, (height, width, 3), np.uint8)
        self.action_space = gym.spaces.Discrete(len(ACTIONS))

    def reset(
        self,
        *,
        seed: int | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Start an episode: on the map of ``layout_seed``, else on the first of ``seed`` or the one after the last."""
        if self._closed:
            raise gym.error.ClosedEnvironmentError("reset() after close(): make another environment")
        if options:
            raise ValueError(f"reset takes no options here, got {options!r}: give them to gym.make")
        super().reset(seed=seed)
        fixed = self.options.layout_seed
        self._seed = int(fixed) if fixed is not None else int(self.np_random.integers(SEEDS))
        self._over = True  # until the map is there
        self._now = self._engine.begin(self._seed)
        self._reading = Reading()
        self._steps, self._over = 0, False
        return self._now.picture, self._info(Happened(0, 0, False))

    def step(self, action: int) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Hold the action for ``frame_skip`` frames."""
        if self._over or self._now is None:
            raise gym.error.ResetNeeded("the episode is over (or has not begun): call reset() first")
        check_action(action)
        self._over = True  # should the engine fail
        self._steps += 1
        last = self._steps >= self.options.max_steps
        frames = self.options.frame_skip
        paid, shown = self._engine.step(int(action), frames - 1 if last and frames > 1 else frames)
        happened = self._reading.after(paid, None if shown is None else shown.key)
        self._now = replace(self._now, picture=self._now.picture.copy()) if shown is None else shown
        info = self._info(happened)
        terminated = happened.goal
        truncated = not terminated and (last or shown is None)
        self._over = terminated or truncated
        return self._now.picture, reward_of(info, self.options), terminated, truncated, info

    def render(self) -> Any:
        """The picture of the latest observation."""
        if self.render_mode is None:
            gym.logger.warn('render() without a render_mode: pass render_mode="rgb_array" to gym.make')
            return None
        if self._now is None:
            raise gym.error.ResetNeeded("there is nothing to render before the first episode: call reset() first")
        return self._now.picture.copy()

    def close(self) -> None:
        """End the engine; the environment cannot be used again."""
        self._closed = True
        self._over = True
        self._engine.close()

    def _info(self, happened: Happened) -> dict[str, Any]:
        assert self._now is not None
        return {
            "position": np.array(self._now.position),
            "angle": self._now.angle,
            "held_key": self._reading.held,
            "key_picked": happened.key,
            "door_opened": happened.door,
            "goal_reached": happened.goal,
            "state": state_of(self._now.position, self._reading.held),
            "layout_seed": self._seed,
        }


class Engine:
    """One Lab, started with its first episode."""

    def __init__(self, options: LabOptions) -> None:
        self._make = _deepmind_lab().Lab
        self._options = options
        self._lab: Any = None
        self._actions: list[NDArray[np.intc]] = []

    def begin(self, seed: int) -> Snapshot:
        """Start an episode, which the seed alone decides: for Lab each is the first."""
        if self._lab is None:
            self._start()
        self._guarded(self._lab.reset, episode=0, seed=seed)
        return self._snapshot()

    def step(self, action: int, frames: int) -> tuple[float, Snapshot | None]:
        """Hold an action for some frames: what was paid, and what is shown, if the level is not over."""
        paid = float(self._guarded(self._lab.step, self._actions[action], num_steps=frames))
        return paid, self._snapshot() if self._lab.is_running() else None

    def close(self) -> None:
        """End the engine."""
        if self._lab is not None:
            lab, self._lab = self._lab, None
            lab.close()

    def _start(self) -> None:
        options = self._options
        views = [_WITH_HUD] if options.hud else [_WITH_HUD, _PLAIN]
        cache = {} if options.level_cache is None else {"level_cache": options.level_cache}  # older Labs know none
        self._lab = self._make(
            options.level, [*views, _POSITION, _ANGLES], config=options.settings, renderer=options.renderer, **cache
        )
        names = [part["name"] for part in self._lab.action_spec()]
        pushes = ((_MOVE, 1), (_MOVE, -1), (_TURN, -options.turn_speed), (_TURN, options.turn_speed))
        self._actions = [np.zeros(len(names), np.intc) for _ in pushes]
        for action, (name, value) in zip(self._actions, pushes, strict=True):
            action[names.index(name)] = value

    def _snapshot(self) -> Snapshot:
        shown = self._guarded(self._lab.observations)
        with_hud = shown[_WITH_HUD]
        picture = with_hud if self._options.hud else np.ascontiguousarray(np.moveaxis(shown[_PLAIN], 0, -1))
        x, y, _ = shown[_POSITION].tolist()
        _, yaw, _ = shown[_ANGLES].tolist()
        return Snapshot(picture, (x, y), yaw % 360.0, shown_key(with_hud))

    def _guarded(self, call: Any, *arguments: Any, **named: Any) -> Any:
        """Call Lab; if it fails, give it up and say so."""
        try:
            return call(*arguments, **named)
        except Exception as failed:
            self.close()
            raise RuntimeError(f"DeepMind Lab failed ({failed}): call reset() to start it again") from failed


def _deepmind_lab() -> Any:
    """The library, imported when a world is made."""
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
