"""The learning curve of a deep agent: evaluations, and the callback that records them while it learns."""

import inspect
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from secret_rl.display import curves_html
from secret_rl.progress import Tick
from secret_rl.sb3.logging import ShapingCallback

_EVALUATION = ("steps", "returns", "discounted", "lengths")
_TRAINING = ("training_steps", "training_returns", "training_shaped_returns", "training_lengths")
_DTYPES = (np.int64, np.float64, np.float64, np.int64)


@dataclass(frozen=True, eq=False)
class DeepCurve:
    """Returns of an agent when it was evaluated, and in the episodes it learned from; unshaped unless named so."""

    steps: NDArray[np.int64]
    """(evaluations,) environment steps the agent had learned from."""
    returns: NDArray[np.float64]
    """(evaluations, episodes) sum of the rewards."""
    discounted: NDArray[np.float64]
    """(evaluations, episodes) discounted sum of the rewards."""
    lengths: NDArray[np.int64]
    """(evaluations, episodes) steps of each episode."""
    training_steps: NDArray[np.int64]
    """(training episodes,) environment steps taken when the episode ended."""
    training_returns: NDArray[np.float64]
    """(training episodes,) sum of the rewards."""
    training_shaped_returns: NDArray[np.float64]
    """(training episodes,) sum of the rewards the agent received, shaping included."""
    training_lengths: NDArray[np.int64]
    """(training episodes,) steps of each episode."""
    seed: int
    discount: float

    def __len__(self) -> int:
        return len(self.steps)

    def __repr__(self) -> str:
        area = f", mean return {self.area():.3f}" if len(self) else ""
        return f"DeepCurve({len(self)} evaluations, {len(self.training_returns):,} training episodes{area})"

    def _repr_html_(self) -> str:
        return curves_html({"return": (self.steps, self.returns.mean(-1))}, "steps", repr(self))

    def area(self, values: str = "returns") -> float:
        """Mean of ``returns`` or ``discounted`` over all of training: the area under the curve by its length."""
        if not len(self):
            raise ValueError("the curve has no evaluation: train with evaluate_every other than 0")
        means = getattr(self, values).mean(1)
        span = self.steps[-1] - self.steps[0]
        trapezoids = np.diff(self.steps) * (means[1:] + means[:-1]) / 2
        return float(trapezoids.sum() / span) if span else float(means.mean())


class Outcomes(NamedTuple):
    """Unshaped results of some episodes."""

    returns: NDArray[np.float64]
    """(episodes,) sum of the rewards."""
    discounted: NDArray[np.float64]
    """(episodes,) discounted sum of the rewards."""
    lengths: NDArray[np.int64]
    """(episodes,)"""


def evaluate(
    model: BaseAlgorithm, envs: VecEnv, episodes: int, *, discount: float, seed: int, epsilon: float = 0.0
) -> Outcomes:
    """Play episodes, unshaped; the global random generators are left alone.

    Each environment plays its share whatever the others do: taking the first ones that end would favour short ones.

    Args:
        model: Its actions are the best known ones; it may be recurrent, or take action masks.
        envs: Where to play.
        episodes: How many.
        discount: Of the discounted returns.
        seed: Of the environments and of random actions.
        epsilon: Probability of a random action.
    """
    n = envs.num_envs
    share = (episodes + np.arange(n)) // n
    rng = np.random.default_rng(seed)
    space: gym.Space[Any] = deepcopy(envs.action_space)  # training samples its actions from the other
    space.seed(int(rng.integers(2**31)))
    normaliser = model.get_vec_normalize_env()
    masked = "action_masks" in inspect.signature(model.predict).parameters and envs.has_attr("action_masks")
    envs.seed(int(rng.integers(2**31 - n)))
    observations: Any = envs.reset()
    state, started = None, np.ones(n, np.bool_)  # the state of recurrent agents
    returns, discounted, factors = np.zeros(n), np.zeros(n), np.ones(n)
    lengths, played = np.zeros(n, np.int64), np.zeros(n, np.int64)
    results: list[tuple[int, int, float, float, int]] = []
    while (played < share).any():
        seen = observations if normaliser is None else normaliser.normalize_obs(observations)
        masks = {"action_masks": np.stack(envs.env_method("action_masks"))} if masked else {}
        actions, state = model.predict(seen, state=state, episode_start=started, deterministic=True, **masks)
        actions = np.array(actions)
        for i in np.flatnonzero(rng.random(n) < epsilon).tolist():
            actions[i] = space.sample(mask=masks["action_masks"][i].astype(np.int8) if masked else None)
        observations, rewards, started, infos = envs.step(actions)
        # Also environments that arrive shaped are evaluated unshaped.
        unshaped = np.array([info.get("env_reward", r) for info, r in zip(infos, rewards.tolist(), strict=True)])
        returns += unshaped
        discounted += factors * unshaped
        factors *= discount
        lengths += 1
        for i in np.flatnonzero(started).tolist():
            if played[i] < share[i]:
                results.append((int(played[i]), i, returns[i], discounted[i], int(lengths[i])))
            played[i] += 1
            returns[i], discounted[i], factors[i], lengths[i] = 0, 0, 1, 0
    results.sort()  # by environment, not by who was quicker
    _, _, *columns = zip(*results, strict=True)
    return Outcomes(np.array(columns[0]), np.array(columns[1]), np.array(columns[2], np.int64))


class CurveCallback(ShapingCallback):
    """Fills a curve: an evaluation whenever another ``every`` steps have passed, and each training episode."""

    def __init__(
        self, total: int, gamma: float, seed: int, every: int, play: Callable[..., Outcomes] | None, tick: Tick
    ) -> None:
        """``play(seed=)`` evaluates the agent; None: it is not evaluated."""
        super().__init__()
        self._total, self._gamma, self._seed, self._every = total, gamma, seed, every
        self._play, self._tick, self._message = play, tick, ""
        self._evaluations: list[tuple[int, Any, Any, Any]] = []
        self._trained: list[tuple[int, float, float, int]] = []

    def evaluate(self) -> None:
        """Evaluate what has been learned so far; once per number of steps."""
        step = self.model.num_timesteps
        if self._play is None or (self._evaluations and self._evaluations[-1][0] == step):
            return
        # Not a stream that goes on: an evaluation does not depend on those before it, nor training on evaluations.
        outcomes = self._play(seed=int(np.random.SeedSequence([self._seed, 1, step]).generate_state(1)[0]))
        self._evaluations.append((step, *outcomes))
        mean = float(outcomes.returns.mean())
        self._message = f"evaluated: {mean:.2f}"
        self.model.logger.record("secret/evaluation_return", mean)
        self.model.logger.dump(step)

    def curve(self) -> DeepCurve:
        """The curve so far."""
        evaluated = zip(*self._evaluations, strict=True) if self._evaluations else ([], *np.zeros((3, 0, 0)))
        trained = zip(*self._trained, strict=True) if self._trained else ([],) * 4
        columns = zip(_EVALUATION + _TRAINING, [*evaluated, *trained], _DTYPES * 2, strict=True)
        arrays: dict[str, Any] = {name: np.array(column, dtype) for name, column, dtype in columns}
        return DeepCurve(**arrays, seed=self._seed, discount=self._gamma)

    def restore(self, curve: DeepCurve) -> None:
        """Go on from a curve."""
        self._evaluations, self._trained = (
            list(zip(*(getattr(curve, name) for name in names), strict=True)) for names in (_EVALUATION, _TRAINING)
        )

    def _on_training_start(self) -> None:
        super()._on_training_start()
        self._next = (self.num_timesteps // self._every + 1) * self._every if self._every else self._total

    def _on_step(self) -> bool:
        for i, returns in self._ended_episodes():
            length = int(self.locals["infos"][i]["episode"]["l"])
            self._trained.append((self.num_timesteps, returns.true, sum(returns), length))
        if self._next <= self.num_timesteps < self._total:  # the last one comes after the last update
            self.evaluate()
            self._next = (self.num_timesteps // self._every + 1) * self._every
        self._tick(self._message, min(self.num_timesteps, self._total), self._total)
        return True
