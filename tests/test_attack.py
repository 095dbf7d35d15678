"""A sample of the attacks of ``make attack``, and that the attacks notice what they are there for."""

import ctypes
import faulthandler
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

from tests.attack import files, writers
from tests.attack.content import digest_of
from tests.attack.jobs import Job
from tests.attack.kills import Killing
from tests.attack.readers import Reader

from secret_rl.files import FileFormat

FORMAT = FileFormat("test")
CASES = range(30)


@pytest.mark.slow
def test_what_is_written_and_read_stands_attacks():
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "tests.attack", "--quick"], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def write_carelessly(folder):
    with (folder / "a.txt").open("w") as file:
        file.write("half")
        file.flush()
        time.sleep(0.001)
        (folder / "b.txt").write_text("")
        file.write("whole")


def write_carefully(folder):
    FORMAT.write_json(folder / "a.txt", {"content": 1})


@pytest.mark.parametrize(("write", "sound"), [(write_carelessly, False), (write_carefully, True)])
def test_kills_and_races_notice_files_that_are_half_written(tmp_path, write, sound):
    job = Job("writer", write, files=("a.txt",))
    killing = Killing(job, tmp_path / "kills")
    assert not killing.problems and killing.operations
    problems = [killing.before(number) for number in range(1, len(killing.operations) + 1)]
    assert any("a.txt is neither the old nor the new one" in found for found in problems) is not sound
    assert any(problems) is not sound
    race = writers.Race(writers.Scenario("race", (job, job), "a.txt", digest_of, times=50), tmp_path / "races")
    assert not race.problems
    assert any("a reader: RuntimeError" in problem for problem in race.run()) is not sound


def original(folder):
    return FORMAT.write_json(folder / "file.json", {"content": list(range(50))})


def crash(path):
    faulthandler.disable()  # it would print all of this
    ctypes.string_at(0)


def hang(path):
    time.sleep(60)


def raise_another_error(path):
    raise KeyError("content")


def fill_memory(path):
    np.ones(100 << 20, np.uint8).sum()  # resident, every page of it
    raise ValueError(f"{path} is damaged")


def leave_out_the_name(path):
    raise ValueError("it is damaged")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (crash, "the interpreter ended"),
        (hang, "it took more than"),
        (raise_another_error, "KeyError"),
        (fill_memory, "MB for"),
        (leave_out_the_name, "does not name the file"),
        (lambda path: path.read_bytes(), "damaged content was taken for good"),
        (FORMAT.read_json, None),
    ],
)
def test_damaged_files_show_careless_readers(tmp_path, monkeypatch, answer, expected):
    monkeypatch.setattr(files, "_HUNG", 1 if answer is hang else 60)  # memory takes its time on a busy machine
    monkeypatch.setattr(files, "_STOP_AFTER", 2)

    def read(folder):
        content = (folder / "file.json").read_bytes()
        try:
            whole = json.loads(content)["content"] == list(range(50))
        except (ValueError, TypeError, KeyError, RecursionError):
            whole = False
        return content if whole and expected else answer(folder / "file.json")

    reading = files.Reading(Reader("reader", original, read, len), tmp_path / "scratch")
    if expected == "MB for" and not reading.measures:
        pytest.skip("memory cannot be measured here")
    found = reading.block(CASES, seed=0)
    assert found.tried
    if expected is None:
        assert not found.failures and found.tried == len(CASES)
    else:
        assert any(expected in what for _, what in found.failures)
