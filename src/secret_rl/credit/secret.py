"""SECRET: credit learned offline from trajectories, read out from attention."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from secret_rl.credit.attribution import Attributions, attribute
from secret_rl.credit.checkpoint import Checkpoint
from secret_rl.credit.classes import RewardClasses
from secret_rl.credit.diagnosis import FitReport
from secret_rl.credit.encoders import check_spec, with_levels
from secret_rl.credit.fitting import Estimate, Fitting, choose_device, example_rows, fingerprint
from secret_rl.credit.measures import Confusion
from secret_rl.credit.memoryless import Present
from secret_rl.credit.model import RewardPredictor
from secret_rl.credit.online import Queries, source_queries, step_credit
from secret_rl.credit.options import ModelOptions, TrainingOptions, to_json
from secret_rl.credit.tokens import Tokens
from secret_rl.credit.training import evaluate
from secret_rl.files import FileFormat, whole_number
from secret_rl.progress import progress_bar

if TYPE_CHECKING:
    from secret_rl.trajectories import Trajectories

_FORMAT = FileFormat("secret-rl credit model", remedy="restore it or fit again")
_QUERIES, _PRESENT = "queries.", "present."  # how the tensors begin that do not belong to the model


_IGNORED = {"low", "high", "dtype", "levels"}


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
        self.present: Present | None = None
        """What predicts rewards without memory."""
        self.report: FitReport | None = None
        self.queries: Queries | None = None
        """What rewards of the source looked for; None if none of the positive ones is predicted."""
        self._specs: tuple[dict[str, Any], dict[str, Any]] | None = None
        self._checkpoint: Checkpoint | None = None

    def fit(
        self,
        data: "Trajectories",
        *,
        weights: NDArray[Any] | None = None,
        reward: Callable[[NDArray[Any]], NDArray[Any]] | None = None,
        checkpoint: str | Path | None = None,
        progress: bool | None = None,
    ) -> "Secret":
        """Learn from trajectories; ``report`` tells how that went, in short with ``report.verdict``.

        ``weights`` (steps,) are those of the steps in the loss, instead of what the option ``weights`` says. ``reward``
        makes other rewards of the array of all rewards, to learn credit for those.

        With ``checkpoint``, a folder, a fit that is interrupted goes on where it stopped when called again. The folder
        is kept until ``save`` has written the result. On one machine, with the same number of threads
        (``torch.set_num_threads``), the same data and seed give the same weights, to the bit; another number of threads
        adds numbers up in another order, and results differ in their last digits.
        """
        if reward is not None:
            data = data.with_rewards(reward)
        if weights is not None:
            weights = _checked_weights(weights, data.steps)
        specs = _encoded_specs(data)
        options = self.model_options, self.training_options
        mark = {} if checkpoint is None else fingerprint(data, *options, self.seed, weights)
        kept = Checkpoint(None if checkpoint is None else Path(checkpoint), mark)
        with closing(kept), progress_bar(progress, "updates") as tick, _precise_enough(self.device):
            fitting = Fitting(data, specs, *options, self.seed, self.device, kept, tick, weights)
            self.take(fitting.run(), specs)
        self._checkpoint = kept
        return self.remember(data)

    def estimate(self, data: "Trajectories") -> Estimate:
        """What ``fit`` will take at most, from a few updates on the longest trajectories."""
        options = self.model_options, self.training_options
        return Fitting(
            data, _encoded_specs(data), *options, self.seed, self.device, Checkpoint(None, {}), lambda *_: None
        ).estimate()

    def take(
        self, fitted: tuple[RewardPredictor, Present, FitReport], specs: tuple[dict[str, Any], dict[str, Any]]
    ) -> None:
        """Keep what fitting came to."""
        model, present, self.report = fitted
        self.model, self.present, self._specs = model.to(self.device).eval(), present.to(self.device), specs

    def remember(self, data: "Trajectories") -> "Secret":
        """Keep what the positive rewards of some trajectories look for, for ``step_credit``; ``fit`` does so."""
        model = self.fitted_for(data)
        self.queries = source_queries(model, self.reward_classes, data, self.device, self.seed)
        return self

    @property
    def reward_classes(self) -> RewardClasses:
        """The classes of reward that it predicts."""
        if self.report is None:
            raise NotFittedError("the model is not fitted yet: call fit, or Secret.load")
        return self.report.classes

    def step_credit(self, observations: Any, actions: Any, next_observations: Any = None) -> NDArray[np.float64]:
        """(steps,) what share of a reward of the source each (observation, action) pair would earn, from 0 to 1.

        No trajectory and no reward of the target is needed. ``observations`` and ``actions`` hold one row per step;
        so do ``next_observations``, which a model with ``transitions=True`` needs.
        """
        if self.model_options.transitions and next_observations is None:
            raise ValueError("the model reads transitions: give next_observations, too")
        return step_credit(*self._remembered(), observations, actions, next_observations, self.device)

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
        decided: bool = False,
        readout: str = "attention",
        progress: bool | None = None,
    ) -> Attributions:
        """Who earned each reward that is predicted correctly.

        ``rewards`` is "positive", "negative" or "all", which takes rewards of 0, too; ``tolerance`` counts a prediction
        as correct within so many steps of the reward (5 in the paper's DMLab setting). Rewards that the present decides
        are left out, unless ``decided``: where the past decides nothing, attention is not credit. ``readout`` says what
        credit is: "attention", "attention x value" (times the norm of what was attended to), or "leave-one-out" (how
        much less likely the reward is without the step). Another number of threads than before changes the last
        digits.
        """
        model = self.fitted_for(data)
        assert self.present is not None
        with progress_bar(progress, "rewards") as tick:
            return attribute(
                model, self.present, self.reward_classes, data, self.device, rewards, tolerance, tick, decided, readout
            )

    def evaluate(self, data: "Trajectories") -> Confusion:
        """How well the classes of rewards are predicted."""
        model = self.fitted_for(data)
        return evaluate(model, Tokens.of(data, self.reward_classes), np.arange(len(data)), self.device).confusion

    def save(self, path: str | Path) -> Path:
        """Write one safetensors file: weights, and everything else as JSON in its header."""
        if self.model is None or self.report is None or self._specs is None:
            raise NotFittedError("there is nothing to save yet: call fit first")
        about = {
            "observation_space": self._specs[0],
            "action_space": self._specs[1],
            "model": to_json(self.model_options),
            "training": to_json(self.training_options),
            "seed": self.seed,
            "report": self.report.to_json(),
        }
        tensors = dict(self.model.state_dict())
        assert self.present is not None
        tensors |= {f"{_PRESENT}{name}": value for name, value in self.present.state_dict().items()}
        if self.queries is not None:
            tensors |= {f"{_QUERIES}{name}": value for name, value in self.queries._asdict().items()}
        _FORMAT.write_arrays(path, about, {name: value.detach().cpu().numpy() for name, value in tensors.items()})
        if self._checkpoint is not None:  # now that the result is safe
            self._checkpoint.discard()
        return Path(path)

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto") -> "Secret":
        """Read a model; nothing in the file is run."""
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"{path} is not a file: expected a model written by Secret.save")
        about, arrays = _FORMAT.read_arrays(path)
        with _FORMAT.reading(path):
            options = {**about["model"], **about["training"]}
            options = {name: tuple(v) if isinstance(v, list) else v for name, v in options.items()}
            secret = cls(seed=whole_number(about["seed"], -(2**63), 2**64), device=device, **options)
            secret._specs = (about["observation_space"], about["action_space"])
            secret.report = FitReport.from_json(about["report"])
            tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
            queries = {n.removeprefix(_QUERIES): tensors.pop(n) for n in list(tensors) if n.startswith(_QUERIES)}
            alone = {n.removeprefix(_PRESENT): tensors.pop(n) for n in list(tensors) if n.startswith(_PRESENT)}
            classes = len(secret.reward_classes)
            with torch.device("meta"):  # takes no memory, whatever sizes a file claims
                for spec in secret.specs:
                    check_spec(spec)
                model = RewardPredictor(*secret.specs, classes, secret.model_options)
                present = Present(*secret.specs, classes, secret.model_options)
            _load(model, tensors)
            _load(present, alone)
            secret.model, secret.present = model.to(secret.device).eval(), present.to(secret.device)
            if queries:
                secret.queries = Queries(**{name: value.to(secret.device) for name, value in queries.items()})
                secret.queries.check(secret.model_options.units)
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


def _encoded_specs(data: "Trajectories") -> tuple[dict[str, Any], dict[str, Any]]:
    """The spaces with what their data tell of them."""
    observations, actions = _specs_of(data)
    return with_levels(observations, example_rows(data)), actions


def _compatible(mine: Any, theirs: Any) -> bool:
    """Same kind and shape; bounds, levels and dtypes of boxes may differ."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        mine, theirs = ({k: v for k, v in spec.items() if k not in _IGNORED} for spec in (mine, theirs))
        return mine.keys() == theirs.keys() and all(_compatible(mine[k], theirs[k]) for k in mine)
    if isinstance(mine, list) and isinstance(theirs, list):
        return len(mine) == len(theirs) and all(_compatible(a, b) for a, b in zip(mine, theirs, strict=True))
    return bool(mine == theirs)


def _load(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Give a model its weights; ValueError unless they are what it needs."""
    expected = {name: (tuple(value.shape), value.dtype) for name, value in model.state_dict().items()}
    found = {name: (tuple(value.shape), value.dtype) for name, value in tensors.items()}
    wrong = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    if wrong:
        name = wrong[0]
        raise ValueError(f"it does not describe its own weights: {name} is {found.get(name)}, not {expected.get(name)}")
    model.load_state_dict(tensors, assign=True)


def _checked_weights(weights: NDArray[Any], steps: int) -> NDArray[np.float32]:
    weights = np.asarray(weights, np.float32)
    if weights.shape != (steps,):
        raise ValueError(f"weights of shape {weights.shape}, expected one for each of the {steps:,} steps")
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise ValueError("weights must be finite and not negative, and some of them positive")
    return weights


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
