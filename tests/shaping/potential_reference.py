"""Potentials from target trajectories, one visit at a time as the formulas are written: slow but obvious."""

from types import SimpleNamespace

import numpy as np

from secret_rl.shaping.table import canonical
from secret_rl.trajectories.nested import map_arrays, named_arrays


def slow_potential(data, credit, kind, *, rewards, delay_discount=0.95, state=None):
    """What ``estimate_potential`` puts into its table; ``credit`` are ``Attributions``."""
    total, visits = {}, {}
    for number, episode in enumerate(data):
        rows = [
            (int(credit.step[r]), float(credit.reward[r]), credit.row(r).astype(float).tolist())
            for r in np.flatnonzero(credit.episode == number)
            if rewards == "all" or credit.reward[r] > 0
        ]
        paid = [max(r, 0.0) if rewards == "positive" else r for r in episode.rewards.tolist()]
        walk = SimpleNamespace(states=states_of(episode, state), actions=actions_of(episode), rewards=paid, rows=rows)
        for t, key in enumerate(walk.states):
            visits[key] = visits.get(key, 0) + 1
            total[key] = total.get(key, 0.0) + at_visit(walk, t, kind, delay_discount)
    return {key: total[key] / (len(data) if kind == "paper" else visits[key]) for key in total}


def at_visit(walk, t, kind, delay_discount):
    """What visit ``t`` of an episode adds."""

    def value(rewards):
        return sum(delay_discount ** (i - t) * reward for i, reward in enumerate(rewards) if i >= t)

    def earned(step):
        return sum(reward * weights[step] for _, reward, weights in walk.rows if step < len(weights))

    pending = sum(
        delay_discount ** (step - t) * reward * sum(weights[:t]) for step, reward, weights in walk.rows if step >= t
    )
    if kind == "value":
        return value(walk.rewards)
    if kind == "pending":
        return pending
    if kind == "mixed":
        attributed = {step for step, _, _ in walk.rows}
        return pending + value([0.0 if i in attributed else reward for i, reward in enumerate(walk.rewards)])
    if kind == "cumulative":
        return sum(map(earned, range(t)))
    if t == 0:
        return 0.0
    pairs = list(zip(walk.states, walk.actions, strict=False))
    return sum(earned(other) for other, pair in enumerate(pairs) if pair == pairs[t - 1])


def states_of(episode, state):
    """One for each step, and the last one where it is known."""
    known = [] if episode.states is None else [*episode.states]
    known += [] if episode.final_state is None else [episode.final_state]
    if state is None:
        return [canonical(key) for key in known]
    seen = [row(episode.observations, t) for t in range(len(episode))]
    seen += [] if episode.final_observation is None else [episode.final_observation]
    infos = [{"state": known[t]} if t < len(known) else {} for t in range(len(seen))]
    return [canonical(state(observation, info)) for observation, info in zip(seen, infos, strict=True)]


def actions_of(episode):
    steps = (named_arrays("", row(episode.actions, t)) for t in range(len(episode)))
    return [tuple(canonical(action) for _, action in step) for step in steps]


def row(nest, t):
    return map_arrays(lambda rows: rows[t], nest)
