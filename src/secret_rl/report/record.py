"""The record of a run: ``run.json`` in its folder says what was run, how far it got, and the results."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from secret_rl.atomic import Lock, folder_lock, sweep
from secret_rl.files import VERSION, FileFormat, plain

if TYPE_CHECKING:
    from secret_rl.credit.report import FitReport

RECORD, CURVES, COMPARISON = "run.json", "curves.safetensors", "comparison.json"  # files in the folder of a run
FORMAT = FileFormat("secret-rl run", remedy="run the command again")
COMPARISON_FORMAT = FileFormat("secret-rl comparison", remedy="run the command again")
_ARRAY = FileFormat("secret-rl part of a run", remedy="run the command again")
_PARTS = "parts"
_DOUBTS = {
    "not learned": "the past may decide the rewards, but the model has not learned how",
    "past not needed": "the present predicts the rewards as well as the past does",
}

T = TypeVar("T")


class RunFolder:
    """The folder of a run. An interrupted run is resumed if the same run is started again; any other starts afresh.

    Only parts that the record names count, and the record is replaced last, so a folder is valid at every moment. One
    process at a time holds it, until ``finish`` or ``close``.

    Args:
        folder: Where the record and the parts are written.
        command: What is run.
        settings: What the run depends on.
        inputs: Files it reads, compared by content, or text.
    """

    def __init__(
        self,
        folder: Path,
        command: str,
        settings: Mapping[str, Any],
        inputs: Mapping[str, Path | str | None] | None = None,
    ) -> None:
        self.folder = folder
        run = {
            "secret_rl": VERSION,
            "command": command,
            "settings": plain(settings),
            "inputs": {
                name: value if isinstance(value, str) else sha256(value.read_bytes()).hexdigest()[:16]
                for name, value in (inputs or {}).items()
                if value is not None
            },
        }
        self._lock: Lock = folder_lock(folder)
        record = _unfinished(folder / RECORD)
        self.resumed = all(record.get(key) == value for key, value in run.items())
        if not self.resumed:
            record = {**run, "date": _now(), "finished": False, "done": []}
            rmtree(folder / _PARTS, ignore_errors=True)
        self._record = record
        try:
            self._write()
        except BaseException:
            self.close()
            raise

    def once(self, part: str, make: Callable[[], T], load: Callable[[], T]) -> T:
        """Make a part of the run, or load it if it was made before an interruption."""
        if part in self._record["done"]:
            return load()
        made = make()
        self._record["done"].append(part)
        self._write()
        return made

    def array(self, part: str, make: Callable[[], NDArray[np.float64]]) -> NDArray[np.float64]:
        """A part that is an array, stored until the run is finished."""
        path = self.folder / _PARTS / f"{part}.safetensors"

        def made() -> NDArray[np.float64]:
            array = make()
            _ARRAY.write_arrays(path, {}, {"array": array})
            return array

        return self.once(part, made, lambda: _ARRAY.read_arrays(path)[1]["array"])

    def finish(self, **results: Any) -> dict[str, Any]:
        """Write the results, and return the whole record."""
        del self._record["done"]
        self._record |= {"finished": True, "date": _now(), **plain(results)}
        self._write()
        rmtree(self.folder / _PARTS, ignore_errors=True)
        sweep(self.folder)
        self.close()
        return self._record

    def close(self) -> None:
        """Release the folder; calling it again does no harm."""
        self._lock.release()

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self) -> None:
        FORMAT.write_json(self.folder / RECORD, plain(self._record))


def folder_of(model: Path) -> Path:
    """The folder with the record of a fit, beside its model."""
    return model.with_name(f"{model.name.removesuffix('.safetensors')}.run")


def json_text(content: Any) -> str:
    """Strict JSON: null for numbers that are not finite, text for values that JSON does not know."""
    return json.dumps(plain(content), indent=1, allow_nan=False)


def verdict_of(report: "FitReport") -> str:
    """The verdict on a credit model, and how much of the open uncertainty the past removes."""
    if report.gain is None:
        return f"verdict: {report.verdict}"
    return f"verdict: {report.verdict}; the past removes {report.history_gain:.1%} of what the present leaves open"


def doubt_of(report: "FitReport | None") -> str | None:
    """Why the attention of a model is not credit; None where it is."""
    if report is None or report.verdict == "credit":
        return None
    return f"{_DOUBTS[report.verdict]}: what it looked at need not have earned the rewards"


def _unfinished(path: Path) -> dict[str, Any]:
    """The record of an interrupted run; empty if there is none to resume."""
    try:
        record = FORMAT.read_json(path)
    except (OSError, ValueError):
        return {}
    return record if record.get("finished") is False and isinstance(record.get("done"), list) else {}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
