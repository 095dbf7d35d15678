"""What shaping in 3D is measured by: the potential of who knows the way, made with the truth and without credit."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import secret_rl as srl
from secret_rl.atomic import replace_text
from secret_rl.shaping import Batch

DISCOUNT = 0.96  # of a change of state: a step to the next cell takes a wanderer some four steps, of 0.99
_CLOSE = 1e-9


class KnownWay:
    """What the best way that trajectories show, put together of parts of them, would still earn, discounted.

    Its states are the cell, the held key and how many doors have been opened: with cell and key alone, an open door
    would make a way without its key. A state that no trajectory met has the potential of the one before it.
    """

    bound = reward_bound = None

    def __init__(self, values: Mapping[tuple[int, ...], float]) -> None:
        self.values = dict(values)

    def init(self, n: int) -> list[tuple[int, float]]:
        """Doors opened so far, and the last Phi, of each environment."""
        return [(0, 0.0)] * n

    def step(self, carry: list[tuple[int, float]], batch: Batch) -> tuple[list[tuple[int, float]], Any]:
        """(n,) Phi of the states that environments are in now."""
        for i in batch.rows.tolist():
            info = batch.info(i)
            opened, last = (carry[i][0] + (info["door_opened"] > 0), carry[i][1]) if batch.steps[i] else (0, 0.0)
            carry[i] = opened, self.values.get((*map(int, info["state"]), opened), last)
        return carry, np.array([phi for _, phi in carry])

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        replace_text(path, json.dumps([[list(state), value] for state, value in self.values.items()]) + "\n")

    @classmethod
    def load(cls, path: Path) -> "KnownWay":
        """What ``save`` wrote."""
        return cls({tuple(state): value for state, value in json.loads(path.read_text(encoding="utf-8"))})


def known_way(data: srl.Trajectories) -> KnownWay:
    """Plan on the changes of state that the trajectories hold, each at the reward it paid."""
    opened = np.asarray(data.annotations["door_opened"]) > 0
    total = np.concatenate([[0], np.cumsum(opened)])
    since_start = np.repeat(total[data.offsets[:-1]], data.lengths)
    before = np.column_stack([np.asarray(data.states), total[:-1] - since_start]).astype(np.int64)
    last = np.asarray(data.offsets[1:]) - 1
    after = np.roll(before, -1, axis=0)
    after[last] = np.column_stack([np.asarray(data.final_states), total[last + 1] - since_start[last]])
    states, numbers = np.unique(np.concatenate([before, after]), axis=0, return_inverse=True)
    start, end = numbers.reshape(2, -1)
    end = np.where(np.asarray(data.annotations["goal_reached"]), len(states), end)  # where nothing is earned any more
    moved = start != end
    pairs, which = np.unique(np.column_stack([start, end])[moved], axis=0, return_inverse=True)
    rewards = np.bincount(which.ravel(), np.asarray(data.rewards, np.float64)[moved]) / np.bincount(which.ravel())
    values, change = np.zeros(len(states) + 1), np.inf
    while change > _CLOSE:
        better = values.copy()
        np.maximum.at(better, pairs[:, 0], rewards + DISCOUNT * values[pairs[:, 1]])
        change, values = float(np.max(better - values)), better
    return KnownWay(dict(zip(map(tuple, states.tolist()), values.tolist(), strict=False)))
