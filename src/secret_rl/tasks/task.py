"""What a task is: data as a user would have it, and the steps that truly earned its rewards; and the registry.

A family of tasks is one module of this package with a list ``TASKS``. A task of another package is registered with
``register_task`` in a module that the package names in the entry-point group ``secret_rl.tasks``.
"""

import pkgutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from secret_rl.atomic import replacing
from secret_rl.plugins import load_plugins
from secret_rl.trajectories import Trajectories, collect

# Seeds of `make`. Seed 1,000 was looked at while the design was chosen; tables judge on later ones.
TRAINING = range(100)
HELD_OUT = range(1_001, 2_000)


@dataclass(frozen=True)
class Data:
    """Trajectories, and which steps earned their rewards."""

    trajectories: Trajectories
    truth: NDArray[np.bool_] | NDArray[np.int64]
    """(steps,) of all episodes laid end to end. Booleans mark evidence: of each judged reward, every marked step before
    it in its episode. Integers give each reward its own cause: a step of the same episode, or -1 for not judged."""

    def causes(self) -> NDArray[np.bool_]:
        """(steps,) every step that is evidence for a reward, or the cause of one."""
        if self.truth.dtype == np.bool_:
            return np.asarray(self.truth, np.bool_)
        starts = np.repeat(self.trajectories.offsets[:-1], self.trajectories.lengths)
        marks = np.zeros(len(self.truth), np.bool_)
        marks[(starts + self.truth)[self.truth >= 0]] = True
        return marks


@dataclass(frozen=True)
class Task:
    """An environment of others, who plays it, and what its rewards are due to."""

    name: str
    source: str
    """Package and id of the environment."""
    description: str
    """What decides the reward, in a sentence."""
    make: Callable[[int, int], Data]
    """``make(episodes, seed)``: the same data for the same arguments."""
    episodes: int
    """Size of a full training set."""
    quick: int = 400
    """Size of a small one, for a quick look."""
    past_matters: bool = True
    """Whether a step's own observation and action leave its reward open, and the past decides."""
    tolerance: int = 0
    """Steps by which credit may miss the truth."""
    judged: Literal["all", "positive", "negative"] = "all"
    """Which rewards the truth is about."""
    events: Literal["all", "any"] = "all"
    """Whether credit should find all marked steps, or any: where each alone is evidence enough."""

    instance: Callable[[int], gym.Env[Any, Any]] | None = None
    """``instance(number)``: an environment of this kind to learn in, the same each time, which observes what credit
    does and names its state; None: what credit is worth to an agent is not measured."""
    practice: int = 1_000
    """Episodes that agents learn for in an instance."""
    costly: bool = False
    """Whether a benchmark has it only where it is named: a fit takes a GPU, or hours."""

    def judged_rewards(self, data: Data) -> NDArray[np.bool_]:
        """(steps,) which rewards are judged: of the right kind, and due to an earlier step."""
        rewards = np.asarray(data.trajectories.rewards)
        kind: NDArray[np.bool_] = {"all": rewards != 0, "positive": rewards > 0, "negative": rewards < 0}[self.judged]
        if data.truth.dtype != np.bool_:
            return data.truth >= 0 if self.judged == "all" else kind & (data.truth >= 0)
        before = np.concatenate([[0], np.cumsum(data.truth)])[:-1]
        starts = data.trajectories.offsets[:-1]
        return kind & (before > np.repeat(before[starts], data.trajectories.lengths))


_registered: dict[str, Task] = {}
_unavailable: dict[str, str] = {}


def register_task(task: Task) -> Task:
    """Register a task under its name."""
    if _registered.get(task.name, task) is not task:
        raise ValueError(f"task {task.name!r} is registered already: choose another name")
    _registered[task.name] = task
    return task


def tasks() -> dict[str, Task]:
    """Every task by its name; those whose environments are not installed are left out."""
    _discover()
    return dict(_registered)


def task_of(name: str) -> Task:
    """The task of a name."""
    if (found := tasks().get(name)) is None:
        missing = "".join(f"; tasks of {family} need {what}" for family, what in _unavailable.items())
        raise ValueError(f"unknown task {name!r}: expected one of {', '.join(sorted(tasks()))}{missing}")
    return found


@cache
def _discover() -> None:
    """Register the tasks of this package's modules, and of plug-ins."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)], "secret_rl.tasks."):
        try:
            family = getattr(import_module(module.name), "TASKS", [])
        except ModuleNotFoundError as missing:
            _unavailable[module.name.rpartition(".")[2]] = f"{missing.name} (pip install 'secret-rl[suite]')"
            continue
        for task in family:
            register_task(task)
    load_plugins("secret_rl.tasks")


def load_data(task: Task, episodes: int, seed: int, folder: Path) -> Data:
    """The data of a task, made and kept in a folder if it is not there yet."""
    path = folder / f"{task.name}-n{episodes}-s{seed}"
    truth = path.with_name(f"{path.name}.truth.npy")
    if not path.is_dir():
        made = task.make(episodes, seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(truth) as temporary, temporary.open("wb") as file:
            np.save(file, made.truth)
        with suppress(FileExistsError):  # another process was faster, with the same data
            made.trajectories.save(path)
    return Data(Trajectories.load(path, verify=False), np.load(truth))


class Marked(gym.Wrapper[Any, Any, Any, Any]):
    """An environment whose steps say, as ``info["cause"]``, whether they are what a later reward is due to.

    Subclasses write ``marks``. The mark is for the truth alone: ``play`` takes it out of the data.
    """

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset, and keep what is seen."""
        self.seen, info = self.env.reset(seed=seed, options=options)
        self.begin()
        return self.seen, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and mark."""
        before = self.seen
        self.seen, reward, terminated, truncated, info = self.env.step(action)
        return self.seen, reward, terminated, truncated, {**info, "cause": self.marks(before, action)}

    def begin(self) -> None:
        """An episode starts."""

    def marks(self, seen: Any, action: Any) -> bool:
        """Whether the step just taken, from what was ``seen`` before it, is a cause."""
        raise NotImplementedError


def play(env: gym.Env[Any, Any], episodes: int, seed: int, policy: Any = "random", steps: int | None = None) -> Data:
    """Trajectories of a marked environment, and the marks as truth."""
    data = collect(env, episodes, policy, seed, annotations=["cause"], max_episode_steps=steps, progress=False)
    env.close()
    marks = np.asarray(data.annotations["cause"], np.bool_)
    return Data(replace(data, annotations={}), marks)


def play_unmarked(
    env: gym.Env[Any, Any],
    episodes: int,
    seed: int,
    policy: Any = "random",
    steps: int | None = None,
    success_share: float | None = None,
) -> Data:
    """Trajectories with no cause given to any reward: there is none, or the caller knows it."""
    data = collect(env, episodes, policy, seed, success_share, annotations=[], max_episode_steps=steps, progress=False)
    env.close()
    return Data(data, np.full(data.offsets[-1], -1, np.int64))


def step_numbers(data: Trajectories) -> NDArray[np.int64]:
    """(steps,) the number of each step within its episode."""
    return np.asarray(np.arange(data.steps) - np.repeat(data.offsets[:-1], data.lengths), np.int64)


def last_marked(data: Trajectories, marks: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(steps,) the last marked step before each step of the same episode, or -1."""
    within = step_numbers(data)
    latest = np.where(marks, np.arange(len(marks)), -1)
    latest = np.maximum.accumulate(np.concatenate([[-1], latest[:-1]]))  # before the step, not at it
    return np.where(latest >= np.arange(len(marks)) - within, latest - (np.arange(len(marks)) - within), -1)
