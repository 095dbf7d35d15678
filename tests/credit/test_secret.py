"""The front door: options checked, models saved whole, other files and other data refused."""

import os
import resource
import time
import tracemalloc
from contextlib import contextmanager, suppress

import numpy as np
import pytest
import torch
from gymnasium import spaces
from safetensors.torch import save_file
from tests.sealing import change_arrays

from secret_rl.credit import NotFittedError, Secret
from secret_rl.files import FileFormatError
from secret_rl.trajectories import Trajectories

TINY = {"units": 16, "steps": 4, "evaluate_every": 2, "batch_size": 16, "device": "cpu"}


@pytest.fixture
def saved(learned, tmp_path):
    return learned.save(tmp_path / "model.safetensors")


def unreadable(reason=""):
    """The error of a model file, its reason included."""
    message = rf"(?s)\.safetensors cannot be read as 'secret-rl credit model': .*{reason}.*; restore it or fit again"
    return pytest.raises(FileFormatError, match=message)


def test_a_saved_model_comes_back_to_the_bit(learned, saved, cues):
    again = Secret.load(saved, device="cpu")
    mine, theirs = learned.model.state_dict(), again.model.state_dict()
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert again.model_options == learned.model_options
    assert again.training_options == learned.training_options
    assert again.seed == learned.seed
    assert again.report.to_json() == learned.report.to_json()
    mine, theirs = learned.present.state_dict(), again.present.state_dict()
    assert mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)
    data = cues(40, seed=3)
    one, other = learned.attribute(data), again.attribute(data)
    for name in ("episode", "step", "predicted_at", "reward", "evidence", "weights", "offsets"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    np.testing.assert_array_equal(learned.evaluate(data).counts, again.evaluate(data).counts)
    resaved = again.save(saved.with_name("again.safetensors"))
    assert resaved.read_bytes() == saved.read_bytes()
    assert sorted(p.name for p in saved.parent.iterdir()) == ["again.safetensors", "model.safetensors"]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.usefixtures("quick")
def test_options_of_every_kind_come_back(tmp_path, cues):
    options = {**TINY, "weights": "paper", "filters": (2, 3), "dropout_steps": 0.25, "warmup": 0, "transitions": True}
    secret = Secret(**options, seed=7).fit(cues(20))
    again = Secret.load(secret.save(tmp_path / "m"), device="cpu")
    assert (again.model_options, again.training_options) == (secret.model_options, secret.training_options)
    assert again.seed == 7 and again.reward_classes == secret.reward_classes


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.usefixtures("quick")
def test_a_loaded_model_fits_anew_as_the_one_that_was_saved_would(tmp_path, cues):
    first = Secret(**TINY, seed=3).fit(cues(20))
    again = Secret.load(first.save(tmp_path / "model"), device="cpu").fit(cues(20))
    mine, theirs = first.model.state_dict(), again.model.state_dict()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.mark.parametrize(
    ("keep", "reason"),
    [(keep, f"it has {keep} bytes and is not a whole safetensors file") for keep in (0, 4, 8, 100)]
    + [(-1, "does not fit its bytes")],
)
def test_truncated_models_are_refused(saved, keep, reason):
    saved.write_bytes(saved.read_bytes()[:keep])
    with unreadable(reason):
        Secret.load(saved)


def test_bytes_after_the_end_are_refused(saved):
    saved.write_bytes(saved.read_bytes() + b"more")
    with unreadable("4 bytes follow its last array"):
        Secret.load(saved)


def test_every_flipped_bit_is_refused(saved):
    """Also in the padding of the header, which says nothing: the file is not what was written."""
    whole = saved.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    rng = np.random.default_rng(0)
    positions = [*rng.integers(8 * header, size=100), *rng.integers(8 * header, 8 * len(whole), size=100)]
    accepted, again = [], saved.with_name("again.safetensors")
    for position in [*positions, *range(64), 8 * len(whole) - 1]:
        byte, bit = divmod(int(position), 8)
        saved.write_bytes(whole[:byte] + bytes([whole[byte] ^ 1 << bit]) + whole[byte + 1 :])
        with suppress(FileFormatError):
            loaded = Secret.load(saved, device="cpu")
            if loaded.save(again).read_bytes() != whole:  # another last digit may be the same number
                accepted.append((byte, bit, whole[max(0, byte - 40) : byte + 10]))
    assert not accepted
    saved.write_bytes(whole)
    Secret.load(saved, device="cpu")


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["head.weight", "queries.biases", "present.models.1.head.bias"])
def test_weights_that_are_not_finite_are_neither_loaded_nor_saved(learned, saved, name, value):
    change_arrays(saved, lambda about, arrays: arrays[name].reshape(-1)[1:2].fill(value))
    with unreadable(f"{name} holds NaN or infinite numbers"):
        Secret.load(saved, device="cpu")

    learned.save(saved)
    before = saved.read_bytes()
    broken = Secret.load(saved, device="cpu")
    tensors = broken.model.state_dict() | {"queries.biases": broken.queries.biases}
    tensors |= {f"present.{name}": value for name, value in broken.present.state_dict().items()}
    tensors[name].view(-1)[1] = value
    for path in (saved, saved.with_name("new.safetensors")):
        with pytest.raises(ValueError, match=f"{name} holds NaN or infinite numbers: .*{path.name} is not written"):
            broken.save(path)
    assert {path.name: path.read_bytes() for path in saved.parent.iterdir()} == {saved.name: before}


BOX = {"type": "Box", "low": 0, "high": 1, "dtype": "uint8"}
HUGE = {
    "units": lambda about: about["model"].update(units=10**6),
    "far more units": lambda about: about["model"].update(units=2**62),
    "filters": lambda about: about["model"].update(filters=[1] * 100_000),
    "symbols": lambda about: about["observation_space"].update(n=2**31 - 1),
    "actions": lambda about: about["action_space"].update(n=2**31 - 1),
    "picture": lambda about: about.update(observation_space={**BOX, "shape": [1 << 15, 1 << 15]}),
    "picture of filters": lambda about: (
        about.update(observation_space={**BOX, "shape": [1 << 15, 1 << 15]}),
        about["model"].update(filters=[10**9] * 16),
    ),
    "vector": lambda about: about.update(action_space={**BOX, "shape": [1 << 15, 1 << 15]}),
    "kinds of things": lambda about: about.update(observation_space={**BOX, "shape": [3, 3, 9], "levels": 2**31 - 1}),
    "channels of kinds": lambda about: about.update(
        observation_space={**BOX, "shape": [3, 3, 2**31 - 1], "levels": 4}
    ),
    "classes": lambda about: about["report"].update(
        classes={"values": list(range(100_000)), "edges": list(range(99_999))}
    ),
    "choices": lambda about: about.update(observation_space=choices([2] * 100_000)),
    "choices of actions": lambda about: about.update(action_space=choices([2] * 100_000)),
    "large choices": lambda about: about.update(action_space=choices([2**31 - 1] * 3)),
    "switches": lambda about: about.update(action_space={"type": "MultiBinary", "n": [2**31 - 1] * 3}),
    "many spaces": lambda about: about.update(observation_space=tuple_of([choices([2])] * 20_000)),
    "deep spaces": lambda about: about.update(observation_space=nested(300)),
    "deep spaces of actions": lambda about: about.update(action_space=nested(300)),
    "seed": lambda about: about.update(seed=10**4000),
}  # fmt: skip


def choices(sizes):
    return {"type": "MultiDiscrete", "nvec": sizes, "start": [0] * len(sizes), "dtype": "int64"}


def tuple_of(parts):
    return {"type": "Tuple", "spaces": parts}


def nested(depth):
    space = choices([2])
    for _ in range(depth):
        space = tuple_of([space])
    return space


@pytest.mark.parametrize("size", HUGE)
def test_small_files_that_ask_for_huge_models_are_refused_in_little_memory(saved, size):
    Secret.load(saved, device="cpu")  # imports what it needs
    change_arrays(saved, lambda about, arrays: HUGE[size](about))
    assert saved.stat().st_size < 4 << 20
    resident, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    tracemalloc.start()
    try:
        with unreadable():
            Secret.load(saved, device="cpu")
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert time.process_time() - started < 5
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident) << 10  # tensors, too
    assert grown < 64 << 20


def test_random_bytes_are_refused(tmp_path):
    rng = np.random.default_rng(0)
    for number in range(50):
        path = tmp_path / f"{number}.safetensors"
        path.write_bytes(rng.bytes(int(rng.integers(1, 3000))))
        with unreadable("not a whole safetensors file"):
            Secret.load(path)


def test_safetensors_of_something_else_are_refused(tmp_path):
    path = tmp_path / "other.safetensors"
    others = {
        None: "it is a safetensors file of something else",
        "null": "it says format 'NoneType'",
        "[]": "it says format 'list'",
        "{}": "it says format None, expected 'secret-rl credit model'",
        "not JSON": "JSONDecodeError",
        '{"format": NaN}': "it holds the number NaN",
        "[" * 50_000: "RecursionError",
        "[" * 500_001: "its JSON holds 500,... values in 500,... bytes, more than it should",
    }
    for description, reason in others.items():
        for metadata in ({}, {"format": "pt"}):
            metadata = metadata if description is None else {**metadata, "secret_rl": description}
            save_file({"layer.weight": torch.zeros(3)}, path, metadata=metadata or None)
            with unreadable(reason):
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


def unknown_verdict(description, weights):
    description["report"]["verdict"] = "splendid"


def no_classes(description, weights):
    description["report"]["classes"] = {"values": [], "edges": []}


def classes_that_fall(description, weights):
    description["report"]["classes"]["values"].reverse()


def another_class(description, weights):
    description["report"]["classes"] = {"values": [-1.0, 0.0, 1.0, 2.0], "edges": [-0.5, 0.5, 1.5]}


def gain_in_words(description, weights):
    description["report"]["gain"]["share"] = "much"


def one_predictor_without_memory(description, weights):
    for name in [name for name in weights if name.startswith("present.models.1")]:
        del weights[name]


def no_predictor_without_memory(description, weights):
    for name in [name for name in weights if name.startswith("present.")]:
        del weights[name]


def missing_weights(description, weights):
    del weights["head.bias"]


def extra_weights(description, weights):
    weights["second_head.bias"] = np.zeros(3, np.float32)


def other_shape(description, weights):
    weights["head.bias"] = np.zeros(4, np.float32)


def other_dtype(description, weights):
    weights["head.bias"] = np.zeros(3, np.float64)


DAMAGES = {
    wider: "it does not describe its own weights: ",
    other_space: r"its own weights: encoder.observation_encoder.1.weight is \(\(4, 32\), .*, not \(\(9, 32\), ",
    unknown_space: "KeyError: 'Nonsense'",
    unknown_option: "TypeError: unknown option layers",
    bad_option: "validation must lie between 0 and 1, got 2",
    no_report: "KeyError: 'report'",
    no_seed: "KeyError: 'seed'",
    options_as_list: "TypeError: 'list' object is not a mapping",
    unknown_verdict: "the verdict is 'splendid'",
    no_classes: "0 reward classes with 0 edges",
    classes_that_fall: "values and edges of reward classes must rise",
    another_class: "it has 4 classes of reward, but not as many numbers about them",
    gain_in_words: "'much' is not a .*number",
    one_predictor_without_memory: "its own weights: models.1.encoder.* is None, not ",
    no_predictor_without_memory: "its own weights: models.0.encoder.* is None, not ",
    missing_weights: "its own weights: head.bias is None, not ",
    extra_weights: "its own weights: second_head.bias is .*, not None",
    other_shape: r"its own weights: head.bias is \(\(4,\), torch.float32\), not \(\(3,\), torch.float32\)",
    other_dtype: r"its own weights: head.bias is \(\(3,\), torch.float64\), not \(\(3,\), torch.float32\)",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_descriptions_that_do_not_match_the_weights_are_refused(saved, damage):
    change_arrays(saved, damage)
    with unreadable(DAMAGES[damage]):
        Secret.load(saved)


def test_descriptions_that_were_changed_afterwards_are_refused(saved):
    whole = saved.read_bytes()
    assert whole.count(rb"\"seed\": 0") == 1
    saved.write_bytes(whole.replace(rb"\"seed\": 0", rb"\"seed\": 1"))
    with unreadable("it does not match its checksum: it was changed after it was written"):
        Secret.load(saved)


def test_other_versions_are_refused_by_number(saved):
    change_arrays(saved, lambda description, weights: description.update(version=99, library="9.9"))
    with unreadable(r"has format version 99, this library reads 1: open it with secret-rl 9\.9"):
        Secret.load(saved)


def test_missing_files_are_named(tmp_path):
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(FileNotFoundError, match=f"{path} is not a file"):
            Secret.load(path)


@contextmanager
def full_at_the_end():
    """The disk is found to be full when the file is synchronised."""

    def no_space_left(file):
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", no_space_left)
        yield "No space"


@contextmanager
def full_in_the_middle():
    """No file gets larger than 4096 bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        yield "File too large"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("full", [full_at_the_end, full_in_the_middle])
@pytest.mark.parametrize("existing", [True, False])
def test_a_failed_save_leaves_the_old_file_and_nothing_else(learned, tmp_path, existing, full):
    path = tmp_path / "model.safetensors"
    before = {path.name: learned.save(path).read_bytes()} if existing else {}
    with full() as message, pytest.raises(OSError, match=message):
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
        ("filters", (), "filters must hold 1 to 16 positive numbers"),
        ("filters", (4, 0), "filters must hold 1 to 16 positive numbers"),
        ("dropout_dense", 1.0, "dropout_dense must lie in"),
        ("dropout_block", -0.1, "dropout_block must lie in"),
        ("dropout_steps", 2, "dropout_steps must lie in"),
        ("value_gain", float("inf"), "value_gain must be a number, got inf"),
        ("value_gain", "3", "value_gain must be a number, got '3'"),
        ("steps", 0, "steps must be at least 1, got 0"),
        ("batch_size", 0, "batch_size must be at least 1"),
        ("evaluate_every", -5, "evaluate_every must be at least 1"),
        ("patience", 0, "patience must be at least 1"),
        ("warmup", -1, "warmup must not be negative"),
        ("weight_decay", -1.0, "weight_decay must not be negative"),
        ("looking_cost", -1.0, "looking_cost must not be negative"),
        ("validation", 0, "validation must lie between 0 and 1, got 0"),
        ("validation", 1.0, "validation must lie between 0 and 1"),
        ("learning_rate", 0.0, "learning_rate must be positive"),
        ("weights", "printed", "weights must be one of residual, paper, got 'printed'"),
        ("weights", None, "weights must be one of residual, paper, got None"),
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
