"""Potentials of the history: credit is added up as steps happen."""

import math
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from secret_rl.files import FileFormat, finite_number
from secret_rl.shaping.estimation import mean_over_visits
from secret_rl.shaping.pairs import KnownPairs
from secret_rl.shaping.potentials import Infos, Mask, Values
from secret_rl.shaping.states import StateOf
from secret_rl.shaping.table import TablePotential
from secret_rl.trajectories import Trajectories
from secret_rl.trajectories.nested import map_arrays
from secret_rl.views import View, view_from_json, view_to_json
from secret_rl.views.described import is_own

_FORMAT = FileFormat("secret-rl online credit", remedy="make it again with OnlineCredit(...).save")
_NUMBERS = ("threshold", "scale", "reward", "cap")


class StepCredit(Protocol):
    """Says what a step is worth when it is taken: a fitted ``Secret``, or anything alike."""

    def step_credit(self, observations: Any, actions: Any, /) -> NDArray[np.float64]:
        """(steps,) the share of a reward that each (observation, action) pair would earn, from 0 to 1."""

    def check_spaces(self, observation_space: Any, action_space: Any, /) -> None:
        """An error where it cannot read observations and actions of these spaces."""


class OnlineCredit:
    """Phi is the credit earned so far in this episode, scaled down and kept below the reward it stands for.

    Each step is scored when it is taken, with what rewards of the *source* looked for: no trajectory and no reward
    of the target is needed, there are no unvisited states, and a step costs the same whatever came before it. A
    potential of the history is still potential-based shaping: the history is a state.

    ``secret`` is a fitted ``Secret``. Credit up to ``threshold`` is dropped: a softmax always leaves a little
    everywhere, and little adds up. ``scale`` times the sum, at most ``cap`` times ``reward``, is the potential;
    ``reward`` is what a success pays in the target. With ``reset_on_reward`` the sum starts anew once a positive
    reward has been paid, for tasks that pay again and again.

    ``observation`` gives what the model was fitted on where the agent observes something else: a view, such as
    ``CenteredView(3)`` for an agent that sees the full state of Triggers; or a function of (observation, info), asked
    for one step at a time.
    """

    def __init__(
        self,
        secret: StepCredit,
        *,
        threshold: float = 0.1,
        scale: float = 0.3,
        reward: float = 1.0,
        cap: float = 0.95,
        reset_on_reward: bool = False,
        observation: View | Callable[[Any, Mapping[str, Any]], Any] | None = None,
    ) -> None:
        if not callable(getattr(secret, "step_credit", None)):
            raise TypeError(f"expected a fitted Secret, or an object with step_credit, got {secret!r}")
        for name, value in (("scale", scale), ("reward", reward)):
            if not (value > 0 and math.isfinite(value)):
                raise ValueError(f"{name} must be a positive number, got {value!r}")
        if not 0 <= threshold < 1:
            raise ValueError(f"threshold must lie in [0, 1), got {threshold!r}")
        if not 0 < cap <= 1:
            raise ValueError(f"cap must lie in (0, 1]: a share of the reward, got {cap!r}")
        if isinstance(observation, type) or not (
            observation is None or callable(observation) or isinstance(observation, View)
        ):
            raise TypeError(f"observation must be a view, or a function of (observation, info), got {observation!r}")
        self._secret, self._observation = secret, observation
        self._view = observation if isinstance(observation, View) else None
        self._function = observation if self._view is None and callable(observation) else None
        self.options = {
            "threshold": float(threshold),
            "scale": float(scale),
            "reward": float(reward),
            "cap": float(cap),
            "reset_on_reward": bool(reset_on_reward),
        }
        self.bound, self.reward_bound = float(cap * reward), float(reward)
        self._factor = float(scale * reward)
        self._known = KnownPairs(self._worth)
        self._before: Any = None  # what was observed before the step to come
        self._sum = 0.0

    def __repr__(self) -> str:
        return f"OnlineCredit({', '.join(f'{name}={value}' for name, value in self.options.items())})"

    def fresh(self) -> "OnlineCredit":
        """One with a memory of its own; what pairs are worth is shared."""
        other = OnlineCredit(self._secret, **self.options, observation=self._observation)  # type: ignore[arg-type]
        other._known = self._known
        return other

    def begin(self, observation: Any, info: Mapping[str, Any], /) -> float:
        """Nothing is earned yet."""
        self._before, self._sum = self._seen(observation, info), 0.0
        return 0.0

    def step(self, action: Any, observation: Any, reward: float, info: Mapping[str, Any], /) -> float:
        """Add what the step earned."""
        if self._before is None:
            raise RuntimeError("no episode has begun: tell the potential with begin(observation, info)")
        earned = self._known.of_one(self._before, action)
        self._sum = 0.0 if self.options["reset_on_reward"] and reward > 0 else self._sum + earned
        self._before = self._seen(observation, info)
        return min(self._sum, self.bound)

    def vector(self, n: int) -> "_VectorOnlineCredit | None":
        """n running sums, their steps scored together; one at a time where observations come from a function."""
        return _VectorOnlineCredit(self, n) if self._function is None else None

    def check_spaces(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:
        """An error where the model was fitted on other spaces."""
        check = getattr(self._secret, "check_spaces", None)
        seen = observation_space if self._view is None else self._view.space(observation_space)
        if check is not None and self._function is None:
            check(seen, action_space)

    def tabulate(self, model: Any) -> dict[str, Any]:
        """What every (state, action) pair of a finite task adds to the sum."""
        if self.options["reset_on_reward"] or self._function is not None:
            raise AttributeError("a sum that starts anew, or of observations from a function, has no form as arrays")
        states, actions = model.next_states.shape
        observed = map_arrays(lambda array: np.repeat(array, actions, axis=0), self._rows(model.observations))
        worth, pairs = np.unique(self._worth(observed, np.tile(np.arange(actions), states)), return_inverse=True)
        return {
            "pairs": pairs.reshape(states, actions).astype(np.int32),
            "credit": np.broadcast_to(worth[:, None], (len(worth), model.max_steps)),
            "cap": self.bound,
        }

    def table(self, trajectories: Trajectories, *, state: StateOf | None = None) -> TablePotential:
        """The same as a table: the mean of the running sum over the visits of each state in target trajectories.

        Their rewards are not looked at, unless the sum starts anew with them.
        """
        worth = self._worth(self._rows(trajectories.observations), trajectories.actions)
        rewards = np.asarray(trajectories.rewards) if self.options["reset_on_reward"] else np.zeros(trajectories.steps)
        sums = np.empty(trajectories.steps)
        for first, last in zip(trajectories.offsets[:-1].tolist(), trajectories.offsets[1:].tolist(), strict=True):
            running = np.cumsum(worth[first:last])
            paid = np.flatnonzero(rewards[first:last] > 0)
            for t in paid.tolist():  # starts anew
                running[t:] -= running[t]
            sums[first:last] = running
        sums = np.minimum(sums, self.bound)
        return mean_over_visits(trajectories, sums, state=state, reward_bound=self.reward_bound)

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the options as JSON; the model is saved with ``Secret.save``."""
        view = None
        if self._observation is not None:
            if self._view is None or not is_own(self._view):
                raise ValueError(
                    f"{self._observation!r}, which makes observations, cannot be saved: keep it in your code, or use a "
                    "view of secret_rl.views"
                )
            view = view_to_json(self._view)
        return _FORMAT.write_json(Path(path), {"options": self.options, "observation": view})

    @classmethod
    def load(cls, path: str | PathLike[str], secret: StepCredit) -> "OnlineCredit":
        """Read what ``save`` wrote, for a model that was loaded with ``Secret.load``."""
        content = _FORMAT.read_json(Path(path))
        with _FORMAT.reading(Path(path)):
            options, view = content["options"], content["observation"]
            if set(options) != {*_NUMBERS, "reset_on_reward"}:
                raise ValueError(f"it has the options {sorted(options)}")
            numbers = {name: finite_number(options[name]) for name in _NUMBERS}
            if type(options["reset_on_reward"]) is not bool:
                raise ValueError(f"reset_on_reward is {options['reset_on_reward']!r}, expected true or false")
            return cls(
                secret, **numbers, reset_on_reward=options["reset_on_reward"],
                observation=None if view is None else view_from_json(view),
            )  # fmt: skip

    def _seen(self, observation: Any, info: Mapping[str, Any]) -> Any:
        """What the model reads of a step, as a copy: environments reuse their arrays."""
        if self._view is not None:
            observation = self._view.one(observation)
        elif self._function is not None:
            observation = self._function(observation, info)
        return map_arrays(lambda part: np.array(part), observation)

    def _rows(self, observations: Any) -> Any:
        """What the model reads of many observations."""
        return observations if self._view is None else self._view.rows(observations)

    def _worth(self, observations: Any, actions: Any) -> NDArray[np.float64]:
        """(steps,) what each pair adds to the sum."""
        credit = np.asarray(self._secret.step_credit(observations, actions), np.float64)
        return np.where(credit > self.options["threshold"], self._factor * credit, 0.0)


class _VectorOnlineCredit:
    """Running sums of many environments."""

    def __init__(self, potential: OnlineCredit, n: int) -> None:
        self._potential = potential
        self._before: Any = None  # (n, ...) what was observed before the steps to come
        self._sums = np.zeros(n)
        self._zeros = np.zeros(n)

    def begin(self, started: Mask, observations: Any, infos: Infos, /) -> Values:  # noqa: ARG002
        """(n,) 0 where ``started``."""
        self._sums[started] = 0.0
        self._keep(started, observations)
        return self._zeros

    def step(self, active: Mask, actions: Any, observations: Any, rewards: Values, infos: Infos, /) -> Values:  # noqa: ARG002
        """(n,) Phi where ``active``."""
        if self._before is None:
            raise RuntimeError("no episode has begun: tell the potential with begin(started, observations, infos)")
        pairs = self._before, map_arrays(np.asarray, actions)
        if active.all():
            self._sums += self._potential._known.of_rows(*pairs, len(self._sums))
        else:
            which = active.nonzero()[0]
            before, done = (map_arrays(lambda array: array[which], nest) for nest in pairs)
            self._sums[which] += self._potential._known.of_rows(before, done, len(which))
        if self._potential.options["reset_on_reward"]:
            self._sums[active & (rewards > 0)] = 0.0
        self._keep(active, observations)
        return np.minimum(self._sums, self._potential.bound)

    def _keep(self, mask: Mask, observations: Any) -> None:
        """Copy what is seen where the mask is set: environments reuse their arrays."""
        if self._before is None or mask.all():
            self._before = map_arrays(lambda rows: np.array(rows), self._potential._rows(observations))
            return
        which = mask.nonzero()[0]
        seen = self._potential._rows(map_arrays(lambda rows: np.asarray(rows)[which], observations))

        def replace(kept: NDArray[Any], rows: NDArray[Any]) -> None:
            kept[which] = rows

        map_arrays(replace, self._before, seen)
