"""What a potential is, and the one place where Phi becomes reward: termination, truncation, scale and discount.

A potential may remember the whole history: that is a state, so shaping with it changes no optimal policy.
"""

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from math import isfinite, nextafter
from numbers import Real
from os import PathLike
from pathlib import Path
from types import FrameType
from typing import Any, Protocol, TypedDict

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from secret_rl.trajectories.nested import leaf_spaces, map_arrays, map_leaves

Mask = NDArray[np.bool_]
Values = NDArray[np.float64]
Info = Mapping[str, Any]
Infos = dict[str, Any] | Sequence[Info]

_ROUNDING = 1e-6
_SAFETENSORS = b"\0\0\0\0{"  # such files begin with the length of their JSON header, in eight bytes
_ARRAYS = (gym.spaces.Box, gym.spaces.Discrete, gym.spaces.MultiDiscrete, gym.spaces.MultiBinary)


class PotentialRangeWarning(UserWarning):
    """A potential that outgrows the reward it stands for: chasing it can drown the task."""


class CoverageWarning(UserWarning):
    """A potential that is 0 everywhere so far, since it knows no state or no step earned credit: nothing is shaped."""


class NotCreditWarning(UserWarning):
    """A potential of a model that did not learn credit: it may pay for the wrong steps."""


class Batch:
    """What happened in n environments, one row each. A row starts an episode, takes a step, or neither.

    Rows that do neither hold leftovers, and what a potential answers for them is ignored. All of it belongs to the
    environments: copy what you keep.

    Args:
        starts: (n,) rows whose observation and info are the first of an episode.
        steps: (n,) rows that took a step; action, observation, reward and info are those of the step, the last one too.
        observations: Batch of n observations in Gymnasium's layout: an array, or a dict or tuple of arrays; or a
            function that gives it, called if a potential looks.
        actions: Batch of n actions; None if no row takes a step.
        rewards: (n,) unshaped.
        infos: List of n, or Gymnasium's vector layout; read it with ``entry`` and ``info``.
        observation_space: Of a single environment.
        action_space: Of a single environment.
    """

    def __init__(
        self,
        starts: Mask,
        steps: Mask,
        observations: Any,
        actions: Any = None,
        rewards: Any = None,
        infos: Infos = (),
        observation_space: gym.Space[Any] | None = None,
        action_space: gym.Space[Any] | None = None,
    ) -> None:
        self.starts, self.steps, self._observations = starts, steps, observations
        self.actions, self.rewards, self.infos = actions, rewards, infos
        self.observation_space, self.action_space = observation_space, action_space
        self.active: Mask = starts | steps
        """(n,) rows that start or step."""
        self.count = np.count_nonzero(self.active)
        self.everywhere = self.count == len(self.active)
        """Whether all rows do."""

    @property
    def observations(self) -> Any:
        """Batch of n observations."""
        if callable(self._observations):
            self._observations = self._observations()
        return self._observations

    @property
    def rows(self) -> NDArray[np.int64]:
        """Numbers of the rows that start or step."""
        return self.active.nonzero()[0]

    def select(self, values: Any) -> Any:
        """Of n rows (a nest of arrays), those that start or step."""
        return values if self.everywhere else map_arrays(lambda array: np.asarray(array)[self.active], values)

    def spread(self, values: Any) -> Values:
        """(n,) the inverse of ``select``, 0 elsewhere."""
        if self.everywhere:
            return np.asarray(values, np.float64)
        spread = np.zeros(len(self.active))
        spread[self.active] = values
        return spread

    def observation(self, i: int) -> Any:
        """The observation of one environment."""
        return row_of(self.observation_space, self.observations, i)

    def action(self, i: int) -> Any:
        """The action of one environment."""
        return row_of(self.action_space, self.actions, i)

    def info(self, i: int) -> Info:
        """The info of one environment."""
        if isinstance(self.infos, dict):
            return _one_info(self.infos, i)
        return self.infos[i] if len(self.infos) else {}

    def entry(self, name: str) -> NDArray[Any] | None:
        """(rows,) an entry of the infos of the rows that start or step; None unless all of them have it."""
        if isinstance(self.infos, dict):
            values, present = self.infos.get(name), self.infos.get(f"_{name}")
            if values is None or (present is not None and np.count_nonzero(self.active > present)):
                return None
            return values if self.everywhere else values[self.active]  # type: ignore[no-any-return]
        infos = self.infos if self.everywhere else [self.infos[i] for i in self.rows.tolist()]
        try:
            found = [info[name] for info in infos]
        except (KeyError, IndexError):
            return None
        return np.array(found) if set(map(type, found)) == {int} else np.fromiter(found, object, len(found))

    def only(self, members: Mask) -> "Batch":
        """The same for some of the rows; the others do nothing."""
        happened = self.actions, self.rewards, self.infos, self.observation_space, self.action_space
        return Batch(self.starts & members, self.steps & members, lambda: self.observations, *happened)


class Potential(Protocol):
    """Phi of n environments as their episodes unfold.

    >>> class LessIsMore:  # Phi falls by 0.01 with every step
    ...     def init(self, n):
    ...         return np.zeros(n)
    ...     def step(self, carry, batch):
    ...         carry = np.where(batch.starts, 0.0, carry - 0.01 * batch.steps)
    ...         return carry, carry

    A function of (observation, info) is a potential, too: wrappers call it for one environment at a time.

    What a potential remembers of episodes is in the carry, so one object serves any number of environments. A carry is
    passed on once: it may be changed in place. Further attributes are used where a potential has them:

    - ``bound``: the largest absolute value of Phi; ``reward_bound``: the largest positive return of an episode that it
      stands for. Known, they are compared.
    - ``check_spaces(observation_space, action_space)``: raise where the potential does not fit a single environment of
      these spaces. Called when an environment is wrapped.
    - ``tabulate(model) -> dict``: the potential as arrays over the states of a finite task, for compiled agents.
    """

    def init(self, n: int, /) -> Any:
        """What is remembered of n environments before their first episodes."""

    def step(self, carry: Any, batch: Batch, /) -> tuple[Any, Any]:
        """The next carry, and (n,) Phi of the states that the rows of the batch are in now."""


PotentialLike = Potential | Callable[[Any, Info], float] | str | PathLike[str]
"""A potential, a function of (observation, info), or the path of a saved table or learned potential."""


class Shaper:
    """The shaping of n environments: queries a potential, and keeps Phi of the present states."""

    discount: float | None = None
    """That of the agent the shaping is for; None: any."""

    def __init__(self, potential: PotentialLike, n: int, *spaces: gym.Space[Any]) -> None:
        """``spaces``: observations and actions of a single environment, where they are known."""
        self.potential = load_potential(potential)
        if spaces:
            check_spaces(self.potential, *spaces)
        self._begin(n, *spaces)

    def _begin(self, n: int, *spaces: gym.Space[Any]) -> None:
        self._spaces, self._carry = spaces, self.potential.init(n)
        self._none, self.phi = np.zeros(n, np.bool_), np.zeros(n)  # (n,) Phi of the present states, not scaled

    def rewards(self, phi: Values, next_phi: Values, terminated: Mask, truncated: Mask) -> Values:
        """(n,) what is added to the rewards of n steps."""
        raise NotImplementedError

    def batch(self, starts: Mask, steps: Mask, observations: Any, actions: Any, rewards: Any, infos: Infos) -> Batch:
        """A batch of these environments."""
        return Batch(starts, steps, observations, actions, rewards, infos, *self._spaces)

    def start(self, starts: Mask, observations: Any, infos: Infos) -> None:
        """Episodes start in some environments."""
        if np.count_nonzero(starts):
            phi = self._query(self.batch(starts, self._none, observations, None, None, infos))
            self.phi = np.where(starts, phi, self.phi)

    def step(self, batch: Batch, terminated: Mask, truncated: Mask, last: Batch | None = None) -> Values:
        """(n,) what shaping adds to the rewards of a step; 0 where an episode only started.

        ``last`` holds the last steps of the episodes where ``batch`` already shows the start of the next ones.
        """
        final = self.phi if last is None else self._query(last)
        after = now = self._query(batch)
        if not batch.everywhere:
            after = now = np.where(batch.active, now, self.phi)
        if last is not None:
            after = np.where(last.steps, final, now)
        shaping = self.rewards(self.phi, after, terminated, truncated)
        if last is None and np.count_nonzero(batch.starts):
            shaping = np.where(batch.starts, 0.0, shaping)
        # A sum of squares is finite only if all of them are: one number to look at.
        if not isfinite(shaping.dot(shaping)) and not np.isfinite(shaping).all():
            env = int(np.argmin(np.isfinite(shaping)))
            where = f" in environment {env}" if len(shaping) > 1 else ""
            values = f"Phi = {after[env]} after {self.phi[env]}{where}"
            raise ValueError(f"{self.potential!r} answered {values}: a potential must answer finite numbers")
        self.phi = now
        return shaping

    def _query(self, batch: Batch) -> Values:
        """(n,) Phi, of the rows that start or step."""
        if not batch.count:
            return self.phi
        self._carry, phi = self.potential.step(self._carry, batch)
        if np.shape(phi) != self.phi.shape:
            shapes = f"values of shape {np.shape(phi)}, expected {self.phi.shape}"
            raise ValueError(f"{self.potential!r} answered {shapes}: one for each environment")
        return np.array(phi, np.float64)  # the potential may go on with its own


class ShapingOptions(TypedDict, total=False):
    """Options of every wrapper that shapes with a potential: see ``PotentialShaping``."""

    scale: float | str
    truncation: str


class BonusOptions(TypedDict, total=False):
    """Options of every wrapper that pays a bonus: see ``CreditBonus``."""

    scale: float
    fade_steps: int | None
    fade_at_return: float | None


class PotentialShaper(Shaper):
    """discount * Phi' - Phi; options as for ``PotentialShaping``."""

    def __init__(
        self,
        potential: PotentialLike,
        n: int,
        *spaces: gym.Space[Any],
        discount: float,
        scale: float | str = 1.0,
        truncation: str = "keep",
    ) -> None:
        super().__init__(potential, n, *spaces)
        self.discount = check_number("discount", discount, lambda number: 0 < number <= 1, "the agent's own, in (0, 1]")
        if truncation not in ("keep", "zero"):
            choices = '"keep" (the agent bootstraps where a time limit cuts an episode short) or "zero" (it does not)'
            raise ValueError(f"truncation must be {choices}, got {truncation!r}")
        self.scale, self.keep_on_truncation = _scale(self.potential, scale), truncation == "keep"

    def over(self, n: int, *spaces: gym.Space[Any]) -> "PotentialShaper":
        """The same shaping of other environments, whose spaces are not checked."""
        other = copy(self)
        other._begin(n, *spaces)
        return other

    def start(self, starts: Mask, observations: Any, infos: Infos) -> None:
        """Episodes start in some environments; an error if an agent of another discount begins to learn there."""
        check_learner(self.discount)
        super().start(starts, observations, infos)

    def rewards(self, phi: Values, next_phi: Values, terminated: Mask, truncated: Mask) -> Values:
        """(n,) discount * Phi' - Phi.

        Terminal states have no potential, or the optimal policies would change. Termination wins over truncation.
        """
        assert self.discount is not None
        ended = terminated if self.keep_on_truncation else terminated | truncated
        if np.count_nonzero(ended):
            next_phi = np.where(ended, 0.0, next_phi)
        return self.discount * (self.scale * next_phi) - self.scale * phi


def check_learner(discount: float | None) -> None:
    """An error where an agent of Stable-Baselines3 that begins to learn here discounts by another number.

    Environments are not given to know their agent. But it resets them when it begins to learn, from ``_setup_learn``,
    so it is found among the callers, unless the environments are in other processes.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "_setup_learn":
            check_same_discount(discount, getattr(frame.f_locals.get("self"), "gamma", None))
            return
        frame = frame.f_back


def check_same_discount(discount: float | None, gamma: float | None) -> None:
    """An error where environments are shaped for another discount than the agent's; None is any."""
    if discount is not None and gamma is not None and discount != gamma:
        differ = f"shaped with discount {discount}, but the agent learns with gamma {gamma}"
        raise ValueError(f"the environments are {differ}, which changes what is optimal: use the same for both")


def load_potential(potential: PotentialLike) -> Potential:
    """A potential as it is, or of a function, or read from a file: a table or a learned one."""
    from secret_rl.shaping.learned import LearnedPotential
    from secret_rl.shaping.potentials import FunctionPotential
    from secret_rl.shaping.table import TablePotential

    if isinstance(potential, str | PathLike):
        path = Path(potential)
        if not path.is_file():
            raise FileNotFoundError(f"{path} is not a file: expected one that a potential was saved to")
        with path.open("rb") as file:
            is_learned = file.read(9)[4:] == _SAFETENSORS
        return LearnedPotential.load(path) if is_learned else TablePotential.load(path)
    if not isinstance(potential, type):
        if callable(getattr(potential, "init", None)) and callable(getattr(potential, "step", None)):
            return potential  # type: ignore[return-value]
        if callable(potential):
            return FunctionPotential(potential)
    expected = "an object with init and step, a function of (observation, info), or the path of a saved one"
    raise TypeError(f"{potential!r} is not a potential: expected {expected}")


def check_spaces(potential: Potential, *spaces: gym.Space[Any]) -> None:
    """An error where a potential does not fit a single environment of these spaces."""
    if hasattr(potential, "check_spaces"):
        potential.check_spaces(*spaces)


def warn_unless_credit(secret: object) -> None:
    """Warn where the report of a fitted model says that its attention is not credit; one without a verdict passes."""
    verdict = getattr(getattr(secret, "report", None), "verdict", "credit")
    if verdict != "credit":
        warnings.warn(
            f"the verdict on this model is {verdict!r}, not 'credit': a potential made of it can lead an agent astray; "
            "read secret.report, fit again with more rewards or another view, or shape without a model: "
            "estimate_potential(trajectories, kind='value')",
            NotCreditWarning,
            stacklevel=3,
        )


def one_row(space: gym.Space[Any], element: Any) -> Any:
    """An element of a space as a batch of one."""
    if isinstance(space, _ARRAYS):
        return np.asarray(element, space.dtype)[None]
    if isinstance(space, gym.spaces.Dict | gym.spaces.Tuple):
        return map_leaves(one_row, space, element)
    return (element,)


def last_seen(observations: Any, final: Mapping[int, Any], space: gym.Space[Any]) -> Any:
    """A batch in which some environments show what they saw last instead of the start of a new episode.

    ``final`` holds the observations of those; ``space`` is that of a single one.
    """

    def put(_: Any, rows: Any, *new: Any) -> Any:
        changed = rows.copy() if isinstance(rows, np.ndarray) else list(rows)
        for i, row in zip(final, new, strict=True):
            changed[i] = row
        return changed if isinstance(rows, np.ndarray) else tuple(changed)

    return map_arrays(put, leaf_spaces(space), observations, *final.values())


def row_of(space: gym.Space[Any] | None, nest: Any, i: int) -> Any:
    """One of a batch of elements of a space."""
    if space is None:
        return map_arrays(lambda rows: rows[i], nest)
    return map_leaves(lambda _, rows: rows[i], space, nest)


def _one_info(infos: Info, i: int) -> Info:
    info = {}
    for name, values in infos.items():
        present = infos.get(f"_{name}")
        if present is None and name[:1] == "_" and name[1:] in infos:
            continue  # it says which values of another entry are there
        if present is None or present[i]:
            info[name] = _one_info(values, i) if isinstance(values, dict) else values[i]
    return info


def _scale(potential: Potential, scale: float | str) -> float:
    bound, reward_bound = (getattr(potential, name, None) for name in ("bound", "reward_bound"))
    if scale == "fit":
        if bound is None or reward_bound is None:
            needs = f"needs the bound and the reward_bound of {potential!r}, which are {bound} and {reward_bound}"
            raise ValueError(f'scale="fit" {needs}: make the potential with reward_bound=, or give scale a number')
        fitting = min(1.0, reward_bound / bound) if bound > 0 else 1.0
        return fitting if fitting * bound <= reward_bound else nextafter(fitting, 0.0)  # the division may round up
    number = check_number("scale", scale, lambda number: number >= 0, 'a number of at least 0, or "fit"')
    # A whole share of a reward, added up from many, may come out a little above it.
    if bound is not None and reward_bound is not None and number * bound > reward_bound * (1 + _ROUNDING):
        warnings.warn(
            f"the potential reaches {number * bound:.3g}, above the {reward_bound:.3g} that an episode can pay: agents "
            f'may chase it instead of the reward; scale it down, with scale="fit" for one',
            PotentialRangeWarning,
            stacklevel=4,
        )
    return number


def check_number(name: str, value: object, accept: Callable[[float], bool], expected: str) -> float:
    """The value as a float; raise unless it is a finite number that is accepted."""
    if isinstance(value, bool) or not (isinstance(value, Real) and isfinite(value) and accept(float(value))):
        raise ValueError(f"{name} must be {expected}, got {value!r}")
    return float(value)
