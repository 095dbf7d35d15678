"""Environments for Stable-Baselines3: Gymnasium's vector environments as its ``VecEnv``, and what ``train`` needs."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import compress
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from numpy.typing import NDArray
from stable_baselines3.common.env_util import is_wrapped
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecMonitor, VecNormalize

from secret_rl.checks import check_integer
from secret_rl.env_ids import spec_of
from secret_rl.sb3.shaping import layers
from secret_rl.seeding import policy_seed
from secret_rl.shaping.core import check_same_discount
from secret_rl.shaping.wrappers import TrueReturn
from secret_rl.trajectories.nested import map_arrays
from secret_rl.trajectories.spaces import check_numbers

EnvLike = str | Callable[[], gym.Env[Any, Any]] | gym.Env[Any, Any] | VecEnv | VectorEnv[Any, Any, Any]
"""An id, a function that makes one environment, or environments."""
Shaping = Callable[[VecEnv, float], VecEnv]
"""Shapes environments for a discount, as ``shape_with(potential)`` and ``bonus_with(credit)`` do."""

_AS_PYTHON = "?lqdO"  # what Gymnasium stores bool, int, float and objects as; other numbers stay NumPy's
_FINAL = frozenset(["final_obs", "_final_obs", "final_info", "_final_info"])  # of the episodes that have just ended
_SPACES = {"observation_space": "single_observation_space", "action_space": "single_action_space"}


def sb3_envs(env: EnvLike, n: int, *, seed: int | None = None, env_options: Mapping[str, Any] | None = None) -> VecEnv:
    """``n`` environments for Stable-Baselines3, by the fastest path there is.

    An environment with a vector form of its own that can reset within the step goes through ``GymnasiumVecEnv``, any
    other through ``DummyVecEnv``. Both give the same. There is no ``Monitor`` inside.

    >>> import numpy as np
    >>> envs = sb3_envs("secret_rl/Triggers-v0", 256, seed=0, env_options={"window": None})
    >>> observations, rewards, ended, infos = (envs.reset(), envs.step(np.zeros(256)))[1]
    >>> observations.shape, rewards.dtype, infos[0]["TimeLimit.truncated"]
    ((256, 8, 8, 3), dtype('float32'), False)

    Args:
        env: An id, or a function that makes one environment. Environments that are made already stay as many as they
            are.
        n: How many.
        seed: From the next reset on, environment ``i`` gets ``seed + i``; the action space gets a stream of its own.
        env_options: Options of an environment given by id.
    """
    options = dict(env_options or {})
    n = check_integer("n", n, 1)
    if options and not isinstance(env, str):
        raise ValueError(f"env_options {options} need an environment id, got {type(env).__name__}")
    spec = spec_of(env) if isinstance(env, str) else None
    made: VecEnv
    if isinstance(env, VecEnv):
        made = env
    elif isinstance(env, VectorEnv):
        made = GymnasiumVecEnv(env)
    elif isinstance(env, gym.Env):
        made = DummyVecEnv([lambda: _of_numbers(env)])
    elif isinstance(env, str) and spec is not None and _has_vector_form(spec, options):
        mode = {"vectorization_mode": "vector_entry_point", "autoreset_mode": AutoresetMode.SAME_STEP}
        made = GymnasiumVecEnv(gym.make_vec(env, n, **mode, **options))  # type: ignore[arg-type]
    elif isinstance(env, str) or callable(env):
        make = partial(gym.make, env, **options) if isinstance(env, str) else env
        made = DummyVecEnv([lambda: _of_numbers(make())] * n)
    else:
        raise TypeError(f"env must be an id, a function that makes an environment, or environments, got {env!r}")
    if seed is not None:
        made.seed(seed)
        made.action_space.seed(policy_seed(seed))
    return made


def _of_numbers(env: Any) -> gym.Env[Any, Any]:
    """The environment; an error where it observes text, which Stable-Baselines3 cannot store."""
    check_numbers(env.observation_space)
    return env  # type: ignore[no-any-return]


class GymnasiumVecEnv(VecEnv):
    """Any vector environment of Gymnasium, as ``DummyVecEnv`` over its single environments would be.

    It must reset within the step, as Stable-Baselines3 expects: ``autoreset_mode`` SAME_STEP.

    >>> import gymnasium as gym, secret_rl
    >>> envs = gym.make_vec(
    ...     "secret_rl/Triggers-v0", 64, vectorization_mode="vector_entry_point", autoreset_mode="SameStep"
    ... )
    >>> GymnasiumVecEnv(envs).reset().shape
    (64, 3, 3, 3)

    Attributes are those of each environment where the vector environment holds some, as ``SyncVectorEnv`` does; else
    those of the vector environment stand for all of them.
    """

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        if not isinstance(envs, VectorEnv):
            raise TypeError(f"expected a gymnasium.vector.VectorEnv, got {type(envs).__name__}")
        mode = envs.metadata.get("autoreset_mode")
        if mode is None or AutoresetMode(mode) is not AutoresetMode.SAME_STEP:
            found = f"{envs} has autoreset_mode {mode and AutoresetMode(mode).name}"
            raise ValueError(f'{found}, but Stable-Baselines3 needs autoreset_mode="SameStep": gym.make_vec takes it')
        self.envs = envs
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)
        self.metadata = envs.metadata
        self.vector_infos: Mapping[str, Any] = {}
        """What the infos of the last step were made of, for wrappers that look at all environments at once."""
        self._actions: Any = None
        self._returns = np.zeros(envs.num_envs)  # unshaped, of the episodes under way, where there is a shaping inside

    def reset(self) -> Any:
        """Start an episode in every environment, with the seeds and options set since the last time."""
        options = self._options[0]
        if any(other != options for other in self._options):
            raise ValueError(f"a vector environment takes the same options for all, got {self._options}")
        seeds = None if all(seed is None for seed in self._seeds) else list(self._seeds)
        observations, infos = self.envs.reset(seed=seeds, options=options or None)  # type: ignore[arg-type]
        self._reset_seeds()
        self._reset_options()
        self._returns[:] = 0.0
        self.reset_infos = listed_infos(infos, self.num_envs)
        return _copied(observations)

    def step_async(self, actions: NDArray[Any]) -> None:
        """Set the actions of the next step."""
        self._actions = np.asarray(actions)

    def step_wait(self) -> tuple[Any, NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Step the environments; those whose episode ended show the first observation of the next."""
        observations, rewards, terminated, truncated, infos = self.envs.step(self._actions)
        ended = np.asarray(terminated, np.bool_) | truncated
        self.vector_infos = infos
        listed = listed_infos({name: part for name, part in infos.items() if name not in _FINAL}, self.num_envs)
        ends = np.flatnonzero(ended)
        final = listed_infos(_of_rows(infos.get("final_info", {}), ends), len(ends)) if len(ends) else []
        for i, last in zip(ends.tolist(), final, strict=True):  # what is present is already the next episode's
            self.reset_infos[i], listed[i] = listed[i], last
            last["terminal_observation"] = infos["final_obs"][i]
        for info, cut_short in zip(listed, (ended & ~np.asarray(terminated, np.bool_)).tolist(), strict=True):
            info["TimeLimit.truncated"] = cut_short
        if "shaping_reward" in listed[0]:
            self._returns += [info["env_reward"] for info in listed]
            for i in ends.tolist():
                listed[i] = TrueReturn(listed[i], self._returns[i])
            self._returns[ends] = 0.0
        # Copied: algorithms still look at an observation after the next step, and environments may reuse their arrays.
        return _copied(observations), np.asarray(rewards).astype(np.float32), ended, listed

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()

    def get_images(self) -> Sequence[NDArray[np.uint8] | None]:
        """A picture of each environment."""
        pictures = self.envs.render()
        return [None] * self.num_envs if pictures is None else list(pictures)  # type: ignore[arg-type]

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """An attribute of each environment; a method of single environments is called."""
        holder = self._holder(attr_name)
        if attr_name in _SPACES or not hasattr(holder, "call"):
            values: Any = [getattr(holder, _SPACES.get(attr_name, attr_name))] * self.num_envs
        else:
            values = holder.call(attr_name)
        return [values[i] for i in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of all environments."""
        if indices is not None:
            raise ValueError(f"{attr_name} can be set for all {self.num_envs} environments only: leave indices out")
        holder = self._holder(attr_name)
        if hasattr(holder, "set_attr"):
            holder.set_attr(attr_name, value)
        else:
            setattr(holder, attr_name, value)

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Call a method of each environment; one of the vector environment itself must answer for all of them."""
        holder = self._holder(method_name)
        call = partial(holder.call, method_name) if hasattr(holder, "call") else getattr(holder, method_name)
        answers = call(*method_args, **method_kwargs)
        return [answers[i] for i in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Any = None) -> list[bool]:
        """Whether each environment is in such a wrapper."""
        single = getattr(self.envs.unwrapped, "envs", None)  # None: in other processes, or there are none
        return [single is not None and is_wrapped(single[i], wrapper_class) for i in self._get_indices(indices)]

    def _holder(self, name: str) -> Any:
        """The outermost wrapper that has an attribute of its own, else the vector environment itself."""
        layer = self.envs
        while isinstance(layer, VectorWrapper) and (
            hasattr(VectorWrapper, name) or not (name in vars(layer) or hasattr(type(layer), name))
        ):
            layer = layer.env
        return layer


def _has_vector_form(spec: EnvSpec, options: Mapping[str, Any]) -> bool:
    """Whether a registered environment has a vector form that takes these options, and an autoreset mode."""
    if spec.vector_entry_point is None or spec.additional_wrappers or options.get("render_mode") in ("human", "ansi"):
        return False
    entry = spec.vector_entry_point
    parameters = inspect.signature(entry if callable(entry) else load_env_creator(entry)).parameters
    needed = {"autoreset_mode", *spec.kwargs, *options, *(["max_episode_steps"] if spec.max_episode_steps else [])}
    return needed <= parameters.keys()


def _of_rows(infos: Mapping[str, Any], rows: NDArray[np.int64]) -> dict[str, Any]:
    return {name: _of_rows(part, rows) if isinstance(part, Mapping) else part[rows] for name, part in infos.items()}


def _copied(observations: Any) -> Any:
    return map_arrays(lambda part: part.copy() if isinstance(part, np.ndarray) else part, observations)


def learning_envs(envs: VecEnv, shaping: Shaping | Sequence[Shaping] | None, gamma: float) -> VecEnv:
    """The environments to learn in: a monitor inside, and the shapings around it."""
    shapings = [] if shaping is None else list(shaping) if isinstance(shaping, Sequence) else [shaping]
    for layer in layers(envs):
        if not isinstance(layer, VecNormalize):
            continue
        if shapings:
            outside = "shaping=lambda envs, discount: VecNormalize(shape_with(potential)(envs, discount))"
            raise ValueError(f"VecNormalize changes what the potential sees: put it outside of the shaping, {outside}")
        if layer.norm_reward and not _is_monitored(layer.venv):
            raise ValueError("VecNormalize hides the rewards of the environments: put a VecMonitor inside it")
    check_discount(envs, gamma)
    if not _is_monitored(envs):
        envs = VecMonitor(envs)
    for shape in shapings:
        envs = shape(envs, gamma)
        if not isinstance(envs, VecEnv):
            expected = "shaping must take (environments, discount) and return a VecEnv"
            raise TypeError(f"{expected}, got {type(envs).__name__}: use shape_with(potential)")
        check_discount(envs, gamma)
    return envs


def is_shaped(envs: VecEnv) -> bool:
    """Whether something is added to the rewards of environments."""
    return envs.has_attr("shaping_discount")


def check_discount(envs: VecEnv, gamma: float | None) -> None:
    """An error where environments are shaped for another discount; of one step, also for agents that look further."""
    for discount in envs.get_attr("shaping_discount") if is_shaped(envs) else ():
        check_same_discount(discount, gamma)


def _is_monitored(envs: VecEnv) -> bool:
    return any(isinstance(layer, VecMonitor) for layer in layers(envs)) or any(envs.env_is_wrapped(Monitor))


def listed_infos(infos: Mapping[str, Any], n: int) -> list[dict[str, Any]]:
    """The infos of ``n`` environments as a list, of Gymnasium's layout with masks ``_entry`` where some have none.

    >>> infos = {"state": np.array([3, 5]), "luck": np.array([0.5, 0.0]), "_luck": np.array([True, False])}
    >>> listed_infos(infos, 2)
    [{'state': 3, 'luck': 0.5}, {'state': 5}]
    """
    listed: list[dict[str, Any]] = [{} for _ in range(n)]
    for name, values in infos.items():
        mask = infos.get("_" + name)
        if mask is None and name[:1] == "_" and name[1:] in infos:
            continue  # the mask of another entry
        column = values
        if isinstance(values, Mapping):
            column = listed_infos(values, n)
        elif isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.char in _AS_PYTHON:
            column = values.tolist()
        pairs: Iterable[Any] = zip(listed, column, strict=True)
        for info, value in pairs if mask is None or mask.all() else compress(pairs, mask.tolist()):
            info[name] = value
    return listed
