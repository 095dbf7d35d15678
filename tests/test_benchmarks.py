"""Benchmarks run rarely: here, that what they are made of is still there."""

import pkgutil
from importlib import import_module

import benchmarks
import pytest

_OURS = {"benchmarks", "paper", "secret_rl"}
_MODULES = sorted(module.name for module in pkgutil.iter_modules(benchmarks.__path__))


@pytest.mark.parametrize("name", [name for name in _MODULES if name != "__main__"])  # which would run them all
def test_benchmark_can_be_imported(name: str) -> None:
    try:
        import_module(f"benchmarks.{name}")
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.split(".")[0] in _OURS:
            raise  # anything else is a peer that is installed for benchmarks alone
