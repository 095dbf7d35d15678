"""Tables: state keys, lookups, files, and what they say of tables that do not fit."""

import warnings
from collections import namedtuple
from math import floor

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secret_rl.envs.triggers import TriggersEnv, TriggersVectorEnv
from secret_rl.files import FileFormatError
from secret_rl.shaping import (
    CoverageWarning,
    GridKey,
    ObservationKey,
    PotentialShaping,
    TablePotential,
    VectorPotentialShaping,
)
from secret_rl.shaping.table import canonical
from secret_rl.testing.shaping import OneEnvironment

finite = st.floats(allow_nan=False, allow_infinity=False)
atoms = st.one_of(st.integers(), finite, st.text(max_size=3), st.booleans(), st.none(), st.binary(max_size=3))
keys = st.recursive(atoms, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)
tables = st.dictionaries(keys, finite, min_size=1, max_size=8)
Point = namedtuple("Point", "x y")


def value(table, state):
    return float(table.lookup([state])[0])


SOURCES = [None, ObservationKey(), GridKey(50), GridKey((0.5, 1), keys=("place", "cue"))]


@given(tables, st.one_of(st.none(), st.floats(0, 1e9)), st.sampled_from(SOURCES))
def test_files_give_back_the_table(tmp_path, table, reward_bound, state):
    saved = TablePotential(table, reward_bound=reward_bound, state=state)
    read = TablePotential.load(saved.save(tmp_path / "t.json"))
    assert list(map(repr, read.values.items())) == list(map(repr, saved.values.items())), "1, 1.0 and True stay apart"
    assert (read.reward_bound, read.bound, read.state) == (reward_bound, saved.bound, state)
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"], "nothing is left behind"


def test_what_a_file_does_not_hold(tmp_path):
    def parity(observation, info):
        return observation % 2

    path = TablePotential({0: 0.5}, state=parity).save(tmp_path / "t.json")
    with pytest.raises(FileFormatError, match=r"function .*parity.*TablePotential.load\(path, state=...\)"):
        TablePotential.load(path)
    assert OneEnvironment(TablePotential.load(path, state=parity)).start(6, {}) == 0.5
    with pytest.raises(TypeError, match=r"state frozenset\(\{1\}\) cannot be saved"):
        TablePotential({frozenset({1}): 1.0}).save(path)
    assert dict(TablePotential.load(path, state=parity).values) == {0: 0.5}, "the old file stays"
    path.write_text(path.read_text().replace("0.5", "0.7"))
    with pytest.raises(FileFormatError, match="does not match its checksum"):
        TablePotential.load(path)


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
    st.dictionaries(st.integers(-60, 60), finite, min_size=1, max_size=30),
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
    "states", [np.array([-(2**63), 2**63 - 1, 5, -7]), np.array([2**64 - 7, 5], np.uint64), ["a", 5]]
)
@pytest.mark.parametrize("table", [{5: 1.0, -7: 2.0}, {5: 1.0, 2**63 - 1: 2.0, -(2**63): 3.0}, {"a": 2.0, 5: 3.0}])
def test_many_lookups_at_the_edges(table, states):
    table = TablePotential(table)
    assert table.lookup(states).tolist() == [table.values.get(canonical(state), 0.0) for state in states]


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


sizes = st.floats(0.01, 100)
PLACE = gym.spaces.Box(-9, 9, (2,))
ROOM = gym.spaces.Dict({"place": PLACE, "cue": gym.spaces.Discrete(4), "word": gym.spaces.Text(3)})


@given(st.data(), sizes)
def test_cells_are_floors(data, size):
    """Appendix A: Euclidean division by the cell size."""
    place = data.draw(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=4))
    assert GridKey(size)(np.array(place), {}) == tuple(floor(x / size) for x in place)
    several = tuple(size * (k + 1) for k in range(len(place)))
    assert GridKey(several)(np.array(place), {}) == tuple(floor(x / s) for x, s in zip(place, several, strict=True))
    assert all(type(number) is int for number in GridKey(size)(np.array(place, np.float32), {}))


def test_cells_of_pictures_and_numbers():
    assert GridKey(2)(np.arange(6).reshape(2, 3), {}) == (0, 0, 1, 1, 2, 2)
    assert GridKey(2)(5, {}) == (2,)
    assert GridKey(2).rows(np.arange(4)).tolist() == [[0], [0], [1], [1]]
    assert GridKey([0.5, np.float32(2)]) == GridKey((0.5, 2.0))


def wrapped(key, space):
    """A table of such keys, given observations of a space."""
    TablePotential({0: 1.0}, state=key).check_spaces(space, gym.spaces.Discrete(2))


@pytest.mark.parametrize(
    ("refused", "error", "message"),
    [
        (lambda: TablePotential({3: float("nan")}), ValueError, "Phi of state 3 is nan: expected a finite number"),
        (lambda: TablePotential({}), ValueError, "holds no state: use NoPotential"),
        (lambda: TablePotential([0.5, 1.0]), TypeError, "a dict of state: value, got list"),
        (lambda: TablePotential({1: 1.0}, state="place"), TypeError, "state must be None, .* got 'place'"),
        (lambda: TablePotential({1: 1.0}, reward_bound=-1), ValueError, "reward_bound must be 0 or more, got -1"),
        (lambda: TablePotential({1: 1.0}).lookup([{"a": 1}]), TypeError, r"\{'a': 1\} cannot be a state: .* state="),
        (lambda: GridKey(1)(np.array([0.0, np.nan]), {}), ValueError, "lies in no cell"),
        (lambda: GridKey(1).rows(np.array([[0.0, 1.0], [0.0, np.inf]])), ValueError, "lies in no cell"),
        (lambda: GridKey(0), ValueError, "cell_size must be the side of a cell, a positive number, got 0"),
        (lambda: GridKey(1, "place"), TypeError, "keys must be a tuple"),
        (lambda: wrapped(GridKey((1, 1, 1)), PLACE), ValueError, "3 cell sizes for 2 numbers"),
        (lambda: wrapped(GridKey(1, ("place",)), PLACE), ValueError, "keys= are the entries to take of a Dict"),
        (lambda: wrapped(GridKey(1), ROOM), ValueError, "does not fit Dict.*keys= are the entries to take of a Dict"),
        (lambda: wrapped(GridKey(1, ("plaice",)), ROOM), ValueError, "does not fit Dict.*'plaice'"),
        (lambda: wrapped(GridKey((1, 1), ("place", "cue")), ROOM), ValueError, "2 cell sizes for 3 numbers"),
        (lambda: wrapped(ObservationKey(), ROOM), ValueError, "expected an array or numbers; use GridKey"),
    ],
)
def test_bad_arguments_are_named(refused, error, message):
    with pytest.raises(error, match=message):
        refused()
