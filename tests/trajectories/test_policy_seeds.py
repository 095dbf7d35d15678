"""A policy draws from a stream of its own: its random actions know nothing of the environment's noise."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

import secret_rl as srl
from secret_rl.seeding import episode_seeds, first_vector_seed, policy_seed

FACES, LENGTH = 4, 25


class Dice(gym.Env):
    """Shows a die before each action; noise and actions are drawn by the same call."""

    observation_space = gym.spaces.Discrete(FACES)
    action_space = gym.spaces.Discrete(FACES)

    def __init__(self, draw=lambda rng: rng.integers(FACES)):
        self.draw, self.drawn = draw, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = LENGTH
        return self._die(), {}

    def step(self, action):
        self.left -= 1
        return self._die(), float(action == self.drawn[-2]), False, self.left == 0, {}

    def _die(self):
        self.drawn.append(int(self.draw(self.np_random)))
        return self.drawn[-1]


class Begins:
    """Draws from a generator made of the seed of ``begin``."""

    def begin(self, seed):
        self._rng = np.random.default_rng(seed)

    def __call__(self, observation):
        return int(self._rng.integers(FACES))


def integers(observation, rng):
    return rng.integers(FACES, size=np.shape(observation))


def exploring_dqn():
    sb3 = pytest.importorskip("stable_baselines3")
    model = sb3.DQN("MlpPolicy", Dice(), buffer_size=10, device="cpu")
    model.exploration_rate = 1.0  # actions are samples of its action space
    return model


def assert_unrelated(actions, noise, lags=range(-3, 4)):
    """Actions agree with the noise as often as chance has it, also some steps earlier or later."""
    actions, noise = np.asarray(actions), np.asarray(noise)
    for lag in lags:
        ours = actions[..., max(0, lag) : actions.shape[-1] + min(0, lag)]
        theirs = noise[..., max(0, -lag) : noise.shape[-1] + min(0, -lag)]
        five_sigma = 5 * np.sqrt((1 / FACES) * (1 - 1 / FACES) / ours.size)
        assert abs((ours == theirs).mean() - 1 / FACES) < five_sigma, f"related at lag {lag}"


@pytest.mark.parametrize(
    "policy",
    [lambda: "random", lambda: integers, Begins, exploring_dqn],
    ids=["random", "rng", "begin", "sb3 model"],
)
def test_actions_do_not_follow_the_noise_of_the_environment(policy):
    data = srl.collect(Dice(), 240, policy(), seed=7)
    assert_unrelated(data.actions.reshape(240, LENGTH), data.observations.reshape(240, LENGTH))
    for episode in data[:20]:  # the environment's stream is that of the recorded seed, as before
        env = Dice()
        seen = [env.reset(seed=int(episode.episode_annotations["seed"]))[0]]
        seen += [env.step(action)[0] for action in episode.actions]
        np.testing.assert_array_equal(seen[:-1], episode.observations)


@pytest.mark.parametrize("policy", ["random", integers])
def test_actions_do_not_follow_the_noise_of_vector_envs(policy):
    draw = (lambda rng: rng.random() * FACES) if policy == "random" else (lambda rng: rng.integers(FACES))
    data = srl.collect(SyncVectorEnv([lambda: Dice(draw)] * 3), 300, policy, seed=7)
    assert_unrelated(data.actions.reshape(300, LENGTH), data.observations.reshape(300, LENGTH))


def test_policy_seeds_are_seeds_of_their_own():
    seeds = episode_seeds(0, 0, 5_000).tolist()
    own = [policy_seed(seed) for seed in seeds]
    assert len(set(own)) == len(own) and max(own) < 2**32
    assert not any(seed == other for seed, other in zip(seeds, own, strict=True))
    assert len({first_vector_seed(seed) + env for seed in range(20) for env in range(64)}) == 20 * 64, "own sub-envs"
    for first in map(first_vector_seed, range(500)):
        assert not first <= policy_seed(first) < first + 1024 < 2**32


def test_sampled_actions_do_not_follow_the_noise_of_sb3_envs():
    pytest.importorskip("stable_baselines3")
    actions, noise = [], []
    for seed in range(100):
        envs = srl.sb3.sb3_envs(Dice, 1, seed=seed)
        seen = envs.reset()
        for _ in range(LENGTH - 1):
            actions.append(envs.action_space.sample())
            noise.append(int(seen[0]))
            seen = envs.step(np.array(actions[-1:]))[0]
    shape = 100, LENGTH - 1
    assert_unrelated(np.reshape(actions, shape), np.reshape(noise, shape))
