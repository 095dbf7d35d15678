"""A third set of small tasks, written by someone who did not know the method.

Each class is an environment, its docstring the description in the table, with the player that makes the data: ``_play``
may know what is not seen, but what it draws is independent of what the rules draw.
"""

from functools import partial
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple

from paper.tasks.unseen_small import Random, Rules, SmallTask
from secret_rl.tasks.task import Data, Task, play, play_unmarked


class Logged(SmallTask):
    """A small task whose rules may also set ``due``: the step that the reward of the present step is due to."""

    def __init__(self) -> None:
        self.log: list[tuple[float, int]] = []

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Act, and log what the reward is due to."""
        self.due = -1
        result = super().step(action)
        self.log.append((result[1], self.due))
        return result


def _floats(*values: float) -> Any:
    return np.array(values, np.float32)


class Greenhouse(SmallTask):
    """The harvest pays +1 if the valve was opened while its lamp was lit for one step, else -1; noisy sensors."""

    limit, observation_space, action_space = 30, Box(-5, 5, (7,), np.float32), Discrete(3)  # wait, open, close

    def _rules(self, rng: Random) -> Rules:
        lit_at, opened, warmth = int(rng.integers(2, 13)), False, 0.0
        for time in range(self.limit + 1):
            warmth = 0.8 * warmth + 0.3 * rng.normal()
            self.lit = time == lit_at
            noise = np.clip(rng.normal(size=4), -4, 4)
            seen = [float(self.lit), np.clip(warmth, -5, 5), time / self.limit, *noise]
            action = yield _floats(*seen)
            if self.lit:
                opened, self.cause = action == 1, True
            if time == self.limit - 1:
                self._end(1 if opened else -1)

    def _play(self, rng: Random) -> int:
        return int(rng.choice(3, p=[0.3, 0.45, 0.25]))


class SignMaze(SmallTask):
    """At the junction the side pays +1 that a sign showed at the corridor's start, the other -1; noisy images."""

    limit, observation_space, action_space = 50, Box(0, 255, (6, 6, 1), np.uint8), Discrete(3)  # ahead, left, right

    def _rules(self, rng: Random) -> Rules:
        self.side, self.place = int(rng.integers(2)), 0
        while True:
            image = rng.integers(0, 40, (6, 6, 1))
            signed, junction = self.place < 3, self.place == 12
            if signed:
                image[0:2, 4 * self.side : 4 * self.side + 2] = 220
            if junction:
                image[5] = 160
            action = yield image.astype(np.uint8)
            self.cause = signed
            if junction and action > 0:
                self._end(1 if action - 1 == self.side else -1)
            elif not junction and action == 0:
                self.place += 1

    def _play(self, rng: Random) -> int:
        if rng.random() < 0.3:
            return int(rng.integers(3))
        if self.place < 12:
            return 0
        return 1 + (self.side if rng.random() < 0.2 else int(rng.integers(2)))


class OrbitBurn(SmallTask):
    """The arrival pays if the main engine burned in the one-step window long before; the side engine costs fuel."""

    limit, observation_space, action_space = 40, Box(-2, 2, (6,), np.float32), Box(-1, 1, (2,), np.float32)

    def _rules(self, rng: Random) -> Rules:
        window_at, burned, angle = int(rng.integers(5, 16)), False, rng.uniform(0, 2 * np.pi)
        for time in range(self.limit + 1):
            window = time == window_at
            noise = rng.uniform(-1, 1, 2)
            action = yield _floats(np.cos(angle), np.sin(angle), float(window), time / self.limit, *noise)
            angle += 0.3
            if window:
                burned = self.cause = bool(action[0] > 0.2)
            if time == self.limit - 1:
                self._end(burned)
            else:
                self.reward = -0.05 * abs(float(action[1]))

    def _play(self, rng: Random) -> Any:
        return rng.uniform(-1, 1, 2).astype(np.float32)


class Conveyor(SmallTask):
    """The finished piece pays if it was both glued at the one station and pressed at another, in either order."""

    limit, action_space = 25, Discrete(3)  # let pass, glue, press
    observation_space = Tuple((Discrete(6), Box(0, 1, (2,), np.float32)))  # station (0: none, 5: the end); noise

    def _rules(self, rng: Random) -> Rules:
        stations = rng.choice([0, 0, 0, 3, 4], self.limit + 1)
        at = 1 + rng.choice(19, 2, replace=False)
        stations[at], stations[self.limit - 1] = (1, 2), 5
        done = 0
        for station in stations:
            self.station = int(station)
            action = yield self.station, rng.random(2).astype(np.float32)
            if station in (1, 2) and action == station:
                done += 1
                self.cause = True
            elif station == 5:
                self._end(done == 2)
        yield 0, rng.random(2).astype(np.float32)

    def _play(self, rng: Random) -> int:
        return self.station if self.station in (1, 2) and rng.random() < 0.4 else int(rng.integers(3))


class SoundCheck(Logged):
    """Two songs pay +1 or -1 each by whether the dial fitted the band at the sound check; bows to cheers pay 0.2."""

    limit, action_space = 32, MultiDiscrete([3, 2])  # dial, bow
    observation_space = Dict(
        {"phase": Discrete(4), "band": Discrete(4), "cheers": Discrete(2), "lights": Box(0, 1, (2,), np.float32)}
    )

    def _rules(self, rng: Random) -> Rules:
        check_at, self.band, fits = int(rng.integers(2, 10)), int(rng.integers(3)), False
        songs = int(rng.integers(16, 22)), int(rng.integers(24, 31))
        for time in range(self.limit + 1):
            self.checks = time == check_at
            phase = 1 if self.checks else 2 if time in songs else 3 if time == self.limit - 1 else 0
            cheers = int(phase == 0 and rng.random() < 0.15)
            action = yield {
                "phase": phase,
                "band": self.band + 1 if self.checks else 0,
                "cheers": cheers,
                "lights": rng.random(2).astype(np.float32),
            }
            if self.checks:
                fits, self.cause = action[0] == self.band, True
            elif phase == 2:
                self.reward, self.due = 1 if fits else -1, check_at
            elif cheers and action[1]:
                self.reward = 0.2
            self.over = time == self.limit - 1

    def _play(self, rng: Random) -> Any:
        dial = self.band if self.checks and rng.random() < 0.25 else int(rng.integers(3))
        return np.array([dial, rng.integers(2)])


class Fuse(SmallTask):
    """The test pays if the contact was made: pressing may or may not make it, which one spark shows a step later."""

    limit, observation_space, action_space = 24, MultiDiscrete([4, 3]), Discrete(3)  # kind, noise; press is 1

    def _rules(self, rng: Random) -> Rules:
        switch_at, made = int(rng.integers(3, 13)), False
        for time in range(self.limit + 1):
            spark = made and time == switch_at + 1
            self.kind = 1 if time == switch_at else 2 if spark else 3 if time == self.limit - 1 else 0
            action = yield np.array([self.kind, rng.integers(3)])
            self.cause = spark
            if self.kind == 1:
                made = action == 1 and rng.random() < 0.6
            elif self.kind == 3:
                self._end(made)

    def _play(self, rng: Random) -> int:
        return 1 if self.kind == 1 and rng.random() < 0.5 else int(rng.integers(3))


class Insurance(Logged):
    """A late storm costs 1, or 0.1 if the early offer was accepted, which cost 0.2 then; each step costs 0.01."""

    limit, observation_space, action_space = 56, MultiDiscrete([3, 8]), Discrete(2)  # calm, offer, storm; wind

    def _rules(self, rng: Random) -> Rules:
        offer_at, insured = int(rng.integers(2, 11)), False
        storm_at = int(rng.integers(40, 55)) if rng.random() < 0.85 else -1
        for time in range(self.limit + 1):
            kind = 1 if time == offer_at else 2 if time == storm_at else 0
            action = yield np.array([kind, 7 if kind == 2 else rng.integers(7)])
            self.reward = -0.01
            if kind == 1:
                insured, self.cause = action == 1, True
                self.reward -= 0.2 * insured
            elif kind == 2:
                self._end(-0.11 if insured else -1.01)
                self.due = offer_at


class Grafting(SmallTask):
    """The harvest pays 5 if one kind of scion was put on the one stock that carries it, which is rare; steps cost."""

    limit, action_space = 30, Discrete(5)  # stock
    observation_space = MultiDiscrete([6, 4, 30])  # scion (0: none), weather, clock

    def _rules(self, rng: Random) -> Rules:
        at, scion, grown = int(rng.integers(4, 20)), int(rng.integers(5)), False
        for time in range(self.limit + 1):
            seen = [scion + 1 if time == at else 0, rng.integers(4), min(time, self.limit - 1)]
            action = yield np.array(seen)
            self.reward = -0.02
            if time == at:
                grown = self.cause = scion == 2 and action == 3
            if time == self.limit - 1:
                self._end(5 if grown else -0.02)


class Samples(SmallTask):
    """The medical check costs 1 if the rare toxic sample was touched; touching others pays a little at once."""

    limit, observation_space, action_space = 28, Discrete(6), Discrete(3)  # none, three kinds, toxic, check; touch is 2

    def _rules(self, rng: Random) -> Rules:
        toxic_at = int(rng.integers(3, 22)) if rng.random() < 0.2 else -1
        ill = False
        for time in range(self.limit + 1):
            kind = 4 if time == toxic_at else 5 if time == self.limit - 1 else int(rng.choice([0, 0, 0, 0, 0, 1, 2, 3]))
            action = yield kind
            if kind == 5:
                self._end(-1 if ill else 0)
            elif action == 2:
                self.reward = 0.1 * kind if kind < 4 else 0.1
                ill = ill or kind == 4
                self.cause = kind == 4

    def _play(self, rng: Random) -> int:
        return int(rng.choice(3, p=[0.4, 0.35, 0.25]))


class Fishing(Logged):
    """A haul pays by the bait and the tide of the last cast, which are out of sight by then; many hauls an episode."""

    limit, observation_space, action_space = 40, MultiDiscrete([4, 2, 3]), Discrete(4)  # tide, line is out, weather
    worth = ((2, -1), (2, -1), (-1, 2), (-1, 1))

    def _rules(self, rng: Random) -> Rules:
        cast_at, pays, self.out = -1, 0, False
        while True:
            self.tide = int(rng.integers(4))
            action = yield np.array([self.tide, self.out, rng.integers(3)])
            if not self.out and action in (1, 2):
                cast_at, pays, self.out, self.cause = self.steps - 1, self.worth[self.tide][action - 1], True, True
            elif self.out and action == 3:
                self.reward, self.due, self.out = pays, cast_at, False

    def _play(self, rng: Random) -> int:
        if self.out:
            return 3 if rng.random() < 0.18 else int(rng.integers(3))
        return int(rng.choice(4, p=[0.5, 0.2, 0.2, 0.1]))


class CueThenChoice(SmallTask):
    """Payday gives +1 if the choice made midway agreed with the cue that was shown before it, else -1."""

    limit, observation_space, action_space = 26, Box(-4, 4, (7,), np.float32), Discrete(2)

    def _rules(self, rng: Random) -> Rules:
        cue_at, choice_at = int(rng.integers(1, 5)), int(rng.integers(9, 15))
        self.cue, right = int(rng.integers(2)), False
        for time in range(self.limit + 1):
            cue = (2 * self.cue - 1 + 0.1 * np.clip(rng.normal(), -3, 3)) if time == cue_at else 0.0
            self.chooses = time == choice_at
            noise = np.clip(rng.normal(size=3), -4, 4)
            action = yield _floats(cue, float(self.chooses), float(time == self.limit - 1), time / self.limit, *noise)
            self.cause = time == cue_at or self.chooses
            if self.chooses:
                right = action == self.cue
            if time == self.limit - 1:
                self._end(1 if right else -1)

    def _play(self, rng: Random) -> int:
        return self.cue if self.chooses and rng.random() < 0.2 else int(rng.integers(2))


class Openings(Logged):
    """The first action decides a bonus of four sizes at half-time, and the eighth the result; only a clock is seen."""

    limit, observation_space, action_space = 30, Discrete(30), Discrete(4)
    bonus = (2, 1, 0.5, -1)

    def _rules(self, rng: Random) -> Rules:  # noqa: ARG002
        first, eighth = 0, 0
        for time in range(self.limit + 1):
            action = yield min(time, self.limit - 1)
            self.cause = time in (0, 7)
            if time == 0:
                first = int(action)
            elif time == 7:
                eighth = int(action)
            elif time == 15:
                self.reward, self.due = self.bonus[first], 0
            elif time == self.limit - 1:
                self._end(1 if eighth in (0, 3) else -1)
                self.due = 7


class NoPastBrake(SmallTask):
    """Braking at a red light pays +1, driving on -1, by the light that is seen; the light changes slowly."""

    limit, observation_space, action_space = 40, Box(-4, 4, (6,), np.float32), Discrete(3)  # drive, brake, hoot

    def _rules(self, rng: Random) -> Rules:
        red, lane = bool(rng.integers(2)), float(rng.integers(2))
        for time in range(self.limit + 1):
            red = red != (rng.random() < 0.15)
            line = rng.random() < 0.15
            noise = np.clip(rng.normal(size=2), -4, 4)
            start_lane = lane if time == 0 else 0.0
            action = yield _floats(float(red), float(line), start_lane, time / self.limit, *noise)
            if line and red:
                self.reward = 1 if action == 1 else -1


class NoPastSlots(SmallTask):
    """A pull of the lever wins by chance alone, whatever the reels and the purse show and whatever was done before."""

    limit, action_space = 30, Discrete(3)  # wait, pull, nudge
    observation_space = Dict({"reels": MultiDiscrete([4, 4, 4]), "purse": Box(0, 40, (1,), np.float32)})

    def _rules(self, rng: Random) -> Rules:
        reels, purse = rng.integers(4, size=3), 5.0
        while True:
            action = yield {"reels": reels.copy(), "purse": _floats(purse)}
            if action == 1:
                self.reward = rng.random() < 0.3
                purse += self.reward
                reels = rng.integers(4, size=3)
            elif action == 2:
                reels[rng.integers(3)] = rng.integers(4)


class NoPastShooting(SmallTask):
    """When the bar is lit, the side of the patch in the image pays +1 and the other -1; earlier patches are idle."""

    limit, observation_space, action_space = 24, Box(0, 255, (5, 5, 1), np.uint8), MultiDiscrete([2, 2])  # side, idle

    def _rules(self, rng: Random) -> Rules:
        while True:
            side, lit = int(rng.integers(2)), rng.random() < 0.2
            image = rng.integers(0, 50, (5, 5, 1))
            image[0:2, 3 * side : 3 * side + 2] = 200
            if lit:
                image[4] = 150
            action = yield image.astype(np.uint8)
            if lit:
                self.reward = 1 if action[0] == side else -1

    def _play(self, rng: Random) -> Any:
        return rng.integers(2, size=2)


class NoPastVerdict(SmallTask):
    """The end gives +1 or -1 by a coin that is tossed then, though lamps and efforts before it look meaningful."""

    limit, action_space = 35, Box(-1, 1, (1,), np.float32)
    observation_space = Tuple((Discrete(4), Box(-1, 1, (3,), np.float32)))  # none, red lamp, green lamp, the end

    def _rules(self, rng: Random) -> Rules:
        lamp_at, colour = int(rng.integers(2, 12)), int(rng.integers(1, 3))
        for time in range(self.limit + 1):
            kind = colour if time == lamp_at else 3 if time == self.limit - 1 else 0
            yield kind, rng.uniform(-1, 1, 3).astype(np.float32)
            if kind == 3:
                self._end(1 if rng.random() < 0.4 else -1)

    def _play(self, rng: Random) -> Any:
        return rng.uniform(-1, 1, 1).astype(np.float32)


def _make(rules: type[SmallTask], marked: bool, episodes: int, seed: int) -> Data:
    env = rules()
    data = (play if marked else play_unmarked)(env, episodes, seed, lambda _, rng: env._play(rng))
    if not isinstance(env, Logged):
        return data
    rewards, due = (np.array(column) for column in zip(*env.log, strict=True))
    if not np.allclose(rewards, data.trajectories.rewards):
        raise RuntimeError("the log is not of these trajectories")
    return Data(data.trajectories, due.astype(np.int64))


def _task(name: str, rules: type[SmallTask], episodes: int, **how: Any) -> Task:
    spaces = [type(space).__name__ for space in (rules.observation_space, rules.action_space)]
    source = "Own environment; {} observations, {} actions".format(*spaces)
    make = partial(_make, rules, how.get("past_matters", True))
    return Task(name, source, str(rules.__doc__), make, episodes, **how)


_TASKS = (
    _task("greenhouse", Greenhouse, 2_500),
    _task("sign_maze", SignMaze, 3_000, events="any"),
    _task("orbit_burn", OrbitBurn, 3_000, judged="positive"),
    _task("conveyor", Conveyor, 3_000, judged="positive"),
    _task("sound_check", SoundCheck, 3_000),
    _task("fuse", Fuse, 2_500, judged="positive", tolerance=1),
    _task("insurance", Insurance, 2_500),
    _task("grafting", Grafting, 3_000, judged="positive"),
    _task("samples", Samples, 3_000, judged="negative"),
    _task("fishing", Fishing, 2_000),
    _task("cue_then_choice", CueThenChoice, 3_000),
    _task("openings", Openings, 2_000),
    _task("no_past_brake", NoPastBrake, 2_000, past_matters=False),
    _task("no_past_slots", NoPastSlots, 2_000, past_matters=False),
    _task("no_past_shooting", NoPastShooting, 2_500, past_matters=False),
    _task("no_past_verdict", NoPastVerdict, 3_000, past_matters=False),
)
UNSEEN_THIRD: dict[str, Task] = {task.name: task for task in _TASKS}
