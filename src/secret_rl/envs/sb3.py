"""Gymnasium's vector environments as the ``VecEnv`` of Stable-Baselines3: no Python environment per worker."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from numpy.typing import NDArray

from secret_rl.envs.listed import listed_infos
from secret_rl.seeding import policy_seed

try:
    from stable_baselines3.common.env_util import is_wrapped
    from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        'Environments for Stable-Baselines3 need the sb3 extra: pip install "secret-rl[sb3]"'
    ) from missing

_GOING_ON = {"TimeLimit.truncated": False}
_FINAL = frozenset(["final_obs", "_final_obs", "final_info", "_final_info"])  # of the episodes that have just ended
_SPACES = {"observation_space": "single_observation_space", "action_space": "single_action_space"}


def sb3_envs(
    env: str | EnvSpec | Callable[[], gym.Env[Any, Any]],
    n: int,
    *,
    seed: int | None = None,
    env_options: Mapping[str, Any] | None = None,
) -> VecEnv:
    """``n`` environments for Stable-Baselines3, of an id or of a function that makes one, the fastest way there is.

    An environment that is registered with a vector form of its own, which can reset within the step, goes through
    ``GymnasiumVecEnv``; any other through ``DummyVecEnv``. What they give is the same. ``seed`` counts from the next
    reset: environment ``i`` gets ``seed + i``, the action space a stream of its own. There is no ``Monitor`` inside.

    >>> import numpy as np
    >>> envs = sb3_envs("secret_rl/Triggers-v0", 256, seed=0, env_options={"window": None})
    >>> observations, rewards, ended, infos = (envs.reset(), envs.step(np.zeros(256)))[1]
    >>> observations.shape, rewards.dtype, infos[0]["TimeLimit.truncated"]
    ((256, 8, 8, 3), dtype('float32'), False)
    """
    options = dict(env_options or {})
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise ValueError(f"n must be a positive number of environments, got {n!r}")
    made: VecEnv
    if isinstance(env, str | EnvSpec):
        if _has_vector_form(gym.spec(env) if isinstance(env, str) else env, options):
            mode = {"vectorization_mode": "vector_entry_point", "autoreset_mode": AutoresetMode.SAME_STEP}
            made = GymnasiumVecEnv(gym.make_vec(env, int(n), **mode, **options))  # type: ignore[arg-type]
        else:
            made = DummyVecEnv([partial(gym.make, env, **options)] * int(n))
    elif options:
        raise ValueError(f"env_options {sorted(options)} only apply to an environment id: give them to {env} yourself")
    elif callable(env):
        made = DummyVecEnv([env] * int(n))
    else:
        raise TypeError(f"env must be an id, or a function that makes an environment, got {type(env).__name__}")
    if seed is not None:
        made.seed(seed)
        made.action_space.seed(policy_seed(seed))
    return made


class GymnasiumVecEnv(VecEnv):
    """Any vector environment of Gymnasium, as ``DummyVecEnv`` over its single environments would be.

    It must reset within the step, as Stable-Baselines3 expects: ``autoreset_mode`` SAME_STEP.

    >>> import gymnasium as gym, secret_rl
    >>> envs = gym.make_vec(
    ...     "secret_rl/Triggers-v0", 64, vectorization_mode="vector_entry_point", autoreset_mode="SameStep"
    ... )
    >>> GymnasiumVecEnv(envs).reset().shape
    (64, 3, 3, 3)

    ``VectorPotentialShaping`` may be inside, or ``PotentialShapingVecEnv`` outside, with ``VecMonitor`` between, which
    then logs unshaped returns. Attributes are those of each environment where the vector environment holds some, as
    ``SyncVectorEnv`` does; else what the vector environment itself has stands for all of them.
    """

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        if not isinstance(envs, VectorEnv):
            raise TypeError(f"expected a gymnasium.vector.VectorEnv, got {type(envs).__name__}")
        mode = envs.metadata.get("autoreset_mode")
        if mode is None or AutoresetMode(mode) is not AutoresetMode.SAME_STEP:
            raise ValueError(
                f"{envs} has autoreset_mode {mode if mode is None else AutoresetMode(mode).name}, but "
                "Stable-Baselines3 expects environments that reset within the step: make them with "
                'autoreset_mode="SameStep", an argument of TriggersVectorEnv and of SyncVectorEnv '
                '(gym.make_vec(..., vectorization_mode="sync", vector_kwargs={"autoreset_mode": "SameStep"}))'
            )
        self.envs = envs
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)
        self.metadata = envs.metadata
        self.vector_infos: Mapping[str, Any] = {}
        """What the infos of the last step were made of, for wrappers that look at all environments at once."""
        self._actions: Any = None

    def reset(self) -> Any:
        """Start an episode in every environment, with the seeds and options set since the last time."""
        options = self._options[0]
        if any(other != options for other in self._options):
            raise ValueError(f"a vector environment takes the same options for all, got {self._options}")
        seeds = None if all(seed is None for seed in self._seeds) else list(self._seeds)
        observations, infos = self.envs.reset(seed=seeds, options=options or None)  # type: ignore[arg-type]
        self._reset_seeds()
        self._reset_options()
        self.reset_infos = listed_infos(infos, self.num_envs)
        return _copied(observations)

    def step_async(self, actions: NDArray[Any]) -> None:
        """Tell the environments what to do."""
        self._actions = np.asarray(actions)

    def step_wait(self) -> tuple[Any, NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Step the environments; those whose episode ended show the first observation of the next."""
        observations, rewards, terminated, truncated, infos = self.envs.step(self._actions)
        terminated = np.asarray(terminated, np.bool_)
        self.vector_infos = infos
        ended = terminated | truncated
        which = ended.nonzero()[0]
        if not len(which):
            told = listed_infos(infos, self.num_envs, _GOING_ON)
        else:
            told = self._with_last_steps(infos, which, terminated)
        # Copied: algorithms still look at an observation after the next step, and environments may reuse their arrays.
        return _copied(observations), np.asarray(rewards).astype(np.float32), ended, told

    def _with_last_steps(
        self, infos: Mapping[str, Any], which: NDArray[np.int64], terminated: NDArray[np.bool_]
    ) -> list[dict[str, Any]]:
        """The infos of a step in which episodes ended: of the last steps there, and the resets' in ``reset_infos``."""
        if "final_obs" not in infos:
            raise ValueError(
                f'an episode ended in SAME_STEP mode, but {self.envs} gave no infos["final_obs"]: Stable-Baselines3 '
                "needs what was seen last; let the environments give it"
            )
        going_on = {name: values for name, values in infos.items() if name not in _FINAL}
        told = listed_infos(going_on, self.num_envs, _GOING_ON)
        final = listed_infos(infos.get("final_info", {}), len(which), _GOING_ON, rows=which)
        for i, last, stopped in zip(which.tolist(), final, terminated[which].tolist(), strict=True):
            started, told[i] = told[i], last
            del started["TimeLimit.truncated"]
            self.reset_infos[i] = started
            last["TimeLimit.truncated"] = not stopped
            last["terminal_observation"] = infos["final_obs"][i]
        return told

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()

    def get_images(self) -> Sequence[NDArray[np.uint8] | None]:
        """A picture of each environment."""
        pictures = self.envs.render()
        return [None] * self.num_envs if pictures is None else list(pictures)  # type: ignore[arg-type]

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """An attribute of each environment, or of a wrapper around all of them."""
        which = list(self._get_indices(indices))
        if attr_name in _SPACES:
            return [getattr(self.envs, _SPACES[attr_name]) for _ in which]
        holder = self._holder(attr_name)
        if holder is not None:
            return [getattr(holder, attr_name) for _ in which]
        own = self._single_envs()
        if own is not None:
            return [own[i].get_wrapper_attr(attr_name) for i in which]
        values = self.envs.unwrapped.get_attr(attr_name)  # type: ignore[attr-defined]
        return [values[i] for i in which]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of some environments; of the vector environment itself, only for all of them."""
        which = list(self._get_indices(indices))
        holder, own = self._holder(attr_name), self._single_envs()
        if holder is None and own is not None:
            for i in which:
                own[i].set_wrapper_attr(attr_name, value)
        elif set(which) != set(range(self.num_envs)):
            raise ValueError(
                f"{attr_name} belongs to all {self.num_envs} environments of {self.envs} together: it cannot be set "
                f"for {which} alone; leave indices out"
            )
        elif holder is not None:
            setattr(holder, attr_name, value)
        else:
            self.envs.unwrapped.set_attr(attr_name, value)  # type: ignore[attr-defined]

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Call a method of each environment; one of the vector environment itself is to answer for all of them."""
        which = list(self._get_indices(indices))
        holder, own = self._holder(method_name), self._single_envs()
        if holder is None and own is not None:
            return [own[i].get_wrapper_attr(method_name)(*method_args, **method_kwargs) for i in which]
        if holder is not None:
            answers = getattr(holder, method_name)(*method_args, **method_kwargs)
        else:
            answers = self.envs.unwrapped.call(method_name, *method_args, **method_kwargs)  # type: ignore[attr-defined]
        if answers is None:
            return [None for _ in which]
        if not hasattr(answers, "__len__") or len(answers) != self.num_envs:
            raise ValueError(
                f"{method_name} of {self.envs} answered {answers!r}: expected {self.num_envs} answers, one for each "
                "environment"
            )
        return [answers[i] for i in which]

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Any = None) -> list[bool]:
        """Whether each environment is in such a wrapper, its own or one around all of them."""
        which = list(self._get_indices(indices))
        around, own = any(isinstance(layer, wrapper_class) for layer in self._layers()), self._single_envs()
        return [around or (own is not None and is_wrapped(own[i], wrapper_class)) for i in which]

    def _layers(self) -> Iterator[VectorEnv[Any, Any, Any]]:
        """The vector environment from the outermost wrapper to the last."""
        layer = self.envs
        while isinstance(layer, VectorWrapper):
            yield layer
            layer = layer.env
        yield layer

    def _single_envs(self) -> Sequence[gym.Env[Any, Any]] | None:
        """The environments themselves, where there are some in this process."""
        return getattr(self.envs.unwrapped, "envs", None)

    def _holder(self, name: str) -> VectorEnv[Any, Any, Any] | None:
        """Who has an attribute for all environments together; None where each has its own."""
        *wrappers, innermost = self._layers()
        for wrapper in wrappers:
            if name in vars(wrapper) or (hasattr(type(wrapper), name) and not hasattr(VectorWrapper, name)):
                return wrapper
        return None if hasattr(innermost, "get_attr") else innermost


def _has_vector_form(spec: EnvSpec, options: Mapping[str, Any]) -> bool:
    """Whether a registered environment has a vector form that takes these options, and an autoreset mode."""
    if spec.vector_entry_point is None or spec.additional_wrappers or options.get("render_mode") in ("human", "ansi"):
        return False
    entry = spec.vector_entry_point
    parameters = inspect.signature(entry if callable(entry) else load_env_creator(entry)).parameters
    needed = {"autoreset_mode", *spec.kwargs, *options, *(["max_episode_steps"] if spec.max_episode_steps else [])}
    return needed <= parameters.keys()


def _copied(observations: Any) -> Any:
    if isinstance(observations, dict):
        return {key: _copied(part) for key, part in observations.items()}
    if isinstance(observations, tuple):
        return tuple(map(_copied, observations))
    return observations.copy() if isinstance(observations, np.ndarray) else observations
