"""What the README says is run, word for word."""

import json
import re
from collections import Counter

import pytest

from documents import ROOT, blocks, commands, run_commands, run_python

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_python_blocks_run_in_order(tmp_path):
    assert "\n".join(blocks(README, "python")).count("srl.") >= 4
    printed = run_python(README, tmp_path)
    claimed = re.search(r"precision (\d\.\d+) and recall (\d\.\d+)", README)
    found = re.search(r"precision (\d\.\d+), recall (\d\.\d+)", printed)
    assert claimed is not None
    assert found is not None
    for stated, measured in zip(claimed.groups(), found.groups(), strict=True):
        assert float(measured) > float(stated) - 0.02, "the README promises more than it gives"


def test_quickstart_is_short():
    lines = [line for line in blocks(README, "python")[0].splitlines() if line.strip()]
    assert len(lines) <= 15


def test_commands_run(tmp_path):
    assert {command[1] for command in commands(README)} == {
        "collect", "info", "fit", "quality", "attribute", "potential", "learn", "explore", "report", "play",
    }  # fmt: skip
    run_commands(README, tmp_path)


@pytest.mark.parametrize("target", re.findall(r"^make ([a-z-]+)", README, re.MULTILINE))
def test_make_targets_exist(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def test_links_lead_somewhere():
    targets = [t for t in re.findall(r"\]\(([^)]+)\)", README) if not t.startswith("http")]
    assert targets
    missing = [target for target in targets if not (ROOT / target).exists()]
    assert missing == []


def test_results_are_those_of_the_runs():
    runs = json.loads((ROOT / "paper/results/credit_quality.json").read_text())["runs"]
    rows = {"1T1P": "1 switch, 1 prize", "1T2P": "1 switch, 2 prizes", "2T2P": "2 switches", "3T1P": "3 switches"}
    for label, words in rows.items():
        mine = [run for run in runs if run["label"] == label]
        mean = {
            name: sum(run["targets"]["same distribution"][name] for run in mine) / len(mine)
            for name in ("precision", "recall")
        }
        line = next(line for line in README.splitlines() if line.startswith(f"| {words}"))
        counted = sum(run["fit"]["verdict"] == "credit" for run in mine)
        assert f"| {mean['precision']:.3f} (0.96) | {mean['recall']:.3f} (0.94) | {len(mine)} ({counted}) |" in line


def test_results_in_tasks_of_others_are_those_of_the_runs():
    panels = json.loads((ROOT / "paper/results/beyond_triggers.json").read_text())["panels"]
    rows = {
        "Taxi, passenger hidden": ("taxi_delivery", "taxi_delivery_signed", "taxi_own_rewards"),
        "MiniGrid Unlock, carried": ("unlock", "red_blue_doors"),
        "POPGym": ("repeat_first", "repeat_previous"),
        "bsuite discounting": ("discounting_chain", "memory_len"),
        "MountainCarContinuous": ("mountain_car_left",),
        "MiniGrid Unlock as": ("unlock_clock",),
        "MiniGrid Memory": ("memory_s7", "memory_s11"),
        "bsuite umbrella": ("umbrella",),
        "CartPole": ("cart_pole", "frozen_lake", "empty_room", "taxi_seen"),
    }
    assert sum(map(len, rows.values())) == len({panel["settings"]["task"] for panel in panels})
    for words, tasks in rows.items():
        cells = next(line for line in README.splitlines() if line.startswith(f"| {words}")).split("|")
        runs = [[panel for panel in panels if panel["settings"]["task"] == task] for task in tasks]
        counts = Counter(run["fit"]["verdict"] for group in runs for run in group)
        assert {verdict: int(n) for n, verdict in re.findall(r"(\d+) ([a-z ]+[a-z])", cells[3])} == counts
        if "quality" in runs[0][0]:
            means = [f"{sum(run['quality']['attention'] for run in g) / len(g):.3f}" for g in runs]
            assert cells[2].strip().split("; ") == means


def test_transfer_results_are_those_of_the_runs():
    panels = {
        "8x8, 3 switches": ("transfer_in_domain", "8x8 3T1P"),
        "8x8, 1 switch, 1 prize": ("transfer_in_domain", "8x8 1T1P, 100 trajectories"),
        "12x12, 1 switch, 1 prize": ("transfer_bigger", "12x12 1T1P"),
        "12x12, 1 switch, 2 prizes": ("transfer_bigger", "12x12 1T2P"),
        "12x12, 3 switches": ("transfer_bigger", "12x12 3T1P"),
    }
    for words, (name, label) in panels.items():
        record = json.loads((ROOT / f"paper/results/{name}.json").read_text())
        [panel] = [panel for panel in record["panels"] if panel["label"] == label]
        conditions = panel["beside_none"]["conditions"]
        means = [conditions[c]["area"]["value"] for c in ("none", "paper", "value", "pending", "OnlineCredit")]
        line = next(line for line in README.splitlines() if line.startswith(f"| {words}"))
        stated = [float(cell.strip(" *")) for cell in line.split("|")[2:7]]
        assert stated == [round(mean, 2) + 0.0 for mean in means]
        best = [cell for cell in line.split("|")[2:7] if "**" in cell]
        assert {float(cell.strip(" *")) for cell in best} == {max(stated)}


def test_results_of_deep_agents_are_those_of_the_runs():
    columns = ("from scratch", "weight transfer", "paper", "value", "pending, adapted", "pending, adapted, learned")
    replayed = {0: "from scratch, rewarded replay", 3: "value, credited replay", 4: "pending, adapted, credited replay"}
    record = json.loads((ROOT / "paper/results/deep_inverted.json").read_text())
    lines = README.split("| inverted controls |")[1].splitlines()[2:6]
    for panel, (plain, credited) in zip(record["panels"], (lines[:2], lines[2:]), strict=True):
        rows = panel["beside_first"]["conditions"]
        cells = [cell.strip(" *") for cell in plain.split("|")[2:8]]
        assert [float(cell) for cell in cells] == [round(rows[name]["area"]["value"], 2) for name in columns]
        cells = [cell.strip(" *") for cell in credited.split("|")[2:8]]
        for place, cell in enumerate(cells):
            assert cell == (f"{rows[replayed[place]]['area']['value']:.2f}" if place in replayed else "")
