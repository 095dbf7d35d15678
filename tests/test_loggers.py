"""What a fit and a training log, and that it arrives: in TensorBoard, Weights & Biases, an object of one's own."""

import json
import sys
import time

import numpy as np
import pytest
from stable_baselines3 import DQN
from tests.credit.conftest import cue_trajectories, little_work
from tests.sb3.deep_tasks import SMALL, Hallway, Kept

from secret_rl.credit import Secret
from secret_rl.loggers import TensorBoardLogger, WandbLogger
from secret_rl.sb3 import bonus_with, shape_with, train
from secret_rl.shaping import TablePotential

VALUES = {"fit/gain": 0.25, "fit/train_loss": float("nan")}


def test_tensorboard_holds_what_was_logged(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with TensorBoardLogger(tmp_path / "logs") as logger:
        logger.log(5, VALUES)
        logger.log(10, {"fit/gain": np.float32(0.5)})
    events = EventAccumulator(str(tmp_path / "logs"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("fit/gain")] == [(5, 0.25), (10, 0.5)]
    assert [e.step for e in events.Scalars("fit/train_loss")] == [5]


def history(file):
    """The rows of a run of Weights & Biases: protocol buffers in the log format of LevelDB, in blocks of 32 KiB."""
    from wandb.proto.wandb_internal_pb2 import Record

    rows, data, at = [], b"", 7  # a header
    while at < len(file):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        length, kind = int.from_bytes(file[at + 4 : at + 6], "little"), file[at + 6]  # after a checksum
        if at + 7 + length > len(file):
            break  # not yet written
        data, at = data + file[at + 7 : at + 7 + length], at + 7 + length
        if kind in (1, 4):  # all of a record, or its last part
            record, data = Record.FromString(data), b""
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                rows.append({item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items})
    return rows


def test_weights_and_biases_keeps_what_was_logged_without_a_network(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with WandbLogger("credit", dir=str(tmp_path), config={"units": 16}) as logger:
        logger.log(5, VALUES)
        logger.log(0, {"fit_again/gain": np.float32(0.5)})  # a fit that started again
    [path] = tmp_path.glob("wandb/offline-run-*/*.wandb")
    deadline = time.monotonic() + 30
    while len(rows := history(path.read_bytes())) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)  # a process of its own writes the file
    assert [(row["step"], row.get("fit/gain"), row.get("fit_again/gain")) for row in rows] == [
        (5, 0.25, None),
        (0, None, 0.5),
    ]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_fit_logs_its_curve_and_its_report():
    kept = Kept()
    with little_work():
        secret = Secret(units=16, steps=4, evaluate_every=2, batch_size=16, device="cpu")
        report = secret.fit(cue_trajectories(30), logger=kept).report
    for logged, name in (("fit/train_loss", "loss"), ("fit/validation_loss", "validation_loss"), ("fit/gain", "gain")):
        assert kept.column(logged) == [(row["step"], row[name]) for row in report.curve]
    assert kept.column("report/history_gain") == [(report.steps, report.history_gain)]
    assert kept.column("report/is_credit") == [(report.steps, float(report.verdict == "credit"))]


def test_a_training_logs_the_parts_of_its_returns():
    kept, potential = Kept(), TablePotential({1: 0.2, 2: 0.4})
    curve = train(
        DQN, Hallway, 300, n_envs=2, logger=kept, evaluate_every=100, evaluation_episodes=2, learning_starts=20,
        shaping=[shape_with(potential), bonus_with(potential, scale=2.0, fade_steps=200)], gamma=0.9, **SMALL,
    ).curve  # fmt: skip
    evaluated = [(step, row.mean()) for step, row in zip(curve.steps.tolist(), curve.returns, strict=True)]
    assert kept.column("secret/evaluation_return") == evaluated
    step, received = kept.column("shaping/shaped_return")[-1]
    before = curve.training_steps <= step
    assert received == pytest.approx(curve.training_shaped_returns[before][-100:].mean(), abs=1e-3)
    true, potential_part, bonus_part = (
        kept.column(f"shaping/{name}")[-1][1] for name in ("true_return", "potential_part", "bonus_part")
    )
    assert true + potential_part + bonus_part == pytest.approx(received) and bonus_part > 0
    left = [share for _, share in kept.column("shaping/bonus_left")]
    assert left[0] > left[-1] == 0.0


def test_what_is_no_logger_is_named(monkeypatch):
    for call in (lambda: Secret().fit(cue_trajectories(3), logger=print), lambda: train(DQN, Hallway, 9, logger=3)):
        with pytest.raises(TypeError, match=r"logger must be an object with log\(step, {name: number}\)"):
            call()
    for library, make in (("torch.utils.tensorboard", lambda: TensorBoardLogger("unused")), ("wandb", WandbLogger)):
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(ModuleNotFoundError, match=r'extra: pip install "secret-rl\['):
            make()
