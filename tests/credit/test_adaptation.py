"""A fitted model trained further on a target in which things have come to mean something else; the model stays."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces

import secret_rl as srl
from secret_rl.credit import (
    CollapseWarning,
    NoHistoryWarning,
    NotFittedError,
    RewardBalanceWarning,
    Secret,
    adapt,
    fitting,
    memoryless,
)
from secret_rl.credit.online import source_queries
from secret_rl.trajectories import Trajectories

STEPS = 200


def maze_trajectories(count, seed, inverted):
    """Random episodes of small mazes with one switch; where controls are inverted, up is down and left is right."""
    options = {"size": 4, "triggers": 1, "inverted": inverted}
    return srl.collect("secret_rl/Triggers-v0", count, env_options=options, success_share=0.5, seed=seed)


def everything(secret):
    """All that a model is, as it can be compared."""
    tensors = {name: value.clone() for name, value in secret.model.state_dict().items()}
    tensors |= {f"queries.{name}": value.clone() for name, value in secret.queries._asdict().items()}
    return tensors, secret.report.to_json(), secret.training_options, secret.model_options, secret.seed, secret.specs


def assert_same(one, other):
    assert one[0].keys() == other[0].keys()
    assert all(torch.equal(one[0][name], other[0][name]) for name in one[0])
    assert one[1:] == other[1:]


@pytest.fixture(scope="module")
def source():
    """A predictor that knows what actions do, and not when they are inverted; not to be changed."""
    options = {"units": 32, "steps": 800, "batch_size": 64, "evaluate_every": 100, "learning_rate": 3e-3}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setattr(memoryless, "_ROUND", 3)
        patch.setattr(fitting, "_STUCK", -1.0)
        secret = Secret(**options, restarts=0, device="cpu").fit(maze_trajectories(1000, 0, inverted=False))
        before = everything(secret)
        copy = adapt(secret, maze_trajectories(400, 9, inverted=True), steps=STEPS, batch_size=64)
    torch.set_num_threads(threads)
    return secret, copy, before


@pytest.fixture
def model(source):
    return source[0]


@pytest.fixture
def adapted(source):
    return source[1]


def test_the_copy_predicts_what_the_model_does_not(model, adapted):
    target = maze_trajectories(500, 8, inverted=True)
    assert model.evaluate(maze_trajectories(500, 7, inverted=False)).accuracy.min() > 0.9
    assert model.evaluate(target).accuracy[[0, 2]].max() < 0.3, "it takes one action for the other"
    assert adapted.evaluate(target).accuracy[[0, 2]].min() > 0.7


def test_credit_of_the_copy_is_of_the_target(model, adapted):
    target = maze_trajectories(300, 10, inverted=True)
    of_model, of_copy = (secret.attribute(target, rewards="positive") for secret in (model, adapted))
    assert of_model.coverage < 0.3 < 0.8 < of_copy.coverage
    truth = np.asarray(target.annotations["trigger_activated"])

    def on_switches(credit):
        weights = [
            credit.row(r)[truth[target.offsets[e] :][: len(credit.row(r))]].sum() for r, e in enumerate(credit.episode)
        ]
        return np.mean(weights)

    assert on_switches(of_copy) > 2 * on_switches(of_model)
    used = maze_trajectories(400, 9, inverted=True)
    queries = source_queries(adapted.model, used, adapted.device, adapted.seed)
    assert torch.equal(adapted.queries.biases, queries.biases)
    counts = np.bincount(np.sign(used.rewards).astype(int) + 1)
    assert list(adapted.report.class_counts.values()) == counts.tolist()
    of_model, of_copy = (secret.step_credit(target.observations, target.actions) for secret in (model, adapted))
    assert of_copy[truth].mean() > 2 * of_copy[~truth].mean()
    assert of_copy[truth].mean() / of_copy[~truth].mean() > of_model[truth].mean() / of_model[~truth].mean()


def test_the_model_is_left_as_it_is_to_the_bit(model, adapted, source):
    assert_same(everything(model), source[2])
    mine = {value.data_ptr() for value in model.model.state_dict().values()}
    assert not mine & {value.data_ptr() for value in adapted.model.state_dict().values()}, "no weights are shared"
    assert not model.model.training and not adapted.model.training


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.usefixtures("quick")
def test_the_same_call_gives_the_same_copy(model):
    target = maze_trajectories(150, 11, inverted=True)
    one, other = (everything(adapt(model, target, steps=20)) for _ in range(2))
    for part in (one, other):
        part[1].pop("seconds")
    assert_same(one, other)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_copy_that_predicts_no_better_says_so(learned, cues):
    """Where every cue means its opposite, a confident model may end up ignoring the past instead."""
    data = cues(150, seed=11)
    target = Trajectories(**{**vars(data), "rewards": -np.asarray(data.rewards)})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        copy = adapt(learned, target, steps=60)
    failed = copy.evaluate(target).accuracy.min() < 0.5
    assert failed == any(issubclass(w.category, CollapseWarning | NoHistoryWarning) for w in caught)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.usefixtures("quick")
def test_another_seed_gives_another_copy_and_the_options_are_those_asked_for(model):
    target = maze_trajectories(150, 11, inverted=True)
    one = adapt(model, target, steps=18, learning_rate=0.01, batch_size=50, seed=5)
    other = adapt(model, target, steps=18, learning_rate=0.01, batch_size=50, seed=6)
    assert not torch.equal(one.model.head.weight, other.model.head.weight)
    options = one.training_options
    assert (one.seed, options.steps, options.learning_rate, options.batch_size) == (5, 18, 0.01, 50)
    assert (options.restarts, options.warmup, options.evaluate_every) == (0, 1, 3), "six looks along the way"
    assert len(one.report.curve) <= 6 and one.report.attempts == 1
    plain = adapt(model, target, steps=1)
    assert plain.seed == model.seed
    assert plain.training_options.learning_rate == model.training_options.learning_rate == 3e-3
    assert plain.training_options.validation == model.training_options.validation
    assert plain.model_options == model.model_options


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.usefixtures("quick")
def test_one_update_moves_the_weights_a_little(model):
    """It begins with those of the model, not anew."""
    copy = adapt(model, maze_trajectories(150, 12, inverted=True), steps=1, learning_rate=1e-3)
    for name, value in model.model.state_dict().items():
        assert float((copy.model.state_dict()[name] - value).abs().max()) <= 1.1e-3, name
    assert not torch.equal(copy.model.head.weight, model.model.head.weight)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("kinds", [(1, -1), (1, 0)])
def test_the_weight_of_zeros_is_kept_unless_another_is_given(cues, kinds):
    options = {"units": 16, "steps": 6, "evaluate_every": 3, "batch_size": 32, "restarts": 0, "device": "cpu"}
    secret = Secret(**options, class_weights=(0.1, 0.37, 0.7)).fit(cues(100))
    copy = adapt(secret, cues(150, seed=3, kinds=kinds), steps=6)
    assert copy.report.class_weights[1] == 0.37
    assert copy.report.weight_search == (), "there is nothing to search"
    assert copy.report.class_weights[0] == pytest.approx(copy.report.class_weights[2], rel=0.3), "of these rewards"
    other = adapt(secret, cues(150, seed=3, kinds=kinds), steps=6, zero_weight=1.5)
    assert other.report.class_weights == pytest.approx(
        (copy.report.class_weights[0], 1.5, copy.report.class_weights[2])
    )
    assert not torch.equal(other.model.head.weight, copy.model.head.weight), "it has a part in what is learned"


def numbers(count, seed, offset):
    """Episodes of vectors around ``offset``; a large first number is rewarded."""
    rng = np.random.default_rng(seed)
    episodes = []
    for _ in range(count):
        seen = rng.normal(offset, 2.0, (5, 2))
        rewards = np.zeros(5)
        rewards[-1] = 1.0 if seen[0, 0] > offset else -1.0
        episodes.append({"observations": seen, "actions": rng.uniform(0, 1, (5, 1)), "rewards": rewards})
    return Trajectories.from_episodes(
        episodes, observation_space=spaces.Box(-99, 99, (2,), np.float64), action_space=spaces.Box(0, 1, (1,))
    )


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.usefixtures("quick")
def test_numbers_are_read_as_the_model_learned_to():
    """The weights belong to the mean and scale of the source: with those of the target they would mean nothing."""
    secret = Secret(units=16, steps=6, evaluate_every=3, batch_size=32, restarts=0, device="cpu")
    secret.fit(numbers(100, 0, offset=3.0))
    copy = adapt(secret, numbers(100, 1, offset=40.0), steps=6)
    mine, theirs = secret.model.state_dict(), copy.model.state_dict()
    scales = [name for name in mine if name.endswith(("mean", "scale"))]
    assert len(scales) == 4
    assert all(torch.equal(mine[name], theirs[name]) for name in scales)
    assert float(mine["observation_encoder.0.mean"][0]) == pytest.approx(3.0, abs=0.5)


def test_a_copy_is_a_model_like_any_other(adapted, tmp_path):
    again = Secret.load(adapted.save(tmp_path / "adapted.safetensors"), device="cpu")
    assert_same(everything(again), everything(adapted))
    target = maze_trajectories(30, 24, inverted=True)
    np.testing.assert_array_equal(again.attribute(target).weights, adapted.attribute(target).weights)


@pytest.mark.usefixtures("quick")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_model_from_a_file_is_adapted_alike(model, tmp_path):
    target = maze_trajectories(150, 11, inverted=True)
    loaded = Secret.load(model.save(tmp_path / "model.safetensors"), device="cpu")
    one, other = (adapt(secret, target, steps=5).model.state_dict() for secret in (model, loaded))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_what_cannot_be_adapted_is_refused(learned, cues):
    with pytest.raises(NotFittedError, match="nothing to adapt yet: call fit, or Secret.load"):
        adapt(Secret(device="cpu"), cues(20))
    with pytest.raises(ValueError, match="9 trajectories are too few to fit and validate on: give at least 10"):
        adapt(learned, cues(9))
    with pytest.raises(ValueError, match="no trajectories were given"):
        adapt(learned, cues(9)[:0])
    with pytest.raises(ValueError, match="no reward in 20 trajectories"):
        adapt(learned, cues(20, kinds=(0,)))
    with pytest.raises(ValueError, match="fitted on observations of .*'n': 4.* these trajectories hold .*'n': 5"):
        adapt(learned, cues(20, doors={1: 4, -1: 4, 0: 4}))
    for option in ("steps", "batch_size"):
        with pytest.raises(ValueError, match=f"{option} must be at least 1, got 0"):
            adapt(learned, cues(20), **{option: 0})
    with pytest.raises(ValueError, match="learning_rate must be positive, got -1"):
        adapt(learned, cues(20), learning_rate=-1)
    for weight in (-0.5, float("nan")):
        with pytest.raises(ValueError, match=f"zero_weight must be a number of at least 0, got {weight}"):
            adapt(learned, cues(20), zero_weight=weight)
    with pytest.raises(ValueError, match="recolour=True needs pictures"):
        adapt(learned, cues(20), recolour=True)


@pytest.mark.usefixtures("quick")
def test_warnings_point_at_the_line_that_adapts(learned, cues):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        adapt(learned, cues(150, seed=3, kinds=(1, 0)), steps=3)
    [balance] = [warning for warning in caught if warning.category is RewardBalanceWarning]
    assert "no negative reward in 150 trajectories" in str(balance.message)
    assert Path(balance.filename) == Path(__file__)
