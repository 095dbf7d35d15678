"""ViZDoom, the engine behind keys and doors; no other file knows it."""

import os
import shlex
import shutil
import sys
import tempfile
import time
import weakref
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from secret_rl.envs.keys_doors import watchdog
from secret_rl.envs.keys_doors.puzzle import Status
from secret_rl.envs.keys_doors.wad import MAP, Wad

FORWARD_SPEED = 30.0  # the engine's push; the steady pace, after some steps, is 10 units a tic, with a slide to a stop
TURN = 3.0  # degrees a tic
_WARM_UP = 10  # the first tics of a map take no input
_CLOSING = 5.0  # seconds that the engine has to end by itself
_START_FACTOR = 5  # starting may take so much longer: ViZDoom 1.3 crashes, and Python with it, if it is cut short
_MOST_TIMES = 16  # an observation is at most so many times smaller than what the engine draws: sums fit in 16 bits
_HIDDEN = ("hud", "weapon", "crosshair", "decals", "particles", "messages", "corpses", "screen_flashes")
_VARIABLES = ("POSITION_X", "POSITION_Y", "ANGLE", "USER1", "USER2", "USER3", "USER4", "USER5")


class Snapshot(NamedTuple):
    """What the engine shows and knows after a step."""

    frame: NDArray[np.uint8]  # (height, width, RGB)
    position: tuple[float, float]
    angle: float  # degrees: 0 east, 90 north
    held: int  # colour of the held key, 0 for none
    status: Status
    goal: bool


class Engine:
    """One engine process, started with its first map, with its files in a folder of its own.

    A watchdog process ends it when Python ends, and when a call takes longer than ``timeout`` seconds (Linux only).
    """

    def __init__(self, size: tuple[int, int], capacity: int, timeout: float) -> None:
        self._resolution, self._times = _resolution(size)
        self._capacity, self._timeout = capacity, timeout
        self._game: Any = None
        self._healthy = False  # the latest call returned: no failure, and no Ctrl-C in it
        self.instance = ""  # in the names of the engine's process and its shared memory
        self.folder: Path | None = None

    def load(self, textmap: bytes) -> Snapshot:
        """Begin an episode on this map."""
        if self._healthy:
            self._call(self._timeout, self._replace, textmap)
        else:
            self.close()
            self._start(textmap)
        return self._snapshot()

    def step(self, push: float, turn: float, tics: int) -> Snapshot:
        """Hold an action for some tics: push forward (back, if negative) and turn to the right."""
        self._call(self._timeout, self._game.make_action, [push, turn], tics)
        return self._snapshot()

    def close(self) -> None:
        """End the engine and remove its files."""
        self._healthy = False
        if self.folder is not None:
            try:
                self._finalizer()
            finally:
                self._game = self.folder = None
                watchdog.remove_shared_memory(self.instance)

    def _start(self, textmap: bytes) -> None:
        vizdoom = _vizdoom()
        self._game = game = vizdoom.DoomGame()
        self.folder = folder = Path(tempfile.mkdtemp(prefix="secret-rl-doom-"))
        self._calls = watchdog.shared_calls(folder)
        limit = min(_CLOSING, self._timeout)
        self._finalizer = weakref.finalize(self, _end, game, folder, self._calls, limit, os.getpid())  # without close()
        self._wad = Wad(folder / "keys_doors.wad", self._capacity)
        self._wad.put(textmap)
        game.set_vizdoom_path(_launcher(folder, str(Path(vizdoom.__file__).with_name("vizdoom"))))
        game.set_doom_config_path(str(folder / "vizdoom.ini"))  # else it lands in the working directory
        game.set_doom_scenario_path(str(self._wad.path))
        game.set_doom_map(MAP)
        game.set_screen_resolution(self._resolution)
        game.set_screen_format(vizdoom.ScreenFormat.RGB24)
        for name in _HIDDEN:
            getattr(game, f"set_render_{name}")(False)
        game.set_available_buttons([vizdoom.Button.MOVE_FORWARD_BACKWARD_DELTA, vizdoom.Button.TURN_LEFT_RIGHT_DELTA])
        game.set_available_game_variables([getattr(vizdoom.GameVariable, name) for name in _VARIABLES])
        game.set_episode_timeout(0)
        game.set_episode_start_time(_WARM_UP)
        game.set_window_visible(False)
        game.set_sound_enabled(False)
        game.set_mode(vizdoom.Mode.PLAYER)
        game.set_seed(0)  # nothing in these maps is random
        game.add_game_args("+movebob 0")
        self._call(_START_FACTOR * self._timeout, game.init)
        self.instance = str(game.get_instance_id())

    def _replace(self, textmap: bytes) -> None:
        self._wad.put(textmap)
        self._game.set_doom_map(MAP)  # this loads the map, too

    def _snapshot(self) -> Snapshot:
        state = self._game.get_state()
        if state is None:
            self.close()
            raise RuntimeError("the engine ended its episode on its own: call reset() to begin another")
        x, y, angle, held, opened, taken, goal, key = state.game_variables.tolist()
        frame = shrink(state.screen_buffer, self._times)  # a copy: the engine draws the next one into the same memory
        return Snapshot(frame, (x, y), angle, int(held), Status(int(key) - 1, int(taken), int(opened)), bool(goal))

    def _call(self, timeout: float, call: Any, *arguments: Any) -> None:
        """Call the engine; if that fails or takes too long, clean up and raise RuntimeError."""
        self._healthy, begun = False, time.monotonic()
        try:
            _timed(timeout, self._calls, call, *arguments)
            self._healthy = True
        except Exception as failed:
            what = f"failed ({failed}): call reset() to start it again"
            if time.monotonic() - begun > timeout:
                what = f"did not answer within {timeout:g} s and was ended: call reset(), or raise engine_timeout"
            raise RuntimeError(f"the engine {what}") from failed
        finally:
            if not self._healthy:  # Ctrl-C, too
                self.close()


def _timed(seconds: float, calls: memoryview, call: Any, *arguments: Any) -> None:
    """Call the engine, which the watchdog ends if that takes longer."""
    before = calls[watchdog.COUNT]
    calls[watchdog.LIMIT] = int(1000 * seconds)
    try:
        calls[watchdog.COUNT] = before + 1
        call(*arguments)
    finally:
        calls[watchdog.COUNT] = before + 2


def _end(game: Any, folder: Path, calls: memoryview, seconds: float, owner: int) -> None:
    """End the engine and remove its folder, unless this is a fork of the process that plays."""
    if os.getpid() == owner:
        try:
            _timed(seconds, calls, game.close)
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # last: the engine writes into it as it ends


def _launcher(folder: Path, engine: str) -> str:
    """A program that starts the engine under the watchdog (Linux; elsewhere the engine itself)."""
    if not sys.platform.startswith("linux"):
        return engine
    words = [sys.executable, "-I", "-S", watchdog.__file__, str(os.getpid()), str(folder), engine]
    launcher = folder / "engine"
    launcher.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
    launcher.chmod(0o700)
    return str(launcher) if os.access(launcher, os.X_OK) else engine  # /tmp may be mounted noexec


def _vizdoom() -> Any:
    """The library, imported when an environment is made: puzzles and maps do without."""
    try:
        import vizdoom
    except ModuleNotFoundError as missing:
        words = 'secret_rl/KeysDoors-v0 needs ViZDoom: pip install "secret-rl[doom]"'
        raise ModuleNotFoundError(words, name="vizdoom") from missing
    return vizdoom


def _resolution(size: tuple[int, int]) -> tuple[Any, int]:
    """The engine's name of what it draws for frames of ``size`` (width, height), and how many times larger that is."""
    drawn = _vizdoom().ScreenResolution.__members__
    for times in range(1, _MOST_TIMES + 1):
        if (name := f"RES_{times * size[0]}X{times * size[1]}") in drawn:
            return drawn[name], times
    raise ValueError(
        f"size={size} (width, height) is not drawn by the engine, nor a half, a third, ... of what is: use e.g. "
        "(160, 120), (80, 60) or (40, 30), and gymnasium.wrappers.ResizeObservation for any other"
    )


def shrink(picture: NDArray[np.uint8], times: int) -> NDArray[np.uint8]:
    """A new picture (height, width, 3), of which each pixel is the mean of ``times`` x ``times``, rounded down."""
    if times == 1:
        return picture.copy()
    height, width = picture.shape[0] // times, picture.shape[1] // times
    rows = picture.reshape(height, times, -1)
    lines = rows[:, 0].astype(np.uint16)  # sums over the rows of one line of the small picture, of full width
    for row in range(1, times):
        lines += rows[:, row]
    totals = np.einsum("ijk->ik", lines.reshape(height * width, times, 3))
    small: NDArray[np.uint8] = (totals // np.uint16(times * times)).astype(np.uint8)
    return small.reshape(height, width, 3)
