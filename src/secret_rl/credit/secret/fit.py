"""Fitting the reward predictor to what the present leaves open, and judging what came of it."""

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from secret_rl.credit.base import Specs
from secret_rl.credit.report import DECIDED, EVIDENCE, FitReport, Gain, check_held_out, check_rewards, judge, warn_of
from secret_rl.credit.reward_classes import RewardClasses
from secret_rl.credit.secret import memoryless
from secret_rl.credit.secret.checkpoint import Checkpoint
from secret_rl.credit.secret.group import ALONE, Group
from secret_rl.credit.secret.memoryless import Memoryless, Residual
from secret_rl.credit.secret.model import PAIRS_AT_A_TIME, RewardPredictor, StepEncoder
from secret_rl.credit.secret.options import PAPER_WEIGHTS, ModelOptions, TrainingOptions
from secret_rl.credit.secret.pooled import PooledPredictor
from secret_rl.credit.secret.tokens import Tokens, example_rows, steps_rarely_repeat
from secret_rl.credit.secret.training import Evaluation, Trainer, evaluate, on_cpu, teach_encoder
from secret_rl.encoders import as_tensor, standardise
from secret_rl.files import plain
from secret_rl.loggers import Logger
from secret_rl.progress import Tick
from secret_rl.trajectories.nested import map_arrays

if TYPE_CHECKING:
    from secret_rl.trajectories import Trajectories

Weights = dict[str, Tensor]

_HALF = 0.5  # gain from which fewer steps are hidden
_LEARNED, _MOST = 0.1, 0.9  # gains from which learning may come to rest, and need not be waited for so long
_ALL = 0.97  # gain from which there is nothing left to wait for
_LOWER = 0.02  # a loss that is lower by this share is progress
_ALIKE = 0.02  # losses so close, relative to the guess, are alike: the later weights, whose attention is sharper, stay
_LITTLE = 0.8  # gain below which a start by name is tried
_BY_NAME = 0.1  # how much more such a start must gain
_COOL_AT = 0.55  # share of the updates after which the learning rate falls in any case
_LONGER = 3  # times the planned updates: how long a fit that still learns goes on, unless updates are given
_NO_DOUBT = 0.5  # gain from which no pooled past is fitted, and evidence for each outcome is looked for
_VALIDATED = 1_000  # held-out episodes that are evaluated while training
_FLOOR = 0.05  # share of all weight that is spread evenly, so that the present is learned, too
_NOTHING_OPEN = 20.0  # rewards left open, in all data, below which there is nothing to learn
_PROBE_UPDATES = 400  # of a start by name, and of a pooled past
_OTHER_WEIGHTS, _MEMORYLESS_WEIGHTS = 15_485_863, 104_729  # added to the seed of initial weights
_TIMED_UPDATES, _WITH_VALIDATION = 3, 1.5  # which takes time, too, as does the predictor without memory
_BYTES_PER_PAIR = 48  # of a step and an earlier one, of those worked out at a time: scores, weights, gradients
_ARRAYS_PER_STEP = 24  # of as many numbers as there are units, gradients included


class Estimate(NamedTuple):
    """What a fit will take: less where it learns fast, and up to three times as long where it learns slowly."""

    updates: int
    batch_size: int
    """Trajectories per update: fewer than given where long ones would not fit in memory."""
    seconds: float
    memory: int
    """Bytes of one update, beside the data, in each process."""

    def __str__(self) -> str:
        size = f"{self.updates:,} updates of {self.batch_size} trajectories"
        return f"{size}, about {_time(self.seconds)} and {self.memory / 2**30:.2g} GiB of memory"


def _time(seconds: float) -> str:
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.0f} s"


@dataclass
class Fitting:
    """One call of ``fit``: the data, the choices, and how far it has come."""

    data: "Trajectories"
    specs: Specs
    model_options: ModelOptions
    options: TrainingOptions
    seed: int
    device: torch.device
    checkpoint: Checkpoint = field(default_factory=lambda: Checkpoint(None, {}))
    tick: Tick = lambda *_: None
    logger: Logger | None = None
    group: Group = ALONE
    """The processes that share the work; the first one warns and logs."""
    weights: NDArray[Any] | None = None
    """(steps,) of the user's own."""
    initial: Weights | None = None
    """Of the model to begin with, instead of random ones."""
    classes: RewardClasses | None = None
    """Classes of reward to begin with."""
    curve: list[dict[str, Any]] = field(default_factory=list)
    first: dict[str, Any] | None = None
    """Update and curve of the weights that were kept before training started again from others."""

    _by_name = False

    def __post_init__(self) -> None:
        check_rewards(self.data)
        times = np.arange(self.data.steps) - np.repeat(self.data.offsets[:-1], self.data.lengths)
        self.reward_classes = self.classes or RewardClasses.of(np.asarray(self.data.rewards), times)
        self.planned = self.options.planned_steps(len(self.data))

    def run(self) -> tuple[RewardPredictor, Memoryless, FitReport]:
        """Fit, and warn where nothing came of it.

        What comes of it stays in the checkpoint, too: whoever saves it elsewhere discards that.
        """
        started = time.perf_counter()
        model, self.memoryless = self._new_model(), self._new_memoryless()
        if "report" in self.checkpoint.state:
            with self.checkpoint.reading():
                report = FitReport.from_json(self.checkpoint.state["report"])
                model.load_state_dict(self.checkpoint.load("best"))
                self.memoryless.load_state_dict(self.checkpoint.load("memoryless"))
        else:
            self._prepare()
            open_, step = float(self.residual.error[self._train_rows].sum()), 0
            if len(self.reward_classes) > 1 and open_ >= _NOTHING_OPEN:
                weights, step = self._learn()
                model.load_state_dict(weights)
            report = self._judged(model.to(self.device), step, open_, started)
            self.checkpoint.save({"report": report.to_json()}, best=on_cpu(model.state_dict()))
        self._log_report(report)
        if self.group.leads:
            warn_of(report, len(self.data))
        return model, self.memoryless, report

    def estimate(self) -> Estimate:
        """What it will take, from a few updates on the longest trajectories."""
        tokens = Tokens.of(self.data, self.reward_classes).to_device(self.device)
        longest = np.argsort(-tokens.lengths, kind="stable")[: self.options.batch_size]
        self.train_episodes, self.draw = longest, np.ones(len(longest))
        trainer = self._trainer(self._new_model(), self.options, tokens)
        trainer.train(1)
        started = time.perf_counter()
        trainer.train(_TIMED_UPDATES)
        each = (time.perf_counter() - started) / _TIMED_UPDATES
        steps = int(tokens.lengths.max())
        pairs = min(trainer.batch_size * steps**2, PAIRS_AT_A_TIME)
        memory = pairs * _BYTES_PER_PAIR + trainer.batch_size * steps * 4 * _ARRAYS_PER_STEP * self.model_options.units
        memory //= self.group.size
        return Estimate(self.planned, trainer.batch_size, _WITH_VALIDATION * each * self.planned, memory)

    def _prepare(self) -> None:
        """Split the data, fit the predictor without memory, and weigh the steps."""
        tokens = Tokens.of(self.data, self.reward_classes).to_device(self.device)
        self.train_episodes, self.held_out = self.data.split_indices(self.options.validation, seed=self.seed)
        folds = memoryless.folds_of(len(self.data), self.train_episodes, self.seed)
        self._train_rows = np.repeat(folds >= 0, tokens.lengths)
        held_out = tokens.classes[~self._train_rows]
        self.counts, counts_held_out = (
            np.bincount(classes, minlength=len(self.reward_classes)) for classes in (tokens.classes, held_out)
        )
        if self.group.leads:
            check_held_out(self.reward_classes, self.counts, counts_held_out)
        with self.checkpoint.reading():
            known = self.checkpoint.load("memoryless")
            if known:
                self.memoryless.load_state_dict(known)
        self.memoryless.to(self.device)
        if not known:
            memoryless.fit_memoryless(self.memoryless, tokens, folds, self.seed, self.device, self.tick, self.group)
            self.checkpoint.save({}, memoryless=on_cpu(self.memoryless.state_dict()))
        probabilities = self.memoryless.probabilities(tokens, folds, self.device, self.group)
        self.residual = Residual.of(probabilities, tokens.classes, self.reward_classes.right(probabilities))
        self.calibration_error = memoryless.calibration(probabilities[~self._train_rows], held_out)
        self.tokens, self.draw = self._weighted(tokens)
        rng = np.random.default_rng([self.seed, 2])
        self.validated = np.sort(rng.permutation(self.held_out)[:_VALIDATED])

    def _weighted(self, tokens: Tokens) -> tuple[Tokens, NDArray[np.float64]]:
        """Tokens with the weights of the loss, and how often each training episode is drawn."""
        if self.weights is not None:
            given = self.weights.astype(np.float32)
        elif self.options.weights == "paper":
            by_class = np.array([PAPER_WEIGHTS[sign + 1] for sign in self.reward_classes.signs])
            printed = by_class[tokens.classes] / np.repeat(tokens.lengths, tokens.lengths)
            return tokens.weighted(printed.astype(np.float32)), np.ones(len(self.train_episodes))
        else:
            error = self.residual.error
            given = error + np.float32(_FLOOR * float(error[self._train_rows].mean(dtype=np.float64)))
        weights, draw = memoryless.drawing(given, tokens.offsets)
        return tokens.weighted(weights), draw[self.train_episodes]

    def _learn(self) -> tuple[Weights, int]:
        """Train.

        Once more from a start by name, where that gained little and steps have names, or from other weights where the
        best outcome is predicted without evidence for it.
        """
        with self.checkpoint.reading():
            start, first = self.checkpoint.load("start"), self.checkpoint.load("first")
            self.first = self.checkpoint.state["first"] if first else None
        if not start and not first:
            first, step = self._train()
            gain = _highest_gain(self.curve)
            may_by_name = self.options.weights == "residual" and self.initial is None
            if may_by_name and gain < _LITTLE and self.planned >= _PROBE_UPDATES:
                start = self._start_by_name(max(gain, 0.0) + _BY_NAME)
            if start:
                self.checkpoint.save({}, start=start)
            elif gain >= _NO_DOUBT and self._may_start_again and self._success_inferred(first):
                self.first = {"step": step, "curve": self.curve}
                self.checkpoint.save({"first": self.first}, first=first)
            else:
                return first, step
            self.curve = []
        if start:
            self.initial, self._by_name = start, True
            return self._train()
        assert self.first is not None
        again, step = self._train()
        as_good = _highest_gain(self.curve) >= _highest_gain(self.first["curve"]) - _ALIKE
        if as_good and not self._success_inferred(again):
            return again, step
        self.curve = self.first["curve"]
        return first, self.first["step"]

    @property
    def _may_start_again(self) -> bool:
        """Not where updates were limited, or weights to begin with were given."""
        return self.options.steps is None and self.options.weights == "residual" and self.initial is None

    def _success_inferred(self, weights: Weights) -> bool:
        """Whether the best outcome that is open is predicted where nothing is found, and another one by evidence."""
        model = self._new_model()
        model.load_state_dict(weights)
        found = self._evaluate(model.to(self.device), self.tokens)
        decided, evidence = self._by_class(model, found.log_probabilities)
        open_ = np.flatnonzero(decided < DECIDED)
        return len(open_) > 1 and bool(evidence[open_[-1]] < EVIDENCE <= evidence[open_].max())

    def _start_by_name(self, wanted: float) -> Weights:
        """Weights that have learned by name what the past decides; none where that does not gain what is ``wanted``.

        Views that differ in one cell are almost the same to a new encoder, and attention cannot tell them apart well
        enough to begin; an embedding of each distinct step can. Once such a model predicts the rewards, the encoder is
        fitted to its embeddings, and training goes on without names, which new data would not have.
        """
        tokens = self.tokens.with_names(self.data)
        if tokens is None or tokens.names is None:
            return {}
        model = self._new_model()
        hidden = replace(self.model_options, dropout_steps=self.model_options.dropout_steps / 2)
        with _seeded(self.seed):
            teacher = RewardPredictor(*self.specs, len(self.reward_classes), hidden, int(tokens.names.max()) + 1)
        teacher.load_state_dict(model.state_dict(), strict=False)  # all but the names
        options = replace(self.options, steps=_PROBE_UPDATES, attention_penalty=0.0)
        trainer, gain = self._trainer(teacher, options, tokens), 0.0
        while trainer.step < _PROBE_UPDATES and not gain >= _MOST:
            trainer.train(options.evaluate_every)
            gain = self._validate(trainer)[1]
            self.tick(f"starting by name: past removes {gain:.1%} of what is open", trainer.step, _PROBE_UPDATES)
        if not gain >= wanted:  # NaN, too
            return {}
        teach_encoder(model.to(self.device), teacher, tokens, self.seed)
        self.group.agree(model)
        return on_cpu(model.state_dict())

    def _train(self) -> tuple[Weights, int]:
        """Train until learning comes to rest: the weights with the best validation loss, and their update."""
        options = replace(self.options, steps=self.options.steps or _LONGER * self.planned)
        trainer = self._trainer(self._new_model(), options)
        kept, kept_step = on_cpu(trainer.model.state_dict()), 0
        best = mark = sys.float_info.max  # the lowest loss, and the one when progress was last seen,
        waited = 0  # validations ago
        state = self.checkpoint.state
        if "trainer" in state:
            with self.checkpoint.reading():
                trainer.restore(self.checkpoint.load("current"), **state["trainer"])
                kept, self.curve = self.checkpoint.load("kept"), state["curve"]
                best, mark, waited, kept_step = (state[name] for name in ("best", "mark", "waited", "kept_step"))
        while trainer.step < trainer.last_step:
            train_loss = trainer.train(min(options.evaluate_every, trainer.last_step - trainer.step))
            loss, gain = self._validate(trainer)
            mark, waited = (loss, 0) if loss < (1 - _LOWER) * mark else (mark, waited + 1)
            best = min(best, loss)
            if loss <= best + _ALIKE * self._guess_loss:
                kept, kept_step = on_cpu(trainer.model.state_dict()), trainer.step
            if trainer.half_learned_at is None and gain >= _HALF:
                trainer.half_learned_at = trainer.step
            at_rest = gain >= _ALL or (gain >= _LEARNED and waited >= (1 if gain >= _MOST else 3) * options.patience)
            allowed = trainer.planned_steps if 1 - best / self._guess_loss >= _LEARNED else self.planned
            if trainer.cooling_from is None and (at_rest or trainer.step >= _COOL_AT * allowed):
                trainer.cool_down()
            self._log(trainer.step, {"train_loss": train_loss, "validation_loss": loss, "gain": gain})
            self.curve.append(plain({"step": trainer.step, "loss": train_loss, "validation_loss": loss, "gain": gain}))
            goes_on = trainer.cooling_from is not None or trainer.step >= self.planned
            total = trainer.last_step if goes_on else self.planned
            self.tick(f"past removes {gain:.1%} of what is open", trainer.step, total)
            done = {"best": best, "mark": mark, "waited": waited, "kept_step": kept_step, "curve": self.curve}
            state = {"trainer": trainer.counters(), "first": self.first, **done}
            self.checkpoint.save(state, current=trainer.state(), kept=kept)
        return kept, kept_step

    def _log(self, step: int, values: dict[str, float]) -> None:
        """Numbers of the training; one that started again has names of its own, since its steps begin anew."""
        if self.logger is not None:
            name = "fit" if self.first is None and not self._by_name else "fit_again"
            self.logger.log(step, {f"{name}/{key}": value for key, value in values.items()})

    def _log_report(self, report: FitReport) -> None:
        """What came of it."""
        if self.logger is not None:
            found = {"history_gain": report.history_gain, "is_credit": float(report.verdict == "credit")}
            if report.validation is not None:
                found["balanced_accuracy"] = report.validation.balanced_accuracy
            self.logger.log(report.steps, {f"report/{name}": value for name, value in found.items()})

    def _validate(self, trainer: Trainer) -> tuple[float, float]:
        """The weighted loss on held-out data, and the gain."""
        found = self._evaluate(trainer.model, trainer.tokens, self.validated).log_probabilities
        rows = self.tokens.steps_of(self.validated)
        weights = self.residual.error[rows].astype(np.float64)
        total = max(float(weights.sum()), 1e-9)
        self._guess_loss = float(-(weights * self.residual.guess[rows]).sum()) / total
        loss = float(-(weights * found).sum()) / total
        return loss, 1 - loss / max(self._guess_loss, 1e-9)

    def _judged(self, model: RewardPredictor, step: int, open_: float, started: float) -> FitReport:
        """The report: what the past gains on held-out trajectories, against the present and a pooled past."""
        found = self._evaluate(model, self.tokens)
        gain, pooled = Gain(0.0, 0.0), None
        if self.curve:
            gain = self._gain(model, found.log_probabilities, self.tokens)
            pooled = self._pooled_gain() if gain.share < _NO_DOUBT else None
        # A few updates, or ones that diverged, are no reason to believe that the past decides nothing.
        enough = step > 0 and self.planned >= _PROBE_UPDATES
        decided, evidence = self._by_class(model, found.log_probabilities)
        return FitReport(
            classes=self.reward_classes,
            class_counts=tuple(self.counts.tolist()),
            verdict=judge(gain, pooled, decided[found.confusion.present], enough and self.tokens.ids is not None),
            gain=gain,
            pooled_gain=pooled,
            decided=tuple(decided.tolist()),
            evidence=tuple(evidence.tolist()),
            uncertain=open_ * int(self.tokens.offsets[-1]) / max(int(self._train_rows.sum()), 1),
            calibration_error=self.calibration_error,
            distinct_steps=steps_rarely_repeat(self.data),
            validation=found.confusion,
            steps=step,
            seconds=time.perf_counter() - started,
            curve=tuple(self.curve),
        )

    def _by_class(self, model: RewardPredictor, found: NDArray[np.float32]) -> tuple[NDArray[Any], NDArray[Any]]:
        """(class,) the mean probability that the present gives it, and what looking back adds where that is open."""
        rows = self.tokens.steps_of(self.held_out)
        classes, error = self.tokens.classes[rows], self.residual.error[rows]
        alone = self._evaluate(model, self.tokens, look_back=False).log_probabilities
        counted, open_, added = (
            np.bincount(classes, weights=weights, minlength=len(self.reward_classes))
            for weights in (None, error, error * (found - alone))
        )
        return 1 - open_ / np.maximum(counted, 1), added / np.maximum(open_, 1e-9)

    def _gain(self, model: RewardPredictor, found: NDArray[np.float32], tokens: Tokens) -> Gain:
        """What the past gains over the guess of the present, or over pasts of other episodes where they guess better.

        A model that has learned more about the present than the predictor without memory owes that to no past.
        """
        rows = self.tokens.steps_of(self.held_out)
        guess, error = self.residual.guess[rows], self.residual.error[rows]
        swapped = self._evaluate(model, tokens, swap_pasts=True).log_probabilities
        better = (error * (swapped - guess)).sum(dtype=np.float64) > 0
        return Gain.of(found, swapped if better else guess, error, self.tokens.lengths[self.held_out])

    def _pooled_gain(self) -> Gain:
        """What a pooled past gains, at its best.

        Where data hold few distinct steps, each has an embedding of its own: an encoder hardly separates views that
        differ in one cell.
        """
        named = self.tokens.by_name_alone()
        tokens, specs = named or (self.tokens, self.specs)
        with _seeded(self.seed):
            model = PooledPredictor(*specs, len(self.reward_classes), self.model_options)
        if named is None:
            self._standardise(model.encoder)
        updates = min(_PROBE_UPDATES, self.planned)
        options = replace(self.options, steps=updates, attention_penalty=0.0)
        trainer = self._trainer(model, options, tokens)
        best, lowest = Gain(0.0, 0.0), math.inf
        while trainer.step < updates:
            if trainer.cooling_from is None and trainer.step >= 0.6 * updates:
                trainer.cool_down()
            trainer.train(min(options.evaluate_every, updates - trainer.step))
            self.tick("fitting a pooled past", trainer.step, updates)
            loss, _ = self._validate(trainer)
            if loss < lowest:
                found = self._evaluate(model, tokens).log_probabilities
                lowest, best = loss, self._gain(model, found, tokens)
        return best

    def _trainer(self, model: RewardPredictor, options: TrainingOptions, tokens: Tokens | None = None) -> Trainer:
        tokens = self.tokens if tokens is None else tokens
        return Trainer(model, tokens, self.train_episodes, self.draw, options, self.seed, self.device, self.group)

    def _evaluate(
        self, model: RewardPredictor, tokens: Tokens, episodes: NDArray[np.int64] | None = None, **how: bool
    ) -> Evaluation:
        """Predictions on held-out trajectories, all of them unless some are given."""
        episodes = self.held_out if episodes is None else episodes
        return evaluate(model, tokens, episodes, self.device, group=self.group, **how)

    def _new_model(self) -> RewardPredictor:
        with _seeded(self.seed + _OTHER_WEIGHTS * (self.first is not None)):
            model = RewardPredictor(*self.specs, len(self.reward_classes), self.model_options)
        if self.initial is not None:  # with the standardisation that belongs to them
            model.load_state_dict(self.initial)
        else:
            self._standardise(model.encoder)
        return model

    def _new_memoryless(self) -> Memoryless:
        with _seeded(self.seed + _MEMORYLESS_WEIGHTS):
            found = Memoryless(*self.specs, len(self.reward_classes), self.model_options)
        for model in found.models:
            self._standardise(model.encoder)
        return found

    def _standardise(self, encoder: StepEncoder) -> None:
        """Fit an encoder to the data, before it learns."""
        observations, actions = (
            map_arrays(as_tensor, example_rows(self.data, nest)) for nest in (self.data.observations, self.data.actions)
        )
        standardise(encoder.observation_encoder, observations)
        standardise(encoder.action_encoder, actions)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Initial weights come from this seed, and global randomness stays as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed % 2**63)
        yield


def _highest_gain(curve: list[dict[str, Any]]) -> float:
    return max((entry["gain"] for entry in curve if entry["gain"] is not None), default=0.0)  # None: it diverged
