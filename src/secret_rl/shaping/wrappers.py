"""Shaping of a Gymnasium environment: r + discount * Phi' - Phi, and nothing else changes."""

from math import isfinite
from typing import Any

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from secret_rl.shaping.potentials import not_finite
from secret_rl.shaping.terms import PotentialLike, agree, recorded


class PotentialShaping(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Adds discount * Phi' - Phi to the reward, which changes no optimal policy (Ng et al. 1999; paper, section 2.2).

    >>> import gymnasium as gym, secret_rl
    >>> from secret_rl.shaping import Observed, PotentialShaping, TablePotential
    >>> potential = TablePotential({0: 0.0, 4: 0.1, 8: 0.2}, state=Observed())
    >>> env = PotentialShaping(gym.make("FrozenLake-v1", is_slippery=False), potential, discount=0.5)
    >>> _ = env.reset(seed=0)
    >>> _, reward, _, _, info = env.step(1)
    >>> reward, info["env_reward"], info["shaping_reward"]
    (0.05, 0.0, 0.05)

    ``potential`` is a potential or the path of a saved one; a path survives ``env.spec.to_json()``, an object
    does not. A potential that remembers is given a memory of its own.

    ``discount`` is the agent's own, in (0, 1]: with another one the optimal policies change. Agents find it with
    ``env.get_wrapper_attr("shaping_discount")``.

    ``scale`` multiplies the potential. ``"fit"`` scales it down, where needed, to what an episode can pay (its
    ``reward_bound``); a number that leaves it above that warns.

    ``truncation`` says what Phi' is where an episode is cut short: ``"keep"`` for agents that bootstrap there (they
    value the state that was cut off at its potential less), ``"zero"`` for agents that treat it as an end. Where the
    episode terminates Phi' is 0, always.

    ``info["env_reward"]`` and ``info["shaping_reward"]`` tell the two parts of the reward. Shapings may be stacked:
    the first stays the environment's, the second is the sum of all. Log returns inside of this wrapper, or from
    ``info["env_reward"]``.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        potential: PotentialLike,
        discount: float,
        *,
        scale: float | str = 1.0,
        truncation: str = "keep",
    ) -> None:
        RecordConstructorArgs.__init__(
            self,
            potential=recorded(potential),
            discount=discount,
            scale=scale,
            truncation=truncation,
            _disable_deepcopy=True,  # potentials may hold a whole model; they are not changed by use
        )
        gym.Wrapper.__init__(self, env)
        terms = agree(potential, discount, scale, truncation, env.observation_space, env.action_space)
        if env.has_wrapper_attr("shaping_discount"):
            inner = env.get_wrapper_attr("shaping_discount")
            if inner != terms.discount:
                raise ValueError(
                    f"the environment is shaped with discount {inner}, and discount {discount} is asked for: both must "
                    "be the agent's own"
                )
        self.potential = terms.potential.fresh()
        self.shaping_discount = terms.discount
        self.shaping_scale = terms.scale
        self._keep = terms.keep_on_truncation
        self._before: float | None = None  # scaled Phi of the present state; None before the first episode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._before = self.shaping_scale * float(self.potential.begin(observation, info))
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step and add the shaping to its reward."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        before = self._before
        if before is None:
            raise gym.error.ResetNeeded("no episode has begun: call reset() first")
        # Plain floats: sums with NumPy scalars are slower, and with those of 32 bits less exact.
        reward = float(reward)
        stacked = "shaping_reward" in info
        env_reward = info["env_reward"] if stacked else reward
        after = self.shaping_scale * float(self.potential.step(action, observation, env_reward, info))
        # Terminal states have no potential, or the optimal policies change. Termination wins over truncation.
        if terminated or (truncated and not self._keep):
            after = 0.0
        shaping = self.shaping_discount * after - before
        if not isfinite(shaping):
            raise ValueError(not_finite(self.potential, f"{after} after {before}"))
        self._before = after
        info = info.copy()  # environments may keep theirs
        info["env_reward"] = env_reward
        info["shaping_reward"] = info["shaping_reward"] + shaping if stacked else shaping
        return observation, reward + shaping, terminated, truncated, info

    def tabular_shaping(self, model: Any) -> dict[str, Any]:
        """The shaping as arrays over the states of a finite task, for compiled agents.

        An ``AttributeError`` where the potential has no such form.
        """
        tabulate = getattr(self.potential, "tabulate", None)
        if tabulate is None:
            raise AttributeError(f"{self.potential!r} has no form as arrays")
        return {
            **tabulate(model),
            "scale": self.shaping_scale,  # not multiplied in: rounding would differ
            "discount": self.shaping_discount,
            "keep_on_truncation": self._keep,
        }
