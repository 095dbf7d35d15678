"""One small model and its mazes for all tests of the explorer, and small data for others."""

import numpy as np
import pytest
from tests.quick import quick_fits

import secret_rl as srl

MAZES = {"size": 4, "triggers": 1, "prizes": 1}


def fitted(data):
    return srl.Secret(seed=0, device="cpu", validation=0.2, units=16, steps=4).fit(data, progress=False)


def numbers(rng, rows):
    return rng.normal(size=(rows, 3)).astype(np.float32)


def episodes(count, observations, steps=9, before=0.0, last=(-1.0, 1.0), annotations=None, **how):
    """Episodes that pay ``before`` at each step and ``last`` at the end, in turn."""
    rng = np.random.default_rng(0)
    return srl.Trajectories.from_episodes([
        {
            "observations": observations(rng, steps + 1),
            "actions": rng.integers(2, size=steps),
            "rewards": np.append(np.resize(before, steps - 1), last[i % len(last)]),
            "terminated": True,
            "annotations": annotations or {},
        }
        for i in range(count)
    ], **how)  # fmt: skip


@pytest.fixture(scope="module")
def quick():
    """Fits of this module take little time."""
    with pytest.MonkeyPatch.context() as patch:
        quick_fits(patch, updates=100)
        yield


@pytest.fixture(scope="module")
def task(quick):
    """A fitted model, and the trajectories it was fitted on."""
    data = srl.collect("secret_rl/Triggers-v0", 400, seed=5, success_share=0.4, env_options=MAZES)
    options = {"steps": 300, "units": 32, "batch_size": 64, "warmup": 20, "learning_rate": 3e-3, "evaluate_every": 100}
    return srl.Secret(seed=0, validation=0.2, device="cpu", **options).fit(data, progress=False), data
