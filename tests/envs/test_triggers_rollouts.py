"""Compiled rollouts are what the env would have done."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from secret_rl.envs.triggers import RandomEpisodes, TriggersEnv, TriggersOptions
from secret_rl.testing.strategies import triggers_options


@settings(max_examples=40)
@given(triggers_options(), st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=4))
def test_replaying_the_recorded_actions_gives_the_recorded_episode(options, seeds):
    seeds = np.array(seeds, np.uint64)
    episodes = RandomEpisodes(options)
    data = episodes.record(seeds)
    env = TriggersEnv(**vars(options))
    for e, seed in enumerate(seeds.tolist()):
        observation, info = env.reset(seed=seed)
        for row in range(data["offsets"][e], data["offsets"][e + 1]):
            np.testing.assert_array_equal(data["observations"][row], observation)
            assert data["states"][row] == info["state"]
            observation, reward, terminated, truncated, info = env.step(int(data["actions"][row]))
            assert data["rewards"][row] == reward
            assert data["terminated"][row] == terminated
            assert data["truncated"][row] == truncated
            assert data["annotations"]["trigger_activated"][row] == info["trigger_activated"]
        assert terminated or truncated
        np.testing.assert_array_equal(data["final_observations"][e], observation)
        assert data["final_states"][e] == info["state"]


def test_outcomes_are_those_of_the_recorded_episodes():
    seeds = np.arange(5000, dtype=np.uint64)
    episodes = RandomEpisodes(TriggersOptions(triggers=1, prizes=2))
    data = episodes.record(seeds)
    positive = np.logical_or.reduceat(data["rewards"] > 0, data["offsets"][:-1])
    np.testing.assert_array_equal(episodes.outcomes(seeds), positive)
    assert 0 < positive.mean() < 1


def test_ground_truth_equals_a_recount_from_the_states():
    options = TriggersOptions(triggers=3, prizes=2)
    data = RandomEpisodes(options).record(np.arange(2000, dtype=np.uint64))
    following = np.append(data["states"][1:], 0)
    following[data["offsets"][1:] - 1] = data["final_states"]
    left_before, left_after = data["states"] // 64, following // 64
    trigger_bits = 0b111
    lost = (left_before & trigger_bits) != (left_after & trigger_bits)
    np.testing.assert_array_equal(data["annotations"]["trigger_activated"], lost)
    prize_taken = (left_before >> 3) != (left_after >> 3)
    expected = np.where(prize_taken, np.where(left_after & trigger_bits == 0, 1, -1), 0)
    np.testing.assert_array_equal(data["rewards"], expected)


def test_random_actions_are_uniform_and_do_not_repeat_a_pattern():
    data = RandomEpisodes(TriggersOptions()).record(np.arange(20_000, dtype=np.uint64))
    actions = data["actions"].astype(int)
    counts = np.bincount(actions, minlength=4)
    expected = len(actions) / 4
    assert ((counts - expected) ** 2 / expected).sum() < 16.3  # 3 degrees of freedom, p = 0.001
    inside = np.ones(len(actions) - 1, bool)
    inside[data["offsets"][1:-1] - 1] = False
    pairs = np.bincount((actions[:-1] * 4 + actions[1:])[inside], minlength=16)
    expected = inside.sum() / 16
    assert ((pairs - expected) ** 2 / expected).sum() < 37.7  # 15 degrees of freedom, p = 0.001
