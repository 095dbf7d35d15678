"""Replay and rollout buffers of Stable-Baselines3, read as episodes."""

import gymnasium as gym
import numpy as np
import pytest

import secret_rl as srl
from secret_rl.trajectories.nested import rows_differ

sb3 = pytest.importorskip("stable_baselines3")

from secret_rl.sb3 import buffers as sb3_buffers  # noqa: E402


class Remember(gym.Wrapper):
    """Keeps the steps an agent takes, to compare a buffer with."""

    def __init__(self, env):
        super().__init__(env)
        self.steps, self.episodes = [], []

    def reset(self, **arguments):
        observation, info = super().reset(**arguments)
        self.steps, self.last = [], observation
        self.episodes.append(self.steps)
        return observation, info

    def step(self, action):
        result = super().step(action)
        self.steps.append((self.last, action, *result[:4]))
        self.last = result[0]
        return result


def assert_equals_memory(data, memories):
    expected = [steps for memory in memories for steps in memory.episodes if steps]
    assert len(data) == len(expected)
    for episode, steps in zip(data, expected, strict=True):
        observations, actions, nexts, rewards, terminated, truncated = zip(*steps, strict=True)
        np.testing.assert_array_equal(episode.observations, np.array(observations, np.float32))
        np.testing.assert_array_equal(episode.actions, actions)
        np.testing.assert_array_equal(episode.final_observation, np.array(nexts[-1], np.float32))
        np.testing.assert_allclose(episode.rewards, rewards)
        assert (episode.terminated, episode.truncated) == (terminated[-1], truncated[-1] and not terminated[-1])


@pytest.mark.parametrize("n_envs", [1, 2])
def test_replay_buffer_gives_back_the_episodes_the_agent_played(n_envs):
    memories = [Remember(gym.make("CartPole-v1", max_episode_steps=15)) for _ in range(n_envs)]
    env = sb3.common.vec_env.DummyVecEnv([lambda m=m: m for m in memories])
    model = sb3.DQN("MlpPolicy", env, learning_starts=1000, buffer_size=2000, seed=0, device="cpu")
    model.learn(400)
    data = srl.sb3.from_replay_buffer(model.replay_buffer)
    assert data.truncated.any()
    assert data.terminated.any()
    assert_equals_memory(data, memories)


def test_a_replay_buffer_that_wrapped_drops_the_headless_steps():
    memory = Remember(gym.make("CartPole-v1"))
    model = sb3.DQN("MlpPolicy", memory, learning_starts=1000, buffer_size=150, seed=0, device="cpu")
    model.learn(400)
    with pytest.warns(UserWarning, match="lost their beginning"):
        data = srl.sb3.from_replay_buffer(model.replay_buffer)
    whole = [len(steps) for steps in memory.episodes if steps]
    assert data.lengths.tolist() == whole[-len(data) :]
    assert 100 < data.steps <= 150


def long_cartpole():
    """Ends by itself or after 500 steps: hardly ever where learning stops."""
    return Remember(gym.make("CartPole-v1"))


def unfinished(memories):
    """How many episodes a reset cut off: the newest of an env is not among them."""
    cut = [[steps for steps in memory.episodes if steps][:-1] for memory in memories]
    return sum(not (steps[-1][4] or steps[-1][5]) for episodes in cut for steps in episodes)


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("rows", [1000, 250])
def test_a_second_call_of_learn_does_not_glue_episodes_together(n_envs, rows, recwarn):
    """Each ends where the env was reset, with its own final observation, neither terminated nor truncated."""
    memories = [long_cartpole() for _ in range(n_envs)]
    env = sb3.common.vec_env.DummyVecEnv([lambda m=m: m for m in memories])
    model = sb3.DQN("MlpPolicy", env, learning_starts=5000, buffer_size=rows * n_envs, seed=0, device="cpu")
    for _ in range(4):
        model.learn(101 * n_envs, reset_num_timesteps=True)
    cut = unfinished(memories)
    assert cut > 0, "what is tested"
    data = srl.sb3.from_replay_buffer(model.replay_buffer)
    warned = [str(warning.message) for warning in recwarn if "cut off by a reset" in str(warning.message)]
    assert len(warned) == 1
    if not model.replay_buffer.full:
        assert warned[0].startswith(f"{cut} episodes were cut off by a reset of the environment before they had ended")
        assert_equals_memory(data, memories)
    else:
        lived = [[len(steps) for steps in memory.episodes if steps] for memory in memories]
        whole = iter(data.lengths.tolist())
        for lengths in lived:  # of each env, the last ones that the buffer holds whole
            held = np.cumsum(lengths[::-1])
            count = int((held < model.replay_buffer.buffer_size).sum())
            assert [next(whole) for _ in range(count)] == lengths[-count:]
        assert next(whole, None) is None


def test_learning_that_goes_on_in_the_same_episode_is_not_split(recwarn):
    memory = long_cartpole()
    model = sb3.DQN("MlpPolicy", memory, learning_starts=5000, buffer_size=3000, seed=0, device="cpu")
    for _ in range(4):
        model.learn(101, reset_num_timesteps=False)
    assert unfinished([memory]) == 0
    assert_equals_memory(srl.sb3.from_replay_buffer(model.replay_buffer), [memory])
    assert not [warning for warning in recwarn if "cut off" in str(warning.message)]
    model.set_env(model.get_env())  # forces a reset
    model.learn(101, reset_num_timesteps=False)
    with pytest.warns(UserWarning, match="1 episodes were cut off"):
        assert_equals_memory(srl.sb3.from_replay_buffer(model.replay_buffer), [memory])


class Blink(gym.Env):
    """Dict observations; 50 steps."""

    observation_space = gym.spaces.Dict(
        {"far": gym.spaces.Box(-9, 99, (3,), np.float32), "cue": gym.spaces.Discrete(5), "same": gym.spaces.Discrete(2)}
    )
    action_space = gym.spaces.Discrete(2)

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
    monkeypatch.setattr(sb3_buffers, "_COMPARED_ROWS", compared)
    model = sb3.DQN("MultiInputPolicy", Blink(), learning_starts=5000, buffer_size=1000, device="cpu")
    for _ in range(3):
        model.learn(72)
    with pytest.warns(UserWarning, match="2 episodes were cut off"):
        data = srl.sb3.from_replay_buffer(model.replay_buffer)
    assert data.lengths.tolist() == [50, 22] * 3
    assert (data.truncated.sum(), data.terminated.sum()) == (3, 0)
    assert data.final_observations["far"][:, 0].tolist() == [50, 22] * 3
    # A value that is not a number is no other than itself.
    for seen in (model.replay_buffer.observations, model.replay_buffer.next_observations):
        seen["far"][seen["far"][..., 0] % 3 == 0] = np.nan
    assert [len(segment.rows) for segment in sb3_buffers.segments(model.replay_buffer)] == [50, 22] * 3


def test_rows_that_differ_are_found_in_any_nest():
    one = {"a": np.array([[1.0, np.nan], [np.nan, 2.0], [3.0, 4.0]]), "b": (np.array([1, 2, 3]),)}
    assert rows_differ(one, one).tolist() == [False] * 3
    other = {"b": (np.array([1, 2, 9]),), "a": np.array([[1.0, np.nan], [0.0, 2.0], [3.0, 4.0]])}
    assert rows_differ(one, other).tolist() == [False, True, True]
    assert rows_differ(np.zeros((2, 0)), np.zeros((2, 0))).tolist() == [False, False]


def test_replay_buffers_of_other_kinds():
    class Cue(gym.Env):
        """Dict observations, box actions."""

        observation_space = gym.spaces.Dict(
            {"cue": gym.spaces.Discrete(4), "place": gym.spaces.Box(-1, 1, (2,), np.float32)}
        )
        action_space = gym.spaces.Box(-1, 1, (2,), np.float32)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.left = 5
            return self.observation_space.sample(), {}

        def step(self, action):
            self.left -= 1
            return self.observation_space.sample(), 1.0, self.left == 0, False, {}

    model = sb3.SAC("MultiInputPolicy", Cue(), learning_starts=1000, buffer_size=500, device="cpu")
    model.learn(42)
    data = srl.sb3.from_replay_buffer(model.replay_buffer)
    assert data.lengths.tolist() == [5] * 8 + [2]
    assert data.actions.shape == (42, 2)

    frozen = sb3.DQN(
        "MlpPolicy", "FrozenLake-v1", learning_starts=1000, buffer_size=500, device="cpu", optimize_memory_usage=True,
        replay_buffer_kwargs={"handle_timeout_termination": False},
    )  # fmt: skip
    frozen.learn(60)
    data = srl.sb3.from_replay_buffer(frozen.replay_buffer)
    assert data.observations.shape == (60,)
    assert data.observation_space == gym.spaces.Discrete(16)
    with pytest.raises(ValueError, match="empty"):
        srl.sb3.from_replay_buffer(sb3.DQN("MlpPolicy", "FrozenLake-v1", device="cpu").replay_buffer)


@pytest.mark.parametrize("n_envs", [1, 2])
def test_rollout_buffer_gives_back_the_episodes(n_envs):
    memories = [Remember(gym.make("CartPole-v1")) for _ in range(n_envs)]
    env = sb3.common.vec_env.DummyVecEnv([lambda m=m: m for m in memories])
    model = sb3.PPO("MlpPolicy", env, n_steps=100, batch_size=50, seed=0, device="cpu")
    model.learn(100 * n_envs)  # `learn` flattens the buffer when it trains
    data = srl.sb3.from_rollout_buffer(model.rollout_buffer)
    expected = [len(steps) for memory in memories for steps in memory.episodes if steps]
    assert data.lengths.tolist() == expected
    first = memories[0].episodes[0]
    np.testing.assert_array_equal(data[0].observations, np.array([step[0] for step in first]))
    np.testing.assert_array_equal(data[0].actions, [step[1] for step in first])
    assert data.final_observations is None
    fresh = sb3.PPO("MlpPolicy", "CartPole-v1", n_steps=64, device="cpu")
    with pytest.raises(ValueError, match="holds 0 of 64 steps"):
        srl.sb3.from_rollout_buffer(fresh.rollout_buffer)
