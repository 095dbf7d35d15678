"""On disk: lossless, all or nothing, refused when damaged, opened in constant time."""

import contextlib
import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time
import tracemalloc
import zlib

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sealing import change_json

import secret_rl as srl
from secret_rl import atomic
from secret_rl.files import NpyWriter
from secret_rl.testing.strategies import trajectories
from secret_rl.trajectories import store

ID = "secret_rl/Triggers-v0"


@pytest.fixture
def saved(tmp_path):
    data = srl.collect(ID, 50)
    return data, data.save(tmp_path / "mazes")


def change_array(path, name, change):
    """Change an array of a store, and the checksum with it."""
    array = np.load(path / f"{name}.npy")
    change(array)
    with (path / f"{name}.npy").open("r+b") as file:
        file.seek(256)
        file.write(array.tobytes())
    change_json(path / "header.json", lambda h: h["arrays"][name].update(crc32=zlib.crc32(array.tobytes())))


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
    assert (header["episodes"], header["meta"]["env_id"], header["library"]) == (50, ID, srl.__version__)
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
    for damaged, message in [
        (whole[:-1], "bytes, expected"),
        (whole + b"x", "bytes, expected"),
        (b"garbage!" + whole[8:], "first bytes of"),
        (whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:], "checksum|does not match|offsets end with"),
    ]:
        file.write_bytes(damaged)
        with pytest.raises(srl.files.FileFormatError, match=message) as refusal:
            srl.Trajectories.load(path)
        assert name in str(refusal.value)
        assert file.read_bytes() == damaged, "a refused file is left as it was"
    file.unlink()
    with pytest.raises(srl.files.FileFormatError, match="is missing"):
        srl.Trajectories.load(path)
    file.write_bytes(whole)
    assert srl.Trajectories.load(path).equals(data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: h.pop("arrays"), "KeyError: 'arrays'"),
        (lambda h: h.update(format="other"), "says format 'other'"),
        (lambda h: h.update(version=99), "format version 99, this library reads 1"),
        (lambda h: h.update(episodes=51), "51 episodes, expected 2042 in 50"),
        (lambda h: h["arrays"]["rewards"].update(file="../../etc/passwd"), "outside the folder: refused"),
        (lambda h: h["arrays"]["rewards"].update(dtype="|O"), "rewards.npy holds object: refused"),
        (lambda h: h["arrays"]["rewards"].update(dtype="<f8"), "bytes, expected"),
        (lambda h: h.update(observation_space={"type": "Nonsense"}), "unknown space type 'Nonsense'"),
    ],
)
def test_damaged_headers_are_refused(saved, change, message):
    _, path = saved
    change_json(path / "header.json", change)
    with pytest.raises(srl.files.FileFormatError, match=message):
        srl.Trajectories.load(path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", None])
def test_unreadable_and_missing_headers_are_refused(saved, content):
    (saved[1] / "header.json").unlink()
    if content is not None:
        (saved[1] / "header.json").write_bytes(content)
    with pytest.raises(srl.files.FileFormatError, match=r"header\.json"):
        srl.Trajectories.load(saved[1])


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


def test_a_failed_save_leaves_nothing(tmp_path, monkeypatch):
    data = srl.collect(ID, 5)
    episode = {"observations": np.zeros(2, int), "actions": np.zeros(2, int), "rewards": np.ones(2)}
    nameless = srl.Trajectories.from_episodes([{**episode, "annotations": {"\ud800": np.zeros(2)}}])
    for bad, message in ((data.with_meta(thing=object()), "JSON"), (nameless, "a name that can be written")):
        with pytest.raises(ValueError, match=message):
            bad.save(tmp_path / "data")

    def no_space_left(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(NpyWriter, "append", no_space_left)
    with pytest.raises(OSError, match="No space"):
        data.save(tmp_path / "data")
    assert list(tmp_path.iterdir()) == []


def test_a_writer_refuses_rows_of_another_kind(tmp_path):
    with contextlib.closing(store.StoreWriter(tmp_path)) as writer:
        writer.append(srl.collect(ID, 3))
        with pytest.raises(ValueError, match="other fields"):
            writer.append(srl.collect("FrozenLake-v1", 2))


def test_opening_does_not_depend_on_the_size(tmp_path):
    """A store a thousand times larger opens as fast: a ratio within one run, with some margin for noise."""
    small = srl.collect(ID, 40).save(tmp_path / "small")
    srl.collect(ID, 40_000, out=tmp_path / "large")

    def best(path):
        times = []
        for _ in range(20):
            start = time.perf_counter()
            srl.Trajectories.load(path, verify=False)
            times.append(time.perf_counter() - start)
        return min(times)

    assert best(tmp_path / "large") < 3 * best(small)


@pytest.mark.slow
def test_reading_a_store_larger_than_the_memory_limit(tmp_path):
    """Batches over the whole of a store while the process may not hold even half of it."""
    path = tmp_path / "large"
    srl.collect(ID, 4_000, env_options={"size": 12, "window": None}, out=path)
    size = sum(file.stat().st_size for file in path.glob("*.npy"))
    script = textwrap.dedent(
        """
        import sys
        import secret_rl as srl
        data = srl.Trajectories.load(sys.argv[1], verify=True)
        next(data.batches(16, seed=0))
        def anonymous():
            status = open("/proc/self/status").read()
            return int(status.split("RssAnon:")[1].split()[0]) * 1024
        before, most = anonymous(), 0
        for number, batch in enumerate(data.batches(16, seed=0)):
            if number % 20 == 0:
                most = max(most, anonymous() - before)
        print(most)
        """
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    assert size > 100 << 20
    assert int(done.stdout) < size / 8


@pytest.mark.parametrize("stop_signal", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_save_leaves_the_old_store(saved, stop_signal):
    data, path = saved
    script = textwrap.dedent(
        """
        import signal, sys, time
        import secret_rl as srl
        from secret_rl.files import NpyWriter
        signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs are started with it ignored
        real = NpyWriter.append
        def slow(self, rows):
            real(self, rows)
            print("writing", flush=True)
            time.sleep(0.2)
        NpyWriter.append = slow
        srl.collect("secret_rl/Triggers-v0", 60, seed=9).save(sys.argv[1], overwrite=True)
        """
    )
    child = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "writing\n"
    os.kill(child.pid, stop_signal)
    child.communicate(timeout=60)
    assert child.returncode != 0
    assert srl.Trajectories.load(path).equals(data)
    if stop_signal == signal.SIGINT:
        assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("verify", [None, False, True])
@pytest.mark.parametrize(
    "damage",
    [
        lambda o: o.__setitem__(1, 1 << 30),
        lambda o: o.__setitem__(1, -5),
        lambda o: o.__setitem__(slice(1, 3), o[[2, 1]]),
        lambda o: o.__setitem__(0, 3),
        lambda o: o.__setitem__(2, o[1]),
        lambda o: o.__setitem__(-1, o[-1] + 1),
    ],
)
def test_offsets_that_point_elsewhere_are_refused_although_they_match_their_checksum(saved, damage, verify):
    change_array(saved[1], "offsets", damage)
    with pytest.raises(srl.files.FileFormatError, match="offsets"):
        srl.Trajectories.load(saved[1], verify=verify)


def test_offsets_cannot_be_changed_under_loaded_trajectories(saved):
    data, path = saved
    loaded = srl.Trajectories.load(path)
    change_array(path, "offsets", lambda o: o.__setitem__(1, 1 << 30))
    assert loaded[[0, 1, 2]].equals(data[[0, 1, 2]])


def test_rewards_that_are_not_finite_are_refused(saved):
    _, path = saved
    change_array(path, "rewards", lambda rewards: rewards.__setitem__(7, np.nan))
    with pytest.raises(srl.files.FileFormatError, match=r"rewards\[episode 0, step 7\] is nan"):
        srl.Trajectories.load(path)
    unverified = srl.Trajectories.load(path, verify=False)  # as a large store is opened
    with pytest.raises(ValueError, match="the reward of step 7 of episode 0 is nan"):
        srl.Secret().fit(unverified)


def test_one_flipped_bit_of_a_header_is_noticed(saved):
    header = saved[1] / "header.json"
    assert '"seed": 0' in header.read_text()
    header.write_text(header.read_text().replace('"seed": 0', '"seed": 1'))
    with pytest.raises(srl.files.FileFormatError, match="does not match its checksum"):
        srl.Trajectories.load(saved[1])


_keys = st.text("ab./%X x-1", min_size=1, max_size=4)


@settings(max_examples=30)
@given(st.sets(_keys, min_size=1, max_size=5), st.sets(_keys, max_size=5), st.sets(_keys, max_size=3))
def test_no_two_fields_share_a_file_whatever_they_are_called(tmp_path_factory, annotations, keys, inner):
    """x/y and x.y, x and X, the key "a/b" and b within a: all are kept apart."""
    numbers, box = itertools.count(), gym.spaces.Box(-np.inf, np.inf, (), np.float64)
    space = gym.spaces.Dict(dict.fromkeys({"top", *keys}, box))
    if inner:
        space = gym.spaces.Dict({**space.spaces, "a": gym.spaces.Dict(dict.fromkeys(inner, box))})

    def filled(of):
        if isinstance(of, gym.spaces.Dict):
            return {key: filled(part) for key, part in of.spaces.items()}
        return np.full(2, float(next(numbers)))

    episode = {
        "observations": filled(space), "actions": np.zeros(2, int), "rewards": np.ones(2),
        "annotations": {name: np.full(2, next(numbers)) for name in annotations},
    }  # fmt: skip
    data = srl.Trajectories.from_episodes([episode], observation_space=space)
    path = data.save(tmp_path_factory.mktemp("names") / "data")
    assert srl.Trajectories.load(path).equals(data)
    names = [file.name.casefold() for file in path.iterdir()]
    steps, episodes = data.columns()
    assert len(set(names)) == len(steps) + len(episodes) + 2, "one file each, the offsets and the header"


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_save_killed_at_each_of_its_renames_leaves_one_store_whole(saved, number, monkeypatch):
    """Old to the side, new into place, old to the rubbish: whichever is the last, the store is there."""
    data, path = saved
    other = data[:20]
    real, calls = pathlib.Path.rename, itertools.count(1)

    def killed_after(self, target):
        if next(calls) > number:
            os._exit(9)
        return real(self, target)

    child = os.fork()
    if child == 0:
        monkeypatch.setattr(pathlib.Path, "rename", killed_after)
        with contextlib.suppress(BaseException):
            other.save(path, overwrite=True)
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == (9 if number < 3 else 0)
    assert srl.Trajectories.load(path).equals(data if number == 1 else other)
    data[:3].save(path, overwrite=True)
    assert srl.Trajectories.load(path).equals(data[:3])
    assert [p.name for p in path.parent.iterdir()] == [path.name], "what the killed process left is gone"


def test_a_store_is_found_while_another_process_replaces_it(saved):
    """Between its two renames the store lies beside its path, and whoever replaces it is alive."""
    data, path = saved
    owner = subprocess.Popen(["sleep", "60"])
    beside = path.with_name(f".{path.name}.replaced-{owner.pid}-0")
    try:
        path.rename(beside)
        assert srl.Trajectories.load(path).equals(data)
        atomic.sweep(path)
        assert beside.is_dir(), "its owner lives: nobody else moves or removes it"
    finally:
        owner.kill()
        owner.wait()
    assert srl.Trajectories.load(path).equals(data)
    assert path.is_dir(), "now its owner is gone, and it is back at its place"


def test_a_store_that_is_replaced_while_it_is_read_is_read_again(saved, monkeypatch):
    _, path = saved
    other = srl.collect(ID, 50, seed=3)
    real, replaced = store.map_npy, []

    def replaced_meanwhile(*arguments, **options):
        if not replaced:
            replaced.append(other.save(path, overwrite=True))
        return real(*arguments, **options)

    monkeypatch.setattr(store, "map_npy", replaced_meanwhile)
    assert srl.Trajectories.load(path).equals(other)


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
