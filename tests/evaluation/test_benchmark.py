"""Cells of a benchmark: what is judged is right, nothing is computed twice, and what cannot be read is a row."""

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.evaluation.conftest import boxed

from secret_rl.credit import Secret
from secret_rl.credit.attributions import Attributions
from secret_rl.credit.base import register_method
from secret_rl.credit.references import Oracle, Uniform
from secret_rl.evaluation import benchmark
from secret_rl.evaluation.benchmark import Cell, cells_of, outcome_of, run
from secret_rl.evaluation.leaderboard import leaderboard
from secret_rl.tasks import register_task
from secret_rl.tasks import task as registry

pytestmark = [pytest.mark.filterwarnings("ignore::UserWarning"), pytest.mark.usefixtures("one_thread")]
CHEAP = ("oracle", "recency", "uniform")


@pytest.fixture(autouse=True)
def no_judge(monkeypatch):
    """The deletion test has a judge of no cost, and so no result."""
    monkeypatch.setattr(benchmark, "JUDGE", "uniform")


def cells(*methods, task="cue", seeds=1):
    return cells_of(methods or CHEAP, [task], seeds, quick=True)


def test_cells_say_how_well_credit_finds_the_cause(cue_task, tmp_path):
    assert run(tmp_path, cells()) == {}
    oracle, recency, uniform = (outcome_of(tmp_path, cell) for cell in cells())
    assert oracle["average_precision"] == oracle["precision"] == oracle["recall"] == oracle["attributed"] == 1
    assert uniform["average_precision"] < 0.3 and recency["average_precision"] < 0.5
    assert oracle["verdict"] == "credit" and uniform["verdict"] == "not learned"
    assert all(found["fit"]["seconds"] >= 0 and found["reading"]["seconds"] >= 0 for found in (oracle, uniform))


def test_only_the_oracle_reads_the_truth(cue_task, tmp_path):
    for cell in cells():
        data = benchmark.data_of(tmp_path, cell, benchmark.SOURCE)
        assert bool(data.trajectories.annotations) == (cell.method == "oracle")


def test_source_and_held_out_episodes_are_others(cue_task, tmp_path):
    (cell,) = cells("uniform")
    source, held_out = (benchmark.data_of(tmp_path, cell, seed) for seed in (benchmark.SOURCE, benchmark.HELD_OUT))
    assert len(source.trajectories) == 60 and len(held_out.trajectories) == 100
    assert not source.trajectories.equals(held_out.trajectories[:60])


def test_what_is_there_is_not_computed_again_and_a_new_method_adds_its_cells(cue_task, tmp_path, monkeypatch):
    run(tmp_path, cells("uniform", "oracle"))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json")}
    fits = []
    fit = Uniform.fit
    monkeypatch.setattr(
        Uniform, "fit", lambda self, *given, **more: fits.append(self.name) or fit(self, *given, **more)
    )
    monkeypatch.setattr(Oracle, "fit", lambda *_, **__: pytest.fail("fitted again"))
    run(tmp_path, cells("uniform", "oracle"))
    run(tmp_path, cells())
    assert fits == ["recency"]
    assert all(path.read_bytes() == content for path, content in before.items())


def test_other_settings_are_other_cells(cue_task, tmp_path, monkeypatch):
    run(tmp_path, cells("uniform"))
    monkeypatch.setitem(registry._registered, "cue", replace(cue_task, quick=30))
    (cell,) = cells("uniform")
    assert outcome_of(tmp_path, cell) is None and benchmark._effort_of(tmp_path, cell) is None
    run(tmp_path, [cell])
    assert outcome_of(tmp_path, cell) is not None


def test_read_outs_share_one_fit(cue_task, tmp_path, monkeypatch):
    fits = []
    fit = Secret.fit
    monkeypatch.setattr(Secret, "fit", lambda self, *given, **more: fits.append(self.name) or fit(self, *given, **more))
    names = ("secret", "secret-gradient", "secret-leave-one-out")
    assert run(tmp_path, cells(*names)) == {}
    assert fits == ["secret"]
    assert all("average_precision" in outcome_of(tmp_path, cell) for cell in cells(*names))


def test_a_method_that_cannot_read_a_task_is_a_row(cue_task, tmp_path):
    register_task(replace(cue_task, name="boxed", make=boxed))
    chosen = cells("hindsight", "uniform", task="boxed")
    assert run(tmp_path, chosen) == {}, "it has not failed"
    board = leaderboard(tmp_path, chosen)
    assert "needs discrete actions" in board.rows["hindsight", "boxed"].refused
    assert board.rows["uniform", "boxed"].refused is None
    assert [standing.method for standing in board.standings] == ["uniform", "hindsight"], "where it cannot read: 0"


def test_a_task_without_truth_is_a_row_with_a_verdict(cue_task, tmp_path):
    def unknown(count, seed):
        made = cue_task.make(count, seed)
        return replace(made, truth=np.full(len(made.truth), -1))

    register_task(replace(cue_task, name="unknown", make=unknown))
    chosen = cells("uniform", task="unknown")
    assert run(tmp_path, chosen) == {}
    assert outcome_of(tmp_path, chosen[0]).keys() == {"verdict", "fit"}
    row = leaderboard(tmp_path, chosen).rows["uniform", "unknown"]
    assert row.average_precision is None and row.verdicts == {"not learned": 1} and row.refused is None


def test_a_fit_that_breaks_takes_no_other_cell_along(cue_task, tmp_path, monkeypatch):
    monkeypatch.setattr(Uniform, "fit", lambda *_, **__: 1 / 0)
    chosen = cells("uniform", "oracle")
    failed = run(tmp_path, chosen)
    assert list(failed) == [chosen[0]] and "ZeroDivisionError" in failed[chosen[0]]
    assert outcome_of(tmp_path, chosen[1]) is not None


def test_a_damaged_file_is_a_failure_and_no_refusal(cue_task, tmp_path):
    (cell,) = cells("uniform")
    run(tmp_path, [cell])
    (tmp_path / "cells" / f"{cell.name}.json").unlink()
    benchmark.model_path(tmp_path, cell).write_bytes(b"nothing")
    assert "FileFormatError" in run(tmp_path, [cell])[cell]
    assert outcome_of(tmp_path, cell) is None


def test_a_method_of_ones_own_joins_by_its_name(cue_task, tmp_path, monkeypatch):
    from secret_rl.credit import base

    monkeypatch.setattr(base, "_registered", dict(base._registered))

    @register_method("mine")
    class Mine(Uniform):
        """All credit to the first step."""

        def attribute(self, data, *, rewards="all", progress=None):
            even = super().attribute(data, rewards=rewards, progress=progress)
            weights = np.zeros_like(even.weights)
            weights[even.offsets[:-1]] = 1
            return replace(even, weights=weights)

    chosen = cells("mine", "uniform")
    assert run(tmp_path, chosen) == {}
    assert outcome_of(tmp_path, chosen[0])["average_precision"] > outcome_of(tmp_path, chosen[1])["average_precision"]


def test_agreement_is_the_overlap_of_the_credit_of_two_seeds(cue_task, tmp_path):
    chosen = cells("uniform", seeds=2)
    run(tmp_path, chosen)
    assert benchmark.agreement(tmp_path, chosen) == pytest.approx(1)
    path = benchmark.credit_path(tmp_path, chosen[1])
    other = Attributions.load(path)
    weights = np.zeros_like(other.weights)
    weights[other.offsets[:-1]] = 1
    replace(other, weights=weights).save(path)
    assert benchmark.agreement(tmp_path, chosen) == pytest.approx(1 / 8), "one of eight steps is shared"
    assert benchmark.agreement(tmp_path, chosen[:1]) is None


def test_cells_are_seed_by_seed_and_unknown_names_are_refused():
    found = cells_of(("uniform", "oracle"), ("taxi_delivery", "umbrella"), 2)
    assert [cell.seed for cell in found] == [0] * 4 + [1] * 4
    assert found[0] == Cell("taxi_delivery", "uniform", 0)
    with pytest.raises(ValueError, match="unknown credit method 'luck'"):
        cells_of(("luck",))
    with pytest.raises(ValueError, match="unknown task 'chess'"):
        cells_of((), ("chess",))
    with pytest.raises(ValueError, match="seeds must be at least 1, got 0"):
        cells_of(seeds=0)


def test_a_cell_is_a_file_that_says_what_it_is(cue_task, tmp_path):
    (cell,) = cells("uniform")
    run(tmp_path, [cell])
    content = json.loads((tmp_path / "cells" / "cue" / "uniform-s0-quick.json").read_text())
    assert content["format"] == "secret-rl benchmark cell" and content["settings"]["episodes"] == 60
