"""Training that is interrupted, at any moment, ends where it would have ended; files that are damaged are refused."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import sb3_contrib as contrib
import stable_baselines3 as sb3
import torch
from stable_baselines3.common.vec_env import VecNormalize
from tests.sb3.deep_tasks import MAZE, SMALL, TRIGGERS, AtSteps, Hallway, Interrupt, Interrupted, agent_in, assert_same
from tests.sealing import change_arrays

from secret_rl.atomic import InUseError, folder_lock
from secret_rl.files import FileFormatError, ResumeError
from secret_rl.sb3 import (
    PotentialShapingVecEnv,
    ShapedReplayBuffer,
    bonus_with,
    load_weights,
    save_weights,
    shape_with,
    train,
)
from secret_rl.sb3.checkpoint import described, end_running_episodes
from secret_rl.shaping import EventCredit, OnlineCredit, ReplayShaping, TablePotential, VisitCounts
from secret_rl.testing.shaping import EveryEnding, Everything, OneEnvironment

POTENTIAL = TablePotential({state: state / 400 for state in range(400)})
BONUS = bonus_with(EventCredit("trigger_activated", amount=0.5), fade_steps=180, fade_at_return=0.5)
BONUSES = bonus_with(Everything(), fade_steps=180), bonus_with(VisitCounts(), scale=0.1)
REPLAYED = {"learning_starts": 20, "buffer_size": 120, "train_freq": 1, "batch_size": 8, **SMALL}
ROLLED_OUT = {"n_steps": 8, "batch_size": 16, "n_epochs": 2, **SMALL}
RECURRENT = ROLLED_OUT | {"policy": "MlpLstmPolicy", "policy_kwargs": {"lstm_hidden_size": 4}}


CREDITED = {
    "replay_buffer_class": ShapedReplayBuffer,
    "replay_buffer_kwargs": {"shaping": ReplayShaping(Everything(()), 0.99), "priority": 0.5},
}


def normalised(envs, discount):
    return VecNormalize(PotentialShapingVecEnv(envs, POTENTIAL, discount))


CASES = {
    "DQN": (sb3.DQN, TRIGGERS, {"env_options": MAZE, "shaping": shape_with(POTENTIAL), **REPLAYED}),
    "DQN, large buffer": (sb3.DQN, TRIGGERS, {"env_options": MAZE, **REPLAYED, "buffer_size": 5000}),
    "DQN, credited replay": (sb3.DQN, TRIGGERS, {"env_options": MAZE, "n_envs": 3, **CREDITED, **REPLAYED}),
    "DQN, three steps": (sb3.DQN, TRIGGERS, {"env_options": MAZE, "n_steps": 3, **REPLAYED}),
    "DQN, dict": (sb3.DQN, EveryEnding, {"policy": "MultiInputPolicy", **REPLAYED}),
    "DQN, normalised": (sb3.DQN, "CartPole-v1", {"shaping": lambda envs, _: VecNormalize(envs), **REPLAYED}),
    "PPO": (sb3.PPO, TRIGGERS, {"env_options": MAZE, "learning_rate": lambda left: left * 0.01, **ROLLED_OUT}),
    "PPO, normalised": (sb3.PPO, TRIGGERS, {"env_options": MAZE, "shaping": normalised, **ROLLED_OUT}),
    "PPO, bonus": (sb3.PPO, TRIGGERS, {"env_options": MAZE, "shaping": BONUS, **ROLLED_OUT}),
    "DQN, bonuses": (sb3.DQN, EveryEnding, {"policy": "MultiInputPolicy", "shaping": BONUSES, **REPLAYED}),
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
    """An episode that terminated was not cut."""
    model = agent_in(sb3.DQN, Hallway())
    end_running_episodes(model)  # nothing there yet
    for done in (0, 1, 0):
        model.replay_buffer.add(
            np.zeros((1, 4)), np.zeros((1, 4)), np.zeros((1, 1)), np.ones(1), np.array([done]), [{}]
        )
        end_running_episodes(model)
    assert model.replay_buffer.dones[:3, 0].tolist() == [1, 1, 1]
    assert model.replay_buffer.timeouts[:3, 0].tolist() == [1, 0, 1]


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
        ({"shaping": bonus_with(EventCredit("trigger_activated"))}, "shaping was"),
    ):
        with pytest.raises(ResumeError, match=f"{unfinished.name} holds a training with another .*{difference}"):
            run("DQN", unfinished, **changes)


def test_potentials_count_by_what_they_pay():
    """Credit models by their weights, whatever was looked up meanwhile."""
    models = [SimpleNamespace(model=torch.nn.Linear(2, 2), step_credit=lambda *_: np.ones(1)) for _ in range(2)]
    used = OnlineCredit(models[0])
    before = described(bonus_with(used))
    OneEnvironment(used).start(np.zeros(2), {})
    alike, *others = OnlineCredit(models[0]), OnlineCredit(models[1]), OnlineCredit(models[0], cap=0.5)
    assert before == described(bonus_with(used)) == described(bonus_with(alike))
    assert len({before, *(described(bonus_with(other)) for other in others)}) == 3


def test_damaged_files_are_named(unfinished, tmp_path):
    """``tests/attack`` damages them in every way."""
    folder = shutil.copytree(unfinished, tmp_path / "folder")
    [path] = folder.iterdir()
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    with pytest.raises(FileFormatError, match=f"{path.name} .*its checksum.*; delete the folder and train again"):
        run("DQN", folder)


def test_only_counters_are_set_from_a_file(unfinished, tmp_path):
    """Also where the checksums were made to match."""
    folder = shutil.copytree(unfinished, tmp_path / "folder")

    def add(about, _):
        numbers = dict(about["state"]["dict"])["numbers"]["dict"]
        numbers += [["gamma", 0.5], ["predict", 3]]

    change_arrays(folder / "training.safetensors", add)
    model = run("DQN", folder).model
    assert model.gamma == 0.99 and callable(model.predict)


def test_without_checkpoints_a_folder_keeps_what_was_learned(tmp_path):
    first = run("PPO", tmp_path, checkpoint_every=None)
    assert_same(run("PPO", tmp_path, Interrupt(0), checkpoint_every=None), first)
    assert_same(run("PPO", None, checkpoint_every=None), first)


def never():
    raise AssertionError("an environment was made")


def test_a_folder_that_cannot_be_written_is_refused_before_the_first_step(tmp_path):
    (tmp_path / "file").write_text("in the way")
    for folder in (tmp_path / "file", tmp_path / "file" / "deep" / "folder", Path("/proc/secret-rl-test")):
        with pytest.raises(OSError, match="nothing can be written there .*: choose another path"):
            run("DQN", folder, env=never, env_options=None, shaping=None)
    assert (tmp_path / "file").read_text() == "in the way"


def test_one_training_at_a_time_in_a_folder(tmp_path):
    refused = []

    def disturb(_):
        """Another training of the same, while this one runs."""
        with pytest.raises(InUseError, match="folder is being written by another process") as error:
            run("DQN", tmp_path / "folder")
        refused.append(error.value)

    undisturbed = run("DQN", tmp_path / "undisturbed")
    assert_same(run("DQN", tmp_path / "folder", AtSteps(disturb, 20, 100, 180)), undisturbed)
    assert len(refused) == 3
    with folder_lock(tmp_path / "folder"):
        assert_same(run("DQN", tmp_path / "folder", Interrupt(0)), undisturbed)  # finished: read whoever holds the lock


def agent(algorithm, seed, units=8):
    env = Hallway() if algorithm in (sb3.DQN, sb3.PPO) else "Pendulum-v1"
    return agent_in(algorithm, env, seed=seed, policy_kwargs={"net_arch": [units]})


@pytest.mark.parametrize("algorithm", [sb3.DQN, sb3.PPO, sb3.SAC, sb3.TD3])
def test_weights_go_from_agent_to_agent_and_through_files(algorithm, tmp_path):
    source, path = agent(algorithm, 1), tmp_path / "deep" / "weights.safetensors"
    with torch.no_grad():  # target networks lag behind in an agent that has learned
        for name, value in source.policy.named_parameters():
            value.add_(0.5 if "_target" in name else 0.25)
    save_weights(source, path)
    for weights in (source, path, str(path)):
        target = agent(algorithm, 2)
        load_weights(target, weights)
        for name, value in target.policy.state_dict().items():
            assert torch.equal(value, source.policy.state_dict()[name.replace("_target", "")]), name


def test_training_starts_from_weights(tmp_path):
    source = agent(sb3.DQN, 1)
    options = {"n_envs": 2, "evaluate_every": 0, "buffer_size": 100, "learning_starts": 1000, "seed": 7, **SMALL}
    for initial in (source, save_weights(source, tmp_path / "weights")):
        model = train(sb3.DQN, Hallway, 20, initial=initial, **options).model  # too short to learn
        torch.testing.assert_close(source.q_net(torch.eye(4)), model.q_net(torch.eye(4)))


def test_weights_that_do_not_fit_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"do not fit DQN: .*q_net.q_net.0.weight.*\[9, 4\].*\[8, 4\]"):
        load_weights(agent(sb3.DQN, 0), agent(sb3.DQN, 0, units=9))
    with pytest.raises(ValueError, match="a trained PPO do not fit DQN: .*Missing key"):
        load_weights(agent(sb3.DQN, 0), agent(sb3.PPO, 0))
    with pytest.raises(FileNotFoundError, match="nothing"):
        load_weights(agent(sb3.DQN, 0), tmp_path / "nothing")
    path = save_weights(agent(sb3.DQN, 1), tmp_path / "weights")
    change_arrays(path, lambda about, _: about.update(format="else"))
    with pytest.raises(FileFormatError, match="it says format 'else', expected 'secret-rl policy weights'"):
        load_weights(agent(sb3.DQN, 0), path)
