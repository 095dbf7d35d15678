"""Agents that learn with online SECRET, tabular and deep: one run at a time."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from stable_baselines3 import DQN

import secret_rl as srl
from paper.transfer_runs import DISCOUNT, HELD_OUT_LAYOUTS
from secret_rl.envs import TRIGGERS_ID
from secret_rl.sb3 import paper_dqn
from secret_rl.views import CenteredView

TEST_EVERY = 2_500


@dataclass(frozen=True)
class Condition:
    """What an agent is given beside the task."""

    label: str
    potential: str | None = None
    """Of ``OnlineSecret``."""
    priority: float = 0.0
    """Share of each batch of a DQN drawn among transitions that are credited or rewarded."""


@dataclass(frozen=True)
class Panel:
    """One kind of agent in held-out mazes."""

    label: str
    agent: str
    conditions: Sequence[Condition]
    length: int
    """Episodes of a tabular agent, steps of a DQN."""
    mazes: int
    seeds: int
    schedule: Mapping[str, Any] = field(default_factory=dict)
    """Of ``OnlineSecret``."""
    window: int = 20
    """Episodes, or tests, whose mean counts as reaching a return."""
    first_layout: int = HELD_OUT_LAYOUTS

    def env(self, maze: int) -> dict[str, Any]:
        """Options of a maze; a DQN sees all of it, the credit model always the 3x3 cells around the agent."""
        seen = 3 if self.agent == "tabular" else None
        return {"size": 8, "triggers": 1, "prizes": 1, "window": seen, "layout_seed": self.first_layout + maze}


def learn(panel: Panel, place: tuple[int, int, int]) -> dict[str, Any]:
    """One agent: its returns, the episodes it had played at each of them, and the history of its credit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of potentials as they are estimated: the curves tell
        return _learned(panel, place)


def _learned(panel: Panel, place: tuple[int, int, int]) -> dict[str, Any]:
    condition, (_, maze, seed) = panel.conditions[place[0]], place
    online = None
    if condition.potential is not None:
        view = None if panel.agent == "tabular" else CenteredView(3)
        online = srl.experimental.OnlineSecret(
            condition.potential, view=view, seed=100 * seed, secret_options={"device": "cpu"}, **panel.schedule
        )
    play = _tabular if panel.agent == "tabular" else _dqn
    returns, episodes = play(panel, condition, maze, seed, online)
    history = [] if online is None else online.history
    accepted = [refit.episodes for refit in history if refit.accepted]
    return {
        "returns": returns.tolist(),
        "episodes": episodes.tolist(),
        "refits": sum(refit.seconds > 0 for refit in history),
        "accepted": len(accepted),
        "first_accepted": accepted[0] if accepted else None,
        "reasons": [refit.reason for refit in history if not refit.accepted],
    }


def _tabular(
    panel: Panel, _: Condition, maze: int, seed: int, online: srl.experimental.OnlineSecret | None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    env, agent = gym.make(TRIGGERS_ID, **panel.env(maze)), srl.QLearning(discount=DISCOUNT, seed=seed)
    if online is None:
        curve = agent.learn(env, panel.length, progress=False).curve
    else:
        curve = srl.experimental.learn_online(env, panel.length, agent=agent, online=online, progress=False).curve
    return curve.returns, np.arange(1, panel.length + 1)


def _dqn(
    panel: Panel, condition: Condition, maze: int, seed: int, online: srl.experimental.OnlineSecret | None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    options = paper_dqn(panel.length, n_envs=8, gamma=0.9)
    if condition.priority or online is not None:
        how = {"priority": condition.priority}
        options |= {"replay_buffer_class": srl.sb3.ShapedReplayBuffer, "replay_buffer_kwargs": how}
    curve = srl.sb3.train(
        DQN, TRIGGERS_ID, panel.length, env_options=panel.env(maze), seed=seed, evaluate_every=TEST_EVERY,
        evaluation_episodes=4, callback=None if online is None else srl.sb3.OnlineSecretCallback(online), device="cpu",
        progress=False, **options,
    ).curve  # fmt: skip
    # With one prize, the only reward of an episode comes with its last step.
    returns = np.where(curve.returns == 0, 0.0, curve.returns * DISCOUNT ** (curve.lengths - 1)).mean(1)
    return returns, np.searchsorted(curve.training_steps, curve.steps, side="right")
