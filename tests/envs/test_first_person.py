"""What keys and doors promises on every engine: ViZDoom, and a stand-in that is as strict as DeepMind Lab."""

import subprocess
import sys
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import secret_rl as srl
from secret_rl.envs.dmlab import LEAST_SIZE, LabOptions
from secret_rl.envs.keys_doors import Random, WorldOptions
from secret_rl.envs.keys_doors.env import METADATA


@pytest.fixture(params=[pytest.param("KeysDoors", marks=pytest.mark.slow), "DMLabKeysDoors"])
def make(request, make_env, lab):
    if request.param == "KeysDoors":
        pytest.importorskip("vizdoom")
    return partial(make_env, f"secret_rl/{request.param}-v0", size=LEAST_SIZE)


def test_gymnasiums_checker_passes(make):
    check_env(make(render_mode="rgb_array").unwrapped)


def test_the_same_seed_is_the_same_episode_in_another_engine_and_on_a_second_visit(make):
    first, second = make(), make()
    second.reset(seed=99)  # another map first
    runs = []
    for env in (first, second, first):
        observation, info = env.reset(seed=5)
        run, policy = [observation.tobytes(), info["state"].tolist(), info["layout_seed"]], Random(env, 1, hold=3)
        for _ in range(60):
            observation, reward, _, _, info = env.step(policy())
            run += [observation.tobytes(), info["state"].tolist(), reward]
        runs.append([*run, env.reset()[1]["layout_seed"]])
    assert runs[0] == runs[1] == runs[2]


def test_maps_are_new_each_episode_unless_fixed(make):
    for env, different in ((make(), 4), (make(layout_seed=np.int64(4)), 1)):
        seeds, maps = set(), set()
        for seed in (0, None, None, None):
            _, info = env.reset(seed=seed)
            seeds.add(info["layout_seed"])
            maps.add(getattr(env.unwrapped, "puzzle", info["layout_seed"]))
        assert len(maps) == len(seeds) == different
    assert seeds == {4}


def test_misuse_is_refused(make):
    env = make(max_steps=1)
    bare = env.unwrapped
    with pytest.raises(gym.error.ResetNeeded, match="call reset"):
        bare.step(0)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="rotate left.* got 4"):
        bare.step(4)
    with pytest.raises(ValueError, match="reset takes .*maze"):
        env.reset(options={"maze": 3})
    env.reset(seed=0)
    _, _, terminated, truncated, _ = env.step(0)
    assert truncated and not terminated
    with pytest.raises(gym.error.ResetNeeded, match="call reset"):
        bare.step(0)
    bare.close()
    bare.close()
    with pytest.raises(gym.error.ClosedEnvironmentError, match="make another"):
        bare.reset()
    with pytest.raises(gym.error.ResetNeeded):
        bare.step(0)
    make().close()  # before any episode


def test_collecting_keeps_states_and_events(make):
    env = make()
    data = srl.collect(env, 3, partial(Random, hold=4), seed=2, progress=False)
    assert data.equals(srl.collect(env, 3, partial(Random, hold=4), seed=2, progress=False))
    assert data.states.shape == (len(data.actions), 3)
    assert data.annotations.keys() == set(METADATA["annotations"])
    assert data.terminated.sum() == data.annotations["goal_reached"].sum()
    doors = (data.annotations["door_opened"] > 0).sum()
    assert doors + 50 * data.terminated.sum() == data.rewards.sum() and data.annotations["key_picked"].any()


@pytest.mark.parametrize(
    ("kind", "options", "error", "words"),
    [
        (WorldOptions, {"size": 84}, TypeError, "width, height"),
        (WorldOptions, {"size": (0, 10)}, ValueError, "size"),
        (WorldOptions, {"hud": 1}, TypeError, "hud"),
        (WorldOptions, {"goal_reward": float("nan")}, ValueError, "goal_reward must be a finite number"),
        (WorldOptions, {"max_steps": 0}, ValueError, "max_steps"),
        (WorldOptions, {"layout_seed": -1}, ValueError, "layout_seed"),
        (WorldOptions, {"frame_skip": 2.5}, TypeError, "frame_skip"),
        (LabOptions, {"frame_skip": 0}, ValueError, "frame_skip"),
        (LabOptions, {"size": (40, 30)}, ValueError, "size"),
        (LabOptions, {"turn_speed": 513}, ValueError, "turn_speed"),
        (LabOptions, {"turn_speed": 2.5}, TypeError, "turn_speed"),
        (LabOptions, {"layout_seed": 2**31}, ValueError, "layout_seed"),
        (LabOptions, {"renderer": "gpu"}, ValueError, "software, hardware"),
        (LabOptions, {"level": ""}, ValueError, "rooms_keys_doors_puzzle"),
        (LabOptions, {"config": {"mixerSeed": 7}}, TypeError, "words to words"),
        (LabOptions, {"config": {"width": "80"}}, ValueError, "leave width out"),
    ],
)
def test_impossible_options_are_refused(kind, options, error, words):
    with pytest.raises(error, match=words):
        kind(**options)


@pytest.mark.parametrize(
    ("name", "library", "module", "hints"),
    [
        ("KeysDoors", "vizdoom", "keys_doors", ['pip install "secret-rl[doom]"']),
        ("DMLabKeysDoors", "deepmind_lab", "dmlab",
         ["no package registry", "Bazel", "github.com/google-deepmind/lab", 'KeysDoors-v0, the same puzzle on another '
          'engine: pip install "secret-rl[doom]"']),
    ],
)  # fmt: skip
def test_without_the_library_importing_works_and_making_says_how_to_get_it(name, library, module, hints):
    code = f"""
import sys
sys.modules["{library}"] = None
import gymnasium, secret_rl
assert "secret_rl/{name}-v0" in gymnasium.registry and "secret_rl.envs.{module}" not in sys.modules
import secret_rl.envs.{module}
try:
    gymnasium.make("secret_rl/{name}-v0")
except ModuleNotFoundError as error:
    print(error)
assert sys.modules.get("vizdoom") is None
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert all(hint in out for hint in hints)
