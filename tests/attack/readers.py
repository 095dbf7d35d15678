"""Everything in the library that reads files: what is read, and what is then done with it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import gymnasium as gym
import numpy as np
import stable_baselines3 as sb3
import torch
from tests.attack.jobs import DQN, EPISODES, FIT, MAZE, TRIGGERS, Inputs, options_of, small_blocks, small_fits, words_of

import secret_rl as srl
from secret_rl.cli import main
from secret_rl.credit.secret import checkpoint
from secret_rl.evaluation import LearningCurves
from secret_rl.report.page import write_report
from secret_rl.report.runs import load_runs
from secret_rl.sb3 import DeepCurve, load_weights, save_weights, train
from secret_rl.testing.shaping import OneEnvironment

_STEPS = 96
_ONLINE = {"first": 10, "keep": 20, "potential": "value", "seed": 1}


class Interrupted(Exception):
    """Ends a job in the middle."""


@dataclass(frozen=True)
class Reader:
    """A reader of the files in a folder."""

    name: str
    make: Callable[[Path], Any]
    """Writes the files."""
    read: Callable[[Path], Any]
    """Gives what they hold."""
    use: Callable[[Any], Any]
    """Does with it what users do."""
    changes: bool = False
    """Whether reading changes the files, since it goes on with a job."""
    optional: bool = False
    """Whether some of the files need not be there."""
    settings: Callable[[], Any] = nullcontext
    share: float = 1.0
    """Of all cases, in proportion to others."""
    growth: float = 1.1
    """Bytes of memory that a byte of the files may take, beside what any file may."""


def readers(inputs: Inputs) -> list[Reader]:
    """All of them."""
    data, model = inputs.data, inputs.model
    known: dict[str, Any] = {}  # per process: what readers need besides the files

    def loaded() -> srl.Trajectories:
        return known.setdefault("data", srl.Trajectories.load(data))

    def secret() -> srl.Secret:
        if "secret" not in known:
            known["secret"] = srl.Secret.load(model, device="cpu")
        return known["secret"]

    def save_store(folder: Path) -> None:
        loaded().save(folder / "store")

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

    def make_deep_curve(folder: Path) -> None:
        rng, per_episode = np.random.default_rng(0), np.arange(5)
        curve = DeepCurve(
            np.arange(4) * 10, rng.random((4, 2)), rng.random((4, 2)), np.full((4, 2), 3), per_episode,
            rng.random(5), rng.random(5), per_episode + 1, 0, 0.99,
        )  # fmt: skip
        curve.save(folder / "curve.safetensors")

    def use_curve(found: Any) -> None:
        assert np.isfinite(found.area()), "the area under the curve is not finite"

    def use_potential(found: Any) -> None:
        states = loaded().states
        for row in range(5):
            phi = OneEnvironment(found)
            value = phi.start(loaded().observations[row], {"state": int(states[row])})
            assert np.isfinite(value), f"Phi is {value}"
            value = phi.step(loaded().actions[row], loaded().observations[row + 1], 0.0, {"state": int(states[row])})
            assert np.isfinite(value), f"Phi is {value}"

    def agent() -> Any:
        if "agent" not in known:
            known["agent"] = sb3.DQN("MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": [8]}, device="cpu", seed=0)
        return known["agent"]

    def read_weights(folder: Path) -> Any:
        load_weights(agent(), folder / "weights.safetensors")
        return agent().policy.state_dict()

    def collect(folder: Path, policy: Any = "random", **options: Any) -> srl.Trajectories:
        options = {"env_options": MAZE, "progress": False, **options}
        return srl.collect(TRIGGERS, EPISODES, policy, seed=3, out=folder / "store", **options)

    def make_collection(folder: Path) -> None:
        """Interrupted before it is finished."""

        def stop(what: str, done: int, total: int | None) -> None:
            if done >= EPISODES // 2:
                raise Interrupted

        _interrupted(lambda: collect(folder, progress=stop))

    def fit(folder: Path, steps_until: int | None = None) -> Any:
        save, calls = checkpoint.Checkpoint.save, []

        def stop(self: Any, *given: Any, **tensors: Any) -> None:
            save(self, *given, **tensors)
            calls.append(1)
            if len(calls) == steps_until:
                raise Interrupted

        with patch.object(checkpoint.Checkpoint, "save", stop):
            secret = srl.Secret(seed=0, device="cpu", **FIT)
            return secret.fit(loaded(), checkpoint=folder / "checkpoint", progress=False)

    def deep(folder: Path, callback: Any = None) -> Any:
        return train(
            sb3.DQN, TRIGGERS, _STEPS, folder=folder / "training", checkpoint_every=32, progress=False,
            callback=callback, **DQN,
        )  # fmt: skip

    def make_training(folder: Path) -> None:
        def stop(local: Any, _: Any) -> bool:
            if local["self"].num_timesteps > 70:
                raise Interrupted
            return True

        _interrupted(lambda: deep(folder, stop))

    def trained(folder: Path) -> Any:
        done = deep(folder)
        return done.model.policy.state_dict(), done.curve

    def make_online(folder: Path) -> None:
        made = srl.experimental.OnlineSecret(**_ONLINE)
        env = gym.make(TRIGGERS, **MAZE)
        made.watch(env.observation_space, env.action_space)
        for episode in loaded()[:15]:
            made.add(vars(episode))
        made.secret = secret()
        made.update()
        made.save(folder / "online", 40)

    def read_online(folder: Path) -> Any:
        made = srl.experimental.OnlineSecret(**_ONLINE)
        made.load(folder / "online", 40)
        return made

    def use_online(found: Any) -> None:
        assert found.due in (True, False)
        if found.seen:
            use_store(found.trajectories)
        if found.present is not None:
            use_potential(found.present)

    def make_fit_run(folder: Path) -> None:
        words = ["fit", str(data), *options_of(FIT), "--device", "cpu", "--quiet"]
        assert main([*words, "--out", str(folder / "model.safetensors")]) == 0
        (folder / "model.safetensors").unlink()

    def make_learn_run(folder: Path) -> None:
        words = ["learn", TRIGGERS, "--episodes", "6", "--seeds", "2", "--potential", str(inputs.potential), "--quiet"]
        assert main([*words, *words_of(MAZE), "--out", str(folder / "run")]) == 0
        for path in (folder / "run").iterdir():
            if path.suffix in (".png", ".svg", ".csv"):
                path.unlink()

    def make_comparison(folder: Path) -> None:
        make_learn_run(folder)
        (folder / "run" / "run.json").unlink()

    def use_runs(found: Any) -> None:
        folder = Path(found[0].name)
        write_report([folder], folder.parent.parent / "page.html")

    load = srl.Trajectories.load
    return [
        Reader("store", save_store, lambda f: load(f / "store"), use_store, share=3),
        Reader("store, verified", save_store, lambda f: load(f / "store", verify=True), use_store, share=2),
        Reader("unfinished collection", make_collection, collect, use_store, True, settings=small_blocks),
        Reader("credit model", lambda f: secret().save(f / "model.safetensors"),
               lambda f: srl.Secret.load(f / "model.safetensors", device="cpu"), use_model, share=2),
        Reader("unfinished fit", lambda f: _interrupted(lambda: fit(f, steps_until=3)), fit, use_model, True,
               settings=small_fits, share=0.3),
        Reader("attributions", lambda f: secret().attribute(loaded(), progress=False).save(f / "credit.safetensors"),
               lambda f: srl.Attributions.load(f / "credit.safetensors"), use_attributions, share=2),
        Reader("learning curves", make_curves, lambda f: LearningCurves.load(f / "curves.safetensors"),
               lambda found: found[next(iter(found))].mean(), share=2),
        Reader("deep curve", make_deep_curve, lambda f: DeepCurve.load(f / "curve.safetensors"), use_curve, share=2),
        Reader("table potential", lambda f: srl.estimate_potential(loaded(), kind="value").save(f / "potential.json"),
               lambda f: srl.TablePotential.load(f / "potential.json"), use_potential, share=2,
               growth=50),  # any number of states of any kind, as Python holds them
        Reader("learned potential", save_learned, lambda f: srl.LearnedPotential.load(f / "potential"), use_potential,
               share=2),
        Reader("online credit", lambda f: srl.OnlineCredit(secret()).save(f / "credit.json"),
               lambda f: srl.OnlineCredit.load(f / "credit.json", secret()), use_potential, share=2),
        Reader("policy weights", lambda f: save_weights(agent(), f / "weights.safetensors"), read_weights,
               lambda _: agent().predict(np.zeros(4, np.float32), deterministic=True), share=2),
        Reader("unfinished training", make_training, trained, lambda found: found[1].area(), True, share=0.3),
        Reader("online SECRET", make_online, read_online, use_online),
        Reader("record of fit", make_fit_run, lambda f: load_runs([f / "model.run"]), use_runs, settings=small_fits,
               share=0.5),
        Reader("record of learn", make_learn_run, lambda f: load_runs([f / "run"]), use_runs, optional=True,
               share=0.5),
        Reader("comparison", make_comparison, lambda f: load_runs([f / "run"]), use_runs, optional=True, share=0.5),
    ]  # fmt: skip


def _interrupted(work: Callable[[], Any]) -> None:
    try:
        work()
    except Interrupted:
        return
    raise RuntimeError("the job was to be interrupted, and ended")


_CACHES = {"_checkpoint", "_known", "_watching", "_asked_in_vain", "_unpaid", "_largest", "seconds"}


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Everything that an object holds: arrays, and the text of other values, by where they are."""
    parts: Any = None
    if isinstance(value, torch.Tensor):
        yield path, value.detach().cpu().numpy()
    elif isinstance(value, np.ndarray | None | bool | int | float | str | bytes | np.generic | gym.Space):
        yield path, value if isinstance(value, np.ndarray) else str(value)
    elif isinstance(value, torch.nn.Module):
        parts = value.state_dict()
    elif isinstance(value, srl.Trajectories):
        parts = [*value.columns(), value.offsets, value.meta, value.observation_space]
    elif isinstance(value, Mapping | list | tuple):
        parts = value
    elif callable(value) or not hasattr(value, "__dict__"):
        yield path, type(value).__name__
    else:
        parts = {name: part for name, part in vars(value).items() if name not in _CACHES}
    if parts is not None and path.count("/") < 20:
        for key, part in parts.items() if isinstance(parts, Mapping) else enumerate(parts):
            yield from _leaves(part, f"{path}/{key}")


def digest(value: Any) -> Any:
    """What an object holds, as values that compare."""
    return sorted(
        (path, (leaf.dtype.str, leaf.shape, leaf.tobytes()) if isinstance(leaf, np.ndarray) else leaf)
        for path, leaf in _leaves(value)
    )


def not_finite(value: Any) -> bool:
    """Whether an object holds arrays or tensors of numbers that are not finite."""
    arrays = (leaf for _, leaf in _leaves(value) if isinstance(leaf, np.ndarray) and leaf.dtype.kind == "f")
    return not all(np.isfinite(array).all() for array in arrays)
