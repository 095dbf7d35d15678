"""What several files compare: vector environments step by step, optimal policies, and Phi along an episode."""

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from tests.shaping.mdps import measure, optimal_actions

from secret_rl.agents import QLearning
from secret_rl.shaping import GridKey, PotentialShaping, TablePotential, VectorPotentialShaping
from secret_rl.testing.shaping import OneEnvironment

MODES = list(AutoresetMode)
NORMAL = np.random.default_rng(0).normal(size=4096).tolist()
# Tables over the states of ``EveryEnding``, and over cells of what is observed there
STATES = {(cue, x, y): NORMAL[cue * 99 + x * 10 + y] for cue in range(4) for x in range(-3, 3) for y in range(-3, 3)}
PLACES = TablePotential(
    {(x, y, cue): NORMAL[x * 64 + y * 8 + cue] for x in range(-9, 9) for y in range(-9, 9) for cue in range(4)},
    state=GridKey((0.4, 0.4, 1), keys=("place", "cue")),
)


class Arrays(gym.Env):
    """Tuple observations, a box of actions and array states; it writes every observation into the same array."""

    observation_space = gym.spaces.Tuple((gym.spaces.Discrete(5), gym.spaces.Box(0, 1, (2, 2), np.float64)))
    action_space = gym.spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self):
        self._array = np.zeros((2, 2))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        number, self._array[:] = int(self.np_random.integers(5)), self.np_random.random((2, 2))
        return (number, self._array), {"state": np.array([number, number // 2])}

    def step(self, action):
        observation, info = self.reset()
        return observation, float(action.sum()), self.np_random.random() < 0.2, False, info


def assert_same(mine, theirs, path="result", **tolerance):
    """Equal to the bit, or up to a tolerance, types included, however deeply nested."""
    assert type(mine) is type(theirs) or isinstance(mine, dict | list | tuple), path
    if isinstance(mine, dict):
        assert mine.keys() == theirs.keys(), path
        for key in mine:
            assert_same(mine[key], theirs[key], f"{path}/{key}", **tolerance)
    elif isinstance(mine, tuple | list) or (isinstance(mine, np.ndarray) and mine.dtype == object):
        assert len(mine) == len(theirs), path
        for i, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            assert_same(a, b, f"{path}/{i}", **tolerance)
    else:
        assert np.asarray(mine).dtype == np.asarray(theirs).dtype, path
        equal = np.testing.assert_allclose if tolerance else np.testing.assert_array_equal
        equal(mine, theirs, err_msg=path, **tolerance)


def compare(ours, theirs, seed, steps, mode, masks=(), before_step=lambda step: None):
    """Play both alike, with resets of some environments in between; how many episodes ended, and what shaping paid."""
    n, ended, paid = ours.num_envs, 0, 0.0
    assert ours.metadata["autoreset_mode"] is mode
    assert_same(ours.reset(seed=seed), theirs.reset(seed=seed))
    ours.action_space.seed(seed)
    for step in range(steps):
        before_step(step)
        actions = ours.action_space.sample()
        mine, other = ours.step(actions), theirs.step(actions)
        assert_same(mine, other, f"step {step}")
        over = mine[2] | mine[3]
        ended += int(over.sum())
        paid += np.abs(mine[4].get("shaping_reward", 0)).sum()
        mask = over.copy() if mode is AutoresetMode.DISABLED else np.zeros(n, bool)
        if step in masks:
            mask |= np.arange(n) % 2 == step % 2
        if mask.any():
            assert_same(*(env.reset(options={"reset_mask": mask.copy()}) for env in (ours, theirs)), f"reset {step}")
    return ended, paid


def compare_wrappers(make, potential, mode, seed, *, n=3, steps=40, envs=None, masks=(), before_step=None, **terms):
    """Vectorise then wrap, as ``compare`` does against wrap then vectorise; ``potential()`` is asked for each wrapper.

    ``envs`` stands in for the vector environment of ours.
    """
    terms = {"discount": 0.9, **terms}
    ours = VectorPotentialShaping(envs or SyncVectorEnv([make] * n, autoreset_mode=mode), potential(), **terms)
    theirs = SyncVectorEnv([lambda: PotentialShaping(make(), potential(), **terms)] * n, autoreset_mode=mode)
    try:
        return compare(ours, theirs, seed, steps, mode, masks, before_step or (lambda step: None))
    finally:
        ours.close()


def changed_states(mdp, env, discount, memory=lambda: None):
    """How many of the states met through ``env`` have other optimal actions than without it."""
    met = measure(env, memory)
    return int((optimal_actions(met.mdp, discount) != optimal_actions(mdp, discount)[met.behind]).any(1).sum())


def phi_along(potential, observations, actions, rewards, infos):
    """Phi at the first of some observations and after each step; ``infos`` has one for each observation, too."""
    phi = OneEnvironment(potential)
    steps = zip(actions, observations[1:], rewards, infos[1:], strict=True)
    return [phi.start(observations[0], infos[0]), *(phi.step(a, o, float(r), i) for a, o, r, i in steps)]


def learn_compiled(env, episodes, **agent):
    """The curve of a compiled learner, which is that of one that steps the environment."""
    compiled, stepped = (QLearning(**agent).learn(one, episodes).curve for one in (env, gym.Wrapper(env)))
    np.testing.assert_array_equal(compiled.returns, stepped.returns)
    np.testing.assert_array_equal(compiled.lengths, stepped.lengths)
    return compiled
