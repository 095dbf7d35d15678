"""The interface of credit methods, what they return, and the registry that finds them by name.

This module needs NumPy alone. A method is one module of this package, or of another package that names it in the
entry-point group ``secret_rl.credit``; it registers its class:

    @register_method("mine")
    class Mine: ...
"""

import csv
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from secret_rl.atomic import replacing
from secret_rl.credit.report import FitReport
from secret_rl.files import FileFormat, whole_number
from secret_rl.plugins import load_plugins

if TYPE_CHECKING:
    import pandas

    from secret_rl.trajectories import Trajectories

REWARD_KINDS = {"positive": (1,), "negative": (-1,), "all": (-1, 0, 1)}
"""Which signs of reward a kind stands for."""
PLUGINS = "secret_rl.credit"
_FORMAT = FileFormat("secret-rl attributions", remedy="restore it or attribute again")
_MODEL_FORMAT = FileFormat("secret-rl credit model", remedy="restore it or fit again")
_MAY_DIFFER = {"low", "high", "dtype", "levels"}  # between the spaces of a fit and those it is used on

Specs = tuple[dict[str, Any], dict[str, Any]]
"""Observation space and action space, as JSON values."""
Method = TypeVar("Method", bound="CreditMethod")
T = TypeVar("T")


class NotFittedError(RuntimeError):
    """The method was asked for something before it was fitted."""


class CreditMethod(Protocol):
    """A way to learn which past steps earn rewards."""

    name: ClassVar[str]
    """Set by ``register_method``."""
    report: FitReport | None
    """How the fit went, in short ``report.verdict``; None before it."""

    def fit(self, data: "Trajectories", *, checkpoint: str | Path | None = None, progress: bool | None = None) -> Self:
        """Learn from trajectories, offline. A method that can resume keeps its state in the folder ``checkpoint``."""

    def attribute(self, data: "Trajectories", *, rewards: str = "all", progress: bool | None = None) -> "Attributions":
        """Which steps earned each reward of a kind (``REWARD_KINDS``)."""

    def step_credit(self, observations: Any, actions: Any, next_observations: Any = None) -> NDArray[np.float64]:
        """(steps,) the share of a future reward, from 0 to 1, that each (observation, action) pair would earn."""

    def check_spaces(self, observation_space: Any, action_space: Any) -> None:
        """Raise ValueError unless steps of these spaces can be scored."""

    def save(self, path: str | Path) -> Path:
        """Write one file, with ``write_model``."""

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto") -> Self:
        """Read what ``save`` wrote, with ``read_model``."""


_registered: dict[str, "type[CreditMethod] | str"] = {}


def register_method(name: str, module: str | None = None) -> Callable[[T], T]:
    """Register a credit method under a name: decorates its class.

    With ``module``, that module is imported when the method is first used, and registers the class.
    """

    def register(method: Any) -> Any:
        known = _registered.get(name, method)
        if isinstance(known, type) and (known.__module__, known.__qualname__) != (
            method.__module__, method.__qualname__,
        ):  # fmt: skip
            raise ValueError(f"credit method {name!r} is registered already, by {known}: choose another name")
        method.name = name
        _registered[name] = method
        return method

    if module is not None:
        _registered.setdefault(name, module)
    return register


def methods() -> tuple[str, ...]:
    """The names of all credit methods."""
    _discover()
    return tuple(sorted(_registered))


def method_class(name: str) -> "type[CreditMethod]":
    """The class of a credit method."""
    if name not in methods():
        raise ValueError(f"unknown credit method {name!r}: expected one of {', '.join(methods())}")
    found = _registered[name]
    if isinstance(found, str):
        import_module(found)
        found = _registered[name]
    assert not isinstance(found, str)
    return found


@cache
def _discover() -> None:
    """Import what registers methods: the modules of this package, and plug-ins."""
    for module in pkgutil.iter_modules(import_module("secret_rl.credit").__path__, "secret_rl.credit."):
        import_module(module.name)
    load_plugins(PLUGINS)


def load_method(path: str | Path, *, device: str = "auto") -> CreditMethod:
    """A fitted method of whatever kind the file holds."""
    name = _read(path)[0]["method"]
    with _MODEL_FORMAT.reading(Path(path)):
        method = method_class(name)
    return method.load(path, device=device)


def write_model(path: str | Path, method: str, about: Mapping[str, Any], arrays: Mapping[str, Any]) -> Path:
    """Write a fitted method to one safetensors file, whole or not at all: JSON values and arrays."""
    return _MODEL_FORMAT.write_arrays(path, {"method": method, **about}, arrays)


def read_model(path: str | Path, method: str, build: Callable[[dict[str, Any], dict[str, Any]], T]) -> T:
    """What ``build`` makes of the JSON values and arrays of a file; nothing in the file is run.

    Whatever goes wrong becomes a ``FileFormatError`` that names the file.
    """
    about, arrays = _read(path)
    with _MODEL_FORMAT.reading(Path(path)):
        if about["method"] != method:
            raise ValueError(f"it holds a model of method {about['method']!r}, expected {method!r}: use load_method")
        return build(about, arrays)


def _read(path: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path} is not a file: expected a credit model that was saved")
    return _MODEL_FORMAT.read_arrays(path)


def adapt(
    secret: Method,
    trajectories: "Trajectories",
    *,
    steps: int = 300,
    learning_rate: float | None = None,
    batch_size: int = 128,
    recolour: bool | None = None,
    seed: int | None = None,
    progress: bool | None = None,
) -> Method:
    """A copy of a fitted method, trained a little further on the rewards of target trajectories.

    A model that reads (observation, action) pairs reads them wrongly where actions have come to mean something else;
    a few hundred updates put that right. The method itself is left as it is. ``report`` of the copy is of the target.

    Args:
        secret: A fitted ``Secret``, or another method that can be adapted: one that has ``adapted``.
        trajectories: Of the target.
        steps: Updates.
        learning_rate: By default that of the fit.
        batch_size: Trajectories per update.
        recolour: Swap colours of pictures at random; by default as in the fit.
        seed: Of batches and dropout; by default that of the fit.
        progress: Show a progress bar; by default if the terminal is interactive.
    """
    if not hasattr(secret, "adapted"):
        raise TypeError(f"credit method {secret.name!r} cannot be adapted: fit it on the target trajectories")
    adapted: Method = secret.adapted(
        trajectories, steps=steps, learning_rate=learning_rate, batch_size=batch_size, recolour=recolour, seed=seed,
        progress=progress,
    )  # fmt: skip
    return adapted


class Inspector(Protocol):
    """What a method says of any step, rewarded or not, one episode at a time."""

    def probabilities(self, episode: int) -> NDArray[np.float32]:
        """(steps, class) how likely the reward of each step is of each class of ``report.classes``."""

    def attention(self, episode: int, steps: NDArray[np.int64]) -> NDArray[np.float32]:
        """(rows, all steps) credit that the rewards at some steps would give to the steps up to them."""


def inspector(method: CreditMethod, data: "Trajectories") -> Inspector:
    """The inspector of a method; of one that has none, its attributions."""
    if method.report is None:
        raise NotFittedError("the method is not fitted yet: call fit, or load a file")
    made = getattr(method, "inspector", None)
    return _AttributionInspector(method, data, method.report) if made is None else made(data)


class _AttributionInspector:
    """Rewards that are attributed count as predicted, all others as predicted to be 0."""

    def __init__(self, method: CreditMethod, data: "Trajectories", report: FitReport) -> None:
        self._found = method.attribute(data, progress=False)
        self._classes, self._data = report.classes, data

    def probabilities(self, episode: int) -> NDArray[np.float32]:
        """(steps, class)"""
        predicted = np.zeros(int(self._data.lengths[episode]))
        rows = self._found.episode == episode
        predicted[self._found.step[rows]] = self._found.reward[rows]
        return np.eye(len(self._classes), dtype=np.float32)[self._classes.index(predicted)]

    def attention(self, episode: int, steps: NDArray[np.int64]) -> NDArray[np.float32]:
        """(rows, all steps)"""
        found = np.zeros((len(steps), int(self._data.lengths[episode])), np.float32)
        rows = {int(self._found.step[r]): int(r) for r in np.flatnonzero(self._found.episode == episode)}
        for i, step in enumerate(steps.tolist()):
            if step in rows:
                row = self._found.row(rows[step])
                found[i, : len(row)] = row
        return found


@dataclass(frozen=True, eq=False)
class Attributions:
    """One row per reward that was predicted correctly: how much each step up to it earned of it.

    The weights of row ``r`` are ``weights[offsets[r]:offsets[r + 1]]``, for steps 0, 1, ... of its episode; they
    sum to 1.
    """

    episode: NDArray[np.int64]
    """(rows,) number of the episode in the trajectories."""
    step: NDArray[np.int64]
    """(rows,) step of the episode at which the reward came."""
    predicted_at: NDArray[np.int64]
    """(rows,) step whose prediction and attention these are; the same step unless a tolerance is given."""
    reward: NDArray[np.float64]
    """(rows,)"""
    evidence: NDArray[np.float32]
    """(rows,) what attention adds to the log-probability of the reward's class. Where it adds nothing, the model
    infers the reward from what it did *not* find, and the row says little."""
    weights: NDArray[np.float32]
    """Credit, row after row."""
    offsets: NDArray[np.int64]
    """(rows + 1,) where the weights of each row begin."""
    rewards_seen: int
    """Rewards of the requested kind that the present leaves open, predicted or not."""
    lengths: NDArray[np.int64] = field(repr=False)
    """(episodes,) steps of every episode of the trajectories."""

    def __len__(self) -> int:
        return len(self.episode)

    @property
    def coverage(self) -> float:
        """The share of rewards that were predicted correctly and so have a row."""
        return len(self) / self.rewards_seen if self.rewards_seen else 0.0

    def row(self, r: int) -> NDArray[np.float32]:
        """(steps,) the weights of one row."""
        return self.weights[self.offsets[r] : self.offsets[r + 1]]

    def step_credit(self) -> NDArray[np.float64]:
        """(all steps,) what each step earned: the sum over later rewards of weight times reward."""
        starts = np.concatenate([[0], np.cumsum(self.lengths)])
        counts = np.diff(self.offsets)
        within = np.arange(len(self.weights)) - np.repeat(self.offsets[:-1], counts)
        rows = np.repeat(starts[self.episode], counts) + within
        earned = self.weights * np.repeat(self.reward, counts)
        return np.asarray(np.bincount(rows, weights=earned, minlength=int(starts[-1])), np.float64)

    def columns(self, threshold: float = 0.0) -> dict[str, NDArray[Any]]:
        """A long table (episode, reward_step, reward, step, weight), weights above the threshold only."""
        kept = np.flatnonzero(self.weights > threshold)
        row = np.repeat(np.arange(len(self)), np.diff(self.offsets))[kept]
        return {
            "episode": self.episode[row],
            "reward_step": self.step[row],
            "reward": self.reward[row],
            "step": kept - self.offsets[row],
            "weight": self.weights[kept],
        }

    def to_pandas(self, threshold: float = 0.0) -> "pandas.DataFrame":
        """The table of ``columns`` as a data frame."""
        try:
            import pandas
        except ModuleNotFoundError as missing:
            raise ModuleNotFoundError('to_pandas needs the report extra: pip install "secret-rl[report]"') from missing
        return pandas.DataFrame(self.columns(threshold))

    def to_csv(self, path: str | Path, threshold: float = 0.0) -> Path:
        """Write the table of ``columns``, whole or not at all."""
        columns = self.columns(threshold)
        with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))
        return Path(path)

    def save(self, path: str | Path) -> Path:
        """Write one safetensors file, whole or not at all."""
        return _FORMAT.write_arrays(path, {"rewards_seen": self.rewards_seen}, self._arrays())

    @classmethod
    def load(cls, path: str | Path) -> "Attributions":
        """Read what ``save`` wrote."""
        path = Path(path)
        about, arrays = _FORMAT.read_arrays(path)
        with _FORMAT.reading(path):
            loaded = cls(rewards_seen=whole_number(about["rewards_seen"], high=2**62), **arrays)
            loaded._check()
        return loaded

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "rewards_seen"}

    def _check(self) -> None:
        """ValueError unless the arrays fit each other."""
        types = {"reward": np.float64, "weights": np.float32, "evidence": np.float32}
        for name, array in self._arrays().items():
            if array.ndim != 1 or array.dtype != types.get(name, np.int64):
                raise ValueError(f"{name} is {array.dtype} of shape {array.shape}")
        rows = len(self)
        columns = self.step, self.predicted_at, self.reward, self.evidence, self.offsets[1:]
        if any(len(column) != rows for column in columns):
            raise ValueError("its arrays are of different lengths")
        if self.offsets[0] != 0 or self.offsets[-1] != len(self.weights) or (np.diff(self.offsets) < 1).any():
            raise ValueError("its offsets do not fit its weights")
        if (self.lengths < 1).any() or self.lengths.sum(dtype=np.float64) > 2**40:
            raise ValueError("its episodes have no length, or too much")
        if rows and not 0 <= self.episode.min() <= self.episode.max() < len(self.lengths):
            raise ValueError("it names episodes that are not there")
        length = self.lengths[self.episode]
        if (np.diff(self.offsets) > length).any() or ((self.step < 0) | (self.step >= length)).any():
            raise ValueError("it names steps that are not there")


def specs_of(observation_space: Any, action_space: Any) -> Specs:
    """Spaces as JSON values."""
    from secret_rl.trajectories.spaces import to_json

    return to_json(observation_space), to_json(action_space)


def check_specs(fitted_on: Specs, there_are: Specs) -> None:
    """Raise ValueError unless spaces are of the same kind and shape; bounds and dtypes of boxes may differ."""
    for kind, mine, theirs in zip(("observations", "actions"), fitted_on, there_are, strict=True):
        if not _compatible(mine, theirs):
            raise ValueError(f"the model was fitted on {kind} of {mine}, there are {theirs}")


def _compatible(mine: Any, theirs: Any) -> bool:
    if isinstance(mine, dict) and isinstance(theirs, dict):
        mine, theirs = ({k: v for k, v in spec.items() if k not in _MAY_DIFFER} for spec in (mine, theirs))
        return mine.keys() == theirs.keys() and all(_compatible(mine[k], theirs[k]) for k in mine)
    if isinstance(mine, list) and isinstance(theirs, list):
        return len(mine) == len(theirs) and all(_compatible(a, b) for a, b in zip(mine, theirs, strict=True))
    return bool(mine == theirs)
