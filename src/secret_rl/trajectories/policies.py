"""What may be given as a policy, behind one small face."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import gymnasium as gym
import numpy as np


class Policy(Protocol):
    """Receives the start of each episode, with the seed for everything random that it does; then chooses actions."""

    name: str

    def begin(self, seed: int) -> None:
        """An episode starts; the seed is the policy's own, not the environment's."""

    def act(self, observation: Any) -> Any:
        """The action to take."""


def as_policy(policy: Any, env: Any) -> Policy:
    """``"random"``, a Stable-Baselines3 model, a callable of ``(observation)`` or ``(observation, rng)``, or its class.

    A ``begin(seed)`` method is called at the start of each episode, with a seed of the policy's own. A class (or
    ``functools.partial`` of one) stands for ``policy(env)``: a policy that looks into its environment is so made
    wherever that is, in this process or in a worker.
    """
    if _class_of(policy) is not None:
        policy = policy(env)
    if isinstance(policy, str):
        if policy != "random":
            raise ValueError(f'policy must be "random", a callable or a Stable-Baselines3 model, got {policy!r}')
        return _RandomPolicy(env.action_space)
    if hasattr(policy, "predict"):
        return _Predictor(policy)
    if callable(policy):
        return _Callable(policy)
    raise TypeError(
        f'policy must be "random", a callable or an object with predict(observation), got {type(policy).__name__}'
    )


def policy_name(policy: Any) -> str:
    """What ``meta`` says of a policy; the arguments of a ``functools.partial`` are part of it."""
    if isinstance(policy, str):
        return policy
    made = _class_of(policy)
    if made is None:
        return type(policy).__name__
    options = policy.keywords if isinstance(policy, partial) else {}
    return made.__name__ + (f"({', '.join(f'{k}={v!r}' for k, v in options.items())})" if options else "")


def _class_of(policy: Any) -> type | None:
    """The class that a policy stands for, to be made with an environment; None if it is made already."""
    made = policy.func if isinstance(policy, partial) else policy
    return made if isinstance(made, type) else None


class _RandomPolicy:
    name = "random"

    def __init__(self, action_space: gym.Space[Any]) -> None:
        self._space = action_space

    def begin(self, seed: int) -> None:
        self._space.seed(seed)

    def act(self, observation: Any) -> Any:  # noqa: ARG002  a random policy looks at nothing
        return self._space.sample()


class _Callable:
    def __init__(self, function: Callable[..., Any]) -> None:
        self.name = getattr(function, "__qualname__", type(function).__name__)
        self._function = function
        self._takes_rng = _positional_parameters(function) >= 2
        self._rng = np.random.default_rng(0)

    def begin(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        if hasattr(self._function, "begin"):
            self._function.begin(seed)

    def act(self, observation: Any) -> Any:
        return self._function(observation, self._rng) if self._takes_rng else self._function(observation)


class _Predictor:
    """A Stable-Baselines3 model, recurrent ones included.

    Such a model draws its random numbers from the global generators: they are seeded at each episode, so that
    an episode does not depend on those before it.
    """

    def __init__(self, model: Any) -> None:
        self.name = type(model).__name__
        self._model = model
        self._memory: Any = None
        self._starting = True

    def begin(self, seed: int) -> None:
        if hasattr(self._model, "set_random_seed"):
            self._model.set_random_seed(seed % 2**32)
        self._memory, self._starting = None, True

    def act(self, observation: Any) -> Any:
        action, self._memory = self._model.predict(
            observation, state=self._memory, episode_start=np.array([self._starting]), deterministic=False
        )
        self._starting = False
        return action


def _positional_parameters(function: Callable[..., Any]) -> int:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 1
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in kinds and p.default is inspect.Parameter.empty for p in parameters)
