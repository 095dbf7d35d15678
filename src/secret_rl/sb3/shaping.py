"""Shaping of Stable-Baselines3's vector environments."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from secret_rl.shaping.potentials import Mask
from secret_rl.shaping.side_by_side import ListedInfos, SideBySide, last_seen
from secret_rl.shaping.terms import PotentialLike, agree

try:
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecMonitor
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
        self._everywhere = np.ones(venv.num_envs, np.bool_)
        self._source: Any = _bridge(venv)

    def reset(self) -> Any:
        """Start an episode in every environment."""
        observations = self.venv.reset()
        self._begin(self._everywhere, observations)
        return observations

    def step_async(self, actions: NDArray[Any]) -> None:
        """Tell the environments what to do."""
        self._actions = actions
        self.venv.step_async(actions)

    def step_wait(self) -> tuple[Any, NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Step the environments and add the shaping to their rewards."""
        observations, rewards, ended, infos = self.venv.step_wait()
        env_rewards = rewards.astype(np.float64)
        which = ended.nonzero()[0].tolist()
        truncated = np.zeros(self.num_envs, np.bool_)
        if which:
            truncated[which] = [bool(infos[i].get("TimeLimit.truncated", False)) for i in which]
        if self._source is not None:
            terminated = ended & ~truncated
            paid = self._shaping.step_at_once(env_rewards, terminated, truncated, self._source.vector_infos)
            if paid is not None:
                self.reset_infos = self._source.reset_infos
                # Made for this step alone, so they need not be copied.
                for info, reward, more in zip(infos, env_rewards.tolist(), paid.shaping.tolist(), strict=True):
                    info["env_reward"] = reward
                    info["shaping_reward"] = more
                return observations, paid.rewards.astype(np.float32), ended, infos
        inner = np.zeros(self.num_envs)  # what a shaping that this one is stacked on has paid
        for i in [i for i, info in enumerate(infos) if "shaping_reward" in info]:
            env_rewards[i], inner[i] = infos[i]["env_reward"], infos[i]["shaping_reward"]
        # These environments reset within the step; its own observation is in the info.
        seen: Any = observations
        if which:
            final = {i: infos[i]["terminal_observation"] for i in which}
            seen = last_seen(observations, final, self.observation_space)
        after = self._shaping.step(self._everywhere, self._actions, seen, env_rewards, ListedInfos(infos))
        shaping = self._shaping.pay(self._everywhere, after, ended & ~truncated, truncated)
        self._begin(ended, observations)
        told = [
            {**info, "env_reward": reward, "shaping_reward": more}
            for info, reward, more in zip(infos, env_rewards.tolist(), (inner + shaping).tolist(), strict=True)
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


def _bridge(venv: VecEnv) -> VecEnv | None:
    """Environments that tell the infos of all at once, if what is between leaves the infos as they are."""
    while type(venv) is VecMonitor:
        venv = venv.venv
    return venv if "vector_infos" in vars(venv) else None


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


def shape_with(
    potential: PotentialLike, *, scale: float | str = 1.0, truncation: str = "keep"
) -> Callable[[VecEnv, float], PotentialShapingVecEnv]:
    """Shaping for ``secret_rl.sb3.train``: makes shaped environments of environments and a discount."""
    return _ShapeWith(potential, scale, truncation)


@dataclass(frozen=True)
class _ShapeWith:
    """Not a function of functions: its fields tell one training from another."""

    potential: PotentialLike
    scale: float | str
    truncation: str

    def __call__(self, venv: VecEnv, discount: float) -> PotentialShapingVecEnv:
        return PotentialShapingVecEnv(venv, self.potential, discount, scale=self.scale, truncation=self.truncation)
