"""Files and folders are whole at every moment, whoever is killed, and nobody takes what another still uses."""

import contextlib
import errno
import fcntl
import itertools
import multiprocessing
import os
import pathlib
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from secret_rl import atomic
from secret_rl.atomic import (
    InUseError,
    Lock,
    check_writable,
    find_folder,
    folder_lock,
    new_folder,
    path_lock,
    replace_text,
    replacing,
    sweep,
)  # fmt: skip

TRACED = {atomic.__file__, contextlib.__file__, pathlib.__file__}
AWKWARD = ["a[b]*?.json", "x.(y)+$^", "ümläut", ".hidden", "-rf", "%s", "a\\d", "new\nline", "x.writing-0123abcd"]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def write(path, text="new"):
    with replacing(path) as temporary:
        temporary.write_text(text)


def fill(folder, text):
    folder.mkdir(exist_ok=True)
    for name in "abc":
        (folder / name).write_text(text)


def make(path, text="new", *, overwrite=True):
    with new_folder(path, overwrite=overwrite) as folder:
        fill(folder, text)


def whole(path):
    """What a folder holds, if every part of it is the same."""
    assert names(path) == ["a", "b", "c"]
    (text,) = {(path / name).read_text() for name in "abc"}
    return text


def content(path, folder):
    return whole(find_folder(path)) if folder else path.read_text()


def in_threads(work, texts):
    with ThreadPoolExecutor(len(texts)) as pool:
        list(pool.map(work, texts))


def in_processes(work, texts):
    fork = multiprocessing.get_context("fork")
    children = [fork.Process(target=work, args=(text,)) for text in texts]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert not any(child.exitcode for child in children)


def broken_disk(*_):
    raise OSError(errno.EIO, "disk broken")


def interrupted_at_line(number, work):
    """Whether Ctrl-C came before the so-and-so-many-th line of the module or its helpers, or the work was done."""
    left, before = itertools.count(1), sys.gettrace()

    def trace(frame, event, _):
        if frame.f_code.co_filename not in TRACED:
            return None
        if event == "line" and next(left) == number:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


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


@pytest.mark.parametrize("name", ["a", *AWKWARD])
def test_a_folder_appears_when_it_is_whole(tmp_path, name):
    path = tmp_path / "deep" / name
    with new_folder(path) as folder:
        fill(folder, "old")
        assert not path.exists() and find_folder(path) == path
    with pytest.raises(FileExistsError, match="exists: choose another name, or pass overwrite=True"):
        make(path, overwrite=False)
    assert whole(path) == "old" and names(path.parent) == [name]
    make(path)
    assert whole(find_folder(path)) == "new" and names(path.parent) == [name]


@pytest.mark.parametrize("error", [ValueError, OSError, KeyboardInterrupt, SystemExit])
def test_what_fails_leaves_the_old_one(tmp_path, error):
    def fail(begin, path):
        with begin(path) as temporary:
            fill(temporary, "half") if temporary.is_dir() else temporary.write_text("half")
            raise error

    write(tmp_path / "file", "old")
    make(tmp_path / "folder", "old")
    for begin, name in itertools.product((replacing, partial(new_folder, overwrite=True)), ("file", "folder", "new")):
        with pytest.raises(error):
            fail(begin, tmp_path / name)
        assert names(tmp_path) == ["file", "folder"]
        assert (tmp_path / "file").read_text() == "old" and whole(tmp_path / "folder") == "old"


@pytest.mark.parametrize("folder", [False, True], ids=["file", "folder"])
def test_an_interrupt_at_any_line_leaves_the_old_or_the_new_one(tmp_path, folder):
    """Kills do too: tests/attack."""
    path, act, seen = tmp_path / "a", make if folder else write, set()
    for number in itertools.count(1):
        act(path, "old")
        if not interrupted_at_line(number, lambda: act(path)):
            break
        seen.add(content(path, folder))
        act(path, "next")
        assert content(path, folder) == "next" and names(tmp_path) == ["a"], f"at line {number}"
    assert number > 50 and seen == {"old", "new"}


def test_what_is_in_the_way_is_an_error_and_leaves_nothing(tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        write(tmp_path / "folder")
    (tmp_path / "file").touch()
    with pytest.raises(OSError):
        write(tmp_path / "file" / "below")
    for overwrite in (False, True):
        with pytest.raises(FileExistsError, match="is a file, expected a folder"):
            make(tmp_path / "file", overwrite=overwrite)
    make(tmp_path / "old", "old")
    rename = Path.rename
    monkeypatch.setattr(Path, "rename", lambda self, to: broken_disk() if ".saving-" in self.name else rename(self, to))
    with pytest.raises(OSError, match="disk broken"):
        make(tmp_path / "old")
    assert whole(tmp_path / "old") == "old"
    assert names(tmp_path) == ["file", "folder", "old"] and names(tmp_path / "folder") == []


def leave(path, text):
    """What a killed process leaves: a file or folder that nobody holds."""
    fill(path, text) if path.name.split(".")[-1].startswith(("saving", "replaced")) else path.write_text(text)


@pytest.mark.parametrize("name", ["a.json", *AWKWARD])
def test_what_the_dead_left_is_removed_and_nothing_else(tmp_path, name):
    path = tmp_path / name
    path.write_text("old")
    others = [
        f"x{name}.writing-0123abcd",
        f".{name}.writing-",
        f".{name}.writing-0123abcd.txt",
        f".{name}.reading-0123abcd",
    ]
    for other in others:
        (tmp_path / other).write_text("not yours")
    for purpose in ("writing", "saving", "replaced"):
        leave(tmp_path / f".{name}.{purpose}-0123abcd", "half")
        leave(tmp_path / f".other.{purpose}-0123abcd", "half")
    write(path)
    assert names(tmp_path) == sorted([name, "other", *others]) and path.read_text() == "new"
    assert whole(tmp_path / "other") == "half", "what was being replaced is back"


def test_a_temporary_is_safe_from_other_threads_and_processes(tmp_path):
    with replacing(tmp_path / "file") as file, new_folder(tmp_path / "folder") as folder:
        file.write_text("slow")
        fill(folder, "slow")
        before = names(tmp_path)
        sweep(tmp_path)
        in_processes(lambda text: (sweep(tmp_path), write(tmp_path / "file", text)), ["child"])
        assert names(tmp_path) == sorted([*before, "file"]) and (tmp_path / "file").read_text() == "child"
    assert (tmp_path / "file").read_text() == whole(tmp_path / "folder") == "slow"
    assert names(tmp_path) == ["file", "folder"]


def test_a_folder_that_was_being_replaced_is_found(tmp_path, monkeypatch):
    path, beside = tmp_path / "a", tmp_path / ".a.replaced-0123abcd"
    fill(beside, "old")
    with monkeypatch.context() as read_only:
        read_only.setattr(Path, "rename", broken_disk)
        assert find_folder(path) == beside and whole(beside) == "old"
    assert find_folder(path) == path and whole(path) == "old" and names(tmp_path) == ["a"]
    for missing in (tmp_path / "never was", tmp_path / "no" / "where"):
        assert find_folder(missing) == missing


def test_a_lock_has_one_holder(tmp_path):
    path = tmp_path / "folder" / "lock"
    lock = Lock(path, path.parent)
    for _ in range(2):
        with pytest.raises(InUseError, match=r"folder is being written by another process \(lock is locked\): wait"):
            Lock(path, path.parent)
    lock.release()
    assert not path.exists()
    with Lock(path, path.parent):
        lock.release()
        assert path.exists(), "released twice, it takes nothing from the next holder"
        with pytest.raises(InUseError):
            Lock(path, path.parent)
    with pytest.raises(KeyboardInterrupt), Lock(path, path.parent):
        raise KeyboardInterrupt
    assert names(tmp_path) == [], "a folder that was made for it goes with it"


def test_locks_of_folders_and_of_paths(tmp_path):
    with folder_lock(tmp_path / "a"), path_lock(tmp_path / "b"), path_lock(tmp_path / "c[*]"):
        for lock, path in ((folder_lock, "a"), (path_lock, "b"), (path_lock, "c[*]")):
            with pytest.raises(InUseError):
                lock(tmp_path / path)
        assert names(tmp_path) == [".b.lock", ".c[*].lock", "a"]
        (tmp_path / "a" / "result").touch()
    (tmp_path / "empty").mkdir()
    folder_lock(tmp_path / "empty").release()
    assert names(tmp_path) == ["a", "empty"] and names(tmp_path / "a") == ["result"]


@pytest.mark.parametrize("in_parallel", [in_threads, in_processes])
def test_many_hold_a_lock_one_at_a_time(tmp_path, in_parallel):
    """Whoever holds it makes a file that nobody else may have made."""

    def often(_):
        for _ in range(200):
            with contextlib.suppress(InUseError), Lock(tmp_path / "lock", tmp_path):
                try:
                    os.close(os.open(tmp_path / "holder", os.O_CREAT | os.O_EXCL))
                except FileExistsError as two:
                    raise AssertionError("two hold it") from two
                (tmp_path / "holder").unlink()

    in_parallel(often, range(4))
    assert names(tmp_path) == []


def test_where_there_are_no_locks_nothing_is_locked(tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", broken_disk)
    with Lock(tmp_path / "lock", tmp_path), Lock(tmp_path / "lock", tmp_path):
        write(tmp_path / "a")
    make(tmp_path / "b", "text")
    assert names(tmp_path) == ["a", "b"] and whole(tmp_path / "b") == "text"


def test_what_can_be_written_is_left_as_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("old")
    for path in (tmp_path / "file", tmp_path / "a" / "b" / "c", tmp_path, Path("a"), Path("a/b")):
        check_writable(path)
    assert names(tmp_path) == ["file"] and (tmp_path / "file").read_text() == "old"
    write("a")
    make(Path("b"))
    with path_lock(Path("c")), folder_lock(Path("d")):
        assert names(tmp_path) == [".c.lock", "a", "b", "d", "file"]


def test_paths_that_cannot_be_written_are_named(tmp_path):
    (tmp_path / "file").write_text("old")
    for path in (tmp_path / "file" / "a", tmp_path / "file" / "a" / "b", Path("/proc/secret-rl-test/a")):
        for act in (check_writable, folder_lock):
            with pytest.raises(OSError, match="nothing can be written there .*: choose another path") as refused:
                act(path)
            assert refused.value.errno and str(path) in str(refused.value)
    assert names(tmp_path) == ["file"] and (tmp_path / "file").read_text() == "old"


@pytest.mark.parametrize(
    ("mask", "file", "folder"), [(0o022, 0o644, 0o755), (0o027, 0o640, 0o750), (0o077, 0o600, 0o700)]
)
def test_what_is_written_is_readable_by_whom_the_umask_lets(mask, file, folder, tmp_path):
    before = os.umask(mask)
    try:
        replace_text(tmp_path / "text.json", "{}")
        with new_folder(tmp_path / "made") as made:
            (made / "part").touch()
    finally:
        os.umask(before)
    found = [(tmp_path / name).stat().st_mode & 0o777 for name in ("text.json", "made", "made/part")]
    assert found == [file, folder, file]
