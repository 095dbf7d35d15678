"""One meaning for environments and stored trajectories."""

import pickle
from dataclasses import dataclass, replace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from tests.views.cases import CASES, IMAGE, IMAGE_VIEWS, Room, blind, row

import secret_rl as srl
from secret_rl.trajectories.nested import arrays_of
from secret_rl.views import (
    CenteredView,
    CropView,
    DropView,
    MaskView,
    View,
    ViewObservation,
    apply_view,
    view_from_json,
)  # fmt: skip

ID = "secret_rl/Triggers-v0"


@pytest.mark.parametrize(
    ("wide", "view", "narrow"),
    [
        (7, CropView(3), 3), (7, CropView(5), 5), (5, CropView(1), 1), (3, CropView(3), 3), (None, CenteredView(3), 3),
        (None, CenteredView(5), 5), (None, CenteredView(1), 1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [2, 4, 8])
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
    env = ViewObservation(Room(space), views)
    wrapped = srl.collect(env, 12, blind, seed=5)
    plain = srl.collect(Room(space), 12, blind, seed=5)
    seen = apply_view(plain, *views)
    assert seen.equals(wrapped) and seen.observation_space == env.observation_space
    assert seen.equals(plain) == (views == (CropView(7),)), "only a crop to the whole image hides nothing"
    for nest, count in ((seen.observations, seen.steps), (seen.final_observations, len(seen))):
        assert all(row(nest, i) in seen.observation_space for i in range(count))
    before, after = ({n: a for n, a in d.columns().items() if "observations" not in n} for d in (plain, seen))
    assert before.keys() == after.keys() and all(before[name] is after[name] for name in before)
    assert seen.offsets is plain.offsets and seen.action_space == plain.action_space
    assert {name: value for name, value in seen.meta.items() if name != "views"} == plain.meta


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize(("space", "views"), CASES)
def test_wrapped_environments_are_vectorised(space, views, mode):
    envs = SyncVectorEnv([lambda: ViewObservation(Room(space), views)] * 2, autoreset_mode=mode)
    plain = SyncVectorEnv([lambda: Room(space)] * 2, autoreset_mode=mode)
    seen, data = (srl.collect(each, 8, lambda _: np.zeros(2, int), seed=4) for each in (envs, plain))
    assert seen.equals(apply_view(data, *views))


def test_views_follow_one_another_and_meta_holds_them_in_order():
    whole, data, crops = (srl.collect(ID, 5, env_options={"window": window}) for window in (None, 7, 3))
    assert apply_view(whole, CenteredView(7), CropView(3)).equals(crops)
    first, second = CropView(5), MaskView(((2, 3), (2, 3)), value=1)
    seen = apply_view(apply_view(data, first), second)
    assert seen.meta == apply_view(data, first, second).meta
    assert [view_from_json(one) for one in seen.meta["views"]] == [first, second]
    assert apply_view(data) is data


@pytest.mark.parametrize(("space", "views"), CASES)
def test_mapped_trajectories_are_transformed_and_stay_as_they_were(tmp_path, space, views):
    plain = srl.collect(Room(space), 12, blind, seed=5)
    mapped = srl.Trajectories.load(plain.save(tmp_path / "plain"))
    assert not any(array.flags.writeable for array in arrays_of(mapped.observations))
    seen = apply_view(mapped, *views)
    assert seen.equals(apply_view(plain, *views))
    parts = [apply_view(batch, *views) for batch in mapped.batches(5)]
    assert srl.Trajectories.concatenate(parts).equals(seen)
    assert srl.Trajectories.load(seen.save(tmp_path / "seen")).meta == seen.meta
    assert srl.Trajectories.load(tmp_path / "plain", verify=True).equals(plain)


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
    for views in (CropView(3), [MaskView(((3, 4), (3, 4)), 1), CropView(5)]):
        check_env(ViewObservation(gym.make(ID, window=7), views))
    for _, views in CASES[len(IMAGE_VIEWS) :]:
        check_env(ViewObservation(Room(), views), skip_render_check=True)


@pytest.mark.parametrize("views", [*IMAGE_VIEWS, (CenteredView(3),)])
def test_a_wrapped_env_is_made_again_from_its_spec(views):
    bits = [replace(view, value=1) if isinstance(view, MaskView) else view for view in views]  # Triggers shows 0 and 1
    window = None if isinstance(views[0], CenteredView) else 7
    env = ViewObservation(ViewObservation(gym.make(ID, window=window), CropView(7)), bits)
    for spec in (env.spec, EnvSpec.from_json(env.spec.to_json()), pickle.loads(pickle.dumps(env.spec))):
        again = gym.make(spec)
        assert again.views == env.views and again.env.views == env.env.views
        assert again.observation_space == env.observation_space
        if window is not None:
            np.testing.assert_array_equal(again.reset(seed=2)[0], env.reset(seed=2)[0])
            np.testing.assert_array_equal(again.step(1)[0], env.step(1)[0])


def test_spaces_that_trajectories_do_not_know_can_be_dropped_on_the_way():
    space = gym.spaces.Dict([("image", IMAGE), ("mission", gym.spaces.Text(9))])
    with pytest.raises(ValueError, match="observations/mission.*expected numbers"):
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
    wrapped = srl.collect(ViewObservation(Room(IMAGE), [CropView(3), Darker(2)]), 6, blind, seed=1)
    seen = apply_view(plain, CropView(3), Darker(2))
    assert seen.equals(wrapped)
    assert seen.meta["views"][1] == {"kind": "Darker", "by": 2}
    with pytest.raises(ValueError, match=r"observations\[episode 0, step 0\] has shape \(7, 3\), expected \(7, 7, 3\)"):
        apply_view(plain, Broken(2))
    env = ViewObservation(gym.make(ID), Darker(2))
    assert gym.make(env.spec).views == (Darker(2),)
