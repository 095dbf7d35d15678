"""MiniGrid's part of the unseen tasks: other environments and other mechanisms than ``minigrid`` has."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import FilterObservation
from minigrid.core.actions import Actions
from minigrid.core.constants import COLOR_NAMES, OBJECT_TO_IDX
from minigrid.core.grid import Grid
from minigrid.core.mission import MissionSpace
from minigrid.core.world_object import Ball, Door, Key
from minigrid.minigrid_env import MiniGridEnv
from minigrid.wrappers import ImgObsWrapper

from secret_rl.tasks.minigrid import OWN_ROW, Cell, Goal, KeyPickUps, Walker, facing, place_of
from secret_rl.tasks.task import Data, Marked, Task, last_marked, play, play_unmarked, step_numbers
from secret_rl.views import MaskView, ViewObservation

_STEPS = 80
_UP = 3  # a direction


class MissionOnce(gym.ObservationWrapper[Any, Any, Any]):
    """The image, and the colour that the mission names: 1 to 6 at the first step, 0 afterwards."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        image: Any = env.observation_space
        colours = gym.spaces.Discrete(len(COLOR_NAMES) + 1)
        self.observation_space = gym.spaces.Dict({"image": image["image"], "mission": colours})

    def observation(self, observation: Any) -> Any:
        """What is seen."""
        world: Any = self.unwrapped
        colour = 1 + COLOR_NAMES.index(world.target_color) if world.step_count == 0 else 0
        return {"image": observation["image"], "mission": colour}


class KeyToDoor(MiniGridEnv):
    """A room with a key, one with apples that pay at once, and one with a locked door that pays if it opens.

    After Hung et al., 2019 ("Optimizing agent behavior over long time scales by transporting value"), in MiniGrid's
    world: a ball is the apple, and lies somewhere else as soon as it is taken.
    """

    until = (15, 80, 100)  # the step at which each room is left

    def __init__(self) -> None:
        mission = MissionSpace(mission_func=lambda: "open the door")
        super().__init__(mission_space=mission, grid_size=6, max_steps=self.until[-1], see_through_walls=True)

    def _gen_grid(self, width: int, height: int) -> None:  # noqa: ARG002  the room is as large as the grid
        """The first room."""
        self.mission = "open the door"
        self._enter(0)

    def _enter(self, room: int) -> None:
        self.room, self.grid = room, Grid(self.width, self.height)
        self.grid.wall_rect(0, 0, self.width, self.height)
        if room == 2:
            self.grid.set(self._rand_int(1, self.width - 1), 0, Door("yellow", is_locked=True))
        else:
            self.place_obj(Key("yellow") if room == 0 else Ball("red"))
        self.place_agent()

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Walk on, to the next room if it is time."""
        cell = self.grid.get(*self.front_pos)
        apple = action == Actions.pickup and isinstance(cell, Ball)
        if apple:  # it is eaten, not carried
            self.place_obj(cell)
            self.grid.set(*self.front_pos, None)
        seen, _, _, truncated, info = super().step(Actions.done if apple else action)
        opened = isinstance(cell, Door) and cell.is_open
        if self.step_count in self.until[:-1]:
            self._enter(self.room + 1)
            seen = self.gen_obs()
        return seen, 0.1 if apple else float(opened), opened, truncated, info


class KeyPutDown(Marked):
    """Marks the step that puts the key down after it opened the door, and every later one that shows it there."""

    def begin(self) -> None:
        """The door is locked."""
        self._down = False

    def marks(self, seen: Any, action: Any) -> bool:  # noqa: ARG002
        """Whether the step puts the key down, or shows that this was done."""
        world: Any = self.unwrapped
        before = self._down
        self._down |= world.carrying is None and not world.grid.get(*place_of(world, "door")).is_locked
        return bool((seen[..., 0] == OBJECT_TO_IDX["key"]).any()) if before else self._down


class DoorPlayer(Walker):
    """Goes to one of the four doors by chance, often with a detour, and says that it is done."""

    def choose(self) -> tuple[Goal, int]:
        """A detour or a door."""
        if self.rng.random() < 0.5:
            at = int(self.rng.integers(1, 4)), int(self.rng.integers(1, 4))
            return lambda place, _: place == at, Actions.left
        doors = [thing.color for thing in self.world.grid.grid if thing is not None and thing.type == "door"]
        return facing(place_of(self.world, "door", doors[int(self.rng.integers(4))])), Actions.done


class RoomPlayer(Walker):
    """Goes for the key of the first room by chance, for apples, and for the door, whatever it carries."""

    def begin(self, seed: int) -> None:
        """The first room."""
        super().begin(seed)
        self._room = 0

    def __call__(self, observation: Any) -> int:
        """The next action; plans end with the room."""
        if self.world.room != self._room:
            self._room, self._goal, self._way = self.world.room, None, []
        return super().__call__(observation)

    def choose(self) -> tuple[Goal, int]:
        """The thing of the room, or any cell."""
        kind, action = (("key", Actions.pickup), ("ball", Actions.pickup), ("door", Actions.toggle))[self._room]
        there = any(thing is not None and thing.type == kind for thing in self.world.grid.grid)
        if there and self.rng.random() < (0.12, 0.7, 0.7)[self._room]:
            return facing(place_of(self.world, kind)), action
        at = int(self.rng.integers(1, 5)), int(self.rng.integers(1, 5))
        return facing(at), Actions.pickup


class BoxPlayer(Walker):
    """Fetches the key, opens the door, goes for the box; puts the key down too early, in good time or not at all."""

    def choose(self) -> tuple[Goal, int]:
        """The next thing to do. With the door open, it does the same whether it carries the key or not."""
        door = place_of(self.world, "door")
        chance = self.rng.random()
        if self.world.grid.get(*door).is_locked:
            if self.world.carrying is None:
                return facing(place_of(self.world, "key")), Actions.pickup
            return (facing(self._cell(door)), Actions.drop) if chance < 0.2 else (facing(door), Actions.toggle)
        if chance < 0.15:
            return facing(self._cell(door)), Actions.drop
        if chance < 0.35:
            return lambda at, way: at[1] == 1 and way == _UP, Actions.drop  # at a wall: nothing happens
        return facing(place_of(self.world, "box")), Actions.pickup

    def _cell(self, door: Cell) -> Cell:
        """A cell of the first room that does not block the door."""
        cells = [(x, y) for x in range(1, door[0]) for y in range(1, 5) if (x, y) != (door[0] - 1, door[1])]
        return cells[int(self.rng.integers(len(cells)))]


class GoalPlayer(Walker):
    """Fetches the key, opens the door and goes to the goal, unless it goes elsewhere."""

    def choose(self) -> tuple[Goal, int]:
        """The next thing to do."""
        door = place_of(self.world, "door")
        if self.rng.random() < 0.7:
            direction = int(self.rng.integers(4))
            return lambda _, way: way == direction, Actions.forward
        if self.world.grid.get(*door).is_open:
            return facing(place_of(self.world, "goal")), Actions.forward
        if self.world.carrying is None:
            return facing(place_of(self.world, "key")), Actions.pickup
        return facing(door), Actions.toggle


def _go_to_door(episodes: int, seed: int) -> Data:
    env = FilterObservation(gym.make("MiniGrid-GoToDoor-6x6-v0", disable_env_checker=True), ["image"])
    data = play_unmarked(MissionOnce(env), episodes, seed, DoorPlayer, _STEPS).trajectories
    return Data(data, np.where((data.rewards > 0) & (step_numbers(data) > 0), 0, -1))


def _unlock_pickup(episodes: int, seed: int) -> Data:
    env = ImgObsWrapper(gym.make("MiniGrid-UnlockPickup-v0", disable_env_checker=True))
    return play(KeyPutDown(ViewObservation(env, MaskView(OWN_ROW))), episodes, seed, BoxPlayer, 50)


def _key_to_door(episodes: int, seed: int) -> Data:
    env = KeyPickUps(ViewObservation(ImgObsWrapper(KeyToDoor()), MaskView(OWN_ROW)))
    data = play(env, episodes, seed, RoomPlayer)
    opened = data.trajectories.rewards == 1
    return Data(data.trajectories, np.where(opened, last_marked(data.trajectories, data.truth), -1))


def _dynamic_obstacles(episodes: int, seed: int) -> Data:
    env = ImgObsWrapper(gym.make("MiniGrid-Dynamic-Obstacles-5x5-v0", disable_env_checker=True))
    return play_unmarked(env, episodes, seed, success_share=0.05)


def _door_key(episodes: int, seed: int) -> Data:
    env = ImgObsWrapper(gym.make("MiniGrid-DoorKey-5x5-v0", disable_env_checker=True))
    return play_unmarked(env, episodes, seed, GoalPlayer, 30)


TASKS = [
    Task(
        name="go_to_door",
        source="minigrid, MiniGrid-GoToDoor-6x6-v0; Dict observations, the mission's colour at the first step alone",
        description="Saying done pays at the door, of four, whose colour the first observation named.",
        make=_go_to_door,
        episodes=3_000,
        judged="positive",
    ),
    Task(
        name="unlock_pickup",
        source="minigrid, MiniGrid-UnlockPickup-v0; the row of the view with the agent's cell masked",
        description="Picking up the box pays if the hands are empty: the key was put down after it opened the door. "
        "Every later view of the key on the floor is as good evidence.",
        make=_unlock_pickup,
        episodes=2_500,
        judged="positive",
        events="any",
    ),
    Task(
        name="key_to_door",
        source="after Hung et al., 2019, in minigrid's world; the row of the view with the agent's cell masked",
        description="The door of the last room pays if the key of the first was taken; apples between pay at once.",
        make=_key_to_door,
        episodes=2_000,
        judged="positive",
    ),
    Task(
        name="dynamic_obstacles",
        source="minigrid, MiniGrid-Dynamic-Obstacles-5x5-v0",
        description="What lies ahead decides: the goal pays, walls and moving obstacles cost.",
        make=_dynamic_obstacles,
        episodes=2_500,
        past_matters=False,
    ),
    Task(
        name="door_key",
        source="minigrid, MiniGrid-DoorKey-5x5-v0",
        description="The key opens the way to the goal, but the goal ahead is in view, and pays whoever steps on it.",
        make=_door_key,
        episodes=2_500,
        past_matters=False,
    ),
]
