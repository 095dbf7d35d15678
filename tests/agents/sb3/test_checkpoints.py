"""Training that is interrupted, at any moment, ends where it would have ended."""

import signal
import subprocess
import sys
import time

import gymnasium as gym
import numpy as np
import pytest

sb3 = pytest.importorskip("stable_baselines3")
contrib = pytest.importorskip("sb3_contrib")

from stable_baselines3.common.callbacks import BaseCallback  # noqa: E402
from stable_baselines3.common.vec_env import VecNormalize  # noqa: E402
from tests.agents.sb3.deep_tasks import Hallway  # noqa: E402

from secret_rl.agents.sb3 import train  # noqa: E402
from secret_rl.agents.sb3.states import end_running_episodes, model_state  # noqa: E402
from secret_rl.files import FileFormatError  # noqa: E402
from secret_rl.shaping import TablePotential  # noqa: E402
from secret_rl.shaping.sb3 import PotentialShapingVecEnv, shape_with  # noqa: E402
from secret_rl.testing.shaping import EveryEnding  # noqa: E402

MAZE = {"size": 3, "triggers": 1, "layout_seed": 4, "max_steps": 9, "window": None}
LARGER = MAZE | {"size": 5}  # its observations are long enough to be written piece by piece
TRIGGERS = "secret_rl/Triggers-v0"
SMALL = {"policy_kwargs": {"net_arch": [8]}, "device": "cpu"}
POTENTIAL = TablePotential({state: state / 400 for state in range(400)})
REPLAYED = {"learning_starts": 20, "buffer_size": 120, "train_freq": 1, "batch_size": 8, **SMALL}
ROLLED_OUT = {"n_steps": 8, "batch_size": 16, "n_epochs": 2, **SMALL}


def normalised(envs, discount):
    return VecNormalize(PotentialShapingVecEnv(envs, POTENTIAL, discount))


CASES = {
    "DQN": (sb3.DQN, TRIGGERS, {"env_options": LARGER, "shaping": shape_with(POTENTIAL), **REPLAYED}),
    "DQN, large buffer": (sb3.DQN, TRIGGERS, {"env_options": LARGER, **REPLAYED, "buffer_size": 5000}),
    "DQN, three steps": (sb3.DQN, TRIGGERS, {"env_options": LARGER, "n_steps": 3, **REPLAYED}),
    "DQN, dict": (sb3.DQN, EveryEnding, {"policy": "MultiInputPolicy", **REPLAYED}),
    "DQN, normalised": (sb3.DQN, "CartPole-v1", {"shaping": lambda envs, _: VecNormalize(envs), **REPLAYED}),
    "PPO": (sb3.PPO, TRIGGERS, {"env_options": MAZE, "learning_rate": lambda left: left * 0.01, **ROLLED_OUT}),
    "PPO, normalised": (sb3.PPO, TRIGGERS, {"env_options": MAZE, "shaping": normalised, **ROLLED_OUT}),
    "SAC": (sb3.SAC, "Pendulum-v1", REPLAYED),
    "QRDQN": (contrib.QRDQN, "CartPole-v1", REPLAYED),
    "RecurrentPPO": (
        contrib.RecurrentPPO,
        TRIGGERS,
        {"env_options": MAZE, **ROLLED_OUT, "policy": "MlpLstmPolicy", "policy_kwargs": {"lstm_hidden_size": 4}},
    ),
}


class Interrupted(Exception):
    pass


class Interrupt(BaseCallback):
    """Fails at a step, as if someone pulled the plug there."""

    def __init__(self, at):
        super().__init__()
        self.at = at

    def _on_step(self):
        if self.num_timesteps >= self.at:
            raise Interrupted
        return True


def run(case, folder, callback=None, env=None, **changes):
    algorithm, usual, options = CASES[case]
    options = {
        "n_envs": 2, "evaluate_every": 50, "evaluation_episodes": 2, "evaluation_epsilon": 0.2, "seed": 3,
        "checkpoint_every": 64, **options, **changes,
    }  # fmt: skip
    return train(algorithm, env or usual, 200, folder=folder, callback=callback, **options)


def assert_same(mine, theirs):
    (told, arrays), (other, others) = (model_state(trained.model) for trained in (mine, theirs))
    assert told["parameters"] == other["parameters"] and arrays.keys() == others.keys()
    for name, array in arrays.items():
        assert array.shape == others[name].shape and array.tobytes() == others[name].tobytes(), name
    for name in ("num_timesteps", "_n_updates", "_current_progress_remaining"):
        assert getattr(mine.model, name) == getattr(theirs.model, name), name
    for name, values in vars(mine.curve).items():
        np.testing.assert_array_equal(values, getattr(theirs.curve, name), err_msg=name)


@pytest.mark.parametrize("case", CASES)
def test_interrupted_training_ends_where_undisturbed_training_ends(case, tmp_path):
    """Interrupted in the second and in the last part, each time some steps after a checkpoint."""
    undisturbed = run(case, tmp_path / "undisturbed")
    for at in (90, 170):
        with pytest.raises(Interrupted):
            run(case, tmp_path / "interrupted", Interrupt(at))
    resumed = run(case, tmp_path / "interrupted")
    assert_same(resumed, undisturbed)
    assert (len(undisturbed.curve.steps) >= 4 and len(undisturbed.curve.training_steps) > 0) or case == "SAC"
    again = run(case, tmp_path / "interrupted", Interrupt(0))
    assert_same(again, undisturbed)


@pytest.mark.parametrize("case", ["DQN", "DQN, large buffer"])
def test_a_buffer_written_piece_by_piece_is_the_buffer(case, tmp_path):
    """At the start of a part, also where it went round meanwhile, and where a part is longer than what it holds."""
    seen = {}

    class Keep(Interrupt):
        def _on_training_start(self):
            buffer = self.model.replay_buffer
            arrays = {k: v[: buffer.size()].copy() for k, v in vars(buffer).items() if isinstance(v, np.ndarray)}
            seen.setdefault(self.num_timesteps, []).append((buffer.pos, buffer.full, arrays))

    run(case, tmp_path / "whole", Keep(1000))
    for at in (40, 90, 170):
        with pytest.raises(Interrupted):
            run(case, tmp_path / "parts", Keep(at))
    run(case, tmp_path / "parts", Keep(1000))
    assert list(seen) == [0, 64, 128, 192]
    for step in (64, 128):
        (pos, full, arrays), *others = seen[step]
        assert len(others) > 1 and {"observations", "next_observations", "timeouts"} < arrays.keys()
        assert full == (case == "DQN" and step > 100)
        assert (arrays["dones"][pos - 1] == 1).all(), "episodes are cut where a part ends"
        for other_pos, other_full, other in others:
            assert (other_pos, other_full) == (pos, full)
            for name in arrays:
                np.testing.assert_array_equal(arrays[name], other[name], err_msg=name)
    pieces = len(list((tmp_path / "whole").glob("replay-*")))
    assert pieces == 0


def test_episodes_cut_by_a_part_bootstrap():
    model = sb3.DQN("MlpPolicy", gym.make("CartPole-v1"), buffer_size=10, device="cpu")
    end_running_episodes(model)  # nothing there yet
    buffer = model.replay_buffer
    for done, timeout in ((0, 0), (1, 0), (0, 0)):
        infos = [{"TimeLimit.truncated": bool(timeout)}]
        buffer.add(np.zeros((1, 4)), np.zeros((1, 4)), np.zeros((1, 1)), np.ones(1), np.array([done]), infos)
    end_running_episodes(model)
    assert buffer.dones[:3, 0].tolist() == [0, 1, 1] and buffer.timeouts[:3, 0].tolist() == [0, 0, 1]
    end_running_episodes(model)
    assert buffer.timeouts[:3, 0].tolist() == [0, 0, 1]
    buffer.add(np.zeros((1, 4)), np.zeros((1, 4)), np.zeros((1, 1)), np.ones(1), np.array([1]), [{}])
    end_running_episodes(model)
    assert buffer.timeouts[3, 0] == 0, "an episode that terminated was not cut"


SCRIPT = """
import sys
from stable_baselines3 import DQN
from secret_rl.agents.sb3 import train
maze = {"size": 3, "triggers": 1, "layout_seed": 4, "max_steps": 9, "window": None}
trained = train(
    DQN, "secret_rl/Triggers-v0", 1000, env_options=maze, n_envs=2, folder=sys.argv[1], checkpoint_every=50,
    evaluate_every=400, evaluation_episodes=2, learning_starts=20, buffer_size=700, train_freq=4, batch_size=8,
    policy_kwargs={"net_arch": [8]}, device="cpu", progress=False,
)
weights = [p.detach().double().abs().sum() for p in trained.model.policy.parameters()]
print(float(sum(weights)), trained.curve.training_steps[-1])
"""


def test_a_killed_process_leaves_a_folder_to_go_on_from(tmp_path, capsys, monkeypatch):
    """SIGKILL soon after a checkpoint was written, at whatever moment the process is then, twice."""
    state = tmp_path / "killed" / "state.json"
    for _ in range(2):
        before = state.stat().st_mtime_ns if state.exists() else 0
        child = subprocess.Popen([sys.executable, "-c", SCRIPT, tmp_path / "killed"])
        while child.poll() is None and (not state.exists() or state.stat().st_mtime_ns == before):
            time.sleep(0.002)
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL, "it was over before it could be killed"
    told = []
    for folder in ("killed", "whole"):
        monkeypatch.setattr(sys, "argv", ["", str(tmp_path / folder)])
        exec(SCRIPT, {})
        told.append(capsys.readouterr().out)
    assert told[0] == told[1]
    left = sorted(path.name.split("-")[0] for path in (tmp_path / "killed").iterdir())
    assert left == ["curve", "model", "state.json"], "a finished training keeps no replay buffer and no scraps"


def test_a_folder_of_another_training_is_named(tmp_path):
    with pytest.raises(Interrupted):
        run("DQN", tmp_path, Interrupt(90))
    for changes, told in (
        ({"seed": 4}, "seed was 3, now 4"),
        ({"env_options": None, "env": Hallway}, "env was secret_rl/Triggers-v0, now tests.agents.*Hallway"),
        ({"learning_rate": 0.5}, "learning_rate was None, now 0.5"),
        ({"env_options": MAZE | {"size": 4}}, "env_options was .*'size': 5.*, now .*'size': 4"),
        ({"shaping": shape_with(TablePotential({1: 0.5}))}, "shaping was"),
        ({"shaping": None}, "shaping was .*, now None"),
    ):
        with pytest.raises(FileFormatError, match=told):
            run("DQN", tmp_path, **changes)


def test_damage_is_named(tmp_path):
    with pytest.raises(Interrupted):
        run("DQN", tmp_path, Interrupt(90))
    (short,) = tmp_path.glob("replay-short-*")
    content = short.read_bytes()
    short.write_bytes(content[:40])
    with pytest.raises(FileFormatError, match="damaged or gone"):
        run("DQN", tmp_path)
    short.write_bytes(content)
    (curve,) = tmp_path.glob("curve-*")
    curve.write_bytes(b"nonsense")
    with pytest.raises(FileFormatError, match="delete the folder"):
        run("DQN", tmp_path)
    (tmp_path / "state.json").write_text("[]")
    with pytest.raises(FileFormatError, match="cannot be read"):
        run("DQN", tmp_path)


def test_what_checkpoints_cannot_hold_is_refused(tmp_path):
    with pytest.raises(ValueError, match="needs a folder"):
        run("DQN", None)
    with pytest.raises(ValueError, match="optimize_memory_usage"):
        run("DQN", tmp_path, optimize_memory_usage=True)


def test_without_checkpoints_a_folder_keeps_what_was_learned(tmp_path):
    first = run("PPO", tmp_path, checkpoint_every=None)
    assert_same(run("PPO", tmp_path, Interrupt(0), checkpoint_every=None), first)
    assert_same(run("PPO", None, checkpoint_every=None), first)
