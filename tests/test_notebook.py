"""The notebook runs, and shows what it shows in the repository; ``python -m tests.test_notebook`` renews that."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from secret_rl.atomic import replace_text

PATH = Path(__file__).parent.parent / "examples" / "quickstart.ipynb"


def executed(folder):
    """The notebook with the outputs of a run."""
    notebook = nbformat.read(PATH, as_version=4)
    how = {
        "timeout": 600,
        "kernel_name": "python3",
        "record_timing": False,
        "resources": {"metadata": {"path": folder}},
    }
    return NotebookClient(notebook, **how).execute()


def shapes(notebook):
    """Every output: its text, whatever its numbers, how its HTML begins, and the names of rows and columns."""
    found = []
    for number, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", []):
            assert output.output_type == "execute_result", f"cell {number}: {output}"
            text, page = (re.sub(r"-?\d[\d,.]*", "0", output.data[kind]) for kind in ("text/plain", "text/html"))
            names = re.findall(r"<th>(.*?)</th>", page)
            found.append((number, text, page[:12], [name for name in names if name != "evidence"]))  # some fits say it
    return found


def numbers(notebook, call, row):
    """The numbers in a row of the table that a cell shows."""
    [cell] = [cell for cell in notebook.cells if cell.cell_type == "code" and call in cell.source]
    [cells] = re.findall(rf"<th>{row}</th>(.*?)</tr>", cell.outputs[0].data["text/html"])
    return [float(number) for number in re.findall(r"-?\d+\.\d+", cells)]


@pytest.mark.slow
def test_the_notebook_shows_what_a_run_shows(tmp_path):
    assert PATH.stat().st_size < 500_000
    kept, ran = nbformat.read(PATH, as_version=4), executed(str(tmp_path))
    nbformat.validate(kept)
    assert shapes(kept) == shapes(ran)
    assert [text.split("(")[0].split(" ")[0] for _, text, *_ in shapes(kept)] == [
        "Trajectories", "FitReport", "Attributions", "CreditQuality", "Explored", "LearningCurves", "Comparison",
    ]  # fmt: skip
    for call, row in (("credit_quality(", "precision"), ("credit_quality(", "recall"), ("compare(", "credit")):
        assert numbers(ran, call, row)[0] == pytest.approx(numbers(kept, call, row)[0], abs=0.05)
    assert numbers(ran, "compare(", "credit")[0] > numbers(ran, "compare(", "none")[0] + 0.5
    texts = " ".join(cell.source for cell in kept.cells if cell.cell_type == "markdown")
    links = [link.partition("#")[0] for link in re.findall(r"\]\((?!http)([^)]+)\)", texts)]
    assert links and all((PATH.parent / link).exists() for link in links)


if __name__ == "__main__":
    replace_text(PATH, nbformat.writes(executed(str(PATH.parent))) + "\n")
