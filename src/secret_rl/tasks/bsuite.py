"""Three chains of bsuite: random play, one early step decides a late reward.

Rules: bsuite 0.3.6, Osband et al., 2020 ("Behaviour Suite for Reinforcement Learning"). These are adapters of the
published rules: the package itself brings some twenty others that nothing here needs.
"""

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from secret_rl.tasks.task import Data, Task, play_unmarked, step_numbers
from secret_rl.views import MaskView, ViewObservation

Row = NDArray[np.float32]


class Umbrella(gym.Env[Row, np.int64]):
    """``umbrella_length``: the first action takes the umbrella or not; the last step pays if that fits the forecast.

    Every step between pays +1 or -1 by chance. Seen: forecast, umbrella, time left, and 20 random bits.
    """

    metadata = {"render_modes": []}  # noqa: RUF012  as Gymnasium has it

    def __init__(self, chain_length: int = 20, distractors: int = 20) -> None:
        self.chain_length, self.distractors = chain_length, distractors
        self.observation_space = gym.spaces.Box(0, 1, (3 + distractors,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Row, dict[str, Any]]:
        """A new forecast."""
        super().reset(seed=seed, options=options)
        self.steps = 0
        self.needed, self.has = (int(bit) for bit in self.np_random.integers(2, size=2))
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Row, float, bool, bool, dict[str, Any]]:
        """Walk on."""
        self.has = int(action) if self.steps == 0 else self.has
        self.steps += 1
        over = self.steps == self.chain_length
        pays = self.has == self.needed if over else self.np_random.random() < 0.5
        return self._seen(), 1.0 if pays else -1.0, over, False, {}

    def _seen(self) -> Row:
        known = [self.needed, self.has, 1 - self.steps / self.chain_length]
        return np.array([*known, *self.np_random.integers(2, size=self.distractors)], np.float32)


class Memory(gym.Env[Row, np.int64]):
    """``memory_len``: a bit is shown at the beginning; the last action is paid for repeating it, or costs.

    Seen: time left, the number of the bit that is asked for (there is one alone: 0), and the bit as -1 or +1. As in
    the package, an observation is of the time before the action: the bit is seen at the first two steps.
    """

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, memory_length: int = 20) -> None:
        self.memory_length = memory_length
        self.observation_space = gym.spaces.Box(-1, 1, (3,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Row, dict[str, Any]]:
        """A new bit."""
        super().reset(seed=seed, options=options)
        self.steps, self.bit = 0, int(self.np_random.integers(2))
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Row, float, bool, bool, dict[str, Any]]:
        """Nothing happens, until the last step."""
        seen, over = self._seen(), self.steps == self.memory_length
        self.steps += 1
        reward = (1.0 if action == self.bit else -1.0) if over else 0.0
        return seen, reward, over, False, {}

    def _seen(self) -> Row:
        bit = 2 * self.bit - 1 if self.steps == 0 else 0
        return np.array([1 - self.steps / self.memory_length, 0, bit], np.float32)


class Discounting(gym.Env[Row, np.int64]):
    """``discounting_chain``: the first action chooses when the one reward comes: at step 1, 3, 10, 30 or 100.

    Seen: the chosen action (-1 before), and the time. One chain pays 1.1, as the mapping seed says.
    """

    metadata = {"render_modes": []}  # noqa: RUF012
    delays = (1, 3, 10, 30, 100)

    def __init__(self, mapping_seed: int = 0) -> None:
        self.bonus = mapping_seed % len(self.delays)
        self.observation_space = gym.spaces.Box(-1, len(self.delays), (2,), np.float32)
        self.action_space = gym.spaces.Discrete(len(self.delays))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Row, dict[str, Any]]:
        """Nothing chosen yet."""
        super().reset(seed=seed, options=options)
        self.steps, self.chosen = 0, -1
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Row, float, bool, bool, dict[str, Any]]:
        """Wait for the reward."""
        self.chosen = int(action) if self.steps == 0 else self.chosen
        self.steps += 1
        paid = self.steps == self.delays[self.chosen]
        reward = (1.1 if self.chosen == self.bonus else 1.0) if paid else 0.0
        return self._seen(), reward, self.steps == max(self.delays), False, {}

    def _seen(self) -> Row:
        return np.array([self.chosen, self.steps / max(self.delays)], np.float32)


def _umbrella(episodes: int, seed: int) -> Data:
    umbrella = Umbrella()
    env = ViewObservation(umbrella, MaskView(((1, 2),)))  # the umbrella itself is out of sight
    data = play_unmarked(env, episodes, seed).trajectories
    last = step_numbers(data) == umbrella.chain_length - 1
    return Data(data, np.where(last, 0, -1))


def _memory(episodes: int, seed: int) -> Data:
    data = play_unmarked(Memory(), episodes, seed).trajectories
    return Data(data, step_numbers(data) < 2)


def _discounting(episodes: int, seed: int) -> Data:
    env = ViewObservation(Discounting(), MaskView(((0, 1),)))  # what was chosen is out of sight
    data = play_unmarked(env, episodes, seed).trajectories
    return Data(data, np.where((data.rewards > 0) & (step_numbers(data) > 0), 0, -1))  # a reward at once needs no past


TASKS = [
    Task(
        name="umbrella",
        source="rules of bsuite 0.3.6, umbrella_length with chain_length=20 and n_distractor=20",
        description="The last step pays or costs as the first action fitted the forecast; other rewards are noise.",
        make=_umbrella,
        episodes=3_000,
    ),
    Task(
        name="memory_len",
        source="rules of bsuite 0.3.6, memory_len with memory_length=20",
        description="The last action pays or costs as it repeats the bit shown at the beginning.",
        make=_memory,
        episodes=2_000,
        events="any",
    ),
    Task(
        name="discounting_chain",
        source="rules of bsuite 0.3.6, discounting_chain with mapping_seed=0",
        description="The first action chooses at which later step the one reward comes.",
        make=_discounting,
        episodes=1_000,
        judged="positive",
    ),
]
