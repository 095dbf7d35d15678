"""The machinery of the paper's results with deep agents, at a tiny size."""

import json
from dataclasses import replace

import numpy as np
import pytest
from paper.deep_runs import Condition, Deep, DeepResult

from paper import batched_dqn, deep_runs
from secret_rl.envs.tabular import best_return
from secret_rl.evaluation import LearningCurves

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # so short a fit may be warned of
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
def tiny(scratch, source, monkeypatch):
    monkeypatch.setattr(batched_dqn, "_FITTING", 3)
    monkeypatch.setattr(deep_runs, "TEST_EVERY", 40)
    panel = Deep(
        "tiny", source, 1, 1, True, CONDITIONS, 80, mazes=2, seeds=2, size=3, target_trajectories=60, models=1,
        source_mazes=2, source_steps=16,
    )  # fmt: skip
    return DeepResult("tiny", "A tiny figure", [panel, replace(panel, label="another", inverted=False)], note="a note")


def test_every_condition_is_learned_reported_and_not_run_twice(tiny, monkeypatch):
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
        found = sb3_runs.learn(replace(tiny.panels[0], agent=agent, conditions=(condition,), mazes=1), 0, 0, 0)
        assert len(found) == 3 and (np.abs(found) <= 1).all()
