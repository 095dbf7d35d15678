"""Importing is light, names are there, and what the project says of itself is consistent."""

import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import secret_rl as srl

ROOT = Path(__file__).parent.parent


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


HEAVY = {"torch", "numba", "stable_baselines3", "minari", "matplotlib", "pygame", "rich", "tyro", "hypothesis"}


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import secret_rl", HEAVY | {"numpy", "gymnasium"}),
        ("import secret_rl as s; s.collect('secret_rl/Triggers-v0', 3)", {"torch"}),
        ("import secret_rl.report.figures", {"matplotlib.pyplot", "torch"}),
        (
            "import secret_rl.report.runs; from secret_rl.cli.command import commands; commands()",
            HEAVY - {"tyro", "rich"},
        ),
        ("from secret_rl.evaluation import compare, credit_quality", {"torch", "scipy", "matplotlib", "pandas"}),
    ],
)
def test_imports_are_light(code, heavy):
    assert run(f"{code}; import sys; print(sorted({heavy} & set(sys.modules)))").strip() == "[]"


def test_import_costs_little_more_than_gymnasium():
    """A ratio in the same run: most of our import is Gymnasium's."""
    code = (
        "import time; a = time.perf_counter(); import gymnasium; b = time.perf_counter(); import secret_rl; "
        "print((time.perf_counter() - b) / (b - a))"
    )
    assert min(float(run(code)) for _ in range(3)) < 1.0


@pytest.mark.parametrize("order", ["secret_rl, gymnasium as g", "gymnasium as g, secret_rl"])
def test_environments_are_registered_in_whichever_order_one_imports(order):
    assert run(f"import {order}; print(g.spec('secret_rl/Triggers-v0').id)").strip() == "secret_rl/Triggers-v0"


@pytest.mark.parametrize("module", [srl, srl.report, srl.evaluation])
def test_every_public_name_is_there_and_documented_and_no_other(module):
    assert [name for name in module.__all__ if name != "__version__" and not getattr(module, name).__doc__] == []
    assert set(module.__all__) - {"__version__"} <= set(dir(module))
    with pytest.raises(AttributeError, match="nonsense"):
        module.nonsense  # noqa: B018
    found = [name for name in srl.__all__ if not isinstance(getattr(srl, name), ModuleType)]
    assert len(found) <= 21, "adapters, views and experiments have modules of their own"


def test_extras_are_those_promised():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {"sb3", "minari", "doom", "ray", "report", "dev", "all", "bench"} <= extras.keys()
    peers = ("jax", "gymnax", "navix", "xminigrid")
    assert not any(peer in line for line in extras["dev"] + extras["all"] for peer in peers)


def test_every_missing_extra_is_named(monkeypatch):
    for module, blocked, extra in [
        ("secret_rl.minari", "minari", "minari"),
        ("secret_rl.sb3", "stable_baselines3", "sb3"),
        ("secret_rl.report.figures", "matplotlib", "report"),
    ]:
        code = (
            f"import sys; sys.modules[{blocked!r}] = None\n"
            f"try:\n    import {module}\nexcept ModuleNotFoundError as e:\n    print(e)"
        )
        assert f"secret-rl[{extra}]" in run(code)
