"""The machinery of the paper's transfer results, at a tiny size."""

import json
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from paper.transfer_runs import ADAPTED, CONDITIONS, LEARNED, Transfer, TransferResult

import secret_rl as srl
from paper import credit_runs, transfer_runs
from secret_rl.evaluation import LearningCurves

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # so short a fit may be warned of


@pytest.fixture
def tiny(scratch, source):
    panel = Transfer(
        "tiny", source, 1, 1, size=3, target_trajectories=60, episodes=30, mazes=2, seeds=2,
        conditions=(*CONDITIONS, *ADAPTED),
    )  # fmt: skip
    return TransferResult("tiny", "A tiny figure", [panel], note="a note", window=5)


def test_each_condition_is_the_library_calls_and_nothing_is_run_twice(tiny, monkeypatch):
    written = transfer_runs.make(tiny, "the command", analyse_only=False)
    assert [path.split(".")[-1] for path in written] == ["md", "png", "svg"]
    [panel] = tiny.panels
    curves = LearningCurves.load(tiny.curves(panel))
    secret = credit_runs.fitted(panel.source, 1, "cpu")
    env = gym.make("secret_rl/Triggers-v0", **panel.options(1))
    data = srl.collect("secret_rl/Triggers-v0", 60, seed=719_001, env_options=panel.options(1))
    attributions = secret.attribute(data)
    expected = {"none": env, "OnlineCredit": srl.PotentialShaping(env, srl.OnlineCredit(secret, repeat=True), 0.99)}
    for kind in ("paper", "pending", "value"):
        expected[kind] = srl.PotentialShaping(env, srl.estimate_potential(data, attributions, kind), 0.99)
    adapted = srl.adapt(secret, data)  # that of maze 1 is model 1 adapted
    pending = srl.estimate_potential(data, adapted.attribute(data))
    expected["pending, adapted"] = srl.PotentialShaping(env, pending, 0.99)
    for name, task in expected.items():
        learned = srl.QLearning(seed=1).learn(task, 30).curve.returns
        np.testing.assert_array_equal(curves[name][1, 1], learned, err_msg=name)
    assert 0 < curves.optimal[1] <= 1

    record = json.loads(tiny.path.read_text())
    assert record["command"] == "the command"
    assert record["panels"][0]["settings"]["source"]["mazes"]["episodes"] == 200
    assert record["panels"][0]["beside_none"]["conditions"].keys() == set(panel.conditions)
    text = (tiny.path.parent / "tiny.md").read_text()
    for words in ("# A tiny figure", "a note", "## tiny", "| OnlineCredit |", "P(improvement) over value", "60 target"):
        assert words in text
    monkeypatch.setattr(transfer_runs, "learn", lambda *_: pytest.fail("run twice"))
    transfer_runs.make(tiny, "the command", analyse_only=False)
    assert json.loads(tiny.path.read_text()) == record


def test_mazes_without_a_success_are_learned_without_shaping():
    env_options = {"size": 8, "triggers": 3, "layout_seed": 0, "max_steps": 5}
    data = srl.collect("secret_rl/Triggers-v0", 20, env_options=env_options)
    assert not data.successful.any()
    panel = Transfer("", None, 3, 1, conditions=("none", "paper", "pending", "value"))
    assert set(transfer_runs._potentials(panel, data, None, None).values()) == {None}
    assert transfer_runs.adapted_to((8, 3, 1, False), 0, None, data) is None


def test_credit_may_see_less_than_is_observed(tiny):
    [panel] = tiny.panels
    whole = replace(panel, window=None, credit_view=True, conditions=("none", "pending", LEARNED, "OnlineCredit"))
    cropped = replace(panel, conditions=("none", "pending", "OnlineCredit"))
    secret = credit_runs.fitted(panel.source, 0, "cpu")
    data, seen = (
        srl.collect("secret_rl/Triggers-v0", 60, seed=1, env_options=each.options(1)) for each in (whole, cropped)
    )
    found = transfer_runs._potentials(whole, data, secret, None)
    expected = transfer_runs._potentials(cropped, seen, secret, None)
    assert found["pending"].values == expected["pending"].values
    env = gym.make("secret_rl/Triggers-v0", **whole.options(1))
    shaped = srl.PotentialShaping(env, found[LEARNED], 0.99)
    learned = shaped.tabular_shaping(env.unwrapped.tabular())["potential"]
    assert learned.any() and learned.min() >= 0
    assert transfer_runs.settings_of(whole)["credit_view"]
    assert "credit_view" not in transfer_runs.settings_of(panel), "so that settings of earlier runs stay the same"
