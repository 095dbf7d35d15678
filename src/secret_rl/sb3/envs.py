"""Environments for Stable-Baselines3: Gymnasium's vector environments as its ``VecEnv``, and what ``train`` needs."""

import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecEnvWrapper, VecMonitor, VecNormalize

from secret_rl.seeding import policy_seed
from secret_rl.trajectories.nested import map_arrays

EnvLike = str | Callable[[], gym.Env[Any, Any]] | gym.Env[Any, Any] | VecEnv | VectorEnv[Any, Any, Any]
"""An id, a function that makes one environment, or environments."""
Shaping = Callable[[VecEnv, float], VecEnv]
"""Shapes environments for a discount, as ``shape_with(potential)`` and ``bonus_with(credit)`` do."""

_AS_PYTHON = "?lqdO"  # what Gymnasium stores bool, int, float and objects as; other numbers stay NumPy's
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
    """``n`` environments for Stable-Baselines3, the fastest way there is.

    An environment that is registered with a vector form of its own, which can reset within the step, goes through
    ``GymnasiumVecEnv``; any other through ``DummyVecEnv``. Both give the same. There is no ``Monitor`` inside.

    >>> import numpy as np
    >>> envs = sb3_envs("secret_rl/Triggers-v0", 256, seed=0, env_options={"window": None})
    >>> observations, rewards, ended, infos = (envs.reset(), envs.step(np.zeros(256)))[1]
    >>> observations.shape, rewards.dtype, infos[0]["TimeLimit.truncated"]
    ((256, 8, 8, 3), dtype('float32'), False)

    Args:
        env: An id, its spec, or a function that makes one environment.
        n: How many.
        seed: From the next reset on, environment ``i`` gets ``seed + i``; the action space gets a stream of its own.
        env_options: Options of an environment given by id.
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
    ``SyncVectorEnv`` does; else those of the vector environment stand for all of them.
    """

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        if not isinstance(envs, VectorEnv):
            raise TypeError(f"expected a gymnasium.vector.VectorEnv, got {type(envs).__name__}")
        mode = envs.metadata.get("autoreset_mode")
        if mode is None or AutoresetMode(mode) is not AutoresetMode.SAME_STEP:
            raise ValueError(
                f"{envs} has autoreset_mode {mode and AutoresetMode(mode).name}, but Stable-Baselines3 expects "
                'environments that reset within the step: make them with autoreset_mode="SameStep" '
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
        """Set the actions of the next step."""
        self._actions = np.asarray(actions)

    def step_wait(self) -> tuple[Any, NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Step the environments; those whose episode ended show the first observation of the next."""
        observations, rewards, terminated, truncated, infos = self.envs.step(self._actions)
        ended = np.asarray(terminated, np.bool_) | truncated
        self.vector_infos = infos
        present = {name: values for name, values in infos.items() if name not in _FINAL}
        listed = listed_infos(present, self.num_envs, _GOING_ON)
        ends = np.flatnonzero(ended)
        if len(ends) and "final_obs" not in infos:
            raise ValueError(
                f'an episode ended in SAME_STEP mode, but {self.envs} gave no infos["final_obs"]: Stable-Baselines3 '
                "needs what was seen last; let the environments give it"
            )
        final = listed_infos(infos.get("final_info", {}), len(ends), rows=ends) if len(ends) else []
        for i, last in zip(ends.tolist(), final, strict=True):  # what is present there is already the next episode's
            self.reset_infos[i], listed[i] = listed[i], last
            del self.reset_infos[i]["TimeLimit.truncated"]
            last["TimeLimit.truncated"] = not terminated[i]
            last["terminal_observation"] = infos["final_obs"][i]
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
        which = self._get_indices(indices)
        if attr_name in _SPACES or self._is_shared(attr_name):
            return [getattr(self.envs, _SPACES.get(attr_name, attr_name)) for _ in which]
        values = self.envs.unwrapped.get_attr(attr_name)  # type: ignore[attr-defined]
        return [values[i] for i in which]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of all environments."""
        if set(self._get_indices(indices)) != set(range(self.num_envs)):
            raise ValueError(f"{attr_name} can be set for all {self.num_envs} environments only: leave indices out")
        if self._is_shared(attr_name):
            holders = [layer for layer in self._layers() if hasattr(type(layer), attr_name) or attr_name in vars(layer)]
            setattr(holders[0] if holders else self.envs.unwrapped, attr_name, value)
        else:
            self.envs.unwrapped.set_attr(attr_name, value)  # type: ignore[attr-defined]

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Call a method of each environment; one of the vector environment itself must answer for all of them."""
        shared = self._is_shared(method_name)
        call = getattr(self.envs, method_name) if shared else partial(self.envs.unwrapped.call, method_name)  # type: ignore[attr-defined]
        answers = call(*method_args, **method_kwargs)
        if answers is None:
            answers = [None] * self.num_envs
        if not hasattr(answers, "__len__") or len(answers) != self.num_envs:
            expected = f"expected {self.num_envs} answers, one for each environment"
            raise ValueError(f"{method_name} of {self.envs} answered {answers!r}: {expected}")
        return [answers[i] for i in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Any = None) -> list[bool]:
        """Whether each environment is in such a wrapper, its own or one around all of them."""
        around = any(isinstance(layer, wrapper_class) for layer in self._layers())
        single = getattr(self.envs.unwrapped, "envs", None)
        return [
            around or (single is not None and is_wrapped(single[i], wrapper_class)) for i in self._get_indices(indices)
        ]

    def _layers(self) -> Iterator[VectorEnv[Any, Any, Any]]:
        """The vector environment from the outermost wrapper to the last."""
        layer = self.envs
        while isinstance(layer, VectorWrapper):
            yield layer
            layer = layer.env
        yield layer

    def _is_shared(self, name: str) -> bool:
        """Whether an attribute belongs to the vector environment, or a wrapper around it, not to each environment."""
        *wrappers, innermost = self._layers()
        own = (name in vars(w) or (hasattr(type(w), name) and not hasattr(VectorWrapper, name)) for w in wrappers)
        return any(own) or not hasattr(innermost, "get_attr")


def _has_vector_form(spec: EnvSpec, options: Mapping[str, Any]) -> bool:
    """Whether a registered environment has a vector form that takes these options, and an autoreset mode."""
    if spec.vector_entry_point is None or spec.additional_wrappers or options.get("render_mode") in ("human", "ansi"):
        return False
    entry = spec.vector_entry_point
    parameters = inspect.signature(entry if callable(entry) else load_env_creator(entry)).parameters
    needed = {"autoreset_mode", *spec.kwargs, *options, *(["max_episode_steps"] if spec.max_episode_steps else [])}
    return needed <= parameters.keys()


def _copied(observations: Any) -> Any:
    return map_arrays(lambda part: part.copy() if isinstance(part, np.ndarray) else part, observations)


class _UnshapedMonitor(VecMonitor):
    """``VecMonitor`` around environments that are shaped already: the returns it logs are unshaped all the same."""

    def reset(self) -> Any:
        self._unshaped = np.zeros(self.num_envs, np.float32)
        return super().reset()

    def step_wait(self) -> Any:
        observations, rewards, ended, infos = super().step_wait()
        unshaped = [info.get("env_reward", reward) for info, reward in zip(infos, rewards.tolist(), strict=True)]
        self._unshaped += np.array(unshaped, np.float32)
        for i in np.flatnonzero(ended).tolist():
            infos[i]["episode"]["r"], self._unshaped[i] = self._unshaped[i], 0
        return observations, rewards, ended, infos


def make_envs(env: EnvLike, n: int, env_options: Mapping[str, Any] | None) -> VecEnv:
    """Environments for Stable-Baselines3: ``n`` of an id or a function, or those that were given."""
    if env_options and not isinstance(env, str):
        raise ValueError(f"env_options {dict(env_options)} need an environment id, got {type(env).__name__}")
    if isinstance(env, VecEnv):
        return env
    if isinstance(env, VectorEnv):
        return GymnasiumVecEnv(env)
    if isinstance(env, gym.Env):
        return DummyVecEnv([lambda: env])
    return sb3_envs(env, n, env_options=env_options)


def learning_envs(
    env: EnvLike,
    n: int,
    env_options: Mapping[str, Any] | None,
    shaping: Shaping | Sequence[Shaping] | None,
    gamma: float,
) -> VecEnv:
    """The environments to learn in: a monitor inside, which logs unshaped returns, and the shapings around it."""
    shapings = [] if shaping is None else list(shaping) if isinstance(shaping, Sequence) else [shaping]
    envs = make_envs(env, n, env_options)
    for layer in layers(envs):
        if isinstance(layer, VecNormalize):
            _check_normaliser(layer, to_be_shaped=bool(shapings))
    if not _is_monitored(envs):
        envs = _UnshapedMonitor(envs) if envs.has_attr("shaping_discount") else VecMonitor(envs)
    for shape in shapings:
        inside, envs = envs, shape(envs, gamma)
        if not isinstance(envs, VecEnv):
            expected = "shaping must take (environments, discount) and return a VecEnv"
            raise TypeError(f"{expected}, got {type(envs).__name__}: use shape_with(potential)")
        if envs.num_envs != inside.num_envs:
            raise ValueError(f"shaping made {envs.num_envs} environments of {inside.num_envs}")
    for layer in layers(envs):  # the discount of one step, also for agents that learn from several
        found = [vars(layer).get("shaping_discount", gamma)]
        if not isinstance(layer, VecEnvWrapper) and layer.has_attr("shaping_discount"):
            found = layer.get_attr("shaping_discount")
        for discount in found:
            if discount not in (gamma, None):
                raise ValueError(
                    f"the environments are shaped with discount {discount}, but the agent learns with {gamma}: "
                    "shaping with another discount changes what is optimal; use the same for both"
                )
    return envs


def _check_normaliser(normaliser: VecNormalize, *, to_be_shaped: bool) -> None:
    if to_be_shaped and normaliser.norm_reward:
        raise ValueError(
            "the rewards are normalised (VecNormalize) before they would be shaped: the potential is measured in "
            "rewards of the environment. Put VecNormalize outside: "
            "shaping=lambda envs, discount: VecNormalize(shape_with(potential)(envs, discount))"
        )
    if to_be_shaped:
        warnings.warn(
            "the potential sees observations that VecNormalize changes as it learns: put VecNormalize outside the "
            "shaping unless the potential only reads infos",
            stacklevel=4,
        )
    if normaliser.norm_reward and not _is_monitored(normaliser.venv):
        raise ValueError("VecNormalize hides the rewards of the environments: put a VecMonitor inside it")


def _is_monitored(envs: VecEnv) -> bool:
    return any(isinstance(layer, VecMonitor) for layer in layers(envs)) or any(envs.env_is_wrapped(Monitor))


def layers(envs: VecEnv) -> Iterator[VecEnv]:
    """A vector environment from the outermost wrapper inwards."""
    yield envs
    while isinstance(envs, VecEnvWrapper):
        envs = envs.venv
        yield envs


def listed_infos(
    infos: Mapping[str, Any], n: int, common: Mapping[str, Any] | None = None, *, rows: NDArray[np.int64] | None = None
) -> list[dict[str, Any]]:
    """The infos of ``n`` environments, in the layout of Gymnasium, as a list.

    Args:
        infos: Of a vector environment: an array of each entry, and a mask ``_entry`` where some have none.
        n: How many environments are listed.
        common: Entries that all of them get.
        rows: (n,) which environments; None: all there are.

    >>> infos = {"state": np.array([3, 5]), "luck": np.array([0.5, 0.0]), "_luck": np.array([True, False])}
    >>> listed_infos(infos, 2), listed_infos(infos, 1, {"new": True}, rows=np.array([1]))
    ([{'state': 3, 'luck': 0.5}, {'state': 5}], [{'state': 5, 'new': True}])
    """
    listed: list[dict[str, Any]] = [{} for _ in range(n)]
    for name, values in infos.items():
        mask = infos.get("_" + name)
        if mask is None and name[:1] == "_" and name[1:] in infos:
            continue  # the mask of another entry
        if isinstance(values, Mapping):
            column: Any = listed_infos(values, n, rows=rows)
        else:
            column = values if rows is None else values[rows]
            if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.char in _AS_PYTHON:
                column = column.tolist()
        pairs: Iterable[Any] = zip(listed, column, strict=True)
        if mask is not None and not mask.all():
            pairs = compress(pairs, (mask if rows is None else mask[rows]).tolist())
        for info, value in pairs:
            info[name] = value
    for name, value in (common or {}).items():
        for info in listed:
            info[name] = value
    return listed
