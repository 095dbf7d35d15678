"""What the pages of the documentation say is run, word for word, and their numbers are those of the runs."""

import re
import shutil

import pytest

from documents import PAGES, ROOT, blocks, commands, run_commands, run_python, unlike_printed

pytestmark = pytest.mark.xdist_group("docs")  # the tutorial is run once

TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in PAGES}
WITH_CODE = [name for name, text in TEXTS.items() if blocks(text, "python") or commands(text)]
# [0.69](results/page.md "section / row / column"): a number, and where it is from.
CITED = re.compile(r'\[(-?[\d.,]+)\]\(([^)\s]*results/\w+\.md) "([^"]+)"\)')
CITING = {path.relative_to(ROOT / "docs").as_posix(): path for path in (ROOT / "docs").rglob("*.md")}


@pytest.fixture(scope="session")
def tutorial(tmp_path_factory):
    """The folder that the tutorial leaves, and what it printed."""
    folder = tmp_path_factory.mktemp("tutorial")
    return folder, run_python(TEXTS["tutorial"], folder)


def test_tutorial_shows_what_it_prints_and_keeps_its_promises(tutorial):
    folder, printed = tutorial
    assert unlike_printed(TEXTS["tutorial"], printed) == []
    assert {path.name for path in folder.iterdir()} >= {"mazes", "held-out", "credit.safetensors"}
    precision, recall = re.search(r"precision (\d\.\d+), recall (\d\.\d+)", printed).groups()
    assert min(float(precision), float(recall)) > 0.98
    none, credit = (float(re.search(rf"^{name} +(-?[\d.]+)", printed, re.MULTILINE)[1]) for name in ("none", "credit"))
    assert credit > none + 0.4
    matter, others = re.search(r"above 0.1: ([\d.]+)% of .*, ([\d.]+)% of the others", printed).groups()
    assert float(matter) > 90 and float(others) < 2


@pytest.mark.parametrize("name", [name for name in WITH_CODE if name != "tutorial"])
def test_code_runs_and_prints_what_is_shown(name, tutorial, tmp_path):
    text = TEXTS[name]
    if "credit.safetensors" in text:
        assert "[tutorial](tutorial.md)" in text, "a page that goes on from the tutorial says so"
        shutil.copytree(tutorial[0], tmp_path, dirs_exist_ok=True)
    run_commands(text, tmp_path)
    printed = run_python(text, tmp_path)
    assert unlike_printed(text, printed) == []
    if name == "own-environment":
        none, credit = (float(mean) for mean in re.findall(r"return over training (-?[\d.]+)", printed))
        assert credit > none + 0.3


def test_the_bonus_of_the_3d_page_is_paid(tmp_path):
    """Its model takes a GPU; here one that credits every step."""
    played = """```python
class Always:
    transitions = True

    def step_credit(self, observations, actions, next_observations):
        return [0.8] * len(actions)


env = new_map(Always(), 7)
env.reset(seed=0)
print([round(env.step(0)[1], 3) for _ in range(5)])
env.close()
```
"""
    assert "[0.4, 0.4, 0.4, 0.3, 0.0]" in run_python(TEXTS["world-3d"] + played, tmp_path), (
        "0.5 times credit, 1.5 at most"
    )


@pytest.mark.parametrize("version", ["before", "after"])
def test_a_script_for_stable_baselines3_runs_before_and_after_the_change(version, tutorial, tmp_path):
    """The page marks every line that differs; here with fewer steps."""
    [changes] = blocks(TEXTS["stable-baselines3"], "diff")
    kept = {"before": " -", "after": " +"}[version]
    script = "".join(f"{line[1:]}\n" for line in changes.splitlines() if line[:1] in kept)
    assert "STEPS, GAMMA = 50_000, 0.99" in script and 35 < len(script.splitlines()) < 50
    shutil.copy(tutorial[0] / "credit.safetensors", tmp_path)
    printed = run_python(f"```python\n{script.replace('50_000', '2_048')}```\n", tmp_path)
    assert re.fullmatch(r"seed 0: return -?[\d.]+\n", printed)
    assert sum(line[:1] in "+-" for line in changes.splitlines()) == 5


def test_code_output_and_cited_numbers_are_found():
    known = {"tutorial", "own-environment", "own-data", "own-truth", "agents", "potentials", "command-line"}
    assert known <= set(WITH_CODE)
    shown = "```text\nrecall 0.99, 3 rewards\nprecision 1.0\n```\n"
    assert unlike_printed(shown, "recall 0.5, 12  rewards\n") == ["precision 1.0"], "all but numbers is compared"
    assert sum(len(CITED.findall(path.read_text("utf-8"))) for path in CITING.values()) > 40


@pytest.mark.parametrize("path", [*CITING.values(), ROOT / "CONTRIBUTING.md", ROOT / "paper/DEVIATIONS.md"], ids=str)
def test_links_lead_somewhere_in_the_repository(path):
    """As on the site, which has a test of its own."""
    text = re.sub(r"^```.*?^```|`[^`\n]+`", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    targets = [target for target in re.findall(r"\]\(([^)\s#]+)", text) if "://" not in target]
    assert [target for target in targets if not (path.parent / target).exists()] == []


def table_cell(page: str, address: str) -> str:
    """A cell of a result's table by "section / row / column" (or "row / column"), the column by how it begins."""
    *section, row, column = address.split(" / ")
    text = page.split(f"\n## {section[0]}\n", 1)[1].split("\n## ", 1)[0] if section else page
    table = re.search(r"^\|.*?(?=\n\n|\Z)", text, re.MULTILINE | re.DOTALL)[0]  # the first one
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    place = next(i for i, title in enumerate(lines[0]) if title.startswith(column))
    [cells] = [cells for cells in lines[2:] if row in cells[:2]]
    return cells[place]


@pytest.mark.parametrize("name", [name for name, path in CITING.items() if CITED.search(path.read_text("utf-8"))])
def test_numbers_are_those_of_the_runs(name):
    for stated, link, address in CITED.findall(CITING[name].read_text(encoding="utf-8")):
        page = (CITING[name].parent / link).resolve().read_text(encoding="utf-8")
        measured = re.match(r"-?[\d.,]+", table_cell(page, address))[0]
        decimals = len(stated.partition(".")[2])
        far = abs(float(stated.replace(",", "")) - float(measured.replace(",", "")))
        assert far <= 0.5 * 10**-decimals + 1e-9, (
            stated,
            link,
            address,
        )


def test_the_paper_potential_slows_learning_down():
    """In every panel but one, as limits.md says."""
    better = {}
    for path in sorted((ROOT / "paper/results").glob("transfer_*.md")):
        for section in path.read_text(encoding="utf-8").split("\n## ")[1:]:
            means = dict(re.findall(r"^\| (none|paper) \| (-?[\d.]+)", section, re.MULTILINE))
            if "paper" in means:
                better[path.stem, section.splitlines()[0]] = float(means["paper"]) >= float(means["none"])
    assert len(better) > 10 and [panel for panel in better if better[panel]] == [("transfer_window", "full state")]
