"""A sample of the attacks of ``make attack``, and that the attacks notice what they are there for."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")
if sys.platform != "linux":
    pytest.skip("kills, limits and mounts as Linux has them", allow_module_level=True)

from tests.attack.attacks import damage, kills, writers
from tests.attack.targets import Target

from secret_rl.files import FileFormat

FORMAT = FileFormat("test")


@pytest.mark.slow
def test_what_is_written_and_read_stands_attacks():
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "tests.attack", "--quick"], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def write_carelessly(path):
    for half in ('{"content"', ": 1}"):
        with path.open("a" if path.exists() else "w") as file:
            file.write(half)
        time.sleep(0.001)


def write_carefully(path):
    FORMAT.write_json(path, {"content": 1})


def read_carelessly(path, out):
    out.write_text(path.read_text(errors="replace"))


def read_carefully(path, out):
    out.write_text(str(FORMAT.read_json(path)))


def raise_another_error(path, out):
    out.write_text(str(json.loads(path.read_bytes())["content"]))


def failures(attack, target, folder):
    return [problems for _, problems in attack(target, folder, np.random.default_rng(0), quick=False) if problems]


@pytest.mark.parametrize(
    ("attack", "write", "read", "sound"),
    [
        (kills, write_carelessly, read_carelessly, False),
        (kills, write_carefully, read_carefully, True),
        (writers, write_carelessly, read_carelessly, False),
        (writers, write_carefully, read_carefully, True),
        (damage, write_carefully, read_carelessly, False),
        (damage, write_carefully, raise_another_error, False),
        (damage, write_carefully, read_carefully, True),
    ],
)
def test_attacks_notice_careless_writers_and_readers(tmp_path, attack, write, read, sound):
    found = failures(attack, Target("a", "a.json", write, read), tmp_path)
    assert (not found) is sound, found[:3]
