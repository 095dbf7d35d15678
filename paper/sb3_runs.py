"""The paper's tasks with agents of Stable-Baselines3: a cell for each maze, condition and seed."""

import platform
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import secret_rl as srl
from paper.credit_runs import fitted
from paper.deep_runs import TEST_EVERY, Deep, Potentials, target_data
from secret_rl.envs import TRIGGERS_ID
from secret_rl.sb3 import dqn, ppo
from secret_rl.shaping import VisitCounts
from secret_rl.sweep import Cell

TEST_DISCOUNT = 0.99  # of the returns in tables, whatever the agents' own


def cells_of(panel: Deep, settings: Mapping[str, Any]) -> list[Cell]:
    """A cell for each condition, maze and seed."""
    places = np.ndindex(len(panel.conditions), panel.mazes, panel.seeds)
    return [
        Cell(
            f"{panel.label}, {panel.conditions[condition].label}, maze {maze}, seed {seed}",
            {**settings, "condition": condition, "maze": maze, "seed": seed},
            partial(learn, panel, condition, maze, seed),
        )
        for condition, maze, seed in places
    ]


def joined(panel: Deep, results: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Condition -> (mazes, seeds, tests) returns, and what they were made with."""
    by_condition = np.array(results).reshape(len(panel.conditions), panel.mazes, panel.seeds, -1)
    returns = {condition.label: found for condition, found in zip(panel.conditions, by_condition, strict=True)}
    successes = [float(target_data(panel, maze).successful.mean()) for maze in range(panel.mazes)]
    return returns, {
        "machine": f"{platform.machine()} CPU, PyTorch {torch.__version__}",
        "successful_target_trajectories": float(np.mean(successes)),
        "mazes_without_success": sum(share == 0 for share in successes),
    }


def learn(panel: Deep, condition_number: int, maze: int, seed: int) -> list[float]:
    """(tests,) mean discounted return of one agent."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of potentials as they are estimated: the curves tell
        return _learned(panel, condition_number, maze, seed).tolist()  # type: ignore[no-any-return]


def _learned(panel: Deep, condition_number: int, maze: int, seed: int) -> NDArray[np.float64]:
    import stable_baselines3

    condition = panel.conditions[condition_number]
    potential = None
    if condition.potential is not None:
        secret = fitted(panel.source, maze % panel.models, "cpu")
        potential = Potentials(panel, maze, target_data(panel, maze), secret).of(condition)
    how, options = condition.options, ppo() if panel.agent == "PPO" else dqn(panel.steps)
    if "priority" in how:
        drawn = {"priority": how["priority"]}
        options |= {"replay_buffer_class": srl.sb3.ShapedReplayBuffer, "replay_buffer_kwargs": drawn}
    shaping = []
    if potential is not None:
        shaping.append(srl.sb3.bonus_with(potential, scale=how["bonus"]))
    if "count" in how:
        shaping.append(srl.sb3.bonus_with(VisitCounts(), scale=how["count"]))
    agent = srl.sb3.ExploringDQN if how.get("explore") else getattr(stable_baselines3, panel.agent)
    trained = srl.sb3.train(
        agent, TRIGGERS_ID, panel.steps, env_options=panel.env(panel.layout(maze)), shaping=shaping or None, seed=seed,
        evaluate_every=TEST_EVERY, evaluation_episodes=4, device="cpu", progress=False, **options,
    )  # fmt: skip
    # With one prize, the only reward of an episode comes with its last step.
    returns, lengths = trained.curve.returns, trained.curve.lengths
    return np.where(returns == 0, 0.0, returns * TEST_DISCOUNT ** (lengths - 1)).mean(1)
