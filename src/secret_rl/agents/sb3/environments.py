"""The environments an agent learns in and those it is evaluated in: made, monitored, shaped and checked."""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecEnvWrapper, VecMonitor, VecNormalize

from secret_rl.envs.sb3 import GymnasiumVecEnv, sb3_envs

EnvLike = str | Callable[[], gym.Env[Any, Any]] | gym.Env[Any, Any] | VecEnv | VectorEnv[Any, Any, Any]
"""An id, a function that makes one environment, or environments."""
Shaping = Callable[[VecEnv, float], VecEnv]
"""Shapes environments for a discount, as ``secret_rl.shaping.sb3.shape_with(potential)`` does."""


class UnshapedMonitor(VecMonitor):
    """``VecMonitor`` around environments that are shaped already: the returns it logs are unshaped all the same."""

    def step_wait(self) -> tuple[Any, NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Step the environments; where an episode ended, tell its return and length."""
        observations, rewards, ended, infos = self.venv.step_wait()
        self.episode_returns += np.array(
            [info.get("env_reward", reward) for info, reward in zip(infos, rewards.tolist(), strict=True)], np.float32
        )
        self.episode_lengths += 1
        told = list(infos)
        for i in np.flatnonzero(ended).tolist():
            passed = round(time.time() - self.t_start, 6)
            told[i] = infos[i] | {"episode": {"r": self.episode_returns[i], "l": self.episode_lengths[i], "t": passed}}
            self.episode_returns[i] = self.episode_lengths[i] = 0
        return observations, rewards, ended, told


def made(env: EnvLike, n: int, env_options: Mapping[str, Any] | None) -> VecEnv:
    """Environments for Stable-Baselines3: ``n`` of an id or a function, or those that were given."""
    if env_options and not isinstance(env, str):
        raise ValueError(f"env_options {dict(env_options)} need an environment id, got {type(env).__name__}")
    if isinstance(env, VecEnv):
        return env
    if isinstance(env, VectorEnv):
        return GymnasiumVecEnv(env)
    if isinstance(env, gym.Env):
        return DummyVecEnv([lambda: env])
    return sb3_envs(env, n, env_options=env_options)


def learning_envs(
    env: EnvLike, n: int, env_options: Mapping[str, Any] | None, shaping: Shaping | None, discount: float
) -> VecEnv:
    """The environments to learn in: a monitor inside, which logs unshaped returns, and the shaping around it."""
    envs = made(env, n, env_options)
    _check_normalised(envs, to_be_shaped=shaping is not None)
    if not _is_monitored(envs):
        envs = UnshapedMonitor(envs) if is_shaped(envs) else VecMonitor(envs)
    if shaping is not None:
        inside, envs = envs, shaping(envs, discount)
        if not isinstance(envs, VecEnv):
            raise TypeError(
                f"shaping must take (environments, discount) and return a VecEnv, got {type(envs).__name__}: "
                "use shape_with(potential) from secret_rl.shaping.sb3"
            )
        if envs.num_envs != inside.num_envs:
            raise ValueError(f"shaping made {envs.num_envs} environments of {inside.num_envs}")
    return envs


def evaluation_envs(
    evaluation_env: EnvLike | None, env: EnvLike, episodes: int, env_options: Mapping[str, Any] | None
) -> VecEnv:
    """Environments of their own to evaluate in: by default more of the same."""
    if evaluation_env is not None:
        return made(evaluation_env, episodes, env_options if isinstance(evaluation_env, str) else None)
    if isinstance(env, VecEnv | VectorEnv | gym.Env):
        raise ValueError(
            "the agent is evaluated in environments of their own, and env cannot be made again: give evaluation_env "
            "(an id, a function that makes one, or environments), or evaluate_every=0"
        )
    return made(env, episodes, env_options)


def check_same_spaces(learning: VecEnv, evaluation: VecEnv) -> None:
    """An error unless an agent that learns in some environments can act in others."""
    for name in ("observation_space", "action_space"):
        mine, theirs = getattr(learning, name), getattr(evaluation, name)
        if mine != theirs:
            raise ValueError(f"the agent learns with {name} {mine}, but evaluation_env has {theirs}")


def is_shaped(envs: VecEnv) -> bool:
    """Whether a shaping wrapper of this library is anywhere in the environments."""
    return envs.has_attr("shaping_discount")


def check_shaping_discount(envs: VecEnv, discount: float) -> None:
    """An error unless every shaping in the environments has this discount.

    It is the discount of one step, also for agents that learn from returns of several steps: their sum telescopes.
    """
    for layer in _layers(envs):
        found = [vars(layer)["shaping_discount"]] if "shaping_discount" in vars(layer) else []
        if not isinstance(layer, VecEnvWrapper) and layer.has_attr("shaping_discount"):
            found = layer.get_attr("shaping_discount")
        for theirs in found:
            if theirs != discount:
                raise ValueError(
                    f"the environments are shaped with discount {theirs}, but the agent learns with {discount}: "
                    "shaping with another discount changes what is optimal; use the same for both"
                )


def _check_normalised(envs: VecEnv, *, to_be_shaped: bool) -> None:
    for layer in _layers(envs):
        if not isinstance(layer, VecNormalize):
            continue
        if to_be_shaped and layer.norm_reward:
            raise ValueError(
                "the rewards are normalised (VecNormalize) before they would be shaped: the potential is measured in "
                "rewards of the environment. Put VecNormalize outside: "
                "shaping=lambda envs, discount: VecNormalize(shape_with(potential)(envs, discount))"
            )
        if to_be_shaped:
            warnings.warn(
                "the potential sees observations that VecNormalize changes as it learns: put VecNormalize outside the "
                "shaping unless the potential only reads infos",
                stacklevel=4,
            )
        if layer.norm_reward and not _is_monitored(layer.venv):
            raise ValueError("VecNormalize hides the rewards of the environments: put a VecMonitor inside it")


def _is_monitored(envs: VecEnv) -> bool:
    layers = list(_layers(envs))
    return any(isinstance(layer, VecMonitor) for layer in layers) or any(layers[-1].env_is_wrapped(Monitor))


def _layers(envs: VecEnv) -> Iterator[VecEnv]:
    """A vector environment from the outermost wrapper inwards."""
    yield envs
    while isinstance(envs, VecEnvWrapper):
        envs = envs.venv
        yield envs
