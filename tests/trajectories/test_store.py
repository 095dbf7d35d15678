"""On disk: lossless, all or nothing, refused when damaged, opened in constant time."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from hypothesis import given, settings

import secret_rl as srl
from secret_rl.testing.strategies import trajectories
from secret_rl.trajectories import store


@pytest.fixture
def saved(tmp_path):
    data = srl.collect("secret_rl/Triggers-v0", 50)
    return data, data.save(tmp_path / "mazes")


@settings(max_examples=80)
@given(trajectories())
def test_round_trip_is_lossless(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("store") / "data"
    data.save(path)
    again = srl.Trajectories.load(path, verify=True)
    assert again.equals(data)
    assert again.meta == data.meta
    assert again[len(data) // 2 :].equals(data[len(data) // 2 :])
    resaved = again.save(path.with_name("again"))
    assert srl.Trajectories.load(resaved).equals(data)


def test_files_are_plain_npy(saved):
    data, path = saved
    for file in path.glob("*.npy"):
        assert np.load(file, allow_pickle=False).dtype != object
    np.testing.assert_array_equal(np.load(path / "rewards.npy"), data.rewards)
    header = json.loads((path / "header.json").read_text())
    assert header["episodes"] == 50
    assert header["meta"]["env_id"] == "secret_rl/Triggers-v0"
    assert header["library"] == srl.__version__


def test_loaded_arrays_are_mapped_and_read_only(saved):
    data = srl.Trajectories.load(saved[1])
    assert not data.observations.flags.writeable
    assert not data.observations.flags.owndata
    assert np.shares_memory(data[10:20].rewards, data.rewards)


@pytest.mark.parametrize("name", ["observations", "offsets", "final_states", "annotations.trigger_activated"])
def test_truncated_and_corrupted_files_are_refused_by_name(saved, name):
    data, path = saved
    file = path / f"{name}.npy"
    whole = file.read_bytes()
    for damaged, message in [
        (whole[:-1], "bytes, expected"),
        (whole + b"x", "bytes, expected"),
        (b"garbage!" + whole[8:], "first bytes of"),
        (whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:], "checksum|does not match"),
    ]:
        file.write_bytes(damaged)
        with pytest.raises(srl.StoreError, match=message) as refusal:
            srl.Trajectories.load(path)
        assert name in str(refusal.value)
        assert file.read_bytes() == damaged, "a refused file is left as it was"
    file.unlink()
    with pytest.raises(srl.StoreError, match="is missing"):
        srl.Trajectories.load(path)
    file.write_bytes(whole)
    assert srl.Trajectories.load(path).equals(data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: h.pop("arrays"), "damaged"),
        (lambda h: h.update(format="other"), "says format 'other'"),
        (lambda h: h.update(version=99), "format version 99, this library reads 1"),
        (lambda h: h.update(episodes=51), "expected 5"),
        (lambda h: h["arrays"]["rewards"].update(file="../../etc/passwd"), "outside the store: refused"),
        (lambda h: h["arrays"]["rewards"].update(dtype="|O"), "Python objects in rewards: refused"),
        (lambda h: h["arrays"]["rewards"].update(dtype="<f8"), "bytes, expected"),
        (lambda h: h.update(observation_space={"type": "Nonsense"}), "damaged"),
    ],
)
def test_damaged_headers_are_refused(saved, change, message):
    _, path = saved
    header = json.loads((path / "header.json").read_text())
    change(header)
    (path / "header.json").write_text(json.dumps(header))
    with pytest.raises(srl.StoreError, match=message):
        srl.Trajectories.load(path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe"])
def test_unreadable_headers_are_refused(saved, content):
    (saved[1] / "header.json").write_bytes(content)
    with pytest.raises(srl.StoreError, match=r"header\.json"):
        srl.Trajectories.load(saved[1])


def test_missing_places_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
        srl.Trajectories.load(tmp_path / "nowhere")
    with pytest.raises(srl.StoreError, match=r"has no header\.json"):
        srl.Trajectories.load(tmp_path)


def test_nothing_is_overwritten_unless_asked(saved, tmp_path):
    data, path = saved
    other = srl.collect("secret_rl/Triggers-v0", 5, seed=1)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        other.save(path)
    assert srl.Trajectories.load(path).equals(data)
    other.save(path, overwrite=True)
    assert srl.Trajectories.load(path).equals(other)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match="not a trajectory store"):
        other.save(tmp_path / "mine", overwrite=True)
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "years of work"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mazes", "mine"]


def test_saving_over_the_store_it_is_mapped_from_keeps_it_whole(saved):
    data, path = saved
    srl.Trajectories.load(path)[:10].save(path, overwrite=True)
    assert srl.Trajectories.load(path).equals(data[:10])


def test_a_failed_save_leaves_nothing(tmp_path, monkeypatch):
    data = srl.collect("secret_rl/Triggers-v0", 5)
    with pytest.raises(ValueError, match="JSON"):
        data.with_meta(thing=object()).save(tmp_path / "data")
    assert list(tmp_path.iterdir()) == []

    def no_space_left(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store._ColumnFile, "append", no_space_left)
    with pytest.raises(OSError, match="No space"):
        data.save(tmp_path / "data")
    assert list(tmp_path.iterdir()) == []


def test_a_writer_refuses_rows_of_another_kind(tmp_path):
    data = srl.collect("secret_rl/Triggers-v0", 3)
    writer = store.StoreWriter(tmp_path / "partial")
    writer.append(data)
    with pytest.raises(ValueError, match="other fields"):
        writer.append(srl.collect("FrozenLake-v1", 2))
    writer.discard()
    assert list(tmp_path.iterdir()) == []


def test_opening_does_not_depend_on_the_size(tmp_path):
    """A store a thousand times larger opens as fast: a ratio within one run, with room for noise."""
    small = srl.collect("secret_rl/Triggers-v0", 40).save(tmp_path / "small")
    srl.collect("secret_rl/Triggers-v0", 40_000, out=tmp_path / "large")

    def best(path):
        times = []
        for _ in range(20):
            start = time.perf_counter()
            srl.Trajectories.load(path, verify=False)
            times.append(time.perf_counter() - start)
        return min(times)

    assert best(tmp_path / "large") < 3 * best(small)


def test_reading_a_store_larger_than_the_memory_limit(tmp_path):
    """Batches over the whole of a store while the process may not hold even half of it."""
    path = tmp_path / "large"
    srl.collect("secret_rl/Triggers-v0", 4_000, env_options={"size": 12, "window": None}, out=path)
    size = sum(file.stat().st_size for file in path.glob("*.npy"))
    script = textwrap.dedent(
        """
        import resource, sys
        import secret_rl as srl
        data = srl.Trajectories.load(sys.argv[1], verify=True)
        next(data.batches(16, seed=0))
        def anonymous():
            status = open("/proc/self/status").read()
            return int(status.split("RssAnon:")[1].split()[0]) * 1024
        before = anonymous()
        most = 0
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
        from secret_rl.trajectories import store
        signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs are started with it ignored
        real = store._ColumnFile.append
        def slow(self, rows):
            real(self, rows)
            print("writing", flush=True)
            time.sleep(0.2)
        store._ColumnFile.append = slow
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
