"""Runs read back from disk: folders of commands and of ``train``, learning curves, and models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from secret_rl.checks import printable
from secret_rl.credit.base import load_method
from secret_rl.credit.report import FitReport
from secret_rl.evaluation import Comparison, CreditQuality, LearningCurves
from secret_rl.report.record import COMPARISON, COMPARISON_FORMAT, CURVES, FORMAT, RECORD, folder_of

if TYPE_CHECKING:
    from secret_rl.sb3 import DeepCurve

_TRAINING = "training.safetensors"
_PNG = b"\x89PNG\r\n\x1a\n"
_EXPECTED = (
    f"{RECORD} (of fit, learn and demo), {_TRAINING} (of train with folder=), {CURVES} (of learning curves), "
    "or a model written by fit"
)


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
    window: int = 1
    """Episodes that a point of the learning curves is the mean of."""
    comparison: Comparison | None = None
    verdict: str | None = None
    deep: "DeepCurve | None" = None
    pictures: Mapping[str, bytes] = field(default_factory=dict)
    """Caption -> PNG."""


def load_runs(paths: Sequence[Path]) -> list[Run]:
    """Every run, each under its own name."""
    runs: dict[str, Run] = {}
    for path in paths:
        if (name := printable(path)) in runs:
            raise ValueError(f"{name} is named twice: name each run once")
        runs[name] = _load(path, name)
    return list(runs.values())


def _load(path: Path, name: str) -> Run:
    if path.is_file():
        return _load_model(path, name)
    if not path.is_dir():
        raise FileNotFoundError(f"{path} does not exist: expected a folder with {_EXPECTED}")
    for file, load in ((RECORD, _load_command), (_TRAINING, _load_training), (CURVES, _load_curves)):
        if (path / file).is_file():
            with FORMAT.reading(path / file):
                return load(path, name)
    raise ValueError(f"nothing to report in {path}: expected {_EXPECTED}")


def _load_command(folder: Path, name: str) -> Run:
    record = FORMAT.read_json(folder / RECORD)
    facts = {"command": record["command"], "version": record["secret_rl"], "date": record["date"]}
    facts |= {"finished": bool(record["finished"]), "seconds": record.get("seconds")}
    fit, curves, comparison = (record.get(part) for part in ("fit", "curves", "comparison"))
    return Run(
        name,
        facts,
        _flat(record["settings"]),
        data=record.get("data"),
        fit=None if fit is None else FitReport.from_json(fit),
        quality={printable(of): CreditQuality.from_json(found) for of, found in record.get("quality", {}).items()},
        curves=None if curves is None else LearningCurves.load(folder / Path(curves).name),
        window=int(record.get("window", 1)),
        comparison=None if comparison is None else Comparison.from_json(comparison),
        verdict=record.get("verdict"),
        pictures={printable(of): _picture(folder / Path(file).name) for of, file in record.get("pictures", {}).items()},
    )


def _load_training(folder: Path, name: str) -> Run:
    from secret_rl.sb3.checkpoint import read_training

    settings, finished, deep = read_training(folder)
    return Run(name, {"command": "train", "finished": finished}, _flat(settings), deep=deep)


def _load_curves(folder: Path, name: str) -> Run:
    """Learning curves without a record, as the library saves them."""
    path = folder / COMPARISON
    comparison = Comparison.from_json(COMPARISON_FORMAT.read_json(path)) if path.is_file() else None
    return Run(name, {}, {}, curves=LearningCurves.load(folder / CURVES), comparison=comparison)


def _load_model(path: Path, name: str) -> Run:
    """A model; with the record of its fit, if that is beside it."""
    secret = load_method(path, device="cpu")
    if (folder_of(path) / RECORD).is_file():
        run = _load(folder_of(path), name)
        if run.fit is not None and secret.report is not None and run.fit.to_json() == secret.report.to_json():
            return run
    settings = {"method": secret.name, **getattr(secret, "settings", {})}
    return Run(name, {"command": "fit"}, _flat(settings), fit=secret.report)


def _picture(path: Path) -> bytes:
    content = path.read_bytes()
    if not content.startswith(_PNG):
        raise ValueError(f"{path} is no PNG picture")
    return content


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        nested = isinstance(value, Mapping) and value
        flat |= _flat(value, f"{prefix}{name}.") if nested else {f"{prefix}{name}": value}
    return flat
