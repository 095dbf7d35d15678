"""The check of ratios can fail: rows that are worse than committed are named, with both values."""

import json
import sys
from types import ModuleType

import benchmarks
import pytest
from benchmarks import check, results_file
from benchmarks.__main__ import main
from benchmarks.results_file import Row, write


@pytest.fixture
def pretended(tmp_path, monkeypatch):
    """A benchmark that is quickly done: what it measures, what is committed, and how often it was run."""
    measured = [Row("ours over theirs", 3.0, "x", ">= 2x"), Row("size over theirs", 0.1, "x", "< 0.2x")]
    measured += [Row("shaping adds", 10.0, "%"), Row("ours", 5.0, "ms", bound=4.0, bound_by="copying")]
    module, runs = ModuleType("benchmarks.training"), []

    def run():
        runs.append(1)
        write("training", "A title", measured)

    module.run = run
    monkeypatch.setattr(results_file, "RESULTS", tmp_path)
    monkeypatch.setattr(check, "RESULTS", tmp_path)
    monkeypatch.setattr(benchmarks, "training", module, raising=False)
    monkeypatch.setitem(sys.modules, "benchmarks.training", module)
    monkeypatch.setattr("benchmarks.__main__.use_one_core", lambda: None)
    run()
    return measured, tmp_path / "training.json", runs


def commit(path, **values):
    """Change committed values."""
    record = json.loads(path.read_text())
    for row in record["rows"]:
        row["value"] = values.get(row["what"].replace(" ", "_"), row["value"])
    path.write_text(json.dumps(record))


def test_what_is_as_good_passes_and_nothing_is_written(pretended, capsys):
    _, path, runs = pretended
    commit(path, ours_over_theirs=3.7, size_over_theirs=0.085, shaping_adds=-10.0, ours=0.1)
    before = path.read_bytes(), (path.parent / "README.md").read_bytes()
    main(["check", "training"])
    assert (path.read_bytes(), (path.parent / "README.md").read_bytes()) == before
    assert len(runs) == 2, "measured once more, after the fixture"
    assert "no ratio is more than 20 % worse" in capsys.readouterr().out
    commit(path, ours_over_theirs=0.5, size_over_theirs=9.0, shaping_adds=300.0)
    main(["check", "training"])  # better than committed


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"ours_over_theirs": 3.8}, "training: ours over theirs: 3.800x committed, 3.000x measured: 21% worse"),
        ({"size_over_theirs": 0.079}, "training: size over theirs: 0.079x committed, 0.100x measured: 21% worse"),
        ({"shaping_adds": -13.0}, "training: shaping adds: -13.0 % committed, 10.0 % measured: 21% worse"),
    ],
)
def test_a_ratio_that_is_a_fifth_worse_each_time_fails_by_name(pretended, values, named):
    _, path, runs = pretended
    commit(path, **values)
    with pytest.raises(SystemExit, match="worse than committed") as failed:
        main(["check", "training"])
    assert named in str(failed.value) and str(failed.value).count("training:") == 1
    assert len(runs) == 1 + check.TRIES


def test_one_bad_measurement_is_forgiven_and_a_row_that_is_gone_is_not(pretended):
    measured, _, runs = pretended
    good, bad = measured[0], Row("ours over theirs", 1.0, "x")
    measured[0] = bad
    measured[1:] = [row for row in measured[1:] if row.what != "size over theirs"]
    pending = iter([good])
    real = sys.modules["benchmarks.training"].run

    def run():
        real()
        measured[0] = next(pending, good)

    sys.modules["benchmarks.training"].run = run
    with pytest.raises(SystemExit) as failed:
        main(["check", "training"])
    assert "size over theirs: 0.100x committed, but no longer measured" in str(failed.value)
    assert "ours over theirs" not in str(failed.value) and len(runs) == 1 + check.TRIES


def test_bounds_stand_beside_rows(pretended):
    _, path, _ = pretended
    page = (path.parent / "README.md").read_text()
    assert "| what | measured | asked | bound |" in page
    assert "| ours | 5.000 ms |  | 4.000 ms: copying (80% of it) |" in page
    with pytest.raises(SystemExit, match="no benchmark with ratios on one core: soak"):
        main(["check", "soak"])
    path.unlink()
    with pytest.raises(SystemExit, match=r"training\.json is missing: python -m benchmarks training writes it"):
        main(["check", "training"])


def test_what_is_checked_by_default_has_committed_ratios():
    for name in check.QUICK:
        assert check._committed(name)
