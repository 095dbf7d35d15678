"""Credit that is learned again and again from the episodes an agent plays, and the potentials made of it."""

import math
import time
import warnings
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from secret_rl.agents import LearningCurve, QLearning
from secret_rl.agents.q_learning import PlainRun, StateOf
from secret_rl.checks import check_integer
from secret_rl.credit import Secret
from secret_rl.progress import progress_bar
from secret_rl.shaping import (
    KINDS,
    ChangingPotential,
    NoPotential,
    OnlineCredit,
    Potential,
    PotentialShaping,
    estimate_potential,
    learn_potential,
)
from secret_rl.trajectories import Trajectories
from secret_rl.trajectories.building import EpisodeBuilder
from secret_rl.views import View, apply_view

_OTHERS = ("learned", "learned value", "online")  # kinds besides tables

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
    """Keeps an agent's newest episodes and makes a potential of them, for ``learn_online`` or ``OnlineSecretCallback``.

    Once ``first`` episodes are finished, and whenever their number has grown by the factor ``growth`` since, a credit
    model is fitted to the newest ones and a potential made of it. Where the verdict on the model is not "credit", or
    its history gain is below ``min_gain``, the potential stays as it is; ``history`` says why.

    Args:
        potential: A kind of ``estimate_potential``; ``"learned"`` or ``"learned value"`` for a network over
            observations (``learn_potential``); ``"online"`` for ``OnlineCredit``; or a function of the trajectories, as
            the agent saw them, that gives a potential or None.
        view: What the credit model may see: where the observation gives the reward away, attention finds nothing.
        first: Episodes before the first fit.
        growth: Factor between fits.
        keep: How many of the newest episodes are kept.
        min_successes: Fits wait until so many of them hold a positive reward.
        min_gain: Least history gain of a model that is used.
        secret_options: Options of ``Secret``; the defaults here are those of a small, quick fit.
        potential_options: Options of what makes the potential.
        seed: Of the fits.
    """

    def __init__(
        self,
        potential: str | Callable[[Trajectories], Potential | None] = "pending",
        *,
        view: View | None = None,
        first: int = 50,
        growth: float = 1.5,
        keep: int = 2_000,
        min_successes: int = 5,
        min_gain: float = 0.02,
        secret_options: Mapping[str, Any] | None = None,
        potential_options: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> None:
        tables = [name for name, kind in KINDS.items() if not kind.tables_only]
        own = callable(potential)
        if not own and potential not in (*tables, *_OTHERS):
            kinds = ", ".join([*tables, *_OTHERS])
            raise ValueError(f"potential must be a function or one of {kinds}, got {potential!r}")
        if not (growth >= 1 and math.isfinite(growth)):
            raise ValueError(f"growth must be a number of at least 1, got {growth!r}")
        self.potential, self.view, self.growth, self.min_gain, self.seed = potential, view, growth, min_gain, seed
        self.first, self.keep = check_integer("first", first, 10), check_integer("keep", keep, 10)
        needs_credit = KINDS[potential].needs_credit if potential in KINDS else potential != "learned value"
        self._needs_credit = needs_credit and not own
        self.min_successes = max(check_integer("min_successes", min_successes, 0), int(not own))
        self.secret_options: dict[str, Any] = SMALL_FIT | dict(secret_options or {})
        self.potential_options: dict[str, Any] = dict(potential_options or {})
        self.needs_states = potential in tables and self.potential_options.get("state") is None
        """Whether the potential is a table over ``info["state"]``."""
        self.secret: Secret | None = None
        """The credit model of the present potential."""
        self.present: Potential | None = None
        """The newest potential; None until there is one."""
        self.history: list[Refit] = []
        self.seen = 0
        """Episodes finished so far, those that are no longer kept included."""
        self._next, self._fits = first, 0  # episodes at which credit is learned again, and how often it was
        self._episodes: deque[Mapping[str, Any]] = deque(maxlen=keep)
        self._successful: deque[bool] = deque(maxlen=keep)
        self._spaces: tuple[gym.Space[Any], gym.Space[Any]] | None = None

    @property
    def trajectories(self) -> Trajectories:
        """The newest episodes, as the agent saw them."""
        observations, actions = self._spaces or (None, None)
        return Trajectories.from_episodes(
            list(self._episodes), observation_space=observations, action_space=actions, meta={"source": "online"}
        )

    def watch(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:
        """Set the spaces of the episodes to come; an error where earlier ones do not fit."""
        spaces = observation_space, action_space
        if self._spaces not in (None, spaces):
            raise ValueError(f"{self._spaces} were kept, not {spaces}: make another OnlineSecret for them")
        self._spaces = spaces

    def add(self, episode: Mapping[str, Any]) -> None:
        """Keep a finished episode, with unshaped rewards; as ``Trajectories.from_episodes`` takes it."""
        self._episodes.append(episode)
        self._successful.append(bool((np.asarray(episode["rewards"]) > 0).any()))
        self.seen += 1

    def update(self) -> Potential | None:
        """Learn credit again if that is due; the new potential, or None where the present one stays."""
        if self.seen < self._next:
            return None
        successes = sum(self._successful)
        if successes < self.min_successes:
            if not (self.history and self.history[-1].episodes >= self._next):  # recorded once
                reason = f"{successes} successful episodes, {self.min_successes} are needed"
                self.history.append(Refit(self.seen, successes, None, False, reason, 0.0))
            return None
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of poor fits and potentials: they are in the history
            potential, secret, reason = self._learn()
        gain = None if secret is None or secret.report is None else secret.report.history_gain
        seconds = time.perf_counter() - started
        self.history.append(Refit(self.seen, successes, gain, not reason, reason, seconds))
        self._fits += 1
        self._next = max(self.seen + 1, math.ceil(self.growth * self.seen))
        if not reason:
            self.present, self.secret = potential, secret
        return None if reason else potential

    def _learn(self) -> tuple[Potential | None, Secret | None, str]:
        """A potential and the model it is of, and why it is not to be used if so."""
        data = self.trajectories
        seen = data if self.view is None else apply_view(data, self.view)
        secret = None
        if self._needs_credit:
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
        share, successful = self.secret_options["validation"], seen.successful

        def unfair(seed: int) -> float:  # of a few successes, chance may hold out none or most
            held_out = successful[seen.split_indices(share, seed=seed)[1]]
            return abs(float(held_out.sum() - share * successful.sum()))

        first = self.seed + _SPLITS * self._fits
        seed = min(range(first, first + _SPLITS), key=unfair)
        return Secret(**{"seed": seed} | self.secret_options).fit(seen, progress=False)

    def _make(self, secret: Secret | None, data: Trajectories, seen: Trajectories) -> Potential | None:
        """A potential of ``data``, the episodes as the agent saw them; ``seen``: as the credit model does."""
        kind, options = self.potential, self.potential_options
        if callable(kind):
            return kind(data)
        if kind == "online":
            assert secret is not None
            return None if secret.queries is None else OnlineCredit(secret, observation=self.view, **options)
        credit = None if secret is None else secret.attribute(seen, rewards="positive", progress=False)
        if kind in KINDS:
            return estimate_potential(data, credit, kind, **options)
        target = "value" if kind == "learned value" else "pending"
        return learn_potential(data, credit, target, **{"progress": False, **options})


class OnlineLearning(NamedTuple):
    """What an agent learned, and what was learned of credit meanwhile."""

    curve: LearningCurve
    history: tuple[Refit, ...]
    potential: Potential
    """The one at the end."""
    values: dict[Hashable, NDArray[np.float64]]
    """State -> (actions,) what the agent expects, less the potential of the state."""

    def __repr__(self) -> str:
        return f"OnlineLearning({self.curve!r}, {len(self.history)} fits of credit, {self.potential!r})"


def learn_online(
    env: gym.Env[Any, Any],
    episodes: int,
    *,
    agent: QLearning | None = None,
    online: OnlineSecret | None = None,
    progress: bool | None = None,
    state: StateOf | None = None,
) -> OnlineLearning:
    """Q-learning from scratch, shaped with credit that is learned again and again from the agent's own episodes.

    The potential changes between episodes only, so that no policy becomes better or worse than another.

    >>> import gymnasium as gym, secret_rl as srl
    >>> env = gym.make("secret_rl/Triggers-v0", size=4, triggers=1, layout_seed=3)
    >>> learned = srl.experimental.learn_online(env, 60, online=srl.experimental.OnlineSecret("value", first=20))
    >>> [refit.episodes for refit in learned.history if refit.accepted]
    [20, 30, 45]

    Args:
        env: Its actions must be ``Discrete``.
        episodes: How many to play.
        agent: With its options and seed; ``QLearning()`` by default.
        online: When and how credit is learned; ``OnlineSecret()`` by default. It goes on from the episodes it holds.
        progress: Show a progress bar; by default if the terminal is interactive.
        state: What identifies a state, as for ``QLearning.learn``.
    """
    agent, online = agent or QLearning(), online or OnlineSecret()
    episodes = check_integer("episodes", episodes, 1)
    online.watch(env.observation_space, env.action_space)
    changing = ChangingPotential(online.present or NoPotential())
    run = PlainRun(PotentialShaping(_Collecting(env, online), changing, agent.discount), agent, state)
    returns, lengths = np.empty(episodes), np.empty(episodes, np.int64)
    before = len(online.history)
    with progress_bar(progress, "episodes", episodes) as tick:
        for episode in range(episodes):
            run.play(returns[episode : episode + 1], lengths[episode : episode + 1])
            new = online.update()
            if new is not None:
                changing.swap(new)
            tick(f"return {returns[episode]:.2f}, {changing.swaps} potentials", episode + 1, episodes)
    curve = LearningCurve(returns=returns, lengths=lengths, **asdict(agent))
    return OnlineLearning(curve, tuple(online.history[before:]), changing.present, run.values)


class _Collecting(gym.Wrapper[Any, Any, Any, Any]):
    """Gives every episode that ends to online SECRET, with unshaped rewards."""

    def __init__(self, env: gym.Env[Any, Any], online: OnlineSecret) -> None:
        super().__init__(env)
        self._online = online

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._episode = EpisodeBuilder(observation, info)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        unshaped = info.get("env_reward", float(reward))
        self._episode.step(action, observation, unshaped, terminated, truncated, info)
        if self._episode.over:
            self._online.add(self._episode.finish(self.observation_space, self.action_space))
        return observation, reward, terminated, truncated, info
