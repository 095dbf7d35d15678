"""What credit methods are worth to PPO, at a tiny size: credit in a file, and agents that need nothing else."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from paper import method_worth
from secret_rl.credit.base import _registered
from secret_rl.evaluation import benchmark

pytestmark = pytest.mark.usefixtures("one_thread")


class _Fitted:
    """Credits the first action, more with each fit."""

    def __init__(self, cell):
        self.share = 0.2 * (1 + cell.seed)

    def step_credit(self, observations, actions, next_observations):
        assert len(observations) == len(actions) == len(next_observations)
        return np.where(actions == 0, self.share, 0.01)


@pytest.fixture
def study(scratch, monkeypatch):
    monkeypatch.setattr(benchmark, "fitted_method", lambda _, cell: _Fitted(cell))
    monkeypatch.setattr("secret_rl.credit.base.methods", lambda: ("mine",))
    monkeypatch.setitem(_registered, "mine", _Fitted)
    monkeypatch.setattr(method_worth, "FILE", scratch / "tables.npz")
    small = replace(
        method_worth.result(quick=True), fits=2, steps=128, test_every=64,
        options={"side_by_side": 4, "rollout": 16, "units": 8},
    )  # fmt: skip
    method_worth.save_tables(scratch, scratch / "tables.npz", small)
    return small


def test_the_file_holds_tasks_their_true_events_and_credit(study, scratch):
    with np.load(scratch / "tables.npz", allow_pickle=False) as file:
        for task, events in (("triggers_8x8_3t1p", 3), ("taxi_delivery", 1)):
            for number in range(study.instances):
                get = {name: file[f"{task}/{number}/{name}"] for name in ("true", "pairs", "next_states", "rewards")}
                earns = get["true"] > 0
                assert earns.any() and np.allclose(get["true"][earns], 1 / events)
                seen_with = get["pairs"][earns]
                assert not np.isin(get["pairs"][~earns], seen_with).any(), "what looks like a true event is one"
                assert not get["rewards"][earns].any(), "it pays later"
                credit = file[f"{task}/{number}/credit/mine"]
                assert credit.shape == (2, *get["true"].shape)
                assert np.allclose(credit[1, :, 0], 0.4) and np.allclose(credit[:, :, 1:], 0.01)


def test_agents_learn_from_the_file_alone_and_once(study, scratch, monkeypatch):
    run = {"device": "cpu", "file": scratch / "tables.npz"}
    method_worth.run(study, "the command", only="taxi_delivery", batch=3, **run)
    path = method_worth.run(study, "the command", **run)
    record = json.loads(path.read_text())
    conditions = ["none", "count bonus", "true events", "mine"]
    labels = [f"{task}, {condition}" for task in ("taxi_delivery", "triggers_8x8_3t1p") for condition in conditions]
    labels += [f"taxi_delivery, fading over 200,000 steps, {condition}" for condition in conditions[2:]]
    assert [entry["label"] for entry in record["panels"]] == labels
    assert all(np.shape(entry["runs"]["area"]) == (2, 2) for entry in record["panels"])
    monkeypatch.setattr(method_worth, "ppo_many", lambda *_, **__: pytest.fail("learned twice"))
    method_worth.run(study, "the command", **run)
    page = method_worth.table(study).read_text()
    assert "2 instances x 2 seeds x 128 steps" in page and page.count("| mine | ") == 3
    assert page.count("| none | ") == 3, "where a bonus fades, too, agents without one stand beside it"


def test_credit_below_the_threshold_pays_nothing_and_equal_pairs_pay_once(study, scratch):
    tables = method_worth._Tables.load(scratch / "tables.npz", "triggers_8x8_3t1p", 1, 2)
    (_, shaping), _ = tables.tasks("mine", 2)
    earned = shaping.credit[shaping.pairs]
    assert np.allclose(earned[:, 0], 0.2) and not earned[:, 1:].any() and shaping.once
    assert not any(shaping.credit.any() for _, shaping in tables.tasks("none", 2))


def test_no_file_says_how_to_make_one(study, scratch):
    with pytest.raises(FileNotFoundError, match=r"python -m paper.method_worth FOLDER"):
        method_worth.run(study, "", file=scratch / "missing.npz", device="cpu")
    with pytest.raises(ValueError, match="no such task: chess"):
        method_worth.run(study, "", only="chess")


def test_learning_needs_no_compiled_code():
    blocked = "import sys; sys.modules['numba'] = None; import paper.method_worth"
    subprocess.run([sys.executable, "-c", blocked], check=True)
