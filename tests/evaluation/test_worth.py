"""What credit is worth to an agent: true credit helps, baselines are learned once, and nothing is learned twice."""

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest

import secret_rl as srl
from secret_rl.credit.base import NotFittedError, method_class
from secret_rl.evaluation import benchmark, worth
from secret_rl.tasks import Data, register_task

MAZES = {"size": 4, "triggers": 1, "prizes": 1}
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def mazes(count, seed):
    data = srl.collect("secret_rl/Triggers-v0", count, seed=seed, success_share=0.3, env_options=MAZES, progress=False)
    return Data(replace(data, annotations={}), np.asarray(data.annotations["trigger_activated"], np.bool_))


def maze(number):
    return gym.make("secret_rl/Triggers-v0", layout_seed=900 + number, **MAZES)


@pytest.fixture
def task(cue_task, monkeypatch):
    monkeypatch.setattr(benchmark, "JUDGE", "uniform")
    monkeypatch.setattr(worth, "TARGETS", 100)
    few = {"make": mazes, "quick": 400, "instance": maze, "practice": 120}
    return register_task(replace(cue_task, name="small_mazes", **few))


def test_true_credit_is_worth_more_than_none_and_even_credit_is_not(task):
    data = mazes(3_000, 0)
    marked = replace(data.trajectories, annotations={"cause": data.truth}, trusted=True)
    oracle = method_class("oracle")(annotation="cause").fit(marked)
    uniform = method_class("uniform")().fit(data.trajectories)
    size = {"instances": 6, "seeds": 4}
    baselines = worth.worth(None, task, **size)
    assert baselines.keys() == {"none", "value"} and np.shape(baselines["none"]) == (6, 4)
    true, even = (worth.worth(method, task, **size)["zero-shot"] for method in (oracle, uniform))
    assert np.mean(true) > np.mean(baselines["none"]) + 0.02
    assert np.mean(even) == pytest.approx(np.mean(baselines["none"])), "its credit is below the threshold"
    assert np.max([*baselines.values(), true, even]) <= 1


def test_agents_of_a_method_without_step_credit_learn_unshaped(task, monkeypatch):
    method = method_class("uniform")().fit(mazes(400, 0).trajectories)

    def unknown(*_, **__):
        raise NotFittedError("it has predicted no reward")

    monkeypatch.setattr(method, "step_credit", unknown)
    size = {"instances": 2, "seeds": 2}
    assert worth.worth(method, task, **size)["zero-shot"] == worth.worth(None, task, **size)["none"]


def test_baselines_are_learned_once_and_nothing_twice(task, tmp_path, monkeypatch):
    cells = benchmark.cells_of(("uniform", "oracle"), [task.name], 1, quick=True)
    benchmark.run(tmp_path, cells)
    learned = []
    measure = worth._measure
    monkeypatch.setattr(worth, "_measure", lambda folder, cell: learned.append(cell.method) or measure(folder, cell))
    assert worth.run(tmp_path, cells) == {}
    assert learned == ["none", "uniform", "oracle"]
    worth.run(tmp_path, cells)
    assert len(learned) == 3
    found = worth.compared(tmp_path, cells)
    assert found[task.name, "none"].keys() == {"none", "value"}
    assert found[task.name, "uniform"].keys() == {"zero-shot", "pending"}
    assert found[task.name, "oracle"].keys() == {"zero-shot"}, "target trajectories come without the truth"


def test_a_method_that_was_refused_is_left_out(task, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise ValueError("not for me")

    monkeypatch.setattr(method_class("uniform"), "fit", refuse)
    monkeypatch.setattr(benchmark, "JUDGE", "oracle")
    cells = benchmark.cells_of(("uniform",), [task.name], 1, quick=True)
    benchmark.run(tmp_path, cells)
    assert worth.run(tmp_path, cells) == {} and not worth.compared(tmp_path, cells)


def test_a_task_without_instances_is_refused(cue_task):
    with pytest.raises(ValueError, match="'cue' has no instances to learn in"):
        worth.worth(None, cue_task)
    assert worth.run(None, [benchmark.Cell("cue", "uniform", 0)]) == {}
    assert worth.compared(None, [benchmark.Cell("cue", "uniform", 0)]) == {}
