"""Training that is interrupted, at any moment, ends where it would have ended; files that are damaged are refused."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch

sb3 = pytest.importorskip("stable_baselines3")
contrib = pytest.importorskip("sb3_contrib")

from stable_baselines3.common.callbacks import BaseCallback  # noqa: E402
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize  # noqa: E402
from tests.sb3.deep_tasks import MAZE, SMALL, TRIGGERS, Hallway, Interrupt, Interrupted  # noqa: E402
from tests.sealing import change_arrays, change_json  # noqa: E402

from secret_rl.atomic import InUseError, folder_lock  # noqa: E402
from secret_rl.files import FileFormatError, ResumeError  # noqa: E402
from secret_rl.sb3 import PotentialShapingVecEnv, load_weights, save_weights, shape_with, train  # noqa: E402
from secret_rl.sb3.checkpoint import end_running_episodes, model_state  # noqa: E402
from secret_rl.shaping import TablePotential  # noqa: E402
from secret_rl.testing.shaping import EveryEnding  # noqa: E402

POTENTIAL = TablePotential({state: state / 400 for state in range(400)})
REPLAYED = {"learning_starts": 20, "buffer_size": 120, "train_freq": 1, "batch_size": 8, **SMALL}
ROLLED_OUT = {"n_steps": 8, "batch_size": 16, "n_epochs": 2, **SMALL}
RECURRENT = ROLLED_OUT | {"policy": "MlpLstmPolicy", "policy_kwargs": {"lstm_hidden_size": 4}}


def normalised(envs, discount):
    return VecNormalize(PotentialShapingVecEnv(envs, POTENTIAL, discount))


CASES = {
    "DQN": (sb3.DQN, TRIGGERS, {"env_options": MAZE, "shaping": shape_with(POTENTIAL), **REPLAYED}),
    "DQN, large buffer": (sb3.DQN, TRIGGERS, {"env_options": MAZE, **REPLAYED, "buffer_size": 5000}),
    "DQN, three steps": (sb3.DQN, TRIGGERS, {"env_options": MAZE, "n_steps": 3, **REPLAYED}),
    "DQN, dict": (sb3.DQN, EveryEnding, {"policy": "MultiInputPolicy", **REPLAYED}),
    "DQN, normalised": (sb3.DQN, "CartPole-v1", {"shaping": lambda envs, _: VecNormalize(envs), **REPLAYED}),
    "PPO": (sb3.PPO, TRIGGERS, {"env_options": MAZE, "learning_rate": lambda left: left * 0.01, **ROLLED_OUT}),
    "PPO, normalised": (sb3.PPO, TRIGGERS, {"env_options": MAZE, "shaping": normalised, **ROLLED_OUT}),
    "SAC": (sb3.SAC, "Pendulum-v1", REPLAYED),
    "QRDQN": (contrib.QRDQN, "CartPole-v1", REPLAYED),
    "RecurrentPPO": (contrib.RecurrentPPO, TRIGGERS, {"env_options": MAZE, **RECURRENT}),
}


def run(case, folder, callback=None, env=None, algorithm=None, **changes):
    usual_algorithm, usual, options = CASES[case]
    options = {
        "n_envs": 2, "evaluate_every": 50, "evaluation_episodes": 2, "evaluation_epsilon": 0.2, "seed": 3,
        "checkpoint_every": 64, **options, **changes,
    }  # fmt: skip
    return train(algorithm or usual_algorithm, env or usual, 200, folder=folder, callback=callback, **options)


def assert_same(mine, theirs):
    (state, arrays), (other, others) = (model_state(trained.model) for trained in (mine, theirs))
    assert state["parameters"] == other["parameters"] and arrays.keys() == others.keys()
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
        assert not list((tmp_path / "interrupted").glob("*lock*"))
    resumed = run(case, tmp_path / "interrupted")
    assert_same(resumed, undisturbed)
    assert (len(undisturbed.curve.steps) >= 4 and len(undisturbed.curve.training_steps) > 0) or case == "SAC"
    assert_same(run(case, tmp_path / "interrupted", Interrupt(0)), undisturbed)


def test_episodes_cut_by_a_part_bootstrap():
    model = sb3.DQN("MlpPolicy", gym.make("CartPole-v1"), buffer_size=10, device="cpu")
    end_running_episodes(model)  # nothing there yet
    buffer = model.replay_buffer
    for done in (0, 1, 0):
        buffer.add(np.zeros((1, 4)), np.zeros((1, 4)), np.zeros((1, 1)), np.ones(1), np.array([done]), [{}])
    for _ in range(2):
        end_running_episodes(model)
        assert buffer.dones[:3, 0].tolist() == [0, 1, 1] and buffer.timeouts[:3, 0].tolist() == [0, 0, 1]
    buffer.add(np.zeros((1, 4)), np.zeros((1, 4)), np.zeros((1, 1)), np.ones(1), np.array([1]), [{}])
    end_running_episodes(model)
    assert buffer.timeouts[3, 0] == 0, "an episode that terminated was not cut"


SCRIPT = """
import sys
from stable_baselines3 import DQN
from secret_rl.sb3 import train
maze = {"size": 3, "triggers": 1, "layout_seed": 4, "max_steps": 9, "window": None}
trained = train(
    DQN, "secret_rl/Triggers-v0", 1000, env_options=maze, n_envs=2, folder=sys.argv[1], checkpoint_every=50,
    evaluate_every=400, evaluation_episodes=2, learning_starts=20, buffer_size=700, train_freq=4, batch_size=8,
    policy_kwargs={"net_arch": [8]}, device="cpu", progress=False,
)
weights = [p.detach().double().abs().sum() for p in trained.model.policy.parameters()]
print(float(sum(weights)), trained.curve.training_steps[-1])
"""


@pytest.mark.slow
def test_a_killed_process_leaves_a_folder_to_resume_from(tmp_path, capsys, monkeypatch):
    """SIGKILL soon after a checkpoint was written, at whatever moment the process is then, twice."""
    state = tmp_path / "killed" / "state.json"
    for _ in range(2):
        before = state.stat().st_mtime_ns if state.exists() else 0
        child = subprocess.Popen([sys.executable, "-c", SCRIPT, tmp_path / "killed"])
        while child.poll() is None and (not state.exists() or state.stat().st_mtime_ns == before):
            time.sleep(0.002)
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL, "it was over before it could be killed"
    printed = []
    for folder in ("killed", "whole"):
        monkeypatch.setattr(sys, "argv", ["", str(tmp_path / folder)])
        exec(SCRIPT, {})
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    left = sorted(path.name.split("-")[0] for path in (tmp_path / "killed").iterdir())
    assert left == ["curve", "model", "state.json"], "a finished training keeps no replay buffer and no scraps"


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory):
    """A folder to resume from."""
    folder = tmp_path_factory.mktemp("unfinished") / "folder"
    with pytest.raises(Interrupted):
        run("DQN", folder, Interrupt(90))
    return folder


def test_a_folder_of_another_training_is_named(unfinished):
    for changes, difference in (
        ({"seed": 4}, "seed was 3, now 4"),
        ({"env_options": None, "env": Hallway}, "env was 'secret_rl/Triggers-v0', now 'tests.sb3.*Hallway'"),
        ({"learning_rate": 0.5}, "learning_rate was None, now 0.5"),
        ({"env_options": MAZE | {"size": 4}}, "env_options was .*'size': 3.*, now .*'size': 4"),
        ({"shaping": shape_with(TablePotential({1: 0.5}))}, "shaping was"),
        ({"shaping": None}, "shaping was .*, now None"),
    ):
        with pytest.raises(ResumeError, match=f"{unfinished.name} holds a training with another .*{difference}"):
            run("DQN", unfinished, **changes)


def test_damaged_files_are_named(unfinished, tmp_path):
    folder = shutil.copytree(unfinished, tmp_path / "folder")
    assert sorted(path.name for path in folder.iterdir()) == [
        "curve-1.safetensors", "model-1.safetensors", "replay-1.safetensors", "state.json",
    ]  # fmt: skip
    for path in folder.glob("*.safetensors"):
        content = path.read_bytes()
        for change, said in (
            (content[:40], "it has 40 bytes and is not a whole safetensors file"),
            (content[:-1] + bytes([content[-1] ^ 1]), "does not match its checksum"),
            (None, "is gone"),
        ):
            path.unlink() if change is None else path.write_bytes(change)
            with pytest.raises(FileFormatError, match=f"{path.name} .*{said}.*; (delete the folder|restore it)"):
                run("DQN", folder)
        path.write_bytes(content)
    state = folder / "state.json"
    content = state.read_text()
    for broken, said in (
        ("[]", "'list'"),
        ("{", "JSONDecodeError"),
        (content.replace('"part": 1', '"part": 2'), "sum"),
    ):
        state.write_text(broken)
        cannot = "state.json cannot be read as 'secret-rl deep training': "
        with pytest.raises(FileFormatError, match=f"{cannot}.*{said}.*; delete the folder and train again"):
            run("DQN", folder)
    state.write_text(content)
    assert_same(run("DQN", folder), run("DQN", tmp_path / "undisturbed"))


STATES = [
    lambda state: state.update(version=2),
    lambda state: state.update(part=-1),
    lambda state: state.update(finished=1),
    lambda state: state.pop("fingerprint"),
    lambda state: state.pop("model"),
    lambda state: state.update(files=["model-1.safetensors"]),
    lambda state: state["files"].update(model="curve-1.safetensors"),
    lambda state: state["files"].update(curve="../../../etc/passwd"),
    lambda state: state["model"]["parameters"]["dict"].append(["predict", {"dict": []}]),
    lambda state: state["model"]["parameters"].update(code="print()"),
    lambda state: state["model"].update(parameters={"dict": []}),
    lambda state: state["model"].update(tensors={"dict": [["gamma", {"tensor": "parameters.policy.q_net"}]]}),
    lambda state: state["model"].update(numbers=[1]),
    lambda state: state.update(replay={"pos": 3}),
    lambda state: state["replay"].update(pos=120),
    *(
        lambda state, name=name, value=value: state["model"]["numbers"].update({name: value})
        for name, value in [
            ("num_timesteps", "64"), ("num_timesteps", True), ("num_timesteps", 10**400), ("num_timesteps", 64.5),
            ("exploration_rate", None), ("gamma", 0.5), ("policy_class", 0.5), ("__class__", 0.5), ("predict", 0.5),
        ]
    ),
    *(
        lambda state, name=name, value=value: state["replay"].update({name: value})
        for name, value in [("pos", "1"), ("pos", 1.5), ("full", 0), ("full", None), ("buffer_size", 9)]
    ),
]  # fmt: skip
ARRAYS = {
    "model-1": lambda _, arrays: arrays.update({name: array * np.nan for name, array in arrays.items()}),
    "replay-1": lambda _, arrays: arrays["actions"].fill(7),
    "replay-1 ": lambda _, arrays: arrays["rewards"].fill(np.inf),
    "replay-1  ": lambda _, arrays: arrays["dones"].fill(2),
    "replay-1   ": lambda _, arrays: arrays.update(rewards=arrays["rewards"][1:]),
    "replay-1    ": lambda _, arrays: arrays.pop("rewards"),
}


@pytest.mark.parametrize("change", [*STATES, *ARRAYS])
def test_hostile_files_are_refused(unfinished, tmp_path, change):
    """Also where the checksums match."""
    folder = shutil.copytree(unfinished, tmp_path / "folder")
    if isinstance(change, str):
        change_arrays(folder / f"{change.strip()}.safetensors", ARRAYS[change])
    else:
        change_json(folder / "state.json", change)
    with pytest.raises((FileFormatError, ResumeError), match=f"{tmp_path}"):
        run("DQN", folder, Interrupt(0))


def test_what_checkpoints_cannot_hold_is_refused(tmp_path):
    with pytest.raises(ValueError, match="needs a folder"):
        run("DQN", None)
    with pytest.raises(ValueError, match="optimize_memory_usage"):
        run("DQN", tmp_path, optimize_memory_usage=True)


def test_without_checkpoints_a_folder_keeps_what_was_learned(tmp_path):
    first = run("PPO", tmp_path, checkpoint_every=None)
    assert_same(run("PPO", tmp_path, Interrupt(0), checkpoint_every=None), first)
    assert_same(run("PPO", None, checkpoint_every=None), first)


class Counted(Hallway):
    """Counts what is done with it."""

    used = 0

    def step(self, action):
        Counted.used += 1
        return super().step(action)


def test_a_folder_that_cannot_be_written_is_refused_before_the_first_step(tmp_path):
    (tmp_path / "file").write_text("in the way")
    Counted.used = 0
    options = {"env": Counted, "env_options": None, "shaping": None}
    for folder in (tmp_path / "file", tmp_path / "file" / "deep" / "folder", Path("/proc/secret-rl-test")):
        with pytest.raises(OSError, match="nothing can be written there .*: choose another path"):
            run("DQN", folder, **options)
    with folder_lock(tmp_path / "new"), pytest.raises(InUseError):
        run("DQN", tmp_path / "new", **options)
    assert Counted.used == 0 and (tmp_path / "file").read_text() == "in the way"


def test_one_training_at_a_time_in_a_folder(tmp_path):
    undisturbed, folder = run("DQN", tmp_path / "undisturbed"), tmp_path / "folder"
    refused = []

    class Disturb(BaseCallback):
        """Another training of the same, while this one runs."""

        def _on_step(self):
            if self.num_timesteps in (20, 100, 180):
                files = {path.name: path.read_bytes() for path in folder.iterdir()}
                with pytest.raises(InUseError, match="folder is being written by another process") as error:
                    run("DQN", folder)
                refused.append(error.value)
                assert {path.name: path.read_bytes() for path in folder.iterdir()} == files
            return True

    assert_same(run("DQN", folder, Disturb()), undisturbed)
    assert len(refused) == 3
    with folder_lock(folder):
        assert_same(run("DQN", folder, Interrupt(0)), undisturbed)  # finished ones are read whoever holds the lock


@contextmanager
def without_rights():
    """Permission bits do not count for root."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_a_finished_training_is_read_from_a_folder_without_write_access():
    with tempfile.TemporaryDirectory() as parent:
        Path(parent).chmod(0o755)
        folder = Path(parent, "folder")
        first = run("PPO", folder)
        for path in folder.iterdir():
            path.chmod(0o444)
        folder.chmod(0o555)
        try:
            with without_rights():
                with pytest.raises(PermissionError, match="nothing can be written there"):
                    run("PPO", folder / "another")
                assert_same(run("PPO", folder, Interrupt(0)), first)
        finally:
            folder.chmod(0o755)


KINDS = {
    "DQN": (sb3.DQN, {"buffer_size": 10}), "PPO": (sb3.PPO, {"n_steps": 8, "batch_size": 8}),
    "SAC": (sb3.SAC, {"buffer_size": 10}), "TD3": (sb3.TD3, {"buffer_size": 10}),
}  # fmt: skip


def agent(kind, seed, units=8):
    algorithm, options = KINDS[kind]
    env = "Pendulum-v1" if kind in ("SAC", "TD3") else DummyVecEnv([Hallway])
    return algorithm("MlpPolicy", env, seed=seed, policy_kwargs={"net_arch": [units]}, device="cpu", **options)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_go_from_agent_to_agent_and_through_files(kind, tmp_path):
    source, path = agent(kind, 1), tmp_path / "deep" / "weights.safetensors"
    with torch.no_grad():  # target networks lag behind in an agent that has learned
        for name, value in source.policy.named_parameters():
            value.add_(0.5 if "_target" in name else 0.25)
    save_weights(source, path)
    for weights in (source, path, str(path)):
        target = agent(kind, 2)
        load_weights(target, weights)
        for name, value in target.policy.state_dict().items():
            assert torch.equal(value, source.policy.state_dict()[name.replace("_target", "")]), name


def test_training_starts_from_weights(tmp_path):
    source = agent("DQN", 1)
    options = {"n_envs": 2, "evaluate_every": 0, "buffer_size": 100, "learning_starts": 1000, "seed": 7, **SMALL}
    for initial in (source, save_weights(source, tmp_path / "weights")):
        model = train(sb3.DQN, Hallway, 20, initial=initial, **options).model  # too short to learn
        seen = torch.eye(4)
        torch.testing.assert_close(source.q_net(seen), model.q_net(seen))


def test_weights_that_do_not_fit_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"do not fit DQN: .*q_net.q_net.0.weight.*\[9, 4\].*\[8, 4\]"):
        load_weights(agent("DQN", 0), agent("DQN", 0, units=9))
    with pytest.raises(ValueError, match="a trained PPO do not fit DQN: .*Missing key"):
        load_weights(agent("DQN", 0), agent("PPO", 0))
    with pytest.raises(FileNotFoundError, match="written by save_weights"):
        load_weights(agent("DQN", 0), tmp_path / "nothing")
    path, name = tmp_path / "weights", "q_net.q_net.0.weight"
    for change, error, said in (
        (lambda about, _: about.update(format="else"), FileFormatError, "it says format 'else', expected 'secret-"),
        (lambda _, arrays: arrays.update({name: arrays[name] * np.nan}), FileFormatError, f"{name} holds NaN"),
        (lambda _, arrays: arrays.pop(name), ValueError, "Missing key"),
    ):
        model, fresh = agent("DQN", 0), agent("DQN", 0)
        with pytest.raises(error, match=said):
            load_weights(model, change_arrays(save_weights(agent("DQN", 1), path), change))
        for value, wanted in zip(model.policy.parameters(), fresh.policy.parameters(), strict=True):
            assert torch.equal(value, wanted), "what is refused changes nothing"
