"""What the README says is run, word for word."""

import json
import re
from collections import Counter
from xml.etree.ElementTree import fromstring

import numpy as np
import pytest
from docs.images import badges

from documents import ROOT, blocks, commands, run_commands, run_python, unlike_printed

README = (ROOT / "README.md").read_text(encoding="utf-8")
RESULTS = (ROOT / "docs/results/index.md").read_text(encoding="utf-8")


def result(name):
    return json.loads((ROOT / f"paper/results/{name}.json").read_text())


def cells_of(words, text=README):
    """The cells of a text's table row that begins with some words, without them."""
    line = next(line for line in text.splitlines() if line.startswith(f"| {words}"))
    return [cell.strip() for cell in line.split("|")[2:-1]]


def test_python_blocks_run_in_order(tmp_path):
    assert "\n".join(blocks(README, "python")).count("srl.") >= 4
    printed = run_python(README, tmp_path)
    claimed = re.search(r"precision (\d\.\d+) and recall (\d\.\d+)", README)
    found = re.search(r"precision (\d\.\d+), recall (\d\.\d+)", printed)
    for stated, measured in zip(claimed.groups(), found.groups(), strict=True):
        assert float(measured) > float(stated) - 0.02, "the README promises more than it gives"
    lines = [line for line in blocks(README, "python")[0].splitlines() if line.strip()]
    assert len(lines) <= 12, "the quickstart is short"
    assert unlike_printed(README, printed) == []
    promised, shown = (
        [float(re.search(rf"^{name} +(-?[\d.]+) \[", text, re.MULTILINE)[1]) for name in ("none", "credit")]
        for text in (README, printed)
    )
    assert promised == pytest.approx(shown, abs=0.05) and shown[1] > shown[0] + 0.5
    assert float(printed.split()[-1]) > 0.1, "the deep agent has learned something"


def test_commands_run(tmp_path):
    assert {command[1] for command in commands(README)} == {
        "collect", "info", "fit", "quality", "attribute", "potential", "learn", "explore", "report", "play",
    }  # fmt: skip
    run_commands(README, tmp_path)


def test_links_and_make_targets_exist():
    targets, links = re.findall(r"^make ([a-z-]+)", README, re.MULTILINE), re.findall(r"\]\((?!http)([^)]+)\)", README)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert targets and all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
    for path, _, anchor in (link.partition("#") for link in links):
        assert (ROOT / path).exists(), path
        headings = re.findall(r"^#+ (.*)", (ROOT / path).read_text("utf-8"), re.MULTILINE) if anchor else []
        assert not anchor or anchor in {heading.lower().replace(" ", "-") for heading in headings}


def test_pictures_are_small_and_badges_say_what_is_so():
    animation = (ROOT / "docs/images/animation.svg").read_text(encoding="utf-8")
    assert len(animation) < 400_000 and fromstring(animation).tag.endswith("svg")
    assert "<script" not in animation and set(re.findall(r"https?://[^\"]+", animation)) == {
        "http://www.w3.org/2000/svg"
    }
    assert "prefers-reduced-motion" in animation and "prefers-color-scheme" in animation
    for name, halves in badges.facts().items():
        assert (ROOT / f"docs/images/badge-{name}.svg").read_text(encoding="utf-8") == badges.badge(*halves)
        assert f"docs/images/badge-{name}.svg" in README
    citation = " ".join((ROOT / "CITATION.cff").read_text(encoding="utf-8").split())
    for value in re.findall(r"= \{(.*)\}", blocks(README, "bibtex")[0]):
        assert all(part in citation for part in re.split(r" and |, |--", value)), value


def test_results_are_those_of_the_runs():
    rows = {"1T1P": "1 switch, 1 prize", "1T2P": "1 switch, 2 prizes", "2T2P": "2 switches", "3T1P": "3 switches"}
    for label, words in rows.items():
        mine = [run for run in result("credit_quality")["runs"] if run["label"] == label]
        found = [run["targets"]["same distribution"] for run in mine]
        precision, recall = (sum(one[name] for one in found) / len(mine) for name in ("precision", "recall"))
        counted = sum(run["fit"]["verdict"] == "credit" for run in mine)
        expected = [f"{precision:.3f} (0.96)", f"{recall:.3f} (0.94)", f"{len(mine)} ({counted})"]
        assert "|".join(expected) in "|".join(cells_of(words))


def test_results_in_tasks_of_others_are_those_of_the_runs():
    panels = result("beyond_triggers")["panels"]
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
        attention, verdicts, *_ = cells_of(words, RESULTS)
        runs = [[panel for panel in panels if panel["settings"]["task"] == task] for task in tasks]
        counts = Counter(run["fit"]["verdict"] for group in runs for run in group)
        assert {verdict: int(n) for n, verdict in re.findall(r"(\d+) ([a-z ]+[a-z])", verdicts)} == counts
        if "quality" in runs[0][0]:
            means = [f"{sum(run['quality']['attention'] for run in g) / len(g):.3f}" for g in runs]
            assert attention.split("; ") == means
    decided = [panel for panel in panels if "quality" in panel]  # by the past
    past, none = (
        Counter(panel["fit"]["verdict"] for panel in panels if (panel in decided) is wanted) for wanted in (True, False)
    )
    readme, tasks = " ".join(README.split()), {panel["settings"]["task"] for panel in decided}
    assert f"[{len(tasks)} tasks of others]" in readme
    assert f"{past['credit']} of {past.total()} fits are called credit" in readme
    assert f'{none["past not needed"]} of {none.total()} say "past not needed"' in readme
    low = sum(panel["fit"]["verdict"] == "credit" and panel["quality"]["attention"] < 0.9 for panel in decided)
    assert f"In {low} of the {past['credit']} fits called credit" in RESULTS


def test_transfer_results_are_those_of_the_runs():
    panels = {
        "8x8, 3 switches": ("transfer_in_domain", "8x8 3T1P"),
        "8x8, 1 switch, 1 prize": ("transfer_in_domain", "8x8 1T1P, 100 trajectories"),
        "12x12, 1 switch, 1 prize": ("transfer_bigger", "12x12 1T1P"),
        "12x12, 1 switch, 2 prizes": ("transfer_bigger", "12x12 1T2P"),
        "12x12, 3 switches": ("transfer_bigger", "12x12 3T1P"),
    }
    for words, (name, label) in panels.items():
        [panel] = [panel for panel in result(name)["panels"] if panel["label"] == label]
        conditions = panel["beside_none"]["conditions"]
        means = [conditions[c]["area"]["value"] for c in ("none", "paper", "value", "pending", "OnlineCredit")]
        cells = cells_of(words)[:5]
        stated = [float(cell.strip("*")) for cell in cells]
        assert stated == [round(mean, 2) + 0.0 for mean in means]
        assert {float(cell.strip("*")) for cell in cells if "**" in cell} == {max(stated)}


def test_results_of_deep_agents_are_those_of_the_runs():
    found = {}
    for panel in result("deep_bonus")["panels"]:
        areas, steps = (np.array(panel["runs"][name], float) for name in ("area", "steps"))
        solved = np.isfinite(steps).mean()  # null, of an agent that never did, is NaN
        found[panel["label"]] = round(areas.mean(), 2) + 0.0, solved
    with_more = {"DQN": "credit bonus, credited replay", "PPO": "credit bonus, count bonus"}
    rows = [f"DQN, {task}" for task in ("8x8 3T1P",)]
    rows += [f"PPO, {task}" for task in ("8x8 3T1P", "12x12 3T1P", "8x8 1T1P", "8x8 1T2P")]
    for row in rows:
        columns = ("none", "value", "count bonus", "OnlineCredit", "credit bonus", with_more[row[:3]])
        cells = cells_of(row)
        assert [cell.strip("*") for cell in cells] == [
            "{:.2f}, {:.0%}".format(*found[f"{row}, {column}"]) for column in columns
        ]
        best = max(columns, key=lambda column, row=row: found[f"{row}, {column}"][0])
        assert [column for column, cell in zip(columns, cells, strict=True) if "**" in cell] == [best]


def test_results_in_3d_are_those_of_the_runs():
    text = (ROOT / "paper/results/keys_doors_bonus.md").read_text(encoding="utf-8")
    section = text.split("\n## the goal alone pays, for longer\n")[1]
    rows = {"nothing ": "none", "credit, as a bonus": "credit bonus", "credit, as a potential": "credit as a potential"}
    for words, condition in rows.items():
        found = cells_of(f"{condition} ", section)
        assert cells_of(words) == [found[1], found[3]]
    shorter, doors = (
        text.split(f"\n## {name}\n")[1]
        for name in ("the goal alone pays", "doors and the goal pay, 900 steps an episode")
    )
    for condition, section in (("true events", shorter), ("credit bonus", shorter), ("credit bonus", doors)):
        assert f" {cells_of(f'{condition} ', section)[3]}" in " ".join(README.split())
    text = (ROOT / "paper/results/keys_doors_transfer.md").read_text(encoding="utf-8")
    sections = {name: text.split(f"\n## {name}\n")[1] for name in ("The goal alone pays", "Doors and the goal pay")}
    for condition, name in (("value", "The goal alone pays"), ("OnlineCredit", "Doors and the goal pay")):
        assert f"({cells_of(f'{condition} ', sections[name])[3]}" in README


def test_standings_are_those_of_the_leaderboard():
    board = json.loads((ROOT / "docs/leaderboard/leaderboard.json").read_text())
    standings = {standing["method"]: standing for standing in board["standings"]}
    shown = [method for method in standings if f"| `{method}` |" in README]
    assert {"secret", "value-transport", "synthetic-returns", "rudder", "uniform"} <= set(shown)
    for method in shown:
        found = standings[method]
        interval = "{value:.2f} [{low:.2f}, {high:.2f}]".format(**found["average_precision"])
        first = f"{found['first']} of {found['tasks']}"
        assert cells_of(f"`{method}`") == [interval, f"{found['rank']:.1f}", first]
    order = [line.split("`")[1] for line in README.splitlines() if re.match(r"\| `[\w-]+` \| \d", line)]
    assert order == [method for method in standings if method in shown], "best first"
    scores = {(row["method"], row["task"]): row["average_precision"] for row in board["rows"]}
    tasks = {task for _, task in scores}
    best = {t: max((scores[m, t]["value"], m) for m in standings if scores[m, t]) for t in tasks}
    behind = {t for t, (value, _) in best.items() if scores["secret", t]["value"] < value - 0.01}
    assert all(f"`{task}`" in README for task in behind), "where others are better, the README says so"
