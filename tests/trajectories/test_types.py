"""One type for everything that happened: checks, selections, and what they keep."""

import json

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import secret_rl as srl
from secret_rl.testing.strategies import any_space, trajectories
from secret_rl.trajectories import spaces
from secret_rl.trajectories.nested import stack


def episode(length=3, **changes):
    base = {
        "observations": np.arange(length + 1, dtype=float)[:, None],
        "actions": np.zeros(length, int),
        "rewards": np.zeros(length),
        "terminated": True,
    }
    return base | changes


@given(trajectories())
def test_every_selection_holds_the_same_episodes(data):
    pieces = [data[i : i + 1] for i in range(len(data))]
    assert srl.Trajectories.concatenate(pieces).equals(data)
    assert data[np.arange(len(data))].equals(data)
    assert data[np.ones(len(data), bool)].equals(data)
    assert data[::-1][::-1].equals(data)
    assert data[: len(data) // 2].equals(data[np.arange(len(data) // 2)])
    again = srl.Trajectories.from_episodes(
        list(data), observation_space=data.observation_space, action_space=data.action_space
    )
    assert again.equals(data)
    assert data.lengths.sum() == data.steps == sum(len(one) for one in data)


@given(trajectories(max_episodes=8), st.floats(0.01, 0.99), st.integers(0, 9))
def test_split_is_a_partition_by_episode(data, fraction, seed):
    if len(data) < 2:
        with pytest.raises(ValueError, match="cannot be split"):
            data.split_indices(fraction, seed=seed)
        return
    rest, part = data.split_indices(fraction, seed=seed)
    assert sorted([*rest, *part]) == list(range(len(data))) and len(rest) and len(part)


@given(any_space())
@example(gym.spaces.Box(np.array([-np.inf, 0.0]), np.array([np.inf, 2.5]), dtype=np.float64))
def test_spaces_survive_json(space):
    assert spaces.from_json(json.loads(json.dumps(spaces.to_json(space)))) == space
    with pytest.raises(TypeError, match="Text.*is not supported"):
        spaces.to_json(gym.spaces.Tuple([space, gym.spaces.Text(5)]))


@given(any_space(), st.integers(0, 9))
def test_inferred_spaces_hold_their_rows(space, seed):
    space.seed(seed)
    rows = stack(space, [space.sample() for _ in range(4)])
    data = srl.Trajectories.from_episodes([{"observations": rows, "actions": np.zeros(4, int), "rewards": np.ones(4)}])
    assert data.observation_space == spaces.infer(rows)


def test_summary_counts():
    data = srl.Trajectories.from_episodes(
        [episode(rewards=np.array([0.0, -1, 1])), episode(2, rewards=np.array([0.0, -1]), terminated=False)]
    )
    counts = {
        "episodes": 2, "steps": 5, "mean_length": 2.5, "max_length": 3, "mean_return": -0.5, "min_return": -1.0,
        "max_return": 0.0, "positive_rewards": 1, "negative_rewards": 2, "successful_episodes": 1,
        "terminated_episodes": 1, "truncated_episodes": 0, "drawn": None, "success_share": 0.5,
    }  # fmt: skip
    assert data.summary().to_json() == counts
    assert "1 episodes hold a positive reward (50.00%)" in str(data.summary())


@given(trajectories(), st.integers(0, 99))
def test_other_rewards_change_nothing_else(data, seed):
    before = data.rewards.copy()
    rewards = np.random.default_rng(seed).normal(size=data.steps)
    other = data.with_rewards(rewards)
    np.testing.assert_array_equal(other.rewards, rewards)
    assert other.observations is data.observations and other.annotations is data.annotations
    assert other.fingerprint != data.fingerprint and not other.equals(data)
    rewards[:] = 0
    assert other.rewards.any(), "a copy"
    assert not data.with_rewards(lambda given: np.multiply(given, 0, out=given)).rewards.any()
    back = other.with_rewards(before)
    assert back.equals(data) and back.fingerprint == data.fingerprint, "nor what it was made of"


@pytest.mark.parametrize(
    ("rewards", "message"),
    [
        (np.zeros(4), r"rewards of shape \(4,\), expected \(5,\): one number per step"),
        (lambda rewards: rewards.sum(), r"rewards of shape \(\), expected \(5,\)"),
        (lambda rewards: rewards > 0, "rewards must be one number per step, got bool"),
        (np.array([0, 0, 0, np.nan, np.inf]), r"rewards\[episode 1, step 0\] is nan: expected a finite number"),
    ],
)
def test_bad_rewards_are_named(rewards, message):
    data = srl.Trajectories.from_episodes([episode(3), episode(2)])
    with pytest.raises(ValueError, match=message):
        data.with_rewards(rewards)


def test_episode_is_a_view_with_its_final_observation():
    data = srl.Trajectories.from_episodes([episode(2), episode(3, states=np.arange(4))][1:])
    one = data[0]
    assert (len(one), one.final_observation, one.final_state) == (3, 3.0, 3)
    assert np.shares_memory(one.observations, data.observations)
    for key, message in ((1, "episode 1 of 1"), (np.ones(3, bool), "mask of shape"), ([4], "asked of 1")):
        with pytest.raises(IndexError, match=message):
            data[key]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (episode(rewards=np.array([0, np.nan, 0])), r"rewards\[episode 1, step 1\] is nan.*drop the episode or repair"),
        (episode(observations=np.array([[0.0], [np.inf], [0], [0]])), r"observations\[episode 1, step 1\] holds NaN"),
        (episode(observations=np.array([[0.0], [1], [0], [np.nan]])), r"final_observations\[episode 1\] holds NaN"),
        (episode(actions=np.zeros(2, int)), "2 actions but 3 rewards in episode 1"),
        (episode(observations=np.zeros((6, 1))), "6 observations but 3 rewards in episode 1: expected 3, or 4"),
        (episode(0), "episode 1 is empty"),
        (episode(terminated=np.array([True, False, False])), r"terminated\[episode 1, step 0\] is set before the last"),
        (episode(actions=np.array([0, 7, 0])), r"actions\[episode 1, step 1\] is 7, outside Discrete\(3\)"),
        (episode(observations=np.zeros((4, 2))), r"rows of shape \(1,\) in episode 0 and \(2,\) in 1"),
        (episode(annotations={"event": np.zeros(3)}), "hold different fields.*annotations/event"),
        (episode(annotations={"event": np.zeros(2)}), "2 annotations/event but 3 rewards in episode 1"),
        ({"actions": [0], "rewards": [0]}, "episode 1 has no observations"),
        (episode(rewards=np.zeros((3, 2))), r"rewards has rows of shape \(\) in episode 0 and \(2,\) in 1"),
    ],
)
def test_bad_episodes_are_named(bad, message):
    box = gym.spaces.Box(-np.inf, np.inf, (1,), np.float64)
    with pytest.raises(ValueError, match=message):
        srl.Trajectories.from_episodes([episode(), bad], observation_space=box, action_space=gym.spaces.Discrete(3))


def test_parts_that_do_not_fit_together_are_named():
    one = srl.Trajectories.from_episodes([episode()])
    for other, message in (
        (episode(actions=np.array([0, 1, 2])), "part 1 has action_space"),
        (episode(states=np.arange(3)), r"different fields: \['states'\]"),
    ):
        with pytest.raises(ValueError, match=message):
            srl.Trajectories.concatenate([one, srl.Trajectories.from_episodes([other])])
    for nothing in (srl.Trajectories.concatenate, srl.Trajectories.from_episodes):
        with pytest.raises(ValueError, match="give at least one"):
            nothing([])
    assert one[:0].summary().episodes == 0
