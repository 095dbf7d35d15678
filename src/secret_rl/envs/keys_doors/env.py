"""Keys and doors as a Gymnasium environment."""

from dataclasses import dataclass, fields
from math import isfinite
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from secret_rl.checks import check_integer
from secret_rl.envs.keys_doors.engine import FORWARD_SPEED, TURN, Engine, Snapshot
from secret_rl.envs.keys_doors.generator import generate, preset_options
from secret_rl.envs.keys_doors.puzzle import Puzzle
from secret_rl.envs.keys_doors.wad import most_text, textmap

STATE_CELL = 50  # side of the cells that positions are counted in for ``info["state"]`` (appendix A)
ACTIONS = ("forward", "backward", "rotate left", "rotate right")
_PUSH_AND_TURN = ((FORWARD_SPEED, 0.0), (-FORWARD_SPEED, 0.0), (0.0, -TURN), (0.0, TURN))


@dataclass(frozen=True)
class WorldOptions:
    """How a puzzle is seen, paid and timed."""

    size: tuple[int, int] = (160, 120)
    """Width and height of the observation in pixels: what the engine draws (the paper's agents see 160 x 120), or a
    half, a third, ... of it, averaged down."""
    frame_skip: int = 4
    """Engine tics (35 a second) for which an action is held."""
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
    engine_timeout: float = 60.0
    """Seconds after which a call of the engine that does not return is ended (Linux only)."""

    def __post_init__(self) -> None:
        if not isinstance(self.size, tuple | list) or len(self.size) != 2:
            raise TypeError(f"size must be (width, height), e.g. (160, 120), got {self.size!r}")
        sides = (check_integer(f"size[{index}]", side, 1) for index, side in enumerate(self.size))
        object.__setattr__(self, "size", tuple(sides))  # lists come from JSON
        check_integer("frame_skip", self.frame_skip, 1, 100)
        check_integer("max_steps", self.max_steps, 1)
        for name in ("key_reward", "door_reward", "goal_reward"):
            if not isfinite(value := getattr(self, name)):
                raise ValueError(f"{name} must be a finite number, got {value!r}")
        if self.layout_seed is not None:
            check_integer("layout_seed", self.layout_seed, 0, 2**64 - 1)


class KeysDoorsEnv(gym.Env[Any, Any]):
    """Find keys, open doors of their colour, reach the goal (paper, section 3, its DeepMind Lab task).

    One key is held at a time: another one takes its place, and the first is lost. A door opens when the player steps
    up to it with a key of its colour, spends the key and stays open. Actions: 0 forward, 1 backward, 2 rotate left, 3
    rotate right. Observation: RGB ``(height, width, 3)`` in first person.

    ``info`` holds the truth: ``position`` (x, y) in units (a room is 300 x 200), ``angle`` in degrees (0 east, 90
    north), ``held_key`` and, for the step just taken, ``key_picked`` and ``door_opened`` as colour numbers (0: none;
    1 is the first of ``COLOURS``) and ``goal_reached``; ``state``, the cell of 50 x 50 units and the held key as three
    integers; and ``layout_seed``, the seed of the map. With the default frame skip a step turns by 12 degrees and walks
    up to 40 units, and the player slides on for a few steps.

    Args:
        preset: Which puzzles: one of ``PRESETS``.
        render_mode: ``"rgb_array"`` or None.
        options: Those of ``WorldOptions``, and of ``PuzzleOptions`` to change the preset.
    """

    metadata = {  # noqa: RUF012  Gymnasium's way
        "render_modes": ["rgb_array"],
        "render_fps": 9,
        "annotations": ("key_picked", "door_opened", "goal_reached", "held_key", "position"),  # info that collect keeps
    }

    def __init__(self, preset: str = "dmlab-like", render_mode: str | None = None, **options: Any) -> None:
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f'render_mode must be "rgb_array" or None, got {render_mode!r}')
        world = {field.name: options.pop(field.name) for field in fields(WorldOptions) if field.name in options}
        self.options, self.render_mode = WorldOptions(**world), render_mode
        self.puzzle_options = preset_options(preset, **options)
        generate(self.puzzle_options, 0)  # raises where no puzzle can have these options
        self._engine = Engine(self.options.size, most_text(self.puzzle_options), self.options.engine_timeout)
        self._puzzle: Puzzle | None = None
        self._now: Snapshot | None = None
        self._layout_seed, self._steps, self._over = -1, 0, True
        width, height = self.options.size
        self.observation_space = gym.spaces.Box(0, 255, (height, width, 3), np.uint8)
        self.action_space = gym.spaces.Discrete(len(ACTIONS))

    def reset(
        self,
        *,
        seed: int | None = None,
        options: dict[str, Any] | None = None,  # noqa: ARG002  Gymnasium's signature; there are none
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Start an episode: on the map of ``layout_seed``, else on the first of ``seed`` or the one after the last."""
        super().reset(seed=seed)
        fixed = self.options.layout_seed
        layout_seed = int(self.np_random.integers(2**63)) if fixed is None else int(fixed)
        if self._puzzle is None or layout_seed != self._layout_seed:
            self._puzzle, self._layout_seed = generate(self.puzzle_options, layout_seed), layout_seed
        self._over = True  # should the engine fail
        self._now = self._engine.load(textmap(self._puzzle))
        self._steps, self._over = 0, False
        return self._now.frame, self._info(self._now)

    def step(self, action: int) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Hold the action for ``frame_skip`` tics."""
        if self._over:
            raise gym.error.ResetNeeded("the episode is over (or has not begun): call reset() first")
        if not 0 <= action < len(ACTIONS):
            names = ", ".join(f"{number} ({name})" for number, name in enumerate(ACTIONS))
            raise ValueError(f"action must be one of {names}, got {action!r}")
        self._over = True  # should the engine fail
        before, options = self.snapshot, self.options
        self._now = self._engine.step(*_PUSH_AND_TURN[action], options.frame_skip)
        self._steps += 1
        info = self._info(before)
        reward = options.key_reward * bool(info["key_picked"]) + options.door_reward * bool(info["door_opened"])
        reward += options.goal_reward * info["goal_reached"]
        terminated = info["goal_reached"]
        truncated = not terminated and self._steps >= options.max_steps
        self._over = terminated or truncated
        return self._now.frame, float(reward), terminated, truncated, info

    def render(self) -> Any:
        """The picture of the latest observation."""
        if self.render_mode is None:
            gym.logger.warn('render() without a render_mode: pass render_mode="rgb_array" to gym.make')
            return None
        return self.snapshot.frame.copy()

    def close(self) -> None:
        """End the engine; a reset would start another."""
        self._over = True
        self._engine.close()

    @property
    def snapshot(self) -> Snapshot:
        """What the engine shows and knows now: picture, position, angle, held key, keys taken and doors opened."""
        if self._now is None:
            raise gym.error.ResetNeeded("the first episode has not begun: call reset() first")
        return self._now

    @property
    def puzzle(self) -> Puzzle:
        """The map of this episode."""
        if self._puzzle is None:
            raise gym.error.ResetNeeded("the first episode has not begun: call reset() first")
        return self._puzzle

    @property
    def engine_traces(self) -> tuple[str, str]:
        """How a running engine shows outside: the name in its process and shared memory, and its folder."""
        return self._engine.instance, str(self._engine.folder)

    def _info(self, before: Snapshot) -> dict[str, Any]:
        now, puzzle, (x, y) = self.snapshot, self.puzzle, self.snapshot.position
        return {
            "position": np.array((x, y)),
            "angle": now.angle,
            "held_key": now.held,
            "key_picked": _colour_of(puzzle.keys, now.status.taken & ~before.status.taken),
            "door_opened": _colour_of(puzzle.doors, now.status.opened & ~before.status.opened),
            "goal_reached": now.goal and not before.goal,
            "state": np.array([x // STATE_CELL, y // STATE_CELL, now.held], np.int64),
            "layout_seed": self._layout_seed,
        }


def _colour_of(things: Any, changed: int) -> int:
    """The colour of the thing whose bit is set; 0 if none is. Things lie too far apart for two at once."""
    return int(things[changed.bit_length() - 1].colour) if changed else 0
