"""A finite, deterministic task as arrays, for agents that learn at compiled speed."""

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker
from numpy.typing import ArrayLike, NDArray

# Wrappers that check what goes through them and change nothing.
_TRANSPARENT = (OrderEnforcing, PassiveEnvChecker)


class TabularModel(NamedTuple):
    """What every action does in every state, and the potential that shapes the rewards, if any.

    The shaped reward of a step from s to s' is ``reward + (discount * Phi' - Phi)``, where the potential after the
    step at time t (0, 1, ...) is ``Phi' = scale * (potential[s'] + min(cap, sum of credit so far))``, and the step
    itself adds ``credit[pairs[s, action], t]`` to the sum; with ``once``, a row of credit that has added something
    adds nothing more in the same episode. Phi' is 0 where the step terminates the episode, and where a
    time limit ends it unless ``keep_on_truncation``.
    """

    next_states: NDArray[np.int32]  # (states, actions)
    rewards: NDArray[np.float64]  # (states, actions), unshaped
    terminated: NDArray[np.bool_]  # (states, actions)
    start: int  # the state in which every episode begins
    max_steps: int  # an episode is truncated here
    states: Any  # (states,) what info["state"] says in each state
    observations: Any  # (states, ...) what is observed in each state
    potential: NDArray[np.float64]  # (states,)
    pairs: NDArray[np.int32]  # (states, actions) row of credit
    credit: NDArray[np.float64]  # (rows, max_steps)
    cap: float
    discount: float | None  # of the shaping; None: not shaped
    keep_on_truncation: bool
    scale: float = 1.0
    once: bool = False

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
        """A model without shaping; states are called 0, 1, ... and observed as such unless told otherwise.

        >>> TabularModel.of([[0, 1], [1, 1]], [[0, 1], [0, 0]], [[False, True], [True, True]], start=0, max_steps=9).cap
        inf
        """
        following = np.asarray(next_states)
        if following.ndim != 2 or 0 in following.shape:
            raise ValueError(f"next_states must have shape (states, actions), got shape {following.shape}")
        if max_steps < 1:
            raise ValueError(f"max_steps must be at least 1, got {max_steps}")
        numbers = np.arange(len(following))
        model = cls(
            next_states=_whole("next_states", following),
            rewards=np.asarray(rewards, np.float64),
            terminated=np.asarray(terminated, np.bool_),
            start=int(start),
            max_steps=int(max_steps),
            states=numbers if states is None else states,
            observations=numbers if observations is None else observations,
            potential=np.zeros(len(following)),
            pairs=np.zeros(following.shape, np.int32),
            credit=np.broadcast_to(np.zeros(1), (1, int(max_steps))),  # takes no memory, however long the episodes
            cap=np.inf,
            discount=None,
            keep_on_truncation=True,
        )
        check(model)
        return model


def check(model: TabularModel) -> None:
    """Raise if the arrays do not fit together: compiled code would read beyond them."""
    shape = np.shape(model.next_states)
    if len(shape) != 2 or 0 in shape:
        raise ValueError(f"next_states must have shape (states, actions), got shape {shape}")
    states = shape[0]
    if model.max_steps < 1:
        raise ValueError(f"max_steps must be at least 1, got {model.max_steps}")
    expected = {"rewards": shape, "terminated": shape, "pairs": shape, "potential": (states,)}
    for name, wanted in expected.items():
        found = np.shape(getattr(model, name))
        if found != wanted:
            raise ValueError(f"{name} must have shape {wanted} to go with next_states {shape}, got shape {found}")
    rows = np.shape(model.credit)
    if len(rows) != 2 or rows[1] != model.max_steps or not rows[0]:
        raise ValueError(f"credit must have shape (rows, max_steps) = (rows, {model.max_steps}), got shape {rows}")
    for name, indices, count in (
        ("start", model.start, states),
        ("next_states", model.next_states, states),
        ("pairs", model.pairs, rows[0]),
    ):
        low, high = np.min(indices), np.max(indices)
        if low < 0 or high >= count:
            raise ValueError(f"{name} must lie from 0 to {count - 1}, got {low if low < 0 else high}")
    for name, values in (
        ("rewards", model.rewards), ("potential", model.potential), ("credit", distinct_credit(model.credit)),
    ):  # fmt: skip
        finite = np.isfinite(values)
        if not finite.all():
            where = tuple(int(i) for i in np.argwhere(~finite)[0])
            raise ValueError(f"{name} must be finite numbers, got {np.asarray(values)[where]} at {where}")
    if not np.isfinite(model.scale):
        raise ValueError(f"scale must be a finite number, got {model.scale}")
    if not model.cap >= 0:  # NaN, too
        raise ValueError(f"cap must be 0 or more (inf for none), got {model.cap}")


def distinct_credit(credit: NDArray[np.float64]) -> NDArray[np.float64]:
    """(rows, max_steps), or (rows, 1) where credit is one column repeated without taking memory."""
    return credit[:, :1] if credit.strides[1] == 0 else credit


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


def model_of(env: gym.Env[Any, Any]) -> TabularModel | None:
    """The environment, wrappers included, as arrays; None where it, or a wrapper around it, does not offer that."""
    layer: Any = env
    while isinstance(layer, gym.Wrapper):
        # A wrapper that knows nothing of tables may change anything: a time limit, rewards, what actions mean.
        if not isinstance(layer, _TRANSPARENT) and not hasattr(type(layer), "tabular"):
            return None
        layer = layer.env
    if not hasattr(layer, "tabular"):
        return None
    try:
        model: TabularModel = env.get_wrapper_attr("tabular")()
    except (AttributeError, OverflowError):  # a potential without a table; more states than a table can hold
        return None
    return model


def _whole(name: str, numbers: NDArray[Any]) -> NDArray[np.int32]:
    """The same numbers as int32, or an error."""
    if not np.issubdtype(numbers.dtype, np.integer):
        raise TypeError(f"{name} must be integers, got {numbers.dtype}")
    if numbers.max() >= 2**31:
        raise ValueError(f"{name} must be under 2**31, got {numbers.max()}")
    return numbers.astype(np.int32)
