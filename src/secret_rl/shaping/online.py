"""Potentials of the history: credit is added up as steps happen."""

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from secret_rl.shaping.core import Batch, CoverageWarning, Mask, Values, check_number, warn_unless_credit
from secret_rl.shaping.learned import RowCache, row_keys
from secret_rl.trajectories.nested import map_arrays
from secret_rl.views import View

_WARN_AFTER = 5_000  # steps, none of which earned


class OnlineCredit:
    """Phi is the credit earned so far in this episode, scaled down and kept below the reward it stands for.

    Each step is scored when it is taken, with what rewards of the *source* looked for: no trajectory and no reward
    of the target is needed, and there are no unvisited states.

    Each (observation, action) pair earns once an episode, so that an agent cannot farm one that a poor model credits by
    mistake. Pairs are equal to the byte: observations with a clock or with noise need a view that drops it
    (``DropView``). A ``CoverageWarning`` says when none of 5,000 steps earned anything.

    Args:
        secret: A fitted ``Secret``, or an object with ``step_credit(observations, actions)``, which gives (steps,) the
            share of a reward that each pair would earn, from 0 to 1.
        threshold: Credit up to this is dropped: a softmax always leaves a little everywhere, and little adds up.
        scale: Times the sum, and times ``reward``, is the potential.
        reward: What a success pays in the target.
        cap: The largest potential, as a share of ``reward``.
        reset_on_reward: The sum starts anew once a positive reward was paid: for tasks that pay again and again.
        repeat: Every step earns: for tasks in which steps that look alike earn each their own, such as two switches.
        observation: Gives what the model was fitted on where the agent observes something else: a view, such as
            ``CenteredView(3)`` for an agent that sees the full state of Triggers.
    """

    def __init__(
        self,
        secret: Any,
        *,
        threshold: float = 0.1,
        scale: float = 0.3,
        reward: float = 1.0,
        cap: float = 0.95,
        reset_on_reward: bool = False,
        repeat: bool = False,
        observation: View | None = None,
    ) -> None:
        if not callable(getattr(secret, "step_credit", None)):
            raise TypeError(f"expected a fitted Secret, or an object with step_credit, got {secret!r}")
        if isinstance(observation, type) or not (observation is None or isinstance(observation, View)):
            raise TypeError(f"observation must be a view, with space, rows and one, got {observation!r}")
        self.options: dict[str, Any] = {
            "threshold": check_number("threshold", threshold, lambda number: 0 <= number < 1, "in [0, 1)"),
            "scale": check_number("scale", scale, lambda number: number > 0, "a positive number"),
            "reward": check_number("reward", reward, lambda number: number > 0, "a positive number"),
            "cap": check_number("cap", cap, lambda number: 0 < number <= 1, "a share of the reward, in (0, 1]"),
            "reset_on_reward": bool(reset_on_reward),
            "repeat": bool(repeat),
        }
        warn_unless_credit(secret)
        self.secret, self.view = secret, observation
        self._transitions = bool(getattr(secret, "transitions", False))
        self.bound, self.reward_bound = float(cap * reward), float(reward)
        self._factor = float(scale * reward)
        self._known = RowCache(self._additions)
        self._watching = True  # until a step earns, or the user was warned that none does
        self._largest, self._unpaid = 0.0, 0  # the largest credit of a step, and steps that earned nothing

    def __repr__(self) -> str:
        return f"OnlineCredit({', '.join(f'{name}={value}' for name, value in self.options.items())})"

    def init(self, n: int, /) -> "_Sums":
        """n sums of 0."""
        return _Sums(n)

    def step(self, carry: "_Sums", batch: Batch, /) -> tuple["_Sums", Values]:
        """(n,) Add what the steps earned; episodes that start have earned nothing."""
        seen = self._rows(batch.select(batch.observations))  # of the rows that start or step
        stepping = np.count_nonzero(batch.steps)
        if stepping:
            if carry.observed is None:
                raise RuntimeError("a step came before any episode started: give a batch with starts first")
            which = slice(None) if stepping == len(batch.steps) else np.flatnonzero(batch.steps)
            then = (_rows(seen, batch.steps[batch.active]),) if self._transitions else ()
            pairs = _rows(carry.observed, which), _rows(batch.actions, which), *then
            carry.sums[which] += self._earned(carry, np.flatnonzero(batch.steps).tolist(), pairs)
            if self.options["reset_on_reward"]:
                carry.restart(batch.steps & (batch.rewards > 0))
        if np.count_nonzero(batch.starts):
            carry.restart(batch.starts)
        carry.observe(seen, batch)
        return carry, np.minimum(carry.sums, self.bound)

    def check_spaces(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:
        """An error where the model was fitted on other spaces."""
        if hasattr(self.secret, "check_spaces"):
            seen = observation_space if self.view is None else self.view.space(observation_space)
            self.secret.check_spaces(seen, action_space)

    def tabulate(self, model: Any) -> dict[str, Any]:
        """What every (state, action) pair of a finite task adds to the sum."""
        if self.options["reset_on_reward"]:
            raise AttributeError("a sum that starts anew has no form as arrays")
        states, actions = np.indices(model.next_states.shape).reshape(2, -1)
        observed = self._rows(model.observations)
        then = (_rows(observed, model.next_states.ravel()),) if self._transitions else ()
        pairs_of = _rows(observed, states), actions, *then
        added = self._additions(*pairs_of)
        if not added.any():
            self._warn_unpaid(f"none of the {len(added):,} pairs of this task earns anything")
        if self.options["repeat"]:  # pairs that add the same share a row
            rows, pairs = np.unique(added, return_inverse=True)
        else:  # equal pairs share one, and all that earn nothing
            earning = np.flatnonzero(added)
            keys = row_keys(*(_rows(nest, earning) for nest in pairs_of)) if len(earning) else []
            _, firsts, numbers = np.unique(keys, return_index=True, return_inverse=True)
            rows = np.concatenate([[0.0], added[earning[firsts]]])
            pairs = np.zeros(len(added), np.int64)
            pairs[earning] = numbers + 1
        pairs = pairs.reshape(model.next_states.shape).astype(np.int32)
        return {"pairs": pairs, "credit": rows, "cap": self.bound, "once": not self.options["repeat"]}

    def _earned(self, carry: "_Sums", which: list[int], pairs: tuple[Any, ...]) -> list[float]:
        """(rows,) what steps of some environments earn."""
        keys, earned = self._known.find(*pairs)
        if any(earned):
            self._watching = False
            if not self.options["repeat"]:
                for row, (env, key) in enumerate(zip(which, keys, strict=True)):
                    if earned[row] and key in carry.paid[env]:
                        earned[row] = 0.0
                    elif earned[row]:
                        carry.paid[env].add(key)
        elif self._watching:
            self._unpaid += len(earned)
            if self._unpaid >= _WARN_AFTER:
                self._warn_unpaid(f"none of the first {self._unpaid:,} steps earned anything")
        return earned

    def _rows(self, observations: Any) -> Any:
        """What the model reads of many observations."""
        return observations if self.view is None else self.view.rows(observations)

    def _additions(self, *pairs: Any) -> NDArray[np.float64]:
        """(steps,) what each pair adds to the sum."""
        credit = np.asarray(self.secret.step_credit(*pairs), np.float64)
        self._largest = max(self._largest, credit.max(initial=0.0))
        return np.where(credit > self.options["threshold"], self._factor * credit, 0.0)

    def _warn_unpaid(self, what: str) -> None:
        """Warn once."""
        if self._watching:
            self._watching = False
            warnings.warn(
                f"{what}, so nothing is shaped: the largest step credit is {self._largest:.3g}, and what is not above "
                f"the threshold of {self.options['threshold']:g} is dropped; see in secret.report whether the model "
                "learned credit, give with observation= the view that it was fitted on, or lower threshold",
                CoverageWarning,
                stacklevel=3,
            )


class _Sums:
    """What n environments have earned in their episodes."""

    def __init__(self, n: int) -> None:
        self.observed: Any = None  # (n, ...) before the steps to come
        self.sums = np.zeros(n)
        self.paid: list[set[bytes]] = [set() for _ in range(n)]  # pairs that have earned

    def observe(self, seen: Any, batch: Batch) -> None:
        """Keep what the rows of a batch observe now, as a copy: environments reuse their arrays."""
        if batch.everywhere:
            self.observed = map_arrays(np.array, seen)
            return
        if self.observed is None:
            self.observed = map_arrays(lambda new: np.empty((len(batch.active), *new.shape[1:]), new.dtype), seen)
        map_arrays(lambda old, new: old.__setitem__(batch.active, new), self.observed, seen)

    def restart(self, mask: Mask) -> None:
        """Begin the sums anew where the mask is set."""
        self.sums[mask] = 0.0
        for env in np.flatnonzero(mask).tolist():
            self.paid[env].clear()


def _rows(nest: Any, which: NDArray[Any] | slice) -> Any:
    return map_arrays(lambda array: np.asarray(array)[which], nest)
