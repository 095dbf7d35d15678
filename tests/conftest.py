"""Settings for all tests."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
os.environ["OMP_NUM_THREADS"] = "1"  # tests run side by side: threads that wait for each other would only spin
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell starts in the background

settings.register_profile(
    "default",
    deadline=None,  # the first example of a compiled function pays for the compiler
    max_examples=40,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("long", settings.get_profile("default"), max_examples=2000, derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


_SLOW_FILES = {
    *("test_readme.py", "test_docs_code.py", "test_examples.py", "test_site.py", "test_attack.py", "test_atomic.py"),
    *("test_checks.py", "test_explorer.py", "test_learned.py", "test_minari.py"),
    *("test_checkpoint.py", "test_method.py"),
}
_SLOW_FOLDERS = {"paper", "sb3", "experimental", "keys_doors"}


@pytest.hookimpl(tryfirst=True)  # before -m looks at the marks
def pytest_collection_modifyitems(items):
    """Studies, and files that start programs or fit models in most of their tests, are slow as a whole. Files with slow
    tests come first, so that no process is left with one of them at the end."""
    for item in items:
        if item.path.name in _SLOW_FILES or item.path.parent.name in _SLOW_FOLDERS:
            item.add_marker(pytest.mark.slow)
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


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
