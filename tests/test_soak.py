"""The soak in small, and that it notices what it is there to notice."""

import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.processes import cpu_seconds, descendants, left_of, resident
from benchmarks.soak import Sample, faults, growth, soak

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it reads /proc")


def samples(python=lambda episode: 100.0, engines=lambda episode: 90.0, files=lambda episode: 9):
    return [Sample(i, python(i), engines(i), files(i)) for i in range(100, 10_001, 100)]


def test_sixty_episodes_leave_nothing_and_memory_stays_level():
    pytest.importorskip("vizdoom")
    taken, left = soak(60, samples=20)
    assert faults(taken, left) == []
    assert len(taken) == 20 and taken[-1].episode == 60
    assert all(sample.python_mb > 20 and sample.engines_mb > 20 and sample.shared_memory_files for sample in taken)


def test_level_memory_passes_and_a_warm_up_is_allowed():
    assert faults(samples(python=lambda i: min(100 + i / 20, 200)), []) == []
    assert growth(samples())["python_mb"] == pytest.approx(0)


@pytest.mark.parametrize(
    ("taken", "left", "words"),
    [
        (samples(python=lambda i: 100 + i * 2e-3), [], "python_mb grew by 16.0 MB"),  # 2 kB an episode
        (samples(engines=lambda i: 90 + i * 2e-3), [], "engines_mb grew by 16.0 MB"),
        (samples(files=lambda i: 9 + (i > 5000)), [], "from 9 to 10"),
        (samples(), ["/dev/shm/ViZDoomA"], "/dev/shm/ViZDoomA was left"),
    ],
)
def test_faults_are_noticed(taken, left, words):
    assert [words in fault for fault in faults(taken, left)] == [True]


def test_processes_started_are_counted(tmp_path):
    """A busy grandchild is found, its processor time counts, and so does what carries its name."""
    name = f"soak-test-{tmp_path.name}"
    busy = (
        f"import time; {name!r}\nprint(flush=True)\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ninput()"
    )
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}])"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        child.stdout.readline()
        (grandchild,) = descendants(child.pid)
        assert {child.pid, grandchild} <= set(descendants())
        assert resident(grandchild) > 1e6
        assert f"process {grandchild}" in left_of(name, str(tmp_path)) and str(tmp_path) in left_of(name, str(tmp_path))
        child.stdout.readline()
        assert cpu_seconds([grandchild]) - cpu_seconds([]) > 0.4
    finally:
        child.communicate(b"\n")
    assert left_of(name, str(Path("/nowhere"))) == []
    assert grandchild not in descendants()
