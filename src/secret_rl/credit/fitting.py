"""Fitting the reward predictor so that it never silently fails."""

import math
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from secret_rl.credit.checkpoint import Checkpoint
from secret_rl.credit.diagnosis import FitReport, check_held_out, check_rewards, warn_of
from secret_rl.credit.encoders import Spec, standardise
from secret_rl.credit.measures import CLASS_NAMES, Confusion
from secret_rl.credit.memoryless import best_without_past
from secret_rl.credit.model import RewardPredictor
from secret_rl.credit.options import (
    CLASS_WEIGHTS,
    SEARCHED_ZERO_WEIGHTS,
    ModelOptions,
    TrainingOptions,
    Weights,
    to_json,
)
from secret_rl.credit.tokens import Tokens, as_tensor, map_nest
from secret_rl.credit.training import Trainer
from secret_rl.files import finite_number, plain, whole_number
from secret_rl.progress import Tick

if TYPE_CHECKING:
    from secret_rl.trajectories import Trajectories

T = TypeVar("T")

_TIE = 0.005  # shares of mistakes this close are alike: the later weights, whose attention is sharper, are kept
_RELATIVE_TIE = 0.1  # or this close in proportion, where rewards of one sign stand out from many zeros
_LOWER = 0.02  # a loss that is lower by this share is progress
_JUDGED_AT = 0.6  # share of the updates after which an attempt may stop early, or be given up as stuck
_STUCK = 0.3  # share of what the memoryless predictor gets wrong that the past must put right
_STUCK_LOOKS = 2  # looks without progress after which it is given up then
_TRIAL_UPDATES, _TRIAL_BATCH = 800, 64
_STANDARDISE_ROWS = 10_000


class _Outcome(NamedTuple):
    """What one initialisation came to: predictions on held-out trajectories, and the weights that make them."""

    confusion: Confusion
    tensors: dict[str, Tensor]
    steps: int
    weights: Weights


@dataclass
class Fitting:
    """One call of ``fit``: the data, the choices, and how far it has come."""

    data: "Trajectories"
    specs: tuple[Spec, Spec]
    model_options: ModelOptions
    options: TrainingOptions
    seed: int
    device: torch.device
    checkpoint: Checkpoint
    tick: Tick
    initial: dict[str, Tensor] | None = None
    """Weights to begin with, instead of random ones."""
    zero_weight: float | None = None
    """w(0) where class weights are "auto", instead of a search."""
    curve: list[dict[str, Any]] = field(default_factory=list)
    search: list[dict[str, float]] = field(default_factory=list)
    without_past: dict[Weights, Confusion] = field(default_factory=dict)

    def run(self) -> tuple[RewardPredictor, FitReport]:
        """Fit, restarting where a class is never predicted; say so if that does not help.

        What comes of it stays in the checkpoint, too: whoever saves it elsewhere discards that.
        """
        started = time.perf_counter()
        counts = check_rewards(self.data)
        if "report" in self.checkpoint.state:
            with self.checkpoint.reading():
                report = FitReport.from_json(self.checkpoint.state["report"])
                model = self._model_of(_required(self._best_so_far()))
            warn_of(report, len(self.data))
            return model, report
        self._both_signs = bool(counts[0] and counts[2])
        self.tokens = Tokens.of(self.data).near(self.device)
        self.train_episodes, self.validation_episodes = self.data.split_indices(self.options.validation, seed=self.seed)
        held_out = _rows_of(self.tokens, self.validation_episodes)
        check_held_out(counts, self.data, held_out)
        self._held_out_counts = np.bincount(np.sign(self.tokens.rewards[held_out]).astype(np.int64) + 1, minlength=3)
        self.train_episodes = self.tokens.with_rare_repeated(self.train_episodes)
        state = self.checkpoint.state
        with self.checkpoint.reading():
            self.curve, self.search = ([dict(entry) for entry in state.get(name, [])] for name in ("curve", "search"))
            before = Weights(*map(finite_number, state["weights"])) if "weights" in state else None
            attempt = whole_number(state.get("attempt", 0), high=self.options.restarts)
            best = self._best_so_far()
        weights = before or self._first_weights()
        while True:
            outcome = self._attempt(attempt, weights)
            if best is None or self._mistakes(outcome.confusion, weights) < self._mistakes(best.confusion, weights):
                best = outcome
            attempt += 1
            if not self._stuck(outcome.confusion, weights) or attempt > self.options.restarts:
                break
            if self.options.class_weights == "auto" and not self.search:
                weights = self._searched(weights)  # perhaps it is not the initialisation that hinders
            self.checkpoint.save(
                {**self._base_state(weights), "attempt": attempt, **_overall(best)}, overall=best.tensors
            )
        report = FitReport(
            class_counts={name: int(n) for name, n in zip(CLASS_NAMES, counts, strict=True)},
            class_weights=best.weights,
            validation=best.confusion,
            memoryless=self._memoryless(best.weights),
            steps=best.steps,
            attempts=attempt,
            seconds=time.perf_counter() - started,
            curve=tuple(self.curve),
            weight_search=tuple(self.search),
        )
        self.checkpoint.save({"report": report.to_json(), **_overall(best)}, overall=best.tensors)
        warn_of(report, len(self.data))
        return self._model_of(best), report

    def _model_of(self, outcome: "_Outcome") -> RewardPredictor:
        model = self._new_model(0)
        model.load_state_dict(outcome.tensors)
        return model

    def _best_so_far(self) -> "_Outcome | None":
        """The best of the attempts that ended before an interruption."""
        tensors, state = self.checkpoint.load("overall"), self.checkpoint.state
        if tensors is None:
            return None
        confusion = Confusion.from_json({"counts": state["overall_counts"]})
        weights = Weights(*map(finite_number, state["overall_weights"]))
        return _Outcome(confusion, tensors, whole_number(state["overall_steps"]), weights)

    def _first_weights(self) -> Weights:
        """The class weights to begin with.

        Where a reward can be of either sign, telling the signs apart is what needs the past, and both have full
        weight: the paper's w(0) is tried first. Where only one occurs, the "no" of the task is a zero, and the weight
        of the zeros decides whether the past is consulted.
        """
        chosen = self.options.class_weights
        if not isinstance(chosen, str):
            return Weights(*chosen)
        if chosen in CLASS_WEIGHTS:
            return CLASS_WEIGHTS[chosen]
        signs = np.sign(self.tokens.rewards[_rows_of(self.tokens, self.train_episodes)])
        negative, positive = int((signs < 0).sum()), int((signs > 0).sum())
        low, high = balanced_weights(negative, positive)
        if self.zero_weight is not None:
            return Weights(low, self.zero_weight, high)
        weights = Weights(low, CLASS_WEIGHTS["paper"].zero, high)
        return weights if negative and positive else self._searched(weights)

    def _searched(self, weights: Weights) -> Weights:
        """With the w(0) at which the past puts right most of what is wrong without it."""
        for number, zero in enumerate(SEARCHED_ZERO_WEIGHTS):
            self.tick(f"trying w(0) = {zero:g}", number, len(SEARCHED_ZERO_WEIGHTS))
            self.search.append({"zero_weight": zero, "put_right": self._trial(weights._replace(zero=zero))})
        return weights._replace(zero=max(self.search, key=lambda entry: entry["put_right"])["zero_weight"])

    def _trial(self, weights: Weights) -> float:
        """The share of mistakes that the past puts right after a short training with these weights."""
        updates = min(_TRIAL_UPDATES, self.options.planned_steps(len(self.data)))
        options = replace(
            self.options, steps=updates, batch_size=min(_TRIAL_BATCH, self.options.batch_size), looking_cost=0.0
        )
        trainer = Trainer(
            self._new_model(0), self.tokens, self.train_episodes, weights, options, self.seed, self.device
        )
        trainer.train(updates)
        alone = self._mistakes(self._memoryless(weights), weights)
        return 1 - self._mistakes(trainer.evaluate(self.validation_episodes).confusion, weights) / max(alone, 1e-9)

    def _attempt(self, attempt: int, weights: Weights) -> "_Outcome":
        """Train from one initialisation: the predictions and weights of the best look at the validation data."""
        options = replace(self.options, steps=self.options.planned_steps(len(self.data)))
        assert options.steps is not None
        trainer = Trainer(
            self._new_model(attempt), self.tokens, self.train_episodes, weights, options,
            self.seed + 7919 * attempt, self.device,
        )  # fmt: skip
        fewest, kept, kept_counts, kept_step = math.inf, trainer.state(), np.zeros((3, 3), int), 0
        mark, waited = (math.inf, math.inf), 0  # mistakes and loss when progress was last seen, and looks since
        over = False
        state = self.checkpoint.state
        if state.get("in_attempt") == attempt:
            with self.checkpoint.reading():
                # Training that has diverged goes on; what it keeps has not.
                current = _required(self.checkpoint.load("current", finite=False))
                trainer.restore(current, whole_number(state["step"], 1, options.steps))
                kept = _required(self.checkpoint.load("best"))
                if {name: value.shape for name, value in kept.items()} != {n: v.shape for n, v in current.items()}:
                    raise ValueError("the best weights are not like the current ones")
                kept_counts = Confusion.from_json({"counts": state["kept_counts"]}).counts
                fewest, kept_step = float(state["fewest_mistakes"]), whole_number(state["kept_step"])
                mark = float(state["mark"][0]), float(state["mark"][1])
                waited, over = whole_number(state["waited"]), bool(state["over"])
        while trainer.step < options.steps and not over:
            loss = trainer.train(min(options.evaluate_every, options.steps - trainer.step))
            evaluation = trainer.evaluate(self.validation_episodes)
            mistakes = self._mistakes(evaluation.confusion, weights)
            now = mistakes, evaluation.loss
            mark, waited = (now, 0) if self._progressed(mark, now) else (mark, waited + 1)
            fewest = min(fewest, mistakes)
            if self._alike(mistakes, fewest):
                kept, kept_counts, kept_step = trainer.state(), evaluation.confusion.counts, trainer.step
            self.curve.append(
                {
                    "attempt": attempt,
                    "step": trainer.step,
                    "loss": loss,
                    "validation_loss": evaluation.loss,
                    **evaluation.confusion.to_json()["accuracy"],
                }
            )
            if trainer.step >= _JUDGED_AT * options.steps:
                stuck = self._stuck(Confusion(kept_counts), weights)
                over = waited >= (min(options.patience, _STUCK_LOOKS) if stuck else options.patience)
            self.tick(f"loss {loss:.4f}  accuracy {evaluation.confusion}", trainer.step, options.steps)
            self.checkpoint.save(
                {
                    **self._base_state(weights),
                    **{k: v for k, v in state.items() if k.startswith("overall")},
                    "attempt": attempt,
                    "in_attempt": attempt,
                    "step": trainer.step,
                    "fewest_mistakes": repr(fewest),  # JSON has no infinity
                    "kept_counts": kept_counts.tolist(),
                    "kept_step": kept_step,
                    "mark": [repr(float(number)) for number in mark],
                    "waited": waited,
                    "over": over,
                },
                current=trainer.state(),
                best=kept,
            )
        model = {name.removeprefix("model."): v for name, v in kept.items() if name.startswith("model.")}
        return _Outcome(Confusion(kept_counts), model, kept_step, weights)

    def _stuck(self, confusion: Confusion, weights: Weights) -> bool:
        """Whether a class is never predicted, or the past hardly helps: the plateaus that training starts on.

        It helps where it puts right enough mistakes in either way of counting them: with one sign, it may find rewards
        that are missed without it, or tell zeros that look like rewards.
        """
        alone = self._memoryless(weights)
        counted = (
            (self._mistakes(confusion, weights), self._mistakes(alone, weights)),
            (1 - confusion.balanced_accuracy, 1 - alone.balanced_accuracy),
        )
        return bool(confusion.never_predicted) or all(mine > (1 - _STUCK) * without for mine, without in counted)

    def _mistakes(self, confusion: Confusion, weights: Weights) -> float:
        """The share of mistakes: the mean over classes, or where rewards have one sign, of all the weight of the loss.

        With both signs, telling them apart is the task. With one, it is to tell rewards from zeros that look like
        them: a mean over classes would hardly notice those few zeros.
        """
        mass = self._held_out_counts * np.array(weights)
        if self._both_signs or not mass.any():
            return 1 - confusion.balanced_accuracy
        return float((mass * (1 - np.nan_to_num(confusion.accuracy))).sum() / mass.sum())

    def _alike(self, mistakes: float, fewest: float) -> bool:
        """Whether a share of mistakes is hardly larger than the smallest."""
        if self._both_signs:
            return mistakes <= fewest + _TIE
        return mistakes <= fewest * (1 + _RELATIVE_TIE)

    def _progressed(self, mark: tuple[float, float], now: tuple[float, float]) -> bool:
        """Whether mistakes and loss have become better since the mark was set: small steps add up to progress.

        The mistakes of rewards that stand out from many zeros are few and go up and down: there, a falling loss is
        progress, too.
        """
        better = not self._alike(mark[0], now[0])
        return better if self._both_signs else better or now[1] < (1 - _LOWER) * mark[1]

    def _memoryless(self, weights: Weights) -> Confusion:
        """Predictions without access to earlier steps, of a model trained with these weights."""
        if weights not in self.without_past:
            self.without_past[weights] = best_without_past(
                self._new_model(0), self.tokens, _rows_of(self.tokens, self.train_episodes),
                _rows_of(self.tokens, self.validation_episodes), weights, self.options, self.seed, self.device,
                self.tick,
            )  # fmt: skip
        return self.without_past[weights]

    def _new_model(self, attempt: int) -> RewardPredictor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed((self.seed + 7919 * attempt) % 2**63)
            model = RewardPredictor(*self.specs, self.model_options)
        if not hasattr(self, "_example"):
            rng = np.random.default_rng(self.seed)
            rows = np.sort(rng.choice(self.data.steps, min(self.data.steps, _STANDARDISE_ROWS), replace=False))
            self._example = tuple(
                map_nest(lambda array: as_tensor(np.asarray(array[rows])), nest)
                for nest in (self.data.observations, self.data.actions)
            )
        if self.initial is not None:  # with the standardisation that belongs to them
            model.load_state_dict(self.initial)
            return model
        standardise(model.observation_encoder, self._example[0])
        standardise(model.action_encoder, self._example[1])
        return model

    def _base_state(self, weights: Weights) -> dict[str, Any]:
        return {"weights": list(weights), "search": self.search, "curve": plain(self.curve)}


def _overall(best: "_Outcome") -> dict[str, Any]:
    return {
        "overall_counts": best.confusion.counts.tolist(),
        "overall_steps": best.steps,
        "overall_weights": list(best.weights),
    }


def balanced_weights(negative: int, positive: int) -> tuple[float, float]:
    """w(-1) and w(1) that give both signs the same say, with the paper's sum; the paper's where one is absent."""
    if not negative or not positive:
        return CLASS_WEIGHTS["paper"].negative, CLASS_WEIGHTS["paper"].positive
    total = 2 * CLASS_WEIGHTS["paper"].negative
    share = float(np.clip(positive / (negative + positive), 0.02, 0.98))
    return total * share, total * (1 - share)


def fingerprint(data: "Trajectories", model: ModelOptions, training: TrainingOptions, seed: int) -> dict[str, Any]:
    """What an unfinished fit must share with the one that takes it up."""
    return {
        "episodes": len(data),
        "steps": data.steps,
        "content": data.fingerprint,
        "model": to_json(model),
        "training": to_json(training),
        "seed": seed,
    }


def _rows_of(tokens: Tokens, episodes: NDArray[np.int64]) -> NDArray[np.int64]:
    starts, lengths = tokens.offsets[episodes], tokens.lengths[episodes]
    return np.arange(lengths.sum()) + np.repeat(starts - np.cumsum(lengths) + lengths, lengths)


def _required(found: T | None) -> T:
    if found is None:
        raise ValueError("it names no weights")
    return found


def choose_device(name: str) -> torch.device:
    """``"auto"``: CUDA, else MPS, else the CPU."""
    if name != "auto":
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
