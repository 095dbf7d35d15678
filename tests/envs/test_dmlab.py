"""The world in DeepMind Lab, against a stand-in that is as strict as Lab: the contract of keys and doors holds."""

import subprocess
import sys
from math import atan2, degrees, hypot

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from tests.envs import dmlab_fake

import secret_rl as srl
from secret_rl.envs.dmlab import LEAST_SIZE, UNSEEN, LabOptions, read_events, shown_key
from secret_rl.envs.keys_doors import COLOURS, Door, Key, Puzzle, Random, plan
from secret_rl.envs.keys_doors.env import METADATA, Events
from secret_rl.envs.keys_doors.puzzle import CELL, centre, path, room_of

ID = "secret_rl/DMLabKeysDoors-v0"
SIZE = (64, 48)


@pytest.fixture
def lab(monkeypatch):
    """The stand-in, in the place of ``deepmind_lab``."""
    monkeypatch.setitem(sys.modules, "deepmind_lab", fake := dmlab_fake.module())
    return fake.Lab


@pytest.fixture
def make(lab):
    made = []

    def make_one(**options):
        made.append(gym.make(ID, **{"size": SIZE, **options}))
        return made[-1]

    yield make_one
    for env in made:
        env.close()


class Player:
    """Walks by the stand-in's true map: along the solution, or (with an ``rng``) to any key and door that opens."""

    def __init__(self, world, rng=None):
        self.world, self.rng, self.seen, self.target = world, rng, None, None

    def __call__(self, observation=None):
        world = self.world
        if self.seen != (world.puzzle, world.status):
            self.seen, self.target = (world.puzzle, world.status), self._choose()
        if self.target is None:
            return int(self.rng.integers(4))
        here = self._cell()
        route = path(world.puzzle, world.status, here, self.target)
        x, y = world.place
        first, *rest = [centre(cell) for cell in route]
        aim = rest[0] if rest else first
        if rest and min(abs(x - first[0]), abs(y - first[1])) > 12:  # off the lines: beside them are walls and keys
            aim = first
        off = (degrees(atan2(aim[1] - y, aim[0] - x)) - world.yaw + 180) % 360 - 180
        if abs(off) > 6 and hypot(aim[0] - x, aim[1] - y) > 2:
            return 2 if off > 0 else 3
        return 0

    def _cell(self):
        x, y = self.world.place
        return int(x // CELL), int(y // CELL)

    def _choose(self):
        puzzle, status, here = self.world.puzzle, self.world.status, self._cell()
        if self.rng is None:
            room = room_of(here) or next(door.rooms[0] for door in puzzle.doors if door.cell == here)
            kind, number = plan(puzzle, status, room)[0]
            things = {"key": puzzle.keys, "door": puzzle.doors}
            return puzzle.goal if kind == "goal" else things[kind][number].cell
        held = puzzle.keys[status.held].colour if status.held >= 0 else 0
        cells = [key.cell for key in puzzle.keys_left(status)]
        cells += [door.cell for door in puzzle.closed_doors(status) if door.colour == held]
        near = [cell for cell in cells if path(puzzle, status, here, cell)]
        return near[self.rng.integers(len(near))] if near else None


def events(info):
    """What an info reports, in the words of the stand-in's truth, order within the step aside."""
    things = [("key", info["key_picked"]), ("door", info["door_opened"])]
    return [event for event in things if event[1]] + [("goal", 0)] * info["goal_reached"]


@pytest.mark.parametrize(
    ("held", "paid", "shown", "events", "held_then"),
    [
        (0, 0.0, 0, Events(0, 0, False), 0),
        (3, 0.0, 5, Events(0, 0, False), 3),  # a black sky is no key: nothing was paid
        (0, 1.0, 2, Events(2, 0, False), 2),
        (3, 1.0, 2, Events(2, 0, False), 2),  # another key takes its place
        (3, 1.0, 3, Events(3, 0, False), 3),  # of the same colour
        (3, 1.0, 0, Events(0, 3, False), 0),
        (0, 2.0, 0, Events(UNSEEN, UNSEEN, False), 0),
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
def test_other_rewards_are_refused(paid):
    with pytest.raises(RuntimeError, match=f"the level paid {paid} in one step"):
        read_events(0, paid, 1)


@pytest.mark.parametrize("size", [LEAST_SIZE, (84, 84), (96, 72), (160, 120), (333, 77), (640, 480)])
@pytest.mark.parametrize("colour", COLOURS)
def test_the_square_is_read_where_lab_paints_it(size, colour):
    width, height = size
    frame = np.random.default_rng(0).integers(90, 160, (height, width, 3)).astype(np.uint8)
    assert shown_key(frame) == 0
    rows = slice(round(12 * height / 480), round(60 * height / 480))
    frame[rows, round(12 * width / 640) : round(60 * width / 640)] = np.array(dmlab_fake.PAINTS[colour]) * 255
    assert shown_key(frame) == COLOURS.index(colour) + 1
    frame[round(36 * height / 480), round(36 * width / 640)] = (128, 128, 128)  # nothing that is not even
    assert shown_key(frame) == 0


def test_gymnasiums_checker_passes(make):
    check_env(make(render_mode="rgb_array").unwrapped)


def test_a_player_that_knows_the_map_is_paid_for_its_solution(make, lab):
    env = make()
    for seed in range(4):
        env.reset(seed=seed)
        world = lab.made[-1]
        puzzle, player = world.puzzle, Player(world)
        things = {"key": puzzle.keys, "door": puzzle.doors}
        expected = [(kind, things[kind][number].colour if kind in things else 0) for kind, number in plan(puzzle)]
        reported, total, terminated = [], 0.0, False
        while not terminated:
            _, reward, terminated, truncated, info = env.step(player())
            assert not truncated
            reported += events(info)
            total += reward
        assert reported == expected == world.truth
        assert total == puzzle.core * 1.0 + 50.0
        assert world.is_running()  # Lab would go on for a while after the goal
        with pytest.raises(gym.error.ResetNeeded):
            env.unwrapped.step(0)


@pytest.mark.parametrize("frame_skip", [2, 4, 8])
def test_what_is_reported_is_what_happened(make, lab, frame_skip):
    """Over episodes with keys that replace each other and doors that waste them, events are the true ones."""
    rewards = {"key_reward": 0.25, "door_reward": 2.0}
    env = make(frame_skip=frame_skip, turn_speed=80 // frame_skip, max_steps=2400 // frame_skip, **rewards)
    replaced = opened = 0
    for seed in range(4):
        _, info = env.reset(seed=seed)
        world = lab.made[-1]
        player, held, over = Player(world, np.random.default_rng(seed)), 0, False
        while not over:
            before = len(world.truth)
            _, reward, terminated, truncated, info = env.step(player())
            assert events(info) == world.truth[before:]
            replaced += bool(held and info["key_picked"] and not info["door_opened"])
            opened += bool(info["door_opened"])
            held = info["held_key"]
            assert held == (world.puzzle.keys[world.held].colour if world.held >= 0 else 0)
            assert info["state"].tolist() == [world.x // 50, world.y // 50, held]
            assert tuple(info["position"]) == (world.x, world.y)
            assert info["angle"] == pytest.approx(world.yaw % 360)
            paid = 0.25 * bool(info["key_picked"]) + 2.0 * bool(info["door_opened"]) + 50.0 * info["goal_reached"]
            assert reward == paid
            over = terminated or truncated
    assert replaced > 0 and opened > 0


def test_a_key_beside_its_door_may_be_spent_within_the_step(make, lab):
    """Along the wall into the corner of the key's reach: taken and spent at once, before any picture shows it."""
    env = make()
    env.reset(seed=0)
    world = lab.made[-1]
    rooms = ((0, 0), (1, 0))
    puzzle = Puzzle(2, 1, rooms, (Key(2, (3, 1)),), (Door(2, rooms, (4, 1)),), (7, 1), (1, 2), angle=0, core=1)
    world.begin(puzzle)
    world.x, world.y, world.yaw = 500 - 15.5, 300 + 30, -90.0
    infos = [env.step(0)[-1] for _ in range(4)]
    assert world.truth == [("key", 2), ("door", 2)]
    [info] = [info for info in infos if events(info)]
    assert (info["key_picked"], info["door_opened"], info["held_key"]) == (UNSEEN, UNSEEN, 0)


def test_actions_do_what_their_names_say(make, lab):
    env = make(turn_speed=30)
    _, start = env.reset(seed=3)
    world = lab.made[-1]
    world.yaw = 90.0
    _, _, _, _, info = env.step(2)
    assert info["angle"] == pytest.approx(90 + 4 * 30 * dmlab_fake.TURN)
    _, _, _, _, info = env.step(3)
    assert info["angle"] == pytest.approx(90)
    there = env.step(0)[-1]["position"] - start["position"]
    assert there[0] == pytest.approx(0, abs=1e-9) and there[1] > 10
    assert env.step(1)[-1]["position"] == pytest.approx(start["position"])
    with pytest.raises(ValueError, match="rotate left"):
        env.unwrapped.step(4)


def test_time_runs_out_while_lab_still_shows_a_picture(make, lab):
    """900 steps of 4 frames are Lab's whole 60 seconds: the last picture is taken just before they are up."""
    env = make()
    observation, _ = env.reset(seed=0)
    flags = []
    for _ in range(900):
        last = observation
        observation, _, terminated, truncated, _ = env.step(2)
        flags.append((terminated, truncated))
    assert flags == [(False, False)] * 899 + [(False, True)]
    assert not np.array_equal(observation, last)
    assert lab.made[-1].num_steps() == 3599


def test_a_level_that_ends_on_its_own_truncates(make, lab):
    lab.seconds = 0.5
    env = make()
    env.reset(seed=0)
    for _ in range(7):
        last, _, _, truncated, before = env.step(2)
        assert not truncated
    observation, reward, terminated, truncated, info = env.step(2)
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert np.array_equal(observation, last) and not np.shares_memory(observation, last)
    assert info["angle"] == before["angle"]
    env.reset()  # and the next one begins
    assert not env.step(2)[3]


def test_the_goal_in_the_last_frame_of_the_level_still_counts(make, lab):
    env = make()
    env.reset(seed=0)
    world = lab.made[-1]
    (x, y), lab.seconds = centre(world.puzzle.goal), 4 / 60
    world.x, world.y = x + dmlab_fake.BORDER, y + dmlab_fake.BORDER
    _, reward, terminated, truncated, info = env.step(2)
    assert not world.is_running()
    assert (reward, terminated, truncated, info["goal_reached"]) == (50.0, True, False, True)


def test_the_same_seed_is_the_same_episode(make, lab):
    """In two environments, and on a second visit in the same one; the reset's own seeds go on from there."""
    first, second = make(), make()
    second.reset(seed=99)
    runs = []
    for env in (first, second, first):
        observation, info = env.reset(seed=5)
        run, policy = [observation.tobytes(), info["layout_seed"]], Random(env, seed=1, hold=3)
        for _ in range(40):
            observation, reward, _, _, info = env.step(policy())
            run += [observation.tobytes(), info["state"].tolist(), reward]
        runs.append([*run, env.reset()[1]["layout_seed"]])
    assert runs[0] == runs[1] == runs[2]


def test_maps_are_new_each_episode_unless_fixed(make, lab):
    env = make()
    seeds = [env.reset(seed=0)[1]["layout_seed"], *(env.reset()[1]["layout_seed"] for _ in range(5))]
    assert len(set(seeds)) == 6
    assert lab.made[-1].resets == [(0, seed) for seed in seeds]
    fixed = make(layout_seed=np.int64(4))
    assert [fixed.reset(seed=seed)[1]["layout_seed"] for seed in (0, 1, None)] == [4, 4, 4]
    assert lab.made[-1].resets == [(0, 4)] * 3


@pytest.mark.parametrize("size", [(64, 48), (84, 84), (160, 120), (320, 180)])
@pytest.mark.parametrize("hud", [False, True])
def test_the_display_is_only_shown_if_asked_for_and_read_either_way(make, lab, size, hud):
    env = make(size=size, hud=hud, render_mode="rgb_array", layout_seed=1)
    observation, info = env.reset()
    player = Player(lab.made[-1])
    while not info["held_key"]:
        observation, _, _, _, info = env.step(player())
    assert observation.shape == (size[1], size[0], 3) == env.observation_space.shape
    assert observation in env.observation_space and observation.flags.c_contiguous
    assert np.array_equal(env.render(), observation)
    square = observation[observation.shape[0] // 14, observation.shape[1] // 18]
    paint = np.array(dmlab_fake.PAINTS[COLOURS[info["held_key"] - 1]]) * 255
    assert np.array_equal(square, paint) == hud
    assert (observation[size[1] // 2, size[0] // 2] == 200).all() == hud


def test_lab_is_set_up_as_asked(make, lab):
    cache = object()
    env = make(size=(100, 80), renderer="hardware", config={"mixerSeed": "7"}, level_cache=cache)
    assert not lab.made  # it starts with the first episode
    env.reset(seed=0)
    [world] = lab.made
    assert world.config == {"width": "100", "height": "80", "fps": "60", "mixerSeed": "7"}
    assert (world.level, world.renderer, world.level_cache) == (dmlab_fake.LEVEL, "hardware", cache)
    env.reset()
    assert len(lab.made) == 1


def test_collecting_keeps_states_and_events(make, lab):
    env = make()
    env.reset()

    def policy(observation):
        return Player(lab.made[-1])(observation)

    data = srl.collect(env, 3, policy, seed=2, progress=False)
    assert data.equals(srl.collect(env, 3, policy, seed=2, progress=False))
    assert data.states.shape == (len(data.actions), 3)
    assert data.annotations.keys() == set(METADATA["annotations"])
    assert data.terminated.sum() == data.annotations["goal_reached"].sum() == 3
    doors = data.annotations["door_opened"]
    assert (doors > 0).sum() + 50 * 3 == data.rewards.sum()


def test_closing_ends_lab_for_good(make, lab):
    env = make()
    env.reset(seed=0)
    env.close()
    env.close()
    assert not lab.made[-1].is_running() and not lab.made[-1].close()
    with pytest.raises(gym.error.ClosedEnvironmentError):
        env.unwrapped.reset()
    with pytest.raises(gym.error.ResetNeeded):
        env.unwrapped.step(0)
    make().close()  # before any episode


def test_a_lab_that_fails_is_given_up_and_started_again(make, lab):
    env = make()
    env.reset(seed=0)
    lab.fail_at = 6
    env.step(0)
    with pytest.raises(RuntimeError, match="out of memory.*call reset"):
        env.step(0)
    with pytest.raises(gym.error.ResetNeeded):
        env.unwrapped.step(0)
    lab.fail_at = None
    env.reset(seed=0)
    env.step(0)
    assert len(lab.made) == 2 and not lab.made[0].close()


def test_a_level_that_is_not_this_puzzle_is_noticed(make, lab, monkeypatch):
    env = make()
    env.reset(seed=0)
    monkeypatch.setattr(lab, "_touch", lambda self: 0.25)
    with pytest.raises(RuntimeError, match="shows no key"):
        env.step(0)
    env.reset(seed=0)
    monkeypatch.setattr(lab, "_touch", lambda self: -1.0)
    with pytest.raises(RuntimeError, match="paid -4.0 in one step"):
        env.step(0)
    with pytest.raises(RuntimeError, match="Invalid levelName"):
        make(level="lt_chasm").reset()
    with pytest.raises(ValueError, match="takes no options"):
        env.reset(options={"puzzle": 3})


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"size": (40, 30)}, ValueError, "size"),
        ({"turn_speed": 513}, ValueError, "turn_speed"),
        ({"turn_speed": 2.5}, TypeError, "turn_speed"),
        ({"layout_seed": 2**31}, ValueError, "layout_seed"),
        ({"renderer": "gpu"}, ValueError, "software, hardware"),
        ({"level": ""}, ValueError, "rooms_keys_doors_puzzle"),
        ({"config": {"mixerSeed": 7}}, TypeError, "words to words"),
        ({"config": {"width": "80"}}, ValueError, "leave width out"),
        ({"frame_skip": 0}, ValueError, "frame_skip"),
    ],
)
def test_impossible_options_are_refused(options, error, words):
    with pytest.raises(error, match=words):
        LabOptions(**options)


def test_without_lab_importing_works_and_making_says_how_to_get_it():
    code = """
import sys
sys.modules["deepmind_lab"] = None
import gymnasium, secret_rl
assert "secret_rl/DMLabKeysDoors-v0" in gymnasium.registry and "secret_rl.envs.dmlab" not in sys.modules
import secret_rl.envs.dmlab
try:
    gymnasium.make("secret_rl/DMLabKeysDoors-v0")
except ModuleNotFoundError as error:
    print(error)
print("vizdoom" in sys.modules)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "no package registry" in out and "Bazel" in out and "github.com/google-deepmind/lab" in out
    assert "secret_rl/KeysDoors-v0" in out and 'pip install "secret-rl[doom]"' in out
    assert out.endswith("False\n")
