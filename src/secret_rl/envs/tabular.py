"""A finite, deterministic task as arrays, for agents that learn at compiled speed."""

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker
from numpy.typing import ArrayLike, NDArray

_TRANSPARENT = (OrderEnforcing, PassiveEnvChecker)  # wrappers that check what goes through them and change nothing


class TabularModel(NamedTuple):
    """What every action does in every state."""

    next_states: NDArray[np.int32]  # (states, actions)
    rewards: NDArray[np.float64]  # (states, actions), unshaped
    terminated: NDArray[np.bool_]  # (states, actions)
    start: int  # the state in which every episode begins
    max_steps: int  # an episode is truncated here
    states: Any  # (states,) info["state"] of each state
    observations: Any  # (states, ...) what is observed in each state

    def __repr__(self) -> str:
        states, actions = self.next_states.shape
        return f"TabularModel({states:,} states, {actions} actions, {self.max_steps:,} steps at most)"

    @classmethod
    def of(
        cls,
        next_states: ArrayLike,
        rewards: ArrayLike,
        terminated: ArrayLike,
        *,
        start: int,
        max_steps: int,
        states: Any = None,
        observations: Any = None,
    ) -> "TabularModel":
        """A model of checked arrays; by default, states are called 0, 1, ... and observed as such.

        >>> TabularModel.of([[0, 1], [1, 1]], [[0, 1], [0, 0]], [[0, 1], [1, 1]], start=0, max_steps=9).states
        array([0, 1])
        """
        following = np.asarray(next_states)
        if not np.issubdtype(following.dtype, np.integer):
            raise TypeError(f"next_states must be integers, got {following.dtype}")
        arrays = following, np.asarray(rewards, np.float64), np.asarray(terminated, np.bool_)
        about = (np.arange(len(following)) if given is None else given for given in (states, observations))
        model = cls(*arrays, int(start), int(max_steps), *about)
        check_task(model)
        return model._replace(next_states=following.astype(np.int32))


class TabularEnv(gym.Env[Any, Any]):
    """An environment that plays a ``TabularModel``: ``info["state"]`` names its state.

    >>> chain = TabularModel.of([[0, 1], [1, 1]], [[0, 1], [0, 0]], [[0, 1], [1, 1]], start=0, max_steps=9)
    >>> env = TabularEnv(chain, gym.spaces.Discrete(2))
    >>> env.reset()[0], env.step(1)[1:3]
    (np.int64(0), (1.0, True))
    """

    metadata = {"render_modes": []}  # noqa: RUF012  as Gymnasium has it

    def __init__(self, model: TabularModel, observation_space: gym.Space[Any]) -> None:
        self.model, self.observation_space = model, observation_space
        self.action_space = gym.spaces.Discrete(model.next_states.shape[1])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """The state in which every episode begins."""
        super().reset(seed=seed, options=options)
        self._state, self._steps = self.model.start, 0
        return self._seen()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """What the model says."""
        pair = self._state, int(action)
        self._state, self._steps = int(self.model.next_states[pair]), self._steps + 1
        terminated = bool(self.model.terminated[pair])
        truncated = not terminated and self._steps == self.model.max_steps
        seen, info = self._seen()
        return seen, float(self.model.rewards[pair]), terminated, truncated, info

    def _seen(self) -> tuple[Any, dict[str, Any]]:
        return self.model.observations[self._state], {"state": self.model.states[self._state]}

    def tabular(self) -> TabularModel:
        """The model itself."""
        return self.model


class TabularShaping(NamedTuple):
    """A potential that shapes the rewards of a ``TabularModel``.

    The shaped reward of a step from s to s' is ``reward + (discount * Phi' - Phi)``, where the potential after the step
    is ``Phi' = scale * (potential[s'] + min(cap, sum of credit so far))``, and the step itself adds
    ``credit[pairs[s, action]]`` to the sum. With ``once``, a row of credit adds something only once an episode. Phi' is
    0 where the step terminates the episode, and where a time limit ends it unless ``keep_on_truncation``.
    """

    discount: float  # must be the agent's
    potential: NDArray[np.float64]  # (states,)
    pairs: NDArray[np.int32]  # (states, actions) row of credit
    credit: NDArray[np.float64]  # (rows,)
    cap: float
    scale: float
    once: bool
    keep_on_truncation: bool

    @classmethod
    def of(
        cls,
        model: TabularModel,
        discount: float,
        *,
        potential: ArrayLike | None = None,
        pairs: ArrayLike | None = None,
        credit: ArrayLike | None = None,
        cap: float = np.inf,
        scale: float = 1.0,
        once: bool = False,
        keep_on_truncation: bool = True,
    ) -> "TabularShaping":
        """A shaping of checked arrays; what is not given is 0 everywhere.

        A wrapper with a method ``tabular_shaping(model)`` gives the arguments:
        ``TabularShaping.of(model, **wrapper.tabular_shaping(model))``.
        """
        shape = model.next_states.shape
        phi = np.asarray(np.zeros(shape[0]) if potential is None else potential, np.float64)
        rows = np.asarray(np.zeros(shape) if pairs is None else pairs, np.int32)
        added = np.asarray(np.zeros(1) if credit is None else credit, np.float64)
        shaping = cls(discount, phi, rows, added, float(cap), float(scale), once, keep_on_truncation)
        check_task(model, shaping)
        return shaping


def check_task(model: TabularModel, shaping: TabularShaping | None = None) -> None:
    """Raise if the arrays do not fit together: compiled code would read beyond them."""
    shape = np.shape(model.next_states)
    if len(shape) != 2 or 0 in shape:
        raise ValueError(f"next_states must have shape (states, actions), got shape {shape}")
    if model.max_steps < 1:
        raise ValueError(f"max_steps must be at least 1, got {model.max_steps}")
    shapes: dict[str, Any] = {"rewards": (model.rewards, shape), "terminated": (model.terminated, shape)}
    indices: dict[str, Any] = {"start": (model.start, shape[0]), "next_states": (model.next_states, shape[0])}
    numbers: dict[str, Any] = {"rewards": model.rewards}
    if shaping is not None:
        if np.ndim(shaping.credit) != 1 or not len(shaping.credit):
            raise ValueError(f"credit must have shape (rows,), got shape {np.shape(shaping.credit)}")
        if not shaping.cap >= 0:  # NaN, too
            raise ValueError(f"cap must be 0 or more (inf for none), got {shaping.cap}")
        shapes |= {"potential": (shaping.potential, shape[:1]), "pairs": (shaping.pairs, shape)}
        indices["pairs"] = shaping.pairs, len(shaping.credit)
        numbers |= {"potential": shaping.potential, "credit": shaping.credit, "scale": shaping.scale}
    for name, (array, expected) in shapes.items():
        if np.shape(array) != expected:
            raise ValueError(f"{name} must have shape {expected}, to fit next_states, got shape {np.shape(array)}")
    for name, (values, count) in indices.items():
        low, high = np.min(values), np.max(values)
        if low < 0 or high >= count:
            raise ValueError(f"{name} must lie from 0 to {count - 1}, got {low if low < 0 else high}")
    for name, values in numbers.items():
        if not np.isfinite(values).all():
            where = tuple(np.argwhere(~np.isfinite(values))[0].tolist())
            raise ValueError(f"{name} must be finite, got {np.asarray(values)[where]} at {where}")


def tabular_of(env: gym.Env[Any, Any]) -> tuple[TabularModel, TabularShaping | None] | None:
    """The environment as arrays and its shaping, if any; None where it, or a wrapper around it, has no such form."""
    layer: Any = env
    shapers: list[Any] = []
    while isinstance(layer, gym.Wrapper):
        if hasattr(type(layer), "tabular_shaping"):
            shapers.append(layer)
        elif not isinstance(layer, _TRANSPARENT):  # may change anything: a time limit, rewards, what actions mean
            return None
        layer = layer.env
    if not hasattr(layer, "tabular") or len(shapers) > 1:
        return None
    try:
        model: TabularModel = layer.tabular()
        return model, TabularShaping.of(model, **shapers[0].tabular_shaping(model)) if shapers else None
    except (AttributeError, OverflowError):  # a potential without arrays; more states than fit in memory
        return None


def best_return(model: TabularModel, discount: float) -> float:
    """The largest unshaped, discounted return that an episode can have within the time limit."""
    best = np.zeros(len(model.next_states))  # with no step left
    for _ in range(model.max_steps):
        following = np.where(model.terminated, 0.0, best[model.next_states])
        further = (model.rewards + discount * following).max(1)
        if np.array_equal(further, best):
            break
        best = further
    return float(best[model.start])
