"""PPO in maps of keys and doors, with and without shaping: a process for each run, and a file for each that is done."""

import json
import os
import time
import warnings
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback

import secret_rl as srl
from paper.credit_runs import machine
from paper.keys_doors_potentials import are_made, close_engines, make_potentials, potential_of
from paper.keys_doors_study import Condition, Files, Study, credit_of, device, done, jobs, settings_of
from secret_rl.atomic import replace_text
from secret_rl.envs import KEYS_DOORS_ID
from secret_rl.processes import WorkerPool
from secret_rl.sb3 import paper_ppo, save_weights

# An agent that plays on maps it has never seen: in 24 episodes, 1.3 doors each, and the goal in 9. Without a bound on
# how far an update goes, what was learned is lost again.
PLAYER = Study((Condition("none"),), steps=250_000, ppo={"learning_rate": 3e-4, "ent_coef": 0.01, "target_kl": 0.01})


def learn(
    study: Study, files: Files, *, workers: int | None = None, limit: float = float("inf"),
    tell: Callable[[str], None] = print,
) -> bool:  # fmt: skip
    """Do what is not done yet, one process for each run; gives whether everything is.

    After ``limit`` seconds nothing new is started. Runs come seed by seed, so that what is there by then is of all
    conditions alike; those that need no target trajectories go on while these are collected. A run that fails is named,
    and the others go on.
    """
    started, workers, failures = time.monotonic(), workers or os.cpu_count() or 1, 0
    files.folder.mkdir(parents=True, exist_ok=True)
    missing = [job for job in jobs(study) if done(study, files, job) is None]
    if not missing or limit <= 0:
        return not missing
    needed = sorted({number for condition, number, _ in missing if condition.needs_data})
    unmade = [number for number in needed if not are_made(study, files, number)]
    made, share = set(range(study.maps)) - set(unmade), max(1, workers // (len(unmade) + 1))
    with WorkerPool(workers, _alone) as pool:
        going: dict[Future[str], int | None] = {}  # of potentials, the map
        while True:
            late = time.monotonic() - started > limit
            free = 0 if late else workers - sum(1 if of_map is None else share for of_map in going.values())
            while unmade and free > 0:
                number = unmade.pop(0)
                going[pool.submit(make_potentials, study, files, number, share)] = number
                free -= share
            ready = [job for job in missing if not job[0].needs_data or job[1] in made]
            for job in ready[: max(0, free)]:
                missing.remove(job)
                going[pool.submit(run, study, files, *job)] = None
            if not going:
                return not failures and not missing
            for future in wait(going, return_when=FIRST_COMPLETED).done:
                of_map, failure = going.pop(future), future.exception()
                failures += failure is not None
                tell(f"  {time.monotonic() - started:4.0f} s: {future.result() if failure is None else repr(failure)}")
                if of_map is not None and failure is None:
                    made.add(of_map)


def _alone() -> None:
    """A process among others."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", UserWarning)  # of potentials as they are estimated: the curves tell


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
