"""Files and folders that appear whole or not at all, whoever is killed, and locks on what is being written.

Everything is written under another name first and renamed when it is complete. The temporary names are
``.NAME.writing-PID-N`` for files, ``.NAME.saving-PID-N`` for folders, and ``.NAME.replaced-PID-N`` for a folder that
is being replaced. What killed processes left is removed by the next one that writes there, never while its owner
lives.
"""

import errno
import itertools
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

try:
    import fcntl
except ModuleNotFoundError:  # Windows: process numbers alone show who is alive, and nothing is locked
    fcntl = None  # type: ignore[assignment]

_LOCK = ".lock"
_NAME = re.compile(r"\.(.+)\.(writing|saving|replaced)-(\d+)(?:-\d+)?", re.DOTALL)  # name, purpose, process
_numbers = itertools.count()
_own: set[Path] = set()  # temporaries of this process that are in use


class InUseError(OSError):
    """Another process is writing there."""


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A path to write to; it takes the place of ``path`` when the block ends well and is removed when it does not."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path)
    with _temporary(path, "writing") as temporary:
        lock = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
        try:
            _flock(lock)
            yield temporary
            _sync(temporary)
            temporary.replace(path)
            _sync(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(lock)


def replace_text(path: str | Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def new_folder(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A folder to fill; it becomes ``path`` when the block ends well and is removed when it does not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path)
    with _temporary(path, "saving") as folder:
        try:
            folder.mkdir()
            with Lock(folder / _LOCK):
                yield folder
            put_folder(folder, path, overwrite=overwrite)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def put_folder(new: Path, path: Path, *, overwrite: bool) -> None:
    """Give a complete folder its name. After a kill at any point, ``find_folder`` has the old one or the new one."""
    while True:
        with _temporary(path, "replaced") as old, _temporary(path, "saving") as rubbish:
            if path.is_file():
                raise FileExistsError(f"{path} is a file, expected a folder: choose another name")
            if overwrite:
                with suppress(FileNotFoundError):
                    path.rename(old)
            try:
                new.rename(path)
                _sync(path.parent)
            except OSError as failed:
                taken = failed.errno in (errno.ENOTEMPTY, errno.EEXIST)
                if taken and not overwrite:
                    raise FileExistsError(f"{path} exists: choose another name, or pass overwrite=True") from None
                if not taken:
                    if old.exists():
                        old.rename(path)
                    raise
            if old.exists():
                old.rename(rubbish)  # from here on nobody takes it for the folder
                shutil.rmtree(rubbish, ignore_errors=True)
            if not new.exists():
                return
            # Another process has put one there meanwhile: replace that one, too.


def find_folder(path: Path) -> Path:
    """Where a folder is: at its path, or beside it if whoever was replacing it is killed or not done yet."""
    if path.exists():
        return path
    for old in _temporaries(path, "replaced"):
        with suppress(OSError):  # it may be put in place by another process, or the disk be read-only
            if _abandoned(old):
                old.rename(path)
                break
        if old.exists() and not path.exists():
            return old
    return path


def sweep(path: Path) -> None:
    """Remove what killed processes left behind when they wrote to ``path``."""
    find_folder(path)
    for left in _temporaries(path, "writing", "saving", "replaced"):
        if _abandoned(left):
            with suppress(OSError):
                shutil.rmtree(left) if left.is_dir() else left.unlink()


def sweep_folder(folder: Path) -> None:
    """Remove what killed processes left behind when they wrote to files of a folder."""
    for name in {found[1] for path in folder.iterdir() if (found := _NAME.fullmatch(path.name))}:
        sweep(folder / name)


class Lock:
    """Holds a file locked against other processes until ``release``, which removes it.

    The lock is advisory, and ends with the process that holds it. Where a file system has no locks, nothing is locked.
    ``of`` is what it stands for, by default the folder it lies in.
    """

    def __init__(self, path: Path, of: Path | None = None) -> None:
        self._path, self._file = path, -1
        self._made_folder = not path.parent.exists()
        while self._file < 0:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                file = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
            except OSError as refused:
                raise _unwritable(path.parent, refused) from refused
            locked = _flock(file)
            with suppress(FileNotFoundError):
                if locked and os.path.samestat(os.fstat(file), path.stat()):
                    self._file = file
                    return
            os.close(file)  # held by another process, or removed meanwhile by the one that held it
            if not locked:
                raise InUseError(
                    f"{of or path.parent} is being written by another process ({path.name} is locked): wait for it to "
                    "end, or choose another path"
                )

    def release(self) -> None:
        """Let others write; more than once does no harm."""
        if self._file >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = -1
            if self._made_folder:
                with suppress(OSError):
                    self._path.parent.rmdir()  # unless something was put there

    def __enter__(self) -> "Lock":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def folder_lock(folder: Path) -> Lock:
    """A lock on a folder that files are added to."""
    return Lock(folder / _LOCK)


def is_locked_or_left(folder: Path) -> bool:
    """Whether a process is adding files to a folder, or was killed as it did."""
    return (folder / _LOCK).exists()


def path_lock(path: Path) -> Lock:
    """A lock on what will be at ``path``."""
    return Lock(path.with_name(f".{path.name}{_LOCK}"), of=path)


def check_writable(path: Path) -> None:
    """An error now, rather than after hours of work, if nothing can be written to ``path``."""
    folder = path.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\0")
            file.flush()
    except OSError as refused:
        raise _unwritable(path, refused) from refused


def _unwritable(path: Path, refused: OSError) -> OSError:
    reason = refused.strerror or refused
    return type(refused)(refused.errno, f"nothing can be written there ({reason}): choose another path", str(path))


@contextmanager
def _temporary(path: Path, purpose: str) -> Iterator[Path]:
    """A name beside ``path`` that nobody else uses."""
    names = (f".{path.name}.{purpose}-{os.getpid()}-{number}" for number in _numbers)
    # A process of another machine or container may have the same number.
    temporary = next(found for found in map(path.with_name, names) if not found.exists())
    _own.add(temporary.absolute())
    try:
        yield temporary
    finally:
        _own.discard(temporary.absolute())


def _temporaries(path: Path, *purposes: str) -> list[Path]:
    """What is or was being written for ``path``."""
    try:
        names = [found.name for found in path.parent.iterdir()]
    except OSError:
        return []
    found = [(name, _NAME.fullmatch(name)) for name in names if name.startswith(f".{path.name}.")]
    return [path.with_name(name) for name, parts in found if parts and parts[1] == path.name and parts[2] in purposes]


def _abandoned(temporary: Path) -> bool:
    """Whether the process that made a temporary is gone."""
    parts = _NAME.fullmatch(temporary.name)
    assert parts is not None
    owner = int(parts[3])
    if temporary.absolute() in _own if owner == os.getpid() else _alive(owner):
        return False
    # A process of another machine or container may have any number: its lock shows that it is alive.
    lock = temporary / _LOCK if temporary.is_dir() else temporary
    try:
        file = os.open(lock, os.O_RDWR)
    except OSError:
        return True
    try:
        return _flock(file)
    finally:
        os.close(file)


def _alive(process: int) -> bool:
    if fcntl is None:  # there, asking would end it
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
        return state.rpartition(")")[2].split()[0] != "Z"  # ended, and not yet collected by its parent
    except (OSError, IndexError):
        return True


def _flock(file: int) -> bool:
    """Lock an open file; False if another process holds it, True where there are no locks."""
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as refused:
        return not isinstance(refused, BlockingIOError)
    return True


def _sync(path: Path) -> None:
    """Make a file, or the names in a folder, survive a power cut."""
    with suppress(OSError) if path.is_dir() else nullcontext():  # not every system can do so with folders
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
