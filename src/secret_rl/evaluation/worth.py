"""What the credit of a method is worth to an agent: how much more it earns while it learns, in held-out instances."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from secret_rl.agents import QLearning
from secret_rl.credit.base import CreditMethod, NotFittedError
from secret_rl.envs.tabular import best_return, tabular_of
from secret_rl.evaluation.benchmark import NEEDS_TRUTH, Cell, fitted_method, outcome_of
from secret_rl.evaluation.statistics import Estimate, mean
from secret_rl.files import FileFormat
from secret_rl.progress import Show, progress_bar
from secret_rl.shaping import OnlineCredit, PotentialShaping, estimate_potential
from secret_rl.sweep import Workers, run_each
from secret_rl.tasks import Task, task_of
from secret_rl.trajectories import collect

BASELINES = ("none", "value")
"""No shaping; the Monte-Carlo value of target trajectories: no credit, the same for all methods."""
CONDITIONS = (*BASELINES, "zero-shot", "pending")
"""And ``OnlineCredit``, which needs no target trajectory; the pending credit of target trajectories."""
INSTANCES, SEEDS, TARGETS = 16, 5, 1_000  # of the study: instances, learners in each, target trajectories
_DISCOUNT = 0.99
_NOBODY = "none"  # in place of a method, for the baselines
_FORMAT = FileFormat("secret-rl worth of credit", remedy="delete it: the same command computes it again")


def worth(method: CreditMethod | None, task: Task, *, instances: int = INSTANCES, seeds: int = SEEDS) -> dict[str, Any]:
    """Mean return while learning, as a share of the best one: by condition, (instances, seeds).

    Tabular Q-learning with the same settings for every method; without one, the baselines. Where target trajectories
    hold no reward, agents that should use them learn without shaping; so do those of a method without step credit.
    """
    if task.instance is None:
        raise ValueError(f"task {task.name!r} has no instances to learn in: give it `instance`, or choose another")
    names = BASELINES if method is None else CONDITIONS[len(BASELINES) :]
    if method is not None and method.name in NEEDS_TRUTH:  # target trajectories come without it
        names = ("zero-shot",)
    return {
        name: [_learned(task.instance(i), name, method, task.practice, i, seeds).tolist() for i in range(instances)]
        for name in names
    }


def _learned(
    env: gym.Env[Any, Any], condition: str, method: Any, episodes: int, number: int, seeds: int
) -> NDArray[np.float64]:
    """(seeds,) of one condition in one instance."""
    arrays = tabular_of(env)
    assert arrays is not None  # instances are finite
    best = best_return(arrays[0], _DISCOUNT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that this is not credit, or earns nothing, shows in the result
        try:
            shaped = _shaped(env, condition, method, number)
            returns = [_mean_return(shaped, episodes, seed) for seed in range(seeds)]
        except NotFittedError:  # a model that predicts no reward says of no step what it earns
            returns = [_mean_return(env, episodes, seed) for seed in range(seeds)]
    return np.array(returns) / best


def _shaped(env: gym.Env[Any, Any], condition: str, method: Any, number: int) -> gym.Env[Any, Any]:
    """The instance as a condition has it; unshaped where target trajectories give nothing to estimate from."""
    if condition == "none":
        return env
    if condition == "zero-shot":
        return PotentialShaping(env, OnlineCredit(method), discount=_DISCOUNT)
    target = collect(env, TARGETS, seed=number, progress=False)
    credit = method.attribute(target, rewards="positive", progress=False) if condition == "pending" else None
    if not ((target.rewards > 0).any() if credit is None else len(credit)):
        return env
    return PotentialShaping(env, estimate_potential(target, credit, kind=condition), discount=_DISCOUNT)


def _mean_return(env: gym.Env[Any, Any], episodes: int, seed: int) -> float:
    return float(QLearning(seed=seed, discount=_DISCOUNT).learn(env, episodes).curve.returns.mean())


def path_of(folder: Path, cell: Cell) -> Path:
    """Where the worth of a cell's fit is."""
    return folder / "worth" / f"{cell.name}.json"


def worth_of(folder: Path, cell: Cell) -> dict[str, Any] | None:
    """The result of a cell; None if it was not run with these settings."""
    if not path_of(folder, cell).is_file():
        return None
    content = _FORMAT.read_json(path_of(folder, cell))
    found: dict[str, Any] = content["worth"]
    return found if content["settings"] == _settings(cell) else None


def run(
    folder: Path, cells: Sequence[Cell], workers: Workers | None = None, *, progress: Show = None
) -> dict[Cell, str]:
    """Measure what is missing, for cells whose task has instances; the cells that failed, with the reason.

    A method that could not read its task is left out.
    """
    fits = [c for c in cells if task_of(c.task).instance is not None and "verdict" in (outcome_of(folder, c) or {})]
    wanted = [*dict.fromkeys(map(_baseline, fits)), *fits]
    missing = [cell for cell in wanted if worth_of(folder, cell) is None]
    failed: dict[Cell, str] = {}
    with progress_bar(progress, "learners") as tick:
        calls = [partial(_measure, folder, cell) for cell in missing]
        for done, (number, reason) in enumerate(run_each(calls, workers), 1):
            if reason is not None:
                failed[missing[number]] = reason
            tick(missing[number].name, len(wanted) - len(missing) + done, len(wanted))
    return failed


def compared(folder: Path, cells: Sequence[Cell]) -> dict[tuple[str, str], dict[str, Estimate]]:
    """By task and method: the estimate of each condition over instances and learners, of all fits that were run."""
    fits: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for cell in [*dict.fromkeys(map(_baseline, cells)), *cells]:
        if task_of(cell.task).instance is not None and (found := worth_of(folder, cell)) is not None:
            fits.setdefault((cell.task, cell.method), []).append(found)
    return {
        place: {
            name: mean(np.concatenate([found[name] for found in group], axis=1))  # (instances, fits * seeds)
            for name in group[0]
        }
        for place, group in fits.items()
    }


def _baseline(cell: Cell) -> Cell:
    """In place of a cell, its task without credit."""
    return replace(cell, method=_NOBODY, seed=0)


def _measure(folder: Path, cell: Cell) -> None:
    method = None if cell.method == _NOBODY else fitted_method(folder, cell)
    found = worth(method, task_of(cell.task), **_size(cell))
    path_of(folder, cell).parent.mkdir(parents=True, exist_ok=True)
    _FORMAT.write_json(path_of(folder, cell), {"settings": _settings(cell), "worth": found})


def _size(cell: Cell) -> dict[str, int]:
    return {"instances": 2, "seeds": 2} if cell.quick else {"instances": INSTANCES, "seeds": SEEDS}


def _settings(cell: Cell) -> dict[str, Any]:
    return {**cell.settings(), **_size(cell), "targets": TARGETS, "practice": task_of(cell.task).practice}
