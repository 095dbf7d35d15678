"""Shards: stores in one folder that are read as one, and appended by any number of processes at once.

Each process writes shards of its own name, and each shard is there when it is complete. Nobody waits for anybody, so a
file system that several machines share need not have locks.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from secret_rl.files import FileFormatError
from secret_rl.trajectories.store import (
    FORMAT,
    HEADER,
    PARTIAL,
    Progress,
    ResumableStore,
    check_collection,
    load_shards,
    shard_folders,
)
from secret_rl.trajectories.types import Trajectories

_SHARD_BYTES = 256 << 20  # of arrays, before they are compressed
_NAME = re.compile(r"\w[\w.-]*")
_SAME_EPISODES = ("env_id", "env_options", "wrappers", "policy", "seed")


class ShardedStore:
    """Appends shards NAME-00000, NAME-00001, ... to a folder; interrupted, it goes on after its last ``commit``."""

    def __init__(self, folder: Path, name: str, compress: bool = False) -> None:
        if not _NAME.fullmatch(name):
            raise ValueError(f"shard must be a name of letters, digits, '_', '-' and '.', got {name!r}")
        if (folder / HEADER).is_file():
            raise FileExistsError(f"{folder} is a store of its own: append shards to another folder")
        self.path, self._name, self._compress = folder, name, compress
        self._before = Progress(0, 0, 0)
        self._shard = self._next()

    def resume(self, meta: Mapping[str, Any]) -> Progress | None:
        """How much was committed, all shards of the name together; ``None`` where there is nothing."""
        self._check_seed(meta)
        own = self._own()
        for number, folder in enumerate(own):
            if folder.name != self._shard_name(number):
                missing = self.path / self._shard_name(number)
                raise FileFormatError(f"{missing} is missing: restore it, or collect under a new name and seed")
            check_collection(folder, FORMAT.read_json(folder / HEADER)["meta"], meta)
        if own:
            self._before = Progress.of(load_shards(own))
        within = self._shard.resume(meta) or Progress(0, 0, 0)
        found = Progress(*(a + b for a, b in zip(self._before, within, strict=True)))
        return found if found.episodes else None

    @property
    def episodes(self) -> int:
        """Episodes written so far, in all shards of the name."""
        return self._before.episodes + self._shard.episodes

    def append(self, data: Trajectories) -> None:
        """Add episodes."""
        self._shard.append(data)

    def commit(self, meta: Mapping[str, Any]) -> None:
        """From time to time, make what was written so far survive a kill; a shard that is full is complete."""
        if self._shard.size < _SHARD_BYTES:
            self._shard.commit(self._own_meta(meta))
            return
        self._finish(meta)
        self._shard = self._next()
        self._shard.resume(meta)

    def finish(self, meta: Mapping[str, Any], overwrite: bool = False) -> None:  # noqa: ARG002
        """Complete the last shard."""
        if self._shard.episodes:
            self._finish(meta)

    def close(self) -> None:
        """Let go of it: what was committed stays."""
        self._shard.close()

    def load(self) -> Trajectories:
        """The episodes of all shards of the name."""
        return load_shards(self._own(), verify=False)

    def _finish(self, meta: Mapping[str, Any]) -> None:
        self._shard.finish(self._own_meta(meta))
        self._before = Progress(self.episodes, self._before.successes, int(meta["drawn"]))
        self._shard.close()

    def _own_meta(self, meta: Mapping[str, Any]) -> dict[str, Any]:
        """With the episodes drawn for this shard."""
        return {**meta, "drawn": int(meta["drawn"]) - self._before.drawn}

    def _own(self) -> list[Path]:
        own = re.compile(re.escape(self._name) + "-[0-9]{5,}")
        return [folder for folder in shard_folders(self.path) if own.fullmatch(folder.name)]

    def _next(self) -> ResumableStore:
        while True:
            number = len(self._own())
            shard = ResumableStore(self.path / self._shard_name(number), self._compress, shared=True)
            if len(self._own()) == number:
                return shard
            shard.close()  # another process, of the same name, has completed it just now

    def _shard_name(self, number: int) -> str:
        return f"{self._name}-{number:05d}"

    def _check_seed(self, meta: Mapping[str, Any]) -> None:
        """An error where another name has the same episodes."""
        for header in self.path.glob(f"*-00000*/{HEADER}"):
            name = header.parent.name.removesuffix(PARTIAL).removesuffix("-00000")
            if name == self._name or "env_id" not in meta:
                continue
            with suppress(FileFormatError, OSError):  # it is being renamed, or is for its readers to refuse
                other = FORMAT.read_json(header)["meta"]
                if all(other.get(key) == meta.get(key) for key in _SAME_EPISODES):
                    raise ValueError(
                        f"shards {name!r} in {self.path} were collected with seed {meta['seed']}, too: the same "
                        "episodes would be there twice; give each name a seed of its own"
                    )
