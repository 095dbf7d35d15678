"""Tables: keys, lookups, files, and what they say of tables that do not fit."""

import copy
import json
import pickle
import warnings
from collections import namedtuple
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sealing import change_json

from secret_rl.envs.triggers import TriggersEnv
from secret_rl.files import FileFormatError
from secret_rl.shaping import (
    Cells,
    CoverageWarning,
    Observed,
    PotentialShaping,
    TablePotential,
    VectorPotentialShaping,
)
from secret_rl.shaping.states import canonical
from secret_rl.testing.shaping import EveryEnding

atoms = st.one_of(
    st.integers(), st.floats(allow_nan=False), st.text(max_size=3), st.booleans(), st.none(), st.binary(max_size=3)
)
keys = st.recursive(atoms, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)
values = st.floats(allow_nan=False, allow_infinity=False)
tables = st.dictionaries(keys, values, min_size=1, max_size=8)
Point = namedtuple("Point", "x y")


def value(table, state):
    return table.begin(None, {"state": state})


@given(tables, st.one_of(st.none(), st.floats(0, 1e9)))
def test_files_give_back_the_table(tmp_path, table, reward_bound):
    saved = TablePotential(table, reward_bound=reward_bound)
    read = TablePotential.load(saved.save(tmp_path / "t.json"))
    assert dict(read.values) == dict(saved.values)
    assert list(map(repr, read.values)) == list(map(repr, saved.values)), "1, 1.0 and True stay what they are"
    assert (read.reward_bound, read.bound, read.state) == (reward_bound, saved.bound, None)
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"], "nothing is left behind"


@pytest.mark.parametrize("state", [None, Observed(), Cells(50), Cells((0.5, 1), keys=("place", "cue"))])
def test_files_know_where_states_come_from(tmp_path, state):
    read = TablePotential.load(TablePotential({1: 2.0}, state=state).save(tmp_path / "t.json"))
    assert read.state == state


def test_a_function_is_given_again(tmp_path):
    def parity(observation, info):
        return observation % 2

    path = TablePotential({0: 0.5}, state=parity).save(tmp_path / "t.json")
    with pytest.raises(FileFormatError, match=r"function .*parity.*TablePotential.load\(path, state=...\)"):
        TablePotential.load(path)
    assert TablePotential.load(path, state=parity).begin(6, {}) == 0.5


@given(st.lists(st.tuples(atoms, atoms), min_size=1, max_size=3))
def test_equal_states_are_one_key(parts):
    table = TablePotential({tuple(parts): 0.5})
    assert value(table, [list(part) for part in parts]) == 0.5
    assert value(table, tuple(parts)) == 0.5


@pytest.mark.parametrize(
    ("key", "alike"),
    [
        (3, [np.int8(3), np.uint64(3), np.array(3), 3.0, np.float32(3)]),
        (0.0, [-0.0, np.float32(-0.0), np.array(-0.0), 0]),
        ((1, 0.0), [np.array([1, -0.0]), [1, 0], (np.int32(1), np.float64(-0.0)), Point(1, 0), np.array([1, 0], "i1")]),
        (("a", (1, 2)), [["a", [1, 2]], ("a", np.array([1, 2])), (np.str_("a"), (1, 2))]),
        (((1, 2), (3, 4)), [np.arange(1, 5).reshape(2, 2)]),
        (True, [np.True_, 1]),
        (b"xy", [np.bytes_(b"xy")]),
    ],
)
def test_keys_are_canonical(key, alike):
    for other in alike:
        assert value(TablePotential({key: 0.5}), other) == 0.5
        assert canonical(other) == key
        assert repr(canonical(np.float64(-0.0))) == "0.0"
        try:
            hash(other)
        except TypeError:
            continue
        made = TablePotential({other: 0.5})
        assert value(made, key) == 0.5
        assert not any(isinstance(state, np.generic) for state in made.values)


@given(
    st.dictionaries(st.integers(-60, 60), values, min_size=1, max_size=30),
    st.sampled_from([np.int8, np.int64, np.uint8, np.uint64, np.float32, object]),
    st.lists(st.integers(0, 120), max_size=50),
)
def test_many_lookups_are_lookups(table, dtype, states):
    many = np.array(states, dtype)
    potential = TablePotential({**table, 0: 1.0})
    value(potential, 0)  # one is known, so there is nothing to warn of
    answers = potential.lookup(many)
    assert answers.dtype == np.float64
    assert answers.tolist() == [value(potential, state) for state in states]


@pytest.mark.parametrize(
    "states",
    [
        np.array([-(2**63), 2**63 - 1, 0, 5, -7, 2**40]),
        np.array([2**64 - 7, 5, 0], np.uint64),
        np.array([[0, 1], [5, 5]]),
        ["a", 5, (1, 2), None],
    ],
)
@pytest.mark.parametrize(
    "table", [{5: 1.0, -7: 2.0}, {5: 1.0, 2**63 - 1: 2.0, -(2**63): 3.0}, {(0, 1): 1.0, "a": 2.0, 5: 3.0}, {5.0: 1.0}]
)
def test_many_lookups_at_the_edges(table, states):
    potential = TablePotential({**table, 0: 0.25, (5, 5): 0.5})
    whole = TablePotential({**table, 0: 0.25})
    for one in (potential, whole):
        expected = [one.values.get(canonical(state), 0.0) for state in states]
        value(one, 0)
        assert one.lookup(states).tolist() == expected


def test_tables_over_few_whole_numbers_are_arrays_and_others_are_not():
    assert TablePotential({0: 1.0, 1000: 2.0}).array is not None
    assert TablePotential({0: 1.0, 2**40: 2.0}).array is None
    assert TablePotential({0: 1.0, (0,): 2.0}).array is None


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda table: pickle.loads(pickle.dumps(table))])
def test_tables_travel(copied):
    table = TablePotential({(1, 2): 0.5, 4: 1.0}, state=Cells(2), reward_bound=2)
    table.lookup(np.arange(3))
    assert dict(copied(table).values) == dict(table.values)
    assert copied(table).state == table.state


def test_the_table_is_a_copy_and_read_only():
    given_table = {1: 0.5}
    table = TablePotential(given_table)
    given_table[1] = 9.0
    assert table.values[1] == 0.5 and len(table) == 1 and "1 states" in repr(table)
    with pytest.raises(TypeError):
        table.values[1] = 2.0


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        ({3: float("nan")}, ValueError, "Phi of state 3 is nan: expected a finite number"),
        ({(1, "a"): float("-inf")}, ValueError, r"Phi of state \(1, 'a'\) is -inf"),
        ({3: "much"}, TypeError, "Phi of state 3 must be a number, got 'much'"),
        ({3: None}, TypeError, "Phi of state 3 must be a number"),
        ({3: 10**400}, TypeError, "Phi of state 3 must be a number"),
        ({}, ValueError, "holds no state: use NoPotential"),
        ([0.5, 1.0], TypeError, "a dict of state: value, got list"),
        ({float("nan"): 1.0}, ValueError, "NaN equals nothing"),
        ({(1, (2, np.float32("nan"))): 1.0}, ValueError, "NaN equals nothing"),
    ],
)
def test_bad_tables_are_named(table, error, message):
    with pytest.raises(error, match=message):
        TablePotential(table)


def test_other_bad_arguments_are_named():
    with pytest.raises(TypeError, match="state must be None, .* got 'place'"):
        TablePotential({1: 1.0}, state="place")
    with pytest.raises(ValueError, match="reward_bound is nan"):
        TablePotential({1: 1.0}, reward_bound=float("nan"))
    with pytest.raises(ValueError, match="reward_bound must not be negative, got -1"):
        TablePotential({1: 1.0}, reward_bound=-1)
    with pytest.raises(TypeError, match=r"\{'a': 1\} cannot be a state: .* state="):
        value(TablePotential({1: 1.0}), {"a": 1})


def good_file(tmp_path):
    return TablePotential({(1, 2): 0.5, "a": 1.0}, state=Cells(2)).save(tmp_path / "bad.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "something else"}, "it says format 'something else', expected 'secret-rl table potential'"),
        ({"version": 2, "library": "9.1"}, "format version 2, this library reads 1: open it with secret-rl 9.1"),
        ({"values": [0.5]}, r"zip\(\) argument 2 is shorter"),
        ({"values": [0.5, 1.0, 1.5]}, r"zip\(\) argument 2 is longer"),
        ({"values": {"0": 1, "1": 2}}, "'0' is not a finite number"),
        ({"values": 3}, "not iterable"),
        ({"values": [0.5, "1"]}, "'1' is not a finite number"),
        ({"values": [0.5, True]}, "True is not a finite number"),
        ({"values": [0.5, None]}, "None is not a finite number"),
        ({"values": [10**400, 1]}, "too large"),
        ({"states": ["a", "a"]}, "names a state twice"),
        ({"states": ["a", {"__reduce__": "os.system"}]}, "is not a state"),
        ({"states": ["a", {"bytes": "zz"}]}, "non-hexadecimal"),
        ({"states": ["a", {"bytes": 4}]}, "is not a state"),
        ({"states": ["a", {"float": "nan"}]}, "is not a state"),
        ({"states": [], "values": []}, "holds no state"),
        ({"state": {"kind": "os.system", "name": "true"}}, "unknown source of states"),
        ({"state": 3}, "unknown source of states 3"),
        ({"state": {"kind": "Cells", "size": -1, "keys": []}}, "must be positive"),
        ({"state": {"kind": "Cells", "size": 10**400, "keys": []}}, "too large"),
        ({"reward_bound": "lots"}, "reward_bound must be a number"),
    ],
)
def test_files_that_were_tampered_with_are_refused(tmp_path, change, message):
    """Also where the checksum is made to match."""
    path = change_json(good_file(tmp_path), lambda content: content.update(change))
    with pytest.raises(FileFormatError, match=f"bad.json cannot be read as 'secret-rl table potential': .*{message}"):
        TablePotential.load(path)


@pytest.mark.parametrize("missing", ["states", "values", "format", "version", "crc32"])
def test_files_that_lack_something_are_refused(tmp_path, missing):
    path = good_file(tmp_path)
    if missing == "crc32":
        path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != missing}))
    else:
        change_json(path, lambda content: content.pop(missing))
    with pytest.raises(FileFormatError, match="bad.json cannot be read as 'secret-rl table potential'"):
        TablePotential.load(path)


@pytest.mark.parametrize("name", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("entry", ["states", "values"])
def test_numbers_that_are_none_are_refused(tmp_path, name, entry):
    path = good_file(tmp_path)
    content = json.loads(path.read_text())
    content[entry][1] = float(name)
    path.write_text(json.dumps(content))
    with pytest.raises(FileFormatError, match=f"bad.json cannot be read .*it holds the number {name}"):
        TablePotential.load(path)


@pytest.mark.parametrize(
    "change", [{"values": [0.5, 2.0]}, {"states": [[1, 3], "a"]}, {"reward_bound": 3.0}, {"crc32": 0}, {"extra": 1}]
)
def test_what_was_changed_by_accident_is_refused(tmp_path, change):
    path = good_file(tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(FileFormatError, match="bad.json cannot be read .*does not match its checksum"):
        TablePotential.load(path)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"3", b"null", b"\xff\xfe\x00", b"[" * 100_000, b'{"format": "secret-rl table potential"}',
     b"1" * 5000, pickle.dumps({1: 2.0}), b"PK\x03\x04 not really a zip"],
)  # fmt: skip
def test_files_of_anything_else_are_refused(tmp_path, content):
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match="bad.json cannot be read as 'secret-rl table potential'"):
        TablePotential.load(path)


def test_every_truncated_file_is_refused(tmp_path):
    whole = TablePotential({(1, 2): 0.5, "a": 1.0}).save(tmp_path / "t.json").read_bytes()
    for length in range(len(whole) - 2):
        (tmp_path / "cut.json").write_bytes(whole[:length])
        with pytest.raises(FileFormatError, match="restore it|expected"):
            TablePotential.load(tmp_path / "cut.json")


def test_nothing_in_a_file_is_run(tmp_path):
    class Hostile:
        def __reduce__(self):
            return (exec, (f"open({str(tmp_path / 'ran')!r}, 'w')",))

    for content in (pickle.dumps(Hostile()), pickle.dumps({"format": Hostile()}, protocol=0)):
        (tmp_path / "bad.json").write_bytes(content)
        with pytest.raises(FileFormatError):
            TablePotential.load(tmp_path / "bad.json")
        with pytest.raises(FileFormatError):
            PotentialShaping(TriggersEnv(), tmp_path / "bad.json", 0.9)
    assert not (tmp_path / "ran").exists()


def test_a_save_that_fails_midway_leaves_the_old_one(tmp_path, monkeypatch):
    path = TablePotential({1: 1.0}).save(tmp_path / "t.json")

    def full(*_):
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.replace", full)
        with pytest.raises(OSError, match="no space"):
            TablePotential({2: 2.0}).save(path)
    assert dict(TablePotential.load(path).values) == {1: 1.0}
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_file_cannot_hold_leaves_the_old_one(tmp_path):
    path = TablePotential({1: 1.0}).save(tmp_path / "t.json")
    with pytest.raises(TypeError, match=r"state frozenset\(\{1\}\) cannot be saved"):
        TablePotential({frozenset({1}): 1.0}).save(path)
    assert dict(TablePotential.load(path).values) == {1: 1.0}
    with pytest.raises(FileNotFoundError, match="is not a file"):
        TablePotential.load(tmp_path)


def test_states_of_another_kind_are_refused_at_once():
    env = PotentialShaping(EveryEnding(), TablePotential({3: 1.0, 4: 2.0}), 0.9)
    with pytest.raises(ValueError, match=r"for other states: asked for \(.*\), but its table holds 3; .*state="):
        env.reset(seed=0)
    with pytest.raises(ValueError, match=r"for other states: asked for 4, .* holds 'a'"):
        TablePotential({"a": 1.0}).lookup(np.array([4, 5]))
    mixed = TablePotential({"a": 1.0, 3: 2.0})
    assert value(mixed, 4) == 0.0
    assert value(mixed, None) == 0.0, "only the first is looked at: tables may be sparse"


@pytest.mark.parametrize("vector", [False, True])
def test_a_table_without_any_known_state_warns_once(vector):
    foreign = TablePotential({10_000 + state: 1.0 for state in range(5)})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if vector:
            envs = VectorPotentialShaping(secret_triggers(40), foreign, 0.9)
            envs.reset(seed=0)
            for _ in range(5):
                envs.step(np.zeros(40, int))
        else:
            env = PotentialShaping(TriggersEnv(), foreign, 0.9)
            for _ in range(3):
                env.reset(seed=0)
                for _ in range(40):
                    env.step(0)
    assert [warning.category for warning in caught] == [CoverageWarning]
    assert "none of the first" in str(caught[0].message) and "10000" in str(caught[0].message)


def test_a_table_with_a_known_state_never_warns():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for known in ([7], [7, *[0] * 100], [*[0] * 20, 7, *[0] * 100]):
            table = TablePotential({7: 1.0})
            for state in known:
                value(table, state)
            many = TablePotential({7: 1.0})
            many.lookup(np.array(known))
            many.lookup(np.zeros(100, int))


def secret_triggers(n):
    from secret_rl.envs.triggers import TriggersVectorEnv

    return TriggersVectorEnv(n)


def test_tabulate_says_what_the_states_are_worth():
    model = SimpleNamespace(states=[4, 5, 6], observations=np.array([[0.2], [1.7], [0.9]]))
    assert TablePotential({5: 1.0, 6: 2.0}).tabulate(model)["potential"].tolist() == [0, 1, 2]
    cells = TablePotential({(0,): 3.0}, state=Cells(1)).tabulate(model)
    assert cells["potential"].tolist() == [3, 0, 3]
    with pytest.raises(AttributeError, match="one at a time"):
        TablePotential({5: 1.0}, state=lambda observation, info: 5).tabulate(model)
