"""Shaping of Gymnasium's environments, single and vectorised: by a potential, or with a bonus that fades.

A potential adds discount * Phi' - Phi. A bonus pays what a step earns at once and for good, whatever follows: it is not
policy-invariant while it lasts, but deep agents gain more from it.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from math import isfinite
from os import PathLike, fspath
from typing import Any, Unpack

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from secret_rl.checks import check_integer
from secret_rl.shaping.core import (
    Batch,
    BonusOptions,
    Info,
    Infos,
    Mask,
    PotentialLike,
    PotentialShaper,
    Shaper,
    ShapingOptions,
    Values,
    check_number,
    last_seen,
    one_row,
)

_EPISODES = 100  # that a success rate is of
_NO, _YES = np.zeros(1, np.bool_), np.ones(1, np.bool_)


class BonusShaper(Shaper):
    """Every rise of Phi, the last one too, and how much of that bonus is left; options as for ``CreditBonus``."""

    def __init__(
        self,
        potential: PotentialLike,
        n: int,
        *spaces: gym.Space[Any],
        scale: float = 1.0,
        fade_steps: int | None = None,
        fade_at_return: float | None = None,
    ) -> None:
        super().__init__(potential, n, *spaces)
        self._scale = check_number("scale", scale, lambda number: number >= 0, "a number of at least 0")
        self._fade_steps = None if fade_steps is None else check_integer("fade_steps", fade_steps, 1)
        if fade_at_return is not None:
            check_number("fade_at_return", fade_at_return, isfinite, "a finite number")
        self._fade_at_return = fade_at_return
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

    def rewards(self, phi: Values, next_phi: Values, terminated: Mask, truncated: Mask) -> Values:  # noqa: ARG002
        """(n,) the bonus of n steps."""
        return self.left * (self._scale * np.maximum(next_phi - phi, 0.0))

    def step(self, batch: Batch, terminated: Mask, truncated: Mask, last: Batch | None = None) -> Values:
        """(n,) the bonus of a step; 0 where an episode only started."""
        bonus = super().step(batch, terminated, truncated, last)
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


class TrueReturn(dict[str, Any]):
    """The info of the last step of an episode: whoever adds up shaped rewards around a shaping, its return is true.

    Monitors write ``info["episode"]``, which is what agents of Stable-Baselines3 log.
    """

    def __init__(self, info: Info, value: float) -> None:
        super().__init__(info)
        self.true_return = float(value)

    def __setitem__(self, name: str, value: Any) -> None:
        if name == "episode" and hasattr(self, "true_return"):  # not yet there while it is copied
            value = {**value, "r": round(self.true_return, 6)}
        super().__setitem__(name, value)

    def copy(self) -> "TrueReturn":
        """The same, of the same return."""
        return TrueReturn(self, self.true_return)


class ShapedEnv(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """An environment whose rewards a ``Shaper`` adds to, with the parts in the info. Its spec records the arguments."""

    def __init__(self, env: gym.Env[Any, Any], shaper: Any, potential: PotentialLike, **arguments: Any) -> None:
        arguments["potential"] = fspath(potential) if isinstance(potential, PathLike) else potential
        # Potentials may hold a whole model, and are not changed by use: no copy.
        RecordConstructorArgs.__init__(self, _disable_deepcopy=True, **arguments)
        gym.Wrapper.__init__(self, env)
        self._spaces, self._shaper = (env.observation_space, env.action_space), shaper
        self._return = 0.0  # unshaped, of the episode under way
        self.shaping_discount: float | None = shaper.discount
        """The discount of the agent that the shaping is for; None: for any."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._return = 0.0
        self._shaper.start(_YES, one_row(self._spaces[0], observation), [info])
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step and add the shaping to its reward."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        reward = float(reward)
        env_reward, inner = info.get("env_reward", reward), info.get("shaping_reward")  # of a shaping inside this one
        seen, done = one_row(self._spaces[0], observation), one_row(self._spaces[1], action)
        batch = self._shaper.batch(_NO, _YES, seen, done, np.array([env_reward], np.float64), [info])
        shaping = float(self._shaper.step(batch, _YES if terminated else _NO, _YES if truncated else _NO)[0])
        # In a copy: environments may keep their info.
        parts = {"env_reward": env_reward, "shaping_reward": shaping if inner is None else inner + shaping}
        if self._shaper.discount is None:
            parts["bonus_reward"] = info.get("bonus_reward", 0.0) + shaping
        info = {**info, **parts}
        self._return += env_reward
        if terminated or truncated:
            info = TrueReturn(info, self._return)
        return observation, reward + shaping, terminated, truncated, info


class PotentialShaping(ShapedEnv):
    """Adds discount * Phi' - Phi to the reward, which changes no optimal policy (Ng et al. 1999; paper, section 2.2).

    >>> import gymnasium as gym, secret_rl
    >>> from secret_rl.shaping import ObservationKey, PotentialShaping, TablePotential
    >>> potential = TablePotential({0: 0.0, 4: 0.1, 8: 0.2}, state=ObservationKey())
    >>> env = PotentialShaping(gym.make("FrozenLake-v1", is_slippery=False), potential, discount=0.5)
    >>> _ = env.reset(seed=0)
    >>> _, reward, _, _, info = env.step(1)
    >>> reward, info["env_reward"], info["shaping_reward"]
    (0.05, 0.0, 0.05)

    ``info["env_reward"]`` and ``info["shaping_reward"]`` are the two parts of the reward. Shapings may be stacked:
    the first stays the environment's, the second is the sum of all, of which ``info["bonus_reward"]`` are bonuses. The
    return that a monitor around this wrapper puts into ``info["episode"]`` is the unshaped one.

    Args:
        env: The environment.
        potential: A potential, a function of (observation, info), or the path of a saved one; a path survives
            ``env.spec.to_json()``, an object does not.
        discount: The agent's own, in (0, 1]: with another one the optimal policies change.
        scale: Multiplies the potential. ``"fit"`` scales it down, where needed, to what an episode can pay (its
            ``reward_bound``); a number that leaves it above that warns.
        truncation: What Phi' is where an episode is cut short: ``"keep"`` for agents that bootstrap there, ``"zero"``
            for agents that treat it as an end. Where the episode terminates Phi' is 0, always.
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
        options: dict[str, Any] = {"discount": discount, "scale": scale, "truncation": truncation}
        shaper = PotentialShaper(potential, 1, env.observation_space, env.action_space, **options)
        inner = env.get_wrapper_attr("shaping_discount") if env.has_wrapper_attr("shaping_discount") else discount
        if inner not in (discount, None):
            clash = f"the environment is shaped with discount {inner}, and discount {discount} is given"
            raise ValueError(f"{clash}: both must be the agent's own")
        super().__init__(env, shaper, potential, **options)
        self.potential, self.shaping_scale = shaper.potential, shaper.scale

    def tabular_shaping(self, model: Any) -> dict[str, Any]:
        """The shaping as arrays over the states of a finite task, for compiled agents.

        An ``AttributeError`` where the potential has no such form.
        """
        arrays = self.potential.tabulate(model)  # type: ignore[attr-defined]
        # The scale is not multiplied in: rounding would differ.
        return {**arrays, **{name: getattr(self._shaper, name) for name in ("scale", "discount", "keep_on_truncation")}}


class CreditBonus(ShapedEnv):
    """Pays every rise of a potential of the history at once, and never takes it back.

    >>> import gymnasium as gym, secret_rl as srl
    >>> maze = gym.make("secret_rl/Triggers-v0", layout_seed=1)
    >>> env = srl.CreditBonus(maze, srl.shaping.EventCredit("trigger_activated"), fade_steps=100_000)

    With ``OnlineCredit`` a step is paid ``scale`` times what it earns, with ``VisitCounts`` for how new the state is
    that it led to. Wrap twice for both bonuses. The parts of the reward are in the info, as in ``PotentialShaping``.

    This is *not* policy-invariant: an agent may prefer the bonus to the task. Let it fade. Once it has, the agent
    learns from the true reward alone.

    Args:
        env: The environment.
        potential: As for ``PotentialShaping``.
        scale: Of the bonus.
        fade_steps: Steps over which the bonus falls to 0, in a straight line; None: it stays.
        fade_at_return: An unshaped return that counts as success: of the bonus, the share of the last 100 episodes is
            left that did not succeed.
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
        options: dict[str, Any] = {"scale": scale, "fade_steps": fade_steps, "fade_at_return": fade_at_return}
        shaper = BonusShaper(potential, 1, env.observation_space, env.action_space, **options)
        super().__init__(env, shaper, potential, **options)

    @property
    def left(self) -> float:
        """The share of the bonus that is left, from 1 to 0."""
        return float(self._shaper.left)


class ShapedVectorEnv(VectorWrapper):  # generic since Gymnasium 1.4 only
    """Vector environments whose rewards a ``Shaper`` adds to, with the parts in the infos."""

    shaper_class: type[Any]

    def __init__(self, env: VectorEnv[Any, Any, Any], potential: PotentialLike, **options: Any) -> None:
        super().__init__(env)
        if env.metadata.get("autoreset_mode") is None:
            gym.logger.warn(f'{env} does not say its metadata["autoreset_mode"]: taking it for NEXT_STEP')
        self._mode = AutoresetMode(env.metadata.get("autoreset_mode") or AutoresetMode.NEXT_STEP)
        spaces = env.single_observation_space, env.single_action_space
        self._shaper = self.shaper_class(potential, env.num_envs, *spaces, **options)
        self.shaping_discount: float | None = self._shaper.discount
        """The discount of the agent that the shaping is for; None: for any."""
        self._none = np.zeros(env.num_envs, np.bool_)
        self._over = self._none  # (n,) NEXT_STEP: the next step is a reset

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in every environment, or in those that ``options["reset_mask"]`` names."""
        started = ~self._none
        if options is not None and "reset_mask" in options:
            started = np.array(options["reset_mask"], np.bool_)  # now: the environments may take it out
        observations, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type, unused-ignore]
        self._shaper.start(started, observations, infos)
        self._over = self._over & ~started
        return observations, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step the environments and add the shaping to their rewards."""
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        rewards = np.asarray(rewards, np.float64)
        ended: Mask = np.asarray(terminated, np.bool_) | np.asarray(truncated, np.bool_)
        env_rewards, last = _env_rewards(rewards, infos), None
        if self._mode is AutoresetMode.SAME_STEP:
            started = ended
            if np.count_nonzero(ended):  # their last steps are in the infos
                final_infos = infos.get("final_info", {})
                env_rewards = _env_rewards(env_rewards, final_infos)
                if "final_obs" not in infos:
                    raise ValueError(
                        'an episode ended in SAME_STEP mode without infos["final_obs"], so its last potential is not '
                        "known: let the environments give it, or use another autoreset mode"
                    )

                def seen() -> Any:
                    final = {i: infos["final_obs"][i] for i in np.flatnonzero(ended).tolist()}
                    return last_seen(observations, final, self.env.single_observation_space)

                last = self._shaper.batch(self._none, ended, seen, actions, env_rewards, final_infos)
        else:
            started = self._over
            self._over = ended if self._mode is AutoresetMode.NEXT_STEP else self._none
        stepped = ~started
        batch = self._shaper.batch(started, stepped, observations, actions, env_rewards, infos)
        shaping = self._shaper.step(batch, terminated, truncated, last)
        is_bonus = self._shaper.discount is None
        infos = _with_parts(infos, stepped, env_rewards, shaping, is_bonus)
        if last is not None:
            infos["final_info"] = _with_parts(final_infos, ended, env_rewards, shaping, is_bonus)
        return observations, rewards + shaping, terminated, truncated, infos


class VectorPotentialShaping(ShapedVectorEnv):
    """``PotentialShaping`` for vector environments: the same rewards and infos, the same arguments.

    In NEXT_STEP mode the step that resets an environment pays nothing. In SAME_STEP mode, the two parts of the last
    reward of an episode are in ``infos["final_info"]``, as everything else of its last step is.
    """

    shaper_class = PotentialShaper

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        potential: PotentialLike,
        discount: float,
        **options: Unpack[ShapingOptions],
    ) -> None:
        super().__init__(env, potential, discount=discount, **options)


class VectorCreditBonus(ShapedVectorEnv):
    """``CreditBonus`` for vector environments: the same arguments; ``fade_steps`` counts the steps of all of them."""

    shaper_class = BonusShaper
    left = CreditBonus.left

    def __init__(
        self, env: VectorEnv[Any, Any, Any], potential: PotentialLike, **options: Unpack[BonusOptions]
    ) -> None:
        super().__init__(env, potential, **options)


def _env_rewards(rewards: Values, infos: dict[str, Any]) -> Values:
    """(n,) unshaped rewards: where an inner shaping gives them, its."""
    return np.where(infos["_env_reward"], infos["env_reward"], rewards) if "shaping_reward" in infos else rewards


def _with_parts(
    infos: dict[str, Any], mask: Mask, env_rewards: Values, shaping: Values, is_bonus: bool
) -> dict[str, Any]:
    """Infos with the parts of the rewards of some environments, laid out as Gymnasium does."""
    if not np.count_nonzero(mask):
        return {**infos}
    parts = {"env_reward": env_rewards}
    for name in ("shaping_reward", *(["bonus_reward"] if is_bonus else [])):
        parts[name] = infos[name] + shaping if name in infos else shaping  # of a shaping that this one is stacked on
    if not mask.all():
        parts = {name: np.where(mask, values, 0.0) for name, values in parts.items()}
    return {**infos, **parts, **{f"_{name}": mask for name in parts}}
