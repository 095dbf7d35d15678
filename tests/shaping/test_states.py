"""State keys: the grid over observations, and the observation itself."""

from math import floor

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secret_rl.shaping import Cells, Observed
from secret_rl.shaping.states import canonical

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


@given(st.data(), sizes, st.sampled_from([np.float32, np.float64, np.int16]))
def test_many_cells_are_cells(data, size, dtype):
    rows = data.draw(st.lists(st.tuples(*[st.floats(-1e4, 1e4)] * 3), min_size=1, max_size=6))
    places = np.array(rows).astype(dtype)
    for cells in (Cells(size), Cells((size, 1.0, 2 * size))):
        many = cells.rows(places)
        assert many.dtype == np.int64
        assert [tuple(row) for row in many.tolist()] == [cells(place, {}) for place in places]
    cues = np.arange(len(rows)) % 4
    joined = Cells((size, size, size, 1), keys=("place", "cue"))
    assert [tuple(row) for row in joined.rows({"place": places, "cue": cues}).tolist()] == [
        joined({"place": place, "cue": int(cue)}, {}) for place, cue in zip(places, cues, strict=True)
    ]


def test_cells_of_pictures_and_numbers():
    assert Cells(2)(np.arange(6).reshape(2, 3), {}) == (0, 0, 1, 1, 2, 2)
    assert Cells(2)(5, {}) == (2,)
    assert Cells(2).rows(np.arange(4)).tolist() == [[0], [0], [1], [1]]
    assert Cells([0.5, np.float32(2)]) == Cells((0.5, 2.0))


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_what_lies_nowhere_is_refused(number):
    with pytest.raises(ValueError, match="lies in no cell"):
        Cells(1)(np.array([0.0, number]), {})
    with pytest.raises(ValueError, match="lies in no cell"):
        Cells(1).rows(np.array([[0.0, 1.0], [0.0, number]]))
    with pytest.raises(ValueError, match="lies in no cell"):
        Cells(1)("a", {})


@pytest.mark.parametrize(
    ("size", "keys", "error", "message"),
    [
        (0, (), ValueError, "must be positive and finite, got 0"),
        (-1.0, (), ValueError, "got -1.0"),
        ((1, np.nan), (), ValueError, "got nan"),
        ((1, np.inf), (), ValueError, "got inf"),
        ((), (), ValueError, "size is empty"),
        ("50", (), TypeError, "must be a number, got '5'"),
        (True, (), TypeError, "must be a number, got True"),
        (None, (), TypeError, "must be a number, got None"),
        (1, "place", TypeError, "keys must be a tuple"),
        (1, (3,), TypeError, "keys must be a tuple"),
    ],
)
def test_bad_cells_are_named(size, keys, error, message):
    with pytest.raises(error, match=message):
        Cells(size, keys)


@pytest.mark.parametrize(
    ("state", "space", "error", "message"),
    [
        (Cells((1, 1, 1)), PLACE, ValueError, "3 cell sizes, but the observation has 2 dimensions"),
        (Cells(1, ("place",)), PLACE, TypeError, "keys= names entries of a Dict; leave it out"),
        (Cells(1), ROOM, TypeError, r"choose entries with keys=, of \['cue', 'place', 'word'\]"),
        (Cells(1, ("plaice",)), ROOM, ValueError, "names the entry 'plaice', but there are"),
        (Cells((1, 1), ("place", "cue")), ROOM, ValueError, "2 cell sizes, .* 3 dimensions"),
        (Cells(1, ("word",)), ROOM, TypeError, "expected a Box or whole numbers"),
        (Observed(), ROOM, TypeError, "expected numbers; use Cells"),
    ],
)
def test_spaces_that_do_not_fit_are_named(state, space, error, message):
    with pytest.raises(error, match=message):
        state.check_space(space)


def test_spaces_that_fit_pass():
    for cells in (Cells(1), Cells((1, 2))):
        cells.check_space(PLACE)
    Cells((1, 1, 1), ("place", "cue")).check_space(ROOM)
    Cells(3).check_space(gym.spaces.Discrete(4))
    Cells(3, ("cue",)).check_space(ROOM)
    Observed().check_space(gym.spaces.Discrete(4))


def test_observed_is_the_observation():
    assert Observed()(np.int64(3), {}) == 3 and type(Observed()(np.int64(3), {})) is int
    assert Observed()(np.array([1.0, -0.0]), {}) == (1.0, 0.0)
    rows = np.array([[1, 2], [3, 4]])
    assert [canonical(row) for row in Observed().rows(rows)] == [Observed()(row, {}) for row in rows]
    with pytest.raises(TypeError, match="needs arrays of observations, got dict"):
        Observed().rows({"a": rows})
