"""Online credit where the agent sees more than the credit model: through a view."""

import json
import zlib
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from tests.sealing import change_json
from tests.shaping.playing import compare

from secret_rl.agents import QLearning
from secret_rl.envs.triggers import TriggersEnv, TriggersVectorEnv
from secret_rl.files import FileFormatError
from secret_rl.shaping import OnlineCredit, PotentialShaping, VectorPotentialShaping
from secret_rl.testing.shaping import EveryEnding
from secret_rl.views import CenteredView, CropView, DropView

MODES = list(AutoresetMode)
MAZE = {"size": 4, "triggers": 2, "layout_seed": 3, "max_steps": 25}
CROP = gym.spaces.Box(0, 1, (3, 3, 3), np.uint8)


class CropCredit:
    """Credit of 3x3 crops, in sixteenths; refuses everything else."""

    def __init__(self):
        self.rows = 0

    def step_credit(self, observations, actions):
        assert observations.shape[1:] == (3, 3, 3) and observations.dtype == np.uint8
        self.rows += len(observations)
        marks = [zlib.crc32(o.tobytes() + bytes([a])) for o, a in zip(observations, actions, strict=True)]
        return np.array(marks) % 16 / 16

    def check_spaces(self, observation_space, action_space):
        if observation_space != CROP:
            raise ValueError(f"fitted on {CROP}, but there are {observation_space}")


class CueCredit:
    """Credit of the cue alone."""

    def step_credit(self, observations, actions):
        return (observations + actions) % 4 / 4


def online(credit=None, **options):
    return OnlineCredit(credit or CropCredit(), observation=CenteredView(3), threshold=0, scale=0.05, **options)


def plain(**options):
    return OnlineCredit(CropCredit(), threshold=0, scale=0.05, **options)


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
    """Single, side by side and compiled; the agent sees the full state, or only what credit sees."""
    options = {"reset_on_reward": reset_on_reward}
    wide, narrow = {**MAZE, "window": None}, {**MAZE, "window": 3}
    seen, ended = play(
        VectorPotentialShaping(TriggersVectorEnv(4, **narrow, autoreset_mode=mode), plain(**options), 0.9), 60, mode
    )
    assert ended > 5 and len(np.unique(seen)) > 20
    for env in (
        VectorPotentialShaping(TriggersVectorEnv(4, **wide, autoreset_mode=mode), online(**options), 0.9),
        VectorPotentialShaping(
            SyncVectorEnv([lambda: TriggersEnv(**wide)] * 4, copy=False, autoreset_mode=mode), online(**options), 0.9
        ),
        SyncVectorEnv([lambda: PotentialShaping(TriggersEnv(**wide), online(**options), 0.9)] * 4, autoreset_mode=mode),
    ):
        np.testing.assert_array_equal(play(env, 60, mode)[0], seen)


@pytest.mark.parametrize("mode", MODES)
def test_one_entry_of_a_dict(mode):
    def potential():
        return OnlineCredit(CueCredit(), threshold=0, scale=0.05, observation=DropView(("place",), squeeze=True))

    theirs = SyncVectorEnv([lambda: PotentialShaping(EveryEnding(), potential(), 0.9)] * 3, autoreset_mode=mode)
    ours = VectorPotentialShaping(SyncVectorEnv([EveryEnding] * 3, autoreset_mode=mode), potential(), 0.9)
    compare(ours, theirs, 2, 40, mode)


def test_the_spaces_checked_are_those_of_the_view():
    PotentialShaping(TriggersEnv(window=None), online(), 0.9)
    VectorPotentialShaping(TriggersVectorEnv(2, window=None), online(), 0.9)
    with pytest.raises(ValueError, match=r"fitted on .*\(3, 3, 3\).* there are .*\(5, 5, 3\)"):
        PotentialShaping(TriggersEnv(window=None), OnlineCredit(CropCredit(), observation=CenteredView(5)), 0.9)
    with pytest.raises(ValueError, match=r"larger than an image of 3x3"):
        PotentialShaping(TriggersEnv(window=3), OnlineCredit(CropCredit(), observation=CropView(5)), 0.9)


def test_a_compiled_learner_learns_what_a_stepping_one_does():
    shaped = PotentialShaping(TriggersEnv(**MAZE, window=None), online(), 0.99)
    compiled = QLearning(seed=1).learn(shaped, 40).curve
    stepping = QLearning(seed=1).learn(gym.Wrapper(shaped), 40).curve
    np.testing.assert_array_equal(compiled.returns, stepping.returns)
    np.testing.assert_array_equal(compiled.lengths, stepping.lengths)
    narrow = QLearning(seed=1).learn(PotentialShaping(TriggersEnv(**MAZE), plain(), 0.99), 40).curve
    np.testing.assert_array_equal(compiled.lengths, narrow.lengths)


def test_own_views_come_back_from_a_file(tmp_path):
    credit = CropCredit()
    path = online(credit).save(tmp_path / "online.json")
    again = OnlineCredit.load(path, credit)
    assert again.options == online().options
    seen = [
        play(VectorPotentialShaping(TriggersVectorEnv(3, **MAZE, window=None), potential, 0.9), 30, MODES[0])[0]
        for potential in (again, online())
    ]
    np.testing.assert_array_equal(*seen)
    content = json.loads(path.read_text())
    assert content["observation"] == {"kind": "CenteredView", "window": 3, "channel": 0, "key": None}
    assert content["version"] == 1
    cannot = r"online\.json cannot be read as 'secret-rl online credit': "
    for broken in ({"kind": "Fog"}, {"kind": "CenteredView", "window": 4}, {"kind": []}, 3, {"window": 3}, [], ""):
        change_json(path, lambda content: content.update(observation=broken))  # noqa: B023  called at once
        with pytest.raises(FileFormatError, match=cannot):
            OnlineCredit.load(path, credit)
    path.write_text(json.dumps({**content, "observation": None}))
    with pytest.raises(FileFormatError, match=cannot + "it does not match its checksum"):
        OnlineCredit.load(path, credit)  # a view that was lost is not no view


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
    def potential():
        return OnlineCredit(CropCredit(), threshold=0, scale=0.05, observation=Mirrored())

    ours = VectorPotentialShaping(TriggersVectorEnv(3, **MAZE), potential(), 0.9)
    theirs = SyncVectorEnv([lambda: PotentialShaping(TriggersEnv(**MAZE), potential(), 0.9)] * 3)
    np.testing.assert_array_equal(play(ours, 40, MODES[0])[0], play(theirs, 40, MODES[0])[0])
    with pytest.raises(ValueError, match=r"Mirrored\(\).* cannot be saved: keep it in your code"):
        potential().save(tmp_path / "no.json")


@pytest.mark.parametrize("observation", [3, "CenteredView", CenteredView, object()])
def test_what_is_neither_view_nor_function_is_refused(observation):
    with pytest.raises(TypeError, match="observation must be a view"):
        OnlineCredit(CropCredit(), observation=observation)
