"""Minari data sets, in and out, with the real library on the other side."""

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import assume, given, settings

import secret_rl as srl
from secret_rl.testing.strategies import trajectories

minari = pytest.importorskip("minari")

ID = "secret_rl/Triggers-v0"


def test_minari_reads_what_we_write_and_a_round_trip_is_equal_bit_for_bit(minari_home, tmp_path):
    data = srl.collect(ID, 300, success_share=0.05, env_options={"window": 5})
    srl.minari.to_minari(data, "triggers/random-v0", author="me", description="random play")
    again = srl.minari.from_minari("triggers/random-v0")
    assert again.equals(data) and again.meta == data.meta
    assert srl.minari.from_minari("triggers/random-v0", out=tmp_path / "data").equals(data)
    assert srl.Trajectories.load(tmp_path / "data", verify=True).equals(data)
    dataset = minari.load_dataset("triggers/random-v0")  # by plain Minari
    assert (dataset.total_episodes, dataset.observation_space) == (300, data.observation_space)
    for theirs, ours in zip(dataset.iterate_episodes(), data, strict=True):
        np.testing.assert_array_equal(theirs.observations[:-1], ours.observations)
        np.testing.assert_array_equal(theirs.observations[-1], ours.final_observation)
        np.testing.assert_array_equal(theirs.rewards, ours.rewards)
        assert theirs.terminations[-1] == ours.terminated
        np.testing.assert_array_equal(theirs.infos["state"][:-1], ours.states)
        np.testing.assert_array_equal(theirs.infos["trigger_activated"][1:], ours.annotations["trigger_activated"])


def test_images_stay_lossless(minari_home):
    frames = np.random.default_rng(0).integers(0, 256, (6, 48, 48, 3), dtype=np.uint8)
    episode = {"observations": frames, "actions": np.zeros(5, int), "rewards": np.zeros(5)}
    data = srl.Trajectories.from_episodes([episode])
    srl.minari.to_minari(data, "images/noise-v0")
    assert srl.minari.from_minari("images/noise-v0").equals(data)


@settings(max_examples=15)
@given(data=trajectories(max_episodes=3))
def test_any_spaces_and_fields_survive_minari(minari_home, data):
    name = "any/thing-v0"
    assume("'.':" not in f"{data.observation_space}{data.action_space}")
    if name in minari.list_local_datasets():
        minari.delete_dataset(name)
    srl.minari.to_minari(data, name)
    assert srl.minari.from_minari(minari.load_dataset(name)).equals(data)


@pytest.mark.parametrize("name", [".", "a/b"])
def test_names_that_are_paths_are_refused(minari_home, name):
    space = gym.spaces.Tuple((gym.spaces.Dict({name: gym.spaces.Discrete(2)}),))
    episode = {"observations": ({name: np.zeros(3, int)},), "actions": np.zeros(2, int), "rewards": np.zeros(2)}
    data = srl.Trajectories.from_episodes([episode], observation_space=space, action_space=gym.spaces.Discrete(2))
    with pytest.raises(ValueError, match="Minari cannot store 'observations/0/.*rename the entry"):
        srl.minari.to_minari(data, "a/path-v0")
    assert "a/path-v0" not in minari.list_local_datasets()


def test_data_sets_made_by_minari_itself_are_read(minari_home):
    from minari.data_collector import EpisodeBuffer

    buffers = [
        EpisodeBuffer(
            observations=np.random.default_rng(n).normal(size=(n + 1, 2)).astype(np.float32),
            actions=np.zeros(n, np.int64),
            rewards=np.arange(n, dtype=np.float64),
            terminations=np.arange(n) == n - 1,
            truncations=np.zeros(n, bool),
            infos={"speed": np.arange(n + 1.0), "note": ["x"] * (n + 1), "state": np.arange(n + 1)},
        )
        for n in (3, 5)
    ]
    spaces = {"observation_space": gym.spaces.Box(-9, 9, (2,)), "action_space": gym.spaces.Discrete(2)}
    minari.create_dataset_from_buffers("made/elsewhere-v0", buffers, data_format="hdf5", **spaces)
    with pytest.warns(UserWarning, match=r"left out: \['note'\]"):
        data = srl.minari.from_minari("made/elsewhere-v0")
    assert data.lengths.tolist() == [3, 5]
    np.testing.assert_array_equal(data[0].annotations["speed"], [1, 2, 3])
    np.testing.assert_array_equal(data[1].states, np.arange(5))
    assert data[1].final_state == 5
    assert data.meta == {"minari_id": "made/elsewhere-v0"}


def test_minari_refuses_to_write_twice_and_a_failure_leaves_nothing(minari_home):
    data = srl.collect(ID, 3)
    srl.minari.to_minari(data, "triggers/once-v0")
    with pytest.raises(FileExistsError, match="once-v0"):
        srl.minari.to_minari(data, "triggers/once-v0")
    broken = data.with_meta(nonsense=object())
    with pytest.raises(TypeError):
        srl.minari.to_minari(broken, "triggers/broken-v0")
    assert list(minari.list_local_datasets()) == ["triggers/once-v0"]
