"""ParallelVectorEnv: the same results as SyncVectorEnv, and no process left after an error."""

import os
import signal

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from paper.parallel_envs import ParallelVectorEnv
from tests.shaping.playing import assert_same


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
        return self._seen(), {"options": str(options)}

    def step(self, action):
        if action == 8:
            raise KeyError("eight is one too many")
        self.time += 1
        info = {"seldom": float(action)} if self.time == 2 else {}
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


def test_groups_go_on_while_one_is_waited_for():
    alone = [ParallelVectorEnv(Counting, 3, 1) for _ in range(3)]
    groups = ParallelVectorEnv.groups([[Counting] * 3] * 3, 2)
    assert len({process.pid for envs in groups for process in envs._workers.processes}) == 2
    for number, (own, group) in enumerate(zip(alone, groups, strict=True)):
        assert_same(own.reset(seed=number)[0], group.reset(seed=number)[0])
    rng = np.random.default_rng(0)
    for _ in range(10):
        actions = rng.integers(0, 4, (3, 3))
        for envs, own in zip(groups, actions, strict=True):
            envs.step_async(own)
        for number in rng.permutation(3):  # whoever asked first
            assert_same(alone[number].step(actions[number])[:4], groups[number].step_wait()[:4])
    with pytest.raises(KeyError, match="eight"):
        groups[1].step(np.array([0, 8, 0]))
    with pytest.raises(gym.error.ClosedEnvironmentError, match="closed"):
        groups[0].step(np.zeros(3, int))
    for envs in [*alone, *groups]:
        envs.close()


@pytest.mark.parametrize(
    ("killed", "error", "message"),
    [(False, KeyError, "eight is one too many"), (True, RuntimeError, r"worker 1 of 2 ended \(exit code -9\)")],
)
def test_an_error_and_a_killed_worker_are_reported_and_end_all(killed, error, message):
    envs = ParallelVectorEnv(Counting, 4, 2)
    envs.reset(seed=0)
    processes = list(envs._workers.processes)
    if killed:
        os.kill(processes[1].pid, signal.SIGKILL)
        processes[1].join()
    with pytest.raises(error, match=message):
        envs.step(np.array([0, 0, 0, 8]))
    assert envs.closed and not any(process.is_alive() for process in processes)
    with pytest.raises(gym.error.ClosedEnvironmentError, match="closed"):
        envs.reset()
