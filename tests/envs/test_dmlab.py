"""Keys and doors in DeepMind Lab, against a stand-in that is as strict as Lab."""

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from tests.envs import dmlab_fake

import secret_rl  # noqa: F401  registers the environment
from secret_rl.envs.dmlab import LEAST_SIZE, UNSEEN, read_events, shown_key
from secret_rl.envs.keys_doors import Random
from secret_rl.envs.keys_doors.env import Events


@pytest.fixture
def make(make_env, lab):
    return partial(make_env, "secret_rl/DMLabKeysDoors-v0", size=LEAST_SIZE)


@pytest.mark.parametrize(
    ("held", "paid", "shown", "events", "held_then"),
    [
        (0, 0.0, 0, Events(0, 0, False), 0),
        (3, 0.0, 5, Events(0, 0, False), 3),  # a black sky is no key: nothing was paid
        (0, 1.0, 2, Events(2, 0, False), 2),
        (3, 1.0, 2, Events(2, 0, False), 2),  # another key takes its place
        (3, 1.0, 3, Events(3, 0, False), 3),  # of the same colour
        (3, 1.0, 0, Events(0, 3, False), 0),
        (0, 2.0, 0, Events(UNSEEN, UNSEEN, False), 0),  # a key beside its door
        (3, 2.0, 0, Events(UNSEEN, UNSEEN, False), 0),
        (3, 2.0, 1, Events(1, 3, False), 1),
        (0, 2.0, 1, Events(1, 0, False), 1),
        (0, 50.0, 0, Events(0, 0, True), 0),
        (4, 51.0, 0, Events(0, 4, True), 0),
        (4, 50.0, None, Events(0, 0, True), 4),
        (4, 1.0, None, Events(0, 0, False), 4),
    ],
)
def test_events_are_read_from_what_is_paid_and_shown(held, paid, shown, events, held_then):
    assert read_events(held, paid, shown) == (events, held_then)


@pytest.mark.parametrize("paid", [-1.0, 0.5, 3.0, 49.0, 100.0])
def test_a_level_with_other_rewards_or_no_display_is_noticed(paid):
    with pytest.raises(RuntimeError, match=f"the level paid {paid} in one step"):
        read_events(0, paid, 1)
    with pytest.raises(RuntimeError, match="shows no key"):
        read_events(0, 1.0, 0)


@pytest.mark.parametrize("size", [LEAST_SIZE, (84, 84), (96, 72), (160, 120), (333, 77), (640, 480)])
@pytest.mark.parametrize("colour", range(1, 6))
def test_the_square_is_read_where_lab_paints_it(size, colour):
    width, height = size
    frame = np.random.default_rng(0).integers(90, 160, (height, width, 3)).astype(np.uint8)
    assert shown_key(frame) == 0
    rows = slice(round(12 * height / 480), round(60 * height / 480))
    frame[rows, round(12 * width / 640) : round(60 * width / 640)] = dmlab_fake.PAINTS[colour - 1]
    assert shown_key(frame) == colour
    frame[round(36 * height / 480), round(36 * width / 640)] = (128, 128, 128)  # nothing that is not even
    assert shown_key(frame) == 0


@pytest.mark.parametrize("frame_skip", [2, 4, 8])
def test_what_is_reported_is_what_happened(make, lab, frame_skip):
    """Over episodes with keys that replace each other and doors that take them, also within one step."""
    env = make(frame_skip=frame_skip, key_reward=0.25, door_reward=2.0)
    seen = set()
    for seed in range(6):
        env.reset(seed=seed)
        world, policy, terminated = lab.made[-1], Random(env, seed, hold=3), False
        while not terminated:
            before = len(world.truth)
            _, reward, terminated, truncated, info = env.step(policy())
            events = world.truth[before:]
            kinds = tuple(kind for kind, _ in events)
            seen.add(kinds)
            happened = dict(events) if kinds != ("key", "door") else {"key": UNSEEN, "door": UNSEEN}
            assert (info["key_picked"], info["door_opened"]) == (happened.get("key", 0), happened.get("door", 0))
            assert info["goal_reached"] == terminated == ("goal" in kinds) and not truncated
            assert reward == 0.25 * ("key" in kinds) + 2.0 * ("door" in kinds) + 50.0 * terminated
            assert info["held_key"] == world.held
            assert info["state"].tolist() == [world.x // 50, world.y // 50, world.held]
            assert tuple(info["position"]) == (world.x, world.y)
            assert info["angle"] == pytest.approx(world.yaw % 360)
        assert world.is_running()  # Lab would go on for a while after the goal
        with pytest.raises(gym.error.ResetNeeded):
            env.unwrapped.step(0)
    assert seen == {(), ("key",), ("door",), ("key", "door"), ("door", "key"), ("goal",)}


def test_actions_do_what_their_names_say(make, lab):
    env = make(turn_speed=30)
    _, start = env.reset(seed=3)
    lab.made[-1].yaw = 90.0
    assert env.step(2)[-1]["angle"] == pytest.approx(90 + 4 * 30 * dmlab_fake.TURN)
    assert env.step(3)[-1]["angle"] == pytest.approx(90)
    there = env.step(0)[-1]["position"] - start["position"]
    assert there[0] == pytest.approx(0, abs=1e-9) and there[1] > 10
    assert env.step(1)[-1]["position"] == pytest.approx(start["position"])


def test_time_runs_out_while_lab_still_shows_a_frame(make, lab, monkeypatch):
    """900 steps of 4 frames are Lab's whole 60 seconds: the last frame is taken just before they are up."""
    monkeypatch.setattr(lab, "script", staticmethod(lambda seed: {}))
    env = make()
    observation, _ = env.reset(seed=0)
    flags = []
    for _ in range(900):
        last = observation
        observation, _, terminated, truncated, _ = env.step(2)
        flags.append((terminated, truncated))
    assert flags == [(False, False)] * 899 + [(False, True)]
    assert not np.array_equal(observation, last)
    assert lab.made[-1].frames == 3599


@pytest.mark.parametrize("goal", [False, True])
def test_a_level_that_ends_on_its_own_truncates_unless_at_the_goal(make, lab, monkeypatch, goal):
    monkeypatch.setattr(lab, "seconds", 0.5)
    monkeypatch.setattr(lab, "script", staticmethod(lambda seed: {30: ("goal", 0)} if goal else {}))
    env = make()
    env.reset(seed=0)
    for _ in range(7):
        last, _, _, truncated, before = env.step(2)
        assert not truncated
    observation, reward, terminated, truncated, info = env.step(2)
    assert not lab.made[-1].is_running()
    assert (reward, terminated, truncated) == (50.0 * goal, goal, not goal)
    assert np.array_equal(observation, last) and not np.shares_memory(observation, last)
    assert info["angle"] == before["angle"]
    env.reset()  # and the next one begins
    assert not env.step(2)[3]


@pytest.mark.parametrize("size", [(64, 48), (84, 84), (160, 120)])
@pytest.mark.parametrize("hud", [False, True])
def test_the_display_is_only_shown_if_asked_for_and_read_either_way(make, lab, size, hud):
    env = make(size=size, hud=hud, render_mode="rgb_array", layout_seed=1)
    observation, info = env.reset()
    while not info["held_key"]:
        observation, _, _, _, info = env.step(0)
    assert observation.shape == (size[1], size[0], 3) == env.observation_space.shape
    assert observation in env.observation_space and observation.flags.c_contiguous
    assert np.array_equal(env.render(), observation)
    square = observation[observation.shape[0] // 14, observation.shape[1] // 18]
    assert np.array_equal(square, dmlab_fake.PAINTS[info["held_key"] - 1]) == hud
    assert (observation[size[1] // 2, size[0] // 2] == 200).all() == hud


def test_lab_is_set_up_as_asked(make, lab):
    cache = object()
    env = make(size=(100, 80), renderer="hardware", config={"mixerSeed": "7"}, level_cache=cache)
    assert not lab.made  # it starts with the first episode
    _, first = env.reset(seed=0)
    _, second = env.reset()
    [world] = lab.made
    assert world.resets == [(0, first["layout_seed"]), (0, second["layout_seed"])]  # the seed alone decides an episode
    assert world.config == {"width": "100", "height": "80", "fps": "60", "mixerSeed": "7"}
    assert (world.level, world.renderer, world.level_cache) == (dmlab_fake.LEVEL, "hardware", cache)


def test_a_lab_that_fails_is_started_again_and_closing_ends_it_for_good(make, lab, monkeypatch):
    env = make()
    env.reset(seed=0)
    monkeypatch.setattr(lab, "fail_at", 6)
    env.step(0)
    with pytest.raises(RuntimeError, match="out of memory.*call reset"):
        env.step(0)
    with pytest.raises(gym.error.ResetNeeded):
        env.unwrapped.step(0)
    monkeypatch.setattr(lab, "fail_at", None)
    env.reset(seed=0)
    env.step(0)
    assert [world.closed for world in lab.made] == [True, False]
    env.close()
    assert lab.made[-1].closed
    with pytest.raises(RuntimeError, match="Invalid levelName"):
        make(level="lt_chasm").reset()
