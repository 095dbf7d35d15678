"""Scripted policies that know the true map: a solver, and a wanderer whose failures make credit learnable.

``secret_rl.collect`` takes the classes, and binds them to the environment of each worker.
"""

from math import atan2, degrees, hypot
from typing import Any

import gymnasium as gym
import numpy as np

from secret_rl.envs.keys_doors.env import KeysDoorsEnv
from secret_rl.envs.keys_doors.puzzle import CELL, Cell, Puzzle, Room, Status, centre, path, plan, room_of

_FORWARD, _BACKWARD, _LEFT, _RIGHT = range(4)
_NEAR = 22.0, 4.4  # a way point closer than this counts as reached: at least, and for each tic of a step
_AIM = 9.0, 1.6  # degrees off course at which to turn, likewise; a tic turns by 3
_SLIDE = 9.6  # length of the slide after a step, in tics at its pace (each tic keeps 0.906 of it)
_PATIENCE = 150  # steps after which another target is chosen
_ASTRAY = 8  # most steps for which a random action is held


class _Walker:
    """Walks from cell to cell of the true map to a target that ``_choose`` returns.

    ``astray`` is the chance, at each step, to hold a random action for up to 8 steps, as a learning agent does.
    """

    def __init__(self, env: gym.Env[Any, Any], seed: int = 0, astray: float = 0.0) -> None:
        bare = env.unwrapped
        if not isinstance(bare, KeysDoorsEnv):
            raise TypeError(f"{type(self).__name__} plays secret_rl/KeysDoors-v0 only, got {bare}")
        if not 0 <= astray <= 1:
            raise ValueError(f"astray must lie between 0 and 1, got {astray}")
        self._env, self._astray = bare, astray
        tics = bare.options.frame_skip
        self._near, self._aim = (max(least, each * tics) for least, each in (_NEAR, _AIM))
        self._slide = _SLIDE / tics
        self.begin(seed)

    def begin(self, seed: int) -> None:
        """An episode starts; ``seed`` decides everything random in it."""
        self._rng, self._steps = np.random.default_rng(seed), 0
        self._target: Cell | None = None
        self._seen: tuple[Puzzle, Status] | None = None
        self._last: tuple[float, float] | None = None
        self._lost, self._wrong = 0, _FORWARD  # steps still to go astray, and the action held meanwhile

    def __call__(self, observation: Any = None) -> int:  # noqa: ARG002  it looks at the map instead
        """The next action."""
        if self._lost == 0 and self._astray and self._rng.random() < self._astray:
            self._lost, self._wrong = int(self._rng.integers(1, _ASTRAY + 1)), int(self._rng.integers(4))
        if self._lost:
            self._lost -= 1
            return self._wrong
        situation = self._puzzle, self._status = self._env.puzzle, self._env.snapshot.status
        self._steps += 1
        if situation != self._seen or self._cell == self._target or self._steps > _PATIENCE:
            self._seen, self._steps = situation, 0
            self._target = self._choose()
        route = None if self._target is None else self._route(self._target)
        return int(self._rng.integers(4)) if route is None else self._towards(route)

    def _choose(self) -> Cell | None:
        """Where to go next; None: nowhere, act at random."""
        raise NotImplementedError

    @property
    def _cell(self) -> Cell:
        x, y = self._env.snapshot.position
        return int(x // CELL), int(y // CELL)

    def _room(self) -> Room:
        """The room of the player; in a door cell, that of the side the player stands on."""
        here = self._cell
        if (room := room_of(here)) is not None:
            return room
        door = next(door for door in self._puzzle.doors if door.cell == here)
        axis = 0 if door.upright else 1
        return min(door.rooms) if self._env.snapshot.position[axis] < centre(here)[axis] else max(door.rooms)

    def _route(self, target: Cell) -> list[Cell] | None:
        """The cells to walk through, this one first; out of a closed door's cell the way leads back."""
        puzzle, status, here = self._puzzle, self._status, self._cell
        door = next((door for door in puzzle.closed_doors(status) if door.cell == here), None)
        if door is None or here == target:
            return path(puzzle, status, here, target)
        rest = path(puzzle, status, door.entrance(self._room()), target)
        return None if rest is None else [here, *rest]

    def _towards(self, route: list[Cell]) -> int:
        """Turn to the next cell of the route, or push on, from where the current slide will end."""
        x, y = self._env.snapshot.position
        dx, dy = (x - self._last[0], y - self._last[1]) if self._last is not None else (0.0, 0.0)
        self._last = x, y
        if hypot(dx, dy) <= CELL:  # else another episode
            x, y = x + self._slide * dx, y + self._slide * dy
        points = [centre(cell) for cell in route[:3]]
        aim = points[min(1, len(points) - 1)]
        if len(points) > 1:
            (x0, y0), (x1, y1) = points[:2]
            off_line = abs(y - y0) if y0 == y1 else abs(x - x0)
            if off_line > self._near:  # back to the line between the two centres: beside it are walls and keys
                aim = points[0]
            elif len(points) > 2 and hypot(x1 - x, y1 - y) < self._near:
                aim = points[2]
        distance = hypot(aim[0] - x, aim[1] - y)
        off_course = (degrees(atan2(aim[1] - y, aim[0] - x)) - self._env.snapshot.angle + 180) % 360 - 180
        if distance < CELL / 2 and abs(off_course) > 180 - 2 * self._aim:
            return _BACKWARD  # a brake
        if abs(off_course) > self._aim or distance < self._near / 2:
            return _LEFT if off_course > 0 else _RIGHT
        return _FORWARD


class Solver(_Walker):
    """Takes the keys and opens the doors of the shortest solution; where none is left it acts at random."""

    def _choose(self) -> Cell | None:
        puzzle, moves = self._puzzle, plan(self._puzzle, self._status, self._room())
        if not moves:
            return None
        kind, number = moves[0]
        return puzzle.goal if kind == "goal" else (puzzle.keys if kind == "key" else puzzle.doors)[number].cell


class Wanderer(_Walker):
    """Heads for random keys, doors and the goal, whether or not it can open them.

    Its failures, a closed door without the key, show a model which pick-up a door's reward depends on.
    """

    def _choose(self) -> Cell | None:
        cells = self._puzzle.cells_left(self._status)
        near = [cell for cell in cells if cell != self._cell and self._route(cell) is not None]
        return near[int(self._rng.integers(len(near)))] if near else None
