"""Shaping of transitions that are stored: a replay buffer, or trajectories."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from secret_rl.shaping.core import Infos, Mask, PotentialLike, Shaper, ShapingConfig, Values, check_spaces
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

    def __init__(
        self, potential: PotentialLike, discount: float, *, scale: float | str = 1.0, truncation: str = "keep"
    ) -> None:
        self._config = config = ShapingConfig.from_args(potential, discount, scale, truncation)
        self.potential, self.discount, self.scale = config.potential, config.discount, config.scale
        self._asked_scale, self._truncation = scale, truncation
        self._shaper: Shaper | None = None  # of the transitions that arrive
        self._begun = np.zeros(0, np.bool_)

    def __repr__(self) -> str:
        return (
            f"ReplayShaping({self.potential!r}, {self.discount}, scale={self.scale}, truncation={self._truncation!r})"
        )

    def clone_with(self, potential: PotentialLike) -> "ReplayShaping":
        """The same shaping with another potential, and no episode begun; ``scale="fit"`` is fitted to it anew."""
        return ReplayShaping(potential, self.discount, scale=self._asked_scale, truncation=self._truncation)

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

        Where ``started`` is set an episode begins with this step, from ``observations``; its info is not known there.
        ``next_observations`` are those of the episode itself, not of one that begins after it. ``infos``, of the step,
        are in Gymnasium's vector layout or a list of n.
        """
        if isinstance(self.potential, TablePotential) and self.potential.state is None:
            raise ValueError(
                'a table over info["state"] cannot shape transitions as they arrive: the info of the first state of an '
                "episode is not among them; give the table a state= made of observations, such as Observed() or "
                "Cells(...), or use over(trajectories), which know their states"
            )
        started = np.asarray(started, np.bool_)
        if self._shaper is None:
            self._shaper = Shaper(self._config, len(started), infer(observations), infer(actions))
            self._begun = np.zeros(len(started), np.bool_)
        if started.shape != self._begun.shape:
            raise ValueError(
                f"started has shape {started.shape}, but transitions of {len(self._begun)} environments came before: "
                "give one row for each, or begin anew with clone_with(potential)"
            )
        self._begun = self._begun | started
        if not self._begun.all():
            env = int(np.argmin(self._begun))
            raise ValueError(f"no episode has begun in environment {env}: set started where its first step comes")
        terminated, truncated = np.asarray(terminated, np.bool_), np.asarray(truncated, np.bool_)
        self._shaper.start(started, observations, ())
        rewards, everywhere = np.asarray(rewards, np.float64), np.ones(len(started), np.bool_)
        batch = self._shaper.batch(~everywhere, everywhere, next_observations, actions, rewards, infos)
        self._begun = self._begun & ~(terminated | truncated)
        return self._shaper.step(batch, terminated, truncated)

    def _pay_together(self, data: Trajectories, chosen: NDArray[np.int64], paid: Values, before: Values) -> None:
        """Fill in what some episodes are paid and start from, one time step after the other in all of them."""
        starts, lengths = np.asarray(data.offsets)[chosen], data.lengths[chosen]
        last = starts + lengths - 1
        over = np.asarray(data.terminated)[last]
        if not self._config.keep_on_truncation:
            over = over | np.asarray(data.truncated)[last]
        shaper = Shaper(self._config, len(chosen), data.observation_space, data.action_space)
        none = np.zeros(len(chosen), np.bool_)
        shaper.start(~none, _rows(data.observations, starts), _with_states({}, _rows(data.states, starts)))
        rewards = np.asarray(data.rewards)
        for t in range(int(lengths.max())):
            here = np.minimum(starts + t, last)
            active, ends = t < lengths, np.equal(t, lengths - 1)
            asked = active & ~(ends & over)  # behind an end there is no potential, and perhaps no observation
            if data.final_observations is None and (ends & asked).any():
                raise ValueError(
                    f"the trajectories hold no final observations, and episode {chosen[np.argmax(ends & asked)]} did "
                    "not terminate: collect them with final observations, for the potential that its last step led to"
                )
            known = {name: np.asarray(rows)[here] for name, rows in data.annotations.items()}
            follows = np.minimum(here + 1, last), ends, chosen
            infos = _with_states(known, _following(data.states, data.final_states, *follows))
            if data.states is not None and data.final_states is None:
                infos["_state"] = ~ends
            seen = _following(data.observations, data.final_observations, *follows)
            before[here[active]] = self.scale * shaper.phi[active]
            here_rewards = rewards[here].astype(np.float64)
            batch = shaper.batch(none, asked, seen, _rows(data.actions, here), here_rewards, infos)
            paid[here[active]] = shaper.step(batch, ends & over, none)[active]


def _following(nest: Any, finals: Any, rows: NDArray[np.int64], ends: Mask, chosen: NDArray[np.int64]) -> Any:
    """What each step led to; leftovers where an episode ends and that is not known."""
    if nest is None:
        return None
    following = _rows(nest, rows)
    if finals is not None and ends.any():

        def put(into: NDArray[Any], final: NDArray[Any]) -> None:
            into[ends] = np.asarray(final)[chosen[ends]]

        map_arrays(put, following, finals)
    return following


def _rows(nest: Any, which: NDArray[np.int64]) -> Any:
    return None if nest is None else map_arrays(lambda array: np.asarray(array)[which], nest)


def _with_states(infos: dict[str, Any], states: Any) -> dict[str, Any]:
    return infos if states is None else {**infos, "state": states}
