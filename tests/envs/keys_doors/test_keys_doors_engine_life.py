"""Nothing outlives its owner: no engine, no shared memory, no folder, however the Python process ends."""

import ast
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium as gym
import pytest

import secret_rl  # noqa: F401  registers the environment

pytest.importorskip("vizdoom")
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the guard is for Linux")

START = """
import os, signal, sys, time
import gymnasium as gym, secret_rl
signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background are started without
env = gym.make("secret_rl/KeysDoors-v0", preset="2x2-easy")
env.reset(seed=0)
print(*env.unwrapped.engine_traces, flush=True)
"""
FOREVER = "while True:\n    env.step(0) if env.unwrapped._steps < 800 else env.reset()\n"


def left_behind(instance: str, folder: str) -> list[str]:
    found = [str(path) for path in Path("/dev/shm").glob(f"*{instance}*")]
    found += [folder] if Path(folder).exists() else []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if instance in (process / "cmdline").read_text():
                found.append(f"process {process.name}")
        except OSError:
            continue
    return found


def assert_nothing_left(instance: str, folder: str) -> None:
    limit = time.monotonic() + 10
    while (left := left_behind(instance, folder)) and time.monotonic() < limit:
        time.sleep(0.05)
    assert left == []


def started(code: str) -> tuple[subprocess.Popen[str], str, str]:
    process = subprocess.Popen(
        [sys.executable, "-c", START + code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    instance, folder = process.stdout.readline().split()
    assert left_behind(instance, folder)
    return process, instance, folder


@pytest.mark.parametrize(
    ("code", "sent"),
    [
        (FOREVER, signal.SIGKILL),
        (FOREVER, signal.SIGINT),
        (FOREVER, signal.SIGTERM),
        ("time.sleep(60)", signal.SIGINT),
        ("os.abort()", None),
        ("raise SystemExit", None),
    ],
    ids=["killed", "Ctrl-C in a step", "terminated", "Ctrl-C between steps", "crash", "exit without close"],
)
def test_nothing_is_left(code, sent):
    process, instance, folder = started(code)
    if sent is not None:
        time.sleep(0.1)
        process.send_signal(sent)
    _, errors = process.communicate(timeout=20)
    if sent == signal.SIGINT:
        assert "KeyboardInterrupt" in errors
    assert_nothing_left(instance, folder)


def test_close_leaves_nothing_and_may_be_called_twice():
    env = gym.make("secret_rl/KeysDoors-v0", preset="2x2-easy")
    env.reset(seed=0)
    instance, folder = env.unwrapped.engine_traces
    env.close()
    assert left_behind(instance, folder) == []
    env.unwrapped.close()
    with pytest.raises(gym.error.ClosedEnvironmentError, match="make another"):
        env.unwrapped.reset()


def test_a_dead_engine_is_reported_and_reset_starts_another():
    env = gym.make("secret_rl/KeysDoors-v0", preset="2x2-easy", layout_seed=1)
    first, _ = env.reset()
    instance, folder = env.unwrapped.engine_traces
    for line in left_behind(instance, folder):
        if line.startswith("process"):
            os.kill(int(line.split()[1]), signal.SIGKILL)
    with pytest.raises(RuntimeError, match="call reset"):
        env.step(0)
    assert_nothing_left(instance, folder)
    again, _ = env.reset()
    assert (first == again).all()
    env.close()


def test_workers_of_a_killed_vector_environment_clear_up():
    code = """
import gymnasium as gym, secret_rl, os, signal
envs = gym.make_vec("secret_rl/KeysDoors-v0", 2, vectorization_mode="async", preset="2x2-easy")
envs.reset(seed=0)
engines = envs.get_attr("engine_traces")
print(engines, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    names = ast.literal_eval(out.stdout)
    assert len(names) == 2
    for instance, folder in names:
        assert_nothing_left(instance, folder)


def test_the_working_directory_stays_as_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    env = gym.make("secret_rl/KeysDoors-v0", preset="2x2-easy")
    env.reset(seed=0)
    env.step(0)
    env.close()
    assert list(tmp_path.iterdir()) == []
