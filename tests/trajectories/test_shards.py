"""Shards: appended by several processes, read as one store while they grow, streamed, compressed, and learned from."""

import itertools
import pickle
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.quick import quick_fits

import secret_rl as srl
from secret_rl.files import FileFormatError, joined_crc32
from secret_rl.testing.strategies import trajectories
from secret_rl.trajectories import rollouts, shards, store, stored

ID = "secret_rl/Triggers-v0"
MAZE = {"size": 4, "triggers": 1, "prizes": 1, "max_steps": 12}


def pictures(episodes, seed=0):
    """Episodes of pictures, of which one decides the last reward."""
    rng = np.random.default_rng(seed)
    made = []
    for length in rng.integers(5, 12, episodes):
        seen, actions, rewards = rng.integers(0, 3, (length, 20, 20, 3), np.uint8), rng.integers(2, size=length), None
        seen[0, 0, 0], seen[-1, -1, -1] = 255, 255
        rewards = np.append(np.zeros(length - 1), actions[0] * 2.0 - 1)
        made.append({"observations": seen, "actions": actions, "rewards": rewards, "terminated": True})
    spaces = {"observation_space": gym.spaces.Box(0, 255, (20, 20, 3), np.uint8)}
    return srl.Trajectories.from_episodes(made, **spaces, action_space=gym.spaces.Discrete(2))


@pytest.fixture
def three(tmp_path):
    """Pictures in memory, and the same in three shards, two of them compressed."""
    data = pictures(60)
    for number, part in enumerate((data[:25], data[25:26], data[26:])):
        part.save(tmp_path / "shards" / f"a-{number}", compress=number != 1)
    return data, tmp_path / "shards"


@settings(max_examples=15)
@given(trajectories(max_episodes=6), st.lists(st.integers(0, 6), max_size=3), st.booleans(), st.data())
def test_shards_are_one_store_whatever_they_hold(tmp_path_factory, data, cuts, compress, draw):
    """The same episodes, selections, fingerprint and episodes one by one as of the whole; large rows stay on disk."""
    folder = tmp_path_factory.mktemp("shards")
    ends = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored, "LARGE_ROW", 8)
        patch.setattr(store, "is_large", lambda shape, dtype, least=8: stored.is_large(shape, dtype, least))
        for number, (first, last) in enumerate(itertools.pairwise(ends)):
            data[first:last].save(folder / f"part-{number}", compress=compress)
        loaded = srl.Trajectories.load(folder, verify=True)
        assert loaded.equals(data) and loaded.fingerprint == data.fingerprint and loaded.meta == data.meta
        chosen = draw.draw(st.lists(st.integers(-len(data), len(data) - 1), max_size=8))
        first = draw.draw(st.integers(0, len(data)))
        assert loaded[chosen].equals(data[chosen]) and loaded[first:].equals(data[first:])
        spaces = {kind: getattr(data, kind) for kind in ("observation_space", "action_space")}
        assert srl.Trajectories.from_episodes(list(loaded), **spaces).equals(data)
        assert srl.Trajectories.load(loaded.save(folder / "again", compress=compress)).equals(data)


def test_pictures_stay_on_disk_and_are_a_fraction_of_their_size(three):
    data, path = three
    loaded = srl.Trajectories.load(path)
    assert isinstance(loaded.observations, stored.StoredRows) and isinstance(loaded[3].observations, np.ndarray)
    assert np.array_equal(loaded.observations == 255, data.observations == 255), "arithmetic reads it"
    assert np.array_equal(loaded.observations[-1], data.observations[-1])
    sent = pickle.loads(pickle.dumps(loaded))  # to a process that opens the same files
    assert sent.equals(data) and len(pickle.dumps(loaded)) < data.observations.nbytes / 10
    size = sum(file.stat().st_size for file in (path / "a-0").glob("observations*"))
    assert size < 0.35 * data[:25].observations.nbytes


def test_damage_is_found_when_a_row_is_read_and_a_replaced_file_is_not_read(three):
    data, path = three
    loaded, packed = srl.Trajectories.load(path), path / "a-2" / "observations.npy"
    whole = packed.read_bytes()
    packed.write_bytes(whole[:-40] + bytes([whole[-40] ^ 16]) + whole[-39:])
    assert loaded[:50].equals(data[:50])
    with pytest.raises(FileFormatError, match=r"observations\.npy is damaged"):
        loaded[[59]]
    with pytest.raises(FileFormatError, match=r"observations\.npy"):
        srl.Trajectories.load(path, verify=True)
    data[:3].save(path / "a-1", overwrite=True)
    with pytest.raises(FileFormatError, match="replaced after it was opened"):
        loaded[[25]]
    other = srl.collect(ID, 5)
    other.save(path / "b")
    with pytest.raises(FileFormatError, match="another observation_space than"):
        srl.Trajectories.load(path)


def test_batches_are_every_episode_once_in_an_order_that_the_seed_decides(three, monkeypatch):
    data, path = three
    monkeypatch.setattr("secret_rl.trajectories.streaming._BLOCK_BYTES", 40_000)
    loaded, how = srl.Trajectories.load(path), {"size": 7, "buffer": 200_000}
    number_of = {episode.observations.tobytes(): number for number, episode in enumerate(data)}

    def order(**options):
        return [[number_of[e.observations.tobytes()] for e in batch] for batch in loaded.batches(**how, **options)]

    drawn = order(seed=3)
    flat = [number for batch in drawn for number in batch]
    assert sorted(flat) == list(range(60)) and [len(batch) for batch in drawn] == [7] * 8 + [4]
    assert order(seed=3) == drawn != order(seed=[3, 1]) and order() == [
        list(range(60))[i : i + 7] for i in range(0, 60, 7)
    ]
    for start in (0, 1, 4, 8, 9):
        assert order(seed=3, start=start) == drawn[start:]
    assert np.abs(np.corrcoef(flat, np.arange(60))[0, 1]) < 0.5
    stream = loaded.batches(7, seed=0)
    next(stream)
    stream.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ThreadPoolExecutor")]


@pytest.mark.slow
def test_a_fit_on_shards_is_the_fit_in_memory_to_the_bit(three, monkeypatch):
    data, path = three
    quick_fits(monkeypatch, updates=20, batch=64)
    monkeypatch.setattr("secret_rl.credit.secret.fit._NOTHING_OPEN", 0.0)
    fits = [
        srl.Secret(device="cpu", units=8, filters=(2,), steps=20, batch_size=8, validation=0.2).fit(
            these, progress=False
        )
        for these in (data, srl.Trajectories.load(path))
    ]
    first, second = (fit.model.state_dict() for fit in fits)
    assert all(bool((first[name] == second[name]).all()) for name in first)
    credit = [
        fit.attribute(these, decided=True, progress=False)
        for fit, these in zip(fits, (data, srl.Trajectories.load(path)), strict=True)
    ]
    assert len(credit[0]) > 0 and np.array_equal(credit[0].weights, credit[1].weights)


def test_processes_append_while_others_read_and_an_interruption_loses_nothing(tmp_path, monkeypatch):
    """Each name holds what a collection of its own gives, in shards; what is complete is readable meanwhile."""
    monkeypatch.setattr(shards, "_SHARD_BYTES", 20_000)
    monkeypatch.setattr(rollouts, "_BLOCK_BYTES", 4_000)
    monkeypatch.setattr(store, "_SECONDS_BETWEEN_COMMITS", 0.0)
    out, how = tmp_path / "mazes", {"env_options": MAZE}
    alone = [srl.collect(ID, 150, seed=seed, **how) for seed in (1, 2)]

    seen = []

    def interrupted(text, done, total):
        if done >= 80:
            seen.append(srl.Trajectories.load(out))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        srl.collect(ID, 150, seed=1, out=out, shard="one", progress=interrupted, **how)
    assert 0 < len(seen[0]) <= 80 and seen[0].equals(alone[0][: len(seen[0])])
    with ThreadPoolExecutor(2) as pool:
        calls = [
            pool.submit(srl.collect, ID, 150, seed=s, out=out, shard=n, **how) for s, n in ((1, "one"), (2, "two"))
        ]
        assert all(call.result().equals(data) for call, data in zip(calls, alone, strict=True))
    whole = seen[0].refreshed()
    assert whole[: len(seen[0])].equals(seen[0]) and len(whole) == 300 and len(whole.shards) > 4
    assert whole.meta["drawn"] == alone[0].meta["drawn"] + alone[1].meta["drawn"] and "seed" not in whole.meta
    found = {bytes(episode.observations) + episode.rewards.tobytes() for episode in whole}
    assert found == {bytes(e.observations) + e.rewards.tobytes() for data in alone for e in data}
    assert srl.collect(ID, 150, seed=2, out=out, shard="two", **how).equals(alone[1]), "it is done: nothing is added"
    assert sorted(path.name for path in out.iterdir()) == sorted(path.name for path in whole.shards)
    with pytest.raises(ValueError, match="'one'.* were collected with seed 1, too"):
        srl.collect(ID, 50, seed=1, out=out, shard="three", **how)
    with pytest.raises(srl.files.ResumeError, match="episodes was 150, now 50"):
        srl.collect(ID, 50, seed=1, out=out, shard="one", **how)
    with pytest.raises(FileExistsError, match="not a trajectory store"):
        srl.collect(ID, 50, seed=3, out=out, overwrite=True)
    with pytest.raises(ValueError, match="give one of them"):
        srl.collect(ID, 50, seed=3, out=out, shard="three", overwrite=True)


@given(st.binary(max_size=40), st.binary(max_size=3_000))
def test_checksums_are_joined(first, second):
    assert joined_crc32(zlib.crc32(first), zlib.crc32(second), len(second)) == zlib.crc32(first + second)
