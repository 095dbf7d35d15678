"""The environment on its engine: the rules as played, what is seen and reported, and the same under the same seed."""

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from tests.envs.keys_doors.test_keys_doors_puzzle import SIMPLE

import secret_rl as srl
from secret_rl.envs.keys_doors import COLOURS, PRESETS, Random, Solver, Wanderer, door_causes, plan, play
from secret_rl.envs.keys_doors.puzzle import room_cells
from secret_rl.envs.keys_doors.wad import RGB

pytest.importorskip("vizdoom")
ID = "secret_rl/KeysDoors-v0"


@pytest.fixture
def make(make_env):
    return lambda preset="2x2-easy", **options: make_env(ID, preset=preset, **options)


def steps(env, policy, seed=None):
    """The (reward, terminated, truncated, info) of each step of an episode."""
    env.reset(seed=seed)
    over = False
    while not over:
        _, reward, terminated, truncated, info = env.step(policy())
        yield reward, terminated, truncated, info
        over = terminated or truncated


@pytest.mark.parametrize("preset", PRESETS)
def test_the_solver_reaches_the_goal_by_the_plan(make, preset):
    """The plan's proof holds in the engine: every event of it, in its order, and nothing else."""
    env = make(preset)
    for seed in range(4):
        total, length, events = play(env, Solver(env), seed)
        puzzle = env.unwrapped.puzzle
        colours = {"key": puzzle.keys, "door": puzzle.doors}
        expected = [(kind, colours[kind][i].colour if kind in colours else True) for kind, i in plan(puzzle)]
        names = {"key": "key_picked", "door": "door_opened", "goal": "goal_reached"}
        assert [(kind, e[name]) for e in events for kind, name in names.items() if e[name]] == expected
        assert total == puzzle.core * 1.0 + 50.0
        assert length < 900


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
            closed = env.unwrapped.puzzle.closed_doors(env.unwrapped.status)
            before_closed += tuple(info["position"] // 100) in [door.cell for door in closed]
    assert replaced > 0 and opened > 0 and before_closed > 0


def test_closed_doors_and_walls_hold(make):
    """Random play never leaves the rooms reached through doors that were opened."""
    env = make("3x3", max_steps=300)
    for seed in range(2):
        for *_, info in steps(env, Random(env, hold=4), seed):
            puzzle, status = env.unwrapped.puzzle, env.unwrapped.status
            opened = [door for door in puzzle.doors if door not in puzzle.closed_doors(status)]
            reached = {puzzle.rooms[0]} | {room for door in opened for room in door.rooms}
            allowed = {cell for room in reached for cell in room_cells(room)} | {door.cell for door in puzzle.doors}
            assert tuple(info["position"] // 100) in allowed


def test_info_reports_the_state(make):
    env = make()
    with pytest.raises(gym.error.ResetNeeded, match="call reset"):
        _ = env.unwrapped.status
    _, info = env.reset(seed=0)
    x, y = info["position"]
    assert info["state"].tolist() == [x // 50, y // 50, 0]
    assert [(c + 0.5) * 100 for c in env.unwrapped.puzzle.start] == [x, y]
    assert round(info["angle"]) == env.unwrapped.puzzle.angle
    for action, turned in ((2, 12), (3, 0)):
        angle = env.step(action)[-1]["angle"]
        assert (angle - info["angle"] - turned + 180) % 360 - 180 == pytest.approx(0, abs=0.1)


def test_the_hud_shows_the_held_key_and_is_off_by_default(make):
    frames = []
    for env in (make(layout_seed=2), make(layout_seed=2, hud=True)):
        observation, info = env.reset()
        assert not info["held_key"]
        policy = Solver(env)
        while not info["held_key"]:
            observation, _, _, _, info = env.step(policy())
        frames.append(observation)
    differs = (frames[0] != frames[1]).any(-1)
    assert differs[-15:, :15].mean() > 0.9 and not differs[:-15].any() and not differs[:, 15:].any()
    assert tuple(frames[1][-8, 8]) == RGB[COLOURS[info["held_key"] - 1]]


def test_a_puzzle_of_ones_own(make):
    env = make("2x2-easy")
    _, info = env.reset(seed=0, options={"puzzle": SIMPLE})
    assert env.unwrapped.puzzle is SIMPLE and info["layout_seed"] == -1
    policy, events = Solver(env), []
    while not info["goal_reached"]:
        _, _, _, truncated, info = env.step(policy())
        events += [name for name in ("key_picked", "door_opened", "goal_reached") if info[name]]
        assert not truncated
    assert events == ["key_picked", "door_opened", "goal_reached"]


@pytest.mark.filterwarnings("ignore:.*not in the possible render_modes")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"size": (84, 2000)}, "no picture as large as"),
        ({"size": (7, 8)}, r"size\[0\] must be an integer of at least 8"),
        ({"preset": "4x4"}, "2x2-easy"),
        ({"rows": 2, "columns": 2, "core": 4}, "use more rows"),
        ({"render_mode": "ansi"}, "rgb_array"),
    ],
)
def test_bad_options_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        gym.make(ID, **options)


def test_collecting_is_the_same_in_workers(make):
    options = {"preset": "dmlab-like", "size": (40, 30), "max_steps": 60}
    env = make(**options)
    alone = srl.collect(env, 6, Wanderer(env), seed=3, progress=False)
    assert alone.equals(srl.collect(ID, 6, Wanderer, seed=3, env_options=options, workers=2, progress=False))
    assert alone.observations.shape == (360, 30, 40, 3) and alone.annotations["key_picked"].any()


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


def test_the_key_of_each_door_is_held_from_its_cause_on(make):
    env = make("3x3", size=(16, 12), max_steps=400)
    data = srl.collect(env, 6, Wanderer(env), seed=3, progress=False)
    causes, opened = door_causes(data), data.annotations["door_opened"]
    assert (opened > 0).sum() >= 5
    assert ((causes >= 0) == (opened > 0)).all()
    starts = np.repeat(data.offsets[:-1], data.lengths)
    held, picked = data.annotations["held_key"], data.annotations["key_picked"]
    for step in np.flatnonzero(opened):
        cause = starts[step] + causes[step]
        assert picked[cause] == opened[step]
        assert (held[cause:step] == opened[step]).all() and held[step] == 0
