"""The jobs that are attacked: everything in the library that writes, at a size of a few milliseconds."""

import io
import shutil
from collections.abc import Callable
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import stable_baselines3 as sb3
from tests.attack.children import Ended, run
from tests.attack.content import ABSENT, content_of, differences, digest_of, store_digest
from tests.quick import quick_fits

import secret_rl as srl
from secret_rl.cli import main
from secret_rl.credit.secret import fit as fitting
from secret_rl.sb3 import train
from secret_rl.trajectories import rollouts, store

TRIGGERS = "secret_rl/Triggers-v0"
MAZE = {"size": 4, "triggers": 1, "prizes": 1, "max_steps": 12, "layout_seed": 4}
FIT = {
    "steps": 12, "units": 8, "evaluate_every": 4, "validation": 0.2, "batch_size": 8, "weights": "paper",
}  # fmt: skip
DQN = {
    "policy_kwargs": {"net_arch": [8]}, "device": "cpu", "learning_starts": 20, "buffer_size": 120, "train_freq": 4,
    "batch_size": 8, "n_envs": 2, "evaluate_every": 48, "evaluation_episodes": 2, "checkpoint_every": 32,
    "env_options": {**MAZE, "size": 5, "window": None},
}  # fmt: skip
_BLOCK = 4_000  # bytes, instead of megabytes: a few episodes
EPISODES = 40
CPU = ("--device", "cpu")


class Inputs:
    """What jobs read, made once."""

    def __init__(self, folder: Path) -> None:
        self.data, self.other_data, self._once = folder / "data", folder / "other", folder / "once"
        self.model, self.credit = folder / "model.safetensors", folder / "credit.safetensors"
        self.potential = folder / "potential.json"

    def make(self) -> None:
        """Make them, and run every job once: its kernels and modules are then loaded when children are forked."""
        for path, seed in ((self.data, 1), (self.other_data, 2)):
            srl.collect(TRIGGERS, EPISODES, seed=seed, env_options=MAZE, success_share=0.5).save(path)
        data = srl.Trajectories.load(self.data)
        with small_fits():
            secret = srl.Secret(seed=0, device="cpu", **FIT).fit(data)
        secret.save(self.model)
        secret.attribute(data).save(self.credit)
        srl.estimate_potential(data, kind="value").save(self.potential)
        for job in jobs(self):
            if not job.slow:
                job.start(self._once)
                with redirect_stdout(io.StringIO()):
                    code = job.execute(self._once)
                if code:
                    raise RuntimeError(f"{job.name} fails without any attack, with exit code {code}")
        shutil.rmtree(self._once)


@dataclass(frozen=True)
class Job:
    """Something that writes into a folder."""

    name: str
    run: Callable[[Path], Any]
    stores: tuple[str, ...] = ()  # trajectories that it leaves, by their path in the folder
    files: tuple[str, ...] = ()  # that are whole whenever they are there
    before: dict[str, Path] = field(default_factory=dict)  # already there, not to be lost before the new one is there
    settings: Callable[[], Any] = nullcontext  # a context in which it runs
    keeps: bool = False  # it refuses to write over its own result
    command: bool = False  # it is a command, whose failures are one line
    slow: bool = False  # it starts processes, which takes seconds

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

    def code(self, folder: Path) -> int:
        """Run it here, where its settings hold already; its exit code."""
        result = self.run(folder)
        return result if self.command else 0

    def execute(self, folder: Path) -> int:
        """Run it here."""
        with self.settings():
            return self.code(folder)


class Trial:
    """A job that is disturbed again and again, and what it leaves when it is not."""

    def __init__(self, job: Job, folder: Path, notes: Path, work: Callable[[Path], Any] | None = None) -> None:
        """``work`` runs the job the first time, undisturbed."""
        self.job, self.folder, self.notes = job, folder, notes
        job.start(folder)
        self._old = job.finals(folder)
        first = self.run(work)
        self.seconds = first.seconds
        self.expected, self._new = content_of(folder), job.finals(folder)
        self.problems = [f"undisturbed, it ends with {first}"] if first.code else []
        self.problems += [f"undisturbed, it leaves no {name}" for name, what in self._new.items() if what == ABSENT]

    def run(self, work: Callable[[Path], Any] | None = None) -> Ended:
        """Run the job in the folder as it is, in a child."""
        return run(partial(work or self.job.execute, self.folder), self.notes)

    def finals(self) -> tuple[dict[str, str], list[str]]:
        """What is under the final names after a disturbance, and what is wrong with that."""
        try:
            finals = self.job.finals(self.folder)
        except Exception as broken:
            return {}, [f"what is there cannot be read: {type(broken).__name__}: {broken}"]
        wrong = {name: what for name, what in finals.items() if what not in (self._old[name], self._new[name])}
        words = {ABSENT: "gone"}
        return finals, [
            f"{name} is {words.get(what, 'neither the old nor the new one')}" for name, what in wrong.items()
        ]

    def again(self, when: str, finals: dict[str, str]) -> list[str]:
        """What is wrong with the same job again; it may refuse to write over ``finals`` if they are the new ones."""
        ended = self.run()
        refused = self.job.keeps and finals == self._new and ended.error.get("type") == "FileExistsError"
        if ended.code and not refused:
            return [f"{when} ends with {ended}"]
        return [f"{when}: {what}" for what in differences(content_of(self.folder), self.expected)]


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


def collect(folder: Path, env: Any = TRIGGERS, episodes: int = EPISODES, seed: int = 3, **options: Any) -> Any:
    """Trajectories on disk."""
    options = {"env_options": MAZE if env == TRIGGERS else None, "progress": False, **options}
    return srl.collect(env, episodes, seed=seed, out=folder / "store", **options)


def save(folder: Path, source: Path, **options: Any) -> None:
    """Trajectories on disk, copied."""
    srl.Trajectories.load(source).save(folder / "store", **options)


def fit(folder: Path, source: Path, **options: Any) -> srl.Secret:
    """A credit model, with a checkpoint on the way."""
    secret = srl.Secret(**{"seed": 0, "device": "cpu", **FIT, **options})
    return secret.fit(srl.Trajectories.load(source), checkpoint=folder / "checkpoint", progress=False)


def deep(folder: Path, steps: int = 96, **options: Any) -> Any:
    """A deep agent, with checkpoints on the way."""
    return train(sb3.DQN, TRIGGERS, steps, folder=folder / "training", progress=False, **{**DQN, **options})


def command(words: list[str], out: str, name: str = "", **about: Any) -> Job:
    """A job that is a command of the library."""
    work = lambda folder: main([*words, "--quiet", "--out", str(folder / out)])  # noqa: E731
    return Job(name or words[0], work, command=True, **{"files": (out,), **about})


def learn(inputs: Inputs, episodes: int = 10) -> Job:
    """The command ``learn``, with and without a potential."""
    numbers = options_of({"episodes": episodes, "seeds": 2, "potential": inputs.potential})
    names = ("curves.safetensors", "curves.csv", "curves.png", "curves.svg")
    return command(["learn", TRIGGERS, *numbers, *words_of(MAZE)], "run", files=tuple(f"run/{name}" for name in names))


def fit_words(inputs: Inputs, **options: Any) -> list[str]:
    """The command ``fit``."""
    return ["fit", str(inputs.data), *options_of({**FIT, **options}), *CPU]


def jobs(inputs: Inputs) -> list[Job]:
    """All of them."""
    data, model = str(inputs.data), str(inputs.model)

    def save_fit(folder: Path) -> None:
        fit(folder, inputs.data).save(folder / "model.safetensors")

    cart = partial(collect, env="CartPole-v1")
    store = {"stores": ("store",), "settings": small_blocks}
    old = {"store": inputs.other_data}
    new_model = {"files": ("model.safetensors",), "settings": small_fits}
    explore = ["explore", model, data, "--trajectories", "2", "--no-replay", *CPU]
    attribute, potential = ["attribute", model, data, *CPU], ["potential", data, "--model", model, *CPU]
    return [
        Job("collect", collect, **store, keeps=True),
        Job("collect again", partial(collect, overwrite=True), **store, before=old),
        Job("collect env", cart, **store, keeps=True),
        Job("collect workers", partial(cart, workers=2), **store, keeps=True, slow=True),
        Job("save", partial(save, source=inputs.data), stores=("store",), keeps=True),
        Job("save again", partial(save, source=inputs.data, overwrite=True), stores=("store",), before=old),
        Job("Secret.fit", save_fit, **new_model),
        command(fit_words(inputs), "model.safetensors", **new_model, before={"model.safetensors": inputs.model}),
        Job("train", deep),
        learn(inputs),
        command(explore, "page.html"),
        command(attribute, "credit.safetensors", before={"credit.safetensors": inputs.credit}),
        command(attribute, "credit.csv", "attribute as table"),
        command(potential, "potential.json", before={"potential.json": inputs.potential}),
    ]
