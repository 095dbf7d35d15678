"""Credit in 3D and its heat map, at a tiny size: every part runs, nothing is done twice, numbers in the table."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("vizdoom")

from paper.keys_doors_credit import DEVELOPMENT, OPTIONS, SOURCE, Maps, Result, Task

import secret_rl as srl
from paper import keys_doors_credit, keys_doors_heat
from secret_rl.envs.keys_doors import COLOURS

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # so short a fit may be warned of
WORLD = {"preset": "2x2-easy", "core": 2, "size": (16, 12), "max_steps": 90}


@pytest.fixture
def tiny(scratch):
    options = {**OPTIONS, "steps": 20, "batch_size": 8, "units": 8}
    options |= {"validation": 0.2, "filters": (4, 4), "learning_rate": 0.02}
    source, further = (Maps("wanderer", count, SOURCE, WORLD) for count in (16, 12))
    held_out = Maps("wanderer", 8, DEVELOPMENT, WORLD)
    adapting = {"steps": 6, "batch_size": 8}
    tasks = [Task("2x2", source, held_out, options), Task("further", further, held_out, adapting, adapts="2x2")]
    return Result("tiny", [replace(task, seeds=2) for task in tasks])


def test_every_seed_is_run_told_and_not_run_twice(tiny, monkeypatch):
    keys_doors_credit.run(tiny, "the command", device="cpu")
    record = json.loads(tiny.path.read_text())
    assert [entry["label"] for entry in record["panels"]] == [
        "2x2, seed 0", "further, seed 0", "2x2, seed 1", "further, seed 1",
    ]  # fmt: skip
    doors = (keys_doors_credit.door_causes(tiny.task("2x2").held_out.load()) >= 0).sum()
    for entry in record["panels"]:
        assert 0 <= entry["quality"]["share"] <= 1 and entry["quality"]["tolerance"] == 5
        assert entry["quality"]["rows"] == round(entry["quality"]["predicted"] * doors)
    monkeypatch.setattr(keys_doors_credit, "judge", lambda *_: pytest.fail("run twice"))
    keys_doors_credit.run(tiny, "the command", device="cpu")
    page = keys_doors_credit.table(tiny).read_text()
    assert f" | {record['panels'][0]['quality']['predicted']:.3f} | " in page
    assert "`the command`" in page and "not run" not in page
    assert [path.suffix for path in keys_doors_credit.figure(tiny)] == [".png", ".svg"]


def test_the_heat_map_is_of_one_door_on_a_map_of_its_own(tiny):
    result = keys_doors_heat.HeatResult("heat", tiny, "2x2", 8)
    with pytest.raises(FileNotFoundError, match="run it first"):
        keys_doors_heat.figure(result)
    secret = keys_doors_credit.model_of(tiny, tiny.task("2x2"), 0, "cpu")
    with torch.no_grad():  # so few updates teach it nothing: let it call every step a door that opens
        secret.model.head.weight.zero_()
        secret.model.head.bias.copy_(torch.tensor(secret.reward_classes.values) == 1.0)
    secret.save(tiny.model("2x2", 0))
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
    changes = {"options": {**task.options, "steps": 21}}, {"source": Maps("wanderer", 17, SOURCE)}
    others = [replace(tiny, tasks=[replace(task, **change), tiny.task("further")]) for change in changes]
    for label in ("2x2", "further"):
        assert len({this.model(label, 0) for this in (tiny, *others)}) == 3
        assert tiny.model(label, 0) == replace(tiny).model(label, 0)


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


def test_attention_by_place_is_the_mean_over_visits_of_the_chosen_rows():
    rows = ([0.5, 0.3, 0.2], [0.1, 0.6, 0.3, 0.0])
    step = np.array([2, 3])
    credit = srl.Attributions(
        np.array([0, 1]), step, step, np.ones(2), np.zeros(2, np.float32), np.concatenate(rows, dtype=np.float32),
        np.array([0, 3, 7]), 2, np.array([3, 4]),
    )  # fmt: skip
    places = np.array([[0, 0], [0, 1], [1, 1], [0, 0], [0, 0], [1, 1], [0, 1]])
    heat = keys_doors_heat.attention_by_place(credit, places, (2, 3), np.array([True, True]))
    assert heat[0, 0] == pytest.approx((0.5 + 0.1 + 0.6) / 3) and heat[1, 1] == pytest.approx((0.2 + 0.3) / 2)
    assert np.isnan(heat[1, 0]) and np.isnan(heat[:, 2]).all()
    one = keys_doors_heat.attention_by_place(credit, places, (2, 3), np.array([True, False]))
    assert (one[0, 0], one[0, 1], one[1, 1]) == pytest.approx((0.5, 0.3, 0.2))
