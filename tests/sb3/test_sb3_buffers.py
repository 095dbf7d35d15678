"""Replay and rollout buffers of Stable-Baselines3, read as episodes."""

from itertools import chain

import gymnasium as gym
import numpy as np
import pytest
import stable_baselines3 as sb3
from stable_baselines3.common.vec_env import DummyVecEnv
from tests.sb3.deep_tasks import agent_in

import secret_rl as srl
from secret_rl.sb3 import buffers, from_replay_buffer, from_rollout_buffer


def cartpoles(n, **options):
    """Environments that record what is played, to compare a buffer with."""
    return [srl.Recorder(gym.make("CartPole-v1", **options)) for _ in range(n)]


def dqn(recorders, **options):
    return agent_in(sb3.DQN, DummyVecEnv([lambda env=env: env for env in recorders]), learning_starts=5000, **options)


def played(recorders):
    """The episodes of each environment, with the one that is running."""
    for env in recorders:
        env.reset()
    return [list(env.trajectories()) for env in recorders]


def cut_off(recorders):
    """How many episodes a reset cut off: the newest of an environment is not among them."""
    return sum(not (e.terminated or e.truncated) for episodes in played(recorders) for e in episodes[:-1])


def assert_is_what_was_played(data, recorders):
    expected = list(chain(*played(recorders)))
    assert len(data) == len(expected)
    for mine, theirs in zip(data, expected, strict=True):
        for name in ("observations", "actions", "final_observation", "rewards"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name), err_msg=name)
        assert (mine.terminated, mine.truncated) == (theirs.terminated, theirs.truncated and not theirs.terminated)


@pytest.mark.parametrize("n_envs", [1, 2])
def test_replay_buffer_gives_back_the_episodes_the_agent_played(n_envs):
    recorders = cartpoles(n_envs, max_episode_steps=15)
    model = dqn(recorders, buffer_size=2000).learn(400)
    data = from_replay_buffer(model.replay_buffer)
    assert data.truncated.any() and data.terminated.any()
    assert_is_what_was_played(data, recorders)


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("rows", [1000, 250])
def test_a_second_call_of_learn_does_not_glue_episodes_together(n_envs, rows, recwarn):
    """Each ends where the env was reset, with its own final observation, neither terminated nor truncated.

    A buffer that has wrapped around drops the steps that have lost their beginning.
    """
    recorders = cartpoles(n_envs)  # hardly ever end where learning stops
    model = dqn(recorders, buffer_size=rows * n_envs)
    for _ in range(4):
        model.learn(101 * n_envs, reset_num_timesteps=True)
    data = from_replay_buffer(model.replay_buffer)
    warned = [str(warning.message) for warning in recwarn if "cut off by a reset" in str(warning.message)]
    cut = cut_off(recorders)
    assert cut > 0 and len(warned) == 1
    if not model.replay_buffer.full:
        assert warned[0].startswith(f"{cut} episodes were cut off by a reset of the environment")
        assert_is_what_was_played(data, recorders)
    else:
        assert any("lost their beginning" in str(warning.message) for warning in recwarn)
        whole = []
        for episodes in played(recorders):  # of each env, the last ones that the buffer holds whole
            lengths = [len(episode.rewards) for episode in episodes]
            whole += lengths[-int((np.cumsum(lengths[::-1]) < rows).sum()) :]
        assert data.lengths.tolist() == whole and data.steps > 100


def test_learning_that_goes_on_in_the_same_episode_is_not_split(recwarn):
    recorders = cartpoles(1)
    model = dqn(recorders, buffer_size=3000)
    for _ in range(4):
        model.learn(101, reset_num_timesteps=False)
    assert cut_off(recorders) == 0
    assert_is_what_was_played(from_replay_buffer(model.replay_buffer), recorders)
    assert not [warning for warning in recwarn if "cut off" in str(warning.message)]


class Blink(gym.Env):
    """Dict observations, of a clock; 50 steps."""

    observation_space = gym.spaces.Dict(
        {"far": gym.spaces.Box(-9, 99, (3,), np.float32), "cue": gym.spaces.Discrete(5), "same": gym.spaces.Discrete(2)}
    )

    def __init__(self, action_space):
        self.action_space = action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._seen(), {}

    def step(self, action):
        self.time += 1
        return self._seen(), 0.0, False, self.time == 50, {}

    def _seen(self):
        return {"far": np.full(3, self.time, np.float32), "cue": self.time % 5, "same": 1}


@pytest.mark.parametrize("compared", [1, 100])
def test_dict_observations_are_compared_part_by_part(monkeypatch, compared):
    """Whatever is compared at a time."""
    monkeypatch.setattr(buffers, "_COMPARED_ROWS", compared)
    model = agent_in(sb3.DQN, Blink(gym.spaces.Discrete(2)), "MultiInputPolicy", learning_starts=5000)
    for _ in range(3):
        model.learn(72)
    with pytest.warns(UserWarning, match="2 episodes were cut off"):
        data = from_replay_buffer(model.replay_buffer)
    assert data.lengths.tolist() == [50, 22] * 3
    assert (data.truncated.sum(), data.terminated.sum()) == (3, 0)
    assert data.final_observations["far"][:, 0].tolist() == [50, 22] * 3
    # A value that is not a number is no other than itself.
    for seen in (model.replay_buffer.observations, model.replay_buffer.next_observations):
        seen["far"][seen["far"][..., 0] % 3 == 0] = np.nan
    assert [len(segment.rows) for segment in buffers.segments(model.replay_buffer)] == [50, 22] * 3


def test_replay_buffers_of_other_kinds():
    box = gym.spaces.Box(-1, 1, (2,), np.float32)
    model = agent_in(sb3.SAC, Blink(box), "MultiInputPolicy", learning_starts=1000).learn(72)
    data = from_replay_buffer(model.replay_buffer)
    assert data.lengths.tolist() == [50, 22] and data.actions.shape == (72, 2)
    frozen = agent_in(
        sb3.DQN, "FrozenLake-v1", learning_starts=1000, replay_buffer_kwargs={"handle_timeout_termination": False},
    )  # fmt: skip
    data = from_replay_buffer(frozen.learn(60).replay_buffer)
    assert data.observations.shape == (60,) and data.observation_space == gym.spaces.Discrete(16)
    with pytest.raises(ValueError, match="empty"):
        from_replay_buffer(agent_in(sb3.DQN, "FrozenLake-v1").replay_buffer)
    frozen.replay_buffer.optimize_memory_usage = True
    with pytest.raises(ValueError, match="make it with optimize_memory_usage=False"):
        from_replay_buffer(frozen.replay_buffer)


@pytest.mark.parametrize("n_envs", [1, 2])
def test_rollout_buffer_gives_back_the_episodes(n_envs):
    recorders = cartpoles(n_envs)
    envs = DummyVecEnv([lambda env=env: env for env in recorders])
    model = agent_in(sb3.PPO, envs, n_steps=100, batch_size=50)
    with pytest.raises(ValueError, match="holds 0 of 100 steps"):
        from_rollout_buffer(model.rollout_buffer)
    model.learn(100 * n_envs)  # `learn` flattens the buffer when it trains
    data = from_rollout_buffer(model.rollout_buffer)
    for mine, theirs in zip(data, chain(*played(recorders)), strict=True):
        np.testing.assert_array_equal(mine.observations, theirs.observations)
        np.testing.assert_array_equal(mine.actions, theirs.actions)
        assert mine.terminated == theirs.terminated
    assert data.final_observations is None
