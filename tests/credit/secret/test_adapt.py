"""A fitted model trained further on a target in which cues have come to mean the opposite; the model stays."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tests.credit.conftest import episodes_of

from secret_rl.credit import NotFittedError, NotLearnedWarning, Secret, adapt
from secret_rl.credit.secret.readout import source_queries


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr("secret_rl.credit.secret.memoryless._BATCH", 256)


@pytest.fixture
def inverted(cues):
    return lambda count, seed: cues(count, seed).with_rewards(np.negative)


def test_the_copy_predicts_and_credits_what_the_model_does_not(learned, inverted, tmp_path):
    target, used = inverted(300, 8), inverted(300, 9)
    before = learned.save(tmp_path / "before").read_bytes()
    adapted = adapt(learned, used, steps=400, batch_size=64)
    assert learned.save(tmp_path / "after").read_bytes() == before, "the model is left as it was"
    assert learned.evaluate(target).accuracy[[0, 2]].max() < 0.1, "it takes one cue for the other"
    assert adapted.evaluate(target).accuracy.min() > 0.85
    assert adapted.report.verdict == "credit"
    of_model, of_copy = (secret.attribute(target, rewards="positive") for secret in (learned, adapted))
    assert of_model.coverage < 0.1 < 0.9 < of_copy.coverage
    truth = np.asarray(target.annotations["cue"])
    at_cue = [truth[target.offsets[e] + of_copy.row(r).argmax()] for r, e in enumerate(of_copy.episode)]
    assert np.mean(at_cue) > 0.95
    queries = source_queries(adapted.model, adapted.reward_classes, used, adapted.device, adapted.seed)
    assert torch.equal(adapted.queries.biases, queries.biases)
    assert adapted.report.class_counts == tuple(np.bincount(np.asarray(used.rewards).astype(int) + 1).tolist())
    of_steps = adapted.step_credit(target.observations, target.actions)
    assert of_steps[truth].mean() > 10 * of_steps[np.asarray(target.observations) == 0].mean(), "fillers earn nothing"


def test_a_copy_that_predicts_no_better_says_so(learned, inverted):
    with pytest.warns(NotLearnedWarning):
        copy = adapt(learned, inverted(300, 11), steps=1)
    assert copy.report.verdict == "not learned"


def test_classes_of_rewards_are_those_of_the_model(learned, cues):
    """Also where the target holds other rewards, or fewer kinds of them."""
    target = cues(300, 12).with_rewards(lambda rewards: np.where(rewards > 0, 0.8, 0.0))
    copy = adapt(learned, target, steps=100)
    assert copy.reward_classes == learned.reward_classes
    assert copy.report.class_counts[0] == 0 < copy.report.class_counts[2]
    assert copy.evaluate(target).accuracy[2] > 0.9


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.usefixtures("quick")
def test_another_seed_gives_another_copy_and_the_options_are_those_asked_for(learned, inverted):
    target = inverted(150, 11)
    one, other = (adapt(learned, target, steps=18, learning_rate=0.01, batch_size=50, seed=seed) for seed in (5, 6))
    assert not torch.equal(one.model.head.weight, other.model.head.weight)
    options = one.training_options
    assert (one.seed, options.steps, options.learning_rate, options.batch_size) == (5, 18, 0.01, 50)
    assert (options.warmup, options.evaluate_every) == (1, 3), "six validations"
    plain = adapt(learned, target, steps=1)
    assert (plain.seed, plain.model_options) == (learned.seed, learned.model_options)
    assert plain.training_options.learning_rate == learned.training_options.learning_rate


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.usefixtures("quick")
def test_numbers_are_read_as_the_model_learned_to():
    """The weights belong to the mean and scale of the source: with those of the target they would mean nothing."""
    rng = np.random.default_rng(0)

    def around(offset):
        seen = spaces.Box(-99, 99, (2,), np.float64)
        return episodes_of(rng.normal(offset, 2, (40, 5, 2)), [[0, 0, 1, 0, -1]] * 40, seen=seen)

    secret = Secret(units=16, steps=6, batch_size=32, device="cpu").fit(around(3.0))
    for model in (secret, adapt(secret, around(40.0), steps=6)):
        assert model.model.encoder.observation_encoder[0].mean.tolist() == pytest.approx([3.0, 3.0], abs=0.5)


@pytest.mark.parametrize(
    ("count", "data", "options", "message"),
    [
        (9, {}, {}, "9 trajectories are too few to fit and validate on: give at least 10"),
        (0, {}, {}, "no trajectories were given|at least one"),
        (20, {"kinds": (0,)}, {}, "no reward in 20 trajectories"),
        (20, {"doors": {1: 4, -1: 4, 0: 4}}, {}, "fitted on observations of .*'n': 4.* there are .*'n': 5"),
        (20, {}, {"steps": 0}, "steps must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_adapted_is_refused(learned, cues, count, data, options, message):
    with pytest.raises(ValueError, match=message):
        adapt(learned, cues(20, **data)[:count], **options)
    with pytest.raises(NotFittedError, match="not fitted yet: call fit, or Secret.load"):
        adapt(Secret(device="cpu"), cues(20))
