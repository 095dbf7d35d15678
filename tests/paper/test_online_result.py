"""The machinery of the result on online SECRET, at a tiny size."""

import json

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

from paper.online_runs import Condition, Panel

import secret_rl as srl
from paper import online, online_runs
from secret_rl.evaluation import LearningCurves
from secret_rl.experimental import online as online_secret


@pytest.fixture
def tiny(scratch, monkeypatch):
    monkeypatch.setattr(online_secret, "SMALL_FIT", online_secret.SMALL_FIT | {"steps": 4, "units": 8})
    monkeypatch.setattr(online_runs, "TEST_EVERY", 60)
    env = Panel.env
    small = {"size": 3, "max_steps": 12}
    monkeypatch.setattr(Panel, "env", lambda self, maze: env(self, maze) | small)
    paper_dqn = online_runs.paper_dqn
    monkeypatch.setattr(
        online_runs, "paper_dqn", lambda steps, **more: paper_dqn(steps, **more) | {"learning_starts": 40}
    )
    schedule = {"first": 15, "growth": 2.0, "min_successes": 1, "min_gain": -1.0}
    tabular = Panel("tiny, tabular", "tabular", online.TABULAR, 40, 2, 2, schedule, 5, 100)
    deep = Panel("tiny, DQN", "DQN", online.DQN, 240, 2, 1, schedule, 1, 100)
    return online.OnlineResult("tiny", [tabular, deep])


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_each_condition_is_the_library_calls_and_nothing_is_run_twice(tiny, monkeypatch):
    monkeypatch.setattr(online, "result", lambda quick: tiny)
    written = online.main(False, "the command")
    assert [path.rsplit("/", 1)[-1] for path in written] == [
        "tiny.md", "tiny-tabular.png", "tiny-tabular.svg", "tiny-dqn.png", "tiny-dqn.svg",
    ]  # fmt: skip
    tabular, deep = tiny.panels
    curves = LearningCurves.load(tiny.curves(tabular))
    env = gym.make("secret_rl/Triggers-v0", **tabular.env(1))
    agent = srl.QLearning(seed=1)
    np.testing.assert_array_equal(curves["none"][1, 1], agent.learn(env, 40).curve.returns)
    same = srl.experimental.OnlineSecret("value", seed=100, **tabular.schedule)
    learned = srl.experimental.learn_online(env, 40, agent=agent, online=same)
    np.testing.assert_array_equal(curves["value"][1, 1], learned.curve.returns)
    record = json.loads(tiny.path.read_text())
    assert [entry["label"] for entry in record["panels"]] == ["tiny, tabular", "tiny, DQN"]
    about = record["panels"][0]["online"]
    assert about["value"]["accepted"][3] == sum(refit.accepted for refit in learned.history)
    assert LearningCurves.load(tiny.curves(deep))["none"].shape == (2, 1, 5)
    text = (tiny.path.parent / "tiny.md").read_text()
    for words in ("# Online SECRET", "## tiny, DQN", "episodes to 90% of the best", "refits gave", "of pending, cred"):
        assert words in text
    monkeypatch.setattr(online, "learn", lambda *_: pytest.fail("run twice"))
    assert online.main(False, "again") == written
    assert json.loads(tiny.path.read_text()) == record


def test_episodes_needed_are_those_played_when_the_return_was_first_seen():
    panel = Panel("some", "DQN", (Condition("none"),), 10, 1, 2, window=1)
    curves = LearningCurves({"none": [[[0, 0.95, 0.2, 1], [0, 0, 0.5, 0.5]]]}, optimal=1.0)
    about = {"none": {"episodes_by_point": [[0, 7, 12, 20], [0, 5, 6, 7]]}}
    assert online.episodes_needed(curves, panel, about) == {"none": [7, None]}
    tabular = Panel("some", "tabular", (Condition("none"),), 4, 1, 2, window=2)
    assert online.episodes_needed(curves, tabular, {"none": {"episodes_by_point": None}}) == {"none": [None, None]}
    higher = LearningCurves({"none": [[[0, 0.9, 0.9, 1], [0, 1, 1, 0]]]}, optimal=1.0)
    assert online.episodes_needed(higher, tabular, {"none": {"episodes_by_point": None}}) == {"none": [3, 3]}
