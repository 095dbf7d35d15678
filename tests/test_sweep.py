"""Cells of a sweep: the same files wherever they run, and whoever is killed, nothing is lost or done twice."""

import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from benchmarks import sweep_kills
from benchmarks.sweep import content_of
from tests.test_processes import assert_gone

import secret_rl as srl
from secret_rl import sweep
from secret_rl.files import FileFormatError
from secret_rl.sweep import LOCAL, RETRIES, Cell, SweepError, Workers, ray_of

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="signals")
TWO = Workers(2)


def note(log, what):
    with log.open("a") as file:
        file.write(f"{what}\n")


def notes(log):
    return log.read_text().split()


def product(log, number, seconds=0.0):
    """A line for each time that it is computed."""
    note(log, number)
    time.sleep(seconds)
    return {"number": number, "sum": float(np.sin(np.arange(1e4) * (number + 1)).sum())}


def threads():
    import torch

    return torch.get_num_threads()


def cells(log, count=5, seconds=0.0):
    return [Cell(f"Number {n}", {"number": n, "seed": 0}, partial(product, log, n, seconds)) for n in range(count)]


def killed(log, times, number):
    """The process of this cell is killed, the first times."""
    note(log, number)
    if notes(log).count(str(number)) <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def raising(number):
    raise ZeroDivisionError(f"number {number}\nis odd")


def test_results_are_in_order_and_what_is_there_is_not_computed_again(tmp_path):
    log, here, there = tmp_path / "log", tmp_path / "here", tmp_path / "there"
    found, failures = sweep.run(cells(log), here)
    assert [result["number"] for result in found] == list(range(5)) and not failures
    again, _ = sweep.run(cells(log, 7), here, TWO)
    assert again[:5] == found and sorted(notes(log)) == sorted("0123456")
    sweep.run(cells(log, 7), there, TWO)
    assert content_of(here) == content_of(there) and len(content_of(here)) == 7
    assert sweep.result_of(here, cells(log)[3])["settings"] == {"number": 3, "seed": 0}
    (alone,), _ = sweep.run([Cell("threads", {}, threads)], tmp_path / "threads", Workers(1))
    assert alone == 1, "how many there are shows in sums"
    other = Cell("Number 3", {"number": 3, "seed": 1}, partial(product, log, 3))
    assert sweep.result_of(here, other) is None, "other settings are another cell"


def test_a_killed_worker_loses_nothing_and_what_kills_every_worker_is_a_failure(tmp_path):
    log = tmp_path / "log"
    study = [Cell(str(n), {"n": n}, partial(killed, log, times, n)) for n, times in enumerate((1, 0, 99, 0, 2, 0))]
    found, [failure] = sweep.run(study, tmp_path / "cells", TWO)
    assert found == [0, 1, None, 3, 4, 5]
    assert failure.name == "2" and "ended with code -9" in failure.reason
    counts = {n: notes(log).count(str(n)) for n in range(6)}
    assert counts == {0: 2, 1: 1, 2: RETRIES + 1, 3: 1, 4: 3, 5: 1}


def test_failures_are_listed_with_settings_and_the_command_that_repeats_them(tmp_path):
    log = tmp_path / "log"
    study = [cells(log)[0], Cell("odd one", {"number": 1, "seed": 7}, partial(raising, 1))]
    found, failures = sweep.run(study, tmp_path / "cells", TWO)
    assert found[0] is not None and found[1] is None
    with pytest.raises(SweepError) as caught:
        sweep.check(failures, "python -m paper study --jobs 2")
    lines = str(caught.value).splitlines()
    assert re.sub(r"line \d+", "line 9", lines.pop(1)) == (
        "odd one: ZeroDivisionError: number 1 is odd (test_sweep.py, line 9)"
    )
    assert lines == [
        "1 of the cells failed:",
        '  settings {"number": 1, "seed": 7}',
        "this repeats them, and nothing that is done: python -m paper study --jobs 2",
    ]  # fmt: skip
    sweep.check([], "nothing failed")
    study[1] = cells(log)[1]
    assert None not in sweep.run(study, tmp_path / "cells", TWO)[0]
    assert notes(log) == ["0", "1"]


def test_what_is_wrong_is_said(tmp_path):
    log = tmp_path / "log"
    with pytest.raises(ValueError, match="2 cells are named 'Number 0' and have the same settings"):
        sweep.run(cells(log, 1) * 2, tmp_path)
    with pytest.raises(ValueError, match="jobs must be at least 1, got 0"):
        Workers(0)
    with pytest.raises(ValueError, match="local"):
        Workers(ray="")
    sweep.run(cells(log, 1), tmp_path / "cells")
    cells(log, 1)[0].path(tmp_path / "cells").write_text("{")
    with pytest.raises(FileFormatError, match="delete it"):
        sweep.run(cells(log, 1), tmp_path / "cells")


def test_the_benchmark_of_kills_notices_what_is_wrong(tmp_path, monkeypatch):
    log, folder = tmp_path / "study.log", tmp_path / "study"
    monkeypatch.setattr(sweep_kills, "cells", lambda _: cells(log))
    sweep.run(cells(log), folder)
    expected, (lost, changed, again, *_) = content_of(folder), [cell.path(folder) for cell in cells(log)]
    log.write_text("")
    assert sweep_kills._faults(folder, expected) == []
    lost.unlink()
    changed.write_text("{}")
    (folder / "other.json").write_text("{}")
    log.write_text(f'[{again.stat().st_mtime_ns + 1}, "Number 2"]\n')
    found = sweep_kills._faults(folder, expected)
    assert found == [
        f"{lost.name} is lost", "other.json is left", f"{changed.name} has other content",
        f"{again.name} began again after it was done",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_killed_driver_is_gone_with_its_workers_and_the_next_goes_on(tmp_path):
    log, folder = tmp_path / "log", tmp_path / "cells"
    code = f"from tests.test_sweep import *\nsweep.run(cells(Path({str(log)!r}), 8, 0.2), {str(folder)!r}, TWO)"
    driver = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[1])
    while len(list(folder.glob("*.json"))) < 3:
        assert driver.poll() is None
        time.sleep(0.01)
    workers = [int(pid) for pid in Path(f"/proc/{driver.pid}/task/{driver.pid}/children").read_text().split()]
    driver.kill()
    driver.wait()
    assert_gone(workers)
    done = {path: path.stat().st_mtime_ns for path in folder.glob("*.json")}
    before = notes(log)
    found, failures = sweep.run(cells(log, 8), folder, TWO)
    assert not failures and [result["number"] for result in found] == list(range(8))
    assert all(path.stat().st_mtime_ns == when for path, when in done.items())
    assert len(notes(log)) == len(before) + 8 - len(done), "what was done is not begun again"
    assert not list(folder.glob(".*")), "nothing half-written is left"


class Fragile(gym.Env):
    """Kills the process that plays it, once."""

    observation_space = gym.spaces.Box(0, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(3)
    fuse: Path | None = None

    def __init__(self, fuse):
        self.fuse = fuse

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.random(2, np.float32), {}

    def step(self, action):
        if self.fuse.exists():
            self.fuse.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        over = self.np_random.random() < 0.2
        return self.np_random.random(2, np.float32), float(over), over, False, {}


@pytest.mark.slow
def test_on_ray_files_and_episodes_are_the_same_and_killed_workers_are_survived(tmp_path):
    ray = pytest.importorskip("ray")
    log, here, there, fuse = tmp_path / "log", tmp_path / "here", tmp_path / "there", tmp_path / "fuse"
    sweep.run(cells(log), here)
    extra = [
        Cell("killed", {"killed": 1}, partial(killed, log, 1, 90)),
        Cell("odd", {"odd": 1}, partial(raising, 1)),
    ]
    make = partial(Fragile, fuse)
    alone = srl.collect(make, 30, seed=3, progress=False)
    on_ray = Workers(2, LOCAL)
    with ray_of(on_ray):  # one Ray for both
        found, [failure] = sweep.run([*cells(log), *extra], there, on_ray)
        fuse.touch()
        together = srl.collect(make, 30, seed=3, workers=2, ray=LOCAL, progress=False)
    assert not ray.is_initialized(), "it ends with the block"
    assert found[5:] == [90, None] and notes(log).count("90") == 2
    assert failure.reason.startswith("ZeroDivisionError: number 1\nis odd (test_sweep.py, line ")
    extra[0].path(there).unlink()
    assert content_of(here) == content_of(there)
    assert not fuse.exists() and together.equals(alone)
    for env in ("secret_rl/Triggers-v0", gym.make_vec("CartPole-v1", 2)):
        with pytest.raises(ValueError, match="ray does not apply"):
            srl.collect(env, 5, ray=LOCAL)


def test_no_cluster_where_one_was_named_says_what_to_do(tmp_path):
    pytest.importorskip("ray")
    with pytest.raises(ConnectionError, match="ray start --head"):
        sweep.run(cells(tmp_path / "log", 1), tmp_path / "cells", Workers(ray="127.0.0.1:1"))
