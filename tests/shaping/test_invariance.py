"""Shaping changes no optimal policy: exact solutions of tasks that are read off the real wrapper."""

import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.shaping.mdps import MdpEnv, is_clear, random_mdp
from tests.shaping.playing import changed_states

from secret_rl.shaping import PotentialShaping, TablePotential
from secret_rl.testing.shaping import RunningSum

seeds = st.integers(0, 2**32 - 1)
discounts = st.floats(0.3, 0.95)


class KeepsTerminal(PotentialShaping):
    """The mistake: terminal states keep their potential."""

    def __init__(self, *args):
        super().__init__(*args)
        rewards = self._shaper.rewards
        self._shaper.rewards = lambda phi, following, terminated, truncated: rewards(
            phi, following, truncated & False, truncated
        )


def random_table(seed, states):
    return TablePotential(dict(enumerate(np.random.default_rng(seed).normal(0, 2, states).tolist())))


@settings(max_examples=200)
@given(seeds, discounts, st.floats(0.1, 3), st.integers(2, 6), st.integers(1, 3))
def test_optimal_actions_are_the_same_set_with_a_table(seed, discount, scale, states, outcomes):
    mdp = random_mdp(seed, states=states, outcomes=outcomes)
    assume(is_clear(mdp, discount))
    env = PotentialShaping(MdpEnv(mdp), random_table(seed, states), discount, scale=scale)
    assert changed_states(mdp, env, discount) == 0


@settings(max_examples=120)
@given(seeds, discounts, st.integers(2, 4))
def test_optimal_actions_are_the_same_set_with_a_potential_of_the_history(seed, discount, states):
    mdp = random_mdp(seed, states=states, actions=2)
    assume(is_clear(mdp, discount))
    rng = np.random.default_rng(seed)
    credit = {pair: 0.25 * int(rng.integers(0, 3)) for pair in np.ndindex(states, 2)}
    env = PotentialShaping(MdpEnv(mdp), RunningSum(credit, cap=1.0), discount)
    assert changed_states(mdp, env, discount, lambda: env._shaper._carry[0][0]) == 0


@pytest.mark.parametrize(("wrapper", "discount"), [(KeepsTerminal, 0.7), (PotentialShaping, 0.5)])
def test_the_check_on_random_tasks_fails_with_a_terminal_potential_or_another_discount(wrapper, discount):
    tasks = [(random_mdp(seed), random_table(seed, 5)) for seed in range(40)]
    assert sum(changed_states(mdp, wrapper(MdpEnv(mdp), table, discount), 0.7) > 0 for mdp, table in tasks) > 10


def values_with_a_time_limit(mdp, potential, discount, truncation, bootstraps):
    """Values that an agent gives to actions if every episode is cut short after one step."""
    env = TimeLimit(MdpEnv(mdp), max_episode_steps=1)
    env = PotentialShaping(env, potential, discount, truncation=truncation)
    values = np.zeros(mdp.rewards.shape[:2])
    for _ in range(400):
        before = values.copy()
        for state, action, outcome in np.ndindex(mdp.rewards.shape):
            if outcome == 0:
                values[state, action] = 0
            env.reset(options={"state": state, "outcomes": [outcome]})
            following, reward, terminated, truncated, _ = env.step(action)
            assert truncated
            ahead = before[following].max() if bootstraps and not terminated else 0.0
            values[state, action] += mdp.probabilities[state, action, outcome] * (reward + discount * ahead)
    return values


def test_time_limits_want_the_choice_that_fits_the_agent():
    mdp, discount = random_mdp(3, states=4, actions=2), 0.8
    potential = random_table(3, 4)
    phi = np.array([potential.values[state] for state in range(4)])[:, None]
    running = ~mdp.terminal
    optimal = mdp.q_values(discount)
    one_step = (mdp.probabilities * mdp.rewards).sum(2)

    def error(truncation, bootstraps):
        found = values_with_a_time_limit(mdp, potential, discount, truncation, bootstraps) + phi
        return np.abs(found - (optimal if bootstraps else one_step))[running].max()

    assert error("keep", bootstraps=True) < 1e-9
    assert error("zero", bootstraps=False) < 1e-9
    assert error("zero", bootstraps=True) > 0.1
    assert error("keep", bootstraps=False) > 0.1
