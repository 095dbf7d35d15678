"""Files and folders that appear whole or not at all, whoever is killed, and locks on what is being written.

Everything is written under another name first and renamed when it is complete: ``.NAME.writing-XXXXXXXX`` for files,
``.NAME.saving-XXXXXXXX`` for folders, and ``.NAME.replaced-XXXXXXXX`` for a folder that is being replaced. Whoever
writes holds a lock on the temporary, which ends with the process: the next one that writes to the same folder removes
what nobody holds.
"""

import errno
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

try:
    import fcntl
except ModuleNotFoundError:  # Windows: nothing is locked, and what killed processes left stays
    fcntl = None  # type: ignore[assignment]

_LOCK = ".lock"
_TEMPORARY = re.compile(r"\.(.+)\.(writing|saving|replaced)-[0-9a-f]{8}", re.DOTALL)  # name, purpose


class InUseError(OSError):
    """Another process is writing there."""


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A path to write to; it takes the place of ``path`` when the block ends well and is removed when it does not."""
    path = Path(path)
    with _temporary(path, "writing", Path.touch) as temporary:
        yield temporary
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)


def replace_text(path: str | Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def new_folder(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A folder to fill; it becomes ``path`` when the block ends well and is removed when it does not."""
    with _temporary(path, "saving", Path.mkdir) as folder:
        yield folder
        put_folder(folder, path, overwrite=overwrite)


def put_folder(new: Path, path: Path, *, overwrite: bool) -> None:
    """Give a complete folder its name. After a kill at any point, ``find_folder`` has the old one or the new one."""
    while new.exists():
        if path.is_file():
            raise FileExistsError(f"{path} is a file, expected a folder: choose another name")
        old = _beside(path, "replaced")
        if overwrite:
            with suppress(FileNotFoundError):
                path.rename(old)
        try:
            new.rename(path)
            _sync(path.parent)
        except OSError as failed:
            with suppress(OSError):
                old.rename(path)
            if failed.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            if not overwrite:
                raise FileExistsError(f"{path} exists: choose another name, or pass overwrite=True") from None
            # Another process has put one there meanwhile: replace that one, too.
        _remove_replaced(old, path)


def find_folder(path: Path) -> Path:
    """Where a folder is: at its path, or beside it if whoever was replacing it was killed or is not done yet."""
    if path.exists():
        return path
    for old, name, purpose in _temporaries(path.parent):
        if name == path.name and purpose == "replaced":
            with suppress(OSError):  # another process has put one in place, or the disk is read-only
                old.rename(path)
            if old.exists() and not path.exists():
                return old
    return path


def sweep(folder: Path) -> None:
    """Remove what killed processes left in a folder; what they were replacing goes back to its place."""
    for left, name, purpose in _temporaries(folder):
        if purpose == "replaced":
            _remove_replaced(left, find_folder(folder / name))
            continue
        with suppress(OSError):
            lock = _lock(left)
            try:
                if lock >= 0:
                    _remove(left)
            finally:
                _unlock(lock)


class Lock:
    """Holds a file locked against other processes until ``release``, which removes it.

    The lock is advisory, and ends with the process that holds it. Where a file system has no locks, nothing is locked.
    ``of`` is what it stands for.
    """

    def __init__(self, path: Path, of: Path) -> None:
        self._path, self._file = path, None
        self._made_folder = not path.parent.exists()
        while self._file is None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
            except OSError as refused:
                raise _unwritable(path.parent, refused) from refused
            try:
                self._file = _lock(path)
            except FileNotFoundError:  # removed meanwhile by the one that held it
                continue
            except InUseError as held:
                remedy = "wait for it to end, or choose another path"
                raise InUseError(f"{of} is being written by another process ({held}): {remedy}") from held

    def release(self) -> None:
        """Let others write; more than once does no harm."""
        if self._file is not None:
            self._path.unlink(missing_ok=True)
            _unlock(self._file)
            self._file = None
            if self._made_folder:
                with suppress(OSError):
                    self._path.parent.rmdir()  # unless something was put there

    def __enter__(self) -> "Lock":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def folder_lock(folder: Path) -> Lock:
    """A lock on a folder that files are added to."""
    return Lock(folder / _LOCK, folder)


def path_lock(path: Path) -> Lock:
    """A lock on what will be at ``path``."""
    return Lock(path.with_name(f".{path.name}{_LOCK}"), path)


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
def _temporary(path: Path, purpose: str, make: Callable[[Path], None]) -> Iterator[Path]:
    """A locked file or folder beside ``path``, removed at the end unless it was renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path.parent)
    temporary, lock = path, -1
    try:
        try:
            while temporary == path:
                temporary = _beside(path, purpose)
                make(temporary)
                try:
                    lock = _lock(temporary)
                except (InUseError, FileNotFoundError):  # another process took it for one that was left
                    temporary = path
            yield temporary
        finally:
            if temporary != path:
                _remove(temporary)
    finally:
        _unlock(lock)


def _beside(path: Path, purpose: str) -> Path:
    return path.with_name(f".{path.name}.{purpose}-{secrets.token_hex(4)}")


def _temporaries(folder: Path) -> list[tuple[Path, str, str]]:
    """What is being written in a folder, or was left there: path, name of what it is for, purpose."""
    try:
        return [(path, m[1], m[2]) for path in folder.iterdir() if (m := _TEMPORARY.fullmatch(path.name))]
    except OSError:
        return []


def _remove_replaced(old: Path, path: Path) -> None:
    """Remove a folder that was replaced, once another one is at its path."""
    rubbish = _beside(path, "saving")
    with suppress(OSError):
        if old != path and path.exists():
            old.rename(rubbish)  # from here on nobody takes it for the folder
            shutil.rmtree(rubbish)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _lock(path: Path) -> int:
    """An open file or folder that others cannot lock, -1 where there are no locks; InUseError if another has it."""
    if fcntl is None:
        return -1
    file = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(file), path.stat()):
            raise FileNotFoundError(path)
        return file
    except BaseException as failed:
        os.close(file)
        if isinstance(failed, BlockingIOError):
            raise InUseError(f"{path.name} is locked") from failed
        if isinstance(failed, FileNotFoundError) or not isinstance(failed, OSError):
            raise
        return -1


def _unlock(file: int) -> None:
    if file >= 0:
        os.close(file)


def _sync(path: Path) -> None:
    """Make a file, or the names in a folder, survive a power cut."""
    with suppress(OSError) if path.is_dir() else nullcontext():  # not every system can do so with folders
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
