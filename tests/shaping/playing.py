"""Two vector environments that must behave alike, step by step."""

import numpy as np
from gymnasium.vector import AutoresetMode


def assert_same(mine, theirs, path="result"):
    """Equal to the bit, types included, however deeply nested."""
    assert type(mine) is type(theirs), path
    if isinstance(mine, dict):
        assert mine.keys() == theirs.keys(), path
        for key in mine:
            assert_same(mine[key], theirs[key], f"{path}/{key}")
    elif isinstance(mine, tuple | list) or (isinstance(mine, np.ndarray) and mine.dtype == object):
        assert len(mine) == len(theirs), path
        for i, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            assert_same(a, b, f"{path}/{i}")
    else:
        assert np.asarray(mine).dtype == np.asarray(theirs).dtype, path
        np.testing.assert_array_equal(mine, theirs, path)


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
