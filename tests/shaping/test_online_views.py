"""Online credit where the agent sees more than the credit model: through a view."""

import json
import zlib
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from tests.sealing import change_json
from tests.shaping.playing import MODES, compare_wrappers, learn_compiled

from secret_rl.envs.triggers import TriggersEnv, TriggersVectorEnv
from secret_rl.files import FileFormatError
from secret_rl.shaping import OnlineCredit, PotentialShaping, VectorPotentialShaping
from secret_rl.views import CenteredView, CropView

MAZE = {"size": 4, "triggers": 2, "layout_seed": 3, "max_steps": 25}
CROP = gym.spaces.Box(0, 1, (3, 3, 3), np.uint8)


class CropCredit:
    """Credit of 3x3 crops, in sixteenths; refuses everything else."""

    def step_credit(self, observations, actions):
        assert observations.shape[1:] == (3, 3, 3) and observations.dtype == np.uint8
        marks = [zlib.crc32(o.tobytes() + bytes([a])) for o, a in zip(observations, actions, strict=True)]
        return np.array(marks) % 16 / 16

    def check_spaces(self, observation_space, action_space):
        if observation_space != CROP:
            raise ValueError(f"fitted on {CROP}, but there are {observation_space}")


def online(view=CenteredView(3), **options):  # noqa: B008  frozen
    return OnlineCredit(CropCredit(), observation=view, threshold=0, scale=0.05, **options)


def play(env, steps, mode):
    """Rewards of random play, and how many episodes ended."""
    env.reset(seed=5)
    rewards, ended = [], 0
    for step in range(steps):
        _, reward, terminated, truncated, _ = env.step(np.random.default_rng(step).integers(0, 4, env.num_envs))
        rewards.append(reward)
        over = terminated | truncated
        ended += int(over.sum())
        if mode is AutoresetMode.DISABLED and over.any():
            env.reset(options={"reset_mask": over.copy()})
    return np.array(rewards), ended


@pytest.mark.parametrize("reset_on_reward", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_the_whole_through_a_view_is_shaped_as_the_crop_is(mode, reset_on_reward):
    """One environment, and a vector of them; the agent sees the full state, a larger crop, or what credit sees."""
    options, modes = {"reset_on_reward": reset_on_reward}, {"autoreset_mode": mode}
    wide, narrow = {**MAZE, "window": None}, {**MAZE, "window": 3}
    crops = VectorPotentialShaping(TriggersVectorEnv(4, **narrow, **modes), online(None, **options), 0.9)
    seen, ended = play(crops, 60, mode)
    assert ended > 5 and len(np.unique(seen)) > 20
    reused = SyncVectorEnv([lambda: TriggersEnv(**wide)] * 4, copy=False, **modes)
    larger = TriggersVectorEnv(4, **{**MAZE, "window": 5}, **modes)
    for env in (
        VectorPotentialShaping(larger, online(CropView(3), **options), 0.9),
        VectorPotentialShaping(TriggersVectorEnv(4, **wide, **modes), online(**options), 0.9),
        VectorPotentialShaping(reused, online(**options), 0.9),
        SyncVectorEnv([lambda: PotentialShaping(TriggersEnv(**wide), online(**options), 0.9)] * 4, **modes),
    ):
        np.testing.assert_array_equal(play(env, 60, mode)[0], seen)


def test_the_spaces_checked_are_those_of_the_view():
    PotentialShaping(TriggersEnv(window=None), online(), 0.9)
    VectorPotentialShaping(TriggersVectorEnv(2, window=None), online(), 0.9)
    with pytest.raises(ValueError, match=r"fitted on .*\(3, 3, 3\).* there are .*\(5, 5, 3\)"):
        PotentialShaping(TriggersEnv(window=None), online(CenteredView(5)), 0.9)
    with pytest.raises(ValueError, match=r"larger than an image of 3x3"):
        PotentialShaping(TriggersEnv(window=3), online(CropView(5)), 0.9)


def test_a_compiled_learner_learns_what_a_stepping_one_does():
    wide = learn_compiled(PotentialShaping(TriggersEnv(**MAZE, window=None), online(), 0.99), 40, seed=1)
    narrow = learn_compiled(PotentialShaping(TriggersEnv(**MAZE), online(None), 0.99), 40, seed=1)
    np.testing.assert_array_equal(wide.lengths, narrow.lengths)


def test_own_views_come_back_from_a_file(tmp_path):
    path = online().save(tmp_path / "online.json")
    again = OnlineCredit.load(path, CropCredit())
    assert again.options == online().options
    envs = [VectorPotentialShaping(TriggersVectorEnv(3, **MAZE, window=None), one, 0.9) for one in (again, online())]
    np.testing.assert_array_equal(*(play(env, 30, MODES[0])[0] for env in envs))
    content = json.loads(path.read_text())
    assert content["observation"] == {"kind": "CenteredView", "window": 3, "channel": 0, "key": None}
    assert content["version"] == 1
    cannot = r"online\.json cannot be read as 'secret-rl online credit': "
    for broken in ({"kind": "Fog"}, {"kind": "CenteredView", "window": 4}, {"kind": []}, 3, {"window": 3}, [], ""):
        change_json(path, lambda content: content.update(observation=broken))  # noqa: B023  called at once
        with pytest.raises(FileFormatError, match=cannot):
            OnlineCredit.load(path, CropCredit())
    path.write_text(json.dumps({**content, "observation": None}))
    with pytest.raises(FileFormatError, match=cannot + "it does not match its checksum"):
        OnlineCredit.load(path, CropCredit())  # a view that was lost is not no view


@dataclass(frozen=True)
class Mirrored:
    """A view of one's own."""

    def space(self, observation_space):
        return observation_space

    def rows(self, nest):
        return nest[:, :, ::-1]

    def one(self, observation):
        return observation[:, ::-1]


def test_views_of_ones_own_work_and_stay_in_the_code(tmp_path):
    envs = TriggersVectorEnv(3, **MAZE)
    _, paid = compare_wrappers(lambda: TriggersEnv(**MAZE), lambda: online(Mirrored()), MODES[0], 5, envs=envs)
    assert paid > 0
    with pytest.raises(ValueError, match=r"Mirrored\(\).* cannot be saved: keep it in your code"):
        online(Mirrored()).save(tmp_path / "no.json")


@pytest.mark.parametrize("observation", [3, "CenteredView", CenteredView, object()])
def test_what_is_neither_view_nor_function_is_refused(observation):
    with pytest.raises(TypeError, match="observation must be a view"):
        online(observation)
