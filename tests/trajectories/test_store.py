"""On disk: lossless, all or nothing, refused when damaged, opened in constant time."""

import itertools
import json
import timeit
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sealing import change_json

import secret_rl as srl
from secret_rl.testing.strategies import trajectories
from secret_rl.trajectories import store
from secret_rl.trajectories.nested import map_arrays

ID = "secret_rl/Triggers-v0"


@pytest.fixture
def saved(tmp_path):
    data = srl.collect(ID, 50)
    return data, data.save(tmp_path / "mazes")


@settings(max_examples=50)
@given(trajectories())
def test_round_trip_is_lossless(tmp_path_factory, data):
    path = data.save(tmp_path_factory.mktemp("store") / "data")
    again = srl.Trajectories.load(path, verify=True)
    assert again.equals(data) and again.meta == data.meta and again.fingerprint == data.fingerprint
    assert again[len(data) // 2 :].equals(data[len(data) // 2 :])
    assert srl.Trajectories.load(again.save(path.with_name("again"))).equals(data)


def test_files_are_plain_npy_mapped_and_read_only(saved):
    data, path = saved
    for file in path.glob("*.npy"):
        assert np.load(file, allow_pickle=False).dtype != object
    np.testing.assert_array_equal(np.load(path / "rewards.npy"), data.rewards)
    header = json.loads((path / "header.json").read_text())
    assert (header["meta"]["env_id"], header["library"]) == (ID, srl.__version__)
    loaded = srl.Trajectories.load(path)
    assert not loaded.observations.flags.writeable and not loaded.observations.flags.owndata
    assert np.shares_memory(loaded[10:20].rewards, loaded.rewards)
    other = loaded.with_rewards(lambda rewards: -rewards)
    assert other.observations is loaded.observations
    assert other.fingerprint == data.with_rewards(-data.rewards).fingerprint != loaded.fingerprint


@pytest.mark.parametrize("name", ["observations", "offsets", "final_states", "annotations.trigger_activated"])
def test_truncated_and_corrupted_files_are_refused_by_name(saved, name):
    data, path = saved
    file = path / f"{name}.npy"
    whole = file.read_bytes()
    for damaged, message in (
        (whole[:-1], "bytes, expected"),
        (b"garbage!" + whole[8:], "first bytes of"),
        (whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:], "checksum|does not match|offsets end with"),
        (None, "is missing"),
    ):
        file.unlink() if damaged is None else file.write_bytes(damaged)
        with pytest.raises(srl.files.FileFormatError, match=message) as refusal:
            srl.Trajectories.load(path)
        assert name in str(refusal.value)
    file.write_bytes(whole)
    assert srl.Trajectories.load(path).equals(data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: h.pop("arrays"), "KeyError: 'arrays'"),
        (lambda h: h.update(format="other"), "says format 'other'"),
        (lambda h: h.update(version=99), "format version 99, this library reads 1"),
        (lambda h: h["arrays"]["rewards"].update(file="../../etc/passwd"), "outside the folder: refused"),
        (lambda h: h["arrays"]["rewards"].update(dtype="|O"), "rewards.npy holds object: refused"),
        (lambda h: h["arrays"]["rewards"].update(dtype="<f8"), "bytes, expected"),
        (lambda h: h.update(observation_space={"type": "Nonsense"}), "unknown space type 'Nonsense'"),
    ],
)
def test_damaged_and_missing_headers_are_refused(saved, change, message):
    _, path = saved
    change_json(path / "header.json", change)
    with pytest.raises(srl.files.FileFormatError, match=message):
        srl.Trajectories.load(path)
    (path / "header.json").unlink()
    with pytest.raises(srl.files.FileFormatError, match=r"it has no header\.json"):
        srl.Trajectories.load(path)


def test_nothing_is_overwritten_unless_asked(saved, tmp_path):
    data, path = saved
    other = srl.collect(ID, 5, seed=1)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        other.save(path)
    assert srl.Trajectories.load(path).equals(data)
    other.save(path, overwrite=True)
    srl.Trajectories.load(path)[:3].save(path, overwrite=True)  # over the files that it is mapped from
    assert srl.Trajectories.load(path).equals(other[:3])
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match="not a trajectory store"):
        other.save(tmp_path / "mine", overwrite=True)
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "years of work"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mazes", "mine"]


def test_a_failed_save_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        srl.collect(ID, 5).with_meta(thing=object()).save(tmp_path / "data")
    assert list(tmp_path.iterdir()) == []


def test_blocks_of_another_kind_are_refused(tmp_path):
    blocks = (srl.collect(env, 2) for env in (ID, "FrozenLake-v1"))
    with pytest.raises(ValueError, match="other fields"):
        store.save_blocks(blocks, {}, tmp_path / "data")
    assert list(tmp_path.iterdir()) == []


def test_opening_does_not_depend_on_the_size(tmp_path):
    """A store a thousand times larger opens as fast: a ratio within one run, with some margin for noise."""
    small = srl.collect(ID, 40).save(tmp_path / "small")
    srl.collect(ID, 40_000, out=tmp_path / "large")

    def best(path):
        return min(timeit.repeat(lambda: srl.Trajectories.load(path, verify=False), number=1, repeat=20))

    assert best(tmp_path / "large") < 3 * best(small)


def test_offsets_that_point_elsewhere_are_refused_although_they_match_their_checksum(saved):
    data, path = saved
    loaded, offsets = srl.Trajectories.load(path), np.load(path / "offsets.npy")
    for place, value in ((1, 1 << 30), (1, -5), (0, 3), (2, offsets[1]), (-1, offsets[-1] + 1)):
        damaged = offsets.copy()
        damaged[place] = value
        with (path / "offsets.npy").open("r+b") as file:
            file.seek(256)
            file.write(damaged.tobytes())
        crc = zlib.crc32(damaged.tobytes())
        change_json(path / "header.json", lambda header, crc=crc: header["arrays"]["offsets"].update(crc32=crc))
        with pytest.raises(srl.files.FileFormatError, match="offsets|is empty"):
            srl.Trajectories.load(path, verify=False)
    assert loaded[[0, 1, 2]].equals(data[[0, 1, 2]]), "what was loaded before does not change"


_keys = st.text("ab./%X x-1", min_size=1, max_size=4)


@settings(max_examples=30)
@given(st.sets(_keys, min_size=1, max_size=5), st.sets(_keys, max_size=5), st.sets(_keys, max_size=3))
def test_no_two_fields_share_a_file_whatever_they_are_called(tmp_path_factory, annotations, keys, inner):
    """x/y and x.y, x and X, the key "a/b" and b within a: all are kept apart."""
    numbers = itertools.count()
    rows = map_arrays(lambda _: np.full(2, float(next(numbers))), dict.fromkeys({"top", *keys}))
    if inner:
        rows["a"] = map_arrays(lambda _: np.full(2, float(next(numbers))), dict.fromkeys(inner))
    episode = {
        "observations": rows, "actions": np.zeros(2, int), "rewards": np.ones(2),
        "annotations": {name: np.full(2, next(numbers)) for name in annotations},
    }  # fmt: skip
    data = srl.Trajectories.from_episodes([episode])
    path = data.save(tmp_path_factory.mktemp("names") / "data")
    assert srl.Trajectories.load(path).equals(data)
    names = [file.name.casefold() for file in path.iterdir()]
    assert len(set(names)) == len(data.columns()) + 2, "one file each, the offsets and the header"


def test_a_store_that_is_gone_just_after_it_was_found_is_looked_for_again(saved, monkeypatch):
    data, path = saved
    gone = iter([path.with_name("gone")] * 3)
    monkeypatch.setattr(store, "find_folder", lambda path: next(gone, path))
    assert srl.Trajectories.load(path).equals(data)
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
        srl.Trajectories.load(path.with_name("nowhere"))


def test_a_header_of_a_kilobyte_does_not_fill_the_memory(saved):
    _, path = saved
    box = {"type": "Box", "low": 0, "high": 255, "shape": [1 << 15, 1 << 15], "dtype": "float64"}
    for space in (box, {"type": "Tuple", "spaces": [box]}, {**box, "shape": [1 << 62, 4]}):
        change_json(path / "header.json", lambda h, space=space: h.update(observation_space=space))
        tracemalloc.start()
        with pytest.raises(srl.files.FileFormatError):
            srl.Trajectories.load(path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
        tracemalloc.stop()
