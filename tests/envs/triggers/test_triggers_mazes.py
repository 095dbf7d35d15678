"""Compiled rollouts of random play are what the env would have done."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from secret_rl.envs.triggers import RandomEpisodes, TriggersEnv, TriggersOptions
from secret_rl.testing.strategies import triggers_options


@given(triggers_options(), st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=4))
def test_replaying_the_recorded_actions_gives_the_recorded_episode(options, seeds):
    data = RandomEpisodes(options).record(np.array(seeds, np.uint64))
    env = TriggersEnv(**vars(options))
    for e, seed in enumerate(seeds):
        observation, info = env.reset(seed=seed)
        for row in range(data["offsets"][e], data["offsets"][e + 1]):
            np.testing.assert_array_equal(data["observations"][row], observation)
            assert data["states"][row] == info["state"]
            observation, reward, terminated, truncated, info = env.step(int(data["actions"][row]))
            recorded = [data[name][row] for name in ("rewards", "terminated", "truncated")]
            assert recorded == [reward, terminated, truncated]
            assert data["annotations"]["trigger_activated"][row] == info["trigger_activated"]
        assert terminated or truncated
        np.testing.assert_array_equal(data["final_observations"][e], observation)
        assert data["final_states"][e] == info["state"]


def test_outcomes_are_those_of_the_recorded_episodes():
    seeds, episodes = np.arange(5000, dtype=np.uint64), RandomEpisodes(TriggersOptions(triggers=1, prizes=2))
    data = episodes.record(seeds)
    positive = np.logical_or.reduceat(data["rewards"] > 0, data["offsets"][:-1])
    np.testing.assert_array_equal(episodes.outcomes(seeds), positive)
    assert 0 < positive.mean() < 1


def test_random_actions_are_uniform_and_do_not_repeat_a_pattern():
    data = RandomEpisodes(TriggersOptions()).record(np.arange(20_000, dtype=np.uint64))
    actions = data["actions"].astype(int)
    within = np.ones(len(actions) - 1, bool)
    within[data["offsets"][1:-1] - 1] = False  # not from one episode to the next
    pairs = (actions[:-1] * 4 + actions[1:])[within]
    for values, kinds, chi_square in ((actions, 4, 16.3), (pairs, 16, 37.7)):  # p = 0.001
        counts, expected = np.bincount(values, minlength=kinds), len(values) / kinds
        assert ((counts - expected) ** 2 / expected).sum() < chi_square
