"""Credit in tasks of others, at a tiny size: runs are kept, read-outs are compared, verdicts are counted."""

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("minigrid")
pytest.importorskip("popgym")

from paper.__main__ import main
from paper.beyond_triggers import READOUTS, Result
from paper.tasks.unseen import UNSEEN
from paper.tasks.unseen_small import UNSEEN_SMALL
from paper.tasks.unseen_third import UNSEEN_THIRD

from paper import beyond_triggers, unseen_small, unseen_tasks, unseen_third
from secret_rl.tasks import Data


@pytest.fixture
def tiny(scratch, monkeypatch):
    options = {"steps": 60, "units": 16, "batch_size": 32}
    return Result("tiny", ("memory_len", "taxi_seen"), 2, held_out=50, episodes=100, options=options)


def test_every_run_is_kept_and_in_the_table(tiny, monkeypatch):
    beyond_triggers.run(tiny, "the command", only="memory_len")
    labels = ["memory_len, seed 0", "memory_len, seed 1"]
    assert [entry["label"] for entry in json.loads(tiny.path.read_text())["panels"]] == labels
    assert "| taxi_seen | not run |" in beyond_triggers.table(tiny).read_text()
    beyond_triggers.run(tiny, "the command")
    record = json.loads(tiny.path.read_text())
    assert [entry["label"] for entry in record["panels"]] == [*labels, "taxi_seen, seed 0", "taxi_seen, seed 1"]
    quality = record["panels"][0]["quality"]
    assert quality.keys() == {"precision", "recall", "predicted", *READOUTS}
    assert all(0 <= number <= 1 for number in quality.values())
    assert "quality" not in record["panels"][-1], "no reward of it has a cause"
    monkeypatch.setattr(beyond_triggers, "learn", lambda _: pytest.fail("run twice"))
    beyond_triggers.run(tiny, "the command")
    page = beyond_triggers.table(tiny).read_text()
    for words in ("| memory_len | ", "| taxi_seen | ", " of 2 | ", "AP leave-one-out", "any cause", "`the command`"):
        assert words in page


def test_only_rewards_of_the_judged_kind_are_judged():
    task = UNSEEN_SMALL["trap"]
    data = task.make(100, 7)
    rewards = np.asarray(data.trajectories.rewards)
    assert task.judged == "negative" and (rewards > 0).any()
    np.testing.assert_array_equal(task.judged_rewards(data), rewards < 0)
    first = Data(data.trajectories, np.where(data.trajectories.terminated, 0, -1))
    assert not task.judged_rewards(Data(data.trajectories, np.zeros_like(data.truth))).any()
    for judged, wanted in (("negative", rewards < 0), ("positive", rewards > 0), ("all", rewards != 0)):
        np.testing.assert_array_equal(replace(task, judged=judged).judged_rewards(first), wanted)


@pytest.mark.parametrize(
    ("study", "tasks", "words"),
    [
        (unseen_tasks, UNSEEN, "before any model was fitted"),
        (unseen_small, UNSEEN_SMALL, "did not know the method"),
        (unseen_third, UNSEEN_THIRD, "No default was chosen on them"),
    ],
)
def test_unseen_tasks_are_run_apart(study, tasks, words, tmp_path, monkeypatch):
    full, quick = study.result(False), study.result(True)
    assert full.tasks == tuple(tasks) and full.seeds == 5 and not full.options, "the library's defaults"
    assert not tasks[quick.tasks[0]].past_matters, "a quick look learns nothing of what is judged"
    monkeypatch.setattr(beyond_triggers, "RESULTS", tmp_path)
    (path,) = study.main(False, "the command", analyse_only=True)
    page = (tmp_path / f"{full.name}.md").read_text()
    assert path == str(tmp_path / f"{full.name}.md") and words in page
    assert "Fits ever made on them: 0 in this table" in page and page.count("not run") == len(tasks)
    with pytest.raises(ValueError, match="no such task: taxi_seen"):
        study.run(full, "", only="taxi_seen")


def test_options_of_one_result_alone(capsys):
    for wrong, said in (
        (["credit_quality", "--only", "unlock"], "an option of beyond_triggers"),
        (["--batch", "2"], "an option of deep_bonus"),
        (["maze", "--jobs", "0"], "jobs must be at least 1, got 0"),
    ):
        with pytest.raises(SystemExit):
            main(wrong)
        assert said in capsys.readouterr().err
    with pytest.raises(ValueError, match="no such task: nonsense"):
        beyond_triggers.run(beyond_triggers.result(True), "", only="nonsense")


def test_failed_runs_are_listed_with_the_command_that_repeats_them(scratch, monkeypatch):
    monkeypatch.setattr(beyond_triggers, "learn", lambda _: 1 / 0)
    with pytest.raises(SystemExit) as caught:
        main(["unseen_tasks", "--quick"])
    text = str(caught.value)
    assert "blackjack, seed 0: ZeroDivisionError" in text and '"episodes": 300' in text
    assert text.endswith("python -m paper unseen_tasks --quick")
