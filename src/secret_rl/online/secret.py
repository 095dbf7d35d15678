"""Credit that is learned again and again from the episodes an agent plays."""

import math
import time
import warnings
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from secret_rl.credit import Secret, adapt
from secret_rl.online.making import KINDS, TABLES, Maker, make, needs_credit
from secret_rl.shaping import Potential
from secret_rl.trajectories import Trajectories
from secret_rl.views import View, apply_view

# Somebody waits while these fits happen: a few seconds each, and the next one begins from other weights.
SMALL_FIT: dict[str, Any] = {
    "steps": 800, "batch_size": 32, "units": 64, "learning_rate": 3e-3, "warmup": 50, "evaluate_every": 200,
    "validation": 0.2,
}  # fmt: skip
_SPLITS = 20  # among which the one is chosen that holds out a fair share of the successes


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
    """Keeps an agent's newest episodes and makes a potential of them on a schedule; given to ``learn_online``, or to
    an ``OnlineSecretCallback``.

    Once ``first`` episodes are finished, and whenever their number has grown by the factor ``growth`` since, up to
    ``last``, a credit model is fitted to the newest ``keep`` and a potential made of it. Until ``min_successes`` of
    these hold a positive reward, that waits. Where the verdict on the model is not "credit", or its history gain is
    below ``min_gain``, the potential stays as it is; ``history`` says why.

    ``view`` is what the credit model may see: where the observation gives the reward away, attention finds nothing.
    Each credit model is fitted from scratch; with ``fine_tune`` it is the last accepted one trained further
    (``adapt``), and so from the beginning where a fitted ``secret`` is given.

    ``potential`` is one of

    - ``"pending"``, ``"cumulative"``: a table over ``info["state"]``, as ``estimate_potential`` makes it;
    - ``"learned"``: a network over observations (``learn_potential``), for agents whose states have no key;
    - ``"online"``: ``OnlineCredit``, the credit earned so far in the episode;
    - ``"value"``, ``"learned value"``: the Monte-Carlo value, without any credit model: what credit has to beat;
    - a function of (credit model, trajectories as the agent saw them) that gives a potential or None. With
      ``use_credit=False`` no model is fitted and it is given None instead.

    ``potential_options`` are passed on to what makes it, ``adapt_options`` to ``adapt``, and ``secret_options`` to
    ``Secret``, whose defaults here are those of a small, quick fit.
    """

    def __init__(
        self,
        potential: str | Maker = "pending",
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
        if not callable(potential) and potential not in KINDS:
            raise ValueError(f"potential must be a function or one of {', '.join(KINDS)}, got {potential!r}")
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
        self.use_credit = use_credit and needs_credit(potential)
        of_rewards = self.use_credit or not callable(potential)
        self.min_successes, self.min_gain = max(min_successes, int(of_rewards)), float(min_gain)
        self.secret_options: dict[str, Any] = SMALL_FIT | dict(secret_options or {})
        self.adapt_options: dict[str, Any] = dict(adapt_options or {})
        self.potential_options: dict[str, Any] = dict(potential_options or {})
        self.seed = seed
        self.given = secret
        self.secret = secret
        """The credit model of the present potential, or the one that was given."""
        self.present: Potential | None = None
        """The newest potential; None until there is one."""
        self.history: list[Refit] = []
        self.seen = 0
        """Episodes finished so far, those that are no longer kept included."""
        self.next = first
        """Credit is due to be learned again at so many."""
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
        return self.potential in TABLES and self.potential_options.get("state") is None

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
        """Tell what the episodes to come consist of; an error where earlier ones, or the models, do not fit."""
        spaces = observation_space, action_space
        if self._spaces is not None and self._spaces != spaces:
            raise ValueError(
                f"episodes of {self._spaces} were kept, now there are {spaces}: make another OnlineSecret for them"
            )
        seen = observation_space if self.view is None else self.view.space(observation_space)
        if self.given is not None:
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
            if not (self.history and self.history[-1].episodes >= self.next):  # told once
                self._record(None, f"{self.successes} successful episodes, {self.min_successes} are needed", 0.0)
            return None
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of poor fits and potentials: the history tells
            potential, secret, reason = self._learn()
        gain = None if secret is None or secret.report is None else secret.report.history_gain
        self._record(gain, reason, time.perf_counter() - started)
        self.fits += 1
        self.next = max(self.seen + 1, math.ceil(self.growth * self.seen))
        if not reason:
            self.present, self.secret = potential, secret
        return None if reason else potential

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
        potential = make(self.potential, secret, data, seen, self.view, self.potential_options)
        if potential is None:
            return None, secret, "no potential could be made"
        if getattr(potential, "bound", None) == 0:
            return None, secret, "nothing was credited: the potential is 0 everywhere"
        return potential, secret, ""

    def _fit(self, seen: Trajectories) -> Secret:
        start = self.secret if self.fine_tune else None
        if start is not None:
            seed = _fair_split(seen, start.training_options.validation, self.seed + _SPLITS * self.fits)
            return adapt(start, seen, **{"seed": seed, "progress": False} | self.adapt_options)
        seed = _fair_split(seen, self.secret_options["validation"], self.seed + _SPLITS * self.fits)
        return Secret(**{"seed": seed} | self.secret_options).fit(seen, progress=False)

    def _record(self, gain: float | None, reason: str, seconds: float) -> None:
        self.history.append(Refit(self.seen, self.successes, gain, not reason, reason, seconds))


def _fair_split(data: Trajectories, share: float, first_seed: int) -> int:
    """A seed whose held-out episodes hold their share of the successes: of a few, chance may hold out none or most."""

    successful = data.successful

    def unfair(seed: int) -> float:
        held_out = successful[data.split_indices(share, seed=seed)[1]]
        return abs(float(held_out.sum() - share * successful.sum()))

    return min(range(first_seed, first_seed + _SPLITS), key=unfair)
