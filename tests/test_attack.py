"""A sample of the attacks of ``make attack``."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(sys.platform != "linux", reason="kills, limits and mounts as Linux has them")
def test_what_is_written_and_read_stands_attacks():
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "tests.attack", "--quick"], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
