"""Folders of runs: sound at every moment, taken up where the same run is begun again, and never mixed up."""

import math

import numpy as np
import pytest
from tests.sealing import change_json

from secret_rl.atomic import InUseError
from secret_rl.report import record
from secret_rl.report.record import FORMAT, RunFolder, folder_of, plain


def never():
    pytest.fail("made again")


def begun(folder, **changes):
    settings = {"seed": 0, "size": (3, 4), **changes}
    return RunFolder(folder, "learn", settings)


def test_a_finished_run_is_told_and_begun_anew(tmp_path):
    run = begun(tmp_path)
    assert not FORMAT.read_json(tmp_path / "run.json")["finished"]
    np.testing.assert_array_equal(run.array("a", lambda: np.arange(3.0)), [0, 1, 2])
    content = run.finish(verdict="good", share=math.nan, numbers=(1, 2.5))
    assert content == FORMAT.read_json(tmp_path / "run.json")
    assert content["finished"] and content["verdict"] == "good" and content["numbers"] == [1, 2.5]
    assert content["share"] is None and content["settings"] == {"seed": 0, "size": [3, 4]}
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
    again = begun(tmp_path)
    assert not again.taken_up
    np.testing.assert_array_equal(again.array("a", lambda: np.ones(2)), [1, 1])


def test_an_interrupted_run_is_taken_up(tmp_path):
    run = begun(tmp_path)
    run.array("a", lambda: np.arange(3.0))
    with pytest.raises(KeyboardInterrupt):
        run.array("b", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(InUseError):
        begun(tmp_path)
    run.close()
    again = begun(tmp_path)
    assert again.taken_up
    np.testing.assert_array_equal(again.array("a", never), [0, 1, 2])
    np.testing.assert_array_equal(again.array("b", lambda: np.zeros(1)), [0])
    assert again.once("c", lambda: 5, never) == 5
    again.close()
    assert begun(tmp_path).once("c", never, lambda: 6) == 6


def taken_up(run):
    with run:
        return run.taken_up


def test_another_run_takes_nothing_up(tmp_path, monkeypatch):
    model = tmp_path / "model"
    model.write_bytes(b"one")
    folder = tmp_path / "run"

    def of_model():
        return RunFolder(folder, "learn", {}, {"credit": model, "potential": None})

    with of_model() as run:
        run.array("a", lambda: np.zeros(1))
    assert taken_up(of_model())
    model.write_bytes(b"two")
    assert not taken_up(of_model()), "the model is another"
    assert not (folder / "parts").exists()
    begun(folder).close()
    assert taken_up(begun(folder)) and not taken_up(begun(folder, seed=1))
    assert not taken_up(RunFolder(folder, "demo", {"seed": 1, "size": (3, 4)}))
    begun(folder).close()
    monkeypatch.setattr(record, "VERSION", "another")
    assert not taken_up(begun(folder))


def test_a_part_whose_file_is_there_but_not_in_the_record_is_made_again(tmp_path):
    with begun(tmp_path) as run:
        run.array("a", lambda: np.zeros(1))
    change_json(tmp_path / "run.json", lambda content: content.update(done=[]))
    np.testing.assert_array_equal(begun(tmp_path).array("a", lambda: np.ones(1)), [1])


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"format": "another"}', '{"format": "secret-rl run"}'])
def test_a_damaged_record_is_refused_by_name_and_begun_anew(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(ValueError, match="run.json"):
        FORMAT.read_json(tmp_path / "run.json")
    assert not begun(tmp_path).taken_up
    assert FORMAT.read_json(tmp_path / "run.json")["command"] == "learn"


def test_values_as_json_holds_them(tmp_path):
    values = {"path": tmp_path, 1: (math.inf, -0.5), "flag": True, "none": None}
    assert plain(values) == {"path": str(tmp_path), "1": [None, -0.5], "flag": True, "none": None}
    assert folder_of(tmp_path / "w=0.5.safetensors") == tmp_path / "w=0.5.run"
    assert folder_of(tmp_path / "model") == tmp_path / "model.run"
