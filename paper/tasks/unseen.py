"""Tasks that were written after the method: other environments and other rules than those of ``TASKS``.

Here are those of Gymnasium and POPGym; ``unseen_minigrid`` has the others.
"""

from functools import partial
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import popgym  # noqa: F401  registers the environments

from paper.tasks import unseen_minigrid
from secret_rl.tasks.task import Data, Marked, Task, last_marked, play, play_unmarked, step_numbers

_CARDS = 52
_LEFT, _RIGHT, _GOAL = (0, 0), (0, 11), (3, 11)  # corners of CliffWalking, (row, column)
_UP_LEFT, _UP_RIGHT = 0, 11  # the same as observations
_MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
_UPRIGHT, _DOWN = 0.95, -0.98  # cosine of the pendulum's angle
_SWING = 350  # steps
Cell = tuple[int, int]


class Gunner:
    """Shoots at ships and at water, and about every third time where it has shot before, but nowhere a third time."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        self._game: Any = env.unwrapped

    def begin(self, seed: int) -> None:
        """An episode starts, with no shots."""
        self._rng = np.random.default_rng(seed)
        self._once: list[Cell] = []

    def __call__(self, observation: Any) -> Any:  # noqa: ARG002  it knows the board
        """The next cell."""
        if self._once and self._rng.random() < 0.35:
            return np.array(self._once.pop(int(self._rng.integers(len(self._once)))))
        new = np.argwhere((self._game.guesses == 0) & (self._game.board == (self._rng.random() < 0.5)))
        new = new if len(new) else np.argwhere(self._game.guesses == 0)
        row, column = (int(number) for number in self._rng.choice(new))
        self._once.append((row, column))
        return np.array([row, column])


class CornerRewards(gym.Wrapper[Any, Any, Any, Any]):
    """CliffWalking whose goal pays for the corners that were visited; nothing else pays or costs."""

    def __init__(self, env: gym.Env[Any, Any], rule: Literal["both", "last"]) -> None:
        super().__init__(env)
        self.rule = rule

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """No corner visited."""
        self._visits: list[int] = []
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Walk on."""
        seen, _, terminated, truncated, info = self.env.step(action)
        self._visits += [seen] * (seen in (_UP_LEFT, _UP_RIGHT))
        if self.rule == "both":
            reward = 1.0 if len(set(self._visits)) == 2 else 0.0
        else:
            reward = {(): 0.0, (_UP_LEFT,): 1.0, (_UP_RIGHT,): -1.0}[tuple(self._visits[-1:])]
        return seen, reward if terminated else 0.0, terminated, truncated, info


class AtCorner(Marked):
    """Marks the steps taken from an upper corner."""

    def marks(self, seen: Any, action: Any) -> bool:  # noqa: ARG002
        """Whether the step starts in one."""
        return seen in (_UP_LEFT, _UP_RIGHT)


class Hiker:
    """Walks to corners and to other cells, then to the goal; a tenth of the steps go elsewhere, but in no corner."""

    def __init__(self, repeats: bool) -> None:
        self._repeats = repeats

    def begin(self, seed: int) -> None:
        """Draw where to go."""
        self._rng = np.random.default_rng(seed)
        if self._repeats:
            corners = [(_LEFT, _RIGHT)[bit] for bit in self._rng.integers(2, size=self._rng.integers(4))]
        else:
            both = (_LEFT, _RIGHT) if self._rng.random() < 0.5 else (_RIGHT, _LEFT)
            corners = [corner for corner in both if self._rng.random() < 0.65]
        between = [(int(self._rng.integers(1, 3)), int(self._rng.integers(1, 11))) for _ in range(4)]
        self._plan = [stop for pair in zip(corners, between, strict=False) for stop in pair] + [between[3], _GOAL]

    def __call__(self, observation: int) -> int:
        """The next move."""
        at = divmod(int(observation), 12)
        if at == self._plan[0]:
            self._plan.pop(0)
        after = [(at[0] + down, at[1] + right) for down, right in _MOVES]
        safe = [move for move, (row, column) in enumerate(after) if 1 <= row <= 2 and 0 <= column <= 11]
        if at not in (_LEFT, _RIGHT) and self._rng.random() < 0.1:
            return int(self._rng.choice(safe))
        row, column = self._plan[0]
        sideways = 1 if column > at[1] else 3
        past_corner = at in ((1, 0), (1, 11)) and column != at[1]  # the way up leads through a corner that is not meant
        if at[0] == 3 or (row < at[0] and not past_corner):
            return 0
        if column != at[1] and (row <= at[0] or row == 3 or self._rng.random() < 0.5):
            return sideways
        return 2


class UprightFirst(gym.Wrapper[Any, Any, Any, Any]):
    """Pendulum that ends where it hangs at rest: 1 if it was seen upright before, else 0; its own costs are gone."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start anywhere."""
        seen, info = self.env.reset(seed=seed, options=options)
        self._been = seen[0] > _UPRIGHT
        return seen, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Swing on."""
        seen, _, _, truncated, info = self.env.step(action)
        rests = bool(seen[0] < _DOWN and abs(seen[2]) < 0.3)
        self._been |= seen[0] > _UPRIGHT
        return seen, float(rests and self._been), rests, truncated, info


class Upright(Marked):
    """Marks every step at which the arm is seen upright."""

    def marks(self, seen: Any, action: Any) -> bool:  # noqa: ARG002
        """Whether the arm was upright when the step was taken."""
        return bool(seen[0] > _UPRIGHT)


class Swinger:
    """Swings up to the top or less high, keeps swinging lower for a while, then brakes; never steadily."""

    def begin(self, seed: int) -> None:
        """Draw how high to swing at first and then, and for how long: independently."""
        self._rng = np.random.default_rng(seed)
        self._high = self._rng.choice([1.05, self._rng.uniform(0.2, 0.75)])  # as cosine; 1 is the top
        self._low = self._rng.uniform(-0.6, 0.2)
        self._left = int(self._rng.integers(100, 250))
        self._reached = False

    def __call__(self, observation: Any) -> Any:
        """Push with the swing or against it, as its energy is too low or too high."""
        cosine, _, speed = observation
        energy = cosine + speed**2 / 30  # the height at which it would turn
        self._reached |= bool(cosine > _UPRIGHT if self._high > 1 else energy > self._high)
        self._left -= self._reached
        wanted = -2.0 if self._left < 0 else self._low if self._reached else self._high
        push = np.clip(10 * (wanted - energy), -2, 2) * (np.sign(speed) if abs(speed) > 0.05 else 1)
        if self._left < 0:
            push = np.clip(-2 * speed, -2, 2)
        return np.clip([push + self._rng.normal(0, 0.3)], -2, 2).astype(np.float32)


def _battleship(episodes: int, seed: int) -> Data:
    env = gym.make("popgym-BattleshipEasy-v0", disable_env_checker=True)
    data = play_unmarked(env, episodes, seed, Gunner).trajectories
    within, causes = step_numbers(data), np.full(data.offsets[-1], -1, np.int64)
    first: dict[tuple[int, ...], int] = {}
    for row, cell in enumerate(np.asarray(data.actions).tolist()):
        first = {} if within[row] == 0 else first
        causes[row] = first.setdefault(tuple(cell), int(within[row]))
    return Data(data, np.where(causes < within, causes, -1))


def _autoencode(episodes: int, seed: int) -> Data:
    data = play_unmarked(gym.make("popgym-AutoencodeEasy-v0", disable_env_checker=True), episodes, seed).trajectories
    within = step_numbers(data)
    return Data(data, np.where(within >= _CARDS, 2 * (_CARDS - 1) - within, -1))  # the last card is asked for in view


def _corners(rule: Literal["both", "last"], episodes: int, seed: int) -> Data:
    env = AtCorner(CornerRewards(gym.make("CliffWalking-v1", disable_env_checker=True), rule))
    data = play(env, episodes, seed, Hiker(rule == "last"), 150)
    if rule == "both":
        return data
    return Data(data.trajectories, np.where(data.trajectories.rewards, last_marked(data.trajectories, data.truth), -1))


def _pendulum(episodes: int, seed: int) -> Data:
    env = gym.make("Pendulum-v1", disable_env_checker=True, max_episode_steps=_SWING)
    return play(Upright(UprightFirst(env)), episodes, seed, Swinger())


def _blackjack(episodes: int, seed: int) -> Data:
    return play_unmarked(gym.make("Blackjack-v1", disable_env_checker=True), episodes, seed)


UNSEEN: dict[str, Task] = {
    task.name: task
    for task in (
        Task(
            name="battleship",
            source="popgym 1.0.7, popgym-BattleshipEasy-v0; MultiDiscrete actions",
            description="A second shot at the same cell never hits; the first one is its cause. New cells hit or miss.",
            make=_battleship,
            episodes=2_500,
        ),
        Task(
            name="autoencode",
            source="popgym 1.0.7, popgym-AutoencodeEasy-v0; Tuple observations",
            description="Of 52 cards, the suits are asked for in reverse order: a right one pays, a wrong one costs.",
            make=_autoencode,
            episodes=2_000,
        ),
        Task(
            name="cliff_both_corners",
            source="gymnasium, CliffWalking-v1; reward ours",
            description="The goal pays if both upper corners were visited. The move into a corner is as good evidence.",
            make=partial(_corners, "both"),
            episodes=2_500,
            tolerance=1,
            judged="positive",
        ),
        Task(
            name="cliff_last_corner",
            source="gymnasium, CliffWalking-v1; reward ours",
            description="The goal pays or costs as the upper corner visited last is the left or the right one; the "
            "move into it is as good evidence.",
            make=partial(_corners, "last"),
            episodes=2_500,
            tolerance=1,
        ),
        Task(
            name="pendulum_upright",
            source="gymnasium, Pendulum-v1 with at most 350 steps; reward ours",
            description="Coming to rest pays if the arm was upright before; the push that leads there shows next.",
            make=_pendulum,
            episodes=2_000,
            tolerance=1,
            judged="positive",
            events="any",
        ),
        *unseen_minigrid.TASKS,
        Task(
            name="blackjack",
            source="gymnasium, Blackjack-v1; Tuple observations",
            description="Cards are drawn with replacement: the sum in view and chance decide.",
            make=_blackjack,
            episodes=3_000,
            past_matters=False,
        ),
    )
}
