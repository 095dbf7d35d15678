"""Attribution of held-out trajectories: rewarded rows and distinct steps only, beside attention between all steps.

The model is untrained, with a head that predicts +1 everywhere: every positive reward counts as predicted correctly
and is attributed, so both sides have as many rows to give as there are positive rewards. What attention costs does
not depend on what was learnt.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import secret_rl as srl
from benchmarks.results_file import Row, interleaved, write
from secret_rl.credit.reward_classes import RewardClasses
from secret_rl.credit.secret.memoryless import Memoryless
from secret_rl.credit.secret.model import Dropout, RewardPredictor, over_steps
from secret_rl.credit.secret.options import ModelOptions
from secret_rl.credit.secret.readout import _STEPS_AT_A_TIME, attribute
from secret_rl.credit.secret.tokens import Tokens
from secret_rl.trajectories.spaces import to_json

SEED = 1000
ROUNDS = 5
CPU = torch.device("cpu")
CLASSES = RewardClasses.of(np.array([-1.0, 0.0, 1.0]))


@dataclass(frozen=True)
class Setting:
    """Trajectories, and how many of them full attention takes at a time."""

    episodes: int
    success_share: float | None
    env_options: dict[str, int]
    batch: int
    """The fastest of the powers of 2 up to 512 (50 steps) and 32 (900 steps)."""


SETTINGS = {
    50: Setting(5000, 0.25, {"triggers": 1, "prizes": 1}, batch=64),
    900: Setting(200, None, {"size": 12, "max_steps": 900, "triggers": 3, "prizes": 20}, batch=4),
}


def run() -> None:
    """Measure and write down."""
    torch.set_num_threads(1)
    rows = [row for steps in SETTINGS for row in measure(steps)]
    write("attribution", "Attribution of positive rewards in held-out Triggers trajectories, one core", rows)


def measure(steps: int) -> list[Row]:
    """The figures for trajectories of up to ``steps`` steps."""
    data, batch = trajectories(steps), SETTINGS[steps].batch
    model = predictor(data)
    weights = {name: work(model, data, batch) for name, work in CONTENDERS.items()}  # warms up, too
    equal = all(
        len(other) == len(weights["ours"]) and np.allclose(other, weights["ours"], rtol=0, atol=1e-5)
        for other in weights.values()
    )
    seconds = interleaved(
        {name: lambda work=work: timed(lambda: work(model, data, batch)) for name, work in CONTENDERS.items()}, ROUNDS
    )
    memory = {name: peak_memory(name, steps, batch) for name in CONTENDERS}
    equally_many = _STEPS_AT_A_TIME // steps
    memory["full attention, as many at a time as ours"] = peak_memory("full attention", steps, equally_many)
    label = f"{len(data):,} x {steps} steps"
    rewards = int((np.asarray(data.rewards) > 0).sum())
    peers = [name for name in CONTENDERS if name != "ours"]
    return [
        *(Row(f"{label}: {name}", value, "s") for name, value in seconds.items()),
        *(Row(f"{label}: ours over {name}", seconds[name] / seconds["ours"], "x") for name in peers),
        *(Row(f"{label}: peak memory, {name}", value / 1e6, "MB") for name, value in memory.items()),
        Row(f"{label}: weights of all {rewards:,} positive rewards equal to 1e-5", bool(equal), asked="yes"),
    ]


def trajectories(steps: int) -> srl.Trajectories:
    """Random play from mazes of its own seed."""
    setting = SETTINGS[steps]
    return srl.collect(
        "secret_rl/Triggers-v0",
        setting.episodes,
        seed=SEED,
        success_share=setting.success_share,
        env_options=setting.env_options,
    )


def predictor(data: srl.Trajectories) -> RewardPredictor:
    """An untrained model that predicts +1 at every step."""
    torch.manual_seed(SEED)
    model = RewardPredictor(*specs_of(data), len(CLASSES), ModelOptions())
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.copy_(torch.tensor([0.0, 0.0, 1.0]))
    return model.eval()


def specs_of(data: srl.Trajectories) -> tuple[dict[str, Any], dict[str, Any]]:
    """The spaces as JSON values."""
    return to_json(data.observation_space), to_json(data.action_space)


def ours(model: RewardPredictor, data: srl.Trajectories, _: int) -> NDArray[np.float32]:
    """Weights of all positive rewards, row after row; the search for distinct steps included."""
    present = Memoryless(*specs_of(data), len(CLASSES), ModelOptions())  # not asked: all rewards are attributed
    return attribute(model, present, CLASSES, data, CPU, rewards="positive", decided=True).weights


def full_attention(model: RewardPredictor, data: srl.Trajectories, batch: int) -> NDArray[np.float32]:
    """The same from attention between all pairs of steps of all episodes, every step encoded by itself."""
    return by_forward(model, data, np.arange(len(data)), batch)


def full_attention_of_rewarded(model: RewardPredictor, data: srl.Trajectories, batch: int) -> NDArray[np.float32]:
    """The same for only the episodes that hold a positive reward."""
    return by_forward(model, data, np.flatnonzero(data.successful), batch)


@torch.no_grad()
def by_forward(
    model: RewardPredictor, data: srl.Trajectories, episodes: NDArray[np.int64], batch: int
) -> NDArray[np.float32]:
    """Weights of positive rewards that are predicted correctly, row after row, through ``model.forward``.

    Batches hold episodes of similar length, and only the rows that are kept are normalised without the sink.
    """
    offsets = np.asarray(data.offsets)
    first = np.zeros(data.steps, np.bool_)
    first[offsets[:-1]] = True
    classes = CLASSES.index(np.asarray(data.rewards)).astype(np.int8)
    tokens = Tokens(data.observations, data.actions, first, None, offsets, classes, np.ones(data.steps, np.float32))
    ordered = episodes[np.argsort(tokens.lengths[episodes], kind="stable")]
    found: list[tuple[int, NDArray[np.float32]]] = []  # number of the step in the data, weights
    for part in np.array_split(ordered, -(-len(ordered) // batch)):
        padded = tokens.batch(part)
        encoded = model.encode(padded.rows, Dropout(None))
        prediction = model(encoded, padded.index)
        wanted = (padded.classes == 2) & (prediction.logits.argmax(-1) == 2) & (padded.weights > 0)  # (batch, time)
        wanted[:, 0] = False  # a first step has no past
        rows = over_steps(prediction.scores[wanted]).numpy()  # (rows, time)
        for row, (episode, at) in zip(rows, wanted.nonzero().tolist(), strict=True):
            found.append((int(tokens.offsets[part[episode]]) + at, row[: at + 1].copy()))
    return np.concatenate([row for _, row in sorted(found, key=lambda entry: entry[0])])


Contender = Callable[[RewardPredictor, srl.Trajectories, int], NDArray[np.float32]]
CONTENDERS: dict[str, Contender] = {
    "ours": ours,
    "full attention": full_attention,
    "full attention of rewarded episodes": full_attention_of_rewarded,
}


def timed(work: Callable[[], Any]) -> float:
    """Seconds it takes."""
    start = time.process_time()
    work()
    return time.process_time() - start


def peak_memory(name: str, steps: int, batch: int) -> int:
    """Bytes that a contender needs at its peak beyond the data and the model, in a process of its own."""
    code = "import sys; from benchmarks.attribution import further_memory; print(further_memory(*sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, name, str(steps), str(batch)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parent.parent,
        env={**os.environ, "MALLOC_TRIM_THRESHOLD_": "0"},  # what is free goes back, and is no head start
    )
    return int(done.stdout)


def further_memory(name: str, steps: str, batch: str) -> int:
    """How far resident memory rises above where it stands before the work; two episodes are worked through first.

    The kernel's high-water mark is set back to the present before (``clear_refs``): that of loading the data and the
    libraries would hide a lower one.
    """
    torch.set_num_threads(1)
    data, work = trajectories(int(steps)), CONTENDERS[name]
    model = predictor(data)
    work(model, data[np.flatnonzero(data.successful)[:2]], int(batch))
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    work(model, data, int(batch))
    return resident("VmHWM") - before


def resident(field: str) -> int:
    """An entry of this process's status, in bytes: ``VmRSS`` now, ``VmHWM`` at the peak."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0]) * 1024
