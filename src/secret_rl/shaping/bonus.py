"""Credit as a bonus: what a step earns is paid at once and kept, whatever follows, and fades as the agent learns.

A bonus is not policy-invariant while it lasts. Deep agents gain more from it than from a potential, which takes back
at the end of an episode what it paid on the way.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv

from secret_rl.checks import check_integer
from secret_rl.shaping.core import (
    Batch,
    Infos,
    Mask,
    PotentialLike,
    Shaper,
    Values,
    check_number,
    check_spaces,
    load_potential,
)
from secret_rl.shaping.wrappers import ShapedEnv, ShapedVectorEnv

_EPISODES = 100  # that a success rate is of


class BonusShaper(Shaper):
    """The bonus of n environments of two spaces, and how much of it is left."""

    def __init__(
        self,
        potential: PotentialLike,
        n: int,
        *spaces: gym.Space[Any],
        scale: float,
        fade_steps: int | None,
        fade_at_return: float | None,
    ) -> None:
        loaded = load_potential(potential)
        check_spaces(loaded, *spaces)
        self._scale = check_number("scale", scale, lambda number: number >= 0, "a number of at least 0")
        self._fade_steps = None if fade_steps is None else check_integer("fade_steps", fade_steps, 1)
        if fade_at_return is not None:
            fade_at_return = check_number("fade_at_return", fade_at_return, lambda _: True, "a finite number")
        self._fade_at_return = fade_at_return
        super().__init__(loaded, self._rises, n, *spaces)
        self._taken = 0  # steps of all environments
        self._successes: deque[int] = deque(maxlen=_EPISODES)  # of the newest episodes, 1 or 0
        self._returns = np.zeros(n)  # unshaped, of the episodes under way

    def _rises(self, phi: Values, next_phi: Values, _terminated: Mask, _truncated: Mask) -> Values:
        """(n,) what is added to the rewards of n steps before it fades: every rise of Phi, the last one too."""
        return self._scale * np.maximum(next_phi - phi, 0.0)

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
        """How far it has faded, and what its potential remembers of more than an episode: JSON values and arrays."""
        remembered = self._carry.state() if hasattr(self._carry, "state") else {}
        return {"taken": self._taken, "successes": list(self._successes), **remembered}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a ``state``."""
        self._taken, self._successes = state["taken"], deque(state["successes"], _EPISODES)
        self._returns[:] = 0.0
        if hasattr(self._carry, "restore"):
            self._carry.restore(state)


class CreditBonus(ShapedEnv):
    """Pays every rise of a potential of the history at once, and never takes it back.

    >>> import gymnasium as gym, secret_rl as srl
    >>> maze = gym.make("secret_rl/Triggers-v0", layout_seed=1)
    >>> env = srl.CreditBonus(maze, srl.shaping.EventCredit("trigger_activated"), fade_steps=100_000)

    With ``OnlineCredit`` a step is paid ``scale`` times what it earns: no trajectory of the target is needed, each
    (observation, action) pair earns at most once an episode, and ``cap`` bounds what an episode can earn.

    With ``VisitCounts`` a step is paid for how new the state is that it led to. Wrap twice for both bonuses.

    This is *not* policy-invariant: an agent may prefer the bonus to the task. Let it fade. Once it has, the agent
    learns from the true reward alone.

    ``info["env_reward"]`` and ``info["shaping_reward"]`` are the two parts of the reward.

    Args:
        env: The environment.
        potential: As for ``PotentialShaping``.
        scale: Of the bonus.
        fade_steps: Steps over which the bonus falls to 0, in a straight line.
        fade_at_return: It is paid in proportion to the share of the last 100 episodes whose unshaped return was lower.
    """

    _shaper: BonusShaper

    def __init__(
        self,
        env: gym.Env[Any, Any],
        potential: PotentialLike,
        *,
        scale: float = 1.0,
        fade_steps: int | None = None,
        fade_at_return: float | None = None,
    ) -> None:
        options = {"scale": scale, "fade_steps": fade_steps, "fade_at_return": fade_at_return}
        shaper = BonusShaper(potential, 1, env.observation_space, env.action_space, **options)  # type: ignore[arg-type]
        super().__init__(env, shaper, potential, **options)

    @property
    def left(self) -> float:
        """The share of the bonus that is left, from 1 to 0."""
        return self._shaper.left


class VectorCreditBonus(ShapedVectorEnv):
    """``CreditBonus`` for vector environments: the same arguments; ``fade_steps`` counts the steps of all of them."""

    _shaper: BonusShaper

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
        options = {"scale": scale, "fade_steps": fade_steps, "fade_at_return": fade_at_return}
        super().__init__(env, BonusShaper(potential, env.num_envs, *spaces, **options))  # type: ignore[arg-type]

    @property
    def left(self) -> float:
        """The share of the bonus that is left, from 1 to 0."""
        return self._shaper.left
