"""A fitted model trained further on a target in which things have come to mean something else; the model stays."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces

from secret_rl.credit import NotFittedError, RewardBalanceWarning, Secret, adapt
from secret_rl.trajectories import Trajectories

FILLER, GOOD_CUE, BAD_CUE, DOOR = range(4)  # of the memory task
STEPS = 160


def exchanged(data):
    """What was the good cue is the bad one."""
    return Trajectories(**{**vars(data), "rewards": -np.asarray(data.rewards)})


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
def adapted(learned):
    """The learned model for a target in which the cues are exchanged, and the same again."""
    from conftest import cue_trajectories, single_threaded

    target = exchanged(cue_trajectories(150, seed=11))
    with single_threaded():
        before = everything(learned)
        pair = [adapt(learned, target, steps=STEPS, batch_size=64) for _ in range(2)]
        return pair, before


def test_the_copy_predicts_what_the_model_does_not(learned, adapted, cues):
    (copy, _), _ = adapted
    source, target = cues(300, seed=21), exchanged(cues(300, seed=22))
    assert learned.evaluate(source).accuracies[[0, 2]].min() > 0.95
    assert learned.evaluate(target).accuracies[[0, 2]].max() < 0.05, "it takes one cue for the other"
    assert copy.evaluate(target).accuracies.min() > 0.95


def test_credit_of_the_copy_is_of_the_target(learned, adapted, cues):
    (copy, _), _ = adapted
    target = exchanged(cues(90, seed=23))
    assert learned.attribute(target).coverage < 0.05
    credit = copy.attribute(target, rewards="positive")
    assert credit.coverage > 0.95
    observations = np.asarray(target.observations)
    on_cue = [
        credit.row(r)[observations[target.offsets[e] :][: len(credit.row(r))] == BAD_CUE].sum()
        for r, e in enumerate(credit.episode)
    ]
    assert np.mean(on_cue) > 0.8, "what now is the good cue"
    assert copy.report.class_counts == {"negative": 50, "zero": 1100, "positive": 50}
    share = copy.step_credit(np.array([BAD_CUE, FILLER]), np.array([0, 0]))
    assert share[0] > 0.5 and share[1] < 0.1, share


def test_the_model_is_left_as_it_is_to_the_bit(learned, adapted, cues):
    (copy, _), before = adapted
    assert_same(everything(learned), before)
    mine = {value.data_ptr() for value in learned.model.state_dict().values()}
    assert not mine & {value.data_ptr() for value in copy.model.state_dict().values()}, "no weights are shared"
    assert not learned.model.training and not copy.model.training


def test_the_same_call_gives_the_same_copy(adapted):
    one, other = map(everything, adapted[0])
    for part in (one, other):
        part[1].pop("seconds")
    assert_same(one, other)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.usefixtures("quick")
def test_another_seed_gives_another_copy_and_the_options_are_those_asked_for(learned, cues):
    target = exchanged(cues(150, seed=11))
    one = adapt(learned, target, steps=18, learning_rate=0.01, batch_size=50, seed=5)
    other = adapt(learned, target, steps=18, learning_rate=0.01, batch_size=50, seed=6)
    assert not torch.equal(one.model.head.weight, other.model.head.weight)
    options = one.training_options
    assert (one.seed, options.steps, options.learning_rate, options.batch_size) == (5, 18, 0.01, 50)
    assert (options.restarts, options.warmup, options.evaluate_every) == (0, 1, 3), "six looks along the way"
    assert len(one.report.curve) <= 6 and one.report.attempts == 1
    plain = adapt(learned, target, steps=1)
    assert plain.seed == learned.seed
    assert plain.training_options.learning_rate == learned.training_options.learning_rate
    assert plain.training_options.validation == learned.training_options.validation
    assert plain.model_options == learned.model_options


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.usefixtures("quick")
def test_one_update_moves_the_weights_a_little(learned, cues):
    """It begins with those of the model, not anew."""
    copy = adapt(learned, cues(150, seed=12), steps=1, learning_rate=1e-3)
    for name, value in learned.model.state_dict().items():
        assert float((copy.model.state_dict()[name] - value).abs().max()) <= 1.1e-3, name
    assert not torch.equal(copy.model.head.weight, learned.model.head.weight)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("kinds", [(1, -1), (1, 0)])
def test_the_weight_of_zeros_is_kept(cues, kinds):
    options = {"units": 16, "steps": 6, "evaluate_every": 3, "batch_size": 32, "restarts": 0, "device": "cpu"}
    secret = Secret(**options, class_weights=(0.1, 0.37, 0.7)).fit(cues(100))
    copy = adapt(secret, cues(150, seed=3, kinds=kinds), steps=6)
    assert copy.report.class_weights[1] == 0.37
    assert copy.report.weight_search == (), "there is nothing to search"
    assert copy.report.class_weights[0] == pytest.approx(copy.report.class_weights[2], rel=0.3), "of these rewards"


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


def test_a_copy_is_a_model_like_any_other(adapted, cues, tmp_path):
    (copy, _), _ = adapted
    again = Secret.load(copy.save(tmp_path / "adapted.safetensors"), device="cpu")
    target = exchanged(cues(30, seed=24))
    np.testing.assert_array_equal(again.attribute(target).weights, copy.attribute(target).weights)
    assert again.training_options == copy.training_options
    pair = np.array([BAD_CUE]), np.array([0])
    assert again.step_credit(*pair) == copy.step_credit(*pair)


@pytest.mark.usefixtures("quick")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_model_from_a_file_is_adapted_alike(learned, cues, tmp_path):
    target = exchanged(cues(150, seed=11))
    loaded = Secret.load(learned.save(tmp_path / "model.safetensors"), device="cpu")
    one, other = (adapt(secret, target, steps=5).model.state_dict() for secret in (learned, loaded))
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


@pytest.mark.usefixtures("quick")
def test_warnings_point_at_the_line_that_adapts(learned, cues):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        adapt(learned, cues(150, seed=3, kinds=(1, 0)), steps=3)
    [balance] = [warning for warning in caught if warning.category is RewardBalanceWarning]
    assert "no negative reward in 150 trajectories" in str(balance.message)
    assert Path(balance.filename) == Path(__file__)
