"""SECRET: credit learned offline from trajectories, read out from attention."""

import json
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from secret_rl.credit.attribution import Attributions, attribute
from secret_rl.credit.diagnosis import FitReport
from secret_rl.credit.fitting import (
    Fitting,
    choose_device,
    fingerprint,
    open_checkpoint,
)
from secret_rl.credit.measures import Confusion
from secret_rl.credit.model import RewardPredictor
from secret_rl.credit.online import Queries, source_queries, step_credit
from secret_rl.credit.options import ModelOptions, TrainingOptions, to_json
from secret_rl.credit.tokens import Tokens
from secret_rl.credit.training import evaluate
from secret_rl.files import replacing
from secret_rl.progress import progress_bar
from secret_rl.version import VERSION

if TYPE_CHECKING:
    from secret_rl.trajectories import Trajectories

_FORMAT = "secret-rl credit model"
_FORMAT_VERSION = 1
_QUERIES = "queries."  # how the tensors begin that do not belong to the model


class ModelError(ValueError):
    """A file that cannot be read as a credit model, with what is wrong and what to do."""


class NotFittedError(RuntimeError):
    """The model was asked for something before it was fitted."""


class Secret:
    """Learns which past steps earn rewards, and says so of other trajectories.

    Options are the fields of ``ModelOptions`` and ``TrainingOptions`` by name.

    >>> import secret_rl as srl
    >>> data = srl.collect("secret_rl/Triggers-v0", 200, env_options={"triggers": 0, "size": 3}, success_share=0.5)
    >>> secret = srl.Secret(seed=0, steps=20, units=16, validation=0.2)
    """

    def __init__(self, *, seed: int = 0, device: str = "auto", **options: Any) -> None:
        names = {kind: {f.name for f in fields(kind)} for kind in (ModelOptions, TrainingOptions)}
        unknown = sorted(options.keys() - set().union(*names.values()))
        if unknown:
            known = ", ".join(sorted(set().union(*names.values())))
            raise TypeError(f"unknown option {', '.join(unknown)}: expected some of {known}")
        self.model_options = ModelOptions(**{n: v for n, v in options.items() if n in names[ModelOptions]})
        self.training_options = TrainingOptions(**{n: v for n, v in options.items() if n in names[TrainingOptions]})
        self.seed = seed
        self.device = choose_device(device)
        self.model: RewardPredictor | None = None
        self.report: FitReport | None = None
        self.queries: Queries | None = None
        """What rewards of the source looked for; None if none of the positive ones is predicted."""
        self._specs: tuple[dict[str, Any], dict[str, Any]] | None = None

    def fit(
        self, data: "Trajectories", *, checkpoint: str | Path | None = None, progress: bool | None = None
    ) -> "Secret":
        """Learn from trajectories; ``report`` tells how that went.

        With ``checkpoint``, a folder, a fit that is interrupted goes on where it stopped when called again.
        """
        specs = _specs_of(data)
        mark = fingerprint(data, self.model_options, self.training_options, self.seed)
        with progress_bar(progress, "updates") as tick, _precise_enough(self.device):
            fitting = Fitting(
                data, specs, self.model_options, self.training_options, self.seed, self.device,
                open_checkpoint(checkpoint, mark), tick,
            )  # fmt: skip
            model, report = fitting.run()
        self.model, self.report, self._specs = model.to(self.device).eval(), report, specs
        return self.remember(data)

    def remember(self, data: "Trajectories") -> "Secret":
        """Keep what the positive rewards of some trajectories look for, for ``step_credit``; ``fit`` does so."""
        self.queries = source_queries(self.fitted_for(data), data, self.device, self.seed)
        return self

    def step_credit(self, observations: Any, actions: Any) -> NDArray[np.float64]:
        """(steps,) what share of a reward of the source each (observation, action) pair would earn, from 0 to 1.

        No trajectory and no reward of the target is needed. ``observations`` and ``actions`` hold one row per step.
        """
        return step_credit(*self._remembered(), observations, actions, self.device)

    def check_spaces(self, observation_space: Any, action_space: Any) -> None:
        """An error where steps of these spaces cannot be scored: it was fitted on others, or remembers no reward."""
        from secret_rl.trajectories.spaces import to_json as space_to_json

        self._remembered()
        self._check_specs("there are", space_to_json(observation_space), space_to_json(action_space))

    def _remembered(self) -> tuple[RewardPredictor, Queries]:
        """The model, and what rewards of the source looked for."""
        if self.model is None:
            raise NotFittedError("the model is not fitted yet: call fit, or Secret.load")
        if self.queries is None:
            raise NotFittedError(
                "the model remembers no reward that it predicted correctly, so it cannot tell what rewards look for: "
                "call remember(trajectories) with some that hold positive rewards"
            )
        return self.model, self.queries

    def attribute(
        self,
        data: "Trajectories",
        *,
        rewards: str = "all",
        tolerance: int = 0,
        needing_past: bool = False,
        progress: bool | None = None,
    ) -> Attributions:
        """Who earned each reward that is predicted correctly.

        ``rewards`` is "positive", "negative" or "all"; ``tolerance`` counts a prediction as correct within so many
        steps of the reward (5 in the paper's DMLab setting). With ``needing_past``, rewards that the model predicts as
        well when it looks at no earlier step are left out: where the past decides nothing, attention is not credit.
        """
        with progress_bar(progress, "rewards") as tick:
            return attribute(self.fitted_for(data), data, self.device, rewards, tolerance, tick, needing_past)

    def evaluate(self, data: "Trajectories") -> Confusion:
        """How well the signs of rewards are predicted."""
        model = self.fitted_for(data)
        tokens = Tokens.of(data)
        weights = torch.ones(3, device=self.device)
        return evaluate(model, tokens, np.arange(len(data)), weights, self.device).confusion

    def save(self, path: str | Path) -> Path:
        """Write one safetensors file: weights, and everything else as JSON in its header."""
        if self.model is None or self.report is None or self._specs is None:
            raise NotFittedError("there is nothing to save yet: call fit first")
        from safetensors.torch import save_file

        path = Path(path)
        description = {
            "format": _FORMAT,
            "version": _FORMAT_VERSION,
            "library": VERSION,
            "observation_space": self._specs[0],
            "action_space": self._specs[1],
            "model": to_json(self.model_options),
            "training": to_json(self.training_options),
            "seed": self.seed,
            "report": self.report.to_json(),
        }
        tensors = dict(self.model.state_dict())
        if self.queries is not None:
            tensors |= {f"{_QUERIES}{name}": value for name, value in self.queries._asdict().items()}
        weights = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
        with replacing(path) as temporary:
            save_file(weights, temporary, metadata={"secret_rl": json.dumps(description)})
        return path

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto") -> "Secret":
        """Read a model; nothing in the file is run."""
        description, weights = _read(Path(path))
        try:
            options = {**description["model"], **description["training"]}
            options = {name: tuple(v) if isinstance(v, list) else v for name, v in options.items()}
            secret = cls(seed=description["seed"], device=device, **options)
            secret._specs = (description["observation_space"], description["action_space"])
            secret.report = FitReport.from_json(description["report"])
            model = RewardPredictor(*secret._specs, secret.model_options)
            queries = {name: weights.pop(name).to(secret.device) for name in list(weights) if name.startswith(_QUERIES)}
            if queries:
                secret.queries = Queries(**{name.removeprefix(_QUERIES): value for name, value in queries.items()})
                secret.queries.check(secret.model_options.units)
            model.load_state_dict(weights)
        except (KeyError, TypeError, ValueError, RuntimeError) as broken:
            raise ModelError(f"{path} does not describe a credit model this library can build: {broken}") from broken
        secret.model = model.to(secret.device).eval()
        return secret

    @classmethod
    def of(cls, other: "Secret", training: TrainingOptions, seed: int) -> "Secret":
        """One like another, with other training options; not fitted yet."""
        options = {**vars(other.model_options), **vars(training)}
        secret = cls(seed=seed, device=str(other.device), **options)
        secret._specs = other._specs
        return secret

    @property
    def specs(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The spaces of observations and actions it was fitted on, as JSON values."""
        if self._specs is None:
            raise NotFittedError("the model is not fitted yet: call fit, or Secret.load")
        return self._specs

    def fitted_for(self, data: "Trajectories") -> RewardPredictor:
        """The model, if it is fitted and reads such trajectories; else an error."""
        if self.model is None:
            raise NotFittedError("the model is not fitted yet: call fit, or Secret.load")
        self._check_specs("these trajectories hold", *_specs_of(data))
        if not len(data):
            raise ValueError("no trajectories were given")
        return self.model

    def _check_specs(self, found: str, *specs: dict[str, Any]) -> None:
        for kind, mine, theirs in zip(("observations", "actions"), self.specs, specs, strict=True):
            if not _compatible(mine, theirs):
                raise ValueError(f"the model was fitted on {kind} of {mine}, {found} {theirs}")


def _specs_of(data: "Trajectories") -> tuple[dict[str, Any], dict[str, Any]]:
    from secret_rl.trajectories.spaces import to_json as space_to_json

    return space_to_json(data.observation_space), space_to_json(data.action_space)


def _compatible(mine: Any, theirs: Any) -> bool:
    """Same kind and shape; bounds and dtypes of boxes may differ."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        ignored = {"low", "high", "dtype"}
        return mine.keys() == theirs.keys() and all(_compatible(mine[k], theirs[k]) for k in mine.keys() - ignored)
    if isinstance(mine, list) and isinstance(theirs, list):
        return len(mine) == len(theirs) and all(_compatible(a, b) for a, b in zip(mine, theirs, strict=True))
    return bool(mine == theirs)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file: expected a model written by Secret.save")
    try:
        with safe_open(path, framework="pt") as file:
            description = json.loads((file.metadata() or {}).get("secret_rl", "null"))
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a mapping
    except (SafetensorError, json.JSONDecodeError, OSError) as broken:
        raise ModelError(
            f"{path} is not a readable safetensors file ({broken}): it was damaged, or is no model"
        ) from broken
    if not isinstance(description, dict) or description.get("format") != _FORMAT:
        raise ModelError(f"{path} is a safetensors file, but no credit model of this library")
    if description.get("version") != _FORMAT_VERSION:
        raise ModelError(
            f"{path} has format version {description.get('version')!r}, this library reads {_FORMAT_VERSION}: "
            f"open it with secret-rl {description.get('library', 'of another version')}"
        )
    return description, weights


class _precise_enough:
    """TF32 products while fitting on a GPU: the sign of a reward needs no more."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"

    def __enter__(self) -> None:
        if self._cuda:
            self._before = torch.get_float32_matmul_precision()
            torch.set_float32_matmul_precision("high")

    def __exit__(self, *_: object) -> None:
        if self._cuda:
            torch.set_float32_matmul_precision(self._before)
