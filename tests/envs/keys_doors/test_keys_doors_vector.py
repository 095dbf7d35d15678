"""Worlds side by side in processes of their own play what single worlds play with the same seeds."""

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode

pytest.importorskip("vizdoom")
SEED, STEPS = 11, 50
# "secret_rl:" has new processes import the package, which registers the environment; two episodes end in these steps
MAKE = partial(gym.make, "secret_rl:secret_rl/KeysDoors-v0", preset="dmlab-like", size=(40, 30), max_steps=20)
ACTIONS = np.random.default_rng(0).choice([0, 0, 0, 2, 3], (STEPS, 2))


def alone(seed, actions):
    """Observation, reward, end and state of each step; an episode's last observation gives way to the next's first."""
    env = MAKE()
    observation, info = env.reset(seed=seed)
    rows = [(observation, 0.0, False, info["state"])]
    for action in actions.tolist():
        observation, reward, terminated, truncated, info = env.step(action)
        over, state = terminated or truncated, info["state"]
        if over:
            observation, _ = env.reset()
        rows.append((observation, reward, over, state))
    env.close()
    return [np.array(column) for column in zip(*rows, strict=True)]


def assert_same(played):
    """``played`` holds (observations, rewards, ends, states) of both worlds at each step."""
    for i in (0, 1):
        expected = alone(SEED + i, ACTIONS[:, i])
        assert expected[2].sum() == 2
        for ours, column in zip(expected, zip(*played, strict=True), strict=True):
            np.testing.assert_array_equal(np.array([row[i] for row in column]), ours)


def test_gymnasiums_vector_environment():
    envs = AsyncVectorEnv([MAKE] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    observations, infos = envs.reset(seed=SEED)
    played = [(observations.copy(), np.zeros(2), np.zeros(2, bool), infos["state"])]
    for actions in ACTIONS:
        observations, rewards, terminated, truncated, infos = envs.step(actions)
        over = terminated | truncated
        states = [infos["final_info"]["state"][i] if over[i] else infos["state"][i] for i in (0, 1)]
        played.append((observations.copy(), rewards.copy(), over.copy(), states))
    envs.close()
    assert_same(played)


def test_stable_baselines3s_vector_environment():
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
    envs = vec_env.SubprocVecEnv([MAKE] * 2)
    envs.seed(SEED)
    observations = envs.reset()
    played = [(observations, np.zeros(2), np.zeros(2, bool), [info["state"] for info in envs.reset_infos])]
    for actions in ACTIONS:
        observations, rewards, over, infos = envs.step(actions)
        played.append((observations, rewards, over, [info["state"] for info in infos]))
    envs.close()
    assert_same(played)
