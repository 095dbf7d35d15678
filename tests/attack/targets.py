"""What is attacked: everything in the library that writes, at a size of a few milliseconds, and what reads it again."""

import hashlib
import json
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterable
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import stable_baselines3 as sb3
from tests.quick import quick_fits

import secret_rl as srl
from secret_rl.atomic import find_folder
from secret_rl.cli import main
from secret_rl.credit.secret import fit as fitting
from secret_rl.evaluation import LearningCurves
from secret_rl.report.runs import load_runs
from secret_rl.sb3 import load_weights, save_weights, train
from secret_rl.trajectories import rollouts, shards, store
from secret_rl.trajectories.stored import is_large as stored_is_large

TRIGGERS = "secret_rl/Triggers-v0"
MAZE = {"size": 4, "triggers": 1, "prizes": 1, "max_steps": 12, "layout_seed": 4}
FIT = {"steps": 12, "units": 8, "evaluate_every": 4, "validation": 0.2, "batch_size": 8, "weights": "paper"}
DQN = {
    "policy_kwargs": {"net_arch": [8]}, "device": "cpu", "learning_starts": 20, "buffer_size": 120, "train_freq": 4,
    "batch_size": 8, "n_envs": 2, "evaluate_every": 48, "evaluation_episodes": 2, "checkpoint_every": 32,
    "env_options": {**MAZE, "size": 5, "window": None}, "progress": False,
}  # fmt: skip
_OF_THE_DAY = {"date", "seconds", "crc32", "start_time", "library"}
Copy = Callable[[Path, Path], Any]


@dataclass(frozen=True)
class Target:
    """A job that writes to ``path`` in a folder, and a reader of what is there."""

    name: str
    path: str
    run: Callable[[Path], Any]  # writes to the path
    copy: Copy | None = None  # reads what is at the path, and writes what it has read elsewhere
    before: Path | None = None  # already there, not to be lost before the new one is there
    settings: Callable[[], Any] = nullcontext  # a context in which it runs
    keeps: bool = False  # it refuses to write over its own result
    resumes: bool = False  # interrupted, it goes on where it was
    command: bool = False  # its failures are one line
    grows: bool = False  # it fills a folder file by file, whose reader wants all of them
    slow: bool = False  # it starts processes, which takes seconds

    def start(self, folder: Path) -> None:
        """An empty folder, but for what is there before."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if self.before is not None:
            (shutil.copytree if self.before.is_dir() else shutil.copyfile)(self.before, folder / self.path)

    def execute(self, folder: Path) -> int:
        """Run it here; its exit code."""
        with self.settings():
            result = self.run(folder / self.path)
        return int(result) if self.command else 0

    def digest(self, folder: Path) -> str | None:
        """What a reader finds at the path; None where nothing is."""
        path = find_folder(folder / self.path)
        if self.copy is None:
            return None if not path.exists() else "there" if path.is_dir() else digest_of(path)
        with tempfile.TemporaryDirectory() as out:
            try:
                self.copy(folder / self.path, Path(out) / "copy")
            except FileNotFoundError:
                return None
            return str(content_of(Path(out)))


def content_of(folder: Path) -> dict[str, str]:
    """Every file and folder below a folder, hidden ones included, with a digest."""
    found = sorted(folder.rglob("*"))
    return {str(path.relative_to(folder)): "folder" if path.is_dir() else digest_of(path) for path in found}


def differences(found: dict[str, str], expected: dict[str, str]) -> list[str]:
    """What one content has that another has not, in words."""
    missing, left = sorted(expected.keys() - found.keys()), sorted(found.keys() - expected.keys())
    other = sorted(name for name in found.keys() & expected.keys() if found[name] != expected[name])
    words = (("missing", missing), ("left behind", left), ("other content in", other))
    return [f"{what} {', '.join(names[:4])}" for what, names in words if names]


def digest_of(path: Path) -> str:
    """A digest of one file, without dates and times of day; of a broken one, of its bytes."""
    raw = path.read_bytes()
    with suppress(ValueError, struct.error):
        if raw[8:9] == b"{":  # safetensors
            (size,) = struct.unpack("<Q", raw[:8])
            header = json.loads(raw[8 : 8 + size])
            about = {name: _lasting(json.loads(text)) for name, text in header.pop("__metadata__", {}).items()}
            raw = json.dumps([header, about], sort_keys=True).encode() + raw[8 + size :]
        elif raw[:1] == b"{":
            raw = json.dumps(_lasting(json.loads(raw)), sort_keys=True).encode()
    return hashlib.sha256(raw).hexdigest()[:16]


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lasting(part) for key, part in value.items() if key not in _OF_THE_DAY}
    return [_lasting(part) for part in value] if isinstance(value, list) else value


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
    with patch.object(rollouts, "_BLOCK_BYTES", 4_000), patch.object(store, "_SECONDS_BETWEEN_COMMITS", 0.0):
        yield


@contextmanager
def small_shards():
    """The same, in shards of some blocks each; most columns are compressed."""
    large = patch.object(store, "is_large", lambda shape, dtype, least=1: stored_is_large(shape, dtype, least))
    with small_blocks(), large, patch.object(shards, "_SHARD_BYTES", 16_000):
        yield


def loading(kind: Any, **options: Any) -> Copy:
    """Reads with ``load``, writes with ``save``."""
    return lambda path, out: kind.load(path, **options).save(out)


def words_of(options: dict[str, Any]) -> Iterable[str]:
    """Command-line options."""
    return (word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value)))


def targets(inputs: Path) -> list[Target]:
    """All of them; what they read is in a folder, and made if it is not there."""
    data, other, model = inputs / "data", inputs / "other", inputs / "model.safetensors"
    if not inputs.exists():
        for path, seed in ((data, 1), (other, 2)):
            srl.collect(TRIGGERS, 40, seed=seed, env_options=MAZE, success_share=0.5).save(path)
        with small_fits():
            srl.Secret(seed=0, device="cpu", **FIT).fit(srl.Trajectories.load(data)).save(model)
    loaded, secret = srl.Trajectories.load(data), srl.Secret.load(model, device="cpu")
    attributions, rng = secret.attribute(loaded, progress=False), np.random.default_rng(0)
    curves = LearningCurves({name: rng.random((2, 3, 8)) for name in ("none", "pending")}, optimal=1.0)
    agent = sb3.DQN("MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": [8]}, device="cpu", seed=0)
    store_of, model_of = loading(srl.Trajectories), loading(srl.Secret, device="cpu")

    def collect(path: Path, env: str = TRIGGERS, **options: Any) -> None:
        srl.collect(env, 40, seed=3, out=path, env_options=MAZE if env == TRIGGERS else None, progress=False, **options)

    def fit(path: Path) -> None:
        made = srl.Secret(seed=0, device="cpu", **FIT)
        made.fit(srl.Trajectories.load(data), checkpoint=path.with_name("checkpoint"), progress=False).save(path)

    def deep(path: Path, steps: int = 96, **options: Any) -> None:
        train(sb3.DQN, TRIGGERS, steps, folder=path, **{**DQN, **options})

    def learned(path: Path) -> None:
        srl.learn_potential(loaded, kind="value", units=4, steps=5, progress=False).save(path)

    def copy_weights(path: Path, out: Path) -> None:
        load_weights(agent, path)
        save_weights(agent, out)

    def copy_run(path: Path, out: Path) -> None:
        [run] = load_runs([path])
        out.write_text(json.dumps(run.settings, default=str))
        if run.curves is not None:
            run.curves.save(out.with_suffix(".safetensors"))

    def command(words: Iterable[str], path: str, copy: Copy | None = None, **about: Any) -> Target:
        words = [*map(str, words), "--quiet"]
        work = lambda out: main([*words, "--out", str(out)])  # noqa: E731
        return Target(" ".join(words[:1]), path, work, copy, command=True, **about)

    blocks = {"settings": small_blocks, "resumes": True}
    maze = ["--option", *(f"{name}={value}" for name, value in MAZE.items())]
    numbers = {"episodes": 10, "seeds": 2}
    return [
        Target("collect", "store", collect, store_of, keeps=True, **blocks),
        Target("collect again", "store", partial(collect, overwrite=True), store_of, before=other, **blocks),
        Target("collect env", "store", partial(collect, env="CartPole-v1"), store_of, keeps=True, **blocks),
        Target("collect workers", "store", partial(collect, env="CartPole-v1", workers=2), store_of, keeps=True,
               slow=True, **blocks),
        Target("collect shards", "store", partial(collect, shard="one", compress=True), store_of, settings=small_shards,
               resumes=True, grows=True),
        Target("save", "store", loaded.save, store_of, keeps=True),
        Target("save again", "store", partial(loaded.save, overwrite=True), store_of, before=other),
        Target("Secret.fit", "model.safetensors", fit, model_of, settings=small_fits, resumes=True),
        Target("attributions", "credit.safetensors", attributions.save, loading(srl.Attributions)),
        Target("learning curves", "curves.safetensors", curves.save, loading(LearningCurves)),
        Target("table potential", "potential.json", srl.estimate_potential(loaded, kind="value").save,
               loading(srl.TablePotential)),
        Target("learned potential", "potential.safetensors", learned, loading(srl.LearnedPotential)),
        Target("policy weights", "weights.safetensors", partial(save_weights, agent), copy_weights),
        Target("train", "training", deep, resumes=True),
        command(["fit", data, *words_of(FIT), "--device", "cpu"], "model.safetensors", model_of, before=model,
                settings=small_fits, resumes=True),
        command(["learn", TRIGGERS, *words_of(numbers), *maze], "run", copy_run, resumes=True, grows=True),
        command(["explore", model, data, "--trajectories", "2", "--no-replay", "--device", "cpu"], "page.html"),
        command(["attribute", model, data, "--device", "cpu"], "credit.csv"),
        command(["potential", data, "--model", model, "--device", "cpu"], "potential.json",
                loading(srl.TablePotential)),
    ]  # fmt: skip
