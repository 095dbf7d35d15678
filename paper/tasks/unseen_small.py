"""Small tasks that were written by someone who did not know the method: rules, players and truth are kept as they were.

Each class is an environment, its docstring the description in the table, with the player that makes the data: ``_play``
may know what is not seen, but what it draws is independent of what the rules draw.
"""

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from numpy.typing import NDArray

from secret_rl.tasks.task import Data, Task, last_marked, play, play_unmarked

Random = np.random.Generator
Rules = Generator[Any, Any, None]
OwnCause = Callable[[Data], NDArray[np.int64]]
_MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
_STAY = 4  # in grids, the first action that is no move
_WINDOW = np.indices((3, 3)).transpose(1, 2, 0) - 1  # (3, 3, 2) the cells around one


class SmallTask(gym.Env[Any, Any]):
    """An environment whose rules are a generator, one for each episode: it yields what is seen and is sent the action.

    Then it sets what there is to say: ``reward``, ``over``, and ``cause`` if a later reward is due to this step.
    """

    limit = 40  # steps

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed, options=options)
        self.steps, self._episode = 0, self._rules(self.np_random)
        self.seen = next(self._episode)
        return self.seen, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Act, and say whether that is a cause."""
        self.reward, self.over, self.cause = 0.0, False, False
        self.steps += 1
        self.seen = self._episode.send(action)
        truncated = self.steps >= self.limit and not self.over
        return self.seen, float(self.reward), bool(self.over), truncated, {"cause": bool(self.cause)}

    def _rules(self, rng: Random) -> Rules:
        raise NotImplementedError

    def _play(self, rng: Random) -> Any:
        return int(rng.integers(self.action_space.n))  # type: ignore[attr-defined]

    def _end(self, reward: float) -> None:
        self.reward, self.over = reward, True


class GridKey(SmallTask):
    """The door pays if the key was taken, which is out of view then; a grid of 6x6 is seen through a window of 3x3."""

    limit, observation_space, action_space = 60, Box(0, 1, (3, 3, 3), np.uint8), Discrete(5)  # moves, take or use
    shows_carried = False

    def _rules(self, rng: Random) -> Rules:
        (self.at, self.key, self.door), self.has_key, self.wants_key = _cells(rng, 6), False, False
        while True:
            cells = self.at + _WINDOW
            key = self.shows_carried & ~_WINDOW.any(-1) if self.has_key else (cells == self.key).all(-1)
            wall, door = ((cells < 0) | (cells > 5)).any(-1), (cells == self.door).all(-1)
            action = yield np.stack([wall, key, door], -1).astype(np.uint8)
            if action < _STAY:
                self.at = np.clip(self.at + _MOVES[action], 0, 5)
            elif not self.has_key and (self.at == self.key).all():
                self.has_key = self.cause = True
            elif (self.at == self.door).all():
                self.reward = self.over = self.has_key
                self.wants_key = self.wants_key or rng.random() < 0.3  # a locked door may change the player's mind

    def _play(self, rng: Random) -> int:
        if self.steps == 0:
            self.wants_key = rng.random() < 0.5
        if rng.random() < 0.4:
            return int(rng.integers(5))
        return _toward(self.at, self.key if self.wants_key and not self.has_key else self.door, rng)


class DeliveryEnd(SmallTask):
    """The last step pays if a parcel was picked up before the round ended at the house; there is a wait in between."""

    limit, observation_space = 30, MultiDiscrete([5, 5, 2, 4])  # place; parcel here; away, at the house, waits, pay day
    action_space = Discrete(6)  # four moves, pick up, end the round

    def _rules(self, rng: Random) -> Rules:
        (self.at, self.depot, self.house), self.has_parcel, waits = _cells(rng, 5), False, False
        for time in range(self.limit + 1):
            at_depot, at_house = ((self.at == place).all() for place in (self.depot, self.house))
            here, status = at_depot and not self.has_parcel, 3 if time == self.limit - 1 else 2 if waits else at_house
            action = yield np.array([0, 0, 0, status] if waits else [*self.at, here, status])
            if time == self.limit - 1:
                self._end(self.has_parcel and waits)
            elif action < _STAY and not waits:
                self.at = np.clip(self.at + _MOVES[action], 0, 4)
            elif action == _STAY and here and not waits:
                self.has_parcel = self.cause = True
            elif action == 5 and at_house:
                waits = True

    def _play(self, rng: Random) -> int:
        if self.steps == 0:
            self.wants_parcel = rng.random() < 0.5
        if rng.random() < 0.4:
            return int(rng.integers(6))
        if self.wants_parcel and not self.has_parcel:
            return _toward(self.at, self.depot, rng)
        return _toward(self.at, self.house, rng, there=5)


class Trap(SmallTask):
    """The exit costs if the lever in the corridor was pulled, else it pays; judged where it costs."""

    limit, observation_space, action_space = 50, Box(-np.inf, np.inf, (4,), np.float32), Discrete(3)  # back, on, use

    def _rules(self, rng: Random) -> Rules:
        self.at, lever, armed = 0, int(rng.integers(2, 9)), False
        while True:
            signs = np.array([self.at / 11, self.at == lever and not armed, self.at == 11, 0])
            action = yield (signs + rng.normal(0, 0.1, 4)).astype(np.float32)
            if action < 2:
                self.at = min(max(self.at + (-1, 1)[action], 0), 11)
            elif self.at == lever:
                self.cause, armed = not armed, True
            elif self.at == 11:
                self._end(-1 if armed else 1)

    def _play(self, rng: Random) -> int:
        return int(rng.integers(3)) if rng.random() < 0.3 else 2 if self.at == 11 else 1


class ComboLock(SmallTask):
    """The handle pays if the red button was pressed, then the blue one: both are marked. Each works once, while lit."""

    observation_space, action_space = MultiDiscrete([5, 2]), Discrete(4)  # room, light; 2: press

    def _rules(self, rng: Random) -> Rules:
        self.room, self.pressed = int(rng.integers(5)), list[int]()
        while True:
            lit = self.room in (0, 3) and self.room not in self.pressed  # red and blue
            action = yield np.array([self.room, lit])
            if action < 2:
                self.room = min(max(self.room + (-1, 1)[action], 0), 4)
            elif action == 2 and lit:
                self.pressed, self.cause = [*self.pressed, self.room], True
            elif action == 2 and self.room == 4:
                self._end(self.pressed == [0, 3])

    def _play(self, rng: Random) -> int:
        if self.steps == 0:
            self.order = [[0, 3], [0, 3], [3, 0], [3], [0]][int(rng.integers(5))]
        if rng.random() < 0.5:
            return int(rng.choice([0, 1, 3]))
        goal = next((room for room in self.order if room not in self.pressed), 4)
        return 2 if self.room == goal else int(goal > self.room)


class Doctor(SmallTask):
    """The last visit pays if the right drug of four was given in the fever, one of six noisy signs, else it costs."""

    limit, observation_space, action_space = 30, Box(-np.inf, np.inf, (6,), np.float32), Discrete(4)

    def _rules(self, rng: Random) -> Rules:
        onset, usual, cured = int(rng.integers(3, 20)), rng.normal(0, 0.5, 6), False
        for time in range(self.limit + 1):
            fever, last = onset <= time < onset + 3 and not cured, time == self.limit - 1
            signs = usual + rng.normal(0, 0.4, 6)
            signs[1] += 3 * fever
            signs[5] = 2 * last
            action = yield signs.astype(np.float32)
            if last:
                self._end(1 if cured else -1)
            elif fever and action == 1:
                cured = self.cause = True


class TestThenTreat(SmallTask):
    """Of two treatments one pays and one costs; the step after a test shows which, without a test chance decides."""

    limit, observation_space, action_space = 20, Box(-np.inf, np.inf, (5,), np.float32), Discrete(4)  # 1: test

    def _rules(self, rng: Random) -> Rules:
        kind, tested, shown = int(rng.integers(2)), False, False
        for time in range(self.limit + 1):
            signs, last = rng.normal(0, 0.3, 5), time == self.limit - 1
            signs[2] += (-2, 2)[kind] * shown
            signs[4] = last
            action = yield signs.astype(np.float32)
            self.cause = shown
            if last:
                self._end(1 if action == 2 + kind else -1)
            shown = action == 1 and not tested
            tested |= shown

    def _play(self, rng: Random) -> int:
        if self.steps == 0:
            self.test_at = int(rng.integers(1, 16))
        if self.steps == self.limit - 1:
            return int(rng.integers(2, 4))
        return int(rng.random() < 0.85) if self.steps == self.test_at else int(rng.choice([0, 2, 3]))


class Shop(SmallTask):
    """An obstacle after a long road pays if the one item that was bought at the start, of three, fits it."""

    limit, observation_space = 25, MultiDiscrete([3, 2, 4, 6])  # shop, road or obstacle; money; which obstacle; weather
    action_space = Discrete(4)  # go on, or buy an item

    def _rules(self, rng: Random) -> Rules:
        item, trip, needed = 0, int(rng.integers(10, 18)), int(rng.integers(1, 4))
        for time in range(self.limit + 1):
            place = (time >= 5) + (time >= 5 + trip)
            money = place == 0 and not item
            action = yield np.array([place, money, needed * (place == 2), rng.integers(6)])
            if place == 2:
                self._end(item == needed)
            elif money and action > 0:
                item, self.cause = action, True

    def _play(self, rng: Random) -> int:
        return int(rng.integers(4)) if rng.random() < 0.4 else 0


class DictClock(SmallTask):
    """Passing the gate pays if the button was pressed while a bulb shone in the noisy picture, else it costs."""

    observation_space = Dict(picture=Box(0, 255, (8, 8, 1), np.uint8), vector=Box(-np.inf, np.inf, (3,), np.float32))
    action_space = Discrete(3)  # wait, press, pass

    def _rules(self, rng: Random) -> Rules:
        shines, gate, (row, column) = int(rng.integers(2, 15)), int(rng.integers(25, 38)), rng.integers(0, 7, 2)
        pressed = False
        for time in range(self.limit + 1):
            picture, lit = rng.integers(0, 60, (8, 8, 1)).astype(np.uint8), shines <= time < shines + 4 and not pressed
            if lit:
                picture[row : row + 2, column : column + 2] = 250
            if time >= gate:
                picture[:, 3:5] = 150
            vector = np.array([time / self.limit, *rng.normal(0, 1, 2)], np.float32)
            action = yield {"picture": picture, "vector": vector}
            if lit and action == 1:
                pressed = self.cause = True
            elif action == 2 and time >= gate:
                self._end(1 if pressed else -1)

    def _play(self, rng: Random) -> int:
        return int(rng.choice(3, p=[0.6, 0.2, 0.2]))


class Apples(SmallTask):
    """The door after 60 steps or more pays 1 if the key near the start was taken; apples on the way pay 0.1 at once."""

    limit, observation_space, action_space = 75, MultiDiscrete([4, 3]), Discrete(2)  # what is here, wallpaper; grab

    def _rules(self, rng: Random) -> Rules:
        key, end, has_key = int(rng.integers(1, 10)), int(rng.integers(60, 70)), False
        things = np.append(rng.random(75) < 0.2, False).astype(int)  # 1: apples
        things[key], things[end:] = 2, 3
        for time in range(self.limit + 1):
            action = yield np.array([things[time], rng.integers(3)])
            grabbed = things[time] * action
            if grabbed == 3:
                self._end(has_key)
            elif grabbed == 2:
                has_key = self.cause = True
            elif grabbed:
                self.reward = 0.1


class Sowing(SmallTask):
    """The harvest pays if what was sown came up, by chance, else it costs; the next observation is as good evidence."""

    limit, observation_space, action_space = 30, Discrete(6), Discrete(3)  # 2 spring, 3 sprout, 4 bare, 5 harvest; sow

    def _rules(self, rng: Random) -> Rules:
        shows, harvest, grown = {int(rng.integers(1, 10)): 2}, int(rng.integers(15, 29)), False
        for time in range(self.limit + 1):
            here = shows.get(time) or (5 if time >= harvest else int(rng.integers(2)))
            action = yield here
            if here == 5:
                self._end(1 if grown else -1)
            elif here == 2 and action == 2:
                grown = self.cause = rng.random() < 0.7
                shows[time + 1] = 3 if grown else 4

    def _play(self, rng: Random) -> int:
        return 2 if rng.random() < 0.6 else int(rng.integers(2))


class ReachGrip(SmallTask):
    """Letting go at the bin pays if the hand gripped at the shelf: each grip there is evidence enough, any is right."""

    limit, observation_space = 50, Box(-3, 3, (6,), np.float32)  # the hand's place, and from it to shelf and bin
    action_space = Box(-1, 1, (3,), np.float32)  # move by two numbers; grip above 0, let go below -0.3

    def _rules(self, rng: Random) -> Rules:
        self.holds, (self.at, self.shelf, self.bin) = False, rng.uniform(-1, 1, (3, 2))
        while np.linalg.norm(self.bin - self.shelf) < 0.7:
            self.bin = rng.uniform(-1, 1, 2)
        while True:
            at_shelf, at_bin = (np.linalg.norm(self.at - place) < 0.3 for place in (self.shelf, self.bin))
            action = yield np.concatenate([self.at, self.shelf - self.at, self.bin - self.at]).astype(np.float32)
            action = np.clip(action, -1, 1)
            self.cause = bool(at_shelf and action[2] > 0)
            self.holds |= self.cause
            if at_bin and action[2] < -0.3:
                self._end(self.holds)
            self.at = np.clip(self.at + 0.12 * action[:2], -1, 1)

    def _play(self, rng: Random) -> Any:
        if self.steps == 0:
            self.wants_grip = rng.random() < 0.55
        goal = self.shelf if self.wants_grip and not self.holds else self.bin
        move = np.clip((goal - self.at) / 0.2, -1, 1) * 0.7 + rng.normal(0, 0.5, 2)
        return np.clip([*move, rng.uniform(-1, 1)], -1, 1).astype(np.float32)


class EitherOr(SmallTask):
    """The exit pays if a lever or a wheel was thrown, each gone then, else it costs; one is enough, so any is right."""

    observation_space, action_space = MultiDiscrete([8, 3]), Discrete(3)  # room, thing; back, on, throw or leave

    def _rules(self, rng: Random) -> Rules:
        things, thrown, self.room = np.zeros(8, int), False, 0
        things[rng.choice(np.arange(1, 7), 2, replace=False)] = 1, 2
        while True:
            action = yield np.array([self.room, things[self.room]])
            if action < 2:
                self.room = (self.room + (-1, 1)[action]) % 8
            elif self.room == 7:
                self._end(1 if thrown else -1)
            elif things[self.room]:
                things[self.room], thrown, self.cause = 0, True, True

    def _play(self, rng: Random) -> int:
        if self.room == 7:
            return 2 if rng.random() < 0.5 else int(rng.integers(2))
        return int(rng.choice(3, p=[0.25, 0.5, 0.25]))


class Coupons(SmallTask):
    """Each of three tills pays if the coupon of its colour was clipped, which is its own cause."""

    limit, observation_space, action_space = 45, MultiDiscrete([3, 4]), Discrete(2)  # kind, colour; go on, clip

    def _rules(self, rng: Random) -> Rules:
        street, clipped = np.zeros((self.limit + 1, 2), int), set[int]()
        for kind, start, stop in ((1, 0, 20), (2, 22, 44)):
            times = np.sort(rng.choice(np.arange(start, stop), 3, replace=False))
            street[times, 0], street[times, 1] = kind, rng.permutation(3) + 1
        for kind, colour in street.tolist():
            action = yield np.array([kind, colour])
            if kind == 1 and action:
                clipped, self.cause = clipped | {colour}, True
            self.reward = kind == 2 and colour in clipped


class MailOrder(SmallTask):
    """The bell, which rings in any case, pays if the one good page of a catalogue was ordered from; steps cost 0.01."""

    limit, observation_space, action_space = 45, MultiDiscrete([8, 2]), Discrete(2)  # page, bell; read on, order

    def _rules(self, rng: Random) -> Rules:
        good, ordered = int(rng.integers(0, 15)), False
        rings = good + int(rng.integers(4, 28))
        for time in range(self.limit + 1):
            action = yield np.array([7 if time == good else rng.integers(7), time == rings])
            if time == good and action == 1:
                ordered = self.cause = True
            self.reward = -0.01 + (ordered and time == rings)


class Safe(SmallTask):
    """The handle pays if the right digit of four was given at the first prompt and at the second; each is marked."""

    limit, observation_space, action_space = 25, MultiDiscrete([4, 6]), Discrete(4)  # prompt, noise; digit
    digits = (None, 2, 0, None)  # at nothing, the prompts and the handle

    def _rules(self, rng: Random) -> Rules:
        shows, right = np.zeros(self.limit + 1, int), 0
        shows[[*np.sort(rng.choice(np.arange(1, 22), 2, replace=False)), self.limit - 1]] = 1, 2, 3
        for here in shows:
            action = yield np.array([here, rng.integers(6)])
            self.cause = action == self.digits[here]
            right += self.cause
            if here == 3:
                self._end(right == 2)

    def _play(self, rng: Random) -> int:
        knows, guess = rng.random() < 0.4, int(rng.integers(4))
        digit = self.digits[self.seen[0]]
        return digit if knows and digit is not None else guess


class ThreeOfThree(SmallTask):
    """The base pays if three stations of a field of 9x9 were serviced, else it costs; all that is seen is the place."""

    limit, observation_space, action_space = 80, Box(-1, 2, (2,), np.float32), Discrete(5)  # moves, service

    def _rules(self, rng: Random) -> Rules:
        self.at, self.left = np.array([4, 4]), [(1, 1), (7, 2), (3, 7)]
        while True:
            action = yield (self.at / 8 + rng.normal(0, 0.02, 2)).astype(np.float32)
            if action < _STAY:
                self.at = np.clip(self.at + _MOVES[action], 0, 8)
            elif (self.at == 8).all():
                self._end(-1 if self.left else 1)
            elif (here := tuple(self.at.tolist())) in self.left:
                self.left, self.cause = [place for place in self.left if place != here], True

    def _play(self, rng: Random) -> int:
        if self.steps == 0:
            self.tour = [self.left[number] for number in rng.permutation(3) if rng.random() < 0.75]
        if rng.random() < 0.2:
            return int(rng.integers(4))
        return _toward(self.at, next((place for place in self.tour if place in self.left), (8, 8)), rng)


class NoPastApples(SmallTask):
    """Apples in view pay when they are grabbed, thorns cost."""

    limit, observation_space, action_space = 30, MultiDiscrete([4, 5]), Discrete(3)  # what is here, noise; 1: grab

    def _rules(self, rng: Random) -> Rules:
        while True:
            here = int(rng.integers(4))
            action = yield np.array([here, rng.integers(5)])
            self.reward = (0, 0, 1, -1)[here] * (action == 1)


class NoPastGridKey(GridKey):
    """As grid_key, but the key that is carried is in view."""

    shows_carried = True


class NoPastChase(SmallTask):
    """The goal pays and one edge of a grid of 6x6 costs, both in view; steps cost 0.01."""

    observation_space, action_space = MultiDiscrete([6, 6, 6, 6]), Discrete(4)  # place, goal; moves

    def _rules(self, rng: Random) -> Rules:
        self.at, self.goal = np.array([2, 2]), rng.integers(0, 6, 2)
        while True:
            action = yield np.array([*self.at, *self.goal])
            over_edge = self.at[1] + _MOVES[action][1] < 0
            self.at = np.clip(self.at + _MOVES[action], 0, 5)
            self.over = over_edge or (self.at == self.goal).all()
            self.reward = -1.01 if over_edge else -0.01 + self.over

    def _play(self, rng: Random) -> int:
        move = _toward(self.at, self.goal, rng)
        return int(rng.integers(4)) if move == _STAY or rng.random() < 0.6 else move


def _cells(rng: Random, size: int) -> list[NDArray[np.int64]]:
    """Three different cells of a grid."""
    return [np.array(divmod(int(cell), size)) for cell in rng.choice(size**2, 3, replace=False)]


def _toward(at: Any, goal: Any, rng: Random, there: int = _STAY) -> int:
    """A move that leads from a cell to another, or what to do there."""
    useful = [2 * axis + int(goal[axis] > at[axis]) for axis in (0, 1) if goal[axis] != at[axis]]
    return int(rng.choice(useful)) if useful else there


def _key_of_door(data: Data) -> NDArray[np.int64]:
    return np.where(data.trajectories.rewards == 1, last_marked(data.trajectories, data.truth), -1)


def _coupon_of_till(data: Data) -> NDArray[np.int64]:
    kinds, colours = np.asarray(data.trajectories.observations).T
    same = [colours == colour for colour in (1, 2, 3)]
    clipped = [np.where(rows, last_marked(data.trajectories, data.truth & rows), -1) for rows in same]
    return np.where(kinds == 2, np.max(clipped, 0), -1)


def _make(rules: type[SmallTask], marked: bool, own_cause: OwnCause | None, episodes: int, seed: int) -> Data:
    env = rules()
    data = (play if marked else play_unmarked)(env, episodes, seed, lambda _, rng: env._play(rng))
    return Data(data.trajectories, own_cause(data)) if own_cause else data


def _task(name: str, rules: type[SmallTask], episodes: int, own_cause: OwnCause | None = None, **how: Any) -> Task:
    spaces = [type(space).__name__ for space in (rules.observation_space, rules.action_space)]
    source = "Own environment; {} observations, {} actions".format(*spaces)
    make = partial(_make, rules, how.get("past_matters", True), own_cause)
    return Task(name, source, str(rules.__doc__), make, episodes, **how)


_TASKS = (
    _task("grid_key", GridKey, 3_000, judged="positive"),
    _task("delivery_end", DeliveryEnd, 3_000, judged="positive"),
    _task("trap", Trap, 3_000, judged="negative"),
    _task("combo_lock", ComboLock, 4_000, judged="positive"),
    _task("doctor", Doctor, 3_000, judged="positive"),
    _task("test_then_treat", TestThenTreat, 4_000),
    _task("shop", Shop, 4_000),
    _task("dict_clock", DictClock, 3_000, judged="positive"),
    _task("apples", Apples, 2_500, _key_of_door, judged="positive"),
    _task("sowing", Sowing, 3_000, judged="positive", tolerance=1),
    _task("reach_grip", ReachGrip, 3_000, judged="positive", events="any"),
    _task("either_or", EitherOr, 3_000, judged="positive", events="any"),
    _task("coupons", Coupons, 2_500, _coupon_of_till, judged="positive"),
    _task("mail_order", MailOrder, 3_000, judged="positive"),
    _task("safe", Safe, 4_000, judged="positive"),
    _task("three_of_three", ThreeOfThree, 4_000, judged="positive"),
    _task("no_past_apples", NoPastApples, 2_500, past_matters=False),
    _task("no_past_grid_key", NoPastGridKey, 3_000, past_matters=False),
    _task("no_past_chase", NoPastChase, 2_500, past_matters=False),
)
UNSEEN_SMALL: dict[str, Task] = {task.name: task for task in _TASKS}
