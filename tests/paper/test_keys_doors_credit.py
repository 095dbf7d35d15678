"""Credit in 3D and its heat map, at a tiny size: every part runs, nothing is done twice, the numbers are told."""

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("vizdoom")

from paper.keys_doors_credit import DEVELOPMENT, HELD_OUT, OPTIONS, SOURCE, Maps, Result, Task

from paper import keys_doors_credit, keys_doors_heat
from secret_rl.credit import memoryless
from secret_rl.envs.keys_doors import COLOURS

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # so short a fit may be warned of
WORLD = {"preset": "2x2-easy", "core": 2, "size": (16, 12), "max_steps": 90}


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    for module in (keys_doors_credit, keys_doors_heat):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
    monkeypatch.setattr(keys_doors_credit, "DATA", tmp_path / "data")
    monkeypatch.setattr(keys_doors_credit, "MODELS", tmp_path / "models")
    monkeypatch.setattr(memoryless, "_ROUND", 2)  # spend no time on the memoryless twin
    options = {**OPTIONS, "class_weights": (0.0, 0.0, 1.0), "steps": 20, "batch_size": 8, "units": 8, "restarts": 0}
    options |= {"validation": 0.2, "filters": (4, 4), "learning_rate": 0.02}
    sources = [Maps("wanderer", 10, SOURCE, WORLD), Maps("random", 6, SOURCE, WORLD)]
    return Result("tiny", [Task("2x2", sources, Maps("wanderer", 8, DEVELOPMENT, WORLD), options)], seeds=2)


def test_every_seed_is_run_told_and_not_run_twice(tiny, monkeypatch):
    keys_doors_credit.run(tiny, "the command", device="cpu")
    record = json.loads(tiny.path.read_text())
    assert [entry["settings"]["seed"] for entry in record["panels"]] == [0, 1]
    for entry in record["panels"]:
        assert 0 <= entry["quality"]["share"] <= 1 and entry["quality"]["tolerance"] == 5
        assert entry["quality"]["rows"] == round(entry["quality"]["predicted"] * doors(tiny))
    monkeypatch.setattr(keys_doors_credit, "_fit_and_judge", lambda *_: pytest.fail("run twice"))
    keys_doors_credit.run(tiny, "the command", device="cpu")
    page = keys_doors_credit.table(tiny).read_text()
    assert f" | {record['panels'][0]['quality']['predicted']:.3f} | " in page
    assert "`the command`" in page and "not run" not in page
    assert [path.suffix for path in keys_doors_credit.figure(tiny)] == [".png", ".svg"]


def doors(tiny):
    data = tiny.task("2x2").held_out.load()
    return int((keys_doors_credit.door_causes(data) >= 0).sum())


def test_the_heat_map_is_of_one_door_on_a_map_of_its_own(tiny):
    result = keys_doors_heat.HeatResult("heat", tiny, "2x2", 8)
    with pytest.raises(FileNotFoundError, match="run it first"):
        keys_doors_heat.figure(result)
    keys_doors_heat.run(result, "the command", device="cpu")
    record = json.loads(result.path.read_text())
    assert record["door"] in COLOURS and 0 < record["rows"] <= record["opened"]
    heat = np.array(record["heat"], float)
    assert heat.shape == (18, 14), "half cells of a map of 9 x 7"
    assert np.isfinite(heat).any() and np.nanmax(heat) <= 1
    page, *pictures = keys_doors_heat.figure(result)
    assert f"the {record['door']} door" in page.read_text() and all(path.is_file() for path in pictures)


def test_a_model_of_other_options_or_another_source_is_not_taken_for_this_one(tiny):
    task = tiny.task("2x2")
    changes = {"options": {**task.options, "steps": 21}}, {"sources": [Maps("wanderer", 17, SOURCE)]}
    others = [replace(tiny, tasks=[replace(task, **change)]) for change in changes]
    assert len({this.model("2x2", 0) for this in (tiny, *others)}) == 3
    assert tiny.model("2x2", 0) == replace(tiny).model("2x2", 0)


def test_no_map_is_learned_from_and_judged_on():
    full = keys_doors_credit.result(quick=False)
    assert {maps.seed for task in full.tasks for maps in task.sources} == {SOURCE}
    assert {task.held_out.seed for task in full.tasks} == {HELD_OUT}
    quick = keys_doors_credit.result(quick=True)
    assert {task.held_out.seed for task in quick.tasks} == {DEVELOPMENT}, "a quick look does not touch what is held out"


def test_an_agent_that_has_learned_plays_for_the_source_too(tiny, monkeypatch):
    pytest.importorskip("stable_baselines3")
    from paper import keys_doors_runs

    world = {"size": (40, 30), "max_steps": 60}
    quick = {"n_envs": 1, "n_steps": 32, "batch_size": 32, "n_epochs": 1}
    player = replace(keys_doors_runs.PLAYER, steps=32, world={**keys_doors_runs.PLAYER.world, **world}, ppo=quick)
    monkeypatch.setattr(keys_doors_runs, "PLAYER", player)
    data = Maps("ppo", 2, SOURCE, {**WORLD, **world}).load()
    assert len(data) == 2 and data.steps <= 120
    assert (keys_doors_credit.MODELS / "keys_doors-player.safetensors").is_file()
    monkeypatch.setattr(keys_doors_runs, "train_player", lambda *_: pytest.fail("trained twice"))
    assert len(Maps("ppo", 3, SOURCE, {**WORLD, **world}).load()) == 3
