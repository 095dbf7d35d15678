"""The world on its engine: the rules as played, what is seen and told, and the same under the same seed."""

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import secret_rl as srl
from secret_rl.envs.keys_doors import COLOURS, PRESETS, Door, Key, Puzzle, Random, Solver, Wanderer, plan, play
from secret_rl.envs.keys_doors.art import RGB
from secret_rl.envs.keys_doors.puzzle import room_cells

pytest.importorskip("vizdoom")
ID = "secret_rl/KeysDoors-v0"


@pytest.fixture
def make():
    made = []

    def make_one(preset="2x2-easy", **options):
        made.append(gym.make(ID, preset=preset, **options))
        return made[-1]

    yield make_one
    for env in made:
        env.close()


def test_passes_gymnasiums_checker(make):
    check_env(make(render_mode="rgb_array").unwrapped)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_solver_reaches_the_goal_by_the_plan(make, preset):
    """The planner's proof holds in the engine: every event of the plan, in its order, and nothing else."""
    env = make(preset)
    for seed in range(4):
        total, steps, events = play(env, Solver(env), seed)
        puzzle = env.unwrapped.puzzle
        told = [(e["key_picked"], e["door_opened"], e["goal_reached"]) for e in events]
        expected = {
            "key": lambda i: (puzzle.keys[i].colour, 0, False),  # noqa: B023  used at once
            "door": lambda i: (0, puzzle.doors[i].colour, False),  # noqa: B023
            "goal": lambda _: (0, 0, True),
        }
        assert told == [expected[kind](index) for kind, index in plan(puzzle)]
        assert total == puzzle.core * 1.0 + 50.0
        assert steps < 900


def test_a_second_key_takes_the_place_of_the_first_and_doors_want_their_colour(make):
    """A wanderer breaks no rule: what is held, opened and paid follows from the events."""
    env = make("dmlab-like", key_reward=0.25, door_reward=2.0, max_steps=500)
    replaced = 0
    for seed in range(6):
        policy = Wanderer(env, seed)
        env.reset(seed=seed)
        held, over = 0, False
        while not over:
            _, reward, terminated, truncated, info = env.step(policy())
            replaced += bool(held and info["key_picked"])
            if info["door_opened"]:
                assert info["door_opened"] == held
                held = 0
            held = info["key_picked"] or held
            assert info["held_key"] == held
            paid = 0.25 * bool(info["key_picked"]) + 2.0 * bool(info["door_opened"]) + 50.0 * info["goal_reached"]
            assert reward == paid
            assert terminated == info["goal_reached"]
            over = terminated or truncated
    assert replaced > 0


def test_closed_doors_and_walls_hold(make):
    """Random play never leaves the rooms reached through doors that were opened."""
    env = make("3x3")
    policy = Random(env, hold=4)
    for seed in range(2):
        env.reset(seed=seed)
        opened = set()
        for _ in range(300):
            _, _, terminated, _, info = env.step(policy())
            puzzle, status = env.unwrapped.puzzle, env.unwrapped.status
            opened |= {i for i in range(len(puzzle.doors)) if status.opened >> i & 1}
            reached = {puzzle.rooms[0]} | {room for i in opened for room in puzzle.doors[i].rooms}
            allowed = {cell for room in reached for cell in room_cells(room)} | {door.cell for door in puzzle.doors}
            assert tuple(info["position"] // 100) in allowed
            if terminated:
                break


def test_same_seed_same_frames_in_another_engine(make):
    """Frames, rewards and infos are the same in two engines, and on a second visit in the same one."""
    first, second = make("dmlab-like"), make("dmlab-like")
    second.reset(seed=99)  # another map first
    runs = []
    for env in (first, second, first):
        observation, info = env.reset(seed=5)
        run, policy = [(observation, info["state"], 0.0)], Random(env, seed=1, hold=3)
        for _ in range(60):
            observation, reward, _, _, info = env.step(policy())
            run.append((observation, info["state"], reward))
        runs.append(run)
    for other in runs[1:]:
        for (frame, state, reward), (frame_2, state_2, reward_2) in zip(runs[0], other, strict=True):
            assert np.array_equal(frame, frame_2) and np.array_equal(state, state_2) and reward == reward_2


def test_maps_are_new_each_episode_unless_fixed(make):
    env = make("3x3")
    env.reset(seed=0)
    maps = [env.unwrapped.puzzle]
    for _ in range(3):
        env.reset()
        maps.append(env.unwrapped.puzzle)
    assert len(set(maps)) == 4
    fixed = make("3x3", layout_seed=4)
    seen = set()
    for seed in (0, 1, None):
        _, info = fixed.reset(seed=seed)
        seen.add(fixed.unwrapped.puzzle)
        assert info["layout_seed"] == 4
    assert len(seen) == 1


def test_info_tells_the_state(make):
    env = make()
    _, info = env.reset(seed=0)
    x, y = info["position"]
    assert info["state"].tolist() == [x // 50, y // 50, 0]
    assert [(c + 0.5) * 100 for c in env.unwrapped.puzzle.start] == [x, y]
    assert round(info["angle"]) == env.unwrapped.puzzle.angle
    before = info["angle"]
    _, _, _, _, info = env.step(2)
    assert (info["angle"] - before) % 360 == pytest.approx(12, abs=0.1)
    _, _, _, _, info = env.step(3)
    assert (info["angle"] - before) % 360 == pytest.approx(0, abs=0.1) or info["angle"] > 359.9


@pytest.mark.parametrize("size", [(160, 120), (80, 60), (320, 240)])
def test_observations_have_the_size_asked_for(make, size):
    env = make(size=size, render_mode="rgb_array", layout_seed=0)
    observation, _ = env.reset()
    assert observation.shape == (size[1], size[0], 3) == env.observation_space.shape
    assert np.array_equal(env.render(), observation)
    assert observation.std() > 10  # not blank


def test_the_hud_shows_the_held_key_and_is_off_by_default(make):
    plain, shown = make(layout_seed=2), make(layout_seed=2, hud=True)
    frames = []
    for env in (plain, shown):
        observation, info = env.reset()
        assert not info["held_key"]
        policy = Solver(env)
        while not info["held_key"]:
            observation, _, _, _, info = env.step(policy())
        frames.append(observation)
    differs = (frames[0] != frames[1]).any(-1)
    assert differs[-15:, :15].mean() > 0.9 and not differs[:-15].any() and not differs[:, 15:].any()
    assert tuple(frames[1][-8, 8]) == RGB[COLOURS[info["held_key"] - 1]]


def test_time_runs_out(make):
    env = make(max_steps=3)
    env.reset(seed=0)
    assert [env.step(2)[3] for _ in range(3)] == [False, False, True]
    with pytest.raises(gym.error.ResetNeeded):
        env.unwrapped.step(0)


def test_the_map_from_above(make):
    env = make("dmlab-like", layout_seed=3)
    env.reset()
    picture = env.unwrapped.draw_map(pixels=8, trail=np.array([[150.0, 150.0]]))
    puzzle = env.unwrapped.puzzle
    assert picture.shape == (puzzle.height * 8, puzzle.width * 8, 3)
    for door in puzzle.doors:
        x, y = door.cell
        assert tuple(picture[-(y * 8 + 5), x * 8 + 4]) == RGB[COLOURS[door.colour - 1]]


def test_collecting_keeps_states_and_events(make):
    data = srl.collect(ID, 2, env_options={"preset": "2x2-easy", "size": (80, 60), "max_steps": 40}, progress=False)
    assert data.states.shape == (80, 3)
    assert {"key_picked", "door_opened", "goal_reached", "held_key"} <= data.annotations.keys()


def test_collecting_with_a_wanderer_is_the_same_each_time(make):
    env = make("dmlab-like", size=(80, 60), max_steps=60)
    first, again = (srl.collect(env, 2, Wanderer(env), seed=3, progress=False) for _ in range(2))
    assert first.equals(again)


def test_wanderers_in_workers_play_the_same_episodes(make):
    options = {"preset": "dmlab-like", "size": (40, 30), "max_steps": 60}
    alone, shared = (
        srl.collect(ID, 6, Wanderer, seed=3, env_options=options, workers=workers, progress=False) for workers in (1, 2)
    )
    assert shared.equals(alone)
    assert shared.observations.shape == (360, 30, 40, 3) and shared.states.shape == (360, 3)
    assert shared.annotations.keys() == {"key_picked", "door_opened", "goal_reached", "held_key", "position"}
    assert shared.annotations["key_picked"].any()
    env = make(**options)
    assert shared.equals(srl.collect(env, 6, Wanderer(env), seed=3, progress=False))


def test_the_wanderer_goes_to_closed_doors_too(make):
    """It stands before doors that stay closed, and opens some."""
    env = make("dmlab-like", max_steps=400)
    before_closed = opened = 0
    for seed in range(5):
        policy = Wanderer(env, seed)
        _, info = env.reset(seed=seed)
        over = False
        while not over:
            _, _, terminated, truncated, info = env.step(policy())
            doors = enumerate(env.unwrapped.puzzle.doors)
            closed = [door.cell for index, door in doors if not env.unwrapped.status.opened >> index & 1]
            before_closed += tuple(info["position"] // 100) in closed
            opened += bool(info["door_opened"])
            over = terminated or truncated
    assert before_closed > 0 and opened > 0


def test_a_puzzle_of_ones_own(make):
    puzzle = Puzzle(
        columns=2,
        rows=1,
        rooms=((0, 0), (1, 0)),
        keys=(Key(1, (3, 1)),),
        doors=(Door(1, ((0, 0), (1, 0)), (4, 2)),),
        goal=(7, 1),
        start=(1, 2),
        angle=0,
        core=1,
    )
    env = make("2x2-easy")
    _, info = env.reset(seed=0, options={"puzzle": puzzle})
    assert env.unwrapped.puzzle is puzzle and info["layout_seed"] == -1
    policy, events = Solver(env), []
    while not info["goal_reached"]:
        _, _, _, truncated, info = env.step(policy())
        events += [name for name in ("key_picked", "door_opened", "goal_reached") if info[name]]
        assert not truncated
    assert events == ["key_picked", "door_opened", "goal_reached"]
    with pytest.raises(ValueError, match="and nothing else"):
        env.reset(options={"maze": 3})


@pytest.mark.filterwarnings("ignore:.*not in the possible render_modes")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"size": (84, 2000)}, "no picture as large as"),
        ({"size": (7, 8)}, r"size\[0\] must be an integer of at least 8"),
        ({"preset": "4x4"}, "2x2-easy"),
        ({"rows": 2, "columns": 2, "core": 4}, "use more rows"),
        ({"frame_skip": 0}, "frame_skip"),
        ({"render_mode": "ansi"}, "rgb_array"),
    ],
)
def test_bad_options_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        gym.make(ID, **options)


def test_bad_actions_are_refused(make):
    env = make()
    env.reset(seed=0)
    with pytest.raises(ValueError, match="rotate left"):
        env.unwrapped.step(4)


def test_walkers_go_astray_as_often_as_they_are_told_and_the_same_way_again():
    with gym.make(ID, preset="2x2-easy", core=2, size=(16, 12), max_steps=120) as env:

        def actions(astray, seed=0):
            data = srl.collect(env, 2, partial(Wanderer, astray=astray), seed=seed, progress=False)
            return data.actions

        straight, stray, again = actions(0.0), actions(0.1), actions(0.1)
        assert np.array_equal(stray, again)
        assert (stray == 1).mean() > (straight == 1).mean(), "it walks backwards now and then"
        lost = actions(1.0)
        assert 0.1 < (lost == 1).mean() < 0.5, "nothing but random actions"
        with pytest.raises(ValueError, match="astray must lie between 0 and 1, got 1.5"):
            Wanderer(env, astray=1.5)
