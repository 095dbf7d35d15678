"""Playing with what an agent has learned so far."""

import inspect
from copy import deepcopy
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecEnv


class Outcomes(NamedTuple):
    """What some episodes gave, unshaped."""

    returns: NDArray[np.float64]
    """(episodes,) sum of the rewards."""
    discounted: NDArray[np.float64]
    """(episodes,) discounted sum of the rewards."""
    lengths: NDArray[np.int64]
    """(episodes,)"""


def evaluate(
    model: BaseAlgorithm, envs: VecEnv, episodes: int, *, discount: float, seed: int, epsilon: float = 0.0
) -> Outcomes:
    """Play episodes side by side; actions are the best known ones, but random ones with probability ``epsilon``.

    Each environment plays its share whatever the others do: taking the first ones that end would favour short ones.
    The global random generators are left alone.
    """
    n = envs.num_envs
    share = (episodes + np.arange(n)) // n
    rng = np.random.default_rng(seed)
    choose = _Chooser(model, envs, epsilon, rng)
    envs.seed(int(rng.integers(2**31 - n)))
    observations = envs.reset()
    returns, discounted, factors = np.zeros(n), np.zeros(n), np.ones(n)
    lengths, played = np.zeros(n, np.int64), np.zeros(n, np.int64)
    results: list[tuple[int, int, float, float, int]] = []
    while (played < share).any():
        observations, rewards, ended, infos = envs.step(choose(observations))
        # Also environments that arrive shaped are evaluated unshaped.
        paid = np.array([info.get("env_reward", r) for info, r in zip(infos, rewards.tolist(), strict=True)])
        returns += paid
        discounted += factors * paid
        factors *= discount
        lengths += 1
        choose.started = ended
        for i in np.flatnonzero(ended).tolist():
            if played[i] < share[i]:
                results.append((int(played[i]), i, returns[i], discounted[i], int(lengths[i])))
            played[i] += 1
            returns[i], discounted[i], factors[i], lengths[i] = 0, 0, 1, 0
    results.sort()  # by environment, not by who was quicker
    _, _, *columns = zip(*results, strict=True)
    return Outcomes(np.array(columns[0]), np.array(columns[1]), np.array(columns[2], np.int64))


class _Chooser:
    """Actions of an agent, with the memory of recurrent ones and the masks of those that take masks."""

    def __init__(self, model: BaseAlgorithm, envs: VecEnv, epsilon: float, rng: np.random.Generator) -> None:
        self.started = np.ones(envs.num_envs, np.bool_)
        self._model, self._envs, self._epsilon, self._rng = model, envs, epsilon, rng
        self._state: Any = None
        self._normaliser = model.get_vec_normalize_env()
        self._masked = "action_masks" in inspect.signature(model.predict).parameters and envs.has_attr("action_masks")
        self._space: gym.Space[Any] = deepcopy(envs.action_space)  # the agent draws its own actions from the other
        self._space.seed(int(rng.integers(2**31)))

    def __call__(self, observations: Any) -> NDArray[Any]:
        if self._normaliser is not None:
            observations = self._normaliser.normalize_obs(observations)
        masks = np.stack(self._envs.env_method("action_masks")) if self._masked else None
        more = {} if masks is None else {"action_masks": masks}
        actions, self._state = self._model.predict(
            observations, state=self._state, episode_start=self.started, deterministic=True, **more
        )
        explore = np.flatnonzero(self._rng.random(len(actions)) < self._epsilon)
        if len(explore):
            actions = np.array(actions)
        for i in explore.tolist():
            allowed = None if masks is None else masks[i].astype(np.int8)
            actions[i] = self._space.sample(mask=allowed)
        return actions
