"""The Gymnasium face of keys and doors."""

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from secret_rl.envs.keys_doors.art import RGB
from secret_rl.envs.keys_doors.contract import ACTIONS, METADATA, check_action, check_render_mode, reward_of, state_of
from secret_rl.envs.keys_doors.doom import FORWARD_SPEED, TURN, Engine, Snapshot
from secret_rl.envs.keys_doors.generator import generate
from secret_rl.envs.keys_doors.map_view import draw_map
from secret_rl.envs.keys_doors.options import Count, WorldOptions, puzzle_options
from secret_rl.envs.keys_doors.planner import Status
from secret_rl.envs.keys_doors.puzzle import COLOURS, Puzzle
from secret_rl.envs.keys_doors.textmap import most_text, textmap

_PUSH_AND_TURN = ((FORWARD_SPEED, 0.0), (-FORWARD_SPEED, 0.0), (0.0, -TURN), (0.0, TURN))


class KeysDoorsEnv(gym.Env[Any, Any]):
    """Find keys, open doors of their colour, reach the goal (paper, section 3, its DeepMind Lab task).

    One key is held at a time: another one takes its place, and the first is lost. A door opens as one steps up to it
    with a key of its colour, spends the key and stays open. Actions: 0 forward, 1 backward, 2 rotate left, 3 rotate
    right. Observation: RGB ``(height, width, 3)`` in first person.

    ``info`` holds the truth: ``position`` (x, y) in units (a room is 300 x 200), ``angle`` in degrees (0 east, 90
    north), ``held_key`` and, for the step just taken, ``key_picked`` and ``door_opened`` as colour numbers (0: none;
    1 is the first of ``COLOURS``) and ``goal_reached``; ``state``, the cell of 50 x 50 units and the held key as three
    whole numbers; and ``layout_seed``, the seed of the map.

    It differs from the level in DeepMind Lab in its looks and its gait: a step turns by 12 degrees and walks up to 40
    units, and one slides on for a few steps (both with the default frame skip).

    The options are those of ``PuzzleOptions``, whose values come from ``preset`` where they are None, and of
    ``WorldOptions``.
    """

    metadata = METADATA

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
    ) -> None:
        check_render_mode(render_mode)
        changes = {
            "rows": rows,
            "columns": columns,
            "core": core,
            "traps": traps,
            "red_herrings": red_herrings,
            "easy_extra": easy_extra,
            "extra_openable_doors": extra_openable_doors,
            "unopenable_doors": unopenable_doors,
            "useless_keys": useless_keys,
        }
        self.puzzle_options = puzzle_options(preset, {name: new for name, new in changes.items() if new is not None})
        self.options = WorldOptions(size, frame_skip, hud, key_reward, door_reward, goal_reward, max_steps, layout_seed)
        self.render_mode = render_mode
        self._engine = Engine(self.options.size, most_text(self.puzzle_options))
        self._puzzle: Puzzle | None = None
        self._map_seed = 0
        self._now: Snapshot | None = None
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
        """Start an episode: on the map of ``layout_seed``, else on the first of ``seed`` or the one after the last.

        ``options={"puzzle": ...}`` plays a ``Puzzle`` of your own; ``info["layout_seed"]`` is then -1.
        """
        if self._closed:
            raise gym.error.ClosedEnvironmentError("reset() after close(): make another environment")
        super().reset(seed=seed)
        own = _own_puzzle(options)
        if own is None:
            fixed = self.options.layout_seed
            map_seed = fixed if fixed is not None else int(self.np_random.integers(2**63))
            if self._puzzle is None or map_seed != self._map_seed:
                puzzle = generate(self.puzzle_options, map_seed)
            else:
                puzzle = self._puzzle
        else:
            puzzle, map_seed = own, -1
        text = textmap(puzzle)
        self._over = True  # until the map is there
        self._now = self._engine.load(text)
        self._puzzle, self._map_seed = puzzle, map_seed
        self._steps, self._over = 0, False
        return self._observation(), self._info(self._now)

    def step(self, action: int) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Hold the action for ``frame_skip`` tics."""
        if self._over or self._now is None:
            raise gym.error.ResetNeeded("the episode is over (or has not begun): call reset() first")
        check_action(action)
        before = self._now
        self._over = True  # should the engine fail
        self._now = self._engine.step(*_PUSH_AND_TURN[int(action)], self.options.frame_skip)
        self._steps += 1
        info = self._info(before)
        terminated = info["goal_reached"]
        truncated = not terminated and self._steps >= self.options.max_steps
        self._over = terminated or truncated
        return self._observation(), reward_of(info, self.options), terminated, truncated, info

    @property
    def puzzle(self) -> Puzzle:
        """The map of this episode."""
        if self._puzzle is None:
            raise gym.error.ResetNeeded("there is no map before the first episode: call reset() first")
        return self._puzzle

    @property
    def status(self) -> Status:
        """The held key, and the keys taken and doors opened as bit masks, in the numbers of ``puzzle``."""
        if self._now is None:
            raise gym.error.ResetNeeded("the first episode has not begun: call reset() first")
        return Status(self._now.held_key, self._now.taken, self._now.opened)

    @property
    def engine_traces(self) -> tuple[str, str]:
        """What a running engine shows of itself outside: the name in its process and shared memory, and its folder."""
        return self._engine.traces

    @property
    def position(self) -> tuple[float, float]:
        """Where the player stands, in units of the engine."""
        if self._now is None:
            raise gym.error.ResetNeeded("the first episode has not begun: call reset() first")
        return self._now.position

    @property
    def angle(self) -> float:
        """The direction the player faces in degrees: 0 east, 90 north."""
        if self._now is None:
            raise gym.error.ResetNeeded("the first episode has not begun: call reset() first")
        return self._now.angle

    def draw_map(self, pixels: int = 24, trail: NDArray[np.float64] | None = None) -> NDArray[np.uint8]:
        """The map from above as it is now, ``pixels`` a cell, with a trail of positions (steps, 2) if given."""
        puzzle, status = self.puzzle, self.status
        assert self._now is not None
        return draw_map(puzzle, status, self._now.position, self._now.angle, pixels=pixels, trail=trail)

    def render(self) -> Any:
        """The picture of the latest observation; ``draw_map`` shows the map from above."""
        if self.render_mode is None:
            gym.logger.warn('render() without a render_mode: pass render_mode="rgb_array" to gym.make')
            return None
        if self._now is None:
            raise gym.error.ResetNeeded("there is nothing to render before the first episode: call reset() first")
        return self._observation().copy()

    def close(self) -> None:
        """End the engine; the environment cannot be used again."""
        self._closed = True
        self._over = True
        self._engine.close()

    def _observation(self) -> NDArray[np.uint8]:
        assert self._now is not None
        picture = self._now.frame
        if self.options.hud and self._now.held:
            picture = picture.copy()
            side = max(3, self.options.size[1] // 8)
            picture[-side:, :side] = (128, 128, 128)  # a rim, so that black shows
            picture[-side + 1 : -1, 1 : side - 1] = RGB[COLOURS[self._now.held - 1]]
        return picture

    def _info(self, before: Snapshot) -> dict[str, Any]:
        now, puzzle = self._now, self.puzzle
        assert now is not None
        return {
            "position": np.array(now.position),
            "angle": now.angle,
            "held_key": now.held,
            "key_picked": _colour_of(puzzle.keys, now.taken & ~before.taken),
            "door_opened": _colour_of(puzzle.doors, now.opened & ~before.opened),
            "goal_reached": now.goal and not before.goal,
            "state": state_of(now.position, now.held),
            "layout_seed": self._map_seed,
        }


def _own_puzzle(options: dict[str, Any] | None) -> Puzzle | None:
    if not options:
        return None
    if options.keys() != {"puzzle"} or not isinstance(options["puzzle"], Puzzle):
        raise ValueError(f'reset takes options={{"puzzle": Puzzle(...)}} and nothing else, got {options!r}')
    return options["puzzle"]


def _colour_of(things: Any, changed: int) -> int:
    """The colour of the thing whose bit is set; 0 if none is. Things lie too far apart for two at once."""
    return int(things[changed.bit_length() - 1].colour) if changed else 0
