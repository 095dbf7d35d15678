"""The machinery of the paper's results with deep agents, at a tiny size."""

import json
from dataclasses import replace

import numpy as np
import pytest
from paper.credit_runs import Cell, Mazes
from paper.deep_runs import Condition, Deep, DeepResult
from tests.quick import quick_fits

from paper import (
    batched_dqn,
    credit_runs,
    deep_bonus,
    deep_in_domain,
    deep_inverted,
    deep_runs,
    deep_sb3,
    transfer_runs,
)
from secret_rl.envs.tabular import best_return
from secret_rl.evaluation import LearningCurves

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # so short a fit may be warned of
MODULES = (deep_inverted, deep_in_domain, deep_sb3)
CONDITIONS = (
    Condition("from scratch"),
    Condition("weight transfer", transferred=True),
    Condition("paper", "paper"),
    Condition("OnlineCredit", "OnlineCredit", scale=0.7),
    Condition("pending, adapted, replay", "pending, adapted", {"priority": 0.25}),
    Condition("learned", "learned"),
    Condition("start", "value", {"start_from_potential": True, "shaping": False}),
)


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    quick_fits(monkeypatch)
    monkeypatch.setattr(batched_dqn, "_FITTING", 3)
    monkeypatch.setattr(deep_runs, "TEST_EVERY", 40)
    monkeypatch.setattr(credit_runs, "DATA", tmp_path / "data")
    monkeypatch.setattr(credit_runs, "MODELS", tmp_path / "models")
    monkeypatch.setattr(deep_runs, "RESULTS", tmp_path)
    monkeypatch.setattr(deep_runs, "CURVES", tmp_path / "curves")
    options = {"steps": 80, "units": 16, "batch_size": 16, "evaluate_every": 40, "learning_rate": 0.01}
    source = Cell("source", Mazes(1, 1, 200, seed=1, size=3, success_share=0.3), {}, options)
    panel = Deep(
        "tiny", source, 1, 1, True, CONDITIONS, 80, mazes=2, seeds=2, size=3, target_trajectories=60, models=1,
        source_mazes=2, source_steps=16,
    )  # fmt: skip
    return DeepResult("tiny", "A tiny figure", [panel, replace(panel, label="another", inverted=False)], note="a note")


@pytest.mark.slow
def test_every_condition_is_learned_told_and_not_run_twice(tiny, monkeypatch):
    written = deep_runs.make(tiny, "the command", analyse_only=False)
    record = json.loads(tiny.path.read_text())
    assert [entry["label"] for entry in record["panels"]] == ["tiny", "another"]
    curves = LearningCurves.load(tiny.curves(tiny.panels[0]))
    assert list(curves.names) == [condition.label for condition in CONDITIONS]
    assert curves["paper"].shape == (2, 2, 3)  # before the first step, and twice after 40 more
    assert curves.collected["learned"].tolist() == [60, 60]
    assert curves.collected["OnlineCredit"].tolist() == [0, 0]
    table = (tiny.path.parent / "tiny.md").read_text()
    for expected in ("a note", "| weight transfer |", "80 steps of training", "`the command`", "tests, one every 40"):
        assert expected in table
    assert [path.rsplit(".", 1)[1] for path in written] == ["md", "png", "svg"]
    monkeypatch.setattr(deep_runs, "dqn_many", None)
    before = tiny.path.read_bytes()
    deep_runs.make(tiny, "another command", analyse_only=False)
    assert tiny.path.read_bytes() == before


def test_tasks_carry_the_potentials_of_their_condition(tiny):
    panel = tiny.panels[0]
    prepared = deep_runs._prepare(panel, "cpu")
    shapings = {c.label: prepared.shapings[2 * i : 2 * i + 2] for i, c in enumerate(CONDITIONS)}
    assert len(prepared.models) == len(prepared.shapings) == 2 * len(CONDITIONS)
    for maze in range(2):
        none = shapings["from scratch"][maze]
        assert not none.potential.any() and not none.credit.any()
        assert shapings["OnlineCredit"][maze].cap == pytest.approx(0.95)
        assert all(prepared.models[2 * i + maze] is prepared.models[maze] for i in range(len(CONDITIONS)))
        assert prepared.optimal[maze] == best_return(prepared.models[maze], 0.99)
    assert any(shaping.potential.any() for shaping in shapings["learned"] + shapings["start"])
    transferred = [weights is not None for weights in prepared.initial]
    assert transferred == [condition.transferred for condition in CONDITIONS for _ in range(2)]
    assert [options.priority for options in prepared.options] == [0.0] * 8 + [0.25] * 2 + [0.0] * 4


@pytest.mark.slow
def test_agents_of_stable_baselines_learn_the_same_panels(tiny, monkeypatch):
    from paper import sb3_runs
    from secret_rl.sb3 import ppo

    monkeypatch.setattr(sb3_runs, "TEST_EVERY", 40)
    monkeypatch.setattr(sb3_runs, "ppo", lambda: ppo(n_envs=4, n_steps=10))
    bonus = {"bonus": 3.0}
    for agent, options in (
        ("PPO", None), ("PPO", {**bonus, "count": 0.1}), ("DQN", {**bonus, "priority": 0.25}),
        ("DQN", {**bonus, "explore": True}),
    ):  # fmt: skip
        condition = Condition("none") if options is None else Condition("bonus", "OnlineCredit, once", options)
        found = sb3_runs._one(replace(tiny.panels[0], agent=agent, conditions=(condition,), mazes=1), 0, 0, 0)
        assert found.shape == (3,) and (np.abs(found) <= 1).all()


@pytest.mark.parametrize("quick", [True, False])
def test_settings_are_whole(quick):
    for module in MODULES:
        result = module.result(quick)
        assert result.name.endswith("-quick") == quick
        for panel in result.panels:
            assert json.loads(json.dumps(deep_runs.settings_of(panel))) == deep_runs.settings_of(panel)
            assert panel.first_layout in (transfer_runs.HELD_OUT_LAYOUTS, deep_bonus.LAYOUTS)
            labels = [condition.label for condition in panel.conditions]
            assert len(set(labels)) == len(labels)


def test_no_agent_was_trained_in_a_held_out_maze():
    for first in (transfer_runs.HELD_OUT_LAYOUTS, deep_bonus.LAYOUTS):
        held_out = range(first, first + 1000)
        assert all(deep_runs.SOURCE_LAYOUTS + maze not in held_out for maze in range(Deep.source_mazes))


def test_committed_tables_are_those_of_the_runs():
    for module in MODULES:
        result = module.result(False)
        record = json.loads((credit_runs.RESULTS / f"{result.name}.json").read_text())
        page = (credit_runs.RESULTS / f"{result.name}.md").read_text()
        for panel in result.panels:
            entry = next((e for e in record["panels"] if e["label"] == panel.label), None)
            if entry is None:
                assert f"## {panel.label}\n\nnot run\n" in page
                continue
            assert entry["table"].rstrip() in page
            if "method" in entry["settings"]["source"]:  # else of an earlier method, until it is made again
                assert entry["settings"] == deep_runs.settings_of(panel)
