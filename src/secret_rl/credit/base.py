"""The interface of credit methods, what they return, and the registry that finds them by name. Needs NumPy alone.

A method is one module of this package, or of another package that names it in the entry-point group
``secret_rl.credit``; it registers its class:

    @register_method("mine")
    class Mine(ArrayMethod): ...
"""

import pkgutil
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from secret_rl.credit.attributions import Attributions
from secret_rl.credit.report import FitReport
from secret_rl.files import FileFormat
from secret_rl.plugins import load_plugins

if TYPE_CHECKING:
    from secret_rl.trajectories import Trajectories

PLUGINS = "secret_rl.credit"
_FORMAT = FileFormat("secret-rl credit model", remedy="restore it or fit again")
_MAY_DIFFER = {"low", "high", "dtype", "levels"}  # between the spaces of a fit and those it is used on

Specs = tuple[dict[str, Any], dict[str, Any]]
"""Observation space and action space, as JSON values."""
Method = TypeVar("Method", bound="CreditMethod")
T = TypeVar("T")


class NotFittedError(RuntimeError):
    """The method was used before it was fitted."""


class CreditMethod(Protocol):
    """A way to learn which past steps earn rewards."""

    name: ClassVar[str]
    """Set by ``register_method``."""
    report: FitReport | None
    """How the fit went, in short ``report.verdict``; None before it."""

    def fit(self, data: "Trajectories", *, checkpoint: str | Path | None = None, progress: bool | None = None) -> Self:
        """Learn from trajectories, offline. A method that can resume keeps its state in the folder ``checkpoint``."""

    def attribute(self, data: "Trajectories", *, rewards: str = "all", progress: bool | None = None) -> Attributions:
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
        known = _registered.get(name)
        if isinstance(known, type) and str(known) != str(method):  # the same class may be defined again
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
    if isinstance(module := _registered[name], str):
        import_module(module)
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
    with _FORMAT.reading(Path(path)):
        method = method_class(name)
    return method.load(path, device=device)


def write_model(path: str | Path, method: str, about: Mapping[str, Any], arrays: Mapping[str, Any]) -> Path:
    """Write a fitted method to one safetensors file, whole or not at all: JSON values and arrays."""
    return _FORMAT.write_arrays(path, {"method": method, **about}, arrays)


def read_model(path: str | Path, method: str, build: Callable[[dict[str, Any], dict[str, Any]], T]) -> T:
    """What ``build`` makes of the JSON values and arrays of a file; whatever goes wrong is a ``FileFormatError``."""
    about, arrays = _read(path)
    with _FORMAT.reading(Path(path)):
        if about["method"] != method:
            raise ValueError(f"it holds a model of method {about['method']!r}, expected {method!r}: use load_method")
        return build(about, arrays)


def _read(path: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path} is not a file: expected a credit model that was saved")
    return _FORMAT.read_arrays(path)


def specs_of(observation_space: Any, action_space: Any) -> Specs:
    """Spaces as JSON values."""
    from secret_rl.trajectories.spaces import to_json

    return to_json(observation_space), to_json(action_space)


def check_specs(fitted_on: Specs, there_are: Specs) -> None:
    """Raise ValueError unless spaces are of the same kind and shape; bounds and dtypes of boxes may differ."""
    for kind, mine, theirs in zip(("observations", "actions"), fitted_on, there_are, strict=True):
        if _compared(mine) != _compared(theirs):
            raise ValueError(f"the model was fitted on {kind} of {mine}, there are {theirs}")


def _compared(spec: Any) -> Any:
    """The part of a spec that must not differ."""
    if isinstance(spec, dict):
        return {name: _compared(part) for name, part in spec.items() if name not in _MAY_DIFFER}
    return [_compared(part) for part in spec] if isinstance(spec, list) else spec


def method_repr(method: Any) -> str:
    """A credit method in short, and what came of its fit."""
    verdict = "not fitted" if method.report is None else f"verdict: {method.report.verdict}"
    return f"<{method.name} credit, {verdict}>"


class ArrayMethod:
    """What most methods share: options, a report, the spaces they were fitted on, and a file of arrays.

    A subclass has ``fit``, which calls ``_fitted``, ``attribute`` and ``step_credit``. Its options are JSON values.
    """

    name: ClassVar[str]

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.report: FitReport | None = None
        self._specs: Specs | None = None
        self._arrays: dict[str, NDArray[Any]] = {}

    def __repr__(self) -> str:
        return method_repr(self)

    def _fitted(self, data: "Trajectories", report: FitReport, arrays: dict[str, NDArray[Any]]) -> Self:
        """Keep the result of a fit."""
        self._specs, self.report, self._arrays = specs_of(data.observation_space, data.action_space), report, arrays
        return self

    def _array(self, name: str) -> NDArray[Any]:
        """What the fit has found; NotFittedError before it."""
        if self.report is None:
            raise NotFittedError(f"{self.name} is not fitted yet: call fit, or load a file")
        return self._arrays[name]

    def check_spaces(self, observation_space: Any, action_space: Any) -> None:
        """ValueError where it was fitted on other spaces."""
        if self._specs is not None:
            check_specs(self._specs, specs_of(observation_space, action_space))

    def save(self, path: str | Path) -> Path:
        """Write one file."""
        if self.report is None:
            raise NotFittedError("there is nothing to save yet: call fit first")
        about = {"specs": self._specs, "options": self.options, "report": self.report.to_json()}
        return write_model(path, self.name, about, self._arrays)

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto") -> Self:  # noqa: ARG003  NumPy runs on the CPU
        """Read what ``save`` wrote."""

        def build(about: dict[str, Any], arrays: dict[str, Any]) -> Any:
            loaded = cls(**about["options"])
            loaded._specs, loaded._arrays = tuple(about["specs"]), arrays
            loaded.report = FitReport.from_json(about["report"])
            return loaded

        made: Self = read_model(path, cls.name, build)
        return made


def adapt(
    secret: Method,
    trajectories: "Trajectories",
    *,
    steps: int = 300,
    learning_rate: float | None = None,
    batch_size: int = 128,
    seed: int | None = None,
    progress: bool | None = None,
) -> Method:
    """A copy of a fitted method, trained a little further on the rewards of target trajectories.

    It helps where actions have come to mean something else. ``report`` of the copy is of the target.

    Args:
        secret: A fitted ``Secret``, or another method that can be adapted: one that has ``adapted``.
        trajectories: Of the target.
        steps: Updates.
        learning_rate: By default that of the fit.
        batch_size: Trajectories per update.
        seed: Of batches and dropout; by default that of the fit.
        progress: Show a progress bar; by default if the terminal is interactive.
    """
    if not hasattr(secret, "adapted"):
        raise TypeError(f"credit method {secret.name!r} cannot be adapted: fit it on the target trajectories")
    adapted: Method = secret.adapted(
        trajectories, steps=steps, learning_rate=learning_rate, batch_size=batch_size, seed=seed,
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
    return _AttributionInspector(method, method.report, data) if made is None else made(data)


class _AttributionInspector:
    """Rewards that are attributed count as predicted, all others as predicted to be 0."""

    def __init__(self, method: CreditMethod, report: FitReport, data: "Trajectories") -> None:
        self._found, self._classes = method.attribute(data, progress=False), report.classes

    def probabilities(self, episode: int) -> NDArray[np.float32]:
        """(steps, class)"""
        predicted, rows = np.zeros(self._found.lengths[episode]), self._found.episode == episode
        predicted[self._found.step[rows]] = self._found.reward[rows]
        return np.eye(len(self._classes), dtype=np.float32)[self._classes.index(predicted)]

    def attention(self, episode: int, steps: NDArray[np.int64]) -> NDArray[np.float32]:
        """(rows, all steps)"""
        found = np.zeros((len(steps), self._found.lengths[episode]), np.float32)
        for r in np.flatnonzero(self._found.episode == episode).tolist():
            row = self._found.row(r)
            found[steps == self._found.step[r], : len(row)] = row
        return found
