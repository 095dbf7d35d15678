"""Which pick-up opened which door: as the rules of the real world say."""

import gymnasium as gym
import numpy as np
import pytest

import secret_rl as srl
from secret_rl.envs.keys_doors import Wanderer, door_causes
from secret_rl.trajectories import Trajectories

pytest.importorskip("vizdoom")


def told(picked, opened):
    return {
        "observations": np.zeros(len(picked), np.int64), "actions": np.zeros(len(picked), np.int64),
        "rewards": np.asarray(opened, float), "terminated": True,
        "annotations": {"key_picked": np.asarray(picked), "door_opened": np.asarray(opened)},
    }  # fmt: skip


def test_the_latest_pick_up_of_the_colour_in_the_same_episode():
    data = Trajectories.from_episodes(
        [
            told([0, 2, 0, 0, 0, 0], [0, 0, 0, 2, 0, 0]),
            told([0, 0, 0, 0], [0, 0, 2, 0]),  # a key of the episode before does not count
            told([1, 0, 3, 0, 1, 0, 0], [0, 0, 0, 3, 0, 0, 1]),
        ]
    )
    whole = [-1, -1, -1, 1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 2, -1, -1, 4]
    assert door_causes(data).tolist() == whole
    assert door_causes(data[1:]).tolist() == whole[6:], "a slice is a view into longer arrays"


def test_data_of_other_worlds_is_refused():
    data = srl.collect("secret_rl/Triggers-v0", 3)
    with pytest.raises(ValueError, match="no annotation door_opened and no key_picked"):
        door_causes(data)


def test_in_the_real_world_the_key_of_each_door_is_held_from_its_cause_on():
    with gym.make("secret_rl/KeysDoors-v0", preset="3x3", size=(16, 12), max_steps=400) as env:
        data = srl.collect(env, 6, Wanderer(env), seed=3)
    causes, opened = door_causes(data), data.annotations["door_opened"]
    assert (opened > 0).sum() >= 5
    assert ((causes >= 0) == (opened > 0)).all()
    starts = np.repeat(data.offsets[:-1], data.lengths)
    held, picked = data.annotations["held_key"], data.annotations["key_picked"]
    for step in np.flatnonzero(opened):
        cause = starts[step] + causes[step]
        assert picked[cause] == opened[step]
        assert (held[cause:step] == opened[step]).all() and held[step] == 0
