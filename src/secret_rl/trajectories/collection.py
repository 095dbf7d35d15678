"""A store that is filled over time, and survives an interrupt."""

import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from secret_rl.atomic import Lock, path_lock, put_folder, sweep
from secret_rl.files import FileFormat
from secret_rl.trajectories.store import PROGRESS, StoreWriter, check_target, is_new, open_folder
from secret_rl.trajectories.types import Trajectories

_UNFINISHED = FileFormat("secret-rl unfinished trajectories", remedy="delete the folder and collect the data again")


class Collection:
    """A store that is filled over time in ``PATH.partial``; interrupted, it can be taken up at its last ``commit``.

    Only one process writes to a path at a time. ``progress`` is what was committed, empty if there is nothing to take
    up; nothing is changed on disk before ``begin`` or ``take_up``.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.folder = path, path.with_name(f"{path.name}.partial")
        self._lock: Lock = path_lock(path)
        self._writer = StoreWriter(self.folder)
        self._state: dict[str, Any] = {}
        self._taken_up = False
        self.complete = is_new(path)
        """Whether the store is at its path already, and only whoever put it there was killed before it could say so."""
        progress = (path if self.complete else self.folder) / PROGRESS
        try:
            if progress.is_file():
                with _UNFINISHED.reading(progress):
                    self._state = _UNFINISHED.read_json(progress)
                    self._state["progress"]["meta"]
        except BaseException:
            self._lock.release()
            raise

    @property
    def progress(self) -> dict[str, Any]:
        """What was given to the last ``commit``."""
        return dict(self._state.get("progress", {}))

    def reading(self) -> AbstractContextManager[None]:
        """Whatever the progress leads to in the block becomes a ``FileFormatError``."""
        return _UNFINISHED.reading(self.folder / PROGRESS)

    @property
    def episodes(self) -> int:
        """Episodes written so far."""
        return self._writer.episodes

    def begin(self) -> None:
        """Start with nothing."""
        sweep(self.path)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self._state = {}

    def take_up(self) -> None:
        """Go on where an interrupted collection stopped, after a look at what it wrote."""
        with self.reading():
            header = {**self._state["spaces"], "arrays": self._state["files"], "meta": {}}
            open_folder(self.folder, header, partial=True)
            self._writer.take_up(self._state)
        self._taken_up = True

    def append(self, data: Trajectories) -> None:
        """Add episodes."""
        with self.reading() if self._taken_up else nullcontext():
            self._writer.append(data)

    def commit(self, **progress: Any) -> None:
        """Make what was written so far survive a kill; ``progress`` is kept with it."""
        self._state = {**self._writer.flush(), "progress": progress}
        _UNFINISHED.write_json(self.folder / PROGRESS, self._state)

    def finish(self, meta: Mapping[str, Any], progress: Mapping[str, Any], overwrite: bool = False) -> Path:
        """Complete the store and give it its name; ``progress`` as for ``commit``."""
        self.commit(**progress)
        self._writer.complete(meta)
        check_target(self.path, overwrite)
        put_folder(self.folder, self.path, overwrite=overwrite)
        return self.confirm()

    def confirm(self) -> Path:
        """The store is at its path, and this process knows: until here, the same collection would be taken up."""
        sweep(self.path)
        self._lock.release()
        (self.path / PROGRESS).unlink(missing_ok=True)
        return self.path

    def stop(self) -> None:
        """Let go of it, after an error for one: what was committed stays, anything else is removed."""
        self._writer.close()
        if not self._state and self.folder.is_dir():
            shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.release()
