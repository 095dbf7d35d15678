"""Workers end with the block that they work for: however it ends, whatever they are doing."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from secret_rl.processes import WorkerPool

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

# An environment whose first step says who plays, and then does what the test is about.
COLLECT = """
import os, subprocess, sys, time
import gymnasium as gym, numpy as np
import secret_rl as srl

class Hanging(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (SIZE,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(SIZE, np.float32), {}

    def step(self, action):
        if not hasattr(self, "seen"):
            self.seen = True
            print(f"{os.getpid()}\\n", end="", flush=True)
        HANG
        return np.zeros(SIZE, np.float32), 0.0, True, False, {}

if __name__ == "__main__":
    srl.collect(Hanging, 100_000, workers=2, progress=False)
"""
HANGS = {
    "asleep": "time.sleep(10**6)",
    "busy": "while True: pass",
    "deaf": "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(10**6)",
    "with a program that holds what it inherits": (
        "subprocess.Popen(['sleep', '20'], close_fds=False, stdout=-3, stderr=-3); time.sleep(10**6)"
    ),
    "stopped": "os.kill(os.getpid(), 19)",
}


@pytest.mark.parametrize("hang", HANGS)
def test_an_interrupt_of_the_parent_alone_ends_workers_that_hang(hang):
    process, workers = collecting(HANGS[hang])
    assert_interrupted(process, workers)


def test_workers_that_are_stopped_in_the_middle_of_a_result_are_ended():
    """Half of a result is in the pipe: the other half never comes."""
    process, workers = collecting("pass", size=4_000_000)
    time.sleep(0.5)
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)
    assert_interrupted(process, workers)


def test_a_worker_that_dies_leaves_no_other_behind():
    process, workers = collecting("os.kill(os.getpid(), 19)")
    wait_until_stopped(workers)
    os.kill(workers[0], signal.SIGKILL)
    assert_ends(process, workers, "worker processes died")


def test_an_error_in_the_block_ends_the_workers_at_once():
    seen = []

    def failing():
        with WorkerPool(1) as pool:
            seen.append(pool.submit(os.getpid).result())
            pool.submit(time.sleep, 15)
            raise ZeroDivisionError

    started = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        failing()
    assert time.monotonic() - started < 10
    assert_gone(seen)


def test_a_block_that_ends_well_waits_for_the_calls_under_way_and_drops_the_others():
    with WorkerPool(1) as pool:
        calls = [pool.submit(time.sleep, 0.1) for _ in range(50)]
        calls[0].result()
    ended = [not call.cancelled() for call in calls]
    assert 1 <= sum(ended) < 10 and ended == sorted(ended, reverse=True)


def collecting(hang: str, size: int = 1) -> tuple[subprocess.Popen, list[int]]:
    """A process that collects with two workers, and their numbers."""
    process = begun(COLLECT.replace("HANG", hang).replace("SIZE", str(size)))
    return process, [int(process.stdout.readline()) for _ in range(2)]


def begun(code: str) -> subprocess.Popen:
    """A program that leads a group of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip


def assert_interrupted(process: subprocess.Popen, workers: list[int]) -> None:
    """It ends soon after a signal to it alone, as Python does when interrupted."""
    process.send_signal(signal.SIGINT)
    assert_ends(process, workers, "KeyboardInterrupt")
    assert process.returncode == -signal.SIGINT


def assert_ends(process: subprocess.Popen, workers: list[int], error: str) -> str:
    """It ends soon with this error, and its workers with it; gives its output."""
    try:
        output, errors = process.communicate(timeout=20)
        assert error in errors
        assert_gone(workers)
        return output
    finally:
        with suppress(ProcessLookupError):  # as it should be
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def assert_gone(workers: list[int]) -> None:
    limit = time.monotonic() + 2
    while any(state_of(worker) for worker in workers) and time.monotonic() < limit:
        time.sleep(0.02)
    assert [worker for worker in workers if state_of(worker)] == []


def wait_until_stopped(workers: list[int]) -> None:
    while any(state_of(worker) != "T" for worker in workers):
        time.sleep(0.02)


def state_of(process: int) -> str | None:
    """R, S, T and so on; None for one that has ended."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None
    return None if state == "Z" else state
