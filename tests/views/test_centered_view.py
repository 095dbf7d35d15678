"""The view around the agent: the crop that Triggers itself gives, from the image of its full state."""

import json

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import given
from hypothesis import strategies as st

import secret_rl as srl
from secret_rl.envs.triggers import TriggersEnv, TriggersVectorEnv
from secret_rl.views import (
    CenteredView,
    CropView,
    VectorViewObservation,
    ViewObservation,
    apply_view,
    view_from_json,
    view_to_json,
)

ID = "secret_rl/Triggers-v0"


@pytest.mark.parametrize("inverted", [False, True])
@pytest.mark.parametrize(
    ("size", "window", "triggers"), [(8, 3, 1), (8, 3, 3), (8, 5, 1), (4, 7, 2), (2, 3, 1), (1, 3, 0), (6, 1, 1)]
)
def test_the_full_state_becomes_the_crop(size, window, triggers, inverted):
    if size == 1:  # no room for a prize beside the agent
        view, image = CenteredView(window), np.ones((1, 1, 3), np.uint8)
        assert view.one(image)[..., 0].sum() == 8 and view.one(image)[1, 1].tolist() == [0, 1, 1]
        return
    options = {"size": size, "triggers": triggers, "inverted": inverted}
    whole = srl.collect(ID, 30, seed=3, env_options={**options, "window": None})
    crops = srl.collect(ID, 30, seed=3, env_options={**options, "window": window})
    centered = apply_view(whole, CenteredView(window))
    assert centered.equals(crops), "bit for bit, spaces and final observations included"
    assert centered.observations.dtype == crops.observations.dtype
    assert centered.observations.flags["C_CONTIGUOUS"]
    assert centered.meta["views"] == [{"kind": "CenteredView", "window": window, "channel": 0, "key": None}]


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_wrapped_environments_are_their_narrow_selves(mode):
    options = {"size": 4, "triggers": 1, "max_steps": 9}
    wide = VectorViewObservation(TriggersVectorEnv(4, **options, window=None, autoreset_mode=mode), CenteredView(3))
    narrow = TriggersVectorEnv(4, **options, window=3, autoreset_mode=mode)
    np.testing.assert_array_equal(wide.reset(seed=1)[0], narrow.reset(seed=1)[0])
    for step in range(30):
        actions = np.random.default_rng(step).integers(0, 4, 4)
        mine, other = wide.step(actions), narrow.step(actions)
        np.testing.assert_array_equal(mine[0], other[0])
        over = mine[2] | mine[3]
        if mode is AutoresetMode.SAME_STEP and over.any():
            for i in np.flatnonzero(over):
                np.testing.assert_array_equal(mine[4]["final_obs"][i], other[4]["final_obs"][i])
        if mode is AutoresetMode.DISABLED and over.any():
            for env in (wide, narrow):
                env.reset(options={"reset_mask": over.copy()})
    single = ViewObservation(TriggersEnv(**options, window=None), CenteredView(3))
    assert single.observation_space == narrow.single_observation_space
    assert single.reset(seed=0)[0] in single.observation_space


def slow(image, window, channel):
    """One cell after another."""
    height, width, channels = image.shape
    [(row, column)] = np.argwhere(image[..., channel] != 0)
    view = np.zeros((window, window, channels), image.dtype)
    for i in range(window):
        for j in range(window):
            r, c = row + i - window // 2, column + j - window // 2
            inside = 0 <= r < height and 0 <= c < width
            if inside:
                view[i, j] = image[r, c]
            view[i, j, channel] = not inside
    return view


@given(
    height=st.integers(1, 6),
    width=st.integers(1, 6),
    channels=st.integers(1, 4),
    window=st.sampled_from([1, 3, 5, 9]),
    dtype=st.sampled_from([np.uint8, np.int32, np.float32, np.bool_]),
    count=st.integers(0, 5),
    data=st.data(),
)
def test_rows_at_once_are_cells_one_after_another(height, width, channels, window, dtype, count, data):
    channel = data.draw(st.integers(0, channels - 1))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    images = rng.integers(0, 200, (count, height, width, channels)).astype(dtype)
    images[..., channel] = 0
    for image in images:
        image[rng.integers(height), rng.integers(width), channel] = rng.integers(1, 200)
    given_images = images.copy()
    view = CenteredView(window, channel)
    rows = view.rows(images)
    assert rows.shape == (count, window, window, channels) and rows.dtype == images.dtype
    for row, image in zip(rows, images, strict=True):
        np.testing.assert_array_equal(row, slow(image, window, channel))
        np.testing.assert_array_equal(row, view.one(image))
    np.testing.assert_array_equal(images, given_images)
    turned = np.asfortranarray(images)
    np.testing.assert_array_equal(view.rows(turned), rows, "however the images lie in memory")
    if dtype is not np.bool_:
        space = view.space(gym.spaces.Box(0, 200, images.shape[1:], dtype))
        assert all(row in space for row in rows)


def test_bounds_of_the_space():
    low, high = np.full((2, 3, 2), 2.0), np.full((2, 3, 2), 7.0)
    low[..., 1], high[..., 1] = 0, 255
    high[1, 2, 0] = 9
    space = CenteredView(3, channel=1).space(gym.spaces.Box(low, high, dtype=np.float64))
    assert space.shape == (3, 3, 2) and space.dtype == np.float64
    assert (space.low[..., 0] == 0).all(), "beyond the edge there is 0"
    assert (space.high[..., 0] == 9).all() and (space.low[..., 1] == 0).all() and (space.high[..., 1] == 1).all()
    below = CenteredView(3).space(gym.spaces.Box(-4, 0, (2, 2, 1), np.float32))
    assert (below.low == 0).all() and (below.high == 1).all(), "a mark may be negative"


def test_one_entry_of_a_dict():
    view = CenteredView(3, key="image")
    image = np.zeros((4, 4, 2), np.uint8)
    image[0, 0, 0] = 1
    seen = view.one({"image": image, "other": 5})
    assert seen["other"] == 5 and seen["image"].shape == (3, 3, 2)
    space = gym.spaces.Dict({"image": gym.spaces.Box(0, 1, (4, 4, 2), np.uint8), "other": gym.spaces.Discrete(9)})
    assert view.space(space)["image"].shape == (3, 3, 2) and view.space(space)["other"] == space["other"]


@pytest.mark.parametrize("view", [CenteredView(3), CenteredView(5, 2, "image")])
def test_it_survives_json_and_the_spec_of_an_environment(view):
    again = view_from_json(json.loads(json.dumps(view_to_json(view))))
    assert again == view and hash(again) == hash(view)
    env = ViewObservation(gym.make(ID, window=None), CenteredView(3))
    assert gym.make(env.spec).observation_space == env.observation_space
    assert CenteredView(np.int64(3), np.int8(1)) == CenteredView(3, 1)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: CenteredView(4), ValueError, "positive odd number.*agent is in the middle, got 4: use 3 or 5"),
        (lambda: CenteredView(-1), ValueError, "positive odd number.*got -1"),
        (lambda: CenteredView(3.0), TypeError, "window must be an integer, got 3.0"),
        (lambda: CenteredView(3, channel="agent"), TypeError, "channel must be an integer, got 'agent'"),
        (lambda: CenteredView(3, channel=-1), ValueError, "channel must be counted from the front, from 0, got -1"),
        (lambda: CenteredView(3, key=0), TypeError, "key must name entries .* got 0"),
    ],
)
def test_bad_views_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


BOX = gym.spaces.Box(0, 1, (4, 4, 3), np.uint8)


@pytest.mark.parametrize(
    ("space", "view", "error", "message"),
    [
        (BOX, CenteredView(3, channel=3), ValueError, r"channel=3.*shape \(4, 4, 3\).*more than 3 channels"),
        (gym.spaces.Box(0, 1, (4, 4)), CenteredView(3), ValueError, r"shape \(4, 4\): expected \(rows, columns"),
        (gym.spaces.Discrete(3), CenteredView(3), TypeError, r"does not fit Discrete\(3\): expected a Box"),
        (gym.spaces.Dict(a=BOX), CenteredView(3), TypeError, r"choose an entry with key=, one of \['a'\]"),
        (gym.spaces.Box(1, 2, (4, 4, 3)), CenteredView(3), ValueError, "channel 0 of Box.* cannot mark one cell"),
        (gym.spaces.Box(0, 0, (4, 4, 3)), CenteredView(3), ValueError, "cannot mark one cell.*another channel"),
    ],
)  # fmt: skip
def test_views_that_do_not_fit_are_named(space, view, error, message):
    with pytest.raises(error, match=message):
        view.space(space)


def test_images_without_one_marked_cell_are_named():
    images = np.zeros((3, 4, 4, 2), np.uint8)
    images[:, 1, 1, 0] = 1
    images[1, 2, 2, 0] = 1
    with pytest.raises(ValueError, match=r"channel 0 marks 2 cells in row 1, but CenteredView\(window=3.*exactly one"):
        CenteredView(3).rows(images)
    images[1, 1:, :, 0] = 0
    with pytest.raises(ValueError, match="channel 0 marks 0 cells in row 1"):
        CenteredView(3).rows(images)
    images[0, 0, 0, 0] = 1  # as many marks as rows
    with pytest.raises(ValueError, match="channel 0 marks 2 cells in row 0"):
        CenteredView(3).rows(images)
    with pytest.raises(ValueError, match="channel 1 marks 0 cells in row 0"):
        CenteredView(3, channel=1).one(images[2])


def test_views_follow_one_another():
    whole = srl.collect(ID, 5, env_options={"window": None})
    crops = srl.collect(ID, 5, env_options={"window": 3})
    assert apply_view(whole, CenteredView(7), CropView(3)).equals(crops)
