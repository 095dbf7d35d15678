"""Potentials of the history: credit is added up as steps happen."""

import copy
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from secret_rl.checks import check_integer
from secret_rl.files import FileFormat, finite_number
from secret_rl.shaping.estimation import mean_over_visits
from secret_rl.shaping.pairs import KnownPairs, pair_keys
from secret_rl.shaping.potentials import Infos, Mask, NoCreditPaidWarning, Values, warn_unless_credit
from secret_rl.shaping.states import StateOf
from secret_rl.shaping.table import TablePotential
from secret_rl.trajectories import Trajectories
from secret_rl.trajectories.nested import map_arrays
from secret_rl.views import View, view_from_json, view_to_json
from secret_rl.views.kinds import is_own

_FORMAT = FileFormat("secret-rl online credit", remedy="make it again with OnlineCredit(...).save")
_NUMBERS = ("threshold", "scale", "reward", "cap")
_SWITCHES = ("reset_on_reward", "repeat")


class StepCredit(Protocol):
    """Says what a step is worth when it is taken: a fitted ``Secret``, or anything alike.

    A ``Secret`` with ``transitions=True`` is given what each step led to as well.
    """

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

    Each (observation, action) pair earns once an episode, so that an agent cannot farm one that a poor model credits by
    mistake; with ``reset_on_reward``, once between two rewards. Pairs are equal to the byte: observations that never
    repeat, with a clock or with noise, need a view that drops it (``DropView``) for this to bind. With ``repeat=True``
    every step earns: for tasks in which steps that look alike earn each their own, such as two switches.

    Where no step has earned anything in ``warn_after`` episodes, or no pair of a finite task can, a
    ``NoCreditPaidWarning`` says so, once; None turns it off. A model whose report says that it did not learn credit
    gives a ``NotCreditWarning``.

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
        repeat: bool = False,
        warn_after: int | None = 100,
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
        if warn_after is not None:
            warn_after = check_integer("warn_after", warn_after, 1)
        warn_unless_credit(secret)
        self._secret, self._observation = secret, observation
        self._transitions = bool(getattr(secret, "transitions", False))
        self._view = observation if isinstance(observation, View) else None
        self._function = observation if self._view is None and callable(observation) else None
        self.options: dict[str, Any] = {
            "threshold": float(threshold),
            "scale": float(scale),
            "reward": float(reward),
            "cap": float(cap),
            "reset_on_reward": bool(reset_on_reward),
            "repeat": bool(repeat),
            "warn_after": warn_after,
        }
        self.bound, self.reward_bound = float(cap * reward), float(reward)
        self._factor = float(scale * reward)
        self._watch = _Watch(warn_after, self.options["threshold"])
        self._known = KnownPairs(self._worth)
        self._begin_memory()

    def __repr__(self) -> str:
        return f"OnlineCredit({', '.join(f'{name}={value}' for name, value in self.options.items())})"

    def fresh(self) -> "OnlineCredit":
        """One with a memory of its own; what pairs are worth is shared."""
        other = copy.copy(self)
        other._begin_memory()
        return other

    def _begin_memory(self) -> None:
        self._before: Any = None  # what was observed before the step to come
        self._sum = 0.0
        self._paid: set[bytes] = set()  # pairs that have earned in this episode
        self._steps = 0  # of this episode, while none has earned

    def begin(self, observation: Any, info: Mapping[str, Any], /) -> float:
        """Nothing is earned yet."""
        if self._steps:
            self._watch.ended(1, self._steps)
        self._before, self._sum, self._steps = self._seen(observation, info), 0.0, 0
        self._paid.clear()
        return 0.0

    def step(self, action: Any, observation: Any, reward: float, info: Mapping[str, Any], /) -> float:
        """Add what the step earned."""
        if self._before is None:
            raise RuntimeError("no episode has begun: tell the potential with begin(observation, info)")
        seen = self._seen(observation, info)
        pair, earned = self._known.of_one(self._before, action, *self._then(seen))
        if earned:
            self._watch.on = False
            if not self.options["repeat"]:
                earned = 0.0 if pair in self._paid else earned
                self._paid.add(pair)
        self._steps += 1
        self._sum += earned
        if self.options["reset_on_reward"] and reward > 0:
            self._sum = 0.0
            self._paid.clear()
        self._before = seen
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
        following = model.next_states.ravel()
        pairs_of = (
            observed,
            np.tile(np.arange(actions), states),
            *self._then(map_arrays(lambda array: np.asarray(array)[following], self._rows(model.observations))),
        )
        worth = self._worth(*pairs_of)
        if not worth.any():
            self._watch.warn(f"none of the {len(worth):,} pairs of this task earns anything")
        if self.options["repeat"]:  # pairs of the same worth share a row
            rows, pairs = np.unique(worth, return_inverse=True)
        else:  # equal pairs share one, and all that earn nothing
            earning = np.flatnonzero(worth)
            _, firsts, numbers = np.unique(self._keys(pairs_of, earning), return_index=True, return_inverse=True)
            rows = np.concatenate([[0.0], worth[earning[firsts]]])
            pairs = np.zeros(len(worth), np.int64)
            pairs[earning] = numbers + 1
        return {
            "pairs": pairs.reshape(states, actions).astype(np.int32),
            "credit": rows,
            "cap": self.bound,
            "once": not self.options["repeat"],
        }

    def table(self, trajectories: Trajectories, *, state: StateOf | None = None) -> TablePotential:
        """The same as a table: the mean of the running sum over the visits of each state in target trajectories.

        Their rewards are not looked at, unless the sum starts anew with them.
        """
        steps = self._rows(trajectories.observations), trajectories.actions, *self._led_to(trajectories)
        worth = self._worth(*steps)
        rewards = np.asarray(trajectories.rewards) if self.options["reset_on_reward"] else np.zeros(trajectories.steps)
        if not self.options["repeat"]:
            begins = np.zeros(trajectories.steps + 1, np.bool_)  # of an episode, or after a reward that ends the sum
            begins[trajectories.offsets] = True
            begins[1:] |= rewards > 0
            earning, sums_of = np.flatnonzero(worth), np.cumsum(begins)
            paid: set[tuple[int, bytes]] = set()
            for t, key in zip(earning.tolist(), self._keys(steps, earning), strict=True):
                pair = int(sums_of[t]), key
                worth[t] = 0.0 if pair in paid else worth[t]
                paid.add(pair)
        sums = np.empty(trajectories.steps)
        for first, last in zip(trajectories.offsets[:-1].tolist(), trajectories.offsets[1:].tolist(), strict=True):
            running = np.cumsum(worth[first:last])
            for t in np.flatnonzero(rewards[first:last] > 0).tolist():  # starts anew
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
            if set(options) != {*_NUMBERS, *_SWITCHES, "warn_after"}:
                raise ValueError(f"it has the options {sorted(options)}")
            numbers = {name: finite_number(options[name]) for name in _NUMBERS}
            for name in _SWITCHES:
                if type(options[name]) is not bool:
                    raise ValueError(f"{name} is {options[name]!r}, expected true or false")
            return cls(secret, **{**options, **numbers}, observation=None if view is None else view_from_json(view))

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

    def _then(self, next_observations: Any) -> tuple[Any, ...]:
        """What steps led to, for a model that reads it."""
        return (next_observations,) if self._transitions else ()

    def _led_to(self, trajectories: Trajectories) -> tuple[Any, ...]:
        """The same of every step of trajectories; a last step leads nowhere where no final observation is known."""
        if not self._transitions:
            return ()
        last = trajectories.offsets[1:] - 1
        following = np.arange(trajectories.steps) + 1
        following[last] = last
        rows = map_arrays(lambda array: np.asarray(array)[following], trajectories.observations)

        def put(into: NDArray[Any], final: NDArray[Any]) -> None:
            into[last] = final

        if trajectories.final_observations is not None:
            map_arrays(put, rows, trajectories.final_observations)
        return (self._rows(rows),)

    def _worth(self, *pairs: Any) -> NDArray[np.float64]:
        """(steps,) what each pair adds to the sum."""
        credit = np.asarray(self._secret.step_credit(*pairs), np.float64)
        self._watch.largest = max(self._watch.largest, credit.max(initial=0.0))
        return np.where(credit > self.options["threshold"], self._factor * credit, 0.0)

    def _keys(self, pairs: Sequence[Any], rows: NDArray[np.int64]) -> list[bytes]:
        """(rows,) equal where the pairs of these rows are."""
        chosen = [map_arrays(lambda array: np.asarray(array)[rows], nest) for nest in pairs]
        return pair_keys(chosen, len(rows)) if len(rows) else []


class _Watch:
    """Whether a potential or a copy of it has ever paid: one warning where none has."""

    def __init__(self, after: int | None, threshold: float) -> None:
        self.on = after is not None
        self.largest = 0.0  # credit of a step
        self._after, self._threshold = after or 0, threshold
        self._episodes = self._steps = 0

    def ended(self, episodes: int, steps: int) -> None:
        """Some episodes ended, which had so many steps."""
        self._episodes += episodes
        self._steps += steps
        if self.on and self._episodes >= self._after:
            self.warn(f"no step of the first {self._episodes:,} episodes ({self._steps:,} steps) earned anything")

    def warn(self, what: str) -> None:
        """Say so, unless that was said before or is not asked for."""
        if self.on:
            self.on = False
            warnings.warn(
                f"{what}, so nothing is shaped: the largest step credit is {self.largest:.3g}, and what is not above "
                f"the threshold of {self._threshold:g} is dropped; see in secret.report whether the model learned "
                "credit, give with observation= the view that it was fitted on, or lower threshold",
                NoCreditPaidWarning,
                stacklevel=3,
            )


class _VectorOnlineCredit:
    """Running sums of many environments."""

    def __init__(self, potential: OnlineCredit, n: int) -> None:
        self._potential = potential
        self._before: Any = None  # (n, ...) what was observed before the steps to come
        self._sums = np.zeros(n)
        self._zeros = np.zeros(n)
        self._paid: list[set[bytes]] = [set() for _ in range(n)]
        self._steps = np.zeros(n, np.int64)  # of each episode, while none has earned

    def begin(self, started: Mask, observations: Any, infos: Infos, /) -> Values:  # noqa: ARG002
        """(n,) 0 where ``started``."""
        self._restart(started)
        if self._potential._watch.on:
            steps = self._steps[started]
            self._potential._watch.ended(int(np.count_nonzero(steps)), int(steps.sum()))
            self._steps[started] = 0
        self._keep(started, observations)
        return self._zeros

    def step(self, active: Mask, actions: Any, observations: Any, rewards: Values, infos: Infos, /) -> Values:  # noqa: ARG002
        """(n,) Phi where ``active``."""
        if self._before is None:
            raise RuntimeError("no episode has begun: tell the potential with begin(started, observations, infos)")
        pairs = [self._before, map_arrays(np.asarray, actions)]
        if self._potential._transitions:
            pairs += [map_arrays(np.asarray, self._potential._rows(observations))]
        if active.all():
            self._sums += self._earned(range(len(self._sums)), pairs)
        else:
            which = active.nonzero()[0]
            some = [map_arrays(lambda array: array[which], nest) for nest in pairs]
            self._sums[which] += self._earned(which.tolist(), some)
        if self._potential._watch.on:
            self._steps += active
        if self._potential.options["reset_on_reward"]:
            self._restart(active & (rewards > 0))
        self._keep(active, observations)
        return np.minimum(self._sums, self._potential.bound)

    def _earned(self, which: Sequence[int], pairs: Sequence[Any]) -> list[float]:
        """(rows,) what steps of some environments earn."""
        keys, earned = self._potential._known.of_rows(pairs, len(which))
        if any(earned):
            self._potential._watch.on = False
            if not self._potential.options["repeat"]:
                for row, (env, key) in enumerate(zip(which, keys, strict=True)):
                    if earned[row]:
                        earned[row] = 0.0 if key in self._paid[env] else earned[row]
                        self._paid[env].add(key)
        return earned

    def _restart(self, mask: Mask) -> None:
        """Begin the sums anew where the mask is set."""
        self._sums[mask] = 0.0
        for env in mask.nonzero()[0].tolist():
            self._paid[env].clear()

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
