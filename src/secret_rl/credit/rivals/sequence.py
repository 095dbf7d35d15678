"""What these methods share: a network over whole episodes, its training, and credit as shares of rewards."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from secret_rl.credit.attributions import Attributions, of_kind
from secret_rl.credit.base import ArrayMethod, NotFittedError, Specs, read_model, specs_of
from secret_rl.credit.report import FitReport, Gain, check_rewards, warn_of
from secret_rl.credit.reward_classes import RewardClasses
from secret_rl.credit.rivals.episodes import Episodes, StepEncoder
from secret_rl.credit.secret.checkpoint import Checkpoint
from secret_rl.credit.secret.tokens import example_rows
from secret_rl.encoders import as_tensor, choose_device, standardise, with_levels
from secret_rl.progress import progress_bar
from secret_rl.trajectories.nested import arrays_of, map_arrays

if TYPE_CHECKING:
    from secret_rl.trajectories import Trajectories

_EVALUATE_EVERY = 100
_PATIENCE = 5  # evaluations without progress after which training ends
_PROGRESS = 0.01  # share of the error of a constant guess that an error must fall by to count as progress
_VALIDATED = 500  # held-out episodes that are evaluated while training
_NUMBERS_AT_A_TIME = 1 << 22  # of attribution: rewards times steps
_SCORER_UPDATES, _SCORER_BATCH, _SCORED_AT_A_TIME = 400, 1_024, 1 << 15
_NETWORK, _SCORER = "network.", "scorer."  # prefixes of the arrays in a file


class SequenceMethod(ArrayMethod):
    """A credit method with a network over episodes. A subclass says which, its loss, and what its credit is.

    Steps before a reward share it in proportion to their credit; the step of the reward itself gets none, unless it is
    the first. ``step_credit`` regresses the shares of positive rewards in the source on (observation, action) pairs.

    Args:
        seed: Decides everything random.
        device: "cpu", "cuda", "mps", or "auto".
        units: Of each layer.
        steps: Updates at most; training ends before where held-out episodes are predicted no better.
        batch_size: Trajectories per update.
        learning_rate: Of Adam.
        validation: Share of the trajectories held out.
    """

    predicts: ClassVar[str] = "returns"
    """What the loss is about, for the report."""

    def __init__(
        self,
        *,
        seed: int = 0,
        device: str = "auto",
        units: int = 64,
        steps: int = 3_000,
        batch_size: int = 64,
        learning_rate: float = 1e-3,
        validation: float = 0.1,
    ) -> None:
        super().__init__(
            seed=seed, units=units, steps=steps, batch_size=batch_size, learning_rate=learning_rate,
            validation=validation,
        )  # fmt: skip
        for name in ("units", "steps", "batch_size", "learning_rate"):
            if not self.options[name] > 0:
                raise ValueError(f"{name} must be positive, got {self.options[name]}")
        if not 0 < validation < 1:
            raise ValueError(f"validation must lie between 0 and 1, got {validation}")
        self.device = choose_device(device)
        self.network: nn.Module | None = None
        self._scorer: nn.Sequential | None = None
        self._checkpoint: Checkpoint | None = None

    # What a method is.

    def build(self, specs: Specs) -> nn.Module:
        """The network; its encoders are ``StepEncoder``."""
        raise NotImplementedError

    def loss(self, network: Any, batch: Episodes, generator: torch.Generator) -> Tensor:
        """(batch,) what training makes small."""
        raise NotImplementedError

    def error(self, network: Any, batch: Episodes) -> tuple[Tensor, Tensor]:
        """(batch,) errors of the predictions that credit rests on, and those of the best constant guess."""
        raise NotImplementedError

    def credit(self, network: Any, batch: Episodes, times: Tensor, signs: Tensor) -> Tensor:  # noqa: ARG002
        """(batch, rewards, time) credit of each step, of any size, for rewards at ``times`` (batch, rewards).

        ``signs`` (batch, rewards) are those of the rewards. Negative credit counts as none.
        """
        return signs[..., None] * self.scores(network, batch)[:, None]

    def scores(self, network: Any, batch: Episodes) -> Tensor:
        """(batch, time) how much each step adds, for methods whose credit is the same for all rewards."""
        raise NotImplementedError

    # What all of them do.

    def fit(self, data: "Trajectories", *, checkpoint: str | Path | None = None, progress: bool | None = None) -> Self:
        """Learn from trajectories; an interrupted fit resumes from the folder ``checkpoint``.

        Args:
            data: Source trajectories.
            checkpoint: A folder, kept until ``save`` has written the result.
            progress: Show a progress bar; by default if the terminal is interactive.
        """
        started = time.perf_counter()
        check_rewards(data)
        observations, actions = specs_of(data.observation_space, data.action_space)
        specs = with_levels(observations, example_rows(data, data.observations)), actions
        returns = np.add.reduceat(np.asarray(data.rewards, np.float64), data.offsets[:-1])
        scale = float(np.sqrt(np.square(returns).mean())) or 1.0
        self.options |= {"scale": scale, "mean": returns.mean() / scale}
        fingerprint = {"method": self.name, "options": self.options, "content": data.fingerprint}
        kept = Checkpoint(None if checkpoint is None else Path(checkpoint), fingerprint)
        with closing(kept), progress_bar(progress, "updates", self.options["steps"]) as tick:
            self._restore(specs, data)
            train, held_out = data.split_indices(self.options["validation"], seed=self.options["seed"])
            curve = self._train(data, train, held_out[:_VALIDATED], kept, tick)
        explained = self._explained(data, held_out)
        report = FitReport(
            classes=(classes := RewardClasses.of(np.asarray(data.rewards))),
            verdict="credit" if explained.sure else "not learned",
            class_counts=tuple(np.bincount(classes.index(data.rewards), minlength=len(classes)).tolist()),
            explained=explained,
            explains=self.predicts,
            steps=max((int(entry["step"]) for entry in curve), default=0),
            seconds=time.perf_counter() - started,
            curve=tuple(curve),
        )
        self._fit_scorer(data)
        warn_of(report, len(data))
        self._specs, self.report, self._checkpoint = specs, report, kept
        self._arrays = {
            f"{prefix}{name}": value.detach().cpu().numpy()
            for prefix, module in ((_NETWORK, self.network), (_SCORER, self._scorer))
            for name, value in _required(module).state_dict().items()
        }
        return self

    def _restore(self, specs: Specs, data: "Trajectories | None" = None) -> None:
        """New networks; their inputs are standardised by data."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.options["seed"] % 2**63)
            self.network = self.build(specs)
            self._scorer = nn.Sequential(encoder := StepEncoder(specs, self.options["units"]))
            self._scorer.append(nn.Linear(self.options["units"], 1))
        if data is not None:
            rows = map_arrays(as_tensor, example_rows(data, data.observations))
            moves = map_arrays(as_tensor, example_rows(data, data.actions))
            for module in (*self.network.modules(), encoder):
                if isinstance(module, StepEncoder):
                    standardise(module.observation_encoder, rows)
                    if module.action_encoder is not None:
                        standardise(module.action_encoder, moves)
        self.network.to(self.device)
        self._scorer.to(self.device)

    def _train(
        self, data: "Trajectories", train: NDArray[np.int64], held_out: NDArray[np.int64], kept: Checkpoint, tick: Any
    ) -> list[dict[str, Any]]:
        """Train until held-out episodes are predicted no better; the network gets the best weights, of all updates."""
        network, seed = _required(self.network), self.options["seed"]
        optimiser = torch.optim.Adam(network.parameters(), lr=self.options["learning_rate"])
        best, curve = _copy(network), list(kept.state.get("curve", []))
        if curve:
            network.load_state_dict(kept.load("network"))
            best = kept.load("best")
            _load_adam(optimiser, kept.load("optimiser"))
        for step in range(int(curve[-1]["step"]) if curve else 0, self.options["steps"]):
            rng = np.random.default_rng([seed, step])  # of the update alone, so that a resumed fit draws the same
            generator = torch.Generator(self.device).manual_seed(int(rng.integers(2**63)))
            batch = self._batch(data, rng.choice(train, self.options["batch_size"]))
            loss = self.loss(network.train(), batch, generator).mean()
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            if (step + 1) % _EVALUATE_EVERY == 0 or step + 1 == self.options["steps"]:
                found = [(e.mean().item(), g.mean().item()) for e, g in self._errors(data, held_out)]
                error, guess = np.mean(found, axis=0).tolist()
                if error <= min((entry["error"] for entry in curve), default=np.inf):
                    best = _copy(network)
                curve.append({"step": step + 1, "loss": loss.item(), "error": error})
                kept.save({"curve": curve}, network=_copy(network), best=best, optimiser=_adam(optimiser))
                tick(f"held-out error {error:.4f}", step + 1, self.options["steps"])
                if _rests([entry["error"] for entry in curve], guess):
                    break
        network.load_state_dict(best)
        return curve

    def _explained(self, data: "Trajectories", episodes: NDArray[np.int64]) -> Gain:
        """The share of what a constant guess gets wrong, held out, that the network gets right."""
        found = [torch.stack(errors).cpu().numpy() for errors in self._errors(data, episodes)]
        errors, guesses = np.concatenate(found, 1)
        ones = np.ones(len(errors))
        return Gain.of(-errors, -guesses, ones.astype(np.float32), ones.astype(np.int64))

    @torch.no_grad()
    def _errors(self, data: "Trajectories", episodes: NDArray[np.int64]) -> Iterator[tuple[Tensor, Tensor]]:
        network = _required(self.network).eval()
        for first in range(0, len(episodes), self.options["batch_size"]):
            yield self.error(network, self._batch(data, episodes[first : first + self.options["batch_size"]]))

    def _batch(self, data: "Trajectories", episodes: NDArray[np.int64]) -> Episodes:
        lengths = data.lengths[episodes]
        mask = np.arange(lengths.max()) < lengths[:, None]
        index = np.zeros(mask.shape, np.int64)
        index[mask] = np.arange(lengths.sum())
        steps = np.arange(lengths.sum()) + np.repeat(data.offsets[episodes] - np.cumsum(lengths) + lengths, lengths)
        rewards = np.zeros(mask.shape, np.float32)
        rewards[mask] = np.asarray(data.rewards)[steps] / self.options["scale"]
        first = np.zeros(len(steps), np.float32)
        first[np.cumsum(lengths) - lengths] = 1.0
        nests = (map_arrays(lambda a: self._tensor(np.asarray(a)[steps]), n) for n in (data.observations, data.actions))
        return Episodes(*nests, *[self._tensor(array) for array in (first, index, mask.astype(np.float32), rewards)])

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return as_tensor(array).to(self.device)

    def attribute(self, data: "Trajectories", *, rewards: str = "all", progress: bool | None = None) -> Attributions:
        """Shares of each reward but 0 for the steps before it."""
        self._check_fitted()
        self.check_spaces(data.observation_space, data.action_space)
        return self._attribute(data, rewards, progress)

    @torch.no_grad()
    def _attribute(self, data: "Trajectories", rewards: str, progress: bool | None) -> Attributions:
        values = np.asarray(data.rewards, np.float64)
        wanted = np.flatnonzero(of_kind(values, rewards) & (values != 0))
        episode = np.searchsorted(data.offsets, wanted, side="right") - 1
        step = wanted - data.offsets[episode]
        weights: list[NDArray[np.float32]] = [np.zeros(0, np.float32)]
        counts = np.bincount(episode, minlength=len(data))
        rewarded = np.flatnonzero(counts)
        most = int(max(counts.max(initial=1), 1) * data.lengths.max(initial=1))
        at_a_time = max(1, min(self.options["batch_size"], _NUMBERS_AT_A_TIME // most))
        with progress_bar(progress, "episodes") as tick:
            for first in range(0, len(rewarded), at_a_time):
                some = rewarded[first : first + at_a_time]
                rows = np.isin(episode, some)
                slot = np.concatenate([np.arange(n) for n in counts[some]])
                place = np.repeat(np.arange(len(some)), counts[some]), slot
                times, signs = np.zeros((len(some), slot.max() + 1), np.int64), np.zeros((len(some), slot.max() + 1))
                times[place], signs[place] = step[rows], np.sign(values[wanted[rows]])
                batch = self._batch(data, some)
                found = self.credit(
                    _required(self.network).eval(), batch, self._tensor(times), self._tensor(signs.astype(np.float32))
                )
                weights += [
                    _shares(row[: t + 1]) for row, t in zip(found.cpu().numpy()[place], times[place], strict=True)
                ]
                tick("", first + len(some), len(rewarded))
        offsets, evidence = np.concatenate([[0], np.cumsum(step + 1)]), np.zeros(len(step), np.float32)
        joined = np.concatenate(weights)
        return Attributions(
            episode, step, step, values[wanted], evidence, joined, offsets, len(wanted), np.asarray(data.lengths)
        )

    def _fit_scorer(self, data: "Trajectories") -> None:
        """Regress the shares of positive rewards on pairs: the mean share of those that come before a reward."""
        scorer = _required(self._scorer)
        credit = self._attribute(data, "positive", progress=False)
        _, step = credit.places()
        last = np.zeros(len(step), np.bool_)
        last[credit.offsets[1:] - 1] = True  # the steps of the rewards themselves
        step, shares = step[~last], credit.weights[~last]
        nn.init.constant_(scorer[1].bias, -3.0)
        if not len(step):
            nn.init.constant_(scorer[1].bias, -100.0)
            nn.init.zeros_(scorer[1].weight)
            return
        optimiser = torch.optim.Adam(scorer.parameters(), lr=3e-3)
        rng = np.random.default_rng([self.options["seed"], 1])
        for _ in range(_SCORER_UPDATES):
            chosen = rng.integers(len(step), size=_SCORER_BATCH)
            logits = self._score(data.observations, data.actions, step[chosen])
            loss = nn.functional.binary_cross_entropy_with_logits(logits, self._tensor(shares[chosen]))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

    def _score(self, observations: Any, actions: Any, steps: NDArray[np.int64]) -> Tensor:
        """(steps,) logits of the share that some steps would earn."""
        seen, done = (
            map_arrays(lambda a: self._tensor(np.asarray(a)[steps]), nest) for nest in (observations, actions)
        )
        encoder, head = _required(self._scorer)
        return head(encoder(seen, done, torch.zeros(len(steps), device=self.device)))[:, 0]  # type: ignore[no-any-return]

    @torch.no_grad()
    def step_credit(self, observations: Any, actions: Any, next_observations: Any = None) -> NDArray[np.float64]:  # noqa: ARG002
        """(steps,) the share of a positive reward, from 0 to 1, that such pairs earned in the source."""
        self._check_fitted()
        steps = np.arange(len(arrays_of(actions)[0]))
        parts = [steps[i : i + _SCORED_AT_A_TIME] for i in range(0, len(steps), _SCORED_AT_A_TIME)]
        found = [self._score(observations, actions, part).sigmoid().double().cpu().numpy() for part in parts]
        return np.round(np.concatenate([np.zeros(0), *found]), 5)

    def save(self, path: str | Path) -> Path:
        """Write one file; what ``fit`` kept in its checkpoint goes."""
        super().save(path)
        if self._checkpoint is not None:
            self._checkpoint.discard()
        return Path(path)

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto") -> Self:
        """Read what ``save`` wrote."""

        def build(about: dict[str, Any], arrays: dict[str, Any]) -> Any:
            options = dict(about["options"])
            facts = {name: options.pop(name) for name in ("scale", "mean")}
            loaded = cls(device=device, **options)
            loaded.options |= facts
            loaded._specs, loaded._arrays = tuple(about["specs"]), arrays
            loaded.report = FitReport.from_json(about["report"])
            loaded._restore(loaded._specs)
            for prefix, module in ((_NETWORK, loaded.network), (_SCORER, loaded._scorer)):
                own = {n.removeprefix(prefix): torch.from_numpy(a) for n, a in arrays.items() if n.startswith(prefix)}
                _required(module).load_state_dict(own)
            return loaded

        made: Self = read_model(path, cls.name, build)
        return made

    def _check_fitted(self) -> None:
        if self.report is None:
            raise NotFittedError(f"{self.name} is not fitted yet: call fit, or load a file")


def _shares(credit: NDArray[np.float32]) -> NDArray[np.float32]:
    """Credit of the steps up to a reward as shares that sum to 1; evenly where no earlier step has any."""
    if len(credit) == 1:
        return np.ones(1, np.float32)
    shares = np.append(np.maximum(credit[:-1], 0), np.float32(0))
    if not shares.sum() > 0:
        shares[:-1] = 1
    return np.asarray(shares / shares.sum(), np.float32)


def _rests(errors: list[float], guess: float) -> bool:
    """Whether errors have not fallen for a while, by the measure of what a constant guess gets wrong."""
    return len(errors) > _PATIENCE and min(errors[-_PATIENCE:]) > min(errors[:-_PATIENCE]) - _PROGRESS * guess


def _required(module: Any) -> Any:
    assert module is not None
    return module


def _copy(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().cpu().clone() for name, value in module.state_dict().items()}


def _adam(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    state = optimiser.state_dict()["state"]
    return {f"{number}.{name}": value.cpu() for number, memory in state.items() for name, value in memory.items()}


def _load_adam(optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, name = key.split(".")
        state.setdefault(int(number), {})[name] = value
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
