"""The record of a run: ``run.json`` in its folder says what was run, how far it came and what came of it."""

import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from secret_rl.files import replace_text, replacing
from secret_rl.version import VERSION

RECORD = "run.json"
_FORMAT, _VERSION = "secret-rl run", 1
_PARTS = "parts"

T = TypeVar("T")


class RunFolder:
    """The folder of a run. One that was interrupted is taken up where the same run is begun again; others start anew.

    Only parts that the record names count, and the record is replaced last: a folder is sound at every moment.
    """

    def __init__(
        self, folder: Path, command: str, settings: Mapping[str, Any], inputs: Mapping[str, Path | None] | None = None
    ) -> None:
        self.folder = folder
        asked = {
            "format": _FORMAT,
            "version": _VERSION,
            "library": VERSION,
            "command": command,
            "settings": plain(settings),
            "inputs": {name: _hash(path) for name, path in (inputs or {}).items() if path is not None},
        }
        before = _unfinished(folder / RECORD)
        self.taken_up = all(before.get(key) == value for key, value in asked.items())
        if not self.taken_up:
            before = {**asked, "date": _now(), "finished": False, "done": []}
            rmtree(folder / _PARTS, ignore_errors=True)
        self._record = before
        self._write()

    def once(self, part: str, make: Callable[[], T], load: Callable[[], T]) -> T:
        """Make a part of the run, or load what it left before an interruption."""
        if part in self._record["done"]:
            return load()
        made = make()
        self._record["done"].append(part)
        self._write()
        return made

    def array(self, part: str, make: Callable[[], NDArray[np.float64]]) -> NDArray[np.float64]:
        """A part that is an array, kept until the run is finished."""
        path = self.folder / _PARTS / f"{part}.npy"

        def made() -> NDArray[np.float64]:
            array = make()
            with replacing(path) as temporary, temporary.open("wb") as file:
                np.save(file, array, allow_pickle=False)
            return array

        return self.once(part, made, lambda: np.load(path, allow_pickle=False))

    def finish(self, **results: Any) -> dict[str, Any]:
        """Write what came of it, and give the whole record."""
        del self._record["done"]
        self._record |= {"finished": True, "date": _now(), **plain(results)}
        self._write()
        rmtree(self.folder / _PARTS, ignore_errors=True)
        return self._record

    def _write(self) -> None:
        replace_text(self.folder / RECORD, json_text(self._record) + "\n")


def folder_of(model: Path) -> Path:
    """Where the record of a fit is: beside its model."""
    return model.with_name(f"{model.name.removesuffix('.safetensors')}.run")


def read_record(path: Path) -> dict[str, Any]:
    """The content of a ``run.json``; an error that names it where it is not one."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as broken:
        raise ValueError(f"{path} is damaged ({broken}): run the command again") from broken
    if not isinstance(record, dict) or record.get("format") != _FORMAT:
        raise ValueError(f"{path} is no record of a run of this library")
    if record.get("version") != _VERSION:
        raise ValueError(
            f"{path} has format version {record.get('version')!r}, this library reads {_VERSION}: "
            f"open it with secret-rl {record.get('library', 'of another version')}"
        )
    return record


def json_text(content: Any) -> str:
    """JSON that every reader takes: what is not finite is null, what JSON does not know its name."""
    return json.dumps(plain(content), indent=1, allow_nan=False)


def plain(value: Any) -> Any:
    """A value as JSON gives it back."""
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _unfinished(path: Path) -> dict[str, Any]:
    """The record of an interrupted run, empty if there is none that can be taken up."""
    try:
        record = read_record(path)
    except (OSError, ValueError):
        return {}
    sound = record.get("finished") is False and isinstance(record.get("done"), list)
    return record if sound else {}


def _hash(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()[:16]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
