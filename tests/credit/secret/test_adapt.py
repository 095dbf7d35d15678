"""A fitted model trained further on a target in which things have come to mean something else; the model stays."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from secret_rl.credit import NotFittedError, NotLearnedWarning, Secret, adapt
from secret_rl.credit.secret.readout import source_queries
from secret_rl.trajectories import Trajectories

STEPS = 400
pytestmark = pytest.mark.slow
FILLER, LEVER, DOOR = range(3)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr("secret_rl.credit.secret.memoryless._BATCH", 256)


def levers(count, seed, inverted, kinds=3):
    """Episodes of 8 steps, two thirds with a lever: pulled or not, it decides what the door at the end pays."""
    rng = np.random.default_rng(seed)
    episodes = []
    for number in range(count):
        seen, actions, rewards = np.full(8, FILLER), rng.integers(0, 2, 8), np.zeros(8)
        at = int(rng.integers(6))
        if number % kinds:
            seen[at] = LEVER
            rewards[-1] = 1.0 if (actions[at] == 1) != inverted else -1.0
        seen[-1] = DOOR
        episodes.append(
            {"observations": seen, "actions": actions, "rewards": rewards, "annotations": {"lever": seen == LEVER}}
        )
    return Trajectories.from_episodes(episodes, observation_space=spaces.Discrete(3), action_space=spaces.Discrete(2))


def everything(secret):
    """All that a model is, as it can be compared."""
    tensors = {name: value.clone() for name, value in secret.model.state_dict().items()}
    tensors |= {f"memoryless.{name}": value.clone() for name, value in secret.memoryless.state_dict().items()}
    tensors |= {f"queries.{name}": value.clone() for name, value in secret.queries._asdict().items()}
    return tensors, secret.report.to_json(), secret.training_options, secret.model_options, secret.seed, secret.specs


def assert_same(one, other):
    assert one[0].keys() == other[0].keys()
    assert all(torch.equal(one[0][name], other[0][name]) for name in one[0])
    assert one[1:] == other[1:]


@pytest.fixture(scope="module")
def source():
    """A predictor that knows what actions do, and not when they are inverted; not to be changed."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("secret_rl.credit.secret.memoryless._BATCH", 512)
        secret = Secret(units=16, steps=400, device="cpu").fit(levers(400, 0, inverted=False))
        before = everything(secret)
        copy = adapt(secret, levers(300, 9, inverted=True), steps=STEPS, batch_size=64)
    torch.set_num_threads(threads)
    return secret, copy, before


@pytest.fixture
def model(source):
    return source[0]


@pytest.fixture
def adapted(source):
    return source[1]


def test_the_copy_predicts_what_the_model_does_not(model, adapted):
    target = levers(300, 8, inverted=True)
    assert model.evaluate(levers(300, 7, inverted=False)).accuracy.min() > 0.85
    assert model.evaluate(target).accuracy[[0, 2]].max() < 0.1, "it takes one action for the other"
    assert adapted.evaluate(target).accuracy.min() > 0.85
    assert (model.report.verdict, adapted.report.verdict) == ("credit", "credit")


def test_credit_of_the_copy_is_of_the_target(model, adapted):
    target = levers(300, 10, inverted=True)
    of_model, of_copy = (secret.attribute(target, rewards="positive") for secret in (model, adapted))
    assert of_model.coverage < 0.1 < 0.9 < of_copy.coverage
    truth = np.asarray(target.annotations["lever"])
    at_lever = [truth[target.offsets[e] + of_copy.row(r).argmax()] for r, e in enumerate(of_copy.episode)]
    assert np.mean(at_lever) > 0.95
    used = levers(300, 9, inverted=True)
    queries = source_queries(adapted.model, adapted.reward_classes, used, adapted.device, adapted.seed)
    assert torch.equal(adapted.queries.biases, queries.biases)
    counts = np.bincount(np.sign(used.rewards).astype(int) + 1)
    assert adapted.report.class_counts == tuple(counts.tolist())
    of_steps = adapted.step_credit(target.observations, target.actions)
    assert of_steps[truth].mean() > 10 * of_steps[~truth].mean()


def test_the_model_is_left_as_it_is_to_the_bit(model, adapted, source):
    assert_same(everything(model), source[2])
    mine = {value.data_ptr() for value in model.model.state_dict().values()}
    assert not mine & {value.data_ptr() for value in adapted.model.state_dict().values()}, "no weights are shared"
    assert not model.model.training and not adapted.model.training


def test_a_copy_that_predicts_no_better_says_so(model):
    with pytest.warns(NotLearnedWarning):
        copy = adapt(model, levers(300, 11, inverted=True), steps=1)
    assert copy.report.verdict == "not learned"


def test_classes_of_rewards_are_those_of_the_model(model):
    """Also where the target holds other rewards, or fewer kinds of them."""
    target = levers(300, 12, inverted=False).with_rewards(lambda rewards: np.where(rewards > 0, 0.8, 0.0))
    copy = adapt(model, target, steps=100)
    assert copy.reward_classes == model.reward_classes
    assert copy.report.class_counts[0] == 0 < copy.report.class_counts[2]
    assert copy.evaluate(target).accuracy[2] > 0.9


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.usefixtures("quick")
def test_another_seed_gives_another_copy_and_the_options_are_those_asked_for(model):
    target = levers(150, 11, inverted=True)
    one, other = (adapt(model, target, steps=18, learning_rate=0.01, batch_size=50, seed=seed) for seed in (5, 6))
    assert not torch.equal(one.model.head.weight, other.model.head.weight)
    options = one.training_options
    assert (one.seed, options.steps, options.learning_rate, options.batch_size) == (5, 18, 0.01, 50)
    assert (options.warmup, options.evaluate_every) == (1, 3), "six validations"
    assert len(one.report.curve) <= 6
    plain = adapt(model, target, steps=1)
    assert plain.seed == model.seed
    assert plain.training_options.learning_rate == model.training_options.learning_rate
    assert plain.training_options.validation == model.training_options.validation
    assert plain.model_options == model.model_options


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.usefixtures("quick")
def test_numbers_are_read_as_the_model_learned_to():
    """The weights belong to the mean and scale of the source: with those of the target they would mean nothing."""
    rng = np.random.default_rng(0)

    def around(offset):
        episodes = [
            {"observations": rng.normal(offset, 2, (5, 2)), "actions": np.zeros(5, int), "rewards": [0, 0, 1, 0, -1]}
            for _ in range(40)
        ]
        space = spaces.Box(-99, 99, (2,), np.float64)
        return Trajectories.from_episodes(episodes, observation_space=space, action_space=spaces.Discrete(2))

    secret = Secret(units=16, steps=6, batch_size=32, device="cpu").fit(around(3.0))
    for model in (secret, adapt(secret, around(40.0), steps=6)):
        assert model.model.encoder.observation_encoder[0].mean.tolist() == pytest.approx([3.0, 3.0], abs=0.5)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ({"count": 9}, {}, "9 trajectories are too few to fit and validate on: give at least 10"),
        ({"count": 0}, {}, "no trajectories were given|at least one"),
        ({"count": 20, "kinds": (0,)}, {}, "no reward in 20 trajectories"),
        ({"count": 20, "doors": {1: 4, -1: 4, 0: 4}}, {}, "fitted on observations of .*'n': 4.* there are .*'n': 5"),
        ({"count": 20}, {"steps": 0}, "steps must be at least 1, got 0"),
        ({"count": 20}, {"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"count": 20}, {"learning_rate": -1}, "learning_rate must be positive, got -1"),
    ],
)
def test_what_cannot_be_adapted_is_refused(learned, cues, data, options, message):
    count = data.pop("count")
    with pytest.raises(ValueError, match=message):
        adapt(learned, cues(max(count, 1), **data)[:count], **options)


def test_adapting_needs_a_fit(cues):
    with pytest.raises(NotFittedError, match="not fitted yet: call fit, or Secret.load"):
        adapt(Secret(device="cpu"), cues(20))
