"""Studies at a tiny size: files in a temporary folder, quick fits, and a small source of credit."""

import sys

import pytest
from paper.credit_runs import Cell, Mazes
from tests.quick import quick_fits


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """The folder in which the studies imported so far keep their results, data, models and curves."""
    quick_fits(monkeypatch)
    places = {"RESULTS": tmp_path} | {name: tmp_path / name.lower() for name in ("DATA", "MODELS", "CURVES", "CELLS")}
    for module in [module for name, module in sys.modules.items() if name.startswith("paper.")]:
        for name in places.keys() & vars(module).keys():
            monkeypatch.setattr(module, name, places[name])
    return tmp_path


@pytest.fixture
def source():
    """Where credit is learned: so short a fit may be warned of."""
    options = {"steps": 160, "units": 16, "batch_size": 16, "evaluate_every": 40, "learning_rate": 0.01}
    return Cell("source", Mazes(1, 1, 200, seed=1, size=3, success_share=0.3), {}, options)
