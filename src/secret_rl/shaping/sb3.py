"""Shaping of Stable-Baselines3's vector environments."""

from typing import Any

import numpy as np
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from secret_rl.shaping.potentials import Mask
from secret_rl.shaping.side_by_side import ListedInfos, SideBySide, last_seen
from secret_rl.shaping.terms import PotentialLike, agree

try:
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        'Shaping for Stable-Baselines3 needs the sb3 extra: pip install "secret-rl[sb3]"'
    ) from missing


class PotentialShapingVecEnv(VecEnvWrapper):
    """What ``PotentialShaping`` gives side by side, for the ``VecEnv`` of Stable-Baselines3; arguments as there.

    ``discount`` must be the algorithm's ``gamma``; ``check_discount(model)`` tells. Its algorithms bootstrap where a
    time limit cuts an episode short, so keep ``truncation="keep"``.

    Put a ``Monitor`` (or ``VecMonitor``) inside, so that the unshaped returns are logged: ``make_vec_env`` does.
    ``VecNormalize`` goes outside.
    """

    def __init__(
        self,
        venv: VecEnv,
        potential: PotentialLike,
        discount: float,
        *,
        scale: float | str = 1.0,
        truncation: str = "keep",
    ) -> None:
        super().__init__(venv)
        terms = agree(potential, discount, scale, truncation, venv.observation_space, venv.action_space)
        self.shaping_discount = terms.discount
        self.shaping_scale = terms.scale
        self._shaping = SideBySide(
            terms,
            venv.num_envs,
            batch_space(venv.observation_space, venv.num_envs),
            batch_space(venv.action_space, venv.num_envs),
        )
        self._actions: NDArray[Any] | None = None

    def reset(self) -> Any:
        """Start an episode in every environment."""
        observations = self.venv.reset()
        self._begin(np.ones(self.num_envs, np.bool_), observations)
        return observations

    def step_async(self, actions: NDArray[Any]) -> None:
        """Tell the environments what to do."""
        self._actions = actions
        self.venv.step_async(actions)

    def step_wait(self) -> tuple[Any, NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Step the environments and add the shaping to their rewards."""
        observations, rewards, ended, infos = self.venv.step_wait()
        truncated = np.array([bool(info.get("TimeLimit.truncated", False)) for info in infos])
        env_rewards = np.array(
            [  # where an inner shaping tells them, its
                info["env_reward"] if "shaping_reward" in info else reward
                for info, reward in zip(infos, rewards.tolist(), strict=True)
            ],
            np.float64,
        )
        # These environments reset within the step; its own observation is in the info.
        seen: Any = observations
        if ended.any():
            final = {i: infos[i]["terminal_observation"] for i in np.flatnonzero(ended).tolist()}
            seen = last_seen(observations, final, self.observation_space)
        everywhere = np.ones(self.num_envs, np.bool_)
        after = self._shaping.step(everywhere, self._actions, seen, env_rewards, ListedInfos(infos))
        shaping = self._shaping.pay(everywhere, after, ended & ~truncated, ended & truncated)
        self._begin(ended, observations)
        parts = zip(infos, env_rewards.tolist(), shaping.tolist(), strict=True)
        told = [
            {**info, "env_reward": reward, "shaping_reward": info.get("shaping_reward", 0.0) + more}
            for info, reward, more in parts
        ]
        return observations, (rewards + shaping).astype(np.float32), ended, told

    def has_attr(self, attr_name: str) -> bool:
        """Whether the environments have an attribute; they have ``shaping_discount``."""
        return attr_name == "shaping_discount" or super().has_attr(attr_name)

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """An attribute of each environment; ``shaping_discount`` is that of this wrapper."""
        if attr_name == "shaping_discount":
            return [self.shaping_discount for _ in self._get_indices(indices)]
        return super().get_attr(attr_name, indices)

    def _begin(self, started: Mask, observations: Any) -> None:
        # Wrappers do not pass these on: ask the environments themselves.
        self.reset_infos = self.venv.unwrapped.reset_infos
        self._shaping.begin(started, observations, ListedInfos(self.reset_infos))


def check_discount(model: BaseAlgorithm) -> None:
    """An error unless the environments of a model are shaped with its own discount, ``gamma``."""
    env = model.get_env()
    if env is None or not env.has_attr("shaping_discount"):
        raise ValueError("the environments of the model are not shaped: wrap them with PotentialShapingVecEnv")
    gamma = getattr(model, "gamma", None)
    for discount in env.get_attr("shaping_discount"):
        if discount != gamma:
            raise ValueError(
                f"the environments are shaped with discount {discount}, but the model has gamma {gamma}: shaping with "
                "another discount changes what is optimal; use the same for both"
            )
