"""What a potential is: told the start of an episode and then each step, it answers Phi.

A potential may look at the state alone or remember the whole history: the history is a state, so shaping with it
still changes no optimal policy. What it answers for the same history must not change while an agent learns from
stored rewards: freeze it, or relabel what is stored.
"""

import warnings
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Infos = Mapping[str, Any]
Mask = NDArray[np.bool_]
Values = NDArray[np.float64]


class PotentialRangeWarning(UserWarning):
    """A potential that outgrows the reward it stands for: chasing it can drown the task."""


class CoverageWarning(UserWarning):
    """A potential that knows none of the states it is asked for: nothing is shaped."""


class NoCreditPaidWarning(UserWarning):
    """Online credit that no step has earned any of: nothing is shaped."""


class NotCreditWarning(UserWarning):
    """A potential of a model that did not learn credit: it may pay for the wrong steps."""


class Potential(Protocol):
    """Phi of an episode as it unfolds. ``begin``, ``step`` and ``fresh`` are needed, the rest may be left out.

    The wrappers give ``step`` every step of an episode, the last one too; what it answers there counts only where
    the episode did not terminate. Observations and infos belong to the environment: copy what you keep.

    Further methods are used where a potential has them:

    - ``vector(n) -> VectorPotential | None``: n of them at once, each with a memory of its own. Without it, or
      where it answers None, n ``fresh()`` ones are asked in turn.
    - ``check_spaces(observation_space, action_space)``: raise where the potential does not fit a single
      environment of these spaces. Called when an environment is wrapped.
    - ``tabulate(model) -> dict``: the potential as arrays over the states of a finite task, for compiled agents.
    """

    def begin(self, observation: Any, info: Mapping[str, Any], /) -> float:
        """An episode starts: Phi of its first state."""

    def step(self, action: Any, observation: Any, reward: float, info: Mapping[str, Any], /) -> float:
        """Phi after a step; ``observation``, ``reward`` (unshaped) and ``info`` are what the step gave."""

    def fresh(self) -> "Potential":
        """The same potential with a memory of its own; itself if it keeps none."""

    @property
    def bound(self) -> float | None:
        """The largest absolute value it can answer, if known."""

    @property
    def reward_bound(self) -> float | None:
        """The largest positive return of an episode that it stands for, if known."""


class VectorPotential(Protocol):
    """Phi of ``n`` episodes side by side, in environments that need not start or end together.

    Every argument has n rows, one for each environment, and so has the answer. A mask says which rows count; the
    others hold leftovers, and what is answered there is ignored. A mask is never empty.

    - Within one call of the wrapper, each environment takes a step, or is started, or first takes the last step of
      its episode and is then started. Observations and infos of a last step are those of the old episode,
      whatever the autoreset mode. ``step`` may be called twice: for the episodes that go on, and for those that ended.
    - Observations and actions are batches of Gymnasium's layout: an array, or a dict or tuple of arrays.
    - ``infos`` is in the layout of Gymnasium's vector environments: ``infos["state"]`` holds n values and
      ``infos["_state"]`` tells which are there. ``side_by_side.one_info(infos, i)`` is the info of one environment.
    - All of it belongs to the environments: copy what you keep. The answer is not kept: it may be the same array
      each time.
    """

    def begin(self, started: Mask, observations: Any, infos: Infos, /) -> Values:
        """(n,) Episodes start where ``started`` is set: Phi of their first states."""

    def step(self, active: Mask, actions: Any, observations: Any, rewards: Values, infos: Infos, /) -> Values:
        """(n,) A step was taken where ``active`` is set: Phi after it. ``rewards`` (n,) are unshaped."""


class NoPotential:
    """Phi = 0 everywhere: what shaping is compared with."""

    bound = 0.0
    reward_bound = None

    def begin(self, observation: Any, info: Mapping[str, Any], /) -> float:  # noqa: ARG002
        """0"""
        return 0.0

    def step(self, action: Any, observation: Any, reward: float, info: Mapping[str, Any], /) -> float:  # noqa: ARG002
        """0"""
        return 0.0

    def fresh(self) -> "NoPotential":
        """Itself: there is nothing to remember."""
        return self

    def vector(self, n: int) -> "_NoVectorPotential":
        """n times nothing."""
        return _NoVectorPotential(np.zeros(n))

    def tabulate(self, model: Any) -> dict[str, Any]:  # noqa: ARG002
        """Nothing to add to a task."""
        return {}

    def __repr__(self) -> str:
        return "NoPotential()"


class _NoVectorPotential:
    def __init__(self, zeros: Values) -> None:
        self._zeros = zeros

    def begin(self, *_: Any) -> Values:
        return self._zeros

    def step(self, *_: Any) -> Values:
        return self._zeros


def not_finite(potential: object, answer: object) -> str:
    """What to say of a potential that answers NaN or an infinity."""
    return f"{potential!r} answered Phi = {answer}: a potential must answer finite numbers"


def warn_unless_credit(secret: object) -> None:
    """Warn where the report of a fitted model says that its attention is not credit; one without a verdict passes."""
    verdict = getattr(getattr(secret, "report", None), "verdict", "credit")
    if verdict != "credit":
        warnings.warn(
            f"the verdict on this model is {verdict!r}, not 'credit': what it looks at need not have earned the "
            "rewards, and a potential made of it can lead an agent astray; read secret.report, fit again with more "
            "rewards or another view, or shape without a model: estimate_potential(trajectories, kind='value')",
            NotCreditWarning,
            stacklevel=3,
        )
