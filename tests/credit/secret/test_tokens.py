"""Steps as tokens: nothing is lost between the trajectories and the model, and encoders learn what names mean."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from tests.credit.conftest import episodes_of

from secret_rl.credit.secret import tokens as tokens_module
from secret_rl.credit.secret.model import Dropout, RewardPredictor
from secret_rl.credit.secret.tokens import Tokens, _distinct_rows, as_tensor, steps_rarely_repeat
from secret_rl.credit.secret.training import teach_encoder
from secret_rl.testing.strategies import trajectories
from secret_rl.trajectories.nested import arrays_of
from secret_rl.trajectories.spaces import to_json


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


def test_rows_that_hardly_repeat_or_whose_hashes_collide_make_no_table(monkeypatch):
    assert _distinct_rows([np.arange(1000)]) is None
    assert _distinct_rows([np.zeros((1000, 2000), np.uint8)]) is None, "pictures are not compared"
    assert _distinct_rows([np.arange(1000) % 100]) is not None
    monkeypatch.setattr(tokens_module, "_hashes", lambda columns: np.zeros(len(columns[0]), np.uint64))
    assert _distinct_rows([np.arange(1000) % 2]) is None
    where, ids = _distinct_rows([np.ones(1000)])
    assert where.tolist() == [0] and not ids.any()


def test_a_clock_in_small_observations_is_noticed():
    def data(observations, shape):
        return episodes_of([observations[:999]], np.zeros((1, 999)), seen=spaces.Box(0, 1, shape, np.float32))

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


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.int8, np.int64, np.float32, np.float64, np.bool_])
def test_arrays_become_tensors_of_the_same_values(dtype):
    array = np.arange(12).reshape(3, 4)[:, ::2].astype(dtype)
    array.flags.writeable = False
    np.testing.assert_array_equal(as_tensor(array).numpy(), array)
    as_tensor(array)[0, 0] = 1
    assert not array[0, 0], "a copy: the data of the user stays as it is"


def pictures_that_differ_in_one_cell(episodes=60, length=6):
    rng = np.random.default_rng(0)
    scene = rng.integers(0, 3, (5, 5, 1), np.uint8)
    observations = np.repeat(scene[None], episodes * length, axis=0)
    observations[:, 2, 2, 0] = rng.integers(0, 3, len(observations))
    shape = episodes, length
    actions, space = rng.integers(0, 2, shape), spaces.Box(0, 2, scene.shape, np.uint8)
    return episodes_of(np.split(observations, episodes), np.zeros(shape), actions, space)


def test_the_encoder_learns_what_names_mean(make_model, signs):
    torch.manual_seed(0)  # of the names
    data = pictures_that_differ_in_one_cell()
    tokens = Tokens.of(data, signs).with_names(data)
    assert tokens is not None and tokens.ids is not None
    model = make_model(data.observation_space, data.action_space, units=32)
    specs = to_json(data.observation_space), to_json(data.action_space)
    teacher = RewardPredictor(*specs, 3, model.options, names=len(tokens.first))
    teacher.load_state_dict(model.state_dict(), strict=False)
    table = tokens.table("cpu")
    with torch.no_grad():
        before = model.encode(table, Dropout(None))
        assert torch.dist(teacher.eval().encode(table, Dropout(None)), before) < 0.5 * before.norm(), "small at first"
        teacher.names.weight += torch.randn_like(teacher.names.weight)  # what learning made of them
        wanted = teacher.encode(table, Dropout(None))
    kept = {name: value.clone() for name, value in teacher.state_dict().items()}
    teach_encoder(model, teacher, tokens, seed=0)
    with torch.no_grad():
        after = model.eval().encode(table, Dropout(None))
    assert torch.dist(after, wanted) < 0.7 * torch.dist(before, wanted)
    assert all(torch.equal(value, kept[name]) for name, value in teacher.state_dict().items()), "it stays as it was"
    others = {name: value for name, value in model.state_dict().items() if not name.startswith("encoder.")}
    assert others.keys() == {name for name in kept if not name.startswith(("encoder.", "names."))}
    assert all(torch.equal(value, kept[name]) for name, value in others.items())


def test_a_clock_is_left_out_of_names(signs):
    """A Dict of a symbol and a clock that never shows the same time twice, as a vector with a constant beside it."""
    rng = np.random.default_rng(0)
    clock = np.stack([rng.random((80, 20)), np.ones((80, 20))], 2).astype(np.float32)
    seen = [{"clock": times, "symbol": rng.integers(0, 4, 20)} for times in clock]
    space = spaces.Dict({"clock": spaces.Box(0, 1, (2,), np.float32), "symbol": spaces.Discrete(4)})
    data = episodes_of(seen, np.zeros((80, 20)), rng.integers(0, 2, (80, 20)), space)
    tokens = Tokens.of(data, signs)
    assert tokens.ids is None, "no step repeats"
    named = tokens.with_names(data)
    assert named is not None and named.names is not None
    first = np.zeros(data.steps, bool)
    first[data.offsets[:-1]] = True
    parts = np.stack([data.observations["symbol"], data.actions, first], 1)
    _, wanted = np.unique(parts, axis=0, return_inverse=True)
    pairs = set(zip(named.names.tolist(), wanted.ravel().tolist(), strict=True))
    assert len(pairs) == len(set(named.names.tolist())) == wanted.max() + 1, "alike in all else: the same name"
    moved = named.moved(torch.device("cpu"))
    rows = np.array([0, 5, 17])
    assert moved.table("cpu", rows).names.tolist() == named.names[rows].tolist()
    assert named.batch(np.array([1])).rows.names.tolist() == named.names[20:40].tolist()
