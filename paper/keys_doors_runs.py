"""PPO in maps of keys and doors, with and without shaping: a process for each run, and a file for each that is done."""

import json
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback

import secret_rl as srl
from paper.credit_runs import machine
from paper.keys_doors_potentials import are_made, close_engines, make_potentials, potential_of
from paper.keys_doors_study import (
    Condition,
    Files,
    Job,
    Study,
    credit_of,
    device,
    done,
    jobs,
    settings_of,
    target_settings,
)
from secret_rl.atomic import replace_text
from secret_rl.envs import KEYS_DOORS_ID
from secret_rl.sb3 import paper_ppo, save_weights
from secret_rl.sweep import Cell, Failure, Workers, run_each

# An agent that plays on maps it has never seen: in 24 episodes, 1.3 doors each, and the goal in 9. Without a bound on
# how far an update goes, what was learned is lost again.
PLAYER = Study((Condition("none"),), steps=250_000, ppo={"learning_rate": 3e-4, "ent_coef": 0.01, "target_kl": 0.01})


def learn(study: Study, files: Files, workers: Workers | None = None) -> list[Failure]:
    """Do what is not done yet, and give what failed.

    Runs come seed by seed, so that what is there after an interruption is of all conditions alike; those that need no
    target trajectories go on while these are collected.
    """
    files.folder.mkdir(parents=True, exist_ok=True)
    missing = [job for job in jobs(study) if done(study, files, job) is None]
    needed = sorted({number for condition, number, _ in missing if condition.needs_data})
    unmade = [number for number in needed if not are_made(study, files, number)]
    later = [job for job in missing if job[0].needs_data and job[1] in unmade]
    potentials = [
        Cell(f"potentials of map {n}", target_settings(study, n), partial(_do, make_potentials, study, files, n))
        for n in unmade
    ]
    failed = _run_all([*potentials, *(_cell(study, files, job) for job in missing if job not in later)], workers)
    made = [job for job in later if are_made(study, files, job[1])]
    return failed + _run_all([_cell(study, files, job) for job in made], workers)


def _cell(study: Study, files: Files, job: Job) -> Cell:
    name = f"{job[0].label}, map {job[1]}, seed {job[2]}"
    return Cell(name, settings_of(study, job), partial(_do, run, study, files, *job))


def _run_all(cells: Sequence[Cell], workers: Workers | None) -> list[Failure]:
    """Those that failed; each writes files of its own."""
    ended = run_each([cell.call for cell in cells], workers)
    return [Failure(cells[n].name, cells[n].settings, reason) for n, reason in ended if reason is not None]


def _do(work: Callable[..., str], *arguments: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of potentials as they are estimated: the curves tell
        print(f"  {work(*arguments)}", flush=True)


def run(study: Study, files: Files, condition: Condition, number: int, seed: int) -> str:
    """One agent on one map; writes its file, and tells in a line how it went."""
    from stable_baselines3 import PPO

    potential = potential_of(files, condition, number)
    goals = Goals(study.stop_rate, study.stop_episodes)
    began = time.perf_counter()
    trained = srl.sb3.train(
        PPO, KEYS_DOORS_ID, study.steps, env_options=study.agent_env(number), seed=seed, evaluate_every=0,
        shaping=None if potential is None else srl.sb3.shape_with(potential, scale=condition.scale),
        callback=goals, device=device(), progress=False, **paper_ppo(**study.ppo),
    )  # fmt: skip
    seconds, played = time.perf_counter() - began, trained.model.num_timesteps
    close_engines(trained.model)
    content = {
        "settings": settings_of(study, (condition, number, seed)),
        "credit": credit_of(files, number, needed=condition.needs_credit),
        "steps": goals.steps, "goals": goals.reached, "lengths": trained.curve.training_lengths.tolist(),
        "returns": trained.curve.training_returns.tolist(), "played": played, "solved": goals.over,
        "seconds": round(seconds, 1), "machine": machine(torch.device(device())),
    }  # fmt: skip
    replace_text(files.run(condition, number, seed), json.dumps(content) + "\n")
    rate = np.mean(goals.reached[-100:]) if goals.reached else 0.0
    return (
        f"map {number}, seed {seed}, {condition.label}: goal rate {rate:.2f} after {played:,} steps "
        f"({played / seconds:,.0f} a second)"
    )


class Goals(BaseCallback):
    """Notes which training episodes reach the goal, and ends the training once nearly all do.

    Those are the episodes to judge PPO by: they cost no steps of their own, and its actions are drawn, where the most
    likely ones keep it at a wall for good.
    """

    def __init__(self, rate: float, episodes: int) -> None:
        super().__init__()
        self.steps: list[int] = []
        """Steps of all actors together when the episode ended."""
        self.reached: list[bool] = []
        self.over = False
        self._rate, self._episodes = rate, episodes

    def _on_step(self) -> bool:
        for i in np.flatnonzero(self.locals["dones"]).tolist():
            self.steps.append(self.num_timesteps)
            self.reached.append(bool(self.locals["infos"][i]["goal_reached"]))
        last = self.reached[-self._episodes :]
        self.over = len(last) == self._episodes and sum(last) >= self._rate * self._episodes
        return not self.over


def train_player(study: Study, steps: int, path: Path, seed: int = 0) -> float:
    """Train a PPO agent on random maps and write its weights, for ``Study.policy``; gives its last goal rate."""
    from stable_baselines3 import PPO

    goals = Goals(1.0, steps)  # to the last step
    trained = srl.sb3.train(
        PPO, KEYS_DOORS_ID, steps, env_options={**study.world, **study.acting}, seed=seed, evaluate_every=0,
        callback=goals, device=device(), progress=False, **paper_ppo(**study.ppo),
    )  # fmt: skip
    save_weights(trained.model, path)
    close_engines(trained.model)
    return float(np.mean(goals.reached[-100:])) if goals.reached else 0.0
