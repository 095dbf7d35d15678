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


def heed_interrupts() -> None:
    """Tests in the background ignore Ctrl-C, and so would what they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def started(code: str) -> tuple[subprocess.Popen[str], str, str]:
    process = subprocess.Popen(
        [sys.executable, "-c", START + code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=heed_interrupts,
    )  # fmt: skip
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


@pytest.mark.parametrize("noticed", ["step", "reset"])
def test_a_dead_engine_is_reported_and_reset_starts_another(noticed):
    env = gym.make("secret_rl/KeysDoors-v0", preset="2x2-easy", layout_seed=1)
    first, _ = env.reset()
    instance, folder = env.unwrapped.engine_traces
    processes = [int(line.split()[1]) for line in left_behind(instance, folder) if line.startswith("process")]
    for process in processes:
        if noticed == "step" or "guard.py" not in Path(f"/proc/{process}/cmdline").read_text():
            os.kill(process, signal.SIGKILL)
    if noticed == "reset":  # the guard was spared: it clears up at once
        assert_nothing_left(instance, folder)
    with pytest.raises(RuntimeError, match="call reset"):
        env.step(0) if noticed == "step" else env.reset()
    assert_nothing_left(instance, folder)
    again, _ = env.reset()
    assert (first == again).all()
    env.close()


OPTIONS = 'preset="2x2-easy", size=(40, 30)'
VECTORS = {
    "gymnasium": f"""
import gymnasium as gym, secret_rl, sys
envs = gym.make_vec("secret_rl/KeysDoors-v0", 2, vectorization_mode="async", {OPTIONS})
envs.reset(seed=0)
""",
    "stable-baselines3": f"""
import gymnasium as gym, sys
from stable_baselines3.common.vec_env import SubprocVecEnv
envs = SubprocVecEnv([lambda: gym.make("secret_rl:secret_rl/KeysDoors-v0", {OPTIONS})] * 2)
envs.reset()
""",
}
PLAY = """
print(list(envs.get_attr("engine_traces")), flush=True)
if sys.argv[1:] == ["close"]:
    envs.step([0, 1])
    envs.close()
    print("closed", flush=True)
    sys.stdin.read()
    sys.exit()
while True:
    envs.step([0, 1])
"""


@pytest.mark.parametrize("end", ["close", "kill", "Ctrl-C"])
@pytest.mark.parametrize("kind", VECTORS)
def test_workers_of_a_vector_environment_leave_nothing(kind, end):
    """Neither engines nor workers, whether the environment is closed, its process killed or the group interrupted."""
    process = begun(VECTORS[kind] + PLAY, *(["close"] if end == "close" else []))
    try:
        engines = ast.literal_eval(process.stdout.readline())
        assert len(engines) == 2 and len({instance for instance, _ in engines}) == 2
        if end == "close":
            assert process.stdout.readline() == "closed\n"
            for engine in engines:
                assert_nothing_left(*engine)
        else:
            assert all(left_behind(*engine) for engine in engines)
            time.sleep(0.2)
            stop(process, end)
        assert_all_gone(process, engines)
    finally:
        process.kill()


COLLECT = f"""
import secret_rl as srl
from secret_rl.envs.keys_doors import Wanderer

class Loud(Wanderer):
    told = False

    def __call__(self, observation):
        if not self.told:
            print(f"{{self._env.engine_traces}}\\n", end="", flush=True)
            self.told = True
        return super().__call__(observation)

if __name__ == "__main__":
    options = dict({OPTIONS})
    srl.collect("secret_rl/KeysDoors-v0", 10_000, Loud, 0, env_options=options, workers=2, progress=False)
"""


@pytest.mark.parametrize("end", ["kill", "Ctrl-C"])
def test_workers_that_collect_leave_nothing(end):
    process = begun(COLLECT)
    try:
        engines = [ast.literal_eval(process.stdout.readline()) for _ in range(2)]
        assert all(left_behind(*engine) for engine in engines)
        stop(process, end)
        assert_all_gone(process, engines)
    finally:
        process.kill()


def begun(code: str, *arguments: str) -> subprocess.Popen:
    """A program that leads a group of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        preexec_fn=heed_interrupts,
    )


def stop(process: subprocess.Popen, end: str) -> None:
    """Kill it, or interrupt its group as a terminal does."""
    os.kill(process.pid, signal.SIGKILL) if end == "kill" else os.killpg(process.pid, signal.SIGINT)


def assert_all_gone(process: subprocess.Popen, engines: list) -> None:
    """The process, what its engines leave behind, and its workers."""
    process.communicate(timeout=20)
    for engine in engines:
        assert_nothing_left(*engine)
    limit = time.monotonic() + 10
    while (workers := group(process.pid)) and time.monotonic() < limit:
        time.sleep(0.05)
    assert workers == []


def group(leader: int) -> list[str]:
    """The processes of a group, but for those that have ended."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, number = status.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(number) == leader and state != "Z":
            found.append(status.parent.name)
    return found


def test_the_working_directory_stays_as_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    env = gym.make("secret_rl/KeysDoors-v0", preset="2x2-easy")
    env.reset(seed=0)
    env.step(0)
    env.close()
    assert list(tmp_path.iterdir()) == []
