"""Tables: state keys, lookups, files, and what they say of tables that do not fit."""

import copy
import pickle
import warnings
from collections import namedtuple
from math import floor
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sealing import change_json

from secret_rl.envs.triggers import TriggersEnv, TriggersVectorEnv
from secret_rl.files import FileFormatError
from secret_rl.shaping import Cells, CoverageWarning, Observed, PotentialShaping, TablePotential, VectorPotentialShaping
from secret_rl.shaping.states import canonical
from secret_rl.testing.shaping import EveryEnding, OneEnvironment

atoms = st.one_of(
    st.integers(), st.floats(allow_nan=False), st.text(max_size=3), st.booleans(), st.none(), st.binary(max_size=3)
)
keys = st.recursive(atoms, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)
values = st.floats(allow_nan=False, allow_infinity=False)
tables = st.dictionaries(keys, values, min_size=1, max_size=8)
Point = namedtuple("Point", "x y")


def value(table, state):
    return float(table.lookup([state])[0])


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
    assert OneEnvironment(TablePotential.load(path, state=parity)).start(6, {}) == 0.5


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
    for one in (TablePotential({**table, 0: 0.25, (5, 5): 0.5}), TablePotential({**table, 0: 0.25})):
        expected = [one.values.get(canonical(state), 0.0) for state in states]
        value(one, 0)
        assert one.lookup(states).tolist() == expected


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda table: pickle.loads(pickle.dumps(table))])
def test_tables_travel(copied):
    table = TablePotential({(1, 2): 0.5, 4: 1.0}, state=Cells(2), reward_bound=2)
    table.lookup(np.arange(3))
    assert dict(copied(table).values) == dict(table.values)
    assert copied(table).state == table.state


@pytest.mark.parametrize(
    ("table", "more", "error", "message"),
    [
        ({3: float("nan")}, {}, ValueError, "Phi of state 3 is nan: expected a finite number"),
        ({3: "much"}, {}, TypeError, "Phi of state 3 must be a number, got 'much'"),
        ({3: 10**400}, {}, TypeError, "Phi of state 3 must be a number"),
        ({}, {}, ValueError, "holds no state: use NoPotential"),
        ([0.5, 1.0], {}, TypeError, "a dict of state: value, got list"),
        ({float("nan"): 1.0}, {}, ValueError, "NaN equals nothing"),
        ({(1, (2, np.float32("nan"))): 1.0}, {}, ValueError, "NaN equals nothing"),
        ({1: 1.0}, {"state": "place"}, TypeError, "state must be None, .* got 'place'"),
        ({1: 1.0}, {"reward_bound": float("nan")}, ValueError, "reward_bound is nan"),
        ({1: 1.0}, {"reward_bound": -1}, ValueError, "reward_bound must not be negative, got -1"),
    ],
)
def test_bad_arguments_are_named(table, more, error, message):
    with pytest.raises(error, match=message):
        TablePotential(table, **more)
    with pytest.raises(TypeError, match=r"\{'a': 1\} cannot be a state: .* state="):
        value(TablePotential({1: 1.0}), {"a": 1})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "something else"}, "it says format 'something else', expected 'secret-rl table potential'"),
        ({"values": [0.5]}, r"zip\(\) argument 2 is shorter"),
        ({"values": 3}, "not iterable"),
        ({"values": [0.5, True]}, "True is not a finite number"),
        ({"values": [10**400, 1]}, "too large"),
        ({"states": ["a", "a"]}, "names a state twice"),
        ({"states": ["a", {"__reduce__": "os.system"}]}, "is not a state"),
        ({"states": ["a", {"bytes": "zz"}]}, "non-hexadecimal"),
        ({"states": ["a", {"float": "nan"}]}, "is not a state"),
        ({"states": [], "values": []}, "holds no state"),
        ({"state": {"kind": "os.system", "name": "true"}}, "unknown source of states"),
        ({"state": {"kind": "Cells", "size": -1, "keys": []}}, "must be positive"),
        ({"reward_bound": "lots"}, "reward_bound must be a number"),
    ],
)
def test_files_that_were_tampered_with_are_refused(tmp_path, change, message):
    """Also where the checksum is made to match."""
    path = TablePotential({(1, 2): 0.5, "a": 1.0}, state=Cells(2)).save(tmp_path / "bad.json")
    change_json(path, lambda content: content.update(change))
    with pytest.raises(FileFormatError, match=f"bad.json cannot be read as 'secret-rl table potential': .*{message}"):
        TablePotential.load(path)


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
    env = VectorPotentialShaping(TriggersVectorEnv(40), foreign, 0.9)
    if not vector:
        env = PotentialShaping(TriggersEnv(), foreign, 0.9)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            env.reset(seed=0)
            for _ in range(40):
                env.step(np.zeros(40, int) if vector else 0)
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


def test_tabulate_says_what_the_states_are_worth():
    model = SimpleNamespace(states=[4, 5, 6], observations=np.array([[0.2], [1.7], [0.9]]))
    assert TablePotential({5: 1.0, 6: 2.0}).tabulate(model)["potential"].tolist() == [0, 1, 2]
    cells = TablePotential({(0,): 3.0}, state=Cells(1)).tabulate(model)
    assert cells["potential"].tolist() == [3, 0, 3]
    with pytest.raises(AttributeError, match="one at a time"):
        TablePotential({5: 1.0}, state=lambda observation, info: 5).tabulate(model)


sizes = st.floats(0.01, 100)
PLACE = gym.spaces.Box(-9, 9, (2,))
ROOM = gym.spaces.Dict({"place": PLACE, "cue": gym.spaces.Discrete(4), "word": gym.spaces.Text(3)})


@given(st.data(), sizes)
def test_cells_are_floors(data, size):
    """Appendix A: Euclidean division by the cell size."""
    place = data.draw(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=4))
    assert Cells(size)(np.array(place), {}) == tuple(floor(x / size) for x in place)
    several = tuple(size * (k + 1) for k in range(len(place)))
    assert Cells(several)(np.array(place), {}) == tuple(floor(x / s) for x, s in zip(place, several, strict=True))
    assert all(type(number) is int for number in Cells(size)(np.array(place, np.float32), {}))


def test_cells_of_pictures_and_numbers():
    assert Cells(2)(np.arange(6).reshape(2, 3), {}) == (0, 0, 1, 1, 2, 2)
    assert Cells(2)(5, {}) == (2,)
    assert Cells(2).rows(np.arange(4)).tolist() == [[0], [0], [1], [1]]
    assert Cells([0.5, np.float32(2)]) == Cells((0.5, 2.0))


@pytest.mark.parametrize(
    ("refused", "error", "message"),
    [
        (lambda: Cells(1)(np.array([0.0, np.nan]), {}), ValueError, "lies in no cell"),
        (lambda: Cells(1)(np.array([0.0, -np.inf]), {}), ValueError, "lies in no cell"),
        (lambda: Cells(1).rows(np.array([[0.0, 1.0], [0.0, np.inf]])), ValueError, "lies in no cell"),
        (lambda: Cells(0), ValueError, "must be positive and finite, got 0"),
        (lambda: Cells((1, np.inf)), ValueError, "got inf"),
        (lambda: Cells(()), ValueError, "size is empty"),
        (lambda: Cells("50"), TypeError, "must be a number, got '5'"),
        (lambda: Cells(None), TypeError, "must be a number, got None"),
        (lambda: Cells(1, "place"), TypeError, "keys must be a tuple"),
        (lambda: Cells((1, 1, 1)).check_space(PLACE), ValueError, "3 cell sizes, but the observation has 2 dimensions"),
        (lambda: Cells(1, ("place",)).check_space(PLACE), TypeError, "keys= names entries of a Dict; leave it out"),
        (lambda: Cells(1).check_space(ROOM), TypeError, r"choose entries with keys=, of \['cue', 'place', 'word'\]"),
        (lambda: Cells(1, ("plaice",)).check_space(ROOM), ValueError, "names the entry 'plaice', but there are"),
        (lambda: Cells((1, 1), ("place", "cue")).check_space(ROOM), ValueError, "2 cell sizes, .* 3 dimensions"),
        (lambda: Cells(1, ("word",)).check_space(ROOM), TypeError, "expected a Box or whole numbers"),
        (lambda: Observed().check_space(ROOM), TypeError, "expected numbers; use Cells"),
        (lambda: Observed().rows({"a": np.zeros((2, 2))}), TypeError, "needs arrays of observations, got dict"),
    ],
)
def test_what_does_not_fit_is_named(refused, error, message):
    with pytest.raises(error, match=message):
        refused()


def test_observed_is_the_observation():
    assert Observed()(np.int64(3), {}) == 3 and type(Observed()(np.int64(3), {})) is int
    assert Observed()(np.array([1.0, -0.0]), {}) == (1.0, 0.0)
    rows = np.array([[1, 2], [3, 4]])
    assert [canonical(row) for row in Observed().rows(rows)] == [Observed()(row, {}) for row in rows]
