"""Views: one meaning for environments, vector environments and stored trajectories."""

import json
import pickle
from dataclasses import dataclass, replace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st

import secret_rl as srl
from secret_rl.trajectories.nested import map_arrays, named_arrays, stack
from secret_rl.views import (
    CropView,
    DropView,
    MaskView,
    VectorViewObservation,
    View,
    ViewObservation,
    apply_view,
    view_from_json,
    view_to_json,
)

ID = "secret_rl/Triggers-v0"
IMAGE = gym.spaces.Box(0, 9, (7, 7, 3), np.uint8)
BAG = gym.spaces.Dict({"key": gym.spaces.Discrete(2), "weight": gym.spaces.Box(-1, 1, (4,), np.float32)})
METADATA = {"render_modes": [], "annotations": ["luck"]}
ROOM = gym.spaces.Dict([("image", IMAGE), ("direction", gym.spaces.Discrete(4)), ("bag", BAG)])


class Room(gym.Env):
    """Random observations of a space, in episodes of 2 to 5 steps."""

    metadata = METADATA

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


IMAGE_VIEWS = [
    (CropView(3),),
    (CropView(7),),
    (MaskView(((3, 4), (6, 7))),),
    (MaskView(((3, 4), (6, 7)), value=(1, 0, 5)),),
    (MaskView(((0, 2),), value=4), MaskView(((0, 7), (0, 7), (1, 3)), value=(2, 3))),
    (CropView(5), MaskView(((2, 3), (2, 3))), CropView(1)),
]
DICT_VIEWS = [
    (CropView(3, key="image"),),
    (MaskView(((3, 4), (6, 7)), 1, key="image"), DropView(("direction",))),
    (DropView(("weight",), key="bag"), CropView(1, "image")),
    (DropView(("direction", "bag"), squeeze=True), CropView(5)),
    (DropView(("key",), squeeze=True, key="bag"), MaskView(((1, 3),), 0.25, key="bag")),
    (DropView(("image", "direction"), squeeze=True), DropView(("weight",))),
]
CASES = [(IMAGE, views) for views in IMAGE_VIEWS] + [(ROOM, views) for views in DICT_VIEWS]
ALL_VIEWS = [view for _, views in CASES for view in views]


def assert_same(mine, theirs, path="value"):
    assert type(mine) is type(theirs), path
    if isinstance(mine, dict):
        assert mine.keys() == theirs.keys(), path
        for key in mine:
            assert_same(mine[key], theirs[key], f"{path}/{key}")
    elif isinstance(mine, np.ndarray) and mine.dtype == object:
        for i, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            assert_same(a, b, f"{path}/{i}")
    elif mine is not None:
        assert np.asarray(mine).dtype == np.asarray(theirs).dtype, path
        np.testing.assert_array_equal(mine, theirs, path)


def row(nest, i):
    return map_arrays(lambda array: array[i], nest)


@pytest.mark.parametrize(("wide", "narrow"), [(7, 3), (7, 5), (5, 1), (3, 3)])
def test_the_crop_of_a_wide_window_is_the_narrow_window(wide, narrow):
    data = srl.collect(ID, 40, seed=3, env_options={"window": wide, "triggers": 1})
    expected = srl.collect(ID, 40, seed=3, env_options={"window": narrow, "triggers": 1})
    assert apply_view(data, CropView(narrow)).equals(expected)
    assert wide == narrow or not data.equals(expected)
    env = ViewObservation(gym.make(ID, window=wide), CropView(narrow))
    assert srl.collect(env, 8, blind, seed=3).equals(srl.collect(gym.make(ID, window=narrow), 8, blind, seed=3))


@pytest.mark.parametrize(("space", "views"), CASES)
def test_wrapping_then_collecting_is_collecting_then_transforming(space, views):
    wrapped = srl.collect(ViewObservation(Room(space), views), 12, blind, seed=5)
    plain = srl.collect(Room(space), 12, blind, seed=5)
    transformed = apply_view(plain, *views)
    assert transformed.equals(wrapped)
    assert transformed.final_observations is not None
    assert transformed.equals(plain) == (views == (CropView(7),)), "only a crop to the whole image hides nothing"


@pytest.mark.parametrize(("space", "views"), CASES)
def test_every_transformed_observation_is_in_the_new_space(space, views):
    data = apply_view(srl.collect(Room(space), 12, blind, seed=5), *views)
    for nest, count in ((data.observations, data.steps), (data.final_observations, len(data))):
        for i in range(count):
            assert row(nest, i) in data.observation_space
    env = ViewObservation(Room(space), views)
    assert env.observation_space == data.observation_space
    assert env.reset(seed=0)[0] in env.observation_space
    assert env.step(0)[0] in env.observation_space


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize(("space", "views"), CASES)
def test_wrap_then_vectorise_is_vectorise_then_wrap(space, views, mode):
    ours = VectorViewObservation(SyncVectorEnv([lambda: Room(space)] * 3, autoreset_mode=mode), views)
    theirs = SyncVectorEnv([lambda: ViewObservation(Room(space), views)] * 3, autoreset_mode=mode)
    assert ours.observation_space == theirs.observation_space
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.metadata["autoreset_mode"] is mode
    for mine, other in zip(ours.reset(seed=[3, 1, 4]), theirs.reset(seed=[3, 1, 4]), strict=True):
        assert_same(mine, other)
    ended = 0
    for _ in range(20):
        mine, other = ours.step(np.zeros(3, int)), theirs.step(np.zeros(3, int))
        for a, b in zip(mine, other, strict=True):
            assert_same(a, b)
        assert mine[0] in ours.observation_space
        over = mine[2] | mine[3]
        ended += over.sum()
        assert ("final_obs" in mine[4]) == (mode is AutoresetMode.SAME_STEP and over.any())
        if mode is AutoresetMode.DISABLED and over.any():
            results = [envs.reset(options={"reset_mask": over.copy()}) for envs in (ours, theirs)]
            for a, b in zip(*results, strict=True):
                assert_same(a, b)
    assert ended > 3


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_compiled_vector_env_through_a_crop_is_its_narrow_self(mode):
    def collected(envs):
        return srl.collect(envs, 12, lambda observations: np.full(3, 1), seed=4)

    options = {"triggers": 1, "max_steps": 9, "autoreset_mode": mode}
    wide = VectorViewObservation(gym.make_vec(ID, 3, window=7, **options), CropView(3))
    assert collected(wide).equals(collected(gym.make_vec(ID, 3, window=3, **options)))


@given(
    st.integers(1, 9), st.integers(1, 9), st.sampled_from([(), (1,), (3,)]), st.sampled_from([1, 3, 5, 7, 9]),
    st.integers(0, 5), st.integers(0, 99),
)  # fmt: skip
def test_a_crop_keeps_the_cells_around_the_middle(height, width, channels, window, count, seed):
    images = np.random.default_rng(seed).integers(0, 255, (count, height, width, *channels)).astype(np.uint8)
    view, space = CropView(window), gym.spaces.Box(0, 255, images.shape[1:], np.uint8)
    if window > min(height, width):
        for attempt in (lambda: view.space(space), lambda: view.rows(images)):
            with pytest.raises(ValueError, match=f"larger than an image of {height}x{width}"):
                attempt()
        return
    half = window // 2
    expected = [
        [
            [image[height // 2 + down, width // 2 + right] for right in range(-half, half + 1)]
            for down in range(-half, half + 1)
        ]
        for image in images
    ]
    cropped = view.rows(images)
    assert cropped.flags.c_contiguous
    assert cropped.shape == (count, *view.space(space).shape)
    np.testing.assert_array_equal(cropped, np.reshape(expected, cropped.shape))
    for one, image in zip(cropped, images, strict=True):
        assert_same(view.one(image), one)


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
        expected = np.full(5, 9) if inside else rows[:, *cell]
        np.testing.assert_array_equal(masked[:, *cell], expected)


def test_a_cell_is_masked_with_one_value_per_channel():
    seen = MaskView(((3, 4), (6, 7)), value=(1, 0, 5)).rows(np.full((2, 7, 7, 3), 9))
    np.testing.assert_array_equal(seen[:, 3, 6], [[1, 0, 5]] * 2)
    assert (seen == 9).sum() == 2 * (7 * 7 - 1) * 3
    channels = MaskView(((0, 7), (0, 7), (1, 3)), value=(2, 3)).one(np.full((7, 7, 3), 9))
    np.testing.assert_array_equal(channels, np.broadcast_to([9, 2, 3], (7, 7, 3)))


def test_bounds_of_every_cell_follow_the_crop():
    low = np.arange(25.0).reshape(5, 5)
    space = CropView(3).space(gym.spaces.Box(low, low + 1, dtype=np.float64))
    np.testing.assert_array_equal(space.low, low[1:4, 1:4])
    np.testing.assert_array_equal(space.high, low[1:4, 1:4] + 1)


@given(st.sampled_from(CASES), st.integers(0, 99))
def test_one_is_a_row_of_many(case, seed):
    space, views = case
    space.seed(seed)
    samples = [space.sample() for _ in range(3)]
    rows = stack(space, samples)
    for view in views:
        rows, samples = view.rows(rows), [view.one(sample) for sample in samples]
    for i, sample in enumerate(samples):
        assert_same(map_arrays(np.asarray, sample), map_arrays(np.asarray, row(rows, i)))


@pytest.mark.parametrize(("space", "views"), CASES)
def test_everything_but_the_observations_is_kept(space, views):
    plain = srl.collect(Room(space), 12, blind, seed=5)
    seen = apply_view(plain, *views)
    for before, after in zip(plain.columns(), seen.columns(), strict=True):
        before, after = (
            {name: array for name, array in columns.items() if "observations" not in name}
            for columns in (before, after)
        )
        assert before.keys() == after.keys()
        assert all(before[name] is after[name] for name in before)
    assert {"states", "annotations/luck"} <= plain.columns()[0].keys()
    assert seen.action_space == plain.action_space
    assert seen.offsets is plain.offsets
    assert {name: value for name, value in seen.meta.items() if name != "views"} == plain.meta
    assert "views" not in plain.meta


def test_meta_tells_all_views_in_order_and_survives_the_disk(tmp_path):
    first, second = CropView(5), MaskView(((2, 3), (2, 3)), value=(1, 0, 1))
    data = srl.collect(ID, 5, env_options={"window": 7})
    seen = apply_view(apply_view(data, first), second)
    assert seen.meta == apply_view(data, first, second).meta
    assert [view_from_json(one) for one in seen.meta["views"]] == [first, second]
    seen.save(tmp_path / "seen")
    again = srl.Trajectories.load(tmp_path / "seen")
    assert again.meta == seen.meta
    assert again.equals(seen)
    assert apply_view(data) is data


@pytest.mark.parametrize(("space", "views"), CASES)
def test_mapped_trajectories_are_transformed_and_stay_as_they_were(tmp_path, space, views):
    plain = srl.collect(Room(space), 12, blind, seed=5)
    plain.save(tmp_path / "plain")
    mapped = srl.Trajectories.load(tmp_path / "plain")
    assert not any(array.flags.writeable for _, array in named_arrays("", mapped.observations))
    seen = apply_view(mapped, *views)
    assert seen.equals(apply_view(plain, *views))
    assert srl.Trajectories.load(tmp_path / "plain", verify=True).equals(plain)
    parts = [apply_view(batch, *views) for batch in mapped.batches(5)]
    assert srl.Trajectories.concatenate(parts).equals(seen)
    assert seen[::-1][::-1].equals(seen)


def test_a_view_of_a_file_is_in_memory_and_the_file_is_left_alone(tmp_path):
    images = np.random.default_rng(0).integers(1, 9, (4, 5, 5))
    np.save(tmp_path / "images.npy", images)
    mapped = np.load(tmp_path / "images.npy", mmap_mode="r+")
    for view in (CropView(3), MaskView(((0, 5), (2, 3)))):
        seen = view.rows(mapped)
        assert type(seen) is np.ndarray
        assert not np.shares_memory(seen, mapped)
        np.testing.assert_array_equal(seen, view.rows(images))
    np.testing.assert_array_equal(np.load(tmp_path / "images.npy"), images)


def test_trajectories_without_final_observations_or_episodes():
    data = srl.Trajectories.from_episodes(
        [{"observations": np.ones((2, 5, 5), np.uint8), "actions": [0, 1], "rewards": [0, 1]}]
    )
    assert apply_view(data, CropView(3)).final_observations is None
    empty = srl.Trajectories.from_episodes([], observation_space=ROOM, action_space=gym.spaces.Discrete(2))
    seen = apply_view(empty, CropView(3, "image"), MaskView(((0, 1),), key="image"))
    assert seen.observations["image"].shape == (0, 3, 3, 3)


@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version")
@pytest.mark.filterwarnings("error")
def test_gymnasium_checker_is_content():
    for views in (CropView(3), [MaskView(((3, 4), (3, 4)), 1), CropView(5)]):
        check_env(ViewObservation(gym.make(ID, window=7), views))
    for _, views in CASES[len(IMAGE_VIEWS) :]:
        check_env(ViewObservation(Room(), views), skip_render_check=True)


@pytest.mark.parametrize("views", IMAGE_VIEWS)
def test_a_wrapped_env_is_made_again_from_its_spec(views):
    bits = [replace(view, value=1) if isinstance(view, MaskView) else view for view in views]  # Triggers shows 0 and 1
    env = ViewObservation(ViewObservation(gym.make(ID, window=7), MaskView(((0, 1),), 1)), bits)
    for spec in (env.spec, EnvSpec.from_json(env.spec.to_json()), pickle.loads(pickle.dumps(env.spec))):
        again = gym.make(spec)
        assert isinstance(again, ViewObservation)
        assert again.views == env.views
        assert again.env.views == env.env.views
        assert again.observation_space == env.observation_space
        np.testing.assert_array_equal(again.reset(seed=2)[0], env.reset(seed=2)[0])
        np.testing.assert_array_equal(again.step(1)[0], env.step(1)[0])


@pytest.mark.parametrize("view", ALL_VIEWS)
def test_views_survive_json(view):
    again = view_from_json(json.loads(json.dumps(view_to_json(view))))
    assert again == view
    assert hash(again) == hash(view)
    assert type(again) is type(view)


def test_numbers_of_numpy_make_the_same_views():
    assert CropView(np.int64(3)) == CropView(3)
    mask = MaskView([[np.int64(1), 2]], value=np.array([1, 2], np.uint8))
    assert mask == MaskView(((1, 2),), value=(1, 2))
    assert json.dumps(view_to_json(mask))
    assert DropView(["a"]) == DropView(("a",))


def test_spaces_that_trajectories_do_not_know_can_be_dropped_on_the_way():
    told = gym.spaces.Dict([("image", IMAGE), ("mission", gym.spaces.Text(9))])
    with pytest.raises(ValueError, match="observations/mission.*expected numbers"):
        srl.collect(Room(told), 3, blind)
    data = srl.collect(ViewObservation(Room(told), DropView(("mission",), squeeze=True)), 3, blind)
    assert data.observation_space == IMAGE
    masked = ViewObservation(Room(told), MaskView(((0, 7),), 3, key="image")).reset(seed=0)[0]
    assert (masked["image"] == 3).all()
    assert masked["mission"] == Room(told).reset(seed=0)[0]["mission"]


@dataclass(frozen=True)
class Darker:
    by: int

    def space(self, observation_space, /):
        return observation_space

    def rows(self, nest, /):
        return nest // self.by

    def one(self, observation, /):
        return observation // self.by


@dataclass(frozen=True)
class Broken(Darker):
    def rows(self, nest, /):
        return nest[:, 0]


def test_views_of_ones_own_work_and_are_checked():
    assert isinstance(Darker(2), View)
    plain = srl.collect(Room(IMAGE), 6, blind, seed=1)
    wrapped = srl.collect(ViewObservation(Room(IMAGE), [CropView(3), Darker(2)]), 6, blind, seed=1)
    seen = apply_view(plain, CropView(3), Darker(2))
    assert seen.equals(wrapped)
    assert seen.meta["views"][1] == {"kind": "Darker", "by": 2}
    with pytest.raises(ValueError, match=r"observations\[episode 0, step 0\] has shape \(7, 3\), expected \(7, 7, 3\)"):
        apply_view(plain, Broken(2))
    env = ViewObservation(gym.make(ID), Darker(2))
    assert gym.make(env.spec).views == (Darker(2),)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: CropView(4), ValueError, "odd number.*got 4: use 3 or 5"),
        (lambda: CropView(0), ValueError, "positive odd number.*got 0"),
        (lambda: CropView(-3), ValueError, "positive odd number.*got -3"),
        (lambda: CropView(3.0), TypeError, "window must be an integer, got 3.0"),
        (lambda: CropView(True), TypeError, "window must be an integer, got True"),
        (lambda: CropView(3, key=0), TypeError, "key must name entries .* got 0"),
        (lambda: MaskView((6, 7)), TypeError, r"pairs, one for each axis, got \(6, 7\).*written \(\(start, stop\),\)"),
        (lambda: MaskView(()), TypeError, r"pairs, one for each axis, got \(\)"),
        (lambda: MaskView(((1, 2, 3),)), TypeError, r"pairs, one for each axis, got \(\(1, 2, 3\),\)"),
        (lambda: MaskView(((0.5, 2),)), TypeError, "start must be an integer, got 0.5"),
        (lambda: MaskView(((3, 3),)), ValueError, r"holds \(3, 3\): expected 0 <= start < stop"),
        (lambda: MaskView(((-1, 2),)), ValueError, r"holds \(-1, 2\): expected 0 <= start < stop"),
        (lambda: MaskView(((0, 1),), value="x"), TypeError, "value must be one number.*got 'x'"),
        (lambda: MaskView(((0, 1),), value=float("nan")), ValueError, "value must be finite, got nan"),
        (lambda: DropView("mission"), TypeError, r"tuple of strings, got 'mission': write keys=\('mission',\)"),
        (lambda: DropView((1,)), TypeError, "keys must name entries .* got 1"),
        (lambda: DropView((None,)), TypeError, "keys must name entries .* got None"),
        (lambda: DropView(()), ValueError, r"keys is \(\), so there is nothing to drop"),
        (lambda: DropView(("a",), squeeze=1), TypeError, "squeeze must be True or False, got 1"),
        (lambda: view_from_json({"kind": "Fog", "window": 3}), ValueError, "unknown kind of view 'Fog'.*CropView"),
        (lambda: view_to_json(object()), TypeError, "object object .* expected a view that is a dataclass"),
        (lambda: view_to_json(Darker(object())), TypeError, "Darker.*fields must be JSON values"),
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
        (IMAGE, CropView(3, "image"), TypeError, "key='image'.*expected a Dict with named entries.*without key="),
        (ROOM, CropView(3, "direction"), TypeError, r"key='direction'.*not fit Discrete\(4\).*left out by DropView"),
        (IMAGE, MaskView(((6, 8),)), ValueError, r"region \(\(6, 8\),\).*outside an observation of shape \(7, 7, 3\)"),
        (IMAGE, MaskView(((0, 1),) * 4), ValueError, r"outside .* shape \(7, 7, 3\): expected at most 3"),
        (IMAGE, MaskView(((0, 1),), 10), ValueError, "value 10 .* lies outside Box.* use one from 0 to 9"),
        (IMAGE, MaskView(((0, 1),), 0.5), ValueError, "value 0.5 .* is not a uint8.*integers from 0 to 255"),
        (IMAGE, MaskView(((0, 1),), 300), ValueError, "value 300 .* is not a uint8"),
        (IMAGE, MaskView(((0, 1),), (1, 2)), ValueError, r"value \(1, 2\) .* 2 numbers, but 3 entries.*give one"),
        (BAG["weight"], MaskView(((0, 1),), 1e300), ValueError, r"value 1e\+300 .* is not a float32"),
        (gym.spaces.MultiBinary(3), MaskView(((0, 1),)), TypeError, r"MaskView.*does not fit MultiBinary\(3\)"),
        (IMAGE, DropView(("a",)), TypeError, r"DropView\(keys=\('a',\).*does not fit Box.*expected a Dict"),
        (ROOM, DropView(("mission",)), ValueError, "names the entry 'mission', but the observation has .*'bag'"),
        (ROOM, DropView(("image", "direction", "bag")), ValueError, "drops every entry of .*leave at least one"),
        (ROOM, DropView(("image",), squeeze=True), ValueError, r"leaves 2 entries, \['direction', 'bag'\].*expects"),
    ],
)  # fmt: skip
def test_views_that_do_not_fit_are_named_wherever_they_are_used(space, view, error, message):
    data = srl.collect(Room(space), 2, blind)
    attempts = (
        lambda: view.space(space),
        lambda: apply_view(data, view),
        lambda: ViewObservation(Room(space), view),
        lambda: VectorViewObservation(SyncVectorEnv([lambda: Room(space)]), view),
    )
    for attempt in attempts:
        with pytest.raises(error, match=message):
            attempt()


def test_rows_that_do_not_fit_are_refused_without_a_space_too():
    with pytest.raises(ValueError, match="larger than an image of 2x9"):
        CropView(3).one(np.zeros((2, 9)))
    with pytest.raises(ValueError, match="lies outside"):
        MaskView(((6, 8),)).rows(np.zeros((5, 7)))
    with pytest.raises(ValueError, match="is not a int64"):
        MaskView(((0, 1),), 0.5).one(np.zeros(3, np.int64))
    with pytest.raises(ValueError, match="names the entry 'a'"):
        MaskView(((0, 1),), key="a").one({"b": np.zeros(3)})
