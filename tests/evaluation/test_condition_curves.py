"""Learning curves as data: checked when made, the same after a round trip, written whole or not at all."""

import csv
import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from tests.sealing import assert_tampering_is_refused

from secret_rl.evaluation import LearningCurves
from secret_rl.files import FileFormatError

SHAPE = (2, 3, 4)


def numbers(seed=0, dtype=np.float64):
    return np.random.default_rng(seed).normal(size=SHAPE).astype(dtype)


def everything(dtype=np.float64):
    return LearningCurves(
        {"none": numbers(0, dtype), "pending, n=100": numbers(1, dtype)},
        lengths={"none": np.full(SHAPE, 9), "pending, n=100": np.full(SHAPE, 5)},
        optimal=[0.9, 0.8],
        collected={"pending, n=100": 100},
        collected_steps={"pending, n=100": [4_000, 5_000]},
    )


def assert_same(one, other):
    assert one.names == other.names
    mine, theirs = one._arrays(), other._arrays()
    assert mine.keys() == theirs.keys()
    for name, array in mine.items():
        np.testing.assert_array_equal(array, theirs[name])
        assert array.dtype.kind == theirs[name].dtype.kind
    assert one._arrays()["returns"].dtype == other._arrays()["returns"].dtype


def test_what_was_put_in_comes_out():
    curves = everything()
    assert (curves.mazes, curves.seeds, curves.episodes) == SHAPE
    assert list(curves) == ["none", "pending, n=100"] and len(curves) == 2
    np.testing.assert_array_equal(curves["none"], numbers(0))
    np.testing.assert_array_equal(curves.collected["none"], [0, 0])
    np.testing.assert_array_equal(curves.collected["pending, n=100"], [100, 100])
    np.testing.assert_array_equal(curves.collected_steps["none"], [0, 0])
    assert repr(curves) == "LearningCurves of 'none', 'pending, n=100': 2 mazes x 3 seeds x 4 episodes"
    assert LearningCurves({"a": [[[1, 2]]]})["a"].dtype == np.float64
    assert LearningCurves({"a": numbers(dtype=np.float32)})["a"].dtype == np.float32


def test_nothing_can_be_changed_afterwards():
    mine = numbers()
    curves = LearningCurves({"none": mine}, optimal=1.0)
    mine[:] = 7
    np.testing.assert_array_equal(curves["none"], numbers())
    for array in (curves["none"], curves.optimal, curves.collected["none"]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(AttributeError):
        curves.returns = {}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_round_trip_changes_no_bit(tmp_path, dtype):
    for number, curves in enumerate([everything(dtype), LearningCurves({"only": numbers(2, dtype)})]):
        path = curves.save(tmp_path / "deep" / f"{number}.safetensors")
        assert_same(LearningCurves.load(path), curves)
    assert sorted(p.name for p in path.parent.iterdir()) == ["0.safetensors", "1.safetensors"]
    assert_same(pickle.loads(pickle.dumps(curves)), curves)  # other processes may be handed one


@given(
    arrays(np.float64, st.tuples(*[st.integers(1, 3)] * 3), elements=st.floats(allow_nan=False, allow_infinity=False)),
    st.text(min_size=1).filter(lambda name: name.strip() and name.isprintable()),
)
def test_any_finite_returns_and_names_survive(tmp_path_factory, returns, name):
    path = tmp_path_factory.mktemp("any") / "curves.safetensors"
    again = LearningCurves.load(LearningCurves({name: returns}).save(path))
    assert again.names == (name,) and again[name].tobytes() == returns.tobytes()


def test_other_tools_read_the_arrays(tmp_path):
    path = everything().save(tmp_path / "curves.safetensors")
    found = load_file(path)
    np.testing.assert_array_equal(found["returns"], [numbers(0), numbers(1)])
    np.testing.assert_array_equal(found["optimal"], [0.9, 0.8])
    with safe_open(path, framework="np") as file:
        assert json.loads(file.metadata()["secret_rl"])["names"] == ["none", "pending, n=100"]


def test_the_table_has_a_row_for_each_episode(tmp_path):
    curves = everything()
    with curves.to_csv(tmp_path / "curves.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * np.prod(SHAPE)
    for row in rows:
        place = int(row["maze"]), int(row["seed"]), int(row["episode"])
        assert float(row["return"]) == curves[row["condition"]][place]
        assert int(row["length"]) == curves.lengths[row["condition"]][place]
    assert len({(r["condition"], r["maze"], r["seed"], r["episode"]) for r in rows}) == len(rows)
    plain = LearningCurves({"a": [[[0.5]]]}).to_csv(tmp_path / "plain.csv").read_text().splitlines()
    assert plain == ["condition,maze,seed,episode,return", "a,0,0,0,0.5"]


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = everything().save(tmp_path / "curves.safetensors")
    before = path.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        LearningCurves({"other": numbers(3)}).save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"returns": {}}, "no condition: pass returns="),
        ({"returns": {"": numbers()}}, "a condition needs a printable name, got ''"),
        ({"returns": {"a\nb": numbers()}}, "a condition needs a printable name"),
        ({"returns": {3: numbers()}}, "a condition needs a printable name, got 3"),
        ({"returns": {"a": np.zeros((2, 3))}}, r"returns of 'a' have shape \(2, 3\), expected \(mazes, seeds, ep"),
        ({"returns": {"a": np.zeros((2, 0, 4))}}, r"returns of 'a' have shape \(2, 0, 4\)"),
        ({"returns": {"a": np.full(SHAPE, np.nan)}}, "returns of 'a' hold nan at maze 0, seed 0, episode 0"),
        (
            {"returns": {"a": numbers(), "b": numbers()[:, :2]}},
            r"'b' has \(mazes, seeds, episodes\) \(2, 2, 4\) but 'a' \(2, 3, 4\): .* the same mazes, seeds and number",
        ),
        ({"returns": {"a": numbers(), "b": numbers()[..., 1:]}}, r"'b' has .* \(2, 3, 3\) but 'a' \(2, 3, 4\)"),
        ({"optimal": [1.0, 2.0, 3.0]}, r"optimal has shape \(3,\), expected one number or one for each of 2 mazes"),
        ({"optimal": np.nan}, "optimal must be finite"),
        ({"lengths": {"c": np.ones(SHAPE, int)}}, r"lengths of \['c'\], but the conditions are \('a', 'b'\)"),
        ({"lengths": {"a": np.ones(SHAPE, int)}}, r"lengths of \['a'\] without those of \['b'\]: give all"),
        ({"lengths": dict.fromkeys("ab", np.ones((2, 3), int))}, r"lengths of 'a' have shape \(2, 3\)"),
        ({"lengths": dict.fromkeys("ab", np.zeros(SHAPE, int))}, "lengths of 'a' must be whole numbers of at least 1"),
        ({"collected": {"c": 1}}, r"collected of \['c'\], but the conditions are"),
        ({"collected": {"a": -1}}, "collected of 'a' must be whole numbers of at least 0, got -1"),
        ({"collected": {"a": 9, "b": 9}, "collected_steps": {"a": 9}}, r"collected_steps of \['a'\] without .*\['b'\]"),
    ],
)
def test_bad_curves_are_refused(how, message):
    with pytest.raises(ValueError, match=message):
        LearningCurves(**{"returns": {"a": numbers(), "b": numbers()}, **how})


def test_unknown_conditions_and_files_are_refused(tmp_path):
    with pytest.raises(KeyError, match="no condition 'value': these curves are of 'none', 'pending, n=100'"):
        everything()["value"]
    for suffix in (".pkl", ".npz", ".json"):
        said = f"curves{suffix} ends in '{suffix}', expected '.safetensors'"
        with pytest.raises(ValueError, match=said):
            everything().save(tmp_path / f"curves{suffix}")
    with pytest.raises(FileNotFoundError):
        LearningCurves.load(tmp_path / "nowhere.safetensors")
    cannot = "cannot be read as 'secret-rl learning curves': "
    save_file({"returns": numbers()}, tmp_path / "other.safetensors")
    with pytest.raises(FileFormatError, match=f"other.safetensors {cannot}it is a safetensors file of something else"):
        LearningCurves.load(tmp_path / "other.safetensors")
    np.savez(tmp_path / "pickle.npz", format=np.array(_Trap(), dtype=object))
    (tmp_path / "pickle").write_bytes(pickle.dumps(_Trap()))
    for name in ("pickle.npz", "pickle"):
        with pytest.raises(FileFormatError, match=f"{name} {cannot}"):
            LearningCurves.load(tmp_path / name)
    assert not _Trap.sprung
    path = everything().save(tmp_path / "cut.safetensors")
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(FileFormatError, match=f"cut.safetensors {cannot}.*does not fit its bytes"):
        LearningCurves.load(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda about, arrays: about.update(format="something else"), "it says format 'something else'"),
        (lambda about, arrays: about.update(version=2), "it has format version 2"),
        (lambda about, arrays: about.pop("names"), "names"),
        (lambda about, arrays: about.update(names=["only"]), "argument 2 is longer"),
        (lambda about, arrays: about.update(names=["a", "b\n"]), "a condition needs a printable name"),
        (lambda about, arrays: about.update(names=[3, 4]), "a condition needs a printable name, got 3"),
        (lambda about, arrays: arrays.pop("returns"), "returns"),
        (lambda about, arrays: arrays.update(extra=arrays["returns"]), "extra"),
        (lambda about, arrays: arrays.update(returns=arrays["returns"] * np.inf), "returns holds NaN or infinite"),
        (lambda about, arrays: arrays.update(lengths=np.zeros((2, *SHAPE), int)), "lengths of 'none' must be whole"),
        (lambda about, arrays: arrays.update(optimal=np.zeros(3)), r"optimal has shape \(3,\)"),
    ],
)
def test_files_that_were_tampered_with_are_refused(tmp_path, change, said):
    path = everything().save(tmp_path / "curves.safetensors")
    assert_tampering_is_refused(LearningCurves.load, path, change, f"'secret-rl learning curves': .*{said}")


def test_files_that_were_damaged_are_refused(tmp_path):
    path = everything().save(tmp_path / "curves.safetensors")
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(FileFormatError, match="returns does not match its checksum"):
        LearningCurves.load(path)
    path.write_bytes(content.replace(b"pending, n=100", b"pending, n=101"))
    with pytest.raises(FileFormatError, match="it does not match its checksum"):
        LearningCurves.load(path)


class _Trap:
    sprung = False

    def __reduce__(self):
        return setattr, (_Trap, "sprung", True)
