"""A credit method of your own, in forty lines: pairs that are met more often in episodes that succeed.

python examples/own_method.py            # seconds
python examples/own_method.py --quick    # the same with less data
"""

import argparse

import numpy as np

import secret_rl as srl
from secret_rl.credit import FitReport, RewardClasses
from secret_rl.credit.base import ArrayMethod, method_class, register_method

MAZES = {"size": 4, "triggers": 1, "prizes": 1}


@register_method("contrast")  # from here on a method like any other: load_method, OnlineCredit, explore
class Contrast(ArrayMethod):
    """How much likelier success is in episodes that hold an (observation, action) pair."""

    def fit(self, data, **_):
        """Count in which episodes each pair occurs, and how many of those succeed."""
        pairs, which = np.unique(self._rows(data.observations, data.actions), axis=0, return_inverse=True)
        episode = np.repeat(np.arange(len(data)), data.lengths)
        success = np.add.reduceat(np.asarray(data.rewards) > 0, data.offsets[:-1]) > 0
        held = np.unique(np.stack([which.ravel(), episode]), axis=1)  # each pair once an episode
        rate = np.bincount(held[0], weights=success[held[1]]) / np.bincount(held[0])
        found = {"pairs": pairs, "share": np.clip((rate - success.mean()) / (1 - success.mean()), 0, 1) ** 2}
        return self._fitted(data, FitReport(RewardClasses.of(data.rewards), "credit"), found)

    def attribute(self, data, *, rewards="all", **_):
        """Steps up to a reward share it in proportion to their credit."""
        self.check_spaces(data.observation_space, data.action_space)
        return srl.Attributions.shared(data, self.step_credit(data.observations, data.actions), rewards)

    def step_credit(self, observations, actions, *_):
        """(steps,) 0 for pairs that were never met."""
        known = dict(zip(map(bytes, self._array("pairs")), self._array("share").tolist(), strict=True))
        return np.array([known.get(bytes(row), 0.0) for row in self._rows(observations, actions)])

    def _rows(self, observations, actions):
        return np.column_stack([np.asarray(observations).reshape(len(actions), -1), actions]).astype(np.uint8)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="less data")
    episodes = 500 if parser.parse_args().quick else 4_000
    source, held_out = (
        srl.collect("secret_rl/Triggers-v0", episodes, seed=seed, success_share=0.3, env_options=MAZES)
        for seed in (0, 1)
    )
    for method in (Contrast().fit(source), method_class("uniform")()):
        credit = method.attribute(held_out, rewards="positive")
        print(f"{method.name:<10}{srl.credit_quality(credit, held_out)}")
