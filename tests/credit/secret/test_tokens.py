"""Steps as tokens: nothing is lost between the trajectories and the model."""

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from secret_rl.credit.secret import tokens as tokens_module
from secret_rl.credit.secret.tokens import Tokens, _distinct_rows, as_tensor, steps_rarely_repeat
from secret_rl.testing.strategies import trajectories
from secret_rl.trajectories import Trajectories
from secret_rl.trajectories.nested import arrays_of


def repeated(data, seed):
    """The same steps with many of them repeated: what a table is for."""
    chosen = np.random.default_rng(seed).integers(0, len(data), 40)
    return data[chosen]


@given(trajectories(), st.integers(0, 2**32 - 1))
def test_distinct_rows_rebuild_every_row_and_repeat_none(data, seed):
    data = repeated(data, seed)
    columns = [*arrays_of(data.observations), *arrays_of(data.actions)]
    where, ids = _distinct_rows(columns)
    for column in columns:
        np.testing.assert_array_equal(column[where][ids], column)
    rows = [b"".join(np.asarray(column[i]).tobytes() for column in columns) for i in range(data.steps)]
    assert len(where) == len(set(rows))
    np.testing.assert_array_equal(ids[where], np.arange(len(where)))


def test_rows_that_hardly_repeat_make_no_table():
    assert _distinct_rows([np.arange(1000)]) is None
    assert _distinct_rows([np.zeros((1000, 2000), np.uint8)]) is None, "pictures are not compared"
    assert _distinct_rows([np.arange(1000) % 100]) is not None


def test_hashes_that_collide_make_no_table(monkeypatch):
    monkeypatch.setattr(tokens_module, "_hashes", lambda columns: np.zeros(len(columns[0]), np.uint64))
    assert _distinct_rows([np.arange(1000) % 2]) is None
    where, ids = _distinct_rows([np.ones(1000)])
    assert where.tolist() == [0] and not ids.any()


def test_a_clock_in_small_observations_is_noticed():
    def data(observations, shape):
        episode = {"observations": observations, "actions": np.zeros(999, int), "rewards": np.zeros(999)}
        return Trajectories.from_episodes(
            [episode], observation_space=spaces.Box(0, 1, shape, np.float32), action_space=spaces.Discrete(2)
        )

    clock = np.linspace(0, 1, 1000, dtype=np.float32)[:, None]
    assert steps_rarely_repeat(data(clock, (1,)))
    assert not steps_rarely_repeat(data(clock.round(1), (1,)))
    assert not steps_rarely_repeat(data(np.repeat(clock, 300, axis=1), (300,))), "pictures are not compared"


@pytest.mark.parametrize("with_table", [True, False])
@given(data=trajectories(), seed=st.integers(0, 2**32 - 1))
def test_a_batch_holds_the_original_steps(signs, with_table, data, seed):
    data = repeated(data, seed)
    with pytest.MonkeyPatch.context() as patch:
        if not with_table:
            patch.setattr(tokens_module, "_distinct_rows", lambda columns: None)
        tokens = Tokens.of(data, signs)
    assert (tokens.ids is not None) == with_table
    weights = np.random.default_rng(seed).random(data.steps).astype(np.float32)
    assert (tokens.weights == 1).all()
    tokens = tokens.weighted(weights)
    episodes = np.random.default_rng(seed).integers(0, len(data), 5)
    batch = tokens.batch(episodes)
    assert batch.index.shape == (5, data.lengths[episodes].max())
    for place, number in enumerate(episodes.tolist()):
        episode = data[number]
        index = batch.index[place, : len(episode)].numpy()
        pairs = [(batch.rows.observations, episode.observations), (batch.rows.actions, episode.actions)]
        for found, expected in pairs:
            for mine, theirs in zip(arrays_of(found), arrays_of(expected), strict=True):
                np.testing.assert_array_equal(mine.numpy()[index], theirs)
        np.testing.assert_array_equal(batch.classes[place, : len(episode)].numpy() - 1, np.sign(episode.rewards))
        assert batch.rows.first[batch.index[place, : len(episode)]].tolist() == [1.0] + [0.0] * (len(episode) - 1)
        start = data.offsets[number]
        np.testing.assert_array_equal(batch.weights[place, : len(episode)], weights[start : start + len(episode)])
        assert not batch.weights[place, len(episode) :].any(), "padding weighs nothing"
    steps = np.random.default_rng(seed).integers(0, data.steps, 7)
    rows = tokens.rows(steps)
    for mine, theirs in zip(arrays_of(rows.observations), arrays_of(data.observations), strict=True):
        np.testing.assert_array_equal(mine.numpy(), theirs[steps])
    np.testing.assert_array_equal(rows.first.numpy(), np.isin(steps, data.offsets[:-1]))


def test_steps_have_names_where_there_is_a_table(cues, signs, monkeypatch):
    data = cues(40)
    tokens = Tokens.of(data, signs)
    named, specs = tokens.by_name_alone()
    batch = named.batch(np.array([3, 7]))
    np.testing.assert_array_equal(
        batch.rows.observations[batch.index].numpy().ravel(), tokens.ids[[*range(24, 32), *range(56, 64)]]
    )
    assert specs[0]["n"] == len(tokens.first) == tokens.ids.max() + 1
    np.testing.assert_array_equal(named.classes, tokens.classes)
    monkeypatch.setattr(tokens_module, "_distinct_rows", lambda columns: None)
    assert Tokens.of(data, signs).by_name_alone() is None


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.int8, np.int64, np.float32, np.float64, np.bool_])
def test_arrays_become_tensors_of_the_same_values(dtype):
    array = np.arange(12).reshape(3, 4)[:, ::2].astype(dtype)
    array.flags.writeable = False
    np.testing.assert_array_equal(as_tensor(array).numpy(), array)
    as_tensor(array)[0, 0] = 1
    assert not array[0, 0], "a copy: the data of the user stays as it is"
