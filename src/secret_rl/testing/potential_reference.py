"""Potentials from target trajectories, one visit at a time as the formulas are written: slow but obvious."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from secret_rl.shaping.states import canonical
from secret_rl.trajectories import Episode, Trajectories
from secret_rl.trajectories.nested import map_arrays, named_arrays

Rows = list[tuple[int, float, list[float]]]
"""(step, reward, weight of steps 0, 1, ...) of the attributed rewards of an episode."""


class Walk(NamedTuple):
    """An episode as states and what was done in them."""

    states: list[Hashable]
    """One for each step, and the last one where it is known."""
    actions: list[Hashable]
    rewards: list[float]
    rows: Rows


def slow_potential(
    data: Trajectories,
    credit: Any,
    kind: str,
    *,
    rewards: str,
    reading: str = "printed",
    delay_discount: float = 0.95,
    state: Callable[[Any, Mapping[str, Any]], Any] | None = None,
) -> dict[Hashable, float]:
    """What ``estimate_potential`` puts into its table; ``credit`` are ``Attributions``."""
    total: dict[Hashable, float] = {}
    visits: dict[Hashable, int] = {}
    for number, episode in enumerate(data):
        rows = [] if credit is None else list(_rows(credit, number))
        if rewards == "positive":
            rows = [(step, reward, weights) for step, reward, weights in rows if reward > 0]
        paid = [max(r, 0.0) if rewards == "positive" else r for r in episode.rewards.tolist()]
        walk = Walk(_states(episode, state), _actions(episode), paid, rows)
        for t, key in enumerate(walk.states):
            visits[key] = visits.get(key, 0) + 1
            total[key] = total.get(key, 0.0) + _at_visit(walk, t, kind, reading, delay_discount)
    return {key: total[key] / (len(data) if kind == "paper" else visits[key]) for key in total}


def _at_visit(walk: Walk, t: int, kind: str, reading: str, delay_discount: float) -> float:
    """What visit ``t`` of an episode adds."""
    if kind == "value":
        return sum(delay_discount ** (i - t) * walk.rewards[i] for i in range(t, len(walk.rewards)))
    if kind == "pending":
        return sum(
            delay_discount ** (step - t) * reward * sum(weights[:t]) for step, reward, weights in walk.rows if step >= t
        )
    if kind == "mixed":
        attributed = {step for step, _, _ in walk.rows}
        others = [0.0 if step in attributed else reward for step, reward in enumerate(walk.rewards)]
        value = _at_visit(walk._replace(rewards=others), t, "value", reading, delay_discount)
        return _at_visit(walk, t, "pending", reading, delay_discount) + value
    if kind == "cumulative":
        return sum(_earned(walk, before) for before in range(t))
    if t == 0:
        return 0.0
    if reading == "once":
        return _earned(walk, t - 1)
    pair = walk.states[t - 1], walk.actions[t - 1]
    return sum(
        _earned(walk, other) for other in range(len(walk.actions)) if (walk.states[other], walk.actions[other]) == pair
    )


def _earned(walk: Walk, t: int) -> float:
    """The credit of step ``t``."""
    return sum(reward * weights[t] for _, reward, weights in walk.rows if t < len(weights))


def _rows(credit: Any, number: int) -> Iterator[tuple[int, float, list[float]]]:
    for r in np.flatnonzero(credit.episode == number).tolist():
        weights = credit.weights[credit.offsets[r] : credit.offsets[r + 1]]
        yield int(credit.step[r]), float(credit.reward[r]), weights.astype(np.float64).tolist()


def _states(episode: Episode, state: Callable[[Any, Mapping[str, Any]], Any] | None) -> list[Hashable]:
    known = _all_known([] if episode.states is None else [*episode.states], episode.final_state)
    if state is None:
        return [canonical(key) for key in known]
    seen = _all_known([_row(episode.observations, t) for t in range(len(episode))], episode.final_observation)
    infos = [{"state": known[t]} if t < len(known) else {} for t in range(len(seen))]
    return [canonical(state(observation, info)) for observation, info in zip(seen, infos, strict=True)]


def _all_known(steps: list[Any], final: Any) -> list[Any]:
    return steps if final is None else [*steps, final]


def _actions(episode: Episode) -> list[Hashable]:
    rows = [list(named_arrays("", _row(episode.actions, t))) for t in range(len(episode))]
    return [tuple(canonical(action) for _, action in row) for row in rows]


def _row(nest: Any, t: int) -> Any:
    return map_arrays(lambda rows: rows[t], nest)
