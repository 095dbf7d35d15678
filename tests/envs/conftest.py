"""Environments that are closed when their test ends."""

import sys

import gymnasium as gym
import pytest
from tests.envs import dmlab_fake


@pytest.fixture
def make_env():
    """``gymnasium.make``."""
    made = []

    def make(env_id, **options):
        made.append(gym.make(env_id, **options))
        return made[-1]

    yield make
    for env in made:
        env.close()


@pytest.fixture
def lab(monkeypatch):
    """The stand-in for DeepMind Lab, in its place."""
    monkeypatch.setitem(sys.modules, "deepmind_lab", fake := dmlab_fake.module())
    return fake.Lab
