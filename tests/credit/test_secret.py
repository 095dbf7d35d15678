"""The front door: options checked, models saved whole, other files and other data refused."""

import json
import os

import numpy as np
import pytest
import torch
from gymnasium import spaces
from safetensors import safe_open
from safetensors.torch import save_file

from secret_rl.credit import NotFittedError, Secret
from secret_rl.files import FileFormatError
from secret_rl.trajectories import Trajectories

TINY = {"units": 16, "steps": 4, "evaluate_every": 2, "batch_size": 16, "restarts": 0, "device": "cpu"}


@pytest.fixture
def saved(learned, tmp_path):
    return learned.save(tmp_path / "model.safetensors")


def rewrite(path, change):
    """Change the description in a model file, and leave its weights."""
    with safe_open(path, framework="pt") as file:
        description = json.loads(file.metadata()["secret_rl"])
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a mapping
    change(description, weights)
    save_file(weights, path, metadata={"secret_rl": json.dumps(description)})


def test_a_saved_model_comes_back_to_the_bit(learned, saved, cues):
    again = Secret.load(saved, device="cpu")
    mine, theirs = learned.model.state_dict(), again.model.state_dict()
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert again.model_options == learned.model_options
    assert again.training_options == learned.training_options
    assert again.seed == learned.seed
    assert again.report.to_json() == learned.report.to_json()
    data = cues(40, seed=3)
    one, other = learned.attribute(data), again.attribute(data)
    for name in ("episode", "step", "predicted_at", "reward", "weights", "offsets"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    np.testing.assert_array_equal(learned.evaluate(data).counts, again.evaluate(data).counts)
    resaved = again.save(saved.with_name("again.safetensors"))
    assert resaved.read_bytes() == saved.read_bytes()
    assert sorted(p.name for p in saved.parent.iterdir()) == ["again.safetensors", "model.safetensors"]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.usefixtures("quick")
def test_options_of_every_kind_come_back(tmp_path, cues):
    options = {**TINY, "class_weights": (0.1, 0.2, 0.7), "filters": (2, 3), "dropout_attention": 0.25, "warmup": 0}
    secret = Secret(**options, seed=7).fit(cues(20))
    again = Secret.load(secret.save(tmp_path / "m"), device="cpu")
    assert (again.model_options, again.training_options) == (secret.model_options, secret.training_options)
    assert again.seed == 7 and again.report.class_weights == (0.1, 0.2, 0.7)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.usefixtures("quick")
def test_a_loaded_model_fits_anew_as_the_one_that_was_saved_would(tmp_path, cues):
    first = Secret(**TINY, seed=3).fit(cues(20))
    again = Secret.load(first.save(tmp_path / "model"), device="cpu").fit(cues(20))
    mine, theirs = first.model.state_dict(), again.model.state_dict()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.mark.parametrize("keep", [0, 4, 8, 100, -1])
def test_truncated_models_are_refused(saved, keep):
    saved.write_bytes(saved.read_bytes()[:keep])
    with pytest.raises(FileFormatError, match=r"model\.safetensors is not a readable safetensors file .* damaged"):
        Secret.load(saved)


def test_random_bytes_are_refused(tmp_path):
    rng = np.random.default_rng(0)
    for number in range(50):
        path = tmp_path / f"{number}.safetensors"
        path.write_bytes(rng.bytes(int(rng.integers(1, 3000))))
        with pytest.raises(FileFormatError, match=f"{number}.safetensors is not a readable safetensors file"):
            Secret.load(path)


def test_safetensors_of_something_else_are_refused(tmp_path):
    path = tmp_path / "other.safetensors"
    for metadata in (None, {"format": "pt"}, {"secret_rl": "null"}, {"secret_rl": "[]"}, {"secret_rl": "{}"}):
        save_file({"layer.weight": torch.zeros(3)}, path, metadata=metadata)
        with pytest.raises(FileFormatError, match=r"other\.safetensors is a safetensors file, but no credit model"):
            Secret.load(path)
    save_file({"layer.weight": torch.zeros(3)}, path, metadata={"secret_rl": "not JSON"})
    with pytest.raises(FileFormatError, match=r"other\.safetensors"):
        Secret.load(path)


def wider(description, weights):
    description["model"]["units"] = 64


def other_space(description, weights):
    description["observation_space"]["n"] = 9


def unknown_space(description, weights):
    description["observation_space"] = {"type": "Nonsense"}


def unknown_option(description, weights):
    description["model"]["layers"] = 7


def bad_option(description, weights):
    description["training"]["validation"] = 2


def no_report(description, weights):
    del description["report"]


def no_seed(description, weights):
    del description["seed"]


def options_as_list(description, weights):
    description["model"] = [1, 2]


def missing_weights(description, weights):
    del weights["head.bias"]


def extra_weights(description, weights):
    weights["second_head.bias"] = torch.zeros(3)


DAMAGES = [
    wider, other_space, unknown_space, unknown_option, bad_option, no_report, no_seed, options_as_list,
    missing_weights, extra_weights,
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_descriptions_that_do_not_match_the_weights_are_refused(saved, damage):
    rewrite(saved, damage)
    with pytest.raises(
        FileFormatError, match=r"model\.safetensors does not describe a credit model this library can build"
    ):
        Secret.load(saved)


def test_other_versions_are_refused_by_number(saved):
    rewrite(saved, lambda description, weights: description.update(version=99, library="9.9"))
    with pytest.raises(
        FileFormatError, match=r"has format version 99, this library reads 1: open it with secret-rl 9\.9"
    ):
        Secret.load(saved)


def test_missing_files_are_named(tmp_path):
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(FileNotFoundError, match=f"{path} is not a file"):
            Secret.load(path)


@pytest.mark.parametrize("existing", [True, False])
def test_a_failed_save_leaves_the_old_file_and_nothing_else(learned, tmp_path, monkeypatch, existing):
    path = tmp_path / "model.safetensors"
    before = {path.name: learned.save(path).read_bytes()} if existing else {}

    def no_space_left(tensors, filename, metadata=None):
        with open(filename, "wb") as file:  # noqa: PTH123  any path-like
            file.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", no_space_left)
    with pytest.raises(OSError, match="No space"):
        learned.save(path)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_saving_replaces_the_file_at_once(learned, saved):
    """Whoever holds the old file open goes on reading the old model."""
    with saved.open("rb") as old:
        inode = os.fstat(old.fileno()).st_ino
        learned.save(saved)
        assert saved.stat().st_ino != inode
        assert old.read() == saved.read_bytes()


def test_an_unfitted_model_says_so(cues, tmp_path):
    secret = Secret(device="cpu")
    for call in (secret.attribute, secret.evaluate):
        with pytest.raises(NotFittedError, match="not fitted yet: call fit, or Secret.load"):
            call(cues(3))
    with pytest.raises(NotFittedError, match="call fit first"):
        secret.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_data_of_other_spaces_is_refused(learned, cues):
    other_symbols = cues(3, doors={1: 4, -1: 4, 0: 4})
    for call in (learned.attribute, learned.evaluate):
        with pytest.raises(ValueError, match="fitted on observations of .*'n': 4.* these trajectories hold .*'n': 5"):
            call(other_symbols)
    plain = cues(3)
    episodes = [{"observations": e.observations, "actions": e.actions * 1.0, "rewards": e.rewards} for e in plain]
    numbers = Trajectories.from_episodes(
        episodes, observation_space=plain.observation_space, action_space=spaces.Box(0, 1, ())
    )
    with pytest.raises(ValueError, match="fitted on actions of .*Discrete.* these trajectories hold .*Box"):
        learned.attribute(numbers)


def test_no_trajectories_are_refused(learned, cues):
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


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.usefixtures("quick")
def test_bounds_and_dtypes_of_boxes_may_differ():
    rng = np.random.default_rng(0)

    def data(high, dtype, size=2):
        episodes = [
            {
                "observations": rng.uniform(0, 1, (4, size)).astype(dtype),
                "actions": rng.integers(0, 2, 4),
                "rewards": np.array([0.0, 1.0, 0.0, -1.0]),
            }
            for _ in range(12)
        ]
        return Trajectories.from_episodes(
            episodes, observation_space=spaces.Box(0, high, (size,), dtype), action_space=spaces.Discrete(2)
        )

    secret = Secret(**TINY).fit(data(1, np.float64))
    assert secret.evaluate(data(5, np.float32)).counts.sum() == 48
    with pytest.raises(ValueError, match="fitted on observations"):
        secret.evaluate(data(1, np.float64, size=3))


def test_unknown_options_are_refused_by_name():
    with pytest.raises(TypeError, match="unknown option layers, unit: expected some of batch_size, .*units"):
        Secret(unit=3, layers=2)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("units", 15, "even number of at least 2, got 15"),
        ("units", 0, "even number of at least 2, got 0"),
        ("filters", (), "at least one positive number"),
        ("filters", (4, 0), "at least one positive number"),
        ("dropout_dense", 1.0, "dropout_dense must lie in"),
        ("dropout_block", -0.1, "dropout_block must lie in"),
        ("dropout_attention", 2, "dropout_attention must lie in"),
        ("max_position_shift", -1, "max_position_shift must not be negative, got -1"),
        ("steps", 0, "steps must be at least 1, got 0"),
        ("batch_size", 0, "batch_size must be at least 1"),
        ("evaluate_every", -5, "evaluate_every must be at least 1"),
        ("patience", 0, "patience must be at least 1"),
        ("warmup", -1, "warmup must not be negative"),
        ("restarts", -1, "restarts must not be negative"),
        ("weight_decay", -1.0, "weight_decay must not be negative"),
        ("looking_cost", -1.0, "looking_cost must not be negative"),
        ("validation", 0, "validation must lie between 0 and 1, got 0"),
        ("validation", 1.0, "validation must lie between 0 and 1"),
        ("learning_rate", 0.0, "learning_rate must be positive"),
        ("class_weights", "printed", 'must be "auto", .*paper.* got .printed.'),
        ("class_weights", (1.0, 2.0), "three numbers"),
        ("class_weights", (0.0, 0.0, 0.0), "not all 0"),
        ("class_weights", (1.0, -1.0, 1.0), "at least 0"),
    ],
)
def test_bad_values_are_refused_with_what_is_expected(option, value, message):
    with pytest.raises(ValueError, match=message):
        Secret(**{option: value})


@pytest.mark.parametrize("option", ["learning_rate", "validation", "dropout_dense", "weight_decay", "looking_cost"])
def test_values_that_are_not_numbers_are_refused(option):
    with pytest.raises(ValueError, match=f"{option} must .* got nan"):
        Secret(**{option: float("nan")})


def test_a_named_device_is_used_and_auto_finds_one():
    assert Secret(device="cpu").device == torch.device("cpu")
    assert Secret().device.type in ("cpu", "cuda", "mps")
    with pytest.raises(RuntimeError, match="abacus"):
        Secret(device="abacus")
