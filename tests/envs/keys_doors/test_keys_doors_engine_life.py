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
from secret_rl.envs.keys_doors import doom, guard

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
    for process in processes_of(instance, with_guard=noticed == "step"):
        os.kill(process, signal.SIGKILL)
    if noticed == "reset":  # the guard was spared: it clears up at once
        assert_nothing_left(instance, folder)
    with pytest.raises(RuntimeError, match="call reset"):
        env.step(0) if noticed == "step" else env.reset()
    assert_nothing_left(instance, folder)
    again, _ = env.reset()
    assert (first == again).all()
    env.close()


def processes_of(instance: str, with_guard: bool) -> list[int]:
    """The engine's process, and that of its guard if asked for."""
    processes = [int(line.split()[1]) for line in left_behind(instance, "none") if line.startswith("process")]
    return [one for one in processes if with_guard or "guard.py" not in Path(f"/proc/{one}/cmdline").read_text()]


def stopped_engine(env: gym.Env) -> tuple[str, str]:
    """The traces of an engine that plays no more, and does not end either."""
    instance, folder = env.unwrapped.engine_traces
    (engine,) = processes_of(instance, with_guard=False)
    os.kill(engine, signal.SIGSTOP)
    return instance, folder


@pytest.mark.parametrize("noticed", ["step", "reset"])
def test_a_stopped_engine_is_ended_and_reset_starts_another(noticed, monkeypatch):
    env = gym.make("secret_rl/KeysDoors-v0", preset="2x2-easy", layout_seed=1)
    first, _ = env.reset()
    traces = stopped_engine(env)
    monkeypatch.setattr(doom.Engine, "call_limit", 0.7)
    began = time.monotonic()
    with pytest.raises(RuntimeError, match=r"did not answer within 0.7 s .* call reset\(\)"):
        env.step(0) if noticed == "step" else env.reset()
    assert 0.5 < time.monotonic() - began < 10
    assert_nothing_left(*traces)
    monkeypatch.undo()
    again, _ = env.reset()
    assert (first == again).all()
    env.step(0)
    env.close()


def test_a_stopped_engine_does_not_keep_close_waiting(monkeypatch):
    env = gym.make("secret_rl/KeysDoors-v0", preset="2x2-easy")
    env.reset(seed=0)
    traces = stopped_engine(env)
    monkeypatch.setattr(doom, "_CLOSING", 0.7)
    env.close()
    assert_nothing_left(*traces)


STARTS = """
import sys
import gymnasium as gym, secret_rl, vizdoom
from secret_rl.envs.keys_doors.doom import Engine
vizdoom.__file__ = sys.argv[1]
Engine.call_limit = 0.2
gym.make("secret_rl/KeysDoors-v0", preset="2x2-easy").reset(seed=0)
"""


def test_an_engine_that_is_stopped_as_it_starts_is_ended(tmp_path):
    """ViZDoom crashes then, or gives an error; either way it does not wait, says why and leaves nothing."""
    engine = tmp_path / "vizdoom"  # in its place, a program that does nothing
    engine.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/arguments\nkill -STOP $$\n')
    engine.chmod(0o700)
    command = [sys.executable, "-c", STARTS, str(tmp_path / "__init__.py")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert ended.returncode != 0
    assert f"the engine {engine} did not start within 1 s" in ended.stderr
    instance = guard.instance_of((tmp_path / "arguments").read_text().split())
    assert instance
    assert_nothing_left(instance, str(tmp_path / "none"))


def test_a_process_that_is_stopped_itself_finds_its_engine_again():
    """Ctrl-Z in the middle of a step, and back after longer than a step may take."""
    slow = "from secret_rl.envs.keys_doors.doom import Engine\nEngine.call_limit = 0.5\n"
    rounds = (
        "for _ in range(10**9):\n    env.step(0) if env.unwrapped._steps < 800 else env.reset(); print(flush=True)\n"
    )
    process, instance, folder = started(slow + rounds)
    try:
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        time.sleep(2.5)
        assert len(processes_of(instance, with_guard=True)) == 2
        process.send_signal(signal.SIGCONT)
        for _ in range(1000):  # more than lay in the pipe
            assert process.stdout.readline() == "\n"
    finally:
        process.kill()
        process.communicate()
    assert_nothing_left(instance, folder)


def test_only_a_call_that_goes_on_is_overdue(tmp_path, monkeypatch):
    """Neither many short ones, nor one that waits for a process that was stopped."""
    calls, now = guard.shared_calls(tmp_path), [0.0]
    monkeypatch.setattr(guard.time, "monotonic", lambda: now[0])
    waiting = subprocess.Popen(["sleep", "60"])
    watch = guard.Watch(calls, waiting.pid)
    calls[guard.LIMIT] = 2000

    def looks(count: int, seconds: float = 0.5) -> list[bool]:
        found = []
        for _ in range(count):
            now[0] += seconds
            found.append(watch.overdue())
        return found

    assert not any(looks(10)), "none is under way"
    for number in range(1, 20, 2):
        calls[guard.COUNT] = number
        assert looks(3) == [False] * 3
    assert looks(3) == [False, False, True]
    calls[guard.COUNT] += 1
    assert not any(looks(10))
    calls[guard.COUNT] += 1
    assert looks(2, seconds=1000.0) == [False, False], "the guard itself was stopped"
    waiting.send_signal(signal.SIGSTOP)
    while Path(f"/proc/{waiting.pid}/stat").read_text().split()[2] != "T":
        time.sleep(0.01)
    assert not any(looks(100))
    waiting.kill()
    waiting.wait()


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
