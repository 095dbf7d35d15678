"""Shaping of Stable-Baselines3's vector environments."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecMonitor, VecNormalize

from secret_rl.shaping.core import BonusOptions, PotentialLike, PotentialShaper, ShapingOptions, last_seen
from secret_rl.shaping.wrappers import BonusShaper, TrueReturn


def _of_inside(name: str) -> Any:
    """A method that calls the one of the environments inside."""

    def call(self: "ShapedVecEnv", *args: Any, **options: Any) -> Any:
        return getattr(self.venv, name)(*args, **options)

    return call


class ShapedVecEnv(VecEnv):
    """Environments whose rewards a ``Shaper`` adds to, with the parts in the infos.

    No ``VecEnvWrapper``: Stable-Baselines3 wants those of the environments to learn and to evaluate in to be the same,
    and nobody evaluates with shaping.
    """

    def __init__(self, venv: VecEnv, shaper: type[Any], potential: PotentialLike, **options: Any) -> None:
        if any(isinstance(layer, VecNormalize) for layer in layers(venv)):
            raise ValueError(
                "VecNormalize is inside of the shaping and changes what the potential sees: put it outside, "
                f"VecNormalize({type(self).__name__}(envs, ...))"
            )
        self.venv = venv
        super().__init__(venv.num_envs, venv.observation_space, venv.action_space)
        self._shaper = shaper(potential, venv.num_envs, venv.observation_space, venv.action_space, **options)
        self.shaping_discount: float | None = self._shaper.discount
        """The discount of the agent that the shaping is for; None: for any."""
        self._actions: NDArray[Any] | None = None
        self._none = np.zeros(venv.num_envs, np.bool_)
        self._returns = np.zeros(venv.num_envs)  # unshaped, of the episodes under way
        source = venv.venv if type(venv) is VecMonitor else venv
        # Of a vector environment: its infos of all environments at once, and listed infos that are made for each step.
        self._vectorised: Any = source if "vector_infos" in vars(source) else None

    seed, set_options, close, render, get_images, set_attr, env_method = (
        _of_inside(name) for name in ("seed", "set_options", "close", "render", "get_images", "set_attr", "env_method")
    )

    @property
    def unwrapped(self) -> VecEnv:
        """The environments without any wrapper."""
        return self.venv.unwrapped

    def __getattr__(self, name: str) -> Any:
        if name == "venv":  # not there yet: a copy that is being made
            raise AttributeError(name)
        return getattr(self.venv, name)

    def getattr_recursive(self, name: str) -> Any:
        """An attribute of this wrapper or of one inside; those outside ask."""
        return getattr(self, name)

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Any = None) -> list[bool]:
        """Whether each environment is in such a wrapper; a ``VecMonitor`` inside counts as a ``Monitor``."""
        if wrapper_class is Monitor and any(isinstance(layer, VecMonitor) for layer in layers(self.venv)):
            return [True for _ in self._get_indices(indices)]
        return self.venv.env_is_wrapped(wrapper_class, indices)

    def reset(self) -> Any:
        """Start an episode in every environment."""
        observations = self.venv.reset()
        self._returns[:] = 0.0
        self.reset_infos = self.venv.unwrapped.reset_infos  # wrappers do not pass these on
        self._shaper.start(~self._none, observations, self.reset_infos)
        return observations

    def step_async(self, actions: NDArray[Any]) -> None:
        """Start a step."""
        self._actions = actions
        self.venv.step_async(actions)

    def step_wait(self) -> tuple[Any, NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Finish the step and add the shaping to its rewards."""
        observations, rewards, ended, infos = self.venv.step_wait()
        self.reset_infos = self.venv.unwrapped.reset_infos
        env_rewards, inner = rewards.astype(np.float64), np.zeros(self.num_envs)
        for i, info in enumerate(infos):
            if "shaping_reward" in info:  # of a shaping that this one is stacked on
                env_rewards[i], inner[i] = info["env_reward"], info["shaping_reward"]
        truncated, last = self._none, None
        present: Any = infos if self._vectorised is None else self._vectorised.vector_infos
        which = np.flatnonzero(ended).tolist()
        if which:  # these environments reset within the step; what was seen last is in the info
            truncated = self._none.copy()
            truncated[which] = [bool(infos[i].get("TimeLimit.truncated", False)) for i in which]
            final_infos = infos if self._vectorised is None else present.get("final_info", {})
            if self._vectorised is None:
                present = [self.reset_infos[i] if over else infos[i] for i, over in enumerate(ended)]

            def seen() -> Any:
                final = {i: infos[i]["terminal_observation"] for i in which}
                return last_seen(observations, final, self.observation_space)

            last = self._shaper.batch(self._none, ended, seen, self._actions, env_rewards, final_infos)
        batch = self._shaper.batch(ended, ~ended, observations, self._actions, env_rewards, present)
        shaping = self._shaper.step(batch, ended & ~truncated, truncated, last)
        if self._vectorised is None:
            infos = [info.copy() for info in infos]  # environments may keep theirs
        for info, reward, more in zip(infos, env_rewards.tolist(), (inner + shaping).tolist(), strict=True):
            info["env_reward"] = reward
            info["shaping_reward"] = more
        if self._shaper.discount is None:
            for info, bonus in zip(infos, shaping.tolist(), strict=True):
                info["bonus_reward"] = info.get("bonus_reward", 0.0) + bonus
        self._returns += env_rewards
        for i in which:
            infos[i] = TrueReturn(infos[i], self._returns[i])
        self._returns[which] = 0.0
        return observations, (rewards + shaping).astype(np.float32), ended, infos

    def has_attr(self, attr_name: str) -> bool:
        """Whether the environments have an attribute; they have ``shaping_discount``."""
        return attr_name == "shaping_discount" or self.venv.has_attr(attr_name)

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """An attribute of each environment; ``shaping_discount`` is that of this wrapper."""
        if attr_name == "shaping_discount":
            return [self.shaping_discount for _ in self._get_indices(indices)]
        return self.venv.get_attr(attr_name, indices)


def layers(envs: VecEnv) -> Iterator[VecEnv]:
    """A vector environment from the outermost wrapper inwards."""
    yield envs
    while isinstance(envs, VecEnvWrapper | ShapedVecEnv):
        envs = envs.venv
        yield envs


class PotentialShapingVecEnv(ShapedVecEnv):
    """``PotentialShaping`` for the ``VecEnv`` of Stable-Baselines3: the same rewards, the same arguments.

    ``discount`` must be the algorithm's ``gamma``; another one is found when it begins to learn. Algorithms bootstrap
    where a time limit cuts an episode short: keep ``truncation="keep"``. ``VecNormalize`` goes outside. What a
    ``Monitor`` or ``VecMonitor`` gives Stable-Baselines3 to log is the unshaped return, wherever it sits; the file that
    it may write itself holds unshaped returns only if it sits inside.
    """

    def __init__(
        self, venv: VecEnv, potential: PotentialLike, discount: float, **options: Unpack[ShapingOptions]
    ) -> None:
        super().__init__(venv, PotentialShaper, potential, discount=discount, **options)


class CreditBonusVecEnv(ShapedVecEnv):
    """``CreditBonus`` for the ``VecEnv`` of Stable-Baselines3; ``fade_steps`` counts the steps of all environments."""

    def __init__(self, venv: VecEnv, potential: PotentialLike, **options: Unpack[BonusOptions]) -> None:
        super().__init__(venv, BonusShaper, potential, **options)
        self.bonus: BonusShaper = self._shaper
        """How much of the bonus is left (``bonus.left``), and the state of that."""
        if venv.has_attr("shaping_discount"):  # of a potential inside
            self.shaping_discount = venv.get_attr("shaping_discount")[0]


@dataclass(frozen=True)
class _Shaping:
    """Not a function of functions: its fields distinguish one training from another."""

    wrapper: Any
    options: dict[str, Any]

    def __call__(self, venv: VecEnv, discount: float) -> ShapedVecEnv:
        of_agent = {"discount": discount} if self.wrapper is PotentialShapingVecEnv else {}
        return self.wrapper(venv, **self.options, **of_agent)  # type: ignore[no-any-return]


def shape_with(potential: PotentialLike, *, scale: float | str = 1.0, truncation: str = "keep") -> _Shaping:
    """Shaping for ``secret_rl.sb3.train``: makes shaped environments of environments and a discount."""
    return _Shaping(PotentialShapingVecEnv, {"potential": potential, "scale": scale, "truncation": truncation})


def bonus_with(
    potential: PotentialLike,
    *,
    scale: float = 1.0,
    fade_steps: int | None = None,
    fade_at_return: float | None = None,
) -> _Shaping:
    """A bonus for ``secret_rl.sb3.train``, as ``CreditBonus`` pays it: ``train(..., shaping=bonus_with(credit))``.

    Args:
        potential: As for ``CreditBonus``, like all others.
        scale: Of the bonus.
        fade_steps: Steps of all environments over which it falls to 0.
        fade_at_return: An unshaped return that counts as success.
    """
    options = {"scale": scale, "fade_steps": fade_steps, "fade_at_return": fade_at_return}
    return _Shaping(CreditBonusVecEnv, {"potential": potential, **options})
