"""On a GPU an update is a CUDA graph: training that stops and goes on ends with the same weights, bit for bit."""

import numpy as np
import pytest
import torch

from secret_rl.credit import Secret, TrainingOptions
from secret_rl.credit.tokens import Tokens
from secret_rl.credit.training import Trainer

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU with CUDA")


@pytest.fixture
def make_trainer(cues, make_model, signs):
    data = cues(60)

    def make(initialisation=0):
        model = make_model(data.observation_space, data.action_space, initialisation, units=64)
        options = TrainingOptions(steps=40, batch_size=16)
        tokens, draw = Tokens.of(data, signs), np.linspace(1, 3, 48)
        trainer = Trainer(model, tokens, np.arange(48), draw, options, 5, torch.device("cuda"))
        assert trainer._graph is not None, "the path that is tested"
        return trainer

    return make


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_two_undisturbed_runs_are_equal(make_trainer):
    one, other = make_trainer(), make_trainer()
    one.train(10)
    other.train(10)
    assert same(one.state(), other.state())


@pytest.mark.parametrize("stop", [1, 5, 9])
def test_training_goes_on_from_its_state_as_if_never_stopped(make_trainer, stop):
    whole, part, fresh, used = (make_trainer(n) for n in (0, 0, 1, 2))
    whole.train(10)
    part.train(stop)
    used.train(3)  # its graph is recorded already
    for resumed in (fresh, used):
        resumed.restore(part.state(), part.step)
        resumed.train(10 - stop)
        assert same(resumed.state(), whole.state())


def test_random_numbers_are_those_of_the_update(make_trainer):
    """A replay repeats neither those of the recording nor those of the replay before it."""
    trainer, episodes = make_trainer(), np.arange(16)
    trainer.model.train()
    start = trainer.state()

    def loss(step):
        trainer.restore(start, step)
        return trainer._graph(episodes).item()

    assert loss(0) == loss(0) != loss(1) == loss(1)


@pytest.mark.usefixtures("quick")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_finished_fit_that_is_taken_up_is_where_the_model_is(cues, tmp_path):
    data = cues(60)
    options = {"units": 16, "steps": 12, "evaluate_every": 4, "device": "cuda"}
    fitted, again = (Secret(**options).fit(data, checkpoint=tmp_path / "c") for _ in range(2))
    loaded = Secret.load(fitted.save(tmp_path / "model.safetensors"), device="cuda")
    credit = [secret.attribute(data, rewards="all").weights for secret in (fitted, again, loaded)]
    np.testing.assert_array_equal(credit[0], credit[1])
    np.testing.assert_array_equal(credit[0], credit[2])
