"""What each view does to a space and to rows, and how it is written down."""

import json
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.views.cases import CASES, IMAGE, ROOM, Room

from secret_rl.views import CenteredView, CropView, DropView, MaskView, ViewObservation, view_from_json, view_to_json


@given(
    st.integers(1, 9), st.integers(1, 9), st.sampled_from([(), (1,), (3,)]), st.sampled_from([1, 3, 5, 7, 9]),
    st.integers(0, 5), st.integers(0, 99),
)  # fmt: skip
def test_a_crop_keeps_the_cells_around_the_middle(height, width, channels, window, count, seed):
    images = np.random.default_rng(seed).integers(0, 255, (count, height, width, *channels)).astype(np.uint8)
    low = np.arange(height * width, dtype=float).reshape(height, width)
    view, space = CropView(window), gym.spaces.Box(low, low + 1, dtype=np.float64)
    if window > min(height, width):
        for attempt in (lambda: view.space(space), lambda: view.rows(images)):
            with pytest.raises(ValueError, match=f"larger than an image of {height}x{width}"):
                attempt()
        return
    around = np.arange(-(window // 2), window // 2 + 1)
    cells = np.ix_(height // 2 + around, width // 2 + around)
    cropped = view.rows(images)
    assert cropped.flags.c_contiguous and cropped.shape == (count, window, window, *channels)
    for one, image in zip(cropped, images, strict=True):
        np.testing.assert_array_equal(one, image[cells])
    np.testing.assert_array_equal(view.space(space).low, low[cells])
    np.testing.assert_array_equal(view.space(space).high, low[cells] + 1)


@given(st.data(), st.lists(st.integers(1, 4), min_size=1, max_size=3), st.sampled_from([np.uint8, np.float32]))
def test_a_mask_overwrites_its_region_and_nothing_else(data, shape, dtype):
    starts = [data.draw(st.integers(0, side - 1)) for side in shape]
    pairs = [
        (start, data.draw(st.integers(start + 1, side))) for start, side in zip(starts, shape, strict=True)
    ][: data.draw(st.integers(1, len(shape)))]  # fmt: skip
    rows = np.random.default_rng(0).integers(0, 9, (5, *shape)).astype(dtype)
    before = rows.copy()
    masked = MaskView(tuple(pairs), value=9).rows(rows)
    np.testing.assert_array_equal(rows, before)
    assert masked.dtype == rows.dtype
    for cell in np.ndindex(*shape):
        inside = all(start <= at < stop for at, (start, stop) in zip(cell, pairs, strict=False))
        np.testing.assert_array_equal(masked[:, *cell], np.full(5, 9) if inside else rows[:, *cell])


def centered_slowly(image, window, channel):
    """One cell after another."""
    height, width, channels = image.shape
    [(row, column)] = np.argwhere(image[..., channel] != 0)
    view = np.zeros((window, window, channels), image.dtype)
    for i, j in np.ndindex(window, window):
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
def test_a_centered_view_shows_what_surrounds_the_agent(height, width, channels, window, dtype, count, data):
    channel = data.draw(st.integers(0, channels - 1))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    images = rng.integers(0, 200, (count, height, width, channels)).astype(dtype)
    images[..., channel] = 0
    for image in images:
        image[rng.integers(height), rng.integers(width), channel] = rng.integers(1, 200)
    before, view = images.copy(), CenteredView(window, channel)
    rows = view.rows(images)
    assert rows.shape == (count, window, window, channels) and rows.dtype == images.dtype
    for one, image in zip(rows, images, strict=True):
        np.testing.assert_array_equal(one, centered_slowly(image, window, channel))
    np.testing.assert_array_equal(images, before)
    np.testing.assert_array_equal(view.rows(np.asfortranarray(images)), rows, "however the images lie in memory")
    if dtype is not np.bool_:
        space = view.space(gym.spaces.Box(0, 200, images.shape[1:], dtype))
        assert all(one in space for one in rows)


def test_bounds_of_a_centered_view():
    low, high = np.full((2, 3, 2), 2.0), np.full((2, 3, 2), 7.0)
    low[..., 1], high[..., 1], high[1, 2, 0] = 0, 255, 9
    space = CenteredView(3, channel=1).space(gym.spaces.Box(low, high, dtype=np.float64))
    assert space == gym.spaces.Box(0, np.broadcast_to([9.0, 1.0], (3, 3, 2)), dtype=np.float64), "0 beyond the edge"


def test_images_without_one_marked_cell_are_named():
    images = np.zeros((3, 4, 4, 2), np.uint8)
    images[:, 1, 1, 0] = 1
    images[1, 2, 2, 0] = 1
    with pytest.raises(ValueError, match=r"channel 0 marks 2 cells in row 1, but CenteredView\(window=3.*exactly one"):
        CenteredView(3).rows(images)
    images[1, 1:, :, 0] = 0
    images[0, 0, 0, 0] = 1  # as many marks as rows
    with pytest.raises(ValueError, match="channel 0 marks 2 cells in row 0"):
        CenteredView(3).rows(images)
    with pytest.raises(ValueError, match="channel 1 marks 0 cells in row 0"):
        CenteredView(3, channel=1).rows(images[2:])


@pytest.mark.parametrize("view", [*(view for _, views in CASES for view in views), CenteredView(5, 2, "image")])
def test_views_survive_json(view):
    again = view_from_json(json.loads(json.dumps(view_to_json(view))))
    assert again == view and hash(again) == hash(view) and type(again) is type(view)


def test_numbers_of_numpy_make_the_same_views():
    assert CenteredView(np.int64(3), np.int8(1)) == CenteredView(3, 1)
    mask = MaskView([[np.int64(1), 2]], value=np.uint8(2))
    assert mask == MaskView(((1, 2),), value=2) and json.dumps(view_to_json(mask))
    assert DropView(["a"]) == DropView(("a",))


@dataclass(frozen=True)
class Nameless:
    thing: object


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: CropView(4), ValueError, "window must be odd.*got 4: use 3 or 5"),
        (lambda: CropView(-3), ValueError, "window must be an integer of at least 1, got -3"),
        (lambda: CropView(3.0), TypeError, "window must be an integer .* got 3.0"),
        (lambda: CenteredView(3, channel=-1), ValueError, "channel must be an integer of at least 0, got -1"),
        (lambda: MaskView((6, 7)), TypeError, r"pairs, one for each axis, got \(6, 7\).*written \(\(start, stop\),\)"),
        (lambda: MaskView(((1, 2, 3),)), TypeError, r"pairs, one for each axis, got \(\(1, 2, 3\),\)"),
        (lambda: MaskView(((0.5, 2),)), TypeError, "start must be an integer .* got 0.5"),
        (lambda: MaskView(((3, 3),)), ValueError, "stop must be an integer of at least 4, got 3"),
        (lambda: MaskView(((-1, 2),)), ValueError, "start must be an integer of at least 0, got -1"),
        (lambda: MaskView(((0, 1),), value=(1, 2)), TypeError, r"value must be one number, got \(1, 2\)"),
        (lambda: DropView("mission"), TypeError, "tuple of strings, got 'mission'"),
        (lambda: DropView((1,)), TypeError, r"tuple of strings, got \(1,\)"),
        (lambda: view_from_json({"kind": "Fog", "window": 3}), ValueError, "unknown kind of view 'Fog'.*CropView"),
        (lambda: view_to_json(object()), TypeError, "object object .* expected a view that is a dataclass"),
        (lambda: view_to_json(Nameless(object())), TypeError, "Nameless.*a dataclass of JSON values"),
        (lambda: ViewObservation(Room(), 3), TypeError, "3 is not a view: expected CropView"),
        (lambda: ViewObservation(Room(), CropView), TypeError, "CropView'> is not a view"),
    ],
)
def test_bad_views_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("space", "view", "error", "message"),
    [
        (IMAGE, CropView(9), ValueError, r"CropView\(window=9.*larger than an image of 7x7: use a window of at most 7"),
        (gym.spaces.Box(0, 1, (4,)), CropView(3), ValueError, r"CropView\(window=3.*shape \(4,\): expected \(rows"),
        (gym.spaces.Discrete(4), CropView(3), TypeError, r"CropView.*does not fit Discrete\(4\): expected a Box"),
        (ROOM, CropView(3), TypeError, "expected a Box; choose an entry with key=, one of .*image"),
        (ROOM, CropView(3, "imag"), ValueError, "names the entry 'imag', but the observation has .*'image'"),
        (IMAGE, CropView(3, "image"), TypeError, "key='image'.*expected a Dict with named entries; leave out key="),
        (IMAGE, MaskView(((0, 1),), float("nan")), ValueError, "value nan .* lies outside"),
        (IMAGE, CenteredView(3, channel=3), ValueError, r"channel=3.*shape \(7, 7, 3\).*more than 3 channels"),
        (gym.spaces.Box(0, 1, (4, 4)), CenteredView(3), ValueError, r"shape \(4, 4\): expected \(rows, columns"),
        (IMAGE, MaskView(((6, 8),)), ValueError, r"region \(\(6, 8\),\).*outside an observation of shape \(7, 7, 3\)"),
        (IMAGE, MaskView(((0, 1),) * 4), ValueError, r"outside .* shape \(7, 7, 3\): expected at most 3"),
        (IMAGE, MaskView(((0, 1),), 10), ValueError, "value 10 .* lies outside Box.* use a uint8 from 0 to 9"),
        (IMAGE, MaskView(((0, 1),), 0.5), ValueError, "value 0.5 .* lies outside Box.* use a uint8"),
        (gym.spaces.MultiBinary(3), MaskView(((0, 1),)), TypeError, r"MaskView.*does not fit MultiBinary\(3\)"),
        (IMAGE, DropView(("a",)), TypeError, r"DropView\(keys=\('a',\).*does not fit Box.*expected a Dict"),
        (ROOM, DropView(("mission",)), ValueError, "names the entry 'mission', but the observation has .*'bag'"),
        (ROOM, DropView(("image", "direction", "bag")), ValueError, "leaves 0 entries of .*expected at least one"),
        (ROOM, DropView(("image",), squeeze=True), ValueError, "leaves 2 entries of .*exactly one"),
    ],
)  # fmt: skip
def test_views_that_do_not_fit_are_named(space, view, error, message):
    with pytest.raises(error, match=message):
        ViewObservation(Room(space), view)
