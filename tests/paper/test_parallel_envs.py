"""ParallelVectorEnv: the same results as SyncVectorEnv, and no process left after an error."""

import os
import signal

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from paper.parallel_envs import ParallelVectorEnv
from tests.shaping.playing import assert_same

import secret_rl as srl


def maze():
    return gym.make("secret_rl/Triggers-v0", size=4, triggers=1, max_steps=12)


class Counting(gym.Env):
    """Tells when and where it is played; an episode has as many steps as its seed says."""

    observation_space = gym.spaces.Dict({
        "place": gym.spaces.Box(-1, 1, (2,), np.float32), "time": gym.spaces.Discrete(100),
        "pair": gym.spaces.Tuple([gym.spaces.MultiBinary(3), gym.spaces.MultiDiscrete([4, 5])]),
    })  # fmt: skip
    action_space = gym.spaces.Discrete(9)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.last = 0, int(self.np_random.integers(2, 9))
        return self._seen(), {"options": str(options), "cores": np.array(sorted(os.sched_getaffinity(0)))[:1]}

    def step(self, action):
        if action == 8:
            raise KeyError("eight is one too many")
        self.time += 1
        info = {"process": os.getpid()}
        if self.time == 2:
            info["seldom"] = float(action)
        return self._seen(), float(action), self.time == self.last, False, info

    def _seen(self):
        bits = (np.arange(3) < self.time).astype(np.int8)
        place = np.full(2, np.sin(self.time * self.last), np.float32)
        return {"place": place, "time": self.time, "pair": (bits, np.array([self.time % 4, self.last % 5]))}


@pytest.mark.parametrize(("make", "infos"), [(maze, None), (Counting, ("seldom",))])
@pytest.mark.parametrize("workers", [1, 3])
def test_the_same_as_one_after_another(make, infos, workers):
    plain = SyncVectorEnv([make] * 5, autoreset_mode=AutoresetMode.SAME_STEP)
    parallel = ParallelVectorEnv(make, 5, workers, infos=infos)
    assert parallel.observation_space == plain.observation_space and parallel.action_space == plain.action_space
    started = [envs.reset(seed=7) for envs in (plain, parallel)]
    assert_same(started[0][0], started[1][0])
    rng = np.random.default_rng(0)
    ends = 0
    for _ in range(40):
        actions = rng.integers(0, 4, 5)
        (*wanted, wanted_infos), (*found, found_infos) = (envs.step(actions) for envs in (plain, parallel))
        assert_same(wanted, found)
        ends += int((found[2] | found[3]).sum())
        if infos is not None:
            ended = ("final_info", "_final_info", "final_obs", "_final_obs")
            wanted_infos = {k: v for k, v in wanted_infos.items() if k.strip("_") in infos or k in ended}
            if "final_info" in wanted_infos:
                finals = wanted_infos["final_info"]
                wanted_infos["final_info"] = {k: v for k, v in finals.items() if k.strip("_") in infos}
        assert_same(wanted_infos, found_infos)
    assert ends > 5
    plain.close()
    parallel.close()


def test_every_environment_may_be_another():
    makers = [lambda length=length: gym.make("CartPole-v1", max_episode_steps=length) for length in (1, 2, 3)]
    envs = ParallelVectorEnv(makers, workers=2)
    envs.reset(seed=0)
    truncated = [envs.step(np.zeros(3, int))[3].tolist() for _ in range(3)]
    assert truncated == [[True, False, False], [True, True, False], [True, False, True]]
    envs.close()
    with pytest.raises(ValueError, match="num_envs"):
        ParallelVectorEnv(makers, 2)


def test_observations_stay_as_they_were():
    envs = ParallelVectorEnv(maze, 2, 1)
    first, _ = envs.reset(seed=0)
    kept = first.copy()
    for _ in range(4):
        envs.step(np.array([0, 1]))
    np.testing.assert_array_equal(first, kept)
    envs.close()


def test_other_work_goes_on_during_a_step_and_order_is_checked():
    envs = ParallelVectorEnv(maze, 2, 2)
    with pytest.raises(RuntimeError, match="step_wait.. without a step"):
        envs.step_wait()
    with pytest.raises(ValueError, match="3 seeds for 2 environments"):
        envs.reset(seed=[1, 2, 3])
    envs.reset(seed=[5, None])
    envs.step_async(np.array([0, 1]))
    with pytest.raises(RuntimeError, match="a step is under way"):
        envs.step_async(np.array([0, 1]))
    with pytest.raises(RuntimeError, match="a step is under way"):
        envs.reset()
    assert envs.step_wait()[1].shape == (2,)
    envs.close()
    with pytest.raises(gym.error.ClosedEnvironmentError, match="closed"):
        envs.reset()


def test_an_error_in_an_environment_comes_out_and_ends_all():
    envs = ParallelVectorEnv(Counting, 4, 2)
    envs.reset(seed=0)
    processes = list(envs._processes)
    with pytest.raises(KeyError, match="eight is one too many"):
        envs.step(np.array([0, 0, 0, 8]))
    assert envs.closed and not any(process.is_alive() for process in processes)


def test_a_killed_worker_is_named():
    envs = ParallelVectorEnv(Counting, 4, 2)
    envs.reset(seed=0)
    processes = list(envs._processes)
    os.kill(processes[1].pid, signal.SIGKILL)
    processes[1].join()
    with pytest.raises(RuntimeError, match=r"worker 1 of 2 ended \(exit code -9\)"):
        envs.step(np.zeros(4, int))
    assert envs.closed and not any(process.is_alive() for process in processes)


def test_a_failing_maker_is_told():
    def broken():
        if os.getpid() != parent:
            raise OSError("no such world")
        return maze()

    parent = os.getpid()
    with pytest.raises(OSError, match="no such world"):
        ParallelVectorEnv(broken, 2, 1)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs Linux")
def test_pinned_workers_keep_to_one_core():
    cores = sorted(os.sched_getaffinity(0))
    envs = ParallelVectorEnv(Counting, 4, 2, pin=True)
    _, infos = envs.reset(seed=0)
    assert infos["cores"][:, 0].tolist() == [cores[0], cores[0], cores[1 % len(cores)], cores[1 % len(cores)]]
    processes = envs.step(np.zeros(4, int))[-1]["process"]
    assert processes[0] == processes[1] != processes[2] and os.getpid() not in processes
    envs.close()


def test_what_cannot_be_shared_is_refused():
    class Speaking(Counting):
        observation_space = gym.spaces.Text(5)

    with pytest.raises(TypeError, match="cannot be in shared memory"):
        ParallelVectorEnv(Speaking, 2, 1)
    with pytest.raises(ValueError, match="num_envs"):
        ParallelVectorEnv(maze, 0)


@pytest.mark.slow
def test_agents_learn_the_same_from_them():
    from stable_baselines3 import PPO

    weights = []
    for envs in (
        ParallelVectorEnv(maze, 4, 2), SyncVectorEnv([maze] * 4, autoreset_mode=AutoresetMode.SAME_STEP),
    ):  # fmt: skip
        options = {"n_steps": 32, "batch_size": 64, "n_epochs": 2, "device": "cpu"}
        trained = srl.sb3.train(PPO, envs, 256, evaluate_every=0, progress=False, **options)
        weights.append(np.concatenate([p.detach().numpy().ravel() for p in trained.model.policy.parameters()]))
        envs.close()
    np.testing.assert_array_equal(*weights)
