"""Rivals find the cause on the kind of task that their papers are about, and say so where they cannot be used."""

import numpy as np
import pytest
from gymnasium import spaces

from secret_rl import Trajectories, credit_quality
from secret_rl.credit.base import method_class
from secret_rl.credit.rivals import RIVALS

LENGTH = 12


def key_to_door(count, seed=0, apples=False):
    """A key may be taken, by action 1 where it is seen, at an early step; the door at the end pays with it.

    Apples in between pay by themselves, and have nothing to do with the key.
    """
    rng, episodes = np.random.default_rng(seed), []
    for _ in range(count):
        seen, actions = rng.integers(3, 6, LENGTH), rng.integers(0, 2, LENGTH)
        at = int(rng.integers(1, LENGTH // 2))
        seen[at], seen[-1] = 1, 2
        taken = (np.arange(LENGTH) == at) & (actions[at] == 1)
        rewards = np.where((seen == 5) & apples, 0.2, 0.0)
        rewards[-1] = float(taken.any())
        episodes.append(
            {
                "observations": seen,
                "actions": actions,
                "rewards": rewards,
                "terminated": True,
                "annotations": {"key": taken},
            }
        )
    return Trajectories.from_episodes(episodes, observation_space=spaces.Discrete(6), action_space=spaces.Discrete(2))


def judged(method, data):
    """Average precision behind doors that paid."""
    found = method.attribute(data, rewards="positive", progress=False)
    causes = np.where(np.asarray(data.rewards) == 1, np.repeat(_keys(data), LENGTH), -1)
    return credit_quality(found, causes).average_precision


def _keys(data):
    keys = np.asarray(data.annotations["key"]).reshape(-1, LENGTH)
    return np.where(keys.any(1), keys.argmax(1), -1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", sorted({*RIVALS} - {"secret-paper"})
)  # its weight of zeros hides a door that does not pay
def test_the_key_is_found_behind_the_door(name):
    method = method_class(name)(seed=0, device="cpu", units=32, steps=1_000).fit(key_to_door(800), progress=False)
    held_out = key_to_door(200, seed=1)
    assert method.report.verdict == "credit"
    assert judged(method, held_out) >= 0.9
    credit, taken = method.step_credit(held_out.observations, held_out.actions), held_out.annotations["key"]
    assert credit[taken].mean() > 3 * credit[~taken].mean()


@pytest.mark.filterwarnings("ignore:not learned")
def test_what_needs_discrete_actions_says_so():
    data = key_to_door(30)
    episodes = [{"observations": e.observations, "actions": e.actions[:, None] / 2, "rewards": e.rewards} for e in data]
    boxed = Trajectories.from_episodes(
        episodes, observation_space=data.observation_space, action_space=spaces.Box(0, 1, (1,), np.float64)
    )
    with pytest.raises(ValueError, match="needs discrete actions, these are Box"):
        method_class("hindsight")(steps=1).fit(boxed)
    assert method_class("rudder")(steps=1, units=4).fit(boxed, progress=False).report.steps == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [({"steps": 0}, "steps must be positive, got 0"), ({"validation": 1}, "validation .* got 1")],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        method_class("rudder")(**options)


def test_chance_is_not_called_credit():
    chance = np.random.default_rng(0).integers(0, 2, 200)
    noise = key_to_door(200).with_rewards(
        lambda rewards: np.repeat(chance, LENGTH) * (np.arange(len(rewards)) % LENGTH == 11.0)
    )
    with pytest.warns(UserWarning, match="not learned: the model explains .* of what varies in returns"):
        method_class("return-decomposition")(seed=0, units=8, steps=200).fit(noise, progress=False)
