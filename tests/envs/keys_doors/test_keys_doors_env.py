"""The environment on its engine: the rules as played, what is seen and reported, and the same under the same seed."""

import subprocess
import sys
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import secret_rl as srl
from secret_rl.envs.keys_doors import PRESETS, Solver, Wanderer, WorldOptions, plan
from secret_rl.envs.keys_doors.puzzle import room_cells

pytest.importorskip("vizdoom")
ID = "secret_rl/KeysDoors-v0"


@pytest.fixture
def make():
    """``gymnasium.make``, for environments that are closed when their test ends."""
    made = []

    def make(preset="2x2-easy", **options):
        made.append(gym.make(ID, preset=preset, **options))
        return made[-1]

    yield make
    for env in made:
        env.close()


def steps(env, policy, seed=None):
    """The (reward, terminated, truncated, info) of each step of an episode."""
    observation, _ = env.reset(seed=seed)
    over = False
    while not over:
        observation, reward, terminated, truncated, info = env.step(policy(observation))
        yield reward, terminated, truncated, info
        over = terminated or truncated


def test_gymnasiums_checker_passes(make):
    check_env(make(size=(40, 30), render_mode="rgb_array").unwrapped)


def test_the_same_seed_is_the_same_episode_in_another_engine_and_on_a_second_visit(make):
    first, second = make("dmlab-like", size=(16, 12)), make("dmlab-like", size=(16, 12))
    second.reset(seed=99)  # another map first
    runs = []
    for env in (first, second, first):
        observation, info = env.reset(seed=5)
        run = [observation.tobytes(), info["state"].tolist(), info["layout_seed"]]
        for action in np.random.default_rng(1).integers(0, 4, 20).repeat(3):
            observation, reward, _, _, info = env.step(action)
            run += [observation.tobytes(), info["state"].tolist(), reward]
        runs.append([*run, env.reset()[1]["layout_seed"]])
    assert runs[0] == runs[1] == runs[2]


def test_maps_are_new_each_episode_unless_fixed(make):
    for env, different in ((make(), 4), (make(layout_seed=np.int64(4)), 1)):
        found = [(env.reset(seed=seed)[1]["layout_seed"], env.unwrapped.puzzle) for seed in (0, None, None, None)]
        assert [len(set(values)) for values in zip(*found, strict=True)] == [different] * 2
    assert found[0][0] == 4


@pytest.mark.parametrize("preset", PRESETS)
def test_the_solver_reaches_the_goal_by_the_plan(make, preset):
    """The plan's proof holds in the engine: every event of it, in its order, and nothing else."""
    env = make(preset)
    for seed in range(4):
        rewards, _, _, infos = zip(*steps(env, Solver(env), seed), strict=True)
        puzzle = env.unwrapped.puzzle
        colours = {"key": puzzle.keys, "door": puzzle.doors}
        expected = [(kind, colours[kind][i].colour if kind in colours else True) for kind, i in plan(puzzle)]
        names = {"key": "key_picked", "door": "door_opened", "goal": "goal_reached"}
        assert [(kind, e[name]) for e in infos for kind, name in names.items() if e[name]] == expected
        assert sum(rewards) == puzzle.core * 1.0 + 50.0


def test_a_second_key_takes_the_place_of_the_first_and_doors_want_their_colour(make):
    """A wanderer breaks no rule: what is held, opened and paid follows from the events. It visits closed doors, too."""
    env = make("dmlab-like", key_reward=0.25, door_reward=2.0, max_steps=500)
    replaced = opened = before_closed = 0
    for seed in range(6):
        held = 0
        for reward, terminated, _, info in steps(env, Wanderer(env, seed), seed):
            replaced += bool(held and info["key_picked"])
            if info["door_opened"]:
                opened += 1
                assert info["door_opened"] == held
                held = 0
            held = info["key_picked"] or held
            assert info["held_key"] == held
            paid = 0.25 * bool(info["key_picked"]) + 2.0 * bool(info["door_opened"]) + 50.0 * info["goal_reached"]
            assert (reward, terminated) == (paid, info["goal_reached"])
            closed = env.unwrapped.puzzle.closed_doors(env.unwrapped.snapshot.status)
            before_closed += tuple(info["position"] // 100) in [door.cell for door in closed]
    assert replaced > 0 and opened > 0 and before_closed > 0


def test_closed_doors_and_walls_hold(make):
    """Random play never leaves the rooms reached through doors that were opened."""
    env = make("3x3", max_steps=300)
    for seed in range(2):
        for *_, info in steps(env, Wanderer(env, seed, astray=1.0), seed):
            puzzle = env.unwrapped.puzzle
            closed = puzzle.closed_doors(env.unwrapped.snapshot.status)
            opened = [door for door in puzzle.doors if door not in closed]
            reached = {puzzle.rooms[0]} | {room for door in opened for room in door.rooms}
            allowed = {cell for room in reached for cell in room_cells(room)} | {door.cell for door in puzzle.doors}
            assert tuple(info["position"] // 100) in allowed


def test_info_reports_the_state(make):
    env = make()
    _, info = env.reset(seed=0)
    x, y = info["position"]
    assert info["state"].tolist() == [x // 50, y // 50, 0]
    assert [(c + 0.5) * 100 for c in env.unwrapped.puzzle.start] == [x, y]
    assert round(info["angle"]) == env.unwrapped.puzzle.angle
    for action, turned in ((2, 12), (3, 0)):
        angle = env.step(action)[-1]["angle"]
        assert (angle - info["angle"] - turned + 180) % 360 - 180 == pytest.approx(0, abs=0.1)


def test_misuse_is_refused(make):
    bare = make(max_steps=1).unwrapped
    for early in (lambda: bare.step(0), lambda: bare.snapshot, lambda: bare.puzzle):
        with pytest.raises(gym.error.ResetNeeded, match="call reset"):
            early()
    bare.reset(seed=0)
    with pytest.raises(ValueError, match="rotate left.* got 4"):
        bare.step(4)
    _, _, terminated, truncated, _ = bare.step(0)
    assert truncated and not terminated
    for _ in range(2):
        with pytest.raises(gym.error.ResetNeeded, match="call reset"):
            bare.step(0)
        bare.close()  # twice, too


@pytest.mark.filterwarnings("ignore:.*not in the possible render_modes")
@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"size": (84, 84)}, ValueError, "not drawn by the engine.*80, 60.*ResizeObservation"),
        ({"size": 84}, TypeError, "width, height"),
        ({"preset": "4x4"}, ValueError, "2x2-easy"),
        ({"rows": 2, "columns": 2, "core": 4}, ValueError, "no puzzle .* use more rows"),
        ({"render_mode": "ansi"}, ValueError, "rgb_array"),
        ({"goal_reward": float("nan")}, ValueError, "goal_reward must be a finite number"),
        ({"frame_skip": 2.5}, TypeError, "frame_skip"),
        ({"frames": 2}, TypeError, "frames"),
    ],
)
def test_bad_options_are_refused(options, error, words):
    with pytest.raises(error, match=words):
        gym.make(ID, **options)
    assert WorldOptions(size=[40, 30]).size == (40, 30)  # from JSON


def test_without_vizdoom_importing_works_and_making_says_how_to_get_it():
    code = """
import sys
sys.modules["vizdoom"] = None
import gymnasium, secret_rl
assert "secret_rl/KeysDoors-v0" in gymnasium.registry and "secret_rl.envs.keys_doors" not in sys.modules
import secret_rl.envs.keys_doors
try:
    gymnasium.make("secret_rl/KeysDoors-v0")
except ModuleNotFoundError as error:
    print(error)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert 'pip install "secret-rl[doom]"' in out


def test_collecting_keeps_states_and_events_and_is_the_same_in_workers(make):
    options = {"preset": "dmlab-like", "size": (40, 30), "max_steps": 200}
    env = make(**options)
    alone = srl.collect(env, 6, Wanderer(env), seed=3, progress=False)
    assert alone.equals(srl.collect(ID, 6, Wanderer, seed=3, env_options=options, workers=2, progress=False))
    assert alone.states.shape == (len(alone.actions), 3) and alone.observations.shape[1:] == (30, 40, 3)
    assert alone.annotations.keys() == set(env.unwrapped.metadata["annotations"])
    assert alone.terminated.sum() == alone.annotations["goal_reached"].sum()
    doors = (alone.annotations["door_opened"] > 0).sum()
    assert doors + 50 * alone.terminated.sum() == alone.rewards.sum() and alone.annotations["key_picked"].any()


def test_walkers_go_astray_as_often_as_asked_and_the_same_way_again(make):
    env = make("2x2-easy", core=2, size=(16, 12), max_steps=120)

    def actions(astray):
        return srl.collect(env, 2, partial(Wanderer, astray=astray), seed=0, progress=False).actions

    straight, stray, again, lost = actions(0.0), actions(0.1), actions(0.1), actions(1.0)
    assert np.array_equal(stray, again)
    assert (stray == 1).mean() > (straight == 1).mean(), "it walks backwards now and then"
    assert 0.1 < (lost == 1).mean() < 0.5, "nothing but random actions"
    with pytest.raises(ValueError, match="astray must lie between 0 and 1, got 1.5"):
        Wanderer(env, astray=1.5)
    with pytest.raises(TypeError, match="Wanderer plays secret_rl/KeysDoors-v0 only"):
        Wanderer(gym.make("CartPole-v1"))
