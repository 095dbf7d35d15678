"""Steps per second of one core in the 3D world, a new map each episode and resets included, beside MiniWorld.

Both play mixed actions, and whatever draws their pictures shares the one core with Python. On a machine that others
use, too, time on the clock says little: steps are also counted per second of processor time, engine included.
"""

import os
import sys
import time
from statistics import median
from typing import Any

import gymnasium as gym
import numpy as np

from benchmarks.processes import cpu_seconds, descendants
from benchmarks.results_file import Row, write
from secret_rl.envs.keys_doors.env import _PUSH_AND_TURN

ROUNDS = 7
SECONDS = 2.0
OURS = "KeysDoors dmlab-like, 160x120, frame skip 4"
ENGINE = "the engine alone, in one map"
PEERS = {
    "MiniWorld PutNext, 80x60 (its default)": ("MiniWorld-PutNext-v0", {}),
    "MiniWorld PutNext, 160x120": ("MiniWorld-PutNext-v0", {"obs_width": 160, "obs_height": 120}),
    "MiniWorld MazeS3, 80x60 (its default)": ("MiniWorld-MazeS3-v0", {}),
}


def run() -> None:
    """Measure every contender in turn and write the medians down."""
    import secret_rl  # noqa: F401

    contenders = {OURS: Contender(gym.make("secret_rl/KeysDoors-v0", preset="dmlab-like"))}
    contenders |= {name: Contender(miniworld(env_id, options)) for name, (env_id, options) in PEERS.items()}
    contenders[ENGINE] = Contender(EngineAlone(gym.make("secret_rl/KeysDoors-v0", preset="dmlab-like")))
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, contender in contenders.items():
            measured[name].append(contender.speeds())
    for contender in contenders.values():
        contender.env.close()
    clock = {name: median(speed for speed, _ in speeds) for name, speeds in measured.items()}
    busy = {name: median(speed for _, speed in speeds) for name, speeds in measured.items()}
    rows = [Row(f"{OURS}: per core second", busy[OURS], "steps/s", ">= 3,000", busy.pop(ENGINE), ENGINE)]
    rows += [Row(f"{name}: per core second", busy[name], "steps/s") for name in PEERS]
    rows += [Row(f"{OURS}: on the clock", clock[OURS], "steps/s", "", clock.pop(ENGINE), ENGINE)]
    rows += [Row(f"{name}: on the clock", clock[name], "steps/s") for name in PEERS]
    rows.append(Row("programs that wanted a core meanwhile (load average, 1 minute)", os.getloadavg()[0]))
    rows += [Row(f"ours over {name}", busy[OURS] / busy[name], "x", ">= 3x") for name in PEERS]
    write("keys_doors", "The 3D world, one core: steps per second, a new map each episode and resets included", rows)


class EngineAlone(gym.Wrapper[Any, Any, Any, Any]):
    """Plays on in one map: actions go to the engine as they are, and nothing but its picture is read."""

    def reset(self, **options: Any) -> Any:
        """Start the engine."""
        found = super().reset(**options)
        world: Any = self.unwrapped
        self._play, self._tics = world._engine._game.make_action, world.options.frame_skip
        return found

    def step(self, action: int) -> Any:
        """One action."""
        self._play(list(_PUSH_AND_TURN[action]), self._tics)
        return None, 0.0, False, False, {}


class Contender:
    """An environment that plays on, from episode to episode."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        self.env = env
        before = set(descendants())
        env.reset(seed=0)
        self._engine = [pid for pid in descendants() if pid not in before]
        rng = np.random.default_rng(0)
        self._actions = rng.integers(0, env.action_space.n, 256).repeat(4).tolist()  # type: ignore[attr-defined]

    def speeds(self) -> tuple[float, float]:
        """Steps per second on the clock, and per second of processor time."""
        steps, start, busy = 0, time.perf_counter(), cpu_seconds(self._engine)
        while time.perf_counter() - start < SECONDS:
            for action in self._actions:
                _, _, terminated, truncated, _ = self.env.step(action)
                if terminated or truncated:
                    self.env.reset()
            steps += len(self._actions)
        return steps / (time.perf_counter() - start), steps / (cpu_seconds(self._engine) - busy)


def miniworld(env_id: str, options: dict[str, Any]) -> gym.Env[Any, Any]:
    """A MiniWorld environment that draws without a screen."""
    try:
        import pyglet

        pyglet.options["headless"] = True  # before anything opens a window
        import miniworld  # noqa: F401

        return gym.make(env_id, **options)
    except Exception as missing:  # the GL loaders raise many kinds
        sys.exit(
            f"MiniWorld cannot draw here ({missing!r}). It is in the extra [bench] and needs OpenGL over EGL; on "
            "Debian: apt-get install libegl1 libgl1 libglu1-mesa libgl1-mesa-dri"
        )
