"""One small model and its mazes for all tests of the explorer."""

import pytest
from tests.quick import quick_fits

import secret_rl as srl

MAZES = {"size": 4, "triggers": 1, "prizes": 1}


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
