"""Fits that several processes share: the curve of one process, one process that writes, any number that resumes."""

import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from tests.credit.conftest import cue_trajectories, little_work

from secret_rl.cli import main
from secret_rl.credit import Secret
from secret_rl.credit.secret import tokens as tokens_module
from secret_rl.credit.secret.checkpoint import Checkpoint
from secret_rl.credit.secret.group import ALONE, Group
from secret_rl.credit.secret.model import Dropout
from secret_rl.credit.secret.options import TrainingOptions
from secret_rl.credit.secret.tokens import Tokens
from secret_rl.credit.secret.training import Trainer
from secret_rl.processes import WorkerPool

OPTIONS = {"units": 16, "steps": 60, "evaluate_every": 10, "batch_size": 15, "device": "cpu"}
SAVES = 3  # of the predictor without memory, and two of training, before a fit is stopped


class Stopped(Exception):
    """The power went."""


def curve_of(secret):
    return [[entry[name] for name in ("step", "loss", "validation_loss", "gain")] for entry in secret.report.curve]


def fitted(folder=None, stop=False, **options):
    """The curve of a fit; None if it is stopped half way, with what it has kept in a folder."""
    data = cue_trajectories(90)
    real, saves = Checkpoint.save, []

    def stopping(self, *state, **tensors):
        real(self, *state, **tensors)
        saves.append(1)
        if len(saves) == SAVES:
            raise Stopped

    with pytest.MonkeyPatch.context() as patch, little_work():
        if stop:
            patch.setattr(Checkpoint, "save", stopping)
        try:
            return curve_of(Secret(**OPTIONS, **options).fit(data, checkpoint=folder, progress=False))
        except Stopped:
            return None


def join(rank, folder):
    """Be one of two processes."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=2)


def together(rank, folder):
    """What each of two processes does: fits, warnings and files."""
    join(rank, folder)
    found = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found["table"] = fitted()
        found["warnings"] = len(caught)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens_module, "_distinct_rows", lambda columns: None)
        patch.setattr("secret_rl.credit.secret.model.PAIRS_AT_A_TIME", 40)
        found["blocks"] = fitted(transitions=True)
    found["taken up"] = fitted(f"{folder}/by-one")
    fitted(f"{folder}/by-two", stop=True)
    with pytest.raises(ValueError, match=r"seed [01] in process 1, but 0 in process 0.*distributed=False"):
        fitted(seed=rank)
    found["own"] = curve_of(Secret(**OPTIONS).fit(cue_trajectories(60 + 30 * rank), distributed=False))[0]
    torch.distributed.destroy_process_group()
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_two_processes_learn_as_one_does_and_resume_each_others_fits(tmp_path):
    alone = fitted()
    fitted(tmp_path / "by-one", stop=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens_module, "_distinct_rows", lambda columns: None)
        patch.setattr("secret_rl.credit.secret.model.PAIRS_AT_A_TIME", 40)
        blocks = fitted(transitions=True)
    with WorkerPool(2) as pool:
        first, second = (found.result() for found in [pool.submit(together, rank, tmp_path) for rank in (0, 1)])
    for name, expected in (("table", alone), ("blocks", blocks), ("taken up", alone)):
        np.testing.assert_allclose(first[name], expected, rtol=0, atol=1e-4, err_msg=name)
        assert first[name] == second[name], "to the bit, whichever process one asks"
    assert len(alone) == 6 and alone != blocks
    assert first["warnings"] > 0 == second["warnings"], "one process speaks"
    assert (tmp_path / "by-two" / "state.json").is_file()
    np.testing.assert_allclose(fitted(tmp_path / "by-two"), alone, rtol=0, atol=1e-4)
    assert first["own"] != second["own"], "distributed=False: other data, fits of their own"


def test_parts_of_a_batch_add_up_to_it(cues, make_model, signs):
    data = cues(30)
    model, evenly = make_model(data.observation_space, data.action_space), np.ones(30)
    options = TrainingOptions(batch_size=5, attention_penalty=0.0)
    whole = Trainer(model, Tokens.of(data, signs), np.arange(30), evenly, options, 0, torch.device("cpu"))
    episodes = whole._episodes_of(0)
    batch = whole.tokens.batch(episodes)
    loss = whole.loss(batch, torch.Generator().manual_seed(0))
    loss.backward()
    wanted = torch.cat([p.grad.flatten() for p in whole.model.parameters() if p.grad is not None])
    for size in (2, 3, 7):  # of seven, two have none of the five episodes
        losses, gradients = [], 0
        for rank in range(size):
            whole.model.zero_grad()
            part = whole.tokens.batch(episodes, part=Group(rank, size).part)
            losses.append(whole.loss(part, torch.Generator().manual_seed(0)))
            losses[-1].backward()
            gradients += torch.cat([p.grad.flatten() for p in whole.model.parameters() if p.grad is not None])
        torch.testing.assert_close(sum(losses), loss, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(gradients, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("shape", [(6, 4), (5, 3, 4)])
def test_a_part_drops_what_the_whole_drops(shape):
    numbers = torch.tensor([1, 3, 4])
    part = tokens_module.Part(numbers, 6, numbers, 5)
    x = torch.ones(shape)
    whole, of_part = (Dropout(torch.Generator().manual_seed(0), part=p) for p in (None, part))
    kept = whole(x, 0.5)
    assert 0 < (kept == 0).float().mean() < 1
    torch.testing.assert_close(of_part(x[numbers], 0.5), kept[numbers], rtol=0, atol=0)


def test_a_process_alone_joins_nobody():
    assert Group.join(torch.device("cpu")) == ALONE
    with pytest.raises(ValueError, match="torchrun has not started this process"):
        Group.join(torch.device("cpu"), True)
    assert ALONE.of_first("mine") == "mine" and ALONE.share([1, 2]) == [1, 2]


@pytest.mark.slow
def test_the_command_under_torchrun_prints_once_and_leaves_what_one_process_leaves(tmp_path, capsys):
    cue_trajectories(90).save(tmp_path / "data")
    options = [f"--{name.replace('_', '-')}={value}" for name, value in OPTIONS.items()]
    fit = ["fit", str(tmp_path / "data"), *options, "--out"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    shared = subprocess.run(
        [*torchrun, "-m", "secret_rl.cli", *fit, str(tmp_path / "two" / "model")],
        capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True, timeout=300,
    )  # fmt: skip
    assert main([*fit, str(tmp_path / "one" / "model")]) == 0
    alone = capsys.readouterr().out
    assert shared.stdout.count("verdict") == shared.stdout.count("saved") == 1
    assert shared.stderr.count("estimate") == shared.stderr.count("Warning: not learned") == 1
    assert [line.split()[0] for line in shared.stdout.splitlines()] == [line.split()[0] for line in alone.splitlines()]
    folders = [
        sorted(str(path.relative_to(tmp_path / name)) for path in (tmp_path / name).rglob("*"))
        for name in ("one", "two")
    ]
    assert folders[0] == folders[1]
    curves = [np.array(curve_of(Secret.load(tmp_path / name / "model"))) for name in ("one", "two")]
    np.testing.assert_allclose(curves[1], curves[0], rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["info", "DATA"], "info runs in one process: give the command without torchrun"),
        (["fit", "DATA", "--method", "rudder", "--out", "OUT"], "--method rudder fits in one process"),
    ],
)
def test_what_is_not_shared_is_refused_under_torchrun(words, said, tmp_path, monkeypatch, capsys):
    cue_trajectories(30).save(tmp_path / "data")
    paths = {"DATA": str(tmp_path / "data"), "OUT": str(tmp_path / "model")}
    for name, value in (("TORCHELASTIC_RUN_ID", "none"), ("WORLD_SIZE", "2"), ("RANK", "1")):
        monkeypatch.setenv(name, value)
    assert main([paths.get(word, word) for word in words]) == 2
    assert f"secret-rl (process 1): {said}" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
