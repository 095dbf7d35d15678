"""Training that is interrupted, at any moment, ends where it would have ended."""

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
from tests.agents.sb3.deep_tasks import Hallway  # noqa: E402
from tests.sealing import change_json  # noqa: E402

from secret_rl.agents.sb3 import train  # noqa: E402
from secret_rl.agents.sb3.states import (  # noqa: E402
    BUFFER_NUMBERS,
    MODEL_NUMBERS,
    end_running_episodes,
    model_state,
)
from secret_rl.atomic import InUseError, folder_lock  # noqa: E402
from secret_rl.files import FileFormatError, ResumeError  # noqa: E402
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


def run(case, folder, callback=None, env=None, algorithm=None, **changes):
    usual_algorithm, usual, options = CASES[case]
    options = {
        "n_envs": 2, "evaluate_every": 50, "evaluation_episodes": 2, "evaluation_epsilon": 0.2, "seed": 3,
        "checkpoint_every": 64, **options, **changes,
    }  # fmt: skip
    return train(algorithm or usual_algorithm, env or usual, 200, folder=folder, callback=callback, **options)


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
        ({"env_options": None, "env": Hallway}, "env was 'secret_rl/Triggers-v0', now 'tests.agents.*Hallway'"),
        ({"learning_rate": 0.5}, "learning_rate was None, now 0.5"),
        ({"env_options": MAZE | {"size": 4}}, "env_options was .*'size': 5.*, now .*'size': 4"),
        ({"shaping": shape_with(TablePotential({1: 0.5}))}, "shaping was"),
        ({"shaping": None}, "shaping was .*, now None"),
    ):
        with pytest.raises(ResumeError, match=f"{tmp_path.name} holds a training with another .*{told}"):
            run("DQN", tmp_path, **changes)


DAMAGE = {
    "cut": (lambda content: content[:40], "it has 40 bytes and is not a whole safetensors file"),
    "emptied": (lambda content: b"", "it has 0 bytes"),
    "one bit": (lambda content: content[:-1] + bytes([content[-1] ^ 1]), "does not match its checksum"),
    "longer": (lambda content: content + b"\0", "1 bytes follow its last array"),
    "nonsense": (lambda content: b"nonsense" * 9, "is not a whole safetensors file"),
    "gone": (None, "is gone"),
}


def test_damage_is_named(tmp_path):
    with pytest.raises(Interrupted):
        run("DQN", tmp_path, Interrupt(90))
    files = [path for path in tmp_path.iterdir() if path.suffix == ".safetensors"]
    kinds = ["curve-1", "model-1", "replay-1", "replay-short-1"]
    assert sorted(path.stem for path in files) == kinds, "each of them is damaged"
    for path in files:
        content = path.read_bytes()
        for damage, (change, told) in DAMAGE.items():
            path.unlink() if change is None else path.write_bytes(change(content))
            with pytest.raises(FileFormatError, match=f"{path.name} .*{told}.*; (delete the folder|restore it)"):
                run("DQN", tmp_path)
            assert damage == "gone" or path.exists(), "nothing is deleted"
        path.write_bytes(content)
    state = tmp_path / "state.json"
    content = state.read_text()
    for broken, told in (
        ("[]", "it says format 'list'"),
        ("{", "JSONDecodeError"),
        ("", "JSONDecodeError"),
        (content.replace('"part": 1', '"part": 2'), "does not match its checksum"),
    ):
        state.write_text(broken)
        cannot = "state.json cannot be read as 'secret-rl deep training': "
        with pytest.raises(FileFormatError, match=f"{cannot}.*{told}.*; delete the folder and train again"):
            run("DQN", tmp_path)
    state.write_text(content)
    assert_same(run("DQN", tmp_path), run("DQN", tmp_path / "undisturbed"))


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.update(format="secret-rl run"),
        lambda state: state.update(version=2),
        lambda state: state.update(part=-1),
        lambda state: state.update(part="1"),
        lambda state: state.update(number=None),
        lambda state: state.update(fingerprint=3),
        lambda state: state.pop("fingerprint"),
        lambda state: state.pop("model"),
        lambda state: state.update(files=["model-1.safetensors"]),
        lambda state: state["files"].update(model="curve-1.safetensors"),
        lambda state: state["files"].update(model=3),
        lambda state: state["files"].update(curve="../../../etc/passwd"),
        lambda state: state["model"]["parameters"]["dict"].append(["predict", {"dict": []}]),
        lambda state: state["model"]["parameters"].update(code="print()"),
        lambda state: state["model"].update(parameters={"dict": []}),
        lambda state: state["model"].update(tensors={"dict": [["gamma", {"tensor": "parameters.policy.q_net"}]]}),
        lambda state: state["model"].update(numbers=[1]),
        lambda state: state.update(replay={"files": 3}),
        lambda state: state["replay"].update(short="replay-1.safetensors"),
        lambda state: state["replay"].update(files=[["replay-1.safetensors", -1, 32]]),
        lambda state: state["replay"].update(files=[["replay-1.safetensors", 0, 10**12]]),
        lambda state: state["replay"].update(files=[["replay-1.safetensors", 0, 31]]),
        lambda state: state["replay"]["numbers"].update(pos=120),
        lambda state: state["replay"]["numbers"].update(pos=-1),
    ],
)
def test_a_state_that_was_tampered_with_is_refused(tmp_path, change):
    """Also where the checksum is made to match."""
    with pytest.raises(Interrupted):
        run("DQN", tmp_path, Interrupt(90))
    change_json(tmp_path / "state.json", change)
    with pytest.raises((FileFormatError, ResumeError), match=f"{tmp_path}"):
        run("DQN", tmp_path, Interrupt(0))


class Kept(sb3.DQN):
    """The class keeps the last one that was made of it."""

    last = None

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        Kept.last = self


FOREIGN = ("gamma", "policy_class", "__class__", "predict", "buffer_size", "__dict__", "policy", "observations")
WRONG = {  # of the right name, but not of its type; suspected defect of src: 64.5 and 0.5 are taken for counts of steps
    "model": {
        "num_timesteps": ["64", None, True, [64], {"dict": []}, 10**400, 64.5],
        "_n_updates": ["64", None, True, 0.5],
        "exploration_rate": ["0.5", None, False, [0.5]],
        "start_time": ["now", None, True],
    },
    "replay": {"pos": ["1", None, True, 1.5, [1]], "full": [0, 1, "yes", None, [True]]},
}
HOSTILE = [
    *((where, name, value) for where in WRONG for name in FOREIGN for value in (0.5, "os.system", None)),
    *((where, name, value) for where, own in WRONG.items() for name, values in own.items() for value in values),
]


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory):
    """A folder to go on from with models that remember themselves."""
    folder = tmp_path_factory.mktemp("unfinished")
    with pytest.raises(Interrupted):
        go_on(folder, Interrupt(90))
    return folder


def go_on(folder, callback):
    return run("DQN", folder, callback, algorithm=Kept, env=Hallway, env_options=None, shaping=None)


@pytest.mark.parametrize(("where", "name", "value"), HOSTILE, ids=str)
def test_a_state_sets_what_learning_counts_and_nothing_else(tmp_path, unfinished, where, name, value):
    assert name in (*MODEL_NUMBERS, *BUFFER_NUMBERS) or name in FOREIGN
    folder = shutil.copytree(unfinished, tmp_path / "copy")
    change_json(folder / "state.json", lambda state: state[where]["numbers"].update({name: value}))
    with pytest.raises(FileFormatError, match="state.json cannot be read as 'secret-rl deep training': "):
        go_on(folder, Interrupt(0))
    fresh = sb3.DQN("MlpPolicy", DummyVecEnv([Hallway] * 2), buffer_size=REPLAYED["buffer_size"], **SMALL)
    things = (Kept.last, fresh) if where == "model" else (Kept.last.replay_buffer, fresh.replay_buffer)
    kept, usual = (vars(thing).get(name) for thing in things)
    assert type(kept) is type(usual) and type(things[0]) in (Kept, type(things[1]))
    assert isinstance(usual, np.ndarray | torch.nn.Module) or kept == usual


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

    def reset(self, **options):
        Counted.used += 1
        return super().reset(**options)

    def step(self, action):
        Counted.used += 1
        return super().step(action)


@pytest.mark.parametrize("checkpoint_every", [None, 64])
def test_a_folder_that_cannot_be_written_is_refused_before_the_first_step(tmp_path, checkpoint_every):
    (tmp_path / "file").write_text("in the way")
    Counted.used = 0
    options = {"env": Counted, "env_options": None, "shaping": None, "checkpoint_every": checkpoint_every}
    for folder in (tmp_path / "file", tmp_path / "file" / "deep" / "folder", Path("/proc/secret-rl-test")):
        with pytest.raises(OSError, match="nothing can be written there .*: choose another path") as refused:
            run("DQN", folder, **options)
        assert str(folder) in str(refused.value)
    assert Counted.used == 0
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "in the way"
    run("DQN", tmp_path / "folder", **options)
    assert Counted.used > 200


def test_one_training_at_a_time_in_a_folder(tmp_path):
    undisturbed, folder = run("DQN", tmp_path / "undisturbed"), tmp_path / "folder"
    refused = []

    class Disturb(BaseCallback):
        """Another training of the same, while this one runs."""

        def _on_step(self):
            if self.num_timesteps in (20, 100, 180):
                files = sorted(folder.iterdir())
                with pytest.raises(InUseError, match="folder is being written by another process") as error:
                    run("DQN", folder)
                refused.append(error.value)
                assert sorted(folder.iterdir()) == files
            return True

    assert_same(run("DQN", folder, Disturb()), undisturbed)
    assert len(refused) == 3
    assert sorted(path.name.split("-")[0] for path in folder.iterdir()) == ["curve", "model", "state.json"]


def test_a_locked_folder_is_refused_until_it_is_free(tmp_path):
    with pytest.raises(Interrupted):
        run("DQN", tmp_path / "folder", Interrupt(90))
    Counted.used = 0
    with folder_lock(tmp_path / "new"), pytest.raises(InUseError):
        run("DQN", tmp_path / "new", env=Counted, env_options=None, shaping=None)
    assert Counted.used == 0 and not (tmp_path / "new").exists()
    with folder_lock(tmp_path / "folder"):
        before = {path.name: path.read_bytes() for path in (tmp_path / "folder").iterdir()}
        with pytest.raises(InUseError, match="wait for it to end, or choose another path"):
            run("DQN", tmp_path / "folder")
        assert {path.name: path.read_bytes() for path in (tmp_path / "folder").iterdir()} == before
    assert_same(run("DQN", tmp_path / "folder"), run("DQN", tmp_path / "undisturbed"))


def test_a_training_that_fails_leaves_no_lock(tmp_path):
    with pytest.raises(Interrupted):
        run("DQN", tmp_path, Interrupt(10))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(Interrupted):
        run("DQN", tmp_path, Interrupt(90))
    assert not [path for path in tmp_path.iterdir() if "lock" in path.name]


def test_a_finished_training_is_read_from_a_locked_folder(tmp_path):
    first = run("PPO", tmp_path)
    with folder_lock(tmp_path):
        assert_same(run("PPO", tmp_path, Interrupt(0)), first)


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
        assert_same(run("PPO", folder, Interrupt(0)), first)
        for path in folder.iterdir():
            path.chmod(0o444)
        folder.chmod(0o555)
        try:
            with without_rights():
                with pytest.raises(PermissionError):
                    (folder / "new").touch()
                with pytest.raises(PermissionError, match="nothing can be written there"):
                    run("PPO", folder / "another")
                assert_same(run("PPO", folder, Interrupt(0)), first)
        finally:
            folder.chmod(0o755)
