"""Tabular Q-learning with credit that is learned along the way."""

from collections.abc import Hashable
from dataclasses import asdict
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from secret_rl.agents import LearningCurve, QLearning
from secret_rl.agents.q_learning import PlainRun, StateOf, check_env
from secret_rl.checks import check_integer
from secret_rl.experimental.online import OnlineSecret, Refit
from secret_rl.progress import progress_bar
from secret_rl.shaping import ChangingPotential, NoPotential, Potential, PotentialShaping
from secret_rl.shaping.core import PotentialLike
from secret_rl.trajectories.building import EpisodeBuilder

_RECENT = 100  # episodes whose mean return the progress bar shows


class OnlineLearning(NamedTuple):
    """What an agent learned, and what was learned of credit meanwhile."""

    curve: LearningCurve
    history: tuple[Refit, ...]
    potential: Potential
    """The one at the end."""
    values: dict[Hashable, NDArray[np.float64]]
    """State -> (actions,) what the agent expects, less the potential of the state."""


def learn_online(
    env: gym.Env[Any, Any],
    episodes: int,
    *,
    agent: QLearning | None = None,
    online: OnlineSecret | None = None,
    potential: PotentialLike | None = None,
    scale: float = 1.0,
    progress: bool | None = None,
    state: StateOf | None = None,
) -> OnlineLearning:
    """Q-learning from scratch, shaped with credit that is learned again and again from the agent's own episodes.

    >>> import gymnasium as gym, secret_rl as srl
    >>> env = gym.make("secret_rl/Triggers-v0", size=4, triggers=1, layout_seed=3)
    >>> learned = srl.experimental.learn_online(env, 60, online=srl.experimental.OnlineSecret("value", first=20))
    >>> [refit.episodes for refit in learned.history if refit.accepted]
    [20, 30, 45]

    The potential changes between episodes, and what the agent has learned carries over. Within an episode Phi is one
    function: dynamic potential-based shaping, which changes no optimal policy however often the potential changes.

    Args:
        env: Its actions must be ``Discrete``.
        episodes: How many to play.
        agent: With its options and seed; ``QLearning()`` by default.
        online: When and how credit is learned; ``OnlineSecret()`` by default. It goes on from the episodes it holds.
        potential: To begin with; by default none, or the newest one of ``online``.
        scale: What potentials are multiplied with.
        progress: Show a progress bar; by default if the terminal is interactive.
        state: What identifies a state, as for ``QLearning.learn``.
    """
    agent, online = agent or QLearning(), online or OnlineSecret()
    episodes = check_integer("episodes", episodes, 1)
    check_env(env, agent.discount)
    online.watch(env.observation_space, env.action_space)
    changing = ChangingPotential(potential or online.present or NoPotential())
    shaped = PotentialShaping(_Collecting(env, online), changing, agent.discount, scale=scale)
    run = PlainRun(shaped, agent, state)
    returns, lengths = np.empty(episodes), np.empty(episodes, np.int64)
    before = len(online.history)
    with progress_bar(progress, "episodes") as tick:
        for episode in range(episodes):
            run.play(returns[episode : episode + 1], lengths[episode : episode + 1])
            new = online.update()
            if new is not None:
                changing.swap(new)
            recent = returns[max(0, episode + 1 - _RECENT) : episode + 1]
            tick(f"return {recent.mean():.2f}, {changing.swaps} potentials", episode + 1, episodes)
    curve = LearningCurve(returns=returns, lengths=lengths, **asdict(agent))
    return OnlineLearning(curve, tuple(online.history[before:]), changing.present, run.values)


class _Collecting(gym.Wrapper[Any, Any, Any, Any]):
    """Gives every episode that ends to online SECRET, with unshaped rewards."""

    def __init__(self, env: gym.Env[Any, Any], online: OnlineSecret) -> None:
        super().__init__(env)
        self._online = online
        self._episode: EpisodeBuilder | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._episode = EpisodeBuilder(observation, info)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        assert self._episode is not None
        unshaped = info.get("env_reward", float(reward))
        self._episode.step(action, observation, unshaped, terminated, truncated, info)
        if self._episode.over:
            self._online.add(self._episode.finish(self.observation_space, self.action_space))
        return observation, reward, terminated, truncated, info
