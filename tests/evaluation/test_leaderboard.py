"""What cells come to: rows, ranks, ties, intervals, and the files that are written of them."""

import csv
import json

import numpy as np
import pytest

from secret_rl.evaluation import benchmark
from secret_rl.evaluation.benchmark import Cell, run_group
from secret_rl.evaluation.leaderboard import leaderboard
from secret_rl.evaluation.statistics import Estimate
from secret_rl.report.leaderboard import write_leaderboard

TASKS = ("umbrella", "taxi_delivery")


def outcome(precision):
    effort = {"seconds": 2.0, "megabytes": 3.0}
    numbers = dict.fromkeys(("attributed_precision", "attributed", "precision", "recall"), precision)
    found = {"verdict": "credit", "fit": effort, "reading": effort, "average_precision": precision, "deletion": None}
    return found | numbers


@pytest.fixture
def board(tmp_path, monkeypatch):
    """A leaderboard of given average precisions: {(method, task): a list over seeds, or a reason to refuse}."""

    def make(scores):
        def measured(_, cell):
            found = scores[cell.method, cell.task]
            if isinstance(found, str):
                raise ValueError(found)
            return outcome(found[cell.seed])

        monkeypatch.setattr(benchmark, "_measured", measured)
        cells = [Cell(task, method, seed) for method, task in scores for seed in range(2)]
        run_group(tmp_path, cells)
        return leaderboard(tmp_path, cells)

    return make


def test_standings_rank_by_mean_and_equal_values_share_their_ranks(board):
    found = board(
        {
            ("uniform", "umbrella"): [0.1, 0.1], ("uniform", "taxi_delivery"): [0.2, 0.2],
            ("rudder", "umbrella"): [0.9, 0.9], ("rudder", "taxi_delivery"): [0.5, 0.5],
            ("secret", "umbrella"): [0.9, 0.9], ("secret", "taxi_delivery"): [0.9, 1.0],
        }
    )  # fmt: skip
    standings = {standing.method: standing for standing in found.standings}
    assert [standing.method for standing in found.standings] == ["secret", "rudder", "uniform"]
    assert standings["secret"].rank == pytest.approx((1.5 + 1) / 2)
    assert standings["rudder"].rank == pytest.approx((1.5 + 2) / 2)
    assert standings["uniform"].rank == 3
    assert (standings["secret"].first, standings["rudder"].first, standings["uniform"].first) == (2, 1, 0)
    assert standings["secret"].average_precision.value == pytest.approx(0.925)


def test_within_the_interval_of_the_first_counts_as_first(board):
    found = board({("secret", "umbrella"): [0.8, 1.0], ("rudder", "umbrella"): [0.85, 0.85]})
    row = found.rows["secret", "umbrella"].average_precision
    assert (row.value, row.low, row.high) == pytest.approx((0.9, 0.8, 1.0))
    assert {standing.method: standing.first for standing in found.standings} == {"secret": 1, "rudder": 1}


def test_bounds_are_shown_and_not_ranked(board):
    found = board({("oracle", "umbrella"): [1.0, 1.0], ("rudder", "umbrella"): [0.5, 0.5]})
    assert [standing.method for standing in found.standings] == ["rudder"]
    assert found.score("oracle", "umbrella") == 1 and np.isnan(found.score("oracle", "taxi_delivery"))


def test_a_method_without_all_tasks_is_not_ranked(board):
    found = board(
        {
            ("rudder", "umbrella"): [0.5, 0.5], ("rudder", "taxi_delivery"): [0.5, 0.5],
            ("secret", "umbrella"): [0.9, 0.9],
        }
    )  # fmt: skip
    assert [standing.method for standing in found.standings] == ["rudder"]


def test_files_hold_every_row(board, tmp_path):
    found = board(
        {
            ("secret", "umbrella"): [0.9, 1.0], ("secret", "taxi_delivery"): [0.9, 0.9],
            ("hindsight", "umbrella"): [0.3, 0.4], ("hindsight", "taxi_delivery"): "it needs something else",
        }
    )  # fmt: skip
    worth = {("taxi_delivery", "secret"): {"zero-shot": Estimate(0.7, 0.6, 0.8)}}
    written = write_leaderboard(found, tmp_path / "out", "the command, a machine.", worth=worth)
    assert {path.suffix for path in written} == {".md", ".json", ".csv", ".png", ".svg"}
    overview, *pages = (path.read_text() for path in written if path.suffix == ".md")
    umbrella, taxi = pages
    assert "| secret | 0.92" in overview and "(umbrella.md)" in overview
    assert "| hindsight | cannot read it: it needs something else |" in taxi and "0.70 [0.60, 0.80]" in taxi
    assert "| secret | 0.95 [0.90, 1.00] |" in umbrella and "Worth" not in umbrella
    assert all("the command, a machine." in page for page in (overview, *pages))
    content = json.loads(written[1].read_text())
    assert [row["method"] for row in content["standings"]] == ["secret", "hindsight"]
    assert {(row["method"], row["task"]) for row in content["rows"]} == set(found.rows)
    with (tmp_path / "out" / "leaderboard.csv").open() as file:
        rows = list(csv.DictReader(file))
    by_place = {(row["method"], row["task"]): row for row in rows}
    assert float(by_place["secret", "umbrella"]["average_precision"]) == pytest.approx(0.95)
    assert by_place["hindsight", "taxi_delivery"]["refused"] == "it needs something else"
