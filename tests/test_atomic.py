"""Files and folders are whole at every moment, whoever is killed, and nobody takes what another still uses."""

import contextlib
import errno
import fcntl
import itertools
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secret_rl import atomic
from secret_rl.atomic import (
    InUseError,
    Lock,
    check_writable,
    find_folder,
    folder_lock,
    new_folder,
    path_lock,
    put_folder,
    replace_text,
    replacing,
    sweep_folder,
)

TRACED = {atomic.__file__, contextlib.__file__, pathlib.__file__}
AWKWARD = [
    "a[b]*?.json",
    "x.(y)+$^",
    "{}",
    "a b",
    "ümläut",
    ".hidden",
    "-rf",
    "%s",
    "a\\d",
    "new\nline",
    "x.writing-1-1",
]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def write(path, text="new"):
    with replacing(path) as temporary:
        temporary.write_text(text)


def dead_process():
    """A number that no process has any more."""
    child = subprocess.Popen(["true"])
    child.wait()
    return child.pid


@contextlib.contextmanager
def child_process(work):
    """Another process that does something, and is killed at the end at the latest."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)


def kill(child):
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.002)


@contextlib.contextmanager
def at_line(number, act):
    """Does something just before the so-and-so-many-th line that this module or its helpers run."""
    left, before = itertools.count(1), sys.gettrace()

    def trace(frame, event, _):
        if frame.f_code.co_filename not in TRACED:
            return None
        if event == "line" and next(left) == number:
            sys.settrace(None)
            act()
        return trace

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def interrupted_at_line(number, work):
    """Whether Ctrl-C came there, or the work was done before it came that far."""
    try:
        with at_line(number, lambda: signal.raise_signal(signal.SIGINT)):
            work()
    except KeyboardInterrupt:
        return True
    return False


def killed_at_line(number, work):
    """Whether a process was killed there, or had done its work before it came that far."""

    def begin():
        with at_line(number, lambda: os.kill(os.getpid(), signal.SIGKILL)):
            work()

    child = os.fork()
    if child == 0:
        try:
            begin()
            os._exit(0)
        finally:
            os._exit(3)
    status = os.waitpid(child, 0)[1]
    assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL)
    return status != 0


# Files


@pytest.mark.parametrize("name", ["a.json", *AWKWARD])
def test_a_file_appears_when_it_is_whole(tmp_path, name):
    path = tmp_path / "deep" / "deeper" / name
    for text in ("one", "two"):
        before = path.read_text() if path.exists() else None
        with replacing(path) as temporary:
            assert temporary.parent == path.parent and temporary.exists() and temporary != path
            temporary.write_text(text)
            assert (path.read_text() if path.exists() else None) == before
        assert path.read_text() == text and names(path.parent) == [name]
    replace_text(str(path), "thrée")
    assert path.read_text(encoding="utf-8") == "thrée" and names(path.parent) == [name]


@pytest.mark.parametrize("error", [ValueError, OSError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_fails_leaves_the_old_file(tmp_path, error):
    def fail(path):
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise error

    for path in (tmp_path / "old", tmp_path / "new"):
        (tmp_path / "old").write_text("old")
        with pytest.raises(error):
            fail(path)
        assert names(tmp_path) == ["old"] and (tmp_path / "old").read_text() == "old"


def test_an_interrupt_at_any_line_leaves_the_old_or_the_new_file(tmp_path):
    path, seen = tmp_path / "a", set()
    for number in itertools.count(1):
        path.write_text("old")
        if not interrupted_at_line(number, lambda: write(path)):
            break
        seen.add(path.read_text())
        write(path, "next")
        assert path.read_text() == "next" and names(tmp_path) == ["a"], f"at line {number}"
    assert number > 50 and seen == {"old", "new"}


def test_a_kill_at_any_line_leaves_the_old_or_the_new_file(tmp_path):
    path, seen, left_over = tmp_path / "a", set(), 0
    for number in itertools.count(1, 4):  # every fourth: it takes a process each
        path.write_text("old")
        if not killed_at_line(number, lambda: write(path)):
            break
        seen.add(path.read_text())
        left_over += len(names(tmp_path)) > 1
        write(path, "next")
        assert path.read_text() == "next" and names(tmp_path) == ["a"], f"at line {number}"
    assert number > 50 and seen == {"old", "new"} and left_over > 1


def test_a_kill_at_any_time_leaves_a_whole_file(tmp_path):
    path = tmp_path / "a"
    texts = [str(digit) * 300_000 for digit in range(10)]

    def forever():
        for text in itertools.cycle(texts):
            write(path, text)

    pause = random.Random(0)
    write(path, texts[0])
    for _ in range(15):
        with child_process(forever) as child:
            time.sleep(pause.uniform(0.001, 0.03))
            kill(child)
        assert path.read_text() in texts
        assert len(names(tmp_path)) <= 2
    write(path, texts[0])
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("name", ["a.json", *AWKWARD])
@pytest.mark.parametrize("kind", ["writing", "saving", "replaced"])
def test_what_the_dead_left_is_removed(tmp_path, name, kind):
    path = tmp_path / name
    path.write_text("old")
    dead = dead_process()
    (tmp_path / f".{name}.{kind}-{dead}-0").write_text("half")
    (tmp_path / f".{name}.{kind}-{dead}").write_text("half")  # as it was named once
    folder = tmp_path / f".{name}.{kind}-{dead}-7"
    folder.mkdir()
    (folder / "part").write_text("half")
    (tmp_path / f".{name}.{kind}-{10**30}-0").write_text("no process has such a number")
    (tmp_path / f".{name}.{kind}-{os.getpid()}-{10**9}").write_text("of an earlier process of this number")
    write(path)
    assert names(tmp_path) == [name] and path.read_text() == "new"


@given(st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=20), st.data())
def test_names_of_others_are_left_alone(tmp_path_factory, name, data):
    """Whatever characters they hold: neither a pattern nor the start of a name is enough."""
    folder = tmp_path_factory.mktemp("names")
    dead = 10**15
    if name in (".", ".."):
        name += "x"
    others = {
        f".{name}x.writing-{dead}-0", f".x{name}.writing-{dead}-0", f"{name}.writing-{dead}-0", f".{name}.writing-",
        f".{name}.writing-{dead}-0.txt", f".{name}.reading-{dead}-0", f".{name}.x.writing-{dead}-0",
        f".{name}.writing-{dead}-0.writing-{dead}-1", "." * (1 + len(name)) + f".writing-{dead}-0",
    }  # fmt: skip
    others -= {f".{name}.writing-{dead}-0", name}
    for other in others:
        (folder / other).write_text("not yours")
    (folder / f".{name}.writing-{dead}-3").write_text("yours")
    write(folder / name)
    assert names(folder) == sorted({*others, name})


def test_a_temporary_is_safe_while_its_process_lives(tmp_path):
    path = tmp_path / "a"
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        theirs = tmp_path / f".a.writing-{sleeper.pid}-0"
        theirs.write_text("half")
        folder = tmp_path / f".a.saving-{sleeper.pid}-1"
        folder.mkdir()
        write(path)
        assert names(tmp_path) == sorted([theirs.name, folder.name, "a"]) and theirs.read_text() == "half"
        sleeper.kill()
        wait_for(lambda: Path(f"/proc/{sleeper.pid}/stat").read_text().split()[2] == "Z")
        write(path)  # it has ended, though its parent has not asked for its status yet
        assert names(tmp_path) == ["a"]


HOLD = """
import fcntl, sys, time
file = open(sys.argv[1], "r+")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""


@contextlib.contextmanager
def held(path):
    """A file that another process holds locked."""
    with subprocess.Popen([sys.executable, "-c", HOLD, path], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        try:
            yield
        finally:
            holder.kill()


def test_a_temporary_is_safe_while_it_is_locked(tmp_path):
    """Its process may live on another machine, where numbers of processes are others."""
    path, dead = tmp_path / "a", dead_process()
    file = tmp_path / f".a.writing-{dead}-0"
    file.write_text("half")
    folder = tmp_path / f".a.saving-{dead}-1"
    folder.mkdir()
    (folder / ".lock").touch()
    with held(file), held(folder / ".lock"):
        write(path)
        assert names(tmp_path) == sorted([file.name, folder.name, "a"]) and file.read_text() == "half"
        assert names(folder) == [".lock"]
    write(path)
    assert names(tmp_path) == ["a"]


def test_a_temporary_of_another_machine_is_no_hindrance(tmp_path, monkeypatch):
    """Containers count processes from 1: two may have the same number."""
    path = tmp_path / "a"
    monkeypatch.setattr(atomic, "_numbers", itertools.count())
    theirs = tmp_path / f".a.writing-{os.getpid()}-0"
    theirs.write_text("half")
    with held(theirs):
        write(path)
        assert theirs.read_text() == "half" and path.read_text() == "new"


def test_a_temporary_is_safe_while_another_thread_uses_it(tmp_path):
    path = tmp_path / "a"
    begun, go_on = threading.Event(), threading.Event()

    def slowly():
        with replacing(path) as temporary:
            temporary.write_text("slow")
            begun.set()
            assert go_on.wait(20)

    with ThreadPoolExecutor() as pool:
        slow = pool.submit(slowly)
        assert begun.wait(20)
        for text in ("one", "two"):
            write(path, text)
            assert path.read_text() == text and len(names(tmp_path)) == 2
        go_on.set()
        slow.result()
    assert path.read_text() == "slow" and names(tmp_path) == ["a"]


def test_a_temporary_is_safe_from_a_child_process(tmp_path):
    path = tmp_path / "a"
    with replacing(path) as temporary:
        temporary.write_text("parent")
        with child_process(lambda: write(path, "child")) as child:
            os.waitpid(child, 0)
        assert path.read_text() == "child"
    assert path.read_text() == "parent" and names(tmp_path) == ["a"]


def in_threads(work, texts):
    with ThreadPoolExecutor(len(texts)) as pool:
        list(pool.map(work, texts))


def in_processes(work, texts):
    def done(text):
        work(text)
        os._exit(7)

    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(child_process(lambda text=text: done(text))) for text in texts]
        assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [7] * len(texts)


@pytest.mark.parametrize(("in_parallel", "count"), [(in_threads, 8), (in_processes, 4)])
def test_many_write_one_file(tmp_path, in_parallel, count):
    path = tmp_path / "a"
    texts = [str(number) * 100_000 for number in range(count)]

    def often(text):
        for _ in range(15):
            write(path, text)
            assert path.read_text() in texts

    in_parallel(often, texts)
    assert path.read_text() in texts and names(tmp_path) == ["a"]


def test_a_folder_is_swept_of_what_the_dead_left(tmp_path):
    dead = dead_process()
    for name in (f".a.writing-{dead}-0", f".b[c].saving-{dead}-1", "a", ".b", f".a.writing-{os.getppid()}-0"):
        (tmp_path / name).write_text("x")
    sweep_folder(tmp_path)
    assert names(tmp_path) == sorted(["a", ".b", f".a.writing-{os.getppid()}-0"])


def test_what_is_in_the_way_is_an_error_and_leaves_nothing(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        write(tmp_path / "folder")
    (tmp_path / "file").touch()
    with pytest.raises(OSError):
        write(tmp_path / "file" / "below")
    assert names(tmp_path) == ["file", "folder"] and names(tmp_path / "folder") == []


# Folders


def fill(folder, text):
    for name in "abc":
        (folder / name).write_text(text)


def make(path, text, *, overwrite=True):
    with new_folder(path, overwrite=overwrite) as folder:
        fill(folder, text)


def whole(path):
    """What a folder holds, if every part of it is the same."""
    assert names(path) == ["a", "b", "c"]
    (text,) = {(path / name).read_text() for name in "abc"}
    return text


@pytest.mark.parametrize("name", ["a", *AWKWARD])
def test_a_folder_appears_when_it_is_whole(tmp_path, name):
    path = tmp_path / "deep" / name
    with new_folder(path) as folder:
        fill(folder, "old")
        assert not path.exists() and find_folder(path) == path
    assert whole(path) == "old" and names(path.parent) == [name]
    with pytest.raises(FileExistsError, match="exists: choose another name, or pass overwrite=True"):
        make(path, "new", overwrite=False)
    assert whole(path) == "old" and names(path.parent) == [name]
    make(path, "new")
    assert whole(find_folder(path)) == "new" and names(path.parent) == [name]


@pytest.mark.parametrize("error", [ValueError, OSError, KeyboardInterrupt, SystemExit])
def test_what_fails_leaves_the_old_folder(tmp_path, error):
    def fail(path):
        with new_folder(path, overwrite=True) as folder:
            fill(folder, "half")
            raise error

    make(tmp_path / "old", "old")
    for name in ("old", "new"):
        with pytest.raises(error):
            fail(tmp_path / name)
        assert names(tmp_path) == ["old"] and whole(tmp_path / "old") == "old"


def test_a_file_in_place_of_a_folder(tmp_path):
    path = tmp_path / "a"
    path.write_text("file")
    for overwrite in (False, True):
        with pytest.raises(FileExistsError, match="is a file, expected a folder"):
            make(path, "new", overwrite=overwrite)
        assert names(tmp_path) == ["a"] and path.read_text() == "file"


def test_a_rename_that_fails_leaves_the_old_folder(tmp_path, monkeypatch):
    path, rename = tmp_path / "a", Path.rename
    make(path, "old")

    def fail(self, target):
        if ".saving-" in self.name:
            raise OSError(errno.EIO, "disk broken")
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", fail)
        with pytest.raises(OSError, match="disk broken"):
            make(path, "new")
    assert whole(path) == "old" and names(tmp_path) == ["a"]


@pytest.mark.parametrize("before", ["old", None])
def test_a_kill_at_any_line_leaves_the_old_or_the_new_folder(tmp_path, before):
    path, seen = tmp_path / "a", set()
    for number in itertools.count(1, 11):  # every eleventh: it takes a process each
        shutil.rmtree(path, ignore_errors=True)
        if before:
            fill(path.mkdir() or path, before)
        if not killed_at_line(number, lambda: make(path, "new")):
            break
        found = find_folder(path)
        seen.add(whole(found) if found.exists() else None)
        assert found == path, "whoever looks for it puts it in place"
        make(path, "next")
        assert whole(path) == "next" and names(tmp_path) == ["a"], f"at line {number}"
    assert number > 50 and seen == {before, "new"}


def test_an_interrupt_at_any_line_leaves_the_old_or_the_new_folder(tmp_path):
    path, seen = tmp_path / "a", set()
    for number in itertools.count(1):
        shutil.rmtree(path, ignore_errors=True)
        fill(path.mkdir() or path, "old")
        if not interrupted_at_line(number, lambda: make(path, "new")):
            break
        seen.add(whole(find_folder(path)))
        make(path, "next")
        assert whole(path) == "next" and names(tmp_path) == ["a"], f"at line {number}"
    assert number > 50 and seen == {"old", "new"}


def test_a_folder_that_gives_way_is_found_beside_its_path(tmp_path):
    path = tmp_path / "a"
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        beside = tmp_path / f".a.replaced-{sleeper.pid}-0"
        fill(beside.mkdir() or beside, "old")
        assert find_folder(path) == beside and not path.exists(), "whoever replaces it is not done yet"
        sleeper.kill()
    assert find_folder(path) == path and whole(path) == "old" and names(tmp_path) == ["a"]
    assert find_folder(tmp_path / "never was") == tmp_path / "never was"
    assert find_folder(tmp_path / "no" / "where") == tmp_path / "no" / "where"


def read_whole(path):
    """What a folder holds, read through one handle: it may be replaced and deleted meanwhile."""
    try:
        handle = os.open(find_folder(path), os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    try:
        found = []
        for name in "abc":
            with open(os.open(name, os.O_RDONLY, dir_fd=handle)) as file:  # noqa: PTH123
                found.append(file.read())
    except FileNotFoundError:  # being deleted
        return None
    finally:
        os.close(handle)
    (text,) = set(found)
    return text


def test_two_processes_replace_a_folder_while_a_third_reads(tmp_path):
    path, end = tmp_path / "a", tmp_path / "end"
    make(path, "00" * 2500)

    def often(digit):
        for number in itertools.count():
            make(path, f"{digit}{number % 10}" * 2500)
            if end.exists():
                os._exit(7)

    seen, stop = [], time.monotonic() + 60
    with child_process(lambda: often(1)) as one, child_process(lambda: often(2)) as two:
        while len(seen) < 500 or len({text[:2] for text in seen}) < 10:
            assert time.monotonic() < stop, f"{len(seen)} times read in a minute"
            if (text := read_whole(path)) is not None:
                assert len(text) == 5000 and text == text[:2] * 2500, "whole"
                seen.append(text)
        end.touch()
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in (one, two)]
    assert codes == [7, 7] and {text[0] for text in seen} >= {"1", "2"}
    end.unlink()
    assert len(whole(path)) == 5000 and names(tmp_path) == ["a"]


def test_processes_that_are_killed_while_they_replace_each_others_folder(tmp_path):
    path, pause = tmp_path / "a", random.Random(1)
    make(path, "00" * 1000)

    def forever(digit):
        for number in itertools.count():
            make(path, f"{digit}{number % 10}" * 1000)

    for _ in range(10):
        with child_process(lambda: forever(1)) as one, child_process(lambda: forever(2)) as two:
            time.sleep(pause.uniform(0.005, 0.05))
            kill(one)
            time.sleep(pause.uniform(0, 0.01))
            kill(two)
        assert len(whole(find_folder(path))) == 2000
    make(path, "end")
    assert whole(path) == "end" and names(tmp_path) == ["a"]


def test_a_folder_that_was_made_elsewhere_is_put_in_place(tmp_path):
    new, path = tmp_path / "new", tmp_path / "a"
    fill(new.mkdir() or new, "one")
    put_folder(new, path, overwrite=False)
    assert whole(path) == "one" and names(tmp_path) == ["a"]
    fill(new.mkdir() or new, "two")
    with pytest.raises(FileExistsError, match="a exists: choose another name"):
        put_folder(new, path, overwrite=False)
    assert whole(path) == "one" and whole(new) == "two"
    put_folder(new, path, overwrite=True)
    assert whole(path) == "two" and names(tmp_path) == ["a"]


# Locks


def test_a_lock_has_one_holder(tmp_path):
    path = tmp_path / "folder" / "lock"
    lock = Lock(path)
    assert path.exists()
    for _ in range(2):
        with pytest.raises(InUseError, match=r"folder is being written by another process \(lock is locked\): wait"):
            Lock(path)
    assert issubclass(InUseError, OSError)
    lock.release()
    assert not path.exists()
    with Lock(path), pytest.raises(InUseError):
        Lock(path)
    lock.release()
    with Lock(path) as other:
        lock.release()
        assert path.exists(), "released twice, it takes nothing from the next holder"
        with pytest.raises(InUseError):
            Lock(path)
        other.release()
        assert not path.exists()
    assert not path.parent.exists(), "a folder that was made for it goes with it"


def test_a_folder_with_something_in_it_stays(tmp_path):
    with folder_lock(tmp_path / "folder"):
        (tmp_path / "folder" / "result").touch()
    assert names(tmp_path / "folder") == ["result"]
    (tmp_path / "empty").mkdir()
    folder_lock(tmp_path / "empty").release()
    assert names(tmp_path / "empty") == [] and (tmp_path / "empty").exists(), "it was there before"


def test_locks_of_folders_and_of_paths(tmp_path):
    with folder_lock(tmp_path / "a"), path_lock(tmp_path / "b"), path_lock(tmp_path / "c[*]"):
        for lock, path in ((folder_lock, "a"), (path_lock, "b"), (path_lock, "c[*]")):
            with pytest.raises(InUseError):
                lock(tmp_path / path)
        assert names(tmp_path) == [".b.lock", ".c[*].lock", "a"]
        assert not (tmp_path / "b").exists()
    assert names(tmp_path) == []


def test_a_lock_is_released_when_an_error_passes(tmp_path):
    with pytest.raises(KeyboardInterrupt), Lock(tmp_path / "lock"):
        raise KeyboardInterrupt
    assert names(tmp_path) == []


def test_a_lock_ends_with_the_process_that_holds_it(tmp_path):
    path = tmp_path / "lock"

    def hold():
        Lock(path)
        (tmp_path / "held").touch()
        time.sleep(60)

    with child_process(hold) as child:
        wait_for((tmp_path / "held").exists)
        with pytest.raises(InUseError):
            Lock(path)
        kill(child)
        assert path.exists(), "what the dead held is still there"
        with Lock(path):
            pass
    assert names(tmp_path) == ["held"]


def test_a_file_that_someone_left_is_no_lock(tmp_path):
    (tmp_path / "lock").write_text("left over")
    with Lock(tmp_path / "lock"), pytest.raises(InUseError):
        Lock(tmp_path / "lock")
    assert names(tmp_path) == []


def test_many_threads_hold_a_lock_one_at_a_time(tmp_path):
    holders, most, taken = [], [], []

    def often(number):
        for _ in range(200):
            with contextlib.suppress(InUseError), Lock(tmp_path / "lock"):
                holders.append(number)
                most.append(len(holders))
                taken.append(number)
                holders.remove(number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(often, range(8)))
    assert max(most) == 1 and len(taken) > 8
    assert names(tmp_path) == []


def test_many_processes_hold_a_lock_one_at_a_time(tmp_path):
    """Whoever holds it makes a file that nobody else may have made."""

    def often():
        for _ in range(300):
            with contextlib.suppress(InUseError), Lock(tmp_path / "lock"):
                try:
                    os.close(os.open(tmp_path / "holder", os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    os._exit(9)
                (tmp_path / "holder").unlink()
        os._exit(7)

    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(child_process(often)) for _ in range(4)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [7] * 4 and names(tmp_path) == []


def test_where_there_are_no_locks_nothing_is_locked(tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with Lock(tmp_path / "lock"), Lock(tmp_path / "lock"):
        write(tmp_path / "a")
    make(tmp_path / "b", "text")
    assert names(tmp_path) == ["a", "b"] and whole(tmp_path / "b") == "text"


# Paths that cannot be written


@contextlib.contextmanager
def read_only_disk(path):
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "none", path], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"a disk of its own needs the right to mount: {mounted.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", path], check=True)


def assert_unwritable(path, act=check_writable):
    with pytest.raises(OSError, match="nothing can be written there .*: choose another path") as refused:
        act(path)
    assert refused.value.errno and str(path) in str(refused.value)


def test_what_can_be_written_is_left_as_it_was(tmp_path):
    (tmp_path / "file").write_text("old")
    for path in (tmp_path / "file", tmp_path / "new", tmp_path / "a" / "b" / "c", tmp_path):
        check_writable(path)
    assert names(tmp_path) == ["file"] and (tmp_path / "file").read_text() == "old"


def test_a_relative_path_can_be_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_writable(Path("a"))
    check_writable(Path("a/b"))
    write("a")
    make(Path("b"), "text")
    with path_lock(Path("c")), folder_lock(Path("d")):
        assert names(tmp_path) == [".c.lock", "a", "b", "d"]
    assert names(tmp_path) == ["a", "b"]


def test_a_file_in_place_of_a_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("old")
    for path in (tmp_path / "file" / "a", tmp_path / "file" / "a" / "b", Path("/proc/secret-rl-test/a")):
        assert_unwritable(path)
        assert_unwritable(path, folder_lock)
    assert names(tmp_path) == ["file"] and (tmp_path / "file").read_text() == "old"


def test_a_read_only_disk_is_named(tmp_path):
    with read_only_disk(tmp_path / "disk") as disk:
        for path in (disk / "a", disk / "a" / "b"):
            assert_unwritable(path)
            assert_unwritable(path, folder_lock)
        with pytest.raises(OSError, match="Read-only file system"):
            write(disk / "a")
        assert find_folder(disk / "a") == disk / "a"
    assert names(tmp_path) == ["disk"]


def test_a_folder_that_gave_way_is_found_on_a_read_only_disk(tmp_path):
    """It stays beside its path, where it can be read."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "none", disk], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"a disk of its own needs the right to mount: {mounted.stderr.strip()}")
    try:
        beside = disk / f".a.replaced-{dead_process()}-0"
        fill(beside.mkdir() or beside, "old")
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        assert find_folder(disk / "a") == beside and whole(beside) == "old"
    finally:
        subprocess.run(["umount", disk], check=True)
