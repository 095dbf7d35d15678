"""Learning curves on disk."""

import numpy as np
import pytest

from secret_rl.agents import LearningCurve, QLearning
from secret_rl.envs.triggers import TriggersEnv


def test_a_curve_comes_back_as_it_was(tmp_path):
    learner = QLearning(learning_rate=0.3, epsilon=0.2, discount=0.9, seed=2**64 - 1)
    curve = learner.learn(TriggersEnv(size=4, triggers=1, layout_seed=0), 20)
    path = curve.save(tmp_path / "deep" / "curve.npz")
    again = LearningCurve.load(path)
    np.testing.assert_array_equal(again.returns, curve.returns)
    np.testing.assert_array_equal(again.lengths, curve.lengths)
    assert again.returns.dtype == np.float64 and again.lengths.dtype == np.int64
    assert (again.seed, again.learning_rate, again.epsilon, again.discount) == (2**64 - 1, 0.3, 0.2, 0.9)
    assert len(again) == 20
    assert [p.name for p in path.parent.iterdir()] == ["curve.npz"]


def test_what_is_no_curve_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError):
        LearningCurve.load(tmp_path / "missing.npz")
    (tmp_path / "text.npz").write_text("returns")
    np.savez(tmp_path / "other.npz", format="something else")
    np.savez(tmp_path / "pickle.npz", format=np.array([{}], dtype=object))
    for name in ("text", "other", "pickle"):
        with pytest.raises(ValueError, match=f"{name}.npz cannot be read as a learning curve"):
            LearningCurve.load(tmp_path / f"{name}.npz")
    with pytest.raises(ValueError, match="3 returns but 2 lengths"):
        LearningCurve(np.zeros(3), np.zeros(2, int), 0, 0.1, 0.1, 0.99)
    with pytest.raises(ValueError, match="one entry per episode"):
        LearningCurve(np.zeros((3, 1)), np.zeros(3, int), 0, 0.1, 0.1, 0.99)
