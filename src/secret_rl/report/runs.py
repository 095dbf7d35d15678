"""Runs on disk: ``run.json`` in the folder of a command says what was run, how far it got, and the results.

Written by commands (``RunFolder``), and read back for reports (``load_runs``) beside models and folders of ``train``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from secret_rl.atomic import folder_lock, sweep
from secret_rl.checks import printable
from secret_rl.credit.base import load_method
from secret_rl.credit.report import IN_WORDS, FitReport
from secret_rl.evaluation import Comparison, CreditQuality, LearningCurves
from secret_rl.files import FileFormat, plain
from secret_rl.version import VERSION

if TYPE_CHECKING:
    from secret_rl.sb3 import DeepCurve

RECORD, CURVES = "run.json", "curves.safetensors"  # files in the folder of a run
WINDOW = 20  # episodes that a level of return is the mean of
FORMAT = FileFormat("secret-rl run", remedy="run the command again")
_ARRAY = FileFormat("secret-rl part of a run", remedy="run the command again")
_PARTS, _TRAINING = "parts", "training.safetensors"
_EXPECTED = f"{RECORD} (of fit, learn and demo), {_TRAINING} (of train with folder=), or a model written by fit"

T = TypeVar("T")


class RunFolder:
    """The folder of a run. An interrupted run is resumed if the same run is started again; any other starts afresh.

    Only parts that the record names count, and the record is replaced last, so a folder is valid at every moment. One
    process at a time holds it, until the block ends.

    Args:
        folder: Where the record and the parts are written.
        command: What is run.
        settings: What the run depends on.
        inputs: Files it reads, compared by content, or text.
    """

    def __init__(
        self, folder: Path, command: str, settings: Mapping[str, Any],
        inputs: Mapping[str, Path | str | None] | None = None,
    ) -> None:  # fmt: skip
        self.folder = folder
        content = {
            name: value if isinstance(value, str) else sha256(value.read_bytes()).hexdigest()
            for name, value in (inputs or {}).items()
            if value is not None
        }
        run = {"secret_rl": VERSION, "command": command, "settings": plain(settings), "inputs": content}
        self._lock = folder_lock(folder)
        try:
            record = FORMAT.read_json(folder / RECORD)
        except (OSError, ValueError):  # none, or damaged
            record = {}
        self.resumed = record.items() >= {**run, "finished": False}.items()
        self._record = record if self.resumed else {**run, "finished": False, "done": []}
        if not self.resumed:
            rmtree(folder / _PARTS, ignore_errors=True)
        try:
            self._write()
        except BaseException:
            self._lock.release()
            raise

    def lacks(self, part: str) -> bool:
        """Whether a part of the run has not been made yet."""
        return part not in self._record["done"]

    def once(self, part: str, make: Callable[[], T], load: Callable[[], T]) -> T:
        """Make a part of the run, or load it if it was made before an interruption."""
        if not self.lacks(part):
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
        self._record |= {"finished": True, **plain(results)}
        self._write()
        rmtree(self.folder / _PARTS, ignore_errors=True)
        sweep(self.folder)
        return self._record

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _write(self) -> None:
        self._record["date"] = datetime.now(UTC).isoformat(timespec="seconds")
        FORMAT.write_json(self.folder / RECORD, self._record)


def folder_of(model: Path) -> Path:
    """The folder with the record of a fit, beside its model."""
    return model.with_name(f"{model.name.removesuffix('.safetensors')}.run")


def verdict_of(report: FitReport) -> str:
    """The verdict on a credit model, and how much of the open uncertainty the past removes."""
    if report.gain is None:
        return f"verdict: {report.verdict}"
    return f"verdict: {report.verdict}; the past removes {report.history_gain:.1%} of what the present leaves open"


def doubt_of(report: FitReport | None) -> str | None:
    """Why the attention of a model is not credit; None where it is."""
    if report is None or report.verdict == "credit":
        return None
    return f"{IN_WORDS[report.verdict]}: what it looked at need not have earned the rewards"


@dataclass(frozen=True)
class Run:
    """What is known of a run; None or empty where it has none."""

    name: str
    facts: Mapping[str, Any]
    """The command, the version, the date, whether it is finished."""
    settings: Mapping[str, Any]
    """By name; nested ones as ``option.size``."""
    data: Mapping[str, Any] | None = None
    """The summary of the trajectories."""
    fit: FitReport | None = None
    quality: Mapping[str, CreditQuality] = field(default_factory=dict)
    """By the name of the trajectories that credit was judged on."""
    curves: LearningCurves | None = None
    comparison: Comparison | None = None
    verdict: str | None = None
    deep: "DeepCurve | None" = None


def load_runs(paths: Sequence[Path]) -> list[Run]:
    """Every run, each under its own name."""
    names = [printable(path) for path in paths]
    if len(set(names)) < len(names):
        raise ValueError(f"a run is named twice, name each once: {', '.join(names)}")
    return [_load(path, name) for path, name in zip(paths, names, strict=True)]


def _load(path: Path, name: str) -> Run:
    if path.is_file():
        return _load_model(path, name)
    for file, load in ((RECORD, _load_command), (_TRAINING, _load_training)):
        if (path / file).is_file():
            with FORMAT.reading(path / file):
                return load(path, name)
    raise FileNotFoundError(f"nothing to report in {path}: expected a folder with {_EXPECTED}")


def _load_command(folder: Path, name: str) -> Run:
    record = FORMAT.read_json(folder / RECORD)
    fit, comparison = (record.get(part) for part in ("fit", "comparison"))
    return Run(
        name,
        {fact: record.get(fact) for fact in ("command", "secret_rl", "date", "finished", "seconds")},
        _flat(record["settings"]),
        data=record.get("data"),
        fit=None if fit is None else FitReport.from_json(fit),
        quality={printable(of): CreditQuality.from_json(found) for of, found in record.get("quality", {}).items()},
        curves=None if comparison is None else LearningCurves.load(folder / CURVES),
        comparison=None if comparison is None else Comparison.from_json(comparison),
        verdict=record.get("verdict"),
    )


def _load_training(folder: Path, name: str) -> Run:
    from secret_rl.sb3.checkpoint import read_training

    settings, finished, deep = read_training(folder)
    return Run(name, {"command": "train", "finished": finished}, _flat(settings), deep=deep)


def _load_model(path: Path, name: str) -> Run:
    """A model; with the record of its fit, if that is beside it."""
    secret = load_method(path, device="cpu")
    if (folder_of(path) / RECORD).is_file():
        run = _load(folder_of(path), name)
        if run.fit is not None and secret.report is not None and run.fit.to_json() == secret.report.to_json():
            return run
    settings = {"method": secret.name, **getattr(secret, "settings", {})}
    return Run(name, {"command": "fit"}, _flat(settings), fit=secret.report)


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        nested = isinstance(value, Mapping) and value
        flat |= _flat(value, f"{prefix}{name}.") if nested else {f"{prefix}{name}": value}
    return flat
