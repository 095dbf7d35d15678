"""PPO in maps of keys and doors, with and without shaping: one process for each run, and a file for each that is done."""

import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback

import secret_rl as srl
from paper.credit_runs import machine
from secret_rl.agents.sb3 import load_weights, paper_ppo
from secret_rl.envs import KEYS_DOORS_ID
from secret_rl.envs.keys_doors import Wanderer
from secret_rl.files import replace_text
from secret_rl.shaping import OnlineCredit, TablePotential

HELD_OUT_MAPS = 1_000_000  # first looked at when everything else was settled
DEVELOPMENT_MAPS = 100
TOLERANCE = 5  # steps by which a prediction may miss its reward (appendix A)
# The largest pictures that still train at a thousand steps a second; the paper's goal, 50, swamps PPO's value loss.
WORLD: dict[str, Any] = {"preset": "2x2-easy", "core": 2, "size": (40, 30), "goal_reward": 5.0}


@dataclass(frozen=True)
class Condition:
    """What an agent is given beside the task."""

    label: str
    potential: str | None = None
    """A kind of ``estimate_potential``, "learned" (pending, from pictures) or "OnlineCredit"; None: no shaping."""
    scale: float | str = 1.0
    """Of the shaping."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of ``OnlineCredit``."""

    @property
    def needs_credit(self) -> bool:
        """Whether a credit model has a part in it."""
        return self.potential not in (None, "value")

    @property
    def needs_data(self) -> bool:
        """Whether its potential is made from target trajectories."""
        return self.potential not in (None, "OnlineCredit")


@dataclass(frozen=True)
class Study:
    """Maps, conditions, and everything that a run depends on."""

    conditions: Sequence[Condition]
    maps: int = 5
    seeds: int = 3
    steps: int = 200_000
    """Of a run at most."""
    first_map: int = HELD_OUT_MAPS
    world: Mapping[str, Any] = field(default_factory=lambda: dict(WORLD))
    """Options of the environment."""
    ppo: Mapping[str, Any] = field(default_factory=dict)
    """What replaces options of ``paper_ppo``."""
    target_trajectories: int = 1_000
    discount: float = 0.99
    """Of potentials that are estimated; with 0.95 nothing is left of a reward a room away."""
    learning: Mapping[str, Any] = field(default_factory=dict)
    """Of ``learn_potential``."""
    policy: str | None = None
    """Weights of a PPO agent that plays the target trajectories; None: ``Wanderer``."""
    stop_rate: float = 0.95
    """A run is over once this share of the last ``stop_episodes`` episodes has reached the goal."""
    stop_episodes: int = 200

    def env(self, number: int) -> dict[str, Any]:
        """Options of a map."""
        return {**self.world, "layout_seed": self.first_map + number}


@dataclass(frozen=True)
class Files:
    """Where a study reads and writes."""

    folder: Path
    credit: Sequence[Path] = ()
    """Credit models; map ``m`` has model ``m``, modulo their number."""

    def potential(self, condition: Condition, number: int) -> Path:
        """Of a condition, on a map."""
        suffix = "safetensors" if condition.potential == "learned" else "json"
        return self.folder / f"potential-{number}-{_slug(condition.potential)}.{suffix}"

    def target(self, number: int) -> Path:
        """What is known of the target trajectories of a map."""
        return self.folder / f"target-{number}.json"

    def run(self, condition: Condition, number: int, seed: int) -> Path:
        """Of a run."""
        return self.folder / f"run-{number}-{seed}-{_slug(condition.label)}.json"

    def secret(self, number: int) -> srl.Secret:
        """The credit model of a map."""
        return srl.Secret.load(self._secret_path(number), device=_device())

    def credit_digest(self, number: int) -> str:
        """Tells a credit model from others."""
        return hashlib.sha256(self._secret_path(number).read_bytes()).hexdigest()[:16]

    def _secret_path(self, number: int) -> Path:
        if not self.credit:
            raise ValueError("no credit model was named, and some conditions need one: give its path in credit=")
        return Path(self.credit[number % len(self.credit)])


Job = tuple[Condition, int, int]
"""Condition, map, seed."""


def learn(
    study: Study, files: Files, *, workers: int | None = None, limit: float = float("inf"),
    tell: Callable[[str], None] = print,
) -> bool:  # fmt: skip
    """Do what is not done yet, one process for each run; gives whether everything is.

    After ``limit`` seconds nothing new is started. Runs come seed by seed, so that what is there by then is of all
    conditions alike; those that need no target trajectories go on while these are collected.
    """
    started, workers = time.monotonic(), workers or os.cpu_count() or 1
    files.folder.mkdir(parents=True, exist_ok=True)
    missing = [job for job in _jobs(study) if done(study, files, job) is None]
    needed = sorted({number for condition, number, _ in missing if condition.needs_data})
    unmade = [number for number in needed if not _made(study, files, number)]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_alone) as pool:
        share = max(1, workers // max(1, len(unmade)))
        going: dict[Future[str], int | None] = {pool.submit(make_potentials, study, files, n, share): n for n in unmade}
        made = set(range(study.maps)) - set(unmade)
        while missing or going:
            late = time.monotonic() - started > limit
            ready = [job for job in missing if not job[0].needs_data or job[1] in made]
            for job in ready[: 0 if late else max(0, workers - len(going))]:
                missing.remove(job)
                going[pool.submit(run, study, files, *job)] = None
            if not going:
                break
            for future in wait(going, return_when=FIRST_COMPLETED).done:
                number = going.pop(future)
                tell(f"  {time.monotonic() - started:4.0f} s: {future.result()}")
                if number is not None:
                    made.add(number)
    return not missing


def _made(study: Study, files: Files, number: int) -> bool:
    """Whether the potentials of a map are there, made with this credit model."""
    found = target_of(study, files, number)
    credited = any(condition.needs_data and condition.needs_credit for condition in study.conditions)
    return found is not None and found["credit"] == _credit(files, number, needed=credited)


def _jobs(study: Study) -> list[Job]:
    return [
        (condition, number, seed)
        for seed in range(study.seeds)
        for condition in study.conditions
        for number in range(study.maps)
    ]


def _alone() -> None:
    """A process among others."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", UserWarning)  # of potentials as they are estimated: the curves tell


def make_potentials(study: Study, files: Files, number: int, workers: int = 1) -> str:
    """Play target trajectories on a map, and write every potential that is made from them; they are not kept."""
    data = target_trajectories(study, number, workers)
    wanted = {condition.potential: condition for condition in study.conditions if condition.needs_data}
    about: dict[str, Any] = {
        "steps": data.steps, "goals": float(_ends_in_goal(data).mean()),
        "rewarded": float(np.mean(data.successful)),
    }  # fmt: skip
    credit = None
    if any(condition.needs_credit for condition in wanted.values()):
        credit = files.secret(number).attribute(data, rewards="positive", tolerance=TOLERANCE)
        about["coverage"] = credit.coverage
    for kind, condition in wanted.items():
        if kind == "learned":
            potential: Any = srl.learn_potential(
                data, credit, discount=study.discount, progress=False, **study.learning
            )
        else:
            assert kind is not None
            given = credit if condition.needs_credit else None
            potential = srl.estimate_potential(data, given, kind, rewards="positive", discount=study.discount)
        potential.save(files.potential(condition, number))
    used = _credit(files, number, needed=credit is not None)
    content = {"settings": target_settings(study, number), "credit": used, **about}
    replace_text(files.target(number), json.dumps(content) + "\n")
    return f"map {number}: {len(data)} target trajectories, {about['goals']:.0%} to the goal"


def target_trajectories(study: Study, number: int, workers: int = 1) -> srl.Trajectories:
    """Play on a map."""
    policy: Any = Wanderer if study.policy is None else player(study, Path(study.policy))
    env = study.env(number)
    return play(env, study.target_trajectories, env["layout_seed"], policy, workers)


def play(
    env: Mapping[str, Any], episodes: int, seed: int, policy: Any = Wanderer, workers: int = 1
) -> srl.Trajectories:
    """Trajectories of a policy; of ``Wanderer``, the class."""
    if policy is not Wanderer:
        return srl.collect(KEYS_DOORS_ID, episodes, policy, seed, env_options=env, workers=workers, progress=False)
    made = gym.make(KEYS_DOORS_ID, **env)
    data = srl.collect(made, episodes, Wanderer(made), seed, progress=False)
    made.close()
    return data


def _ends_in_goal(data: srl.Trajectories) -> Any:
    reached = np.asarray(data.annotations["goal_reached"])
    return reached[np.asarray(data.offsets[1:]) - 1]


def player(study: Study, weights: Path) -> Any:
    """The agent of a file of weights, as a policy."""
    from stable_baselines3 import PPO

    options = paper_ppo(n_envs=1, **{k: v for k, v in study.ppo.items() if k == "policy_kwargs"})
    envs = srl.sb3_envs(KEYS_DOORS_ID, 1, env_options={**study.world})
    model = PPO(options["policy"], envs, policy_kwargs=options["policy_kwargs"], device="cpu")
    load_weights(model, weights)
    envs.close()
    return model


def run(study: Study, files: Files, condition: Condition, number: int, seed: int) -> str:
    """One agent on one map; writes its file, and tells in a line how it went."""
    from stable_baselines3 import PPO

    potential = _potential(files, condition, number)
    goals = Goals(study.stop_rate, study.stop_episodes)
    began = time.perf_counter()
    trained = srl.train(
        PPO, KEYS_DOORS_ID, study.steps, env_options=study.env(number), seed=seed, evaluate_every=0,
        shaping=None if potential is None else srl.shape_with(potential, scale=condition.scale),
        callback=goals, device=_device(), progress=False, **paper_ppo(**study.ppo),
    )  # fmt: skip
    seconds, played = time.perf_counter() - began, trained.model.num_timesteps
    env = trained.model.get_env()
    assert env is not None
    env.close()
    content = {
        "settings": settings_of(study, (condition, number, seed)),
        "credit": _credit(files, number, needed=condition.needs_credit),
        "steps": goals.steps, "goals": goals.reached, "lengths": trained.curve.training_lengths.tolist(),
        "returns": trained.curve.training_returns.tolist(), "played": played, "solved": goals.over,
        "seconds": round(seconds, 1), "machine": machine(torch.device(_device())),
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


def _potential(files: Files, condition: Condition, number: int) -> Any:
    if condition.potential is None:
        return None
    if condition.potential == "OnlineCredit":
        return OnlineCredit(files.secret(number), **condition.options)
    path = files.potential(condition, number)
    return srl.LearnedPotential.load(path) if condition.potential == "learned" else TablePotential.load(path)


def done(study: Study, files: Files, job: Job) -> dict[str, Any] | None:
    """What a run with these very settings and this credit model left behind; None if there was none."""
    found = left_by(study, files, job)
    return found if found and found["credit"] == _credit(files, job[1], needed=job[0].needs_credit) else None


def left_by(study: Study, files: Files, job: Job) -> dict[str, Any] | None:
    """The same, whichever the credit model: those who only analyse need not have it."""
    return _content(files.run(*job), settings_of(study, job))


def target_of(study: Study, files: Files, number: int) -> dict[str, Any] | None:
    """What is known of the target trajectories of a map, if its potentials are made."""
    return _content(files.target(number), target_settings(study, number))


def _content(path: Path, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content if content["settings"] == settings else None


def _credit(files: Files, number: int, *, needed: bool) -> str | None:
    return files.credit_digest(number) if needed else None


def settings_of(study: Study, job: Job) -> dict[str, Any]:
    """What a run depends on beside the credit model, as JSON gives it back."""
    condition, number, seed = job
    own = {
        "condition": asdict(condition), "seed": seed, "steps": study.steps, "env": study.env(number),
        "ppo": _plain(paper_ppo(**study.ppo)), "stop": [study.stop_rate, study.stop_episodes],
        "target": target_settings(study, number) if condition.needs_data else None,
    }  # fmt: skip
    return json.loads(json.dumps(own))  # type: ignore[no-any-return]


def target_settings(study: Study, number: int) -> dict[str, Any]:
    """What the potentials of a map depend on beside the credit model, as JSON gives it back."""
    own = {
        "env": study.env(number), "trajectories": study.target_trajectories, "discount": study.discount,
        "learning": dict(study.learning), "policy": study.policy, "tolerance": TOLERANCE,
        "kinds": sorted({str(c.potential) for c in study.conditions if c.needs_data}),
    }  # fmt: skip
    return json.loads(json.dumps(own))  # type: ignore[no-any-return]


def _plain(options: Any) -> Any:
    """Options as JSON holds them; classes by name."""
    if isinstance(options, Mapping):
        return {name: _plain(value) for name, value in options.items()}
    return getattr(options, "__name__", options)


def _slug(label: str | None) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in str(label).lower())


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"
