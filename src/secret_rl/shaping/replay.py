"""Shaping of transitions that are stored: a replay buffer, or trajectories."""

from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from secret_rl.shaping.core import Infos, Mask, PotentialLike, PotentialShaper, ShapingOptions, Values, check_spaces
from secret_rl.shaping.table import TablePotential
from secret_rl.trajectories import Trajectories
from secret_rl.trajectories.nested import map_arrays
from secret_rl.trajectories.spaces import infer

_EPISODES_AT_A_TIME = 4096


class ReplayShaping:
    """What ``PotentialShaping`` pays, to the bit, for steps that were taken before; arguments as there.

    >>> import secret_rl as srl
    >>> from secret_rl.shaping import ReplayShaping, TablePotential
    >>> data = srl.collect("secret_rl/Triggers-v0", 5, env_options={"layout_seed": 1}, progress=False)
    >>> shaping = ReplayShaping(TablePotential({state: state / 1024 for state in range(1024)}), 0.99)
    >>> shaping.over(data).shape == (data.steps,)
    True

    ``over`` looks at whole trajectories, ``step`` at transitions as they arrive. With a new potential, everything that
    is stored can be paid anew: ``shaping.clone_with(potential).over(trajectories)``.
    """

    def __init__(self, potential: PotentialLike, discount: float, **options: Unpack[ShapingOptions]) -> None:
        self._made = PotentialShaper(potential, 1, discount=discount, **options)
        self.potential, self.discount, self.scale = self._made.potential, discount, self._made.scale
        self._options = options
        self._shaper: PotentialShaper | None = None  # of the transitions that arrive
        self._begun = np.zeros(0, np.bool_)

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self._options.items())
        return f"ReplayShaping({self.potential!r}, {self.discount}{options})"

    def clone_with(self, potential: PotentialLike) -> "ReplayShaping":
        """The same shaping with another potential, and no episode begun; ``scale="fit"`` is fitted to it anew."""
        return ReplayShaping(potential, self.discount, **self._options)

    def over(self, trajectories: Trajectories) -> Values:
        """(steps,) discount * Phi' - Phi of every step.

        ``info`` is what the trajectories know: the state, and after each step its annotations. An episode that
        neither terminated nor was truncated goes on, so Phi' of its last step stays.
        """
        return self.along(trajectories)[0]

    def along(self, trajectories: Trajectories) -> tuple[Values, Values]:
        """(steps,) each: what ``over`` gives, and the scaled Phi that each step starts from."""
        check_spaces(self.potential, trajectories.observation_space, trajectories.action_space)
        paid, before = np.empty(trajectories.steps), np.empty(trajectories.steps)
        # Episodes of like length together: few wait for the longest.
        order = np.argsort(-trajectories.lengths, kind="stable")
        for first in range(0, len(order), _EPISODES_AT_A_TIME):
            self._pay_together(trajectories, order[first : first + _EPISODES_AT_A_TIME], paid, before)
        return paid, before

    def step(
        self,
        started: Mask,
        observations: Any,
        actions: Any,
        next_observations: Any,
        rewards: NDArray[Any],
        terminated: Mask,
        truncated: Mask,
        infos: Infos = (),
    ) -> Values:
        """(n,) discount * Phi' - Phi of one step in each of n environments; call it for every step, in order.

        Args:
            started: (n,) where an episode begins with this step; the info of its first state is not known.
            observations: Before the step.
            actions: Of the step.
            next_observations: After it, of the episode itself, not of one that begins after it.
            rewards: (n,) unshaped.
            terminated: (n,) where the episode terminated.
            truncated: (n,) where it was cut short.
            infos: Of the step, in Gymnasium's vector layout or a list of n.
        """
        if isinstance(self.potential, TablePotential) and self.potential.state is None:
            remedy = "give the table a state= made of observations, such as ObservationKey(), or use over(trajectories)"
            raise ValueError(f'a table over info["state"] cannot shape transitions as they arrive: {remedy}')
        started, terminated, truncated = (np.asarray(mask, np.bool_) for mask in (started, terminated, truncated))
        if self._shaper is None:
            self._shaper = self._made.over(len(started), infer(observations), infer(actions))
            self._begun = np.zeros(len(started), np.bool_)
        begun = self._begun | started
        if not begun.all():
            env = int(np.argmin(begun))
            raise ValueError(f"no episode has begun in environment {env}: set started where its first step comes")
        self._begun = ~(terminated | truncated)
        self._shaper.start(started, observations, ())
        rewards = np.asarray(rewards, np.float64)
        batch = self._shaper.batch(~begun, begun, next_observations, actions, rewards, infos)
        return self._shaper.step(batch, terminated, truncated)

    def _pay_together(self, data: Trajectories, chosen: NDArray[np.int64], paid: Values, before: Values) -> None:
        """Fill in what some episodes are paid and start from, one time step after the other in all of them."""
        starts, lengths = np.asarray(data.offsets)[chosen], data.lengths[chosen]
        last = starts + lengths - 1
        over = np.asarray(data.terminated)[last]
        if not self._made.keep_on_truncation:
            over = over | np.asarray(data.truncated)[last]
        shaper = self._made.over(len(chosen), data.observation_space, data.action_space)
        none = np.zeros(len(chosen), np.bool_)
        first_infos = {} if data.states is None else {"state": _rows(data.states, starts)}
        shaper.start(~none, _rows(data.observations, starts), first_infos)
        for t in range(int(lengths.max())):
            here = np.minimum(starts + t, last)
            active, ends = t < lengths, np.equal(t, lengths - 1)
            queried = active & ~(ends & over)  # behind an end there is no potential, and perhaps no observation
            if data.final_observations is None and (ends & queried).any():
                unknown = f"episode {chosen[np.argmax(ends & queried)]} did not terminate"
                raise ValueError(f"the trajectories hold no final observations, and {unknown}: collect them with those")
            follows = np.minimum(here + 1, last), ends, chosen
            infos = {name: np.asarray(rows)[here] for name, rows in data.annotations.items()}
            if data.states is not None:
                infos["state"] = _following(data.states, data.final_states, *follows)
                infos["_state"] = ~ends if data.final_states is None else ~none
            seen = _following(data.observations, data.final_observations, *follows)
            before[here[active]] = self.scale * shaper.phi[active]
            rewards = np.asarray(data.rewards)[here].astype(np.float64)
            batch = shaper.batch(none, queried, seen, _rows(data.actions, here), rewards, infos)
            paid[here[active]] = shaper.step(batch, ends & over, none)[active]


def _following(nest: Any, finals: Any, rows: NDArray[np.int64], ends: Mask, chosen: NDArray[np.int64]) -> Any:
    """What each step led to; leftovers where an episode ends and that is not known."""
    following = _rows(nest, rows)
    if finals is not None and ends.any():
        map_arrays(lambda into, final: into.__setitem__(ends, np.asarray(final)[chosen[ends]]), following, finals)
    return following


def _rows(nest: Any, which: NDArray[np.int64]) -> Any:
    return map_arrays(lambda array: np.asarray(array)[which], nest)
