"""Triggers in Gymnasium: contracts, rendering, and single = vector in every autoreset mode."""

from collections import Counter

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.shaping.playing import assert_same

import secret_rl  # noqa: F401  registers the environments
from secret_rl.envs.triggers import TriggersEnv, TriggersVectorEnv
from secret_rl.envs.triggers.render import AGENT, PRIZE, TRIGGER, WALL
from secret_rl.testing.strategies import triggers_options

ID = "secret_rl/Triggers-v0"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"window": None},
        {"window": 7, "size": 12, "triggers": 2, "prizes": 3},
        {"inverted": True, "max_steps": 9},
        {"layout_seed": 3},
    ],
)
def test_gymnasiums_checker_passes_with_every_documented_option(options):
    env = gym.make(ID, **options)
    check_env(env.unwrapped, skip_render_check=False)
    span = options.get("window", 3) or 8
    assert env.observation_space == gym.spaces.Box(0, 1, (span, span, 3), np.uint8)
    assert env.action_space == gym.spaces.Discrete(4)
    assert gym.make(env.spec).unwrapped.options == env.unwrapped.options


def test_unseeded_envs_differ_and_observations_are_the_callers_own():
    first, second = TriggersEnv(), TriggersEnv()
    assert [first.reset()[1]["state"] for _ in range(8)] != [second.reset()[1]["state"] for _ in range(8)]
    observation, _ = first.reset(seed=0)
    kept = observation.copy()
    for action in (0, 1, 2, 3) * 5:
        first.step(action)
    np.testing.assert_array_equal(observation, kept)


def test_stepping_outside_an_episode_and_bad_actions_are_refused():
    env = TriggersEnv(max_steps=1)
    with pytest.raises(gym.error.ResetNeeded, match="call reset"):
        env.step(0)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="action must be 0 .* got 4"):
        env.step(4)
    env.step(0)
    with pytest.raises(gym.error.ResetNeeded, match="over"):
        env.step(0)


@settings(max_examples=25)
@given(triggers_options(), st.integers(0, 2**32), st.sampled_from(list(AutoresetMode)), st.integers(1, 4))
def test_vector_is_the_single_env_side_by_side(options, seed, mode, n):
    ours = TriggersVectorEnv(n, **vars(options), autoreset_mode=mode)
    theirs = SyncVectorEnv([lambda: TriggersEnv(**vars(options))] * n, autoreset_mode=mode)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.metadata["autoreset_mode"] is theirs.metadata["autoreset_mode"]

    def both(call):
        for mine, other in zip(result := call(ours), call(theirs), strict=True):
            assert_same(mine, other)
        return result

    both(lambda envs: envs.reset(seed=seed))
    rng = np.random.default_rng(seed)
    for _ in range(90):
        actions = rng.integers(0, 4, n)
        _, _, terminated, truncated, _ = both(lambda envs: envs.step(actions))  # noqa: B023  called at once
        over = terminated | truncated
        if mode is AutoresetMode.DISABLED and over.any():
            both(lambda envs: envs.reset(options={"reset_mask": over.copy()}))  # noqa: B023


def test_make_vec_finds_the_compiled_env():
    envs = gym.make_vec(ID, num_envs=3, triggers=1, autoreset_mode=AutoresetMode.SAME_STEP)
    assert isinstance(envs.unwrapped, TriggersVectorEnv)
    observations, infos = envs.reset(seed=[4, None, 6])
    assert observations.shape == (3, 3, 3, 3) and infos["_state"].all()
    single, info = gym.make(ID, triggers=1).reset(seed=6)
    np.testing.assert_array_equal(observations[2], single)
    assert infos["state"][2] == info["state"]


def test_vector_refuses_what_it_cannot_do():
    envs = TriggersVectorEnv(2, max_steps=1, autoreset_mode="Disabled")
    with pytest.raises(gym.error.ResetNeeded, match="no episode has begun"):
        envs.step(np.zeros(2, int))
    envs.reset(seed=0)
    with pytest.raises(ValueError, match="expected 2 actions"):
        envs.step(np.zeros(3, int))
    with pytest.raises(ValueError, match="got values from 0 to 7"):
        envs.step(np.array([0, 7]))
    envs.step(np.zeros(2, int))
    with pytest.raises(gym.error.ResetNeeded, match=r"envs \[0, 1\] are over"):
        envs.step(np.zeros(2, int))
    for wrong, message in (
        ({"options": {"reset_mask": [True, False]}}, "boolean array of shape"),
        ({"seed": [1]}, "expected 2 seeds"),
    ):
        with pytest.raises(ValueError, match=message):
            envs.reset(**wrong)
    with pytest.raises(ValueError, match="num_envs"):
        TriggersVectorEnv(0)
    with pytest.raises(ValueError, match="rgb_array"):
        TriggersVectorEnv(2, render_mode="human")


def test_rendering_shows_the_papers_colours_where_things_are():
    env = TriggersEnv(size=5, triggers=2, prizes=1, render_mode="rgb_array")
    env.reset(seed=4)
    picture, maze = env.render(), env.contents
    assert picture.shape == (7 * 32, 7 * 32, 3)

    def colour(position):
        row, column = ((coordinate + 1) * 32 + 16 for coordinate in position)
        return tuple(picture[row, column].tolist())

    assert colour(maze.agent) == AGENT and colour((-1, 2)) == WALL
    assert {colour(p) for p in maze.triggers} == {TRIGGER}
    assert {colour(p) for p in maze.prizes} == {PRIZE}
    envs = TriggersVectorEnv(2, size=5, triggers=2, prizes=1, render_mode="rgb_array")
    envs.reset(seed=3)
    np.testing.assert_array_equal(envs.render()[1], picture)
    env = TriggersEnv(size=4, triggers=1, layout_seed=2, render_mode="ansi")
    env.reset()
    assert Counter(c for c in env.render() if c in "ATP#") == {"A": 1, "P": 1, "T": 1, "#": 20}


@pytest.mark.filterwarnings("ignore:.*human")
def test_human_rendering_opens_a_window_and_closes_it():
    pygame = pytest.importorskip("pygame")
    env = gym.make(ID, render_mode="human")
    env.reset(seed=0)
    env.step(0)
    assert tuple(pygame.display.get_surface().get_at((1, 1)))[:3] == WALL
    env.close()
    assert pygame.display.get_surface() is None
