"""MiniGrid's memory and door tasks (Chevalier-Boisvert et al., 2023): scripted play with mistakes, rules unchanged."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import FilterObservation, TimeAwareObservation
from minigrid.core.actions import Actions
from minigrid.core.constants import COLOR_TO_IDX, DIR_TO_VEC, OBJECT_TO_IDX, STATE_TO_IDX
from minigrid.wrappers import ImgObsWrapper

from secret_rl.tasks.task import Data, Marked, Task, play
from secret_rl.views import MaskView, ViewObservation

_STEPS = 50
_TURN = 0.1  # chance of a random turn at each step
# The row of the view with the agent's own cell: what it carries, and what lies beside it, a key left there included.
OWN_ROW = ((0, 7), (6, 7))
_LEFT = 2  # a direction
Cell = tuple[int, int]
Goal = Callable[[Cell, int], bool]


class CueInView(Marked):
    """Marks every step that shows the object of the start room: any one of them is enough to know it."""

    def begin(self) -> None:
        """The first view."""
        self._shown = self._in_view()

    def marks(self, seen: Any, action: Any) -> bool:  # noqa: ARG002
        """Whether the cue was in view when the step was taken."""
        before, self._shown = self._shown, self._in_view()
        return before

    def _in_view(self) -> bool:
        world: Any = self.unwrapped
        at = world.relative_coords(1, world.height // 2 - 1)
        kinds = OBJECT_TO_IDX["key"], OBJECT_TO_IDX["ball"]
        return at is not None and int(self.seen["image"][at][0]) in kinds


class KeyPickUps(Marked):
    """Marks the steps at which something is picked up; the room holds a key and nothing else."""

    def begin(self) -> None:
        """Empty hands."""
        self._carried = False

    def marks(self, seen: Any, action: Any) -> bool:  # noqa: ARG002
        """Whether the key is carried since this step."""
        world: Any = self.unwrapped
        before, self._carried = self._carried, world.carrying is not None
        return self._carried and not before


class RedDoorOpen(Marked):
    """Marks the opening of the red door, and every later step that shows it open, which is as good evidence."""

    def begin(self) -> None:
        """A closed door."""
        self._open = False

    def marks(self, seen: Any, action: Any) -> bool:  # noqa: ARG002
        """Whether the step opens the door, or shows it open."""
        world: Any = self.unwrapped
        before, self._open = self._open, world.red_door.is_open
        cell = OBJECT_TO_IDX["door"], COLOR_TO_IDX["red"], STATE_TO_IDX["open"]
        return bool((seen == cell).all(-1).any()) or (self._open and not before)


class Walker:
    """Walks to one goal after another, with random turns in between; subclasses choose the goals."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        self.world: Any = env.unwrapped
        self.begin(0)

    def begin(self, seed: int) -> None:
        """An episode starts, with no goal."""
        self.rng = np.random.default_rng(seed)
        self.chosen = 0
        self._goal: Goal | None = None
        self._way: list[int] = []

    def choose(self) -> tuple[Goal, int]:
        """The next goal, a condition on position and direction, and the action to take there."""
        raise NotImplementedError

    def __call__(self, observation: Any) -> int:  # noqa: ARG002  it knows the map
        """The next action on the way."""
        if self._goal is None:
            self._goal, self._then = self.choose()
            self.chosen += 1
        if self.rng.random() < _TURN:
            self._way = []
            return int(self.rng.choice([Actions.left, Actions.right]))
        self._way = self._way or [*_route(self.world, self._goal), self._then]
        action = self._way.pop(0)
        if not self._way:
            self._goal = None
        return action


class MemoryPlayer(Walker):
    """Looks at the object of the start room, then goes to either end by chance."""

    def choose(self) -> tuple[Goal, int]:
        """The start room first."""
        middle = self.world.height // 2
        if self.chosen == 0:
            place = (int(self.rng.integers(2, 4)), middle)
            return lambda at, facing: at == place and facing == _LEFT, Actions.left
        end = self.world.width - 2, middle + int(self.rng.choice([-1, 1]))
        return lambda at, facing: _ahead(at, facing) == end, Actions.forward


class UnlockPlayer(Walker):
    """Goes for the key, the door and other cells in no good order.

    It does the same whether it carries the key or not: it also reaches for a key that is gone, or was never there.
    """

    def begin(self, seed: int) -> None:
        """No place of the key known yet."""
        super().begin(seed)
        self._key: Cell | None = None

    def choose(self) -> tuple[Goal, int]:
        """Where the key was, the door, or a free cell."""
        if self._key is None:
            self._key = place_of(self.world, "key")
        door = place_of(self.world, "door")
        blocked = self.world.grid.get(door[0] - 1, door[1]) is not None  # the key lies before the door
        chance = self.rng.random()
        if chance < 0.3 or (blocked and chance < 0.7):
            return facing(self._key), Actions.pickup
        if chance < 0.7:
            return facing(door), Actions.toggle
        return facing(self._free_cell()), Actions.pickup

    def _free_cell(self) -> Cell:
        """A cell of the first room without the key."""
        room = self.world.get_room(0, 0)
        (left, top), (width, height) = room.top, room.size
        cells = [(x, y) for x in range(left + 1, left + width - 1) for y in range(top + 1, top + height - 1)]
        free = [at for at in cells if at != self._key]
        return free[int(self.rng.integers(len(free)))]


class RedBluePlayer(Walker):
    """Goes for the red door, the blue door and other cells in no good order; leaves an open door open."""

    def choose(self) -> tuple[Goal, int]:
        """A door or a cell of the room."""
        chance = self.rng.random()
        if chance < 0.35:
            opened = self.world.red_door.is_open
            return facing(place_of(self.world, "door", "red")), Actions.right if opened else Actions.toggle
        if chance < 0.7:
            return facing(place_of(self.world, "door", "blue")), Actions.toggle
        size = self.world.size
        x, y = int(self.rng.integers(size // 2 + 1, size // 2 + size - 1)), int(self.rng.integers(1, size - 1))
        return facing((x, y)), Actions.toggle


def facing(target: Cell) -> Goal:
    """To stand before a cell and look at it."""
    return lambda at, facing: _ahead(at, facing) == target


def _ahead(at: Cell, facing: int) -> Cell:
    dx, dy = DIR_TO_VEC[facing]
    return at[0] + int(dx), at[1] + int(dy)


def place_of(world: Any, kind: str, colour: str | None = None) -> Cell:
    """Where the first object of a kind, and of a colour if given, is on the map."""
    for number, thing in enumerate(world.grid.grid):
        if thing is not None and thing.type == kind and colour in (None, thing.color):
            return number % world.width, number // world.width
    raise ValueError(f"no {colour or ''} {kind} on the map")


def _route(world: Any, goal: Goal) -> list[int]:
    """A shortest list of turns and moves to where the goal holds."""
    start = tuple(int(number) for number in world.agent_pos), int(world.agent_dir)
    known: set[Any] = {start}
    queue: deque[tuple[Any, list[int]]] = deque([(start, [])])
    while queue:
        (at, facing), way = queue.popleft()
        if goal(at, facing):
            return way
        ahead = _ahead(at, facing)
        cell = world.grid.get(*ahead)
        reached = ahead if cell is None or cell.can_overlap() else at
        for action, after in (
            (Actions.forward, (reached, facing)),
            (Actions.left, (at, (facing - 1) % 4)),
            (Actions.right, (at, (facing + 1) % 4)),
        ):
            if after not in known:
                known.add(after)
                queue.append((after, [*way, int(action)]))
    raise ValueError(f"no way from {start} to the goal")


def _memory(env_id: str, episodes: int, seed: int) -> Data:
    env = FilterObservation(gym.make(env_id, disable_env_checker=True), ["image", "direction"])
    return play(CueInView(env), episodes, seed, MemoryPlayer, _STEPS)


def _unlock(episodes: int, seed: int) -> Data:
    env = ImgObsWrapper(gym.make("MiniGrid-Unlock-v0", disable_env_checker=True))
    return play(KeyPickUps(ViewObservation(env, MaskView(OWN_ROW))), episodes, seed, UnlockPlayer, _STEPS)


def _unlock_clock(episodes: int, seed: int) -> Data:
    env = gym.make("MiniGrid-Unlock-v0", disable_env_checker=True, max_episode_steps=_STEPS)
    env = FilterObservation(env, ["image", "direction"])
    env = TimeAwareObservation(env, flatten=False, normalize_time=True)
    return play(KeyPickUps(ViewObservation(env, MaskView(OWN_ROW, key="image"))), episodes, seed, UnlockPlayer)


def _red_blue(episodes: int, seed: int) -> Data:
    env = ImgObsWrapper(gym.make("MiniGrid-RedBlueDoors-6x6-v0", disable_env_checker=True))
    return play(RedDoorOpen(env), episodes, seed, RedBluePlayer, _STEPS)


TASKS = [
    Task(
        name="memory_s7",
        source="minigrid, MiniGrid-MemoryS7-v0",
        description="Of two ends of a hallway, the one pays that holds the object seen in the start room.",
        make=partial(_memory, "MiniGrid-MemoryS7-v0"),
        episodes=2_500,
        judged="positive",
        events="any",
    ),
    Task(
        name="memory_s11",
        source="minigrid, MiniGrid-MemoryS11-v0",
        description="As memory_s7, with a longer hallway.",
        make=partial(_memory, "MiniGrid-MemoryS11-v0"),
        episodes=2_500,
        judged="positive",
        events="any",
    ),
    Task(
        name="unlock",
        source="minigrid, MiniGrid-Unlock-v0; the row of the view with the agent's cell masked",
        description="The locked door opens, and pays, if the key was picked up.",
        make=_unlock,
        episodes=2_500,
        judged="positive",
    ),
    Task(
        name="unlock_clock",
        source="minigrid, MiniGrid-Unlock-v0; Gymnasium's TimeAwareObservation; the agent's row masked",
        description="As unlock; the observation is a Dict of image, direction and a clock from 0 to 1.",
        make=_unlock_clock,
        episodes=2_500,
        judged="positive",
    ),
    Task(
        name="red_blue_doors",
        source="minigrid, MiniGrid-RedBlueDoors-6x6-v0",
        description="Opening the blue door ends the episode, and pays if the red one, now out of view, is open.",
        make=_red_blue,
        episodes=2_500,
        judged="positive",
        events="any",
    ),
]
