"""What each view hides: in spaces, rows, environments and stored trajectories, which all mean the same."""

from dataclasses import dataclass
from functools import reduce

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

import secret_rl as srl
from secret_rl.trajectories.nested import map_arrays
from secret_rl.views import (
    CenteredView,
    CropView,
    DropView,
    MaskView,
    View,
    ViewObservation,
    apply_view,
)  # fmt: skip

ID = "secret_rl/Triggers-v0"

IMAGE = gym.spaces.Box(0, 9, (7, 7, 3), np.uint8)
BAG = gym.spaces.Dict({"key": gym.spaces.Discrete(2), "weight": gym.spaces.Box(-1, 1, (4,), np.float32)})
ROOM = gym.spaces.Dict([("image", IMAGE), ("direction", gym.spaces.Discrete(4)), ("bag", BAG)])
IMAGE_VIEWS = [
    (CropView(3),),
    (CropView(7),),
    (MaskView(((3, 4), (6, 7))),),
    (MaskView(((0, 2),), value=4), MaskView(((0, 7), (0, 7), (1, 3)), value=2)),
    (CropView(5), MaskView(((2, 3), (2, 3))), CropView(1)),
]
DICT_VIEWS = [
    (MaskView(((3, 4), (6, 7)), 1, key="image"), DropView(("direction",))),
    (DropView(("weight",), key="bag"), CropView(1, "image")),
    (DropView(("direction", "bag"), squeeze=True), CropView(5)),
    (DropView(("key",), squeeze=True, key="bag"), MaskView(((1, 3),), 0.25, key="bag")),
]
CASES = [(IMAGE, views) for views in IMAGE_VIEWS] + [(ROOM, views) for views in DICT_VIEWS]


class Room(gym.Env):
    """Random observations of a space, in episodes of 2 to 5 steps."""

    metadata = {"render_modes": [], "annotations": ["luck"]}  # noqa: RUF012  as Gymnasium has it

    def __init__(self, observation_space=ROOM):
        self.observation_space = observation_space
        self.action_space = gym.spaces.Discrete(3)

    def _look(self):
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        return self.observation_space.sample(), {"state": self._left, "luck": float(self.np_random.random())}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._left = int(self.np_random.integers(2, 6))
        return self._look()

    def step(self, action):
        self._left -= 1
        observation, info = self._look()
        return observation, float(action), self._left == 0, False, info


def blind(observation, rng):
    """Plays the same whatever it sees."""
    return int(rng.integers(3))


def look(env, views):
    return reduce(ViewObservation, views, env)


@pytest.mark.parametrize(
    ("wide", "view", "narrow"),
    [
        (7, CropView(3), 3), (7, CropView(5), 5), (5, CropView(1), 1), (3, CropView(3), 3), (None, CenteredView(3), 3),
        (None, CenteredView(5), 5), (None, CenteredView(1), 1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [2, 8])
def test_a_wide_window_through_a_view_is_the_narrow_window(wide, view, narrow, size):
    """Bit for bit, spaces and final observations included: in trajectories and an environment."""
    options = {"size": size, "triggers": 1, "max_steps": 9}
    data = srl.collect(ID, 30, seed=3, env_options={**options, "window": wide})
    expected = srl.collect(ID, 30, seed=3, env_options={**options, "window": narrow})
    seen = apply_view(data, view)
    assert seen.equals(expected) and seen.observations.flags.c_contiguous
    env = ViewObservation(gym.make(ID, window=wide, **options), view)
    assert srl.collect(env, 8, blind, seed=3).equals(
        srl.collect(gym.make(ID, window=narrow, **options), 8, blind, seed=3)
    )


@pytest.mark.parametrize(("space", "views"), CASES)
def test_wrapping_then_collecting_is_collecting_then_transforming(space, views):
    env = look(Room(space), views)
    wrapped = srl.collect(env, 12, blind, seed=5)
    plain = srl.collect(Room(space), 12, blind, seed=5)
    seen = apply_view(plain, *views)
    assert seen.equals(wrapped) and seen.observation_space == env.observation_space
    assert seen.equals(plain) == (views == (CropView(7),)), "only a crop to the whole image hides nothing"
    for nest, count in ((seen.observations, seen.steps), (seen.final_observations, len(seen))):
        assert all(map_arrays(lambda rows, i=i: rows[i], nest) in seen.observation_space for i in range(count))
    before, after = ({n: a for n, a in d.columns().items() if "observations" not in n} for d in (plain, seen))
    assert before.keys() == after.keys() and all(before[name] is after[name] for name in before)
    assert seen.offsets is plain.offsets and seen.action_space == plain.action_space
    assert {name: value for name, value in seen.meta.items() if name != "views"} == plain.meta


def test_trajectories_without_final_observations_or_episodes():
    data = srl.Trajectories.from_episodes(
        [{"observations": np.ones((2, 5, 5), np.uint8), "actions": [0, 1], "rewards": [0, 1]}]
    )
    assert apply_view(data, CropView(3)).final_observations is None
    empty = srl.collect(Room(), 2, blind)[:0]
    seen = apply_view(empty, CropView(3, "image"), MaskView(((0, 1),), key="image"))
    assert seen.observations["image"].shape == (0, 3, 3, 3)


@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version")
@pytest.mark.filterwarnings("error")
def test_gymnasium_checker_is_content():
    check_env(ViewObservation(gym.make(ID, window=7), CropView(3)))
    for _, views in CASES[len(IMAGE_VIEWS) :]:
        check_env(look(Room(), views), skip_render_check=True)


def test_spaces_that_trajectories_do_not_know_can_be_dropped_on_the_way():
    space = gym.spaces.Dict([("image", IMAGE), ("mission", gym.spaces.Text(9))])
    remedy = r"'mission' is text.*: leave it out, views.ViewObservation\(env, views.DropView\(\('mission',\)\)\)"
    with pytest.raises(TypeError, match=remedy):
        srl.collect(Room(space), 3, blind)
    data = srl.collect(ViewObservation(Room(space), DropView(("mission",), squeeze=True)), 3, blind)
    assert data.observation_space == IMAGE
    masked = ViewObservation(Room(space), MaskView(((0, 7),), 3, key="image")).reset(seed=0)[0]
    assert (masked["image"] == 3).all()
    assert masked["mission"] == Room(space).reset(seed=0)[0]["mission"]


@dataclass(frozen=True)
class Darker:
    by: int

    def space(self, observation_space, /):
        return observation_space

    def rows(self, nest, /):
        return nest // self.by


@dataclass(frozen=True)
class Broken(Darker):
    def rows(self, nest, /):
        return nest[:, 0]


def test_views_of_ones_own_work_and_are_checked():
    assert isinstance(Darker(2), View)
    plain = srl.collect(Room(IMAGE), 6, blind, seed=1)
    wrapped = srl.collect(look(Room(IMAGE), [CropView(3), Darker(2)]), 6, blind, seed=1)
    seen = apply_view(plain, CropView(3), Darker(2))
    assert seen.equals(wrapped)
    assert seen.meta["views"][1] == "Darker(by=2)"
    with pytest.raises(ValueError, match=r"observations\[episode 0, step 0\] has shape \(7, 3\), expected \(7, 7, 3\)"):
        apply_view(plain, Broken(2))
    env = ViewObservation(gym.make(ID), Darker(2))
    assert gym.make(env.spec).view == Darker(2)


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


def test_a_centered_view_by_another_channel():
    low, high = np.full((2, 3, 2), 2.0), np.full((2, 3, 2), 7.0)
    low[..., 1], high[..., 1], high[1, 2, 0] = 0, 255, 9
    view = CenteredView(3, channel=1)
    space = view.space(gym.spaces.Box(low, high, dtype=np.float64))
    assert space == gym.spaces.Box(0, np.broadcast_to([9.0, 1.0], (3, 3, 2)), dtype=np.float64), "0 beyond the edge"
    image = np.stack([[[1.0, 2, 3], [4, 5, 6]], [[0, 0, 200], [0, 0, 0]]], -1)
    for images in (image[None], np.asfortranarray(image[None])):
        [seen] = view.rows(images)
        assert seen[..., 0].tolist() == [[0, 0, 0], [2, 3, 0], [5, 6, 0]]
        assert seen[..., 1].tolist() == [[1, 1, 1], [0, 0, 1], [0, 0, 1]]
    assert view.rows(images[:0]).shape == (0, 3, 3, 2)


def test_images_without_one_marked_cell_are_named():
    images = np.zeros((3, 4, 4, 2), np.uint8)
    images[:, 1, 1, 0] = 1
    images[1, 2, 2, 0] = 1
    with pytest.raises(ValueError, match=r"channel 0 marks 2 cells in row 1, but CenteredView\(window=3.*exactly one"):
        CenteredView(3).rows(images)
    images[2, 1, 1, 0] = 0  # as many marks as rows
    with pytest.raises(ValueError, match="channel 0 marks 2 cells in row 1"):
        CenteredView(3).rows(images)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: CropView(4), ValueError, "window must be odd.*got 4: use 3 or 5"),
        (lambda: CenteredView(3, channel=-1), ValueError, "channel must be an integer of at least 0, got -1"),
        (
            lambda: MaskView((6, 7)),
            ValueError,
            r"pairs.* one for each axis, got \(6, 7\).*written \(\(start, stop\),\)",
        ),
        (lambda: MaskView(((1, 2, 3),)), ValueError, r"pairs.* one for each axis, got \(\(1, 2, 3\),\)"),
        (lambda: MaskView(((3, 3),)), ValueError, r"0 <= start < stop.*got \(\(3, 3\),\)"),
        (lambda: DropView("mission"), TypeError, "tuple of strings, got 'mission'"),
        (lambda: ViewObservation(Room(), 3), TypeError, "3 is not a view: expected CropView"),
    ],
)
def test_bad_views_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("space", "view", "error", "message"),
    [
        (IMAGE, CropView(9), ValueError, r"CropView\(window=9.*shape \(7, 7, 3\): expected an image of at least 9"),
        (gym.spaces.Box(0, 1, (4,)), CropView(3), ValueError, r"CropView\(window=3.*shape \(4,\): expected an image"),
        (gym.spaces.Discrete(4), CropView(3), TypeError, r"CropView.*does not fit Discrete\(4\): expected a Box"),
        (ROOM, CropView(3), TypeError, "expected a Box; choose an entry with key=, one of .*image"),
        (ROOM, CropView(3, "imag"), ValueError, "names the entry 'imag', but the observation has .*'image'"),
        (IMAGE, CropView(3, "image"), TypeError, "key='image'.*expected a Dict with named entries; leave out key="),
        (IMAGE, CenteredView(3, channel=3), ValueError, r"channel=3.*shape \(7, 7, 3\).*more than 3 channels"),
        (IMAGE, MaskView(((6, 8),)), ValueError, r"region=\(\(6, 8\),\).*outside an observation of shape \(7, 7, 3\)"),
        (IMAGE, MaskView(((0, 1),) * 4), ValueError, r"outside .* shape \(7, 7, 3\)"),
        (IMAGE, MaskView(((0, 1),), 10), ValueError, "value=10.* lies outside Box.* use a uint8 from 0 to 9"),
        (IMAGE, MaskView(((0, 1),), 0.5), ValueError, "value=0.5.* lies outside Box.* use a uint8"),
        (IMAGE, MaskView(((0, 1),), float("nan")), ValueError, "value=nan.* lies outside"),
        (ROOM, DropView(("mission",)), ValueError, "names the entry 'mission', but the observation has .*'bag'"),
        (ROOM, DropView(("image", "direction", "bag")), ValueError, "leaves 0 entries of .*expected at least one"),
        (ROOM, DropView(("image",), squeeze=True), ValueError, "leaves 2 entries of .*exactly one"),
    ],
)
def test_views_that_do_not_fit_are_named(space, view, error, message):
    with pytest.raises(error, match=message):
        ViewObservation(Room(space), view)
