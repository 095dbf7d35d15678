"""Evaluations of deep agents, and the curves that keep them."""

from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import sb3_contrib as contrib
import stable_baselines3 as sb3
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from tests.sb3.deep_tasks import SMALL, Hallway, Patience, agent_in

from secret_rl.sb3 import DeepCurve, evaluate, train


@pytest.fixture(scope="module")
def model():
    return agent_in(sb3.DQN, Patience())


@pytest.mark.parametrize(("n", "episodes"), [(1, 3), (3, 7), (5, 2)])
def test_sums_of_rewards(model, n, episodes):
    """A reward of 1 for each of L steps: a return of L, discounted (1 - discount^L) / (1 - discount)."""
    first, again, other = (
        evaluate(model, DummyVecEnv([Patience] * n), episodes, discount=0.9, seed=seed) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first.returns, first.lengths)
    np.testing.assert_allclose(first.discounted, (1 - 0.9**first.lengths) / (1 - 0.9))
    assert len(first.lengths) == episodes and first.lengths.dtype == np.int64
    np.testing.assert_array_equal(first.lengths, again.lengths)
    assert not np.array_equal(first.lengths, other.lengths)


def test_long_episodes_count_as_much_as_short_ones(model):
    """Those that end first would give a mean of 1, not of 50.5."""
    envs = DummyVecEnv([lambda: Patience(1, shortest=1), lambda: Patience(100, shortest=100)])
    assert sorted(evaluate(model, envs, 4, discount=1.0, seed=0).lengths) == [1, 1, 100, 100]


class Masked(Patience):
    """Action 2 is never allowed."""

    def action_masks(self):
        return np.array([True, True, False])


def actions_taken(model, make, epsilon):
    """What is done in some evaluations, which leave the generators that training draws from as they are."""
    envs = DummyVecEnv([make] * 4)
    envs.action_space.seed(3)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    evaluate(model, envs, 20, discount=1.0, seed=0, epsilon=epsilon)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    drawn = envs.action_space.sample()
    envs.action_space.seed(3)
    assert drawn == envs.action_space.sample()
    return np.concatenate([env.actions for env in envs.envs])


def test_actions_are_the_best_known_ones_or_random_ones_and_masks_are_kept_to(model):
    best = model.predict(np.zeros((1, 1), np.float32), deterministic=True)[0][0]
    masked = agent_in(contrib.MaskablePPO, Masked(), n_steps=8, batch_size=8)
    for epsilon, share in ((0.0, 1), (0.5, 2 / 3), (1.0, 1 / 3)):
        taken = actions_taken(model, lambda: Patience(50), epsilon)
        assert (taken == best).mean() == pytest.approx(share, abs=0.1 if epsilon else 0)
        taken = actions_taken(masked, lambda: Masked(50), epsilon)
        assert 2 not in taken and len(taken) > 30
    assert len(train(contrib.MaskablePPO, Masked, 32, n_envs=2, n_steps=8, batch_size=8, **SMALL).curve) > 1


def test_recurrent_states_are_handed_on_and_new_at_the_start_of_episodes():
    seen = []

    def predict(observations, state, episode_start, deterministic):
        seen.append((state, episode_start.tolist()))
        return np.zeros(2, np.int64), len(seen)

    model = SimpleNamespace(predict=predict, get_vec_normalize_env=lambda: None)
    evaluate(model, DummyVecEnv([Hallway] * 2), 4, discount=1.0, seed=0)
    assert [state for state, _ in seen] == [None, *range(1, 12)]
    assert [started for _, started in seen] == [[step % 6 == 0] * 2 for step in range(12)]


def test_observations_are_normalised_as_in_training():
    class Large(Hallway):
        observation_space = gym.spaces.Box(-1e6, 1e6, (4,), np.float32)

        def _seen(self):
            return super()._seen() * 1e5

    shaping = {"shaping": lambda envs, _: VecNormalize(envs)}
    trained = train(sb3.PPO, Large, 1600, n_envs=4, n_steps=16, batch_size=32, learning_rate=0.01, **shaping, **SMALL)
    assert trained.curve.returns[-1].mean() == 1


def test_the_area_under_a_curve():
    """Evaluations need not be equally far apart: (10 * 1 + 30 * 4) / 40."""
    means, of_training = np.array([[0.0, 0.0], [1.0, 3.0], [5.0, 7.0]]), [np.zeros(0)] * 4
    curve = DeepCurve(np.array([0, 10, 40]), means, 2 * means, np.ones((3, 2)), *of_training, seed=0, discount=0.95)
    assert curve.area() == pytest.approx((10 * 1 + 30 * 4) / 40)
    assert curve.area("discounted") == pytest.approx(2 * curve.area()) and len(curve) == 3
