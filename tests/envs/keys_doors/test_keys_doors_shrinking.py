"""Observations of any size: means of areas, from the engine's picture that fits best."""

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import secret_rl  # noqa: F401  registers the environment
from secret_rl.envs.keys_doors import Solver
from secret_rl.envs.keys_doors.shrinking import AreaMean, drawn_size

SIZES = [(160, 120), (200, 125), (256, 144), (256, 160), (320, 200), (320, 240), (320, 256), (1600, 1200), (1920, 1080)]


def overlaps(large, small):
    """(small, large): the length that pixel i of ``small`` and j of ``large`` share on a line of length 1."""
    mine, theirs = np.arange(small + 1) / small, np.arange(large + 1) / large
    low = np.maximum(mine[:-1, None], theirs[None, :-1])
    return np.clip(np.minimum(mine[1:, None], theirs[None, 1:]) - low, 0, None)


@given(st.tuples(st.integers(8, 60), st.integers(8, 60)), st.data(), st.integers(0, 99))
def test_every_pixel_is_the_mean_of_the_area_it_covers(large, data, seed):
    small = data.draw(st.tuples(st.integers(8, large[0]), st.integers(8, large[1])))
    picture = np.random.default_rng(seed).integers(0, 256, (large[1], large[0], 3), np.uint8)
    before = picture.copy()
    shrunk = AreaMean(large, small)(picture)
    assert shrunk.shape == (small[1], small[0], 3) and shrunk.dtype == np.uint8
    columns, rows = overlaps(large[0], small[0]), overlaps(large[1], small[1])
    mean = np.einsum("hy,wx,yxc->hwc", rows, columns, picture) * small[0] * small[1]
    assert (shrunk <= mean + 1e-6).all() and (shrunk > mean - 1 - 1e-6).all()  # rounded down
    assert not np.shares_memory(shrunk, picture) and np.array_equal(picture, before)


@pytest.mark.parametrize("times", [1, 2, 3, 4])
def test_whole_fractions_are_means_of_blocks(times):
    picture = np.random.default_rng(0).integers(0, 256, (48, 24, 3), np.uint8)
    small = 24 // times, 48 // times
    blocks = picture.reshape(small[1], times, small[0], times, 3).astype(int).sum((1, 3)) // times**2
    assert np.array_equal(AreaMean((24, 48), small)(picture), blocks)


@pytest.mark.parametrize(
    ("size", "drawn"),
    [
        ((160, 120), (160, 120)),
        ((80, 60), (160, 120)),
        ((40, 30), (160, 120)),
        ((64, 40), (256, 160)),  # a quarter of it
        ((96, 72), (160, 120)),
        ((84, 84), (160, 120)),
        ((64, 64), (160, 120)),
        ((100, 50), (256, 144)),
        ((170, 100), (200, 125)),  # smaller than 256 x 144, and as close in shape
        ((201, 150), (320, 240)),
        ((1601, 100), (1920, 1080)),
    ],
)
def test_the_engine_draws_what_fits_best(size, drawn):
    assert drawn_size(size, SIZES) == drawn


@pytest.mark.parametrize("size", [(1921, 1080), (1900, 1100), (10, 1201)])
def test_larger_than_the_engine_draws_is_refused(size):
    with pytest.raises(ValueError, match=r"no picture as large as size=\(.*1920x1080"):
        drawn_size(size, SIZES)


@pytest.mark.parametrize("size", [(84, 84), (64, 64), (96, 72), (100, 50), (8, 8), (161, 120)])
def test_worlds_of_any_size_show_the_same_scene(size):
    """Colours of a scene's halves and quarters agree with those of the usual picture, up to what a wider view adds."""
    pytest.importorskip("vizdoom")
    usual, other = (
        gym.make("secret_rl/KeysDoors-v0", preset="2x2-easy", layout_seed=2, size=s) for s in ((160, 120), size)
    )
    try:
        pictures, policies = [env.reset()[0] for env in (usual, other)], [Solver(usual), Solver(other)]
        for _ in range(20):
            pictures = [env.step(policy())[0] for env, policy in zip((usual, other), policies, strict=True)]
        assert pictures[1].shape == (size[1], size[0], 3) == other.observation_space.shape
        halves = [[half.mean((0, 1)) for half in np.array_split(picture, 2)] for picture in pictures]
        np.testing.assert_allclose(*halves, atol=12)
        assert pictures[1].std() > 10
    finally:
        usual.close()
        other.close()
