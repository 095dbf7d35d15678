"""Keys and doors as a Gymnasium environment: what all engines share, and the environment on ViZDoom."""

from abc import abstractmethod
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from secret_rl.checks import check_integer
from secret_rl.envs.keys_doors.engine import FORWARD_SPEED, TURN, Engine
from secret_rl.envs.keys_doors.generator import Count, PuzzleOptions, generate, preset_options
from secret_rl.envs.keys_doors.map_view import draw_map
from secret_rl.envs.keys_doors.puzzle import COLOURS, Puzzle, Status
from secret_rl.envs.keys_doors.wad import RGB, most_text, textmap

METADATA: dict[str, Any] = {
    "render_modes": ["rgb_array"],
    "render_fps": 9,
    "annotations": ("key_picked", "door_opened", "goal_reached", "held_key", "position"),  # info that collect keeps
}
STATE_CELL = 50  # side of the cells that positions are counted in for ``info["state"]`` (appendix A)
ACTIONS = ("forward", "backward", "rotate left", "rotate right")
_PUSH_AND_TURN = ((FORWARD_SPEED, 0.0), (-FORWARD_SPEED, 0.0), (0.0, -TURN), (0.0, TURN))
_NOT_BEGUN = "the first episode has not begun: call reset() first"


@dataclass(frozen=True)
class WorldOptions:
    """How a puzzle is seen, paid and timed."""

    size: tuple[int, int] = (160, 120)
    """Width and height of the observation in pixels, from 8 x 8; the paper's agents see 160 x 120.

    What the engine does not draw is averaged down from the nearest larger shape that it does: a picture of another
    shape (84 x 84 comes from 160 x 120) is squeezed, never cropped. Wider shapes show more to the sides.
    """
    frame_skip: int = 4
    """Engine tics (35 a second) for which an action is held."""
    hud: bool = False
    """Show the held key as a square in the lower left corner; off as in the paper's view."""
    key_reward: float = 0.0
    """Reward of a pick-up; the original level gives 1, which the paper removes."""
    door_reward: float = 1.0
    """Reward of opening any door."""
    goal_reward: float = 50.0
    """Reward of the goal, which ends the episode."""
    max_steps: int = 900
    """Time limit in agent steps (60 seconds of 60 frames, 4 frames a step, in the original)."""
    layout_seed: int | None = None
    """Fixes the map, start included; None: a new random map each episode."""

    def __post_init__(self) -> None:
        if not isinstance(self.size, tuple | list) or len(self.size) != 2:
            raise TypeError(f"size must be (width, height), e.g. (160, 120), got {self.size!r}")
        object.__setattr__(self, "size", tuple(self.size))  # lists come from JSON
        for index, side in enumerate(self.size):
            check_integer(f"size[{index}]", side, 8)
        check_integer("frame_skip", self.frame_skip, 1, 100)
        check_integer("max_steps", self.max_steps, 1)
        if not isinstance(self.hud, bool):
            raise TypeError(f"hud must be True or False, got {self.hud!r}")
        for name in ("key_reward", "door_reward", "goal_reward"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < float("inf"):
                raise ValueError(f"{name} must be a finite number, got {value!r}")
        if self.layout_seed is not None:
            check_integer("layout_seed", self.layout_seed, 0, 2**64 - 1)


class Events(NamedTuple):
    """What happened in one step: the colours of a key taken and of a door opened (0: none), and of the goal whether."""

    key: int = 0
    door: int = 0
    goal: bool = False


class FirstPersonEnv(gym.Env[Any, Any]):
    """What keys and doors has in common on all engines: spaces, infos, rewards, time limit and rendering.

    A subclass starts an episode in ``_begin`` and plays one step in ``_advance``. Both set ``_now`` (an object with
    ``frame``, ``position`` and ``angle``) and ``_held`` (the colour of the held key).
    """

    metadata = METADATA
    _now: Any = None
    _held = 0
    _layout_seed = 0
    _steps = 0
    _over = True
    _closed = False

    def __init__(self, options: WorldOptions, engine: Any, render_mode: str | None) -> None:
        if render_mode is not None and render_mode not in METADATA["render_modes"]:
            raise ValueError(f"render_mode must be one of {METADATA['render_modes']}, got {render_mode!r}")
        self.options, self.render_mode, self._engine = options, render_mode, engine
        width, height = options.size
        self.observation_space = gym.spaces.Box(0, 255, (height, width, 3), np.uint8)
        self.action_space = gym.spaces.Discrete(len(ACTIONS))

    @abstractmethod
    def _begin(self, options: dict[str, Any]) -> None:
        """Start an episode."""

    @abstractmethod
    def _advance(self, action: int, last: bool) -> tuple[Events, bool]:
        """Play one step, the ``last`` one within the time limit: its events, and whether the engine ended by itself."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Start an episode: on the map of ``layout_seed``, else on the first of ``seed`` or the one after the last."""
        if self._closed:
            raise gym.error.ClosedEnvironmentError("reset() after close(): make another environment")
        super().reset(seed=seed)
        self._begin(options or {})
        self._steps, self._over = 0, False
        return self._observation(), self._info(Events())

    def step(self, action: int) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Hold the action for ``frame_skip`` tics."""
        if self._over:
            raise gym.error.ResetNeeded("the episode is over (or has not begun): call reset() first")
        if not 0 <= action < len(ACTIONS):
            names = ", ".join(f"{number} ({name})" for number, name in enumerate(ACTIONS))
            raise ValueError(f"action must be one of {names}, got {action!r}")
        self._over = True  # should the engine fail
        self._steps += 1
        last = self._steps >= self.options.max_steps
        events, ended = self._advance(int(action), last)
        truncated = not events.goal and (last or ended)
        self._over = events.goal or truncated
        rewards = (self.options.key_reward, self.options.door_reward, self.options.goal_reward)
        reward = float(sum(reward for happened, reward in zip(events, rewards, strict=True) if happened))
        return self._observation(), reward, events.goal, truncated, self._info(events)

    def render(self) -> Any:
        """The picture of the latest observation; ``draw_map`` shows the map from above."""
        if self.render_mode is None:
            gym.logger.warn('render() without a render_mode: pass render_mode="rgb_array" to gym.make')
            return None
        return self._observation().copy()

    def close(self) -> None:
        """End the engine; the environment cannot be used again."""
        self._closed = self._over = True
        self._engine.close()

    @property
    def _snapshot(self) -> Any:
        if self._now is None:
            raise gym.error.ResetNeeded(_NOT_BEGUN)
        return self._now

    def _observation(self) -> NDArray[np.uint8]:
        return self._snapshot.frame  # type: ignore[no-any-return]

    def _info(self, events: Events) -> dict[str, Any]:
        x, y = self._now.position
        return {
            "position": np.array((x, y)),
            "angle": self._now.angle,
            "held_key": self._held,
            "key_picked": events.key,
            "door_opened": events.door,
            "goal_reached": events.goal,
            "state": np.array([x // STATE_CELL, y // STATE_CELL, self._held], np.int64),
            "layout_seed": self._layout_seed,
        }


class KeysDoorsEnv(FirstPersonEnv):
    """Find keys, open doors of their colour, reach the goal (paper, section 3, its DeepMind Lab task).

    One key is held at a time: another one takes its place, and the first is lost. A door opens when the player steps
    up to it with a key of its colour, spends the key and stays open. Actions: 0 forward, 1 backward, 2 rotate left, 3
    rotate right. Observation: RGB ``(height, width, 3)`` in first person.

    ``info`` holds the truth: ``position`` (x, y) in units (a room is 300 x 200), ``angle`` in degrees (0 east, 90
    north), ``held_key`` and, for the step just taken, ``key_picked`` and ``door_opened`` as colour numbers (0: none;
    1 is the first of ``COLOURS``) and ``goal_reached``; ``state``, the cell of 50 x 50 units and the held key as three
    integers; and ``layout_seed``, the seed of the map.

    It differs from the level in DeepMind Lab in its looks and its movement: a step turns by 12 degrees and walks up to
    40 units, and the player slides on for a few steps (both with the default frame skip).

    ``reset(options={"puzzle": ...})`` plays a ``Puzzle`` of your own; ``info["layout_seed"]`` is then -1.

    The options are those of ``PuzzleOptions``, whose values come from ``preset`` where they are None, of
    ``WorldOptions``, and ``engine_timeout``: seconds after which a call of the engine that does not return is ended
    (Linux only).
    """

    def __init__(
        self,
        preset: str = "dmlab-like",
        *,
        rows: int | None = None,
        columns: int | None = None,
        core: Count | None = None,
        traps: Count | None = None,
        red_herrings: Count | None = None,
        easy_extra: Count | None = None,
        extra_openable_doors: Count | None = None,
        unopenable_doors: Count | None = None,
        useless_keys: Count | None = None,
        size: tuple[int, int] = (160, 120),
        frame_skip: int = 4,
        hud: bool = False,
        key_reward: float = 0.0,
        door_reward: float = 1.0,
        goal_reward: float = 50.0,
        max_steps: int = 900,
        layout_seed: int | None = None,
        render_mode: str | None = None,
        engine_timeout: float = 60.0,
    ) -> None:
        extras = (traps, red_herrings, easy_extra, extra_openable_doors, unopenable_doors, useless_keys)
        names = (option.name for option in fields(PuzzleOptions))
        changes = dict(zip(names, (rows, columns, core, *extras), strict=True))
        self.puzzle_options = preset_options(preset, **changes)
        options = WorldOptions(size, frame_skip, hud, key_reward, door_reward, goal_reward, max_steps, layout_seed)
        engine = Engine(options.size, most_text(self.puzzle_options), engine_timeout)
        super().__init__(options, engine, render_mode)
        self._puzzle: Puzzle | None = None

    def _begin(self, options: dict[str, Any]) -> None:
        if options:
            if options.keys() != {"puzzle"} or not isinstance(options["puzzle"], Puzzle):
                raise ValueError(f'reset takes options={{"puzzle": Puzzle(...)}} and nothing else, got {options!r}')
            puzzle, layout_seed = options["puzzle"], -1
        else:
            fixed = self.options.layout_seed
            layout_seed = fixed if fixed is not None else int(self.np_random.integers(2**63))
            same = self._puzzle if layout_seed == self._layout_seed else None
            puzzle = same or generate(self.puzzle_options, layout_seed)
        text = textmap(puzzle)
        self._over = True  # should the engine fail
        self._now = self._engine.load(text)
        self._puzzle, self._layout_seed, self._held = puzzle, layout_seed, self._now.held

    def _advance(self, action: int, last: bool) -> tuple[Events, bool]:  # noqa: ARG002  it makes no difference here
        before, puzzle = self._now, self.puzzle
        self._now = now = self._engine.step(*_PUSH_AND_TURN[action], self.options.frame_skip)
        self._held = now.held
        key = _colour_of(puzzle.keys, now.taken & ~before.taken)
        door = _colour_of(puzzle.doors, now.opened & ~before.opened)
        return Events(key, door, now.goal and not before.goal), False

    @property
    def puzzle(self) -> Puzzle:
        """The map of this episode."""
        if self._puzzle is None:
            raise gym.error.ResetNeeded(_NOT_BEGUN)
        return self._puzzle

    @property
    def status(self) -> Status:
        """The held key, and the keys taken and doors opened as bit masks, in the numbers of ``puzzle``."""
        return Status(self._snapshot.held_key, self._snapshot.taken, self._snapshot.opened)

    @property
    def position(self) -> tuple[float, float]:
        """Where the player stands, in units of the engine."""
        return self._snapshot.position  # type: ignore[no-any-return]

    @property
    def angle(self) -> float:
        """The direction the player faces in degrees: 0 east, 90 north."""
        return self._snapshot.angle  # type: ignore[no-any-return]

    @property
    def engine_traces(self) -> tuple[str, str]:
        """How a running engine shows outside: the name in its process and shared memory, and its folder."""
        return self._engine.traces  # type: ignore[no-any-return]

    def draw_map(self, pixels: int = 24, trail: NDArray[np.float64] | None = None) -> NDArray[np.uint8]:
        """The map from above as it is now, ``pixels`` a cell, with a trail of positions (steps, 2) if given."""
        return draw_map(self.puzzle, self.status, self.position, self.angle, pixels=pixels, trail=trail)

    def _observation(self) -> NDArray[np.uint8]:
        picture = super()._observation()
        if self.options.hud and self._held:
            picture = picture.copy()
            side = max(3, self.options.size[1] // 8)
            picture[-side:, :side] = (128, 128, 128)  # a rim, so that black shows
            picture[-side + 1 : -1, 1 : side - 1] = RGB[COLOURS[self._held - 1]]
        return picture


def _colour_of(things: Any, changed: int) -> int:
    """The colour of the thing whose bit is set; 0 if none is. Things lie too far apart for two at once."""
    return int(things[changed.bit_length() - 1].colour) if changed else 0
