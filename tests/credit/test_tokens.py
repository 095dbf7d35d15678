"""Steps as tokens: nothing is lost between the trajectories and the model."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from secret_rl.credit import tokens as tokens_module
from secret_rl.credit.tokens import Tokens, _distinct_rows, arrays_of, as_tensor
from secret_rl.testing.strategies import trajectories
from secret_rl.trajectories import Trajectories


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


def test_a_table_found_in_parts_is_the_same(monkeypatch):
    column = np.random.default_rng(0).integers(0, 20, 500)
    whole = _distinct_rows([column])
    monkeypatch.setattr(tokens_module, "_ROWS_AT_A_TIME", 7)
    for one, other in zip(_distinct_rows([column]), whole, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("with_table", [True, False])
@given(data=trajectories(), seed=st.integers(0, 2**32 - 1))
def test_a_batch_holds_the_original_steps(with_table, data, seed):
    data = repeated(data, seed)
    with pytest.MonkeyPatch.context() as patch:
        if not with_table:
            patch.setattr(tokens_module, "_distinct_rows", lambda columns: None)
        tokens = Tokens.of(data)
    assert (tokens.ids is not None) == with_table
    episodes = np.random.default_rng(seed).integers(0, len(data), 5)
    batch = tokens.batch(episodes)
    assert batch.lengths.tolist() == data.lengths[episodes].tolist()
    assert batch.index.shape == (5, data.lengths[episodes].max())
    for place, number in enumerate(episodes.tolist()):
        episode = data[number]
        index = batch.index[place, : len(episode)].numpy()
        pairs = [(batch.observations, episode.observations), (batch.actions, episode.actions)]
        for found, expected in pairs:
            for mine, theirs in zip(arrays_of(found), arrays_of(expected), strict=True):
                np.testing.assert_array_equal(mine.numpy()[index], theirs)
        np.testing.assert_array_equal(batch.classes[place, : len(episode)].numpy() - 1, np.sign(episode.rewards))


@given(st.integers(1, 400), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_a_pass_visits_every_episode_exactly_once(count, size, seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 30, count)
    tokens = Tokens(np.zeros(lengths.sum()), np.zeros(1), None, np.cumsum([0, *lengths]), np.zeros(1))
    episodes = np.sort(rng.permutation(len(lengths))[: max(1, len(lengths) // 2)])
    batches = tokens.order(episodes, size, rng)
    assert sorted(np.concatenate(batches).tolist()) == episodes.tolist()
    assert len(batches) == -(-len(episodes) // size)
    assert max(len(batch) for batch in batches) <= size
    in_order = list(tokens.in_order(episodes, size))
    assert sorted(np.concatenate(in_order).tolist()) == episodes.tolist()
    assert np.all(np.diff(tokens.lengths[np.concatenate(in_order)]) >= 0)


@given(st.lists(st.sampled_from([1.0, -1.0, 0.0]), min_size=1, max_size=300))
def test_episodes_with_a_rare_sign_are_met_more_often(rewards):
    """Up to a fifth of what is met, never more than 20 times; the others, and signs that are not rare, once."""
    count = len(rewards)
    data = Trajectories.from_episodes(
        [{"observations": np.zeros(2), "actions": np.zeros(2, int), "rewards": np.array([0, r])} for r in rewards]
    )
    episodes, times = np.unique(Tokens.of(data).with_rare_repeated(np.arange(count)), return_counts=True)
    assert episodes.tolist() == list(range(count))
    for sign in (1, -1, 0):
        of_sign = times[np.sign(rewards) == sign]
        share = len(of_sign) / count
        if sign == 0 or share >= 0.2:
            assert (of_sign == 1).all()
        elif share:
            assert (of_sign == min(round(0.2 / share), 20)).all()


def test_passes_differ_and_batches_hold_similar_lengths():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 100, 320)
    tokens = Tokens(np.zeros(lengths.sum()), np.zeros(1), None, np.cumsum([0, *lengths]), np.zeros(1))
    first, second = (tokens.order(np.arange(320), 10, rng) for _ in range(2))
    assert np.concatenate(first).tolist() != np.concatenate(second).tolist()
    padded = sum(len(batch) * lengths[batch].max() for batch in first)
    assert padded < 1.1 * lengths.sum(), "sorted by length, little is padded"
    assert [lengths[b].max() for b in first] != sorted(lengths[b].max() for b in first), "short ones do not come first"


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.int8, np.int64, np.float32, np.float64, np.bool_])
def test_arrays_become_tensors_of_the_same_values(dtype):
    array = np.arange(12).reshape(3, 4)[:, ::2].astype(dtype)
    array.flags.writeable = False
    np.testing.assert_array_equal(as_tensor(array).numpy(), array)
    as_tensor(array)[0, 0] = 1
    assert not array[0, 0], "a copy: the data of the user stays as it is"


def test_mapped_trajectories_make_the_same_batches(tmp_path, cues):
    data = cues(20)
    mapped = Trajectories.load(data.save(tmp_path / "cues"))
    episodes = np.array([3, 1, 19])
    one, other = (Tokens.of(d).batch(episodes) for d in (data, mapped))
    for name in ("observations", "actions", "index", "classes", "lengths"):
        assert torch.equal(getattr(one, name), getattr(other, name))
