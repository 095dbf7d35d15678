"""The machinery of the paper's credit results, at a tiny size: runs, resumption, tables, figures."""

import json
from dataclasses import replace

import numpy as np
import pytest
from paper.credit_runs import Cell, Mazes, Result
from paper.variants import VARIANTS

from paper import credit_runs

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # twenty updates are not expected to learn anything


@pytest.fixture
def tiny(scratch):
    options = {"steps": 20, "units": 16, "batch_size": 16, "evaluate_every": 10}
    source = Mazes(1, 1, 120, seed=1, size=3, success_share=0.3)
    target = Mazes(1, 1, 60, seed=2, size=3, success_share=0.3)
    cell = Cell("all", source, {"same": target}, options)
    cells, printed = [cell, replace(cell, label="half", episodes=60)], {"half": {"recall": "0.9 ± 0.30"}}
    return Result(name="tiny", title="A tiny table", cells=cells, seeds=2, printed=printed)


def test_runs_are_kept_and_taken_up(tiny, monkeypatch):
    credit_runs.run(tiny, "the command", device="cpu")
    record = json.loads(tiny.path.read_text())
    assert [(r["label"], r["seed"]) for r in record["runs"]] == [("all", 0), ("half", 0), ("all", 1), ("half", 1)]
    assert record["command"] == "the command"
    assert record["runs"][0]["settings"]["source"]["episodes"] == 120
    monkeypatch.setattr(credit_runs, "judge", None)
    credit_runs.run(tiny, "the command", device="cpu")
    assert json.loads(tiny.path.read_text()) == record, "nothing is run twice"

    lines = credit_runs.table(tiny).read_text().splitlines()
    assert lines[0] == "# A tiny table"
    rows = [line for line in lines if line.startswith(("| all", "| half"))]
    assert len(rows) == 2
    assert "(0.9 ± 0.30)" in rows[1]
    assert "2 (" in rows[0], "seeds, and of how many the verdict is credit"
    assert credit_runs.figure(tiny).read_bytes().startswith(b"\x89PNG")
    assert credit_runs.concentration_figure(tiny).is_file()


def test_other_settings_are_other_runs_and_those_of_an_earlier_method_are_made_again(tiny):
    cell = tiny.cells[0]
    changed = replace(tiny, cells=[replace(cell, options={**cell.options, "steps": 10})], seeds=1)
    credit_runs.run(replace(changed, cells=[cell]), "once", device="cpu")
    assert "not run" in credit_runs.table(changed).read_text()
    credit_runs.run(changed, "twice", device="cpu")
    record = json.loads(tiny.path.read_text())
    assert len(record["runs"]) == 2
    for run in record["runs"]:
        del run["settings"]["method"]
    tiny.path.write_text(json.dumps(record))
    assert "not run" in credit_runs.table(changed).read_text()
    credit_runs.run(changed, "again", device="cpu")
    [run] = json.loads(tiny.path.read_text())["runs"]
    assert run["settings"]["method"] == credit_runs.METHOD


def test_a_fitted_model_is_kept_for_other_results_and_a_variant_is_not(tiny, monkeypatch):
    cell = tiny.cells[0]
    first = credit_runs.fitted(cell, 0, "cpu")
    with monkeypatch.context() as patch:
        patch.setattr(credit_runs.srl.Secret, "fit", lambda *_, **__: pytest.fail("fitted again"))
        again = credit_runs.fitted(cell, 0, "cpu")
    assert all((a == b).all() for a, b in zip(first.model.parameters(), again.model.parameters(), strict=True))
    monkeypatch.setattr(credit_runs, "MODELS", None)  # not so much as looked at
    for name, kind in VARIANTS.items():
        assert type(credit_runs.fitted(replace(cell, variant=name), 0, "cpu").model) is kind


def test_weights_by_sign_are_given_to_the_fit(tiny, monkeypatch):
    cell, fit, given = replace(tiny.cells[0], class_weights=(1.0, 0.1, 2.0)), credit_runs.srl.Secret.fit, []
    assert credit_runs._settings(cell)["class_weights"] == [1.0, 0.1, 2.0]
    monkeypatch.setattr(
        credit_runs.srl.Secret, "fit", lambda *args, **how: given.append(how["weights"]) or fit(*args, **how)
    )
    credit_runs.fitted(cell, 0, "cpu")
    rewards = cell.source.load().rewards
    np.testing.assert_array_equal(given[0], np.select([rewards < 0, rewards > 0], [1.0, 2.0], 0.1))
