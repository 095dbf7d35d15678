"""Everything in the library that reads files: what is read, and what is then done with it."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import stable_baselines3 as sb3
from tests.attack import jobs
from tests.attack.jobs import EPISODES, Inputs, Job, collect, command, deep, fit

import secret_rl as srl
from secret_rl.credit.secret import checkpoint
from secret_rl.evaluation import LearningCurves
from secret_rl.report.page import write_report
from secret_rl.report.runs import load_runs
from secret_rl.sb3 import load_weights, save_weights
from secret_rl.testing.shaping import OneEnvironment


class Interrupted(Exception):
    """Ends a job in the middle."""


@dataclass(frozen=True)
class Reader:
    """A reader of the files in a folder."""

    name: str
    make: Callable[[Path], Any]  # writes the files
    read: Callable[[Path], Any]  # gives what they hold
    use: Callable[[Any], Any]  # does with it what users do
    changes: bool = False  # reading changes the files, since it goes on with a job
    optional: bool = False  # some of the files need not be there
    settings: Callable[[], Any] = nullcontext
    share: float = 1.0  # of all cases, in proportion to others
    growth: float = 1.1  # bytes of memory that a byte of the files may take, beside what any file may


def readers(inputs: Inputs) -> list[Reader]:
    """All of them."""

    @cache  # per process: what readers need besides the files
    def loaded() -> srl.Trajectories:
        return srl.Trajectories.load(inputs.data)

    @cache
    def secret() -> srl.Secret:
        return srl.Secret.load(inputs.model, device="cpu")

    @cache
    def agent() -> Any:
        return sb3.DQN("MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": [8]}, device="cpu", seed=0)

    def save_learned(folder: Path) -> None:
        srl.learn_potential(loaded(), kind="value", units=4, steps=5, progress=False).save(folder / "potential")

    def use_store(found: srl.Trajectories) -> None:
        assert isinstance(found.meta, Mapping), f"meta is a {type(found.meta).__name__}"
        found.summary(), found[0], found[-1:], [len(episode) for episode in found]
        if len(found) > 1:
            found[[0, 1]], found[np.arange(len(found)) > 0]
        secret().attribute(found, progress=False)

    def use_model(found: srl.Secret) -> None:
        weights = found.attribute(loaded(), progress=False).weights
        assert np.isfinite(weights).all(), "attention is not finite"
        credit = found.step_credit(loaded().observations[:5], loaded().actions[:5])
        assert np.isfinite(credit).all(), "credit is not finite"

    def use_attributions(found: srl.Attributions) -> None:
        found.step_credit(), found.columns(0.1), found.coverage
        for row in range(min(len(found), 5)):
            found.row(row).sum()

    def make_curves(folder: Path) -> None:
        rng = np.random.default_rng(0)
        returns = {"none": rng.random((2, 3, 8)), "pending": rng.random((2, 3, 8))}
        LearningCurves(returns, optimal=1.0).save(folder / "curves.safetensors")

    def use_potential(found: Any) -> None:
        states = loaded().states
        for row in range(5):
            phi = OneEnvironment(found)
            value = phi.start(loaded().observations[row], {"state": int(states[row])})
            assert np.isfinite(value), f"Phi is {value}"
            value = phi.step(loaded().actions[row], loaded().observations[row + 1], 0.0, {"state": int(states[row])})
            assert np.isfinite(value), f"Phi is {value}"

    def read_weights(folder: Path) -> Any:
        load_weights(agent(), folder / "weights.safetensors")
        return agent().policy.state_dict()

    def stop_collecting(what: str, done: int, total: int | None) -> None:
        if done >= EPISODES // 2:
            raise Interrupted

    def stop_training(local: Any, _: Any) -> bool:
        if local["self"].num_timesteps > 70:
            raise Interrupted
        return True

    def stop_fitting(folder: Path) -> None:
        write, calls = checkpoint.Checkpoint.save, []

        def stop(self: Any, *given: Any, **tensors: Any) -> None:
            write(self, *given, **tensors)
            calls.append(1)
            if len(calls) == 3:
                raise Interrupted

        with patch.object(checkpoint.Checkpoint, "save", stop):
            fit(folder, inputs.data)

    def trained(folder: Path) -> Any:
        done = deep(folder)
        return done.model.policy.state_dict(), done.curve

    def make_run(job: Job, *gone: str) -> Callable[[Path], None]:
        """A command, and then only what a report reads of it."""

        def make(folder: Path) -> None:
            assert job.run(folder) == 0
            for path in list(folder.rglob("*")):
                if path.suffix in (".png", ".svg", ".csv") or path.name in gone:
                    path.unlink()

        return make

    def use_runs(found: Any) -> None:
        folder = Path(found[0].name)
        write_report([folder], folder.parent.parent / "page.html")

    learn = jobs.learn(inputs, episodes=6)
    load, save_store = srl.Trajectories.load, partial(jobs.save, source=inputs.data)
    return [
        Reader("store", save_store, lambda f: load(f / "store"), use_store, share=3),
        Reader("store, verified", save_store, lambda f: load(f / "store", verify=True), use_store, share=2),
        Reader("unfinished collection", _interrupted(collect, progress=stop_collecting), collect, use_store, True,
               settings=jobs.small_blocks),
        Reader("credit model", lambda f: secret().save(f / "model.safetensors"),
               lambda f: srl.Secret.load(f / "model.safetensors", device="cpu"), use_model, share=2),
        Reader("unfinished fit", _interrupted(stop_fitting), lambda f: fit(f, inputs.data), use_model, True,
               settings=jobs.small_fits, share=0.3),
        Reader("attributions", lambda f: secret().attribute(loaded(), progress=False).save(f / "credit.safetensors"),
               lambda f: srl.Attributions.load(f / "credit.safetensors"), use_attributions, share=2),
        Reader("learning curves", make_curves, lambda f: LearningCurves.load(f / "curves.safetensors"),
               lambda found: found[next(iter(found))].mean(), share=2),
        Reader("table potential", lambda f: srl.estimate_potential(loaded(), kind="value").save(f / "potential.json"),
               lambda f: srl.TablePotential.load(f / "potential.json"), use_potential, share=2,
               growth=50),  # any number of states of any kind, as Python holds them
        Reader("learned potential", save_learned, lambda f: srl.LearnedPotential.load(f / "potential"), use_potential,
               share=2),
        Reader("policy weights", lambda f: save_weights(agent(), f / "weights.safetensors"), read_weights,
               lambda _: agent().predict(np.zeros(4, np.float32), deterministic=True), share=2),
        Reader("unfinished training", _interrupted(deep, callback=stop_training), trained,
               lambda found: found[1].area(), True, share=0.3),
        Reader("record of fit", make_run(command(jobs.fit_words(inputs), "model.safetensors"), "model.safetensors"),
               lambda f: load_runs([f / "model.run"]), use_runs, settings=jobs.small_fits, share=0.5),
        Reader("record of learn", make_run(learn), lambda f: load_runs([f / "run"]), use_runs, optional=True,
               share=0.5),
        Reader("comparison", make_run(learn, "run.json"), lambda f: load_runs([f / "run"]), use_runs, optional=True,
               share=0.5),
    ]  # fmt: skip


def _interrupted(work: Callable[..., Any], **options: Any) -> Callable[[Path], None]:
    """A job that is interrupted before it is finished."""

    def make(folder: Path) -> None:
        try:
            work(folder, **options)
        except Interrupted:
            return
        raise RuntimeError("the job was to be interrupted, and ended")

    return make
