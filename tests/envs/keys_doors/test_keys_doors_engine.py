"""The engine's frames, and that nothing outlives its owner: no engine, no shared memory, no folder."""

import ast
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import secret_rl  # noqa: F401  registers the environment
from secret_rl.envs.keys_doors import Solver
from secret_rl.envs.keys_doors.engine import shrink

pytest.importorskip("vizdoom")
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the watchdog is for Linux")
ID = "secret_rl/KeysDoors-v0"


@pytest.mark.parametrize("times", [1, 2, 4, 16])
def test_every_pixel_is_the_mean_of_the_block_it_covers(times):
    picture = np.random.default_rng(0).integers(0, 256, (12 * times, 16 * times, 3), np.uint8)
    picture[:times, :times] = 255  # the largest sum
    means = picture.reshape(12, times, 16, times, 3).sum((1, 3), np.int64) // times**2
    shrunk = shrink(picture, times)
    np.testing.assert_array_equal(shrunk, means.astype(np.uint8), strict=True)
    assert not np.shares_memory(shrunk, picture)


@pytest.mark.parametrize("size", [(40, 30), (16, 12), (64, 40), (320, 240)])
def test_frames_of_any_size_show_the_same_scene(size):
    """Colours of a scene's halves agree with those of the usual frame, up to what a wider view adds."""
    frames = []
    for shape in ((160, 120), size):
        with gym.make(ID, preset="2x2-easy", layout_seed=2, size=shape, render_mode="rgb_array") as env:
            frame, policy = env.reset()[0], Solver(env)
            for _ in range(20):
                frame = env.step(policy())[0]
            assert frame.shape == (shape[1], shape[0], 3) == env.observation_space.shape
            assert np.array_equal(env.render(), frame)
            frames.append(frame)
    halves = [[half.mean((0, 1)) for half in np.array_split(frame, 2)] for frame in frames]
    np.testing.assert_allclose(*halves, atol=12)
    assert frames[1].std() > 10  # not blank


# ---- the life of an engine ----


def processes_of(instance):
    """The processes of an engine and its watchdog: id -> command line."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if instance in (line := (process / "cmdline").read_text()):
                found[int(process.name)] = line
        except OSError:
            continue
    return found


def left_behind(instance, folder):
    files = [str(path) for path in Path("/dev/shm").glob(f"*{instance}*")]
    return files + [folder] * Path(folder).exists() + list(processes_of(instance))


def soon(condition, seconds=10):
    limit = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < limit:
        time.sleep(0.05)
    return holds


def assert_nothing_left(instance, folder):
    assert soon(lambda: not left_behind(instance, folder)), left_behind(instance, folder)


def heed_interrupts():
    """Tests in the background ignore Ctrl-C, and so would what they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def run(code, engines=1, **pipes):
    """A program that leads a process group of its own, and the traces of its engines, which it prints first."""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        start_new_session=True, preexec_fn=heed_interrupts, **pipes,
    )  # fmt: skip
    traces = [ast.literal_eval(process.stdout.readline()) for _ in range(engines)]
    assert len(set(traces)) == engines
    return process, traces


START = """
import os, sys, time
import gymnasium as gym, secret_rl
env = gym.make("secret_rl/KeysDoors-v0", preset="2x2-easy", engine_timeout=1.0)
env.reset(seed=0)
print(env.unwrapped.engine_traces, flush=True)
"""
FOREVER = """
while True:
    print(flush=True)
    if any(env.step(0)[2:4]):
        env.reset()
"""


@linux
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
    process, [traces] = run(START + code, stderr=subprocess.PIPE)
    if sent is not None:
        assert left_behind(*traces)
        time.sleep(0.1)
        process.send_signal(sent)
    _, errors = process.communicate(timeout=20)
    assert sent != signal.SIGINT or "KeyboardInterrupt" in errors
    assert_nothing_left(*traces)


@linux
@pytest.mark.parametrize(
    ("harm", "noticed"),
    [("all killed", "step"), ("killed", "reset"), ("stopped", "step"), ("stopped", "reset"), ("stopped", "close")],
)
def test_a_lost_engine_is_reported_and_reset_starts_another(harm, noticed):
    """Whether it was killed, with its watchdog or without, or hangs: no call waits forever, and nothing is left."""
    env = gym.make(ID, preset="2x2-easy", layout_seed=1, engine_timeout=2.0)
    first, _ = env.reset()
    instance, folder = env.unwrapped.engine_traces
    for process, line in processes_of(instance).items():
        if harm == "all killed" or "watchdog.py" not in line:
            os.kill(process, signal.SIGSTOP if harm == "stopped" else signal.SIGKILL)
    if harm == "killed":  # the watchdog was spared: it cleans up at once
        assert_nothing_left(instance, folder)
    if noticed == "close":
        env.close()
        assert_nothing_left(instance, folder)
        return
    words = r"did not answer within 2 s .* call reset\(\)" if harm == "stopped" else "call reset"
    with pytest.raises(RuntimeError, match=words):
        env.step(0) if noticed == "step" else env.reset()
    assert_nothing_left(instance, folder)
    again, _ = env.reset()
    assert (first == again).all()
    env.step(0)
    env.close()


@linux
def test_a_watchdog_sleeps_while_all_is_well():
    """Hundreds of them share a core where many environments are played."""
    with gym.make(ID, preset="2x2-easy", layout_seed=1) as env:
        env.reset()
        env.step(0)  # the limit of a step, not of the start
        time.sleep(0.3)
        engines = processes_of(env.unwrapped.engine_traces[0]).items()
        (watchdog,) = (process for process, line in engines if "watchdog.py" in line)
        status = Path(f"/proc/{watchdog}/status")
        wakes = [int(status.read_text().split("\nvoluntary_ctxt_switches:")[1].split()[0])]
        time.sleep(2)
        wakes.append(int(status.read_text().split("\nvoluntary_ctxt_switches:")[1].split()[0]))
    assert wakes[1] - wakes[0] <= 4


@linux
def test_an_engine_that_hangs_as_it_starts_is_ended(tmp_path):
    """ViZDoom crashes then, or raises; either way it does not wait, says why and leaves nothing."""
    engine = tmp_path / "vizdoom"  # in its place, a program that does nothing
    engine.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/arguments\nkill -STOP $$\n')
    engine.chmod(0o700)
    code = f"""
import gymnasium as gym, secret_rl, vizdoom
vizdoom.__file__ = "{tmp_path}/__init__.py"
gym.make("secret_rl/KeysDoors-v0", preset="2x2-easy", engine_timeout=0.2).reset(seed=0)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert ended.returncode != 0
    assert f"the engine {engine} did not answer within 1 s" in ended.stderr
    instance = (tmp_path / "arguments").read_text().partition("+viz_instance_id ")[2].split()[0]
    assert_nothing_left(instance, str(tmp_path / "none"))


@linux
def test_a_process_that_is_stopped_itself_finds_its_engine_again():
    """Ctrl-Z in the middle of a step, and back after longer than a step may take."""
    process, [(instance, folder)] = run(START + FOREVER)
    try:
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        time.sleep(2)
        assert len(processes_of(instance)) == 2
        process.send_signal(signal.SIGCONT)
        for _ in range(1000):  # more than lay in the pipe
            assert process.stdout.readline() == "\n"
    finally:
        process.kill()
        process.communicate()
    assert_nothing_left(instance, folder)


WORKERS = """
import secret_rl as srl
from secret_rl.envs.keys_doors import Wanderer

class Loud(Wanderer):
    printed = False

    def __call__(self, observation):
        if not self.printed:
            print(f"{self._env.engine_traces}\\n", end="", flush=True)
            self.printed = True
        return super().__call__(observation)

if __name__ == "__main__":
    options = {"preset": "2x2-easy", "size": (40, 30)}
    srl.collect("secret_rl/KeysDoors-v0", 10_000, Loud, 0, env_options=options, workers=2, progress=False)
"""
VECTOR = """
import gymnasium as gym, secret_rl
envs = gym.make_vec("secret_rl/KeysDoors-v0", 2, vectorization_mode="async", preset="2x2-easy", size=(40, 30))
envs.reset()
for traces in envs.get_attr("engine_traces"):
    print(traces, flush=True)
while True:
    envs.step([0, 1])
"""


@linux
@pytest.mark.parametrize("code", [WORKERS, VECTOR], ids=["collect", "gymnasium"])
@pytest.mark.parametrize("end", ["kill", "Ctrl-C"])
def test_workers_leave_nothing(code, end):
    """Neither engines nor workers, whether their process is killed or the group interrupted."""
    process, engines = run(code, engines=2, stderr=subprocess.DEVNULL)
    try:
        assert all(left_behind(*engine) for engine in engines)
        time.sleep(0.2)
        os.kill(process.pid, signal.SIGKILL) if end == "kill" else os.killpg(process.pid, signal.SIGINT)
        for engine in engines:
            assert_nothing_left(*engine)
        process.communicate(timeout=20)
    finally:
        process.kill()
