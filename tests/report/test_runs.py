"""Folders of runs: valid at every moment, resumed by the same run, and never mixed up."""

import math

import numpy as np
import pytest
from tests.sealing import change_json

from secret_rl.atomic import InUseError
from secret_rl.report import runs
from secret_rl.report.runs import FORMAT, RunFolder, folder_of


def never():
    pytest.fail("made again")


def started(folder, command="learn", inputs=None, **changes):
    return RunFolder(folder, command, {"seed": 0, "size": (3, 4), **changes}, inputs)


def test_a_finished_run_is_recorded_and_starts_afresh(tmp_path):
    with started(tmp_path) as run:
        assert not FORMAT.read_json(tmp_path / "run.json")["finished"]
        np.testing.assert_array_equal(run.array("a", lambda: np.arange(3.0)), [0, 1, 2])
        content = run.finish(verdict="good", share=math.nan, numbers=(1, 2.5))
    assert content == FORMAT.read_json(tmp_path / "run.json")
    assert content["finished"] and content["verdict"] == "good" and content["numbers"] == [1, 2.5]
    assert content["share"] is None and content["settings"] == {"seed": 0, "size": [3, 4]}
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
    again = started(tmp_path)
    assert not again.resumed
    np.testing.assert_array_equal(again.array("a", lambda: np.ones(2)), [1, 1])


def test_an_interrupted_run_is_resumed(tmp_path):
    run = started(tmp_path)
    run.array("a", lambda: np.arange(3.0))
    with pytest.raises(KeyboardInterrupt):
        run.array("b", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(InUseError):
        started(tmp_path)
    run.__exit__()
    with started(tmp_path) as again:
        assert again.resumed
        np.testing.assert_array_equal(again.array("a", never), [0, 1, 2])
        np.testing.assert_array_equal(again.array("b", lambda: np.zeros(1)), [0])
        assert again.once("c", lambda: 5, never) == 5
    with started(tmp_path) as again:
        assert again.once("c", never, lambda: 6) == 6
    change_json(tmp_path / "run.json", lambda content: content.update(done=[]))  # its file is there, but not recorded
    np.testing.assert_array_equal(started(tmp_path).array("a", lambda: np.ones(1)), [1])


def test_another_run_resumes_nothing(tmp_path, monkeypatch):
    model, folder = tmp_path / "model", tmp_path / "run"
    model.write_bytes(b"one")

    def resumed(*arguments, **changes):
        with started(folder, *arguments, **changes) as run:
            run.array("a", lambda: np.zeros(1))
            return run.resumed

    inputs = {"credit": model, "potential": None}
    assert [resumed("learn", inputs), resumed("learn", inputs)] == [False, True]
    model.write_bytes(b"two")
    assert not resumed("learn", inputs), "the model is another"
    assert [resumed(), resumed(), resumed(seed=1), resumed("demo", seed=1)] == [False, True, False, False]
    assert not resumed() and resumed()
    monkeypatch.setattr(runs, "VERSION", "another")
    assert not resumed()


@pytest.mark.parametrize("text", ["", "[]", '{"format": "another"}', '{"format": "secret-rl run"}'])
def test_a_damaged_record_is_refused_by_name_and_starts_afresh(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(ValueError, match="run.json"):
        FORMAT.read_json(tmp_path / "run.json")
    assert not started(tmp_path).resumed
    assert FORMAT.read_json(tmp_path / "run.json")["command"] == "learn"


def test_the_folder_of_a_model(tmp_path):
    assert folder_of(tmp_path / "w=0.5.safetensors") == tmp_path / "w=0.5.run"
    assert folder_of(tmp_path / "model") == tmp_path / "model.run"
