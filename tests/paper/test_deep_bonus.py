"""The study of credit as a bonus, at a tiny size: cells are kept one by one, and the table has what it should."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from paper.__main__ import main

import secret_rl as srl
from paper import credit_runs, deep_bonus, deep_runs, solving
from secret_rl import Trajectories
from secret_rl.evaluation import LearningCurves

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),  # so short a fit may be warned of
    pytest.mark.usefixtures("one_thread"),
]


@pytest.fixture
def tiny(scratch, source, monkeypatch):
    monkeypatch.setattr(deep_runs, "TEST_EVERY", 64)
    monkeypatch.setattr(deep_runs, "PPO_TEST_EVERY", 64)
    small = {"DQN": {"random_steps": 32}, "PPO": {"side_by_side": 4, "rollout": 16, "units": 16}}
    panels = [
        replace(
            panel, source=source, triggers=1, size=3, steps=128, target_trajectories=60, seeds=2,
            conditions=[replace(c, options={**c.options, **small[panel.label[:3]]}) for c in panel.conditions],
        )
        for panel in deep_bonus.result(quick=True).panels
    ]  # fmt: skip
    result = replace(deep_bonus.result(quick=True), name="tiny", panels=panels)
    monkeypatch.setattr(deep_bonus, "result", lambda quick: result)
    return result


def test_every_cell_is_learned_kept_and_in_the_table(tiny, monkeypatch):
    main(["deep_bonus", "--quick", "--only", "PPO, 8x8 3T1P", "--batch", "3"])
    page = (tiny.path.parent / "tiny.md").read_text()
    assert "## DQN, 8x8 3T1P\n\nnot run\n" in page and "| credit bonus, count bonus | " in page
    learned = []
    learn = deep_bonus.learn_together
    monkeypatch.setattr(deep_bonus, "learn_together", lambda *given: learned.append(given) or learn(*given))
    (path,) = main(["deep_bonus", "--quick"])
    assert len(learned) == len(tiny.panels[0].conditions), "one after another, and those of PPO not again"
    record = json.loads(tiny.path.read_text())
    labels = [f"{panel.label}, {condition.label}" for panel in tiny.panels for condition in panel.conditions]
    assert sorted(entry["label"] for entry in record["panels"]) == sorted(labels)
    runs = record["panels"][0]["runs"]
    assert runs.keys() == {"area", "final", "steps"} and all(np.shape(part) == (2, 2) for part in runs.values())
    curves = LearningCurves.load(tiny.curves(replace(tiny.panels[0], label="DQN, 8x8 3T1P, none")))
    np.testing.assert_allclose(curves["none"].mean(-1), record["panels"][7]["runs"]["area"], atol=1e-4)
    page = (tiny.path.parent / "tiny.md").read_text()
    assert path == str(tiny.path.parent / "tiny.md") and "not run" not in page
    assert all(f"| {condition.label} | " in page for panel in tiny.panels for condition in panel.conditions)
    assert "2 mazes x 2 seeds x 128 steps, tested every 64" in page and "`python -m paper deep_bonus --quick`" in page
    before = tiny.path.read_bytes()
    monkeypatch.setattr(deep_bonus, "learn_together", lambda *_: pytest.fail("run twice"))
    main(["deep_bonus", "--quick"])
    assert tiny.path.read_bytes() == before


def test_adapted_credit_is_fine_tuned_once_and_in_other_mazes(tiny, monkeypatch):
    monkeypatch.setattr(deep_runs, "ADAPTING_EPISODES", 120)
    panel = replace(tiny.panels[0], inverted=True)
    before = credit_runs.fitted(panel.source, 0, "cpu")
    condition = replace(panel.conditions[0], potential="OnlineCredit, adapted, once")
    potential = deep_runs.Potentials(panel, 0, deep_runs.target_data(panel, 0), before).of(condition)
    (data,) = [path for path in credit_runs.DATA.iterdir() if path.name.endswith("-inverted")]
    assert f"-s{deep_runs.ADAPTING_SEED}-" in data.name and len(Trajectories.load(data)) == 120
    monkeypatch.setattr(srl, "adapt", lambda *_, **__: pytest.fail("adapted twice"))
    again = deep_runs.adapted_elsewhere(panel, before)
    weights = [model.model.state_dict()["head.weight"] for model in (before, again, potential.secret)]
    assert not torch.equal(weights[0], weights[1]) and torch.equal(weights[1], weights[2])
    assert not potential.options["repeat"]


def test_steps_to_solve_are_medians_in_which_never_counts():
    rng = np.random.default_rng(0)
    steps = rng.integers(1, 9, (12, 1)) * 1000.0
    steps[:4] = np.inf
    counts = rng.multinomial(12, np.full(12, 1 / 12), 50).astype(float)
    found = solving.medians(counts, steps)[:, 0]
    expected = [np.median(np.repeat(steps[:, 0], times.astype(int))) for times in counts]
    np.testing.assert_array_equal(found, expected)
    assert np.isinf(found).any() and np.isfinite(found).any()
    assert solving.median(np.full((2, 3), np.inf)) == "never"
    assert solving.median(np.full((2, 3), 5000.0)) == "5,000"
    assert solving.median(np.array([[1000.0] * 3, [2000.0] * 3, [np.inf] * 3])).startswith("2,000 [1,000, never")


def test_runs_say_when_a_maze_was_solved():
    returns = np.array([[[0.0, 0.3, 0.79, 0.81], [0.8, 0.0, 0.0, 0.0], [0.0, 0.1, 0.2, 0.4]]])
    runs = solving.runs_of(LearningCurves({"none": returns}, optimal=1.0), "none", 5_000)
    assert runs["steps"] == [[15_000, 0, None]]
    assert runs["final"] == [[0.81, 0.0, 0.4]]
