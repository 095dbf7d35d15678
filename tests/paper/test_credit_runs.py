"""The machinery of the paper's credit results, at a tiny size: runs, resumption, tables, figures."""

import json
from dataclasses import replace

import numpy as np
import pytest
from paper.credit_runs import Cell, Mazes, Result
from paper.variants import VARIANTS
from tests.quick import quick_fits

from paper import ablations, class_weights, concentration, credit_quality, credit_runs, source_data, window_size

MODULES = (credit_quality, source_data, class_weights, concentration, window_size, ablations)


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    monkeypatch.setattr(credit_runs, "RESULTS", tmp_path / "results")
    quick_fits(monkeypatch)
    monkeypatch.setattr(credit_runs, "DATA", tmp_path / "data")
    monkeypatch.setattr(credit_runs, "MODELS", tmp_path / "models")
    (tmp_path / "results").mkdir()
    options = {"steps": 20, "units": 16, "batch_size": 16, "evaluate_every": 10}
    source = Mazes(1, 1, 120, seed=1, size=3, success_share=0.3)
    target = Mazes(1, 1, 60, seed=2, size=3, success_share=0.3)
    return Result(
        name="tiny",
        title="A tiny table",
        cells=[
            Cell("all", source, {"same": target}, options),
            Cell("half", source, {"same": target}, options, episodes=60),
        ],
        seeds=2,
        printed={"half": {"recall": "0.9 ± 0.30"}},
    )


@pytest.mark.filterwarnings("ignore::UserWarning")  # twenty updates are not expected to learn anything
def test_runs_are_kept_and_taken_up(tiny, monkeypatch):
    credit_runs.run(tiny, "the command", device="cpu")
    record = json.loads(tiny.path.read_text())
    assert [(r["label"], r["seed"]) for r in record["runs"]] == [("all", 0), ("half", 0), ("all", 1), ("half", 1)]
    assert record["command"] == "the command"
    assert record["runs"][0]["settings"]["source"]["episodes"] == 120
    monkeypatch.setattr(credit_runs, "_fit_and_judge", None)
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


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_other_settings_are_other_runs(tiny):
    short = Result(tiny.name, tiny.title, tiny.cells[:1], seeds=1)
    credit_runs.run(short, "once", device="cpu")
    other = Cell("all", tiny.cells[0].source, tiny.cells[0].targets, {**tiny.cells[0].options, "steps": 10})
    changed = Result(tiny.name, tiny.title, [other], seeds=1)
    assert "not run" in credit_runs.table(changed).read_text()
    credit_runs.run(changed, "twice", device="cpu")
    assert len(json.loads(tiny.path.read_text())["runs"]) == 2


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_fitted_model_is_kept_for_other_results_and_a_variant_is_not(tiny, tmp_path, monkeypatch):
    cell = tiny.cells[0]
    first = credit_runs.fitted(cell, 0, "cpu")
    monkeypatch.setattr(credit_runs.srl.Secret, "fit", lambda *_, **__: pytest.fail("fitted again"))
    again = credit_runs.fitted(cell, 0, "cpu")
    assert all((a == b).all() for a, b in zip(first.model.parameters(), again.model.parameters(), strict=True))
    monkeypatch.undo()
    quick_fits(monkeypatch)
    monkeypatch.setattr(credit_runs, "DATA", tmp_path / "data")
    monkeypatch.setattr(credit_runs, "MODELS", None)  # not so much as looked at
    for name, kind in VARIANTS.items():
        assert type(credit_runs.fitted(replace(cell, variant=name), 0, "cpu").model) is kind


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_weights_by_sign_are_given_to_the_fit_and_in_the_table(tiny, monkeypatch):
    cell, given = replace(tiny.cells[0], class_weights=(1.0, 0.1, 2.0)), []
    assert credit_runs._settings(cell)["class_weights"] == [1.0, 0.1, 2.0]
    assert "class_weights" not in credit_runs._settings(tiny.cells[0])
    fit = credit_runs.srl.Secret.fit
    monkeypatch.setattr(
        credit_runs.srl.Secret, "fit", lambda *args, **how: given.append(how["weights"]) or fit(*args, **how)
    )
    credit_runs.fitted(cell, 0, "cpu")
    rewards = cell.source.load().rewards
    np.testing.assert_array_equal(given[0], np.select([rewards < 0, rewards > 0], [1.0, 2.0], 0.1))
    assert len(list(credit_runs.MODELS.iterdir())) == 1
    credit_runs.fitted(tiny.cells[0], 0, "cpu")
    assert len(list(credit_runs.MODELS.iterdir())) == 2, "another model"


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_runs_of_an_earlier_method_are_made_again(tiny):
    short = Result(tiny.name, tiny.title, tiny.cells[:1], seeds=1)
    credit_runs.run(short, "once", device="cpu")
    record = json.loads(tiny.path.read_text())
    del record["runs"][0]["settings"]["method"]
    tiny.path.write_text(json.dumps(record))
    assert "not run" in credit_runs.table(short).read_text()
    credit_runs.run(short, "twice", device="cpu")
    [run] = json.loads(tiny.path.read_text())["runs"]
    assert run["settings"]["method"] == credit_runs.METHOD


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_result_is_well_formed(module):
    for quick in (False, True):
        result = module.result(quick)
        labels = [cell.label for cell in result.cells]
        assert len(set(labels)) == len(labels)
        assert result.printed.keys() <= {*labels, *credit_quality.SCENARIOS, *(source_data.PRINTED)}
        for cell in result.cells:
            for target in cell.targets.values():
                assert target.seed != cell.source.seed, "held-out mazes are other mazes"
            assert cell.episodes is None or cell.episodes <= cell.source.episodes
    assert module.result(True).name != module.result(False).name


def test_committed_results_are_of_the_settings_in_the_code():
    """A table in the repository is what its module, as it stands, would make."""
    for module in MODULES:
        result = module.result(False)
        if not result.path.is_file():
            continue
        record = json.loads(result.path.read_text())
        if not any("method" in run["settings"] for run in record["runs"]):
            continue  # of an earlier method, until it is made again
        for cell in result.cells:
            assert credit_runs._runs_of(record, cell), f"{result.name}: no run of {cell.label} with these settings"
