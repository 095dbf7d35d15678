"""Credit as a bonus: what a step earns is paid at once and kept, whatever follows, and fades as the agent learns.

A bonus is not policy-invariant while it lasts. Deep agents gain more from it than from a potential, which takes back
at the end of an episode what it paid on the way.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from os import PathLike, fspath
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorEnv

from secret_rl.checks import check_integer
from secret_rl.files import whole_number
from secret_rl.shaping.core import (
    Batch,
    Infos,
    Mask,
    Potential,
    PotentialLike,
    Shaper,
    Values,
    check_spaces,
    is_number,
    load_potential,
)
from secret_rl.shaping.wrappers import ShapedEnv, ShapedVectorEnv

_EPISODES = 100  # that a success rate is of


@dataclass(frozen=True)
class BonusConfig:
    """What all wrappers take, checked."""

    potential: Potential
    scale: float
    fade_steps: int | None
    fade_at_return: float | None

    @classmethod
    def from_args(
        cls,
        potential: PotentialLike,
        scale: float,
        fade_steps: int | None,
        fade_at_return: float | None,
        *spaces: gym.Space[Any],
    ) -> "BonusConfig":
        """Check what a wrapper was given, against the two spaces of a single environment."""
        loaded = load_potential(potential)
        check_spaces(loaded, *spaces)
        for name, value in (("scale", scale), ("fade_at_return", fade_at_return)):
            if value is not None and not (is_number(value) and isfinite(value)):
                raise ValueError(f"{name} must be a number, got {value!r}")
        if not scale >= 0:
            raise ValueError(f"scale must be a number of at least 0, got {scale!r}")
        if fade_steps is not None:
            fade_steps = check_integer("fade_steps", fade_steps, 1)
        return cls(loaded, float(scale), fade_steps, None if fade_at_return is None else float(fade_at_return))

    def rewards(self, phi: Values, next_phi: Values, _terminated: Mask, _truncated: Mask) -> Values:
        """(n,) what is added to the rewards of n steps before it fades: every rise of Phi, the last one too."""
        return self.scale * np.maximum(next_phi - phi, 0.0)


class BonusShaper(Shaper):
    """The bonus of n environments, and how much of it is left."""

    def __init__(
        self, config: BonusConfig, n: int, observation_space: gym.Space[Any], action_space: gym.Space[Any]
    ) -> None:
        super().__init__(config, n, observation_space, action_space)
        self._fade_steps, self._fade_at_return = config.fade_steps, config.fade_at_return
        self._taken = 0  # steps of all environments
        self._successes: deque[int] = deque(maxlen=_EPISODES)  # of the newest episodes, 1 or 0
        self._returns = np.zeros(n)  # unshaped, of the episodes under way

    @property
    def left(self) -> float:
        """The share of the bonus that is left, from 1 to 0."""
        left = 1.0 if self._fade_steps is None else max(0.0, 1 - self._taken / self._fade_steps)
        return left * (1 - sum(self._successes) / _EPISODES)

    def start(self, starts: Mask, observations: Any, infos: Infos) -> None:
        """Episodes start in some environments."""
        self._returns[starts] = 0.0
        super().start(starts, observations, infos)

    def step(self, batch: Batch, terminated: Mask, truncated: Mask, last: Batch | None = None) -> Values:
        """(n,) the bonus of a step; 0 where an episode only started."""
        bonus = self.left * super().step(batch, terminated, truncated, last)
        stepped = batch.steps if last is None else batch.steps | last.steps
        self._taken += int(np.count_nonzero(stepped))
        if self._fade_at_return is not None:
            self._returns += np.where(stepped, batch.rewards, 0.0)
            ended = stepped & (terminated | truncated)
            self._successes.extend((self._returns[ended] >= self._fade_at_return).astype(int).tolist())
            self._returns[ended] = 0.0
        return bonus

    def state(self) -> dict[str, Any]:
        """How far it has faded, and what its potential remembers; episodes under way are left out.

        JSON values and arrays.
        """
        remembered = self._carry.state() if hasattr(self._carry, "state") else {}
        return {"taken": self._taken, "successes": list(self._successes), **remembered}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a ``state``."""
        self._taken = whole_number(state["taken"], high=2**62)
        self._successes = deque((whole_number(one, high=1) for one in state["successes"]), _EPISODES)
        self._returns[:] = 0.0
        if hasattr(self._carry, "restore"):
            self._carry.restore(state)


class CreditBonus(ShapedEnv, RecordConstructorArgs):
    """Pays every rise of a potential of the history at once, and never takes it back.

    >>> import gymnasium as gym, secret_rl
    >>> from secret_rl.shaping import CreditBonus, EventCredit
    >>> maze = gym.make("secret_rl/Triggers-v0", layout_seed=1)
    >>> env = CreditBonus(maze, EventCredit("trigger_activated"), fade_steps=100_000)
    >>> _ = env.reset(seed=0)
    >>> _, reward, _, _, info = env.step(0)
    >>> reward == info["env_reward"] + info["shaping_reward"]
    True

    With ``OnlineCredit`` a step is paid ``scale`` times what it earns: no trajectory of the target is needed, each
    (observation, action) pair earns at most once an episode, and ``cap`` bounds what an episode can earn.

    With ``VisitCounts`` a step is paid for how new the state is that it led to. Wrap twice for both bonuses.

    This is *not* policy-invariant: an agent may prefer the bonus to the task. Let it fade. Once it has, the agent
    learns from the true reward alone.

    ``fade_steps`` is the number of steps over which the bonus falls to 0, in a straight line. With ``fade_at_return``
    it is paid in proportion to the share of the last 100 episodes whose unshaped return was lower than that. ``left``
    says what is left of it, from 1 to 0.

    ``info["env_reward"]`` and ``info["shaping_reward"]`` are the two parts of the reward.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        potential: PotentialLike,
        *,
        scale: float = 1.0,
        fade_steps: int | None = None,
        fade_at_return: float | None = None,
    ) -> None:
        RecordConstructorArgs.__init__(
            self,
            potential=fspath(potential) if isinstance(potential, PathLike) else potential,
            scale=scale,
            fade_steps=fade_steps,
            fade_at_return=fade_at_return,
            _disable_deepcopy=True,  # potentials may hold a whole model
        )
        spaces = env.observation_space, env.action_space
        config = BonusConfig.from_args(potential, scale, fade_steps, fade_at_return, *spaces)
        self._shaper: BonusShaper
        ShapedEnv.__init__(self, env, BonusShaper(config, 1, *spaces))

    @property
    def left(self) -> float:
        """The share of the bonus that is left, from 1 to 0."""
        return self._shaper.left


class VectorCreditBonus(ShapedVectorEnv):
    """``CreditBonus`` for vector environments: the same arguments; ``fade_steps`` counts the steps of all of them."""

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        potential: PotentialLike,
        *,
        scale: float = 1.0,
        fade_steps: int | None = None,
        fade_at_return: float | None = None,
    ) -> None:
        spaces = env.single_observation_space, env.single_action_space
        config = BonusConfig.from_args(potential, scale, fade_steps, fade_at_return, *spaces)
        self._shaper: BonusShaper
        super().__init__(env, BonusShaper(config, env.num_envs, *spaces))

    @property
    def left(self) -> float:
        """The share of the bonus that is left, from 1 to 0."""
        return self._shaper.left
