"""Settings for all tests."""

import os

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
os.environ["OMP_NUM_THREADS"] = "1"  # tests run side by side: threads that wait for each other would only spin

settings.register_profile(
    "default",
    deadline=None,  # the first example of a compiled function pays for the compiler
    max_examples=40,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("long", settings.get_profile("default"), max_examples=2000, derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


_LONG = (
    "test_readme.py",
    "test_docs_code.py",
    "test_attack.py",
    "test_cli.py",
    "test_cli_manners.py",
    "test_deep_runs.py",
)


def pytest_collection_modifyitems(items):
    """Tests that take long come first, so that no process is left with one of them at the end."""
    items.sort(key=lambda item: item.path.name not in _LONG)


@pytest.fixture
def minari_home(tmp_path, monkeypatch):
    """A Minari root of this test's own."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path / "minari"


@pytest.fixture
def one_thread():
    """PyTorch on one thread: small products are slower on several."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
