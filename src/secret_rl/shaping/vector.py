"""Shaping of Gymnasium's vector environments, in all three autoreset modes."""

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from secret_rl.shaping.potentials import Mask, Values
from secret_rl.shaping.side_by_side import SideBySide, last_seen
from secret_rl.shaping.table_steps import Paid
from secret_rl.shaping.terms import PotentialLike, agree


class VectorPotentialShaping(VectorWrapper[Any, Any, Any, Any, Any]):
    """What ``PotentialShaping`` gives side by side, infos included; see there for the arguments.

    >>> import gymnasium as gym, secret_rl
    >>> from secret_rl.shaping import TablePotential, VectorPotentialShaping
    >>> envs = gym.make_vec("secret_rl/Triggers-v0", num_envs=4, layout_seed=1)
    >>> envs = VectorPotentialShaping(envs, TablePotential({state: state / 1024 for state in range(1024)}), 0.99)
    >>> _ = envs.reset(seed=0)
    >>> _, rewards, _, _, infos = envs.step(envs.action_space.sample())
    >>> bool((rewards == infos["env_reward"] + infos["shaping_reward"]).all())
    True

    In NEXT_STEP mode the step that resets an environment pays nothing. In SAME_STEP mode, the two parts of the last
    reward of an episode are in ``infos["final_info"]``, as everything else of its last step is.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        potential: PotentialLike,
        discount: float,
        *,
        scale: float | str = 1.0,
        truncation: str = "keep",
    ) -> None:
        super().__init__(env)
        terms = agree(potential, discount, scale, truncation, env.single_observation_space, env.single_action_space)
        self.shaping_discount = terms.discount
        self.shaping_scale = terms.scale
        self._mode = _autoreset_mode(env)
        self._shaping = SideBySide(terms, env.num_envs, env.observation_space, env.action_space)
        self._begun = False
        self._everywhere = np.ones(env.num_envs, np.bool_)
        self._over = np.zeros(env.num_envs, np.bool_)  # (n,) NEXT_STEP: the next step is a reset

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in every environment, or in those that ``options["reset_mask"]`` names."""
        started = np.ones(self.num_envs, np.bool_)
        if options is not None and "reset_mask" in options:
            started = np.array(options["reset_mask"], np.bool_)  # now: the environments may take it out
        observations, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type, unused-ignore]
        self._shaping.begin(started, observations, infos)
        self._over = self._over & ~started
        self._begun = True
        return observations, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step the environments and add the shaping to their rewards."""
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        if not self._begun:
            raise gym.error.ResetNeeded("no episode has begun: call reset() first")
        rewards = np.asarray(rewards, np.float64)
        if self._mode is AutoresetMode.SAME_STEP:
            paid = self._shaping.step_at_once(rewards, terminated, truncated, infos)
            if paid is not None:
                return observations, paid.rewards, terminated, truncated, _told_at_once(infos, paid)
        ended: Mask = np.asarray(terminated, np.bool_) | np.asarray(truncated, np.bool_)
        if self._mode is AutoresetMode.SAME_STEP:
            restarted, active, going_on = ended, self._everywhere, ~ended
        else:
            restarted, active, going_on = self._over, ~self._over, ~self._over
        env_rewards = _env_rewards(rewards, infos)
        after = self._shaping.step(going_on, actions, observations, env_rewards, infos)
        final = self._mode is AutoresetMode.SAME_STEP and np.count_nonzero(ended) > 0
        if final:
            infos = {**infos, "final_info": dict(infos.get("final_info", {}))}
            env_rewards = _env_rewards(env_rewards, infos["final_info"])
            seen = last_seen(observations, _final(infos, ended), self.env.single_observation_space)
            after = after + self._shaping.step(ended, actions, seen, env_rewards, infos["final_info"])
        shaping = self._shaping.pay(active, after, terminated, truncated)
        self._shaping.begin(restarted, observations, infos)
        if self._mode is AutoresetMode.NEXT_STEP:
            self._over = ended
        if final:
            infos["final_info"] = _told(infos["final_info"], ended, env_rewards, shaping)
        return observations, rewards + shaping, terminated, truncated, _told(infos, going_on, env_rewards, shaping)


def _autoreset_mode(env: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    mode = env.metadata.get("autoreset_mode")
    if mode is None:
        gym.logger.warn(f'{env} does not say its metadata["autoreset_mode"]: taking it for NEXT_STEP')
        return AutoresetMode.NEXT_STEP
    return AutoresetMode(mode)


def _env_rewards(rewards: Values, infos: dict[str, Any]) -> Values:
    """(n,) unshaped rewards: where an inner shaping tells them, its."""
    if "shaping_reward" not in infos:
        return rewards
    return np.where(infos["_env_reward"], infos["env_reward"], rewards)


def _final(infos: dict[str, Any], ended: Mask) -> dict[int, Any]:
    """What was seen last in the episodes that have just ended, by environment."""
    try:
        return {i: infos["final_obs"][i] for i in np.flatnonzero(ended).tolist()}
    except KeyError:
        raise ValueError(
            'an episode ended in SAME_STEP mode without infos["final_obs"]: its last potential cannot be known; '
            "let the environments give it, or use another autoreset mode"
        ) from None


def _told_at_once(infos: dict[str, Any], paid: Paid) -> dict[str, Any]:
    """Infos with the two parts of the rewards, as ``_told`` makes them."""
    told = dict(infos)
    if paid.going_on is not None:
        _tell(told, *paid.going_on)
    if paid.over is not None:
        told["final_info"] = dict(told["final_info"])
        _tell(told["final_info"], *paid.over)
    return told


def _tell(infos: dict[str, Any], mask: Mask, env_rewards: Values, shaping: Values) -> None:
    infos["env_reward"], infos["_env_reward"] = env_rewards, mask
    infos["shaping_reward"], infos["_shaping_reward"] = shaping, mask.copy()


def _told(infos: dict[str, Any], mask: Mask, env_rewards: Values, shaping: Values) -> dict[str, Any]:
    """Infos with the two parts of the rewards of some environments, laid out as Gymnasium does."""
    count = np.count_nonzero(mask)
    if count == 0:
        return infos
    if "shaping_reward" in infos:  # of a shaping that this one is stacked on
        shaping = infos["shaping_reward"] + shaping
    if count < len(mask):
        env_rewards, shaping = np.where(mask, env_rewards, 0.0), np.where(mask, shaping, 0.0)
    told = dict(infos)
    _tell(told, mask.copy(), env_rewards, shaping)
    return told
