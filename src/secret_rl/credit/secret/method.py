"""``Secret``: credit learned offline from trajectories, read out from attention."""

from contextlib import closing
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from secret_rl.credit.attributions import Attributions
from secret_rl.credit.base import (
    NotFittedError,
    Specs,
    check_specs,
    method_repr,
    read_model,
    register_method,
    specs_of,
    write_model,
)
from secret_rl.credit.hub import Shareable
from secret_rl.credit.report import Confusion, FitReport
from secret_rl.credit.reward_classes import RewardClasses
from secret_rl.credit.secret.checkpoint import Checkpoint
from secret_rl.credit.secret.fit import Estimate, Fitting
from secret_rl.credit.secret.group import ALONE, Group
from secret_rl.credit.secret.memoryless import Memoryless
from secret_rl.credit.secret.model import RewardPredictor
from secret_rl.credit.secret.options import ModelOptions, TrainingOptions
from secret_rl.credit.secret.readout import AttentionInspector, Queries, attribute, source_queries, step_credit
from secret_rl.credit.secret.tokens import Tokens, example_rows
from secret_rl.credit.secret.training import evaluate
from secret_rl.encoders import choose_device, with_levels
from secret_rl.files import crc32_of
from secret_rl.loggers import Logger, check_logger
from secret_rl.progress import Tick, progress_bar

if TYPE_CHECKING:
    from secret_rl.trajectories import Trajectories

T = TypeVar("T")

_QUERIES, _MEMORYLESS = "queries.", "memoryless."  # prefixes of the tensors that do not belong to the model
_ADAPT_VALIDATIONS = 6


@register_method("secret")
class Secret(Shareable):
    """Learns which past steps earn rewards, and says so of other trajectories.

    >>> import secret_rl as srl
    >>> data = srl.collect("secret_rl/Triggers-v0", 200, env_options={"triggers": 0, "size": 3}, success_share=0.5)
    >>> secret = srl.Secret(seed=0, steps=20, units=16, validation=0.2)

    Args:
        seed: Decides everything random.
        device: "cpu", "cuda", "mps", or "auto".
        others: The fields of ``ModelOptions`` and ``TrainingOptions``, described there.
    """

    name: ClassVar[str]

    def __init__(
        self,
        *,
        seed: int = 0,
        device: str = "auto",
        units: int = ModelOptions.units,
        filters: tuple[int, ...] = ModelOptions.filters,
        dropout_dense: float = ModelOptions.dropout_dense,
        dropout_block: float = ModelOptions.dropout_block,
        dropout_steps: float = ModelOptions.dropout_steps,
        transitions: bool = ModelOptions.transitions,
        weights: str = TrainingOptions.weights,
        steps: int | None = TrainingOptions.steps,
        batch_size: int = TrainingOptions.batch_size,
        learning_rate: float = TrainingOptions.learning_rate,
        warmup: int = TrainingOptions.warmup,
        weight_decay: float = TrainingOptions.weight_decay,
        validation: float = TrainingOptions.validation,
        evaluate_every: int = TrainingOptions.evaluate_every,
        patience: int = TrainingOptions.patience,
        attention_penalty: float = TrainingOptions.attention_penalty,
        precision: str = TrainingOptions.precision,
    ) -> None:
        given = dict(locals())
        self.model_options = ModelOptions(**{f.name: given[f.name] for f in fields(ModelOptions)})
        self.training_options = TrainingOptions(**{f.name: given[f.name] for f in fields(TrainingOptions)})
        self.seed = seed
        self.device = choose_device(device)
        self.model: RewardPredictor | None = None
        self.memoryless: Memoryless | None = None
        """Predicts rewards from the present step alone."""
        self.report: FitReport | None = None
        self.queries: Queries | None = None
        """What rewards of the source attend to; None if none of the positive ones is predicted."""
        self.specs: Specs | None = None
        """The spaces of observations and actions it was fitted on, as JSON values."""
        self._checkpoint: Checkpoint | None = None
        self._group = ALONE

    @property
    def settings(self) -> dict[str, Any]:
        """The seed and all options."""
        return {"seed": self.seed, **asdict(self.model_options), **asdict(self.training_options)}

    def _about(self) -> dict[str, Any]:
        """The same, as files hold it."""
        return {"model": asdict(self.model_options), "training": asdict(self.training_options), "seed": self.seed}

    @property
    def transitions(self) -> bool:
        """Whether ``step_credit`` needs next observations."""
        return self.model_options.transitions

    def __repr__(self) -> str:
        return method_repr(self)

    def fit(
        self,
        data: "Trajectories",
        *,
        weights: NDArray[Any] | None = None,
        checkpoint: str | Path | None = None,
        logger: Logger | None = None,
        progress: bool | None = None,
        distributed: bool | None = None,
    ) -> Self:
        """Learn from trajectories; ``report`` says how that went, in short with ``report.verdict``.

        Under torchrun, or where ``torch.distributed`` is initialised, all processes share one fit: each calls this with
        the same data, learns from its part of every batch, and ends with the same model. The loss curve is that of one
        process; the first one writes the checkpoint, warns and saves. See docs/beyond-one-machine.md.

        On one machine, with the same number of threads (``torch.set_num_threads``), the same data and seed give the
        same weights, to the bit; another number of threads adds numbers up in another order, and results differ in
        their last digits.

        Args:
            data: Source trajectories.
            weights: (steps,) of the steps in the loss, instead of what the option ``weights`` says.
            checkpoint: A folder: an interrupted fit resumes from it when called again. It is kept until ``save`` has
                written the result.
            logger: Receives losses, the gain and the report: ``loggers.TensorBoardLogger(folder)``, ``WandbLogger()``,
                or any object with ``log(step, {name: number})``.
            progress: Show a progress bar; by default if the terminal is interactive.
            distributed: Share the fit with the other processes of ``torch.distributed``; by default if there are any.
                False: each process fits for itself.
        """
        check_logger(logger)
        if weights is not None:
            weights = _checked_weights(weights, data.steps)
        self._group = group = Group.join(self.device, distributed)
        about: dict[str, Any] = {}
        if checkpoint is not None or group.size > 1:
            about_data = {"episodes": len(data), "steps": data.steps, "content": data.fingerprint}
            own = None if weights is None else crc32_of(weights)
            about = {**about_data, **self._about(), "weights": own}
            group.check_same(**about, checkpoint=checkpoint is not None)
        kept = Checkpoint(None if checkpoint is None else Path(checkpoint), about, group)
        with closing(kept), progress_bar(progress if group.leads else False, "updates") as tick:
            found = {"weights": weights, "logger": logger if group.leads else None, "group": group}
            return self._fit(data, _encoded_specs(data), kept, tick, **found)

    def estimate(self, data: "Trajectories", *, distributed: bool | None = None) -> Estimate:
        """What ``fit`` will take, from a few updates; where processes share it, each of them calls this."""
        options = self.model_options, self.training_options, self.seed, self.device
        return Fitting(data, _encoded_specs(data), *options, group=Group.join(self.device, distributed)).estimate()

    def _fit(self, data: "Trajectories", specs: Specs, checkpoint: Checkpoint, tick: Tick, **start: Any) -> Self:
        """Run a fit and keep its result."""
        options = self.model_options, self.training_options, self.seed, self.device
        model, memoryless, self.report = Fitting(data, specs, *options, checkpoint, tick, **start).run()
        self.model, self.memoryless = model.to(self.device).eval(), memoryless.to(self.device)
        self.specs, self._checkpoint = specs, checkpoint
        return self.store_reward_queries(data)

    def adapted(
        self,
        data: "Trajectories",
        *,
        steps: int,
        learning_rate: float | None,
        batch_size: int,
        seed: int | None,
        progress: bool | None,
    ) -> "Secret":
        """A copy, trained further on target trajectories: see ``secret_rl.adapt``."""
        model = self.fitted_for(data)
        options = {
            **self.settings,
            "steps": steps,
            "batch_size": batch_size,
            "learning_rate": self.training_options.learning_rate if learning_rate is None else learning_rate,
            "warmup": steps // 10,
            "evaluate_every": max(1, steps // _ADAPT_VALIDATIONS),
            "seed": self.seed if seed is None else seed,
        }
        adapted = Secret(device=str(self.device), **options)
        start = {"initial": model.state_dict(), "classes": self.reward_classes}
        with progress_bar(progress, "updates") as tick:
            return adapted._fit(data, _fitted(self.specs), Checkpoint(None, {}), tick, **start)

    def store_reward_queries(self, data: "Trajectories") -> Self:
        """Keep what the positive rewards of some trajectories attend to, for ``step_credit``; ``fit`` does so."""
        model = self.fitted_for(data)
        self.queries = source_queries(model, self.reward_classes, data, self.device, self.seed)
        return self

    @property
    def reward_classes(self) -> RewardClasses:
        """The classes of reward that it predicts."""
        return _fitted(self.report).classes

    def step_credit(self, observations: Any, actions: Any, next_observations: Any = None) -> NDArray[np.float64]:
        """(steps,) what share of a reward of the source each (observation, action) pair would earn, from 0 to 1.

        No trajectory and no reward of the target is needed. ``observations`` and ``actions`` hold one row per step;
        so do ``next_observations``, which a model with ``transitions=True`` needs.
        """
        if self.model_options.transitions and next_observations is None:
            raise ValueError("the model reads transitions: give next_observations, too")
        model, queries = _fitted(self.model), self._queries()
        return step_credit(model, queries, observations, actions, next_observations, self.device)

    def check_spaces(self, observation_space: Any, action_space: Any) -> None:
        """An error where steps of these spaces cannot be scored: it was fitted on others, or lacks reward queries."""
        self._queries()
        check_specs(_fitted(self.specs), specs_of(observation_space, action_space))

    def _queries(self) -> Queries:
        """What rewards of the source attend to."""
        _fitted(self.model)
        if self.queries is None:
            raise NotFittedError(
                "the model has predicted no positive reward correctly, so what rewards attend to is not known: call "
                "store_reward_queries(trajectories) with some that hold positive rewards"
            )
        return self.queries

    def attribute(
        self,
        data: "Trajectories",
        *,
        rewards: str = "all",
        tolerance: int = 0,
        decided: bool = False,
        progress: bool | None = None,
    ) -> Attributions:
        """Who earned each reward that is predicted correctly.

        Another number of threads than before changes the last digits.

        Args:
            data: Trajectories of the source or of a target.
            rewards: "positive", "negative" or "all", which takes rewards of 0, too.
            tolerance: A prediction counts as correct within so many steps of the reward (5 in the paper's DMLab
                setting).
            decided: Also attribute rewards that the present decides: of these, attention is not credit.
            progress: Show a progress bar; by default if the terminal is interactive.
        """
        model = self.fitted_for(data)
        with progress_bar(progress, "rewards") as tick:
            return attribute(
                model, _fitted(self.memoryless), self.reward_classes, data, self.device,
                rewards=rewards, tolerance=tolerance, tick=tick, decided=decided,
            )  # fmt: skip

    def inspector(self, data: "Trajectories") -> AttentionInspector:
        """Predictions and attention of any step, one episode at a time."""
        return AttentionInspector(self.fitted_for(data), self.reward_classes, data, self.device)

    def evaluate(self, data: "Trajectories") -> Confusion:
        """How well the classes of rewards are predicted."""
        model = self.fitted_for(data)
        return evaluate(model, Tokens.of(data, self.reward_classes), np.arange(len(data)), self.device).confusion

    def save(self, path: str | Path) -> Path:
        """Write one safetensors file: weights, and everything else as JSON in its header.

        Where several processes shared the fit, the first one writes it.
        """
        if self._group.leads:
            self._write(Path(path))
            if self._checkpoint is not None:  # now that the result is safe
                self._checkpoint.discard()
        return Path(path)

    def _write(self, path: Path) -> None:
        spaces = dict(zip(("observation_space", "action_space"), _fitted(self.specs), strict=True))
        about = {**spaces, "report": _fitted(self.report).to_json(), **self._about()}
        parts = {
            "": _fitted(self.model).state_dict(),
            _MEMORYLESS: _fitted(self.memoryless).state_dict(),
            _QUERIES: {} if self.queries is None else self.queries._asdict(),
        }
        arrays = {f"{prefix}{n}": v.detach().cpu().numpy() for prefix, part in parts.items() for n, v in part.items()}
        write_model(path, self.name, about, arrays)

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto") -> Self:
        """Read a model; nothing in the file is run."""

        def build(about: dict[str, Any], arrays: dict[str, Any]) -> Any:
            options = {**about["model"], **about["training"], "filters": tuple(about["model"]["filters"])}
            secret = cls(seed=about["seed"], device=device, **options)
            secret.specs = about["observation_space"], about["action_space"]
            secret.report = FitReport.from_json(about["report"])
            tensors = {name: torch.from_numpy(array).to(secret.device) for name, array in arrays.items()}
            queries, of_memoryless = (_popped(tensors, prefix) for prefix in (_QUERIES, _MEMORYLESS))
            shape = *secret.specs, len(secret.reward_classes), secret.model_options
            with torch.device("meta"):  # takes no memory, whatever sizes a file claims
                secret.model, secret.memoryless = RewardPredictor(*shape).eval(), Memoryless(*shape)
            secret.model.load_state_dict(tensors, assign=True)
            secret.memoryless.load_state_dict(of_memoryless, assign=True)
            secret.queries = Queries(**queries) if queries else None
            return secret

        loaded: Self = read_model(path, cls.name, build)
        return loaded

    def fitted_for(self, data: "Trajectories") -> RewardPredictor:
        """The model, if it is fitted and reads such trajectories; else an error."""
        model = _fitted(self.model)
        check_specs(_fitted(self.specs), specs_of(data.observation_space, data.action_space))
        if not len(data):
            raise ValueError("no trajectories were given")
        return model


def _encoded_specs(data: "Trajectories") -> Specs:
    """The spaces, with what the data say of their pictures."""
    seen, done = specs_of(data.observation_space, data.action_space)
    return with_levels(seen, example_rows(data, data.observations)), done


def _fitted(part: T | None) -> T:
    """What a fit brings; an error before it."""
    if part is None:
        raise NotFittedError("the model is not fitted yet: call fit, or Secret.load")
    return part


def _popped(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with a prefix, taken out."""
    return {name.removeprefix(prefix): tensors.pop(name) for name in list(tensors) if name.startswith(prefix)}


def _checked_weights(weights: NDArray[Any], steps: int) -> NDArray[np.float32]:
    weights = np.asarray(weights, np.float32)
    if weights.shape != (steps,):
        raise ValueError(f"weights of shape {weights.shape}, expected one for each of the {steps:,} steps")
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise ValueError("weights must be finite and not negative, and some of them positive")
    return weights
