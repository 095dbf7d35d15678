"""The record of a run: ``run.json`` in its folder says what was run, how far it came and what came of it."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from secret_rl.atomic import Lock, folder_lock, sweep_folder
from secret_rl.files import FileFormat, plain
from secret_rl.version import VERSION

RECORD = "run.json"
FORMAT = FileFormat("secret-rl run", remedy="run the command again")
_ARRAY = FileFormat("secret-rl part of a run", remedy="run the command again")
_PARTS = "parts"

T = TypeVar("T")


class RunFolder:
    """The folder of a run. One that was interrupted is taken up where the same run is begun again; others start anew.

    Only parts that the record names count, and the record is replaced last: a folder is sound at every moment. One
    process at a time holds it, from here to ``finish`` or ``close``.
    """

    def __init__(
        self,
        folder: Path,
        command: str,
        settings: Mapping[str, Any],
        inputs: Mapping[str, Path | str | None] | None = None,
    ) -> None:
        self.folder = folder
        asked = {
            "library": VERSION,
            "command": command,
            "settings": plain(settings),
            "inputs": {name: _identity(given) for name, given in (inputs or {}).items() if given is not None},
        }
        self._lock: Lock = folder_lock(folder)
        before = _unfinished(folder / RECORD)
        self.taken_up = all(before.get(key) == value for key, value in asked.items())
        if not self.taken_up:
            before = {**asked, "date": _now(), "finished": False, "done": []}
            rmtree(folder / _PARTS, ignore_errors=True)
        self._record = before
        try:
            self._write()
        except BaseException:
            self.close()
            raise

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
        path = self.folder / _PARTS / f"{part}.safetensors"

        def made() -> NDArray[np.float64]:
            array = make()
            _ARRAY.write_arrays(path, {}, {"array": array})
            return array

        return self.once(part, made, lambda: _ARRAY.read_arrays(path)[1]["array"])

    def finish(self, **results: Any) -> dict[str, Any]:
        """Write what came of it, and give the whole record."""
        del self._record["done"]
        self._record |= {"finished": True, "date": _now(), **plain(results)}
        self._write()
        rmtree(self.folder / _PARTS, ignore_errors=True)
        sweep_folder(self.folder)
        self.close()
        return self._record

    def close(self) -> None:
        """Let others use the folder; more than once does no harm."""
        self._lock.release()

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self) -> None:
        FORMAT.write_json(self.folder / RECORD, plain(self._record))


def folder_of(model: Path) -> Path:
    """Where the record of a fit is: beside its model."""
    return model.with_name(f"{model.name.removesuffix('.safetensors')}.run")


def json_text(content: Any) -> str:
    """JSON that every reader takes: what is not finite is null, what JSON does not know its name."""
    return json.dumps(plain(content), indent=1, allow_nan=False)


def _unfinished(path: Path) -> dict[str, Any]:
    """The record of an interrupted run, empty if there is none that can be taken up."""
    try:
        record = FORMAT.read_json(path)
    except (OSError, ValueError):
        return {}
    sound = record.get("finished") is False and isinstance(record.get("done"), list)
    return record if sound else {}


def _identity(given: Path | str) -> str:
    """What tells an input from another: of a file, its content."""
    return given if isinstance(given, str) else sha256(given.read_bytes()).hexdigest()[:16]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
