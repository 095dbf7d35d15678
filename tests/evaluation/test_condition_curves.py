"""Learning curves as data: checked when made, the same after a round trip, written whole or not at all."""

import csv
import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from secret_rl.evaluation import LearningCurves

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


@pytest.mark.parametrize("suffix", [".npz", ".json"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_round_trip_changes_no_bit(tmp_path, suffix, dtype):
    for number, curves in enumerate([everything(dtype), LearningCurves({"only": numbers(2, dtype)})]):
        path = curves.save(tmp_path / "deep" / f"{number}{suffix}")
        assert_same(LearningCurves.load(path), curves)
    assert sorted(p.name for p in path.parent.iterdir()) == [f"0{suffix}", f"1{suffix}"]
    assert_same(pickle.loads(pickle.dumps(curves)), curves)  # other processes may be handed one


@given(
    arrays(np.float64, st.tuples(*[st.integers(1, 3)] * 3), elements=st.floats(allow_nan=False, allow_infinity=False))
)
def test_any_finite_returns_survive_json(tmp_path_factory, returns):
    path = tmp_path_factory.mktemp("any") / "curves.json"
    np.testing.assert_array_equal(LearningCurves.load(LearningCurves({"x": returns}).save(path))["x"], returns)


def test_json_holds_plain_numbers(tmp_path):
    content = json.loads(everything().save(tmp_path / "curves.json").read_text())
    assert content["names"] == ["none", "pending, n=100"]
    assert content["returns"] == [numbers(0).tolist(), numbers(1).tolist()]
    assert content["optimal"] == [0.9, 0.8]


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


@pytest.mark.parametrize("name", ["curves.npz", "curves.json"])
def test_a_failed_write_leaves_the_old_file(tmp_path, name, monkeypatch):
    path = everything().save(tmp_path / name)
    before = path.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        LearningCurves({"other": numbers(3)}).save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [name]


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
    with pytest.raises(ValueError, match="curves.pkl ends in '.pkl', expected '.npz' or '.json'"):
        everything().save(tmp_path / "curves.pkl")
    with pytest.raises(FileNotFoundError):
        LearningCurves.load(tmp_path / "nowhere.npz")
    np.savez(tmp_path / "other.npz", format=np.array("something else"))
    with pytest.raises(ValueError, match="other.npz cannot be read as learning curves: format 'something else'"):
        LearningCurves.load(tmp_path / "other.npz")
    np.savez(tmp_path / "pickle.npz", format=np.array(_Trap(), dtype=object))
    with pytest.raises(ValueError, match="cannot be read as learning curves"):
        LearningCurves.load(tmp_path / "pickle.npz")
    assert not _Trap.sprung
    (tmp_path / "cut.json").write_text(everything().save(tmp_path / "a.json").read_text()[:-50])
    with pytest.raises(ValueError, match="cut.json cannot be read as learning curves"):
        LearningCurves.load(tmp_path / "cut.json")


class _Trap:
    sprung = False

    def __reduce__(self):
        return setattr, (_Trap, "sprung", True)
