"""``Secret``: options checked, models saved whole, other files and other data refused."""

import resource

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tests.sealing import change_arrays

from secret_rl.credit import Secret
from secret_rl.credit.base import check_specs
from secret_rl.files import FileFormatError
from secret_rl.trajectories.spaces import to_json

TINY = {"units": 16, "steps": 4, "evaluate_every": 2, "batch_size": 16, "device": "cpu"}


@pytest.fixture
def saved(learned, tmp_path):
    return learned.save(tmp_path / "model.safetensors")


def unreadable(reason=""):
    """The error of a model file, its reason included."""
    message = rf"(?s)\.safetensors cannot be read as 'secret-rl credit model': .*{reason}.*; restore it or fit again"
    return pytest.raises(FileFormatError, match=message)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.usefixtures("quick")
def test_options_of_every_kind_come_back(tmp_path, cues):
    options = {**TINY, "weights": "paper", "filters": (2, 3), "dropout_steps": 0.25, "warmup": 0, "transitions": True}
    secret = Secret(**options, seed=7).fit(cues(20))
    again = Secret.load(secret.save(tmp_path / "m"), device="cpu")
    assert again.save(tmp_path / "again").read_bytes() == (tmp_path / "m").read_bytes(), "all that is kept"
    assert (again.model_options, again.training_options) == (secret.model_options, secret.training_options)
    assert again.seed == 7 and again.reward_classes == secret.reward_classes


BOX = {"type": "Box", "low": 0, "high": 1, "dtype": "uint8"}
HUGE = {
    "units": lambda about: about["model"].update(units=10**6),
    "symbols": lambda about: about["observation_space"].update(n=2**31 - 1),
    "picture": lambda about: about.update(observation_space={**BOX, "shape": [1 << 15, 1 << 15]}),
    "vector": lambda about: about.update(action_space={**BOX, "shape": [1 << 15, 1 << 15]}),
    "kinds of things": lambda about: about.update(observation_space={**BOX, "shape": [3, 3, 9], "levels": 2**31 - 1}),
}


@pytest.mark.parametrize("size", HUGE)
def test_small_files_that_ask_for_huge_models_are_refused_in_little_memory(saved, size):
    Secret.load(saved, device="cpu")  # imports what it needs
    change_arrays(saved, lambda about, arrays: HUGE[size](about))
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with unreadable():
        Secret.load(saved, device="cpu")
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident) << 10
    assert grown < 64 << 20


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda about, _: about["model"].update(units=64), "size mismatch"),
        (lambda about, _: about["observation_space"].update(n=9), "size mismatch for encoder.observation_encoder"),
        (lambda about, _: about["training"].update(validation=2), "validation must lie between 0 and 1, got 2"),
        (lambda about, _: about.pop("report"), "KeyError: 'report'"),
        (lambda _, arrays: arrays.pop("head.bias"), 'Missing key.* "head.bias"'),
        (lambda _, arrays: arrays.update(second_head=np.zeros(3)), 'Unexpected key.* "second_head"'),
        (lambda _, arrays: arrays.pop("memoryless.models.1.head.bias"), 'Missing key.* "models.1.head.bias"'),
        (lambda _, arrays: arrays.pop("queries.vectors"), "TypeError: .*vectors"),
    ],
)
def test_descriptions_that_do_not_match_the_weights_are_refused(saved, damage, reason):
    change_arrays(saved, damage)
    with unreadable(reason):
        Secret.load(saved)


def test_no_trajectories_and_missing_files_are_refused(learned, cues, tmp_path):
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(FileNotFoundError, match=f"{path} is not a file"):
            Secret.load(path)
    for call in (learned.attribute, learned.evaluate):
        with pytest.raises(ValueError, match="no trajectories were given"):
            call(cues(3)[:0])


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.usefixtures("quick")
def test_a_refused_fit_leaves_the_model_as_it_was(cues):
    data = cues(20)
    secret = Secret(**TINY).fit(data)
    before = secret.attribute(data)
    with pytest.raises(ValueError, match="no reward"):
        secret.fit(cues(20, kinds=(0,), doors={0: 7}))
    after = secret.attribute(data)
    np.testing.assert_array_equal(after.weights, before.weights)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("units", 15, "even number of at least 2, got 15"),
        ("filters", (), "filters must hold positive numbers, at least one"),
        ("dropout_dense", 1.0, "dropout_dense must lie in"),
        ("dropout_block", -0.1, "dropout_block must lie in"),
        ("dropout_steps", 2, "dropout_steps must lie in"),
        ("steps", 0, "steps must be at least 1, got 0"),
        ("batch_size", 0, "batch_size must be at least 1"),
        ("evaluate_every", -5, "evaluate_every must be at least 1"),
        ("patience", 0, "patience must be at least 1"),
        ("warmup", -1, "warmup must not be negative"),
        ("weight_decay", -1.0, "weight_decay must not be negative"),
        ("attention_penalty", -1.0, "attention_penalty must not be negative"),
        ("validation", 0, "validation must lie between 0 and 1, got 0"),
        ("learning_rate", 0.0, "learning_rate must be positive"),
        ("weights", "printed", "weights must be one of residual, paper, got 'printed'"),
        ("precision", "fp8", "precision must be one of float32, bf16, got 'fp8'"),
    ],
)
def test_bad_values_are_refused_with_what_is_expected(option, value, message):
    with pytest.raises(ValueError, match=message):
        Secret(**{option: value})


def test_a_named_device_is_used_and_auto_finds_one():
    assert Secret(device="cpu").device == torch.device("cpu")
    assert Secret().device.type in ("cpu", "cuda", "mps")
    with pytest.raises(RuntimeError, match="abacus"):
        Secret(device="abacus")


def test_bounds_and_dtypes_of_boxes_may_differ():
    box, other, larger = (
        to_json(spaces.Box(0, high, (size,), dtype))
        for high, size, dtype in ((1, 2, np.float64), (5, 2, np.float32), (1, 3, np.float64))
    )
    check_specs((box, box), (other, other))
    with pytest.raises(ValueError, match="the model was fitted on actions of"):
        check_specs((box, box), (other, larger))
