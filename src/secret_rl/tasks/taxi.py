"""Gymnasium's Taxi with the passenger out of sight once aboard: scripted play with mistakes.

Seen: the taxi's row and column, the destination, and whether the passenger waits in the taxi's own cell. So a pick-up
that works shows in its own step (the passenger is here, and the action is to pick up), and a drop-off looks the same
with and without a passenger.
"""

from collections import deque
from functools import cache, partial
from typing import Any

import gymnasium as gym
import numpy as np

from secret_rl.envs.tabular import TabularEnv, TabularModel
from secret_rl.tasks.task import Data, Marked, Task, last_marked, play, play_unmarked

_STEPS = 50
_PICK_UP, _DROP_OFF, _ABOARD = 4, 5, 4
_PLACES = ((0, 0), (0, 4), (4, 0), (4, 3))
_DELIVERED = 20


class HiddenPassenger(gym.ObservationWrapper[Any, Any, Any]):
    """Row, column, destination, and whether the passenger waits here."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.observation_space = gym.spaces.MultiDiscrete([5, 5, 4, 2])

    def observation(self, observation: Any) -> Any:
        """What is seen of a state."""
        return np.array(_seen_of(self.unwrapped, observation), np.int64)


class OneDelivery(gym.Wrapper[Any, Any, Any, Any]):
    """The first drop-off at the destination ends the episode: +1 with the passenger aboard, else ``failure``."""

    def __init__(self, env: gym.Env[Any, Any], failure: float) -> None:
        super().__init__(env)
        self.failure = failure

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, with the rewards of the one delivery in place of Taxi's own."""
        taxi: Any = self.unwrapped
        row, column, passenger, destination = taxi.decode(taxi.s)
        seen, _, _, truncated, info = self.env.step(action)
        attempt = action == _DROP_OFF and (row, column) == _PLACES[destination]
        reward = (1.0 if passenger == _ABOARD else self.failure) if attempt else 0.0
        return seen, reward, attempt, truncated, info


class PickUps(Marked):
    """Marks the steps at which the passenger gets in."""

    def begin(self) -> None:
        """The passenger waits."""
        self._aboard = False

    def marks(self, seen: Any, action: Any) -> bool:  # noqa: ARG002
        """Whether the passenger is aboard since this step."""
        taxi: Any = self.unwrapped
        before = self._aboard
        self._aboard = taxi.decode(taxi.s)[2] == _ABOARD
        return self._aboard and not before


class Driver:
    """Drives to the passenger, to other places and to the destination, in no good order, and forgets to pick up."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        self._taxi: Any = env.unwrapped
        self._rng = np.random.default_rng(0)

    def begin(self, seed: int) -> None:
        """An episode starts, with no plan."""
        self._rng = np.random.default_rng(seed)
        self._goal: tuple[int, int] | None = None

    def __call__(self, observation: Any) -> int:  # noqa: ARG002  it knows the state
        """The next action of the plan, now and then a random move."""
        row, column, _, _ = self._taxi.decode(self._taxi.s)
        if self._goal is None:
            self._choose()
        if self._rng.random() < 0.1:
            return int(self._rng.integers(4))
        if (row, column) != self._goal:
            return _move(row, column, self._goal)
        self._goal = None
        return self._then

    def _choose(self) -> None:
        """A place to go to, and what to do there; the same whether a passenger is aboard or not."""
        _, _, _, destination = self._taxi.decode(self._taxi.s)
        if self._rng.random() < 0.3:
            self._goal, self._then = _PLACES[destination], _DROP_OFF
        else:
            others = [place for place in range(4) if place != destination]
            self._goal = _PLACES[int(self._rng.choice(others))]
            self._then = _PICK_UP if self._rng.random() < 0.8 else int(self._rng.integers(4))  # or drives on


@cache
def _move(row: int, column: int, goal: tuple[int, int]) -> int:
    """The first move of a shortest way, by the moves that Taxi itself allows."""
    taxi: Any = gym.make("Taxi-v4").unwrapped
    came_from: dict[tuple[int, int], int] = {}
    queue: deque[tuple[tuple[int, int], int | None]] = deque([((row, column), None)])
    while queue:
        cell, first = queue.popleft()
        if cell == goal:
            assert first is not None
            return first
        for action in range(4):
            state = taxi.P[taxi.encode(*cell, 0, 0)][action][0][1]
            after = taxi.decode(state)[:2]
            if after not in came_from and after != (row, column):
                came_from[after] = action
                queue.append((after, action if first is None else first))
    raise ValueError(f"no way from {(row, column)} to {goal}")


def _seen_of(taxi: Any, state: int) -> list[int]:
    """What ``HiddenPassenger`` shows of a state."""
    row, column, passenger, destination = taxi.decode(state)
    here = passenger != _ABOARD and _PLACES[passenger] == (row, column)
    return [row, column, destination, int(here)]


def _one_delivery(failure: float, number: int) -> gym.Env[Any, Any]:
    """The delivery from one start: where the taxi is, where the passenger waits, and where to."""
    taxi: Any = gym.make("Taxi-v4").unwrapped
    states, actions = len(taxi.P), 6
    rng = np.random.default_rng([number, states])
    passenger, destination = rng.choice(4, 2, replace=False)
    following = np.array([[taxi.P[s][a][0][1] for a in range(actions)] for s in range(states)])
    decoded = np.array([list(taxi.decode(s)) for s in range(states)])
    delivers = (decoded[:, :2] == np.array(_PLACES)[decoded[:, 3]]).all(1)
    attempt = delivers[:, None] & (np.arange(actions) == _DROP_OFF)
    rewards = attempt * np.where(decoded[:, 2:3] == _ABOARD, 1.0, failure)
    model = TabularModel.of(
        following, rewards, attempt, max_steps=_STEPS,
        start=taxi.encode(*rng.integers(5, size=2).tolist(), int(passenger), int(destination)),
        observations=np.array([_seen_of(taxi, s) for s in range(states)], np.int64),
    )  # fmt: skip
    return TabularEnv(model, gym.spaces.MultiDiscrete([5, 5, 4, 2]))


def _delivery(failure: float, episodes: int, seed: int) -> Data:
    env = PickUps(HiddenPassenger(OneDelivery(gym.make("Taxi-v4", disable_env_checker=True), failure)))
    return play(env, episodes, seed, Driver, _STEPS)


def _own_rewards(episodes: int, seed: int) -> Data:
    env = PickUps(HiddenPassenger(gym.make("Taxi-v4", disable_env_checker=True)))
    data = play(env, episodes, seed, Driver, _STEPS)
    delivered = data.trajectories.rewards == _DELIVERED
    return Data(data.trajectories, np.where(delivered, last_marked(data.trajectories, data.causes()), -1))


def _seen_whole(episodes: int, seed: int) -> Data:
    return play_unmarked(gym.make("Taxi-v4", disable_env_checker=True), episodes, seed, Driver, _STEPS)


TASKS = [
    Task(
        name="taxi_delivery",
        source="gymnasium, Taxi-v4; rewards ours: +1 or 0 at the first drop-off at the destination",
        description="The drop-off pays if the passenger, who is hidden, was picked up before.",
        make=partial(_delivery, 0.0),
        episodes=2_500,
        judged="positive",
        instance=partial(_one_delivery, 0.0),
        practice=2_000,
    ),
    Task(
        name="taxi_delivery_signed",
        source="gymnasium, Taxi-v4; rewards ours: +1 or -1 at the first drop-off at the destination",
        description="The drop-off pays if the passenger, who is hidden, was picked up before, else it costs.",
        make=partial(_delivery, -1.0),
        episodes=2_500,
        judged="positive",
    ),
    Task(
        name="taxi_own_rewards",
        source="gymnasium, Taxi-v4",
        description="A drop-off at the destination gives +20 or -10 as the hidden passenger is aboard; a step costs 1.",
        make=_own_rewards,
        episodes=2_500,
        judged="positive",
    ),
    Task(
        name="taxi_seen",
        source="gymnasium, Taxi-v4",
        description="The state is seen whole, and decides every reward with the action.",
        make=_seen_whole,
        episodes=2_500,
        past_matters=False,
    ),
]
