"""Credit that is learned again and again from the episodes an agent plays, and the potentials made of it."""

import math
import shutil
import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from secret_rl.atomic import find_folder, new_folder
from secret_rl.checks import printable
from secret_rl.credit import Secret, adapt
from secret_rl.files import FileFormat, ResumeError, check_same, finite_number, plain, whole_number
from secret_rl.shaping import (
    KINDS,
    LearnedPotential,
    OnlineCredit,
    Potential,
    TablePotential,
    estimate_potential,
    learn_potential,
)
from secret_rl.shaping.core import load_potential
from secret_rl.trajectories import Trajectories
from secret_rl.views import View, apply_view

PotentialMaker = Callable[[Secret | None, Trajectories], Potential | None]
"""(credit model, episodes as the agent saw them) to a potential, or None if there is none."""
_OTHERS = ("learned", "learned value", "online")  # kinds besides tables

# Somebody waits while these fits happen: a few seconds each, and the next one begins from other weights.
SMALL_FIT: dict[str, Any] = {
    "steps": 800, "batch_size": 32, "units": 64, "learning_rate": 3e-3, "warmup": 50, "evaluate_every": 200,
    "validation": 0.2,
}  # fmt: skip
_SPLITS = 20  # among which the one is chosen that holds out a fair share of the successes
_STATE = "online.json"
_FORMAT = FileFormat("secret-rl online secret", remedy="choose another folder, or train again")
_KEPT = 2  # states: should a training be killed between this file and its own, it resumes from the one before


@dataclass(frozen=True)
class Refit:
    """One time that credit was due to be learned again."""

    episodes: int
    """Finished so far."""
    successes: int
    """Episodes with a positive reward, among those kept."""
    history_gain: float | None
    """Share of the open uncertainty about rewards that the past removes; None if no credit model was fitted."""
    accepted: bool
    """Whether there is a new potential."""
    reason: str
    """Why not; empty where accepted."""
    seconds: float


class OnlineSecret:
    """Keeps an agent's newest episodes and makes a potential of them on a schedule.

    Given to ``learn_online``, or to an ``OnlineSecretCallback``. Once ``first`` episodes are finished, and whenever
    their number has grown by the factor ``growth`` since, a credit model is fitted to the newest ones and a potential
    made of it. Where the verdict on the model is not "credit", or its history gain is below ``min_gain``, the potential
    stays as it is; ``history`` says why.

    Args:
        potential: One of

            - ``"pending"``, ``"cumulative"``: a table over ``info["state"]``, as ``estimate_potential`` makes it;
            - ``"learned"``: a network over observations (``learn_potential``), for agents whose states have no key;
            - ``"online"``: ``OnlineCredit``, the credit earned so far in the episode;
            - ``"value"``, ``"learned value"``: the Monte-Carlo value, without any credit model: what credit must beat;
            - a function of (credit model, trajectories as the agent saw them) that gives a potential or None.
        view: What the credit model may see: where the observation gives the reward away, attention finds nothing.
        secret: A fitted model to start from; it is fine-tuned.
        fine_tune: Train the last accepted credit model further (``adapt``), instead of fitting each from scratch.
        first: Episodes before the first fit.
        growth: Factor between fits.
        last: Episodes after which nothing is fitted any more.
        keep: How many of the newest episodes are kept.
        min_successes: Fits wait until so many of them hold a positive reward.
        min_gain: Least history gain of a model that is used.
        use_credit: False: no model is fitted, and a function as ``potential`` is given None.
        secret_options: Options of ``Secret``; the defaults here are those of a small, quick fit.
        adapt_options: Options of ``adapt``.
        potential_options: Options of what makes the potential.
        seed: Of the fits.
    """

    def __init__(
        self,
        potential: str | PotentialMaker = "pending",
        *,
        view: View | None = None,
        secret: Secret | None = None,
        fine_tune: bool = False,
        first: int = 50,
        growth: float = 1.5,
        last: int | None = None,
        keep: int = 2_000,
        min_successes: int = 5,
        min_gain: float = 0.02,
        use_credit: bool = True,
        secret_options: Mapping[str, Any] | None = None,
        adapt_options: Mapping[str, Any] | None = None,
        potential_options: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> None:
        kinds = [*_tables(), *_OTHERS]
        if not callable(potential) and potential not in kinds:
            raise ValueError(f"potential must be a function or one of {', '.join(kinds)}, got {potential!r}")
        for name, value, least in (("first", first, 10), ("keep", keep, 10), ("min_successes", min_successes, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
        if not (growth >= 1 and math.isfinite(growth)):
            raise ValueError(f"growth must be a number of at least 1, got {growth!r}")
        if last is not None and last < first:
            raise ValueError(f"last must be at least first, {first}, got {last!r}")
        if not use_credit and not callable(potential):
            raise ValueError(f"use_credit=False is for potentials of your own, got potential={potential!r}")
        if secret is not None and secret.report is None:
            raise ValueError("secret is not fitted: fit it, or leave it out and each model is fitted from scratch")
        self.potential, self.view, self.fine_tune = potential, view, fine_tune or secret is not None
        self.first, self.growth, self.last, self.keep = first, float(growth), last, keep
        own = callable(potential)
        needs_credit = own or (KINDS[potential].needs_credit if potential in KINDS else potential != "learned value")
        self.use_credit = use_credit and needs_credit
        needs_rewards = self.use_credit or not own
        self.min_successes, self.min_gain = max(min_successes, int(needs_rewards)), float(min_gain)
        self.secret_options: dict[str, Any] = SMALL_FIT | dict(secret_options or {})
        self.adapt_options: dict[str, Any] = dict(adapt_options or {})
        self.potential_options: dict[str, Any] = dict(potential_options or {})
        self.seed, self.given = seed, secret
        self.secret = secret
        """The credit model of the present potential, or the one that was given."""
        self.present: Potential | None = None
        """The newest potential; None until there is one."""
        self.history: list[Refit] = []
        self.seen = 0
        """Episodes finished so far, those that are no longer kept included."""
        self.next = first
        """The number of episodes at which credit is learned again."""
        self.fits = 0
        self._episodes: deque[Mapping[str, Any]] = deque(maxlen=keep)
        self._successful: deque[bool] = deque(maxlen=keep)
        self._spaces: tuple[gym.Space[Any], gym.Space[Any]] | None = None

    def __repr__(self) -> str:
        accepted = sum(refit.accepted for refit in self.history)
        return f"OnlineSecret({self.potential!r}, {self.seen:,} episodes, {accepted} potentials)"

    @property
    def needs_states(self) -> bool:
        """Whether the potential is a table over ``info["state"]``."""
        return self.potential in _tables() and self.potential_options.get("state") is None

    @property
    def successes(self) -> int:
        """Episodes with a positive reward, among those kept."""
        return sum(self._successful)

    @property
    def due(self) -> bool:
        """Whether credit is to be learned again."""
        return self.seen >= self.next and (self.last is None or self.seen <= self.last)

    @property
    def trajectories(self) -> Trajectories:
        """The newest episodes, as the agent saw them."""
        if self._spaces is None:
            raise RuntimeError("no environment has been watched yet: give it to learn_online or OnlineSecretCallback")
        observations, actions = self._spaces
        return Trajectories.from_episodes(
            list(self._episodes), observation_space=observations, action_space=actions, meta={"source": "online"}
        )

    def watch(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:
        """Set the spaces of the episodes to come; an error where earlier ones, or the models, do not fit."""
        spaces = observation_space, action_space
        if self._spaces not in (None, spaces):
            raise ValueError(
                f"episodes of {self._spaces} were kept, not of {spaces}: make another OnlineSecret for them"
            )
        if self.given is not None:
            seen = observation_space if self.view is None else self.view.space(observation_space)
            self.given.check_spaces(seen, action_space)
        self._spaces = spaces

    def add(self, episode: Mapping[str, Any]) -> None:
        """Keep a finished episode, with unshaped rewards; as ``Trajectories.from_episodes`` takes it."""
        self._episodes.append(episode)
        self._successful.append(bool((np.asarray(episode["rewards"]) > 0).any()))
        self.seen += 1

    def update(self) -> Potential | None:
        """Learn credit again if that is due; the new potential, or None where the present one stays."""
        if not self.due:
            return None
        if self.successes < self.min_successes:
            if not (self.history and self.history[-1].episodes >= self.next):  # recorded once
                self._record(None, f"{self.successes} successful episodes, {self.min_successes} are needed", 0.0)
            return None
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of poor fits and potentials: they are in the history
            potential, secret, reason = self._learn()
        gain = None if secret is None or secret.report is None else secret.report.history_gain
        self._record(gain, reason, time.perf_counter() - started)
        self.fits += 1
        self.next = max(self.seen + 1, math.ceil(self.growth * self.seen))
        if not reason:
            self.present, self.secret = potential, secret
        return None if reason else potential

    def save(self, folder: Path, step: int) -> Path:
        """Write everything that changes, as it is after so many steps of training: whole or not at all."""
        final = folder / str(step)
        kinds = (TablePotential, LearnedPotential, OnlineCredit)
        if self.present is not None and not isinstance(self.present, kinds):
            raise TypeError(
                f"{self.present!r} cannot be kept in a folder: expected a TablePotential, a LearnedPotential or "
                "OnlineCredit; leave the folder out"
            )
        with new_folder(final, overwrite=True) as writing:
            if self.seen:
                self.trajectories.save(writing / "episodes")
            if self.secret is not None:
                self.secret.save(writing / "secret.safetensors")
            if self.present is not None:
                self.present.save(writing / "potential")
            state = {
                "options": self._options(), "seen": self.seen, "next": self.next, "fits": self.fits,
                "kind": None if self.present is None else type(self.present).__name__,
                "secret": self.secret is not None, "history": [asdict(refit) for refit in self.history],
            }  # fmt: skip
            _FORMAT.write_json(writing / _STATE, plain(state))
        for old in _steps(folder)[:-_KEPT]:
            shutil.rmtree(folder / str(old), ignore_errors=True)
        return final

    def load(self, folder: Path, step: int) -> None:
        """Restore a new one, of the same options, as it was after so many steps of training."""
        path = find_folder(folder / str(step))
        if not (path / _STATE).is_file():
            raise ResumeError(
                f"{folder} holds nothing of {step:,} steps of training, but of {_steps(folder) or 'none'}: it belongs "
                "to another training; choose another folder, or train again"
            )
        state = _FORMAT.read_json(path / _STATE)
        with _FORMAT.reading(path / _STATE):
            check_same(path, "an online secret", dict(state["options"]), plain(self._options()))
            if state["secret"]:
                self.secret = Secret.load(path / "secret.safetensors")
            if state["kind"] == OnlineCredit.__name__:
                if self.secret is None:
                    raise ValueError("online credit without its model")
                self.present = OnlineCredit.load(path / "potential", self.secret)
            elif state["kind"] is not None:
                self.present = load_potential(path / "potential")
            counts = [whole_number(state[name]) for name in ("seen", "next", "fits")]
            if state["seen"]:
                episodes = Trajectories.load(path / "episodes")
                self.watch(episodes.observation_space, episodes.action_space)
                for episode in episodes:
                    self.add(vars(episode))
            self.seen, self.next, self.fits = counts
            self.history[:] = [_refit(entry) for entry in state["history"]]

    def _options(self) -> dict[str, Any]:
        names = ("first", "growth", "last", "keep", "min_successes", "min_gain", "fine_tune", "use_credit", "seed")
        nested = ("secret_options", "adapt_options", "potential_options")
        return {
            **{name: getattr(self, name) for name in names},
            **{name: repr(sorted(getattr(self, name).items())) for name in nested},
            "potential": self.potential if isinstance(self.potential, str) else "a function",
            "view": repr(self.view),
        }

    def _learn(self) -> tuple[Potential | None, Secret | None, str]:
        """A potential and the model it is of, and why it is not to be used if so."""
        data = self.trajectories
        seen = data if self.view is None else apply_view(data, self.view)
        secret = None
        if self.use_credit:
            secret = self._fit(seen)
            assert secret.report is not None
            if secret.report.verdict != "credit":
                return None, secret, secret.report.verdict
            if secret.report.history_gain < self.min_gain:
                return None, secret, f"the past removes {secret.report.history_gain:.1%} of what is open only"
        potential = self._make(secret, data, seen)
        if potential is None:
            return None, secret, "no potential could be made"
        if getattr(potential, "bound", None) == 0:
            return None, secret, "nothing was credited: the potential is 0 everywhere"
        return potential, secret, ""

    def _fit(self, seen: Trajectories) -> Secret:
        """A model of the episodes as it may see them, held-out ones with their share of the successes."""
        start = self.secret if self.fine_tune else None
        share = self.secret_options["validation"] if start is None else start.training_options.validation
        first = self.seed + _SPLITS * self.fits
        successful = seen.successful

        def unfair(seed: int) -> float:  # of a few successes, chance may hold out none or most
            held_out = successful[seen.split_indices(share, seed=seed)[1]]
            return abs(float(held_out.sum() - share * successful.sum()))

        seed = min(range(first, first + _SPLITS), key=unfair)
        if start is not None:
            return adapt(start, seen, **{"seed": seed, "progress": False} | self.adapt_options)
        return Secret(**{"seed": seed} | self.secret_options).fit(seen, progress=False)

    def _make(self, secret: Secret | None, data: Trajectories, seen: Trajectories) -> Potential | None:
        """A potential of ``data``, the episodes as the agent saw them; ``seen``: as the credit model does."""
        kind, options = self.potential, self.potential_options
        if callable(kind):
            return kind(secret, data)
        if kind == "online":
            assert secret is not None
            return None if secret.queries is None else OnlineCredit(secret, observation=self.view, **options)
        credit = None if secret is None else secret.attribute(seen, rewards="positive", progress=False)
        if kind in KINDS:
            return estimate_potential(data, credit, kind, **options)
        target = "value" if kind == "learned value" else "pending"
        return learn_potential(data, credit, target, **{"progress": False, **options})

    def _record(self, gain: float | None, reason: str, seconds: float) -> None:
        self.history.append(Refit(self.seen, self.successes, gain, not reason, reason, seconds))


def _tables() -> list[str]:
    """Kinds of potentials that are tables of means over visits."""
    return [name for name, kind in KINDS.items() if not kind.tables_only]


def _refit(entry: dict[str, Any]) -> Refit:
    gain = None if entry["history_gain"] is None else finite_number(entry["history_gain"])
    counts = whole_number(entry["episodes"]), whole_number(entry["successes"])
    reason, seconds = printable(str(entry["reason"])), finite_number(entry["seconds"])
    return Refit(*counts, gain, bool(entry["accepted"]), reason, seconds)


def _steps(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.glob("*") if path.name.isdigit())
