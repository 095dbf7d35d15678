"""The jobs that are attacked: everything in the library that writes, at a size of a few milliseconds."""

import io
import shutil
from collections.abc import Callable
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import stable_baselines3 as sb3
from tests.attack.content import ABSENT, digest_of, store_digest
from tests.quick import quick_fits

import secret_rl as srl
from secret_rl.cli import main
from secret_rl.credit.secret import fit as fitting
from secret_rl.sb3 import ShapedReplayBuffer, train
from secret_rl.sb3.callbacks import OnlineSecretCallback
from secret_rl.trajectories import rollouts, store

TRIGGERS = "secret_rl/Triggers-v0"
MAZE = {"size": 4, "triggers": 1, "prizes": 1, "max_steps": 12, "layout_seed": 4}
FIT = {
    "steps": 12, "units": 8, "evaluate_every": 4, "validation": 0.2, "batch_size": 8, "weights": "paper",
}  # fmt: skip
DQN = {
    "policy_kwargs": {"net_arch": [8]}, "device": "cpu", "learning_starts": 20, "buffer_size": 120, "train_freq": 4,
    "batch_size": 8, "n_envs": 2, "evaluate_every": 48, "evaluation_episodes": 2,
    "env_options": {**MAZE, "size": 5, "window": None},
}  # fmt: skip
_BLOCK = 4_000  # bytes, instead of megabytes: a few episodes
EPISODES = 40


@dataclass(frozen=True)
class Inputs:
    """What jobs read, made once."""

    folder: Path

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def other_data(self) -> Path:
        return self.folder / "other"

    @property
    def model(self) -> Path:
        return self.folder / "model.safetensors"

    @property
    def potential(self) -> Path:
        return self.folder / "potential.json"

    def make(self) -> None:
        """Make them, and run every job once: its kernels and modules are then loaded when children are forked."""
        options = {"env_options": MAZE, "success_share": 0.5}
        srl.collect(TRIGGERS, EPISODES, seed=1, **options).save(self.data)
        srl.collect(TRIGGERS, EPISODES, seed=2, **options).save(self.other_data)
        with small_fits():
            data = srl.Trajectories.load(self.data)
            secret = srl.Secret(seed=0, device="cpu", **FIT).fit(data)
            secret.save(self.model)
        srl.estimate_potential(data, kind="value").save(self.potential)
        secret.attribute(data).save(self.folder / "old.safetensors")
        for job in jobs(self):
            if not job.slow:
                job.start(self.folder / "once")
                with redirect_stdout(io.StringIO()):
                    code = job.execute(self.folder / "once")
                if code:
                    raise RuntimeError(f"{job.name} fails without any attack, with exit code {code}")
        shutil.rmtree(self.folder / "once")


@dataclass(frozen=True)
class Job:
    """Something that writes into a folder."""

    name: str
    run: Callable[[Path], Any]
    stores: tuple[str, ...] = ()
    """Trajectories that it leaves, by their path in the folder."""
    files: tuple[str, ...] = ()
    """Files that are whole whenever they are there."""
    before: dict[str, Path] = field(default_factory=dict)
    """What is there already, by its path in the folder; nothing of it may be lost before the new one is there."""
    settings: Callable[[], Any] = ExitStack
    """A context in which it runs."""
    keeps: bool = False
    """Whether it refuses to write over its own result."""
    command: bool = False
    """Whether it is a command, whose failures are one line."""
    slow: bool = False
    """Whether it starts processes, which takes seconds."""

    def start(self, folder: Path) -> None:
        """An empty folder, but for what is there before."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, source in self.before.items():
            copy = shutil.copytree if source.is_dir() else shutil.copyfile
            copy(source, folder / name)

    def finals(self, folder: Path) -> dict[str, str]:
        """A digest of everything under its final name, as readers see it."""
        stores = {name: store_digest(folder / name) for name in self.stores}
        files = {name: digest_of(folder / name) if (folder / name).is_file() else ABSENT for name in self.files}
        return stores | files

    def execute(self, folder: Path) -> Any:
        """Run it here."""
        with self.settings():
            return self.run(folder)


@contextmanager
def small_fits():
    """Little time is spent on predictors that fits are compared with; any data is learned from."""
    with pytest.MonkeyPatch.context() as patched:
        quick_fits(patched, updates=2, batch=64)
        patched.setattr(fitting, "_NOTHING_OPEN", 0.0)
        yield


@contextmanager
def small_blocks():
    """Collections come in blocks of a few episodes, and each is committed."""
    with patch.object(rollouts, "_BLOCK_BYTES", _BLOCK), patch.object(store, "_SECONDS_BETWEEN_COMMITS", 0.0):
        yield


def options_of(values: dict[str, Any]) -> list[str]:
    """Command-line options."""
    return [word for name, value in values.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def words_of(values: dict[str, Any]) -> list[str]:
    """Options of an environment, as ``--option`` takes them."""
    return ["--option", *(f"{name}={value}" for name, value in values.items())]


def jobs(inputs: Inputs) -> list[Job]:
    """All of them."""
    data, model = str(inputs.data), str(inputs.model)
    credit = "credit.safetensors"
    learned = ("curves.safetensors", "curves.csv", "comparison.json", "curves.png", "curves.svg")

    def collect(folder: Path, env: Any = TRIGGERS, **options: Any) -> None:
        srl.collect(env, EPISODES, seed=3, out=folder / "store", progress=False, **options)

    def save(folder: Path, **options: Any) -> None:
        srl.Trajectories.load(inputs.data).save(folder / "store", **options)

    def fit(folder: Path) -> None:
        loaded = srl.Trajectories.load(inputs.data)
        secret = srl.Secret(seed=0, device="cpu", **FIT)
        secret.fit(loaded, checkpoint=folder / "checkpoint", progress=False).save(folder / "model.safetensors")

    def deep(folder: Path) -> None:
        train(sb3.DQN, TRIGGERS, 96, folder=folder / "training", checkpoint_every=32, progress=False, **DQN)

    def online(folder: Path) -> None:
        learner = srl.experimental.OnlineSecret(
            "learned value", first=10, min_successes=1, potential_options={"steps": 4, "units": 4}
        )
        callback = OnlineSecretCallback(learner, folder=folder / "credit")
        train(
            sb3.DQN, TRIGGERS, 240, folder=folder / "training", checkpoint_every=80, progress=False,
            replay_buffer_class=ShapedReplayBuffer, callback=callback, **DQN,
        )  # fmt: skip

    compiled = {"env_options": MAZE}
    store = {"stores": ("store",), "settings": small_blocks, "keeps": True}
    again = {"stores": ("store",), "settings": small_blocks, "before": {"store": inputs.other_data}}
    attribute = ["attribute", model, data, "--device", "cpu", "--quiet", "--out"]
    potential = ["potential", data, "--model", model, "--device", "cpu", "--quiet", "--out"]
    explore = ["explore", model, data, "--trajectories", "2", "--no-replay", "--device", "cpu", "--quiet", "--out"]
    learn = [
        "learn", TRIGGERS, "--episodes", "10", "--seeds", "2", "--potential", str(inputs.potential), "--quiet",
        *words_of(MAZE), "--out",
    ]  # fmt: skip
    fit_words = ["fit", data, *options_of(FIT), "--device", "cpu", "--quiet", "--out"]
    return [
        Job("collect", lambda folder: collect(folder, **compiled), **store),
        Job("collect again", lambda folder: collect(folder, overwrite=True, **compiled), **again),
        Job("collect env", lambda folder: collect(folder, "CartPole-v1"), **store),
        Job("collect workers", lambda folder: collect(folder, "CartPole-v1", workers=2), **store, slow=True),
        Job("save", save, stores=("store",), keeps=True),
        Job("save again", lambda folder: save(folder, overwrite=True), stores=("store",), before=again["before"]),
        Job("Secret.fit", fit, files=("model.safetensors",), settings=small_fits),
        Job(
            "fit", lambda folder: main([*fit_words, str(folder / "model.safetensors")]), files=("model.safetensors",),
            before={"model.safetensors": inputs.model}, settings=small_fits, command=True,
        ),
        Job("train", deep),
        Job("train with online SECRET", online),
        Job("learn", lambda folder: main([*learn, str(folder / "run")]), files=tuple(f"run/{n}" for n in learned),
            command=True),
        Job("explore", lambda folder: main([*explore, str(folder / "page.html")]), files=("page.html",), command=True),
        Job("attribute", lambda folder: main([*attribute, str(folder / credit)]), files=(credit,),
            before={credit: inputs.folder / "old.safetensors"}, command=True),
        Job("attribute as table", lambda folder: main([*attribute, str(folder / "credit.csv")]), files=("credit.csv",),
            command=True),
        Job("potential", lambda folder: main([*potential, str(folder / "potential.json")]), files=("potential.json",),
            before={"potential.json": inputs.potential}, command=True),
    ]  # fmt: skip
