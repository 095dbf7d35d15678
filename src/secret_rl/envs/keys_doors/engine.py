"""ViZDoom, the engine behind keys and doors; no other file knows it."""

import os
import re
import shlex
import shutil
import sys
import tempfile
import weakref
from collections.abc import Iterable
from functools import cache
from math import log
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from secret_rl.envs.keys_doors import watchdog
from secret_rl.envs.keys_doors.wad import MAP, Wad

FORWARD_SPEED = 30.0  # the engine's push; the steady pace, after some steps, is 10 units a tic, with a slide to a stop
TURN = 3.0  # degrees a tic
_WARM_UP = 10  # the first tics of a map take no input
_CLOSING = 5.0  # seconds that the engine has to end by itself
_START_FACTOR = 5  # starting may take so much longer: ViZDoom 1.3 crashes, and Python with it, if it is cut short
_HIDDEN = ("hud", "weapon", "crosshair", "decals", "particles", "messages", "corpses", "screen_flashes")
_VARIABLES = ("POSITION_X", "POSITION_Y", "ANGLE", "USER1", "USER2", "USER3", "USER4", "USER5")

Size = tuple[int, int]


class Snapshot(NamedTuple):
    """What the engine shows and knows after a step."""

    frame: NDArray[np.uint8]  # (height, width, RGB)
    position: tuple[float, float]
    angle: float
    held: int  # colour of the held key, 0 for none
    opened: int  # doors, as a bit mask
    taken: int  # keys, as a bit mask
    goal: bool
    held_key: int  # number of the held key, -1 for none


class Engine:
    """One engine process, started with its first map, with its files in a folder of its own.

    A watchdog process ends it when Python ends, and when a call takes longer than ``timeout`` seconds (Linux only).
    """

    def __init__(self, size: Size, capacity: int, timeout: float) -> None:
        drawn = drawn_size(size, _resolutions())
        self._resolution, self._shrink = _resolutions()[drawn], AreaMean(drawn, size)
        self._capacity, self._timeout = capacity, timeout
        self._game: Any = None
        self._healthy = False  # the latest call returned: no failure, and no Ctrl-C in it
        self._instance = ""
        self._folder: Path | None = None

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

    @property
    def traces(self) -> tuple[str, str]:
        """The name that the engine's process and its shared memory carry, and its folder."""
        return self._instance, str(self._folder)

    def close(self) -> None:
        """End the engine and remove its files."""
        self._healthy = False
        if self._folder is not None:
            try:
                self._finalizer()
            finally:
                self._game = self._folder = None
                watchdog.remove_shared_memory(self._instance)

    def _start(self, textmap: bytes) -> None:
        vizdoom = _vizdoom()
        game = vizdoom.DoomGame()
        folder = Path(tempfile.mkdtemp(prefix="secret-rl-doom-"))
        self._calls = watchdog.shared_calls(folder)
        limit = min(_CLOSING, self._timeout)
        self._finalizer = weakref.finalize(self, _end, game, folder, self._calls, limit, os.getpid())  # without close()
        self._folder = folder
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
        self._game = game
        self._call(_START_FACTOR * self._timeout, game.init)
        self._instance = str(game.get_instance_id())

    def _replace(self, textmap: bytes) -> None:
        self._wad.put(textmap)
        self._game.set_doom_map(MAP)  # this loads the map, too

    def _snapshot(self) -> Snapshot:
        state = self._game.get_state()
        if state is None:
            self.close()
            raise RuntimeError("the engine ended its episode on its own: call reset() to begin another")
        x, y, angle, held, opened, taken, goal, key = state.game_variables.tolist()
        frame = self._shrink(state.screen_buffer)  # a copy: the engine draws the next one into the same memory
        return Snapshot(frame, (x, y), angle, int(held), int(opened), int(taken), bool(goal), int(key) - 1)

    def _call(self, timeout: float, call: Any, *arguments: Any) -> None:
        """Call the engine; if that fails or takes too long, clean up and raise RuntimeError."""
        self._healthy = False
        try:
            _timed(timeout, self._calls, call, *arguments)
            self._healthy = True
        except BaseException as failed:
            overdue = self._calls[watchdog.OVERDUE]
            self.close()
            if not isinstance(failed, Exception):
                raise
            what = f"did not answer within {timeout:g} s and was ended" if overdue else f"failed ({failed})"
            hint = " (where it is only slow, make the environment with a larger engine_timeout)" if overdue else ""
            raise RuntimeError(f"the engine {what}: call reset() to start it again{hint}") from failed


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
    if not sys.platform.startswith("linux") or not sys.executable:
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


@cache
def _resolutions() -> dict[Size, Any]:
    """The sizes that the engine draws: (width, height) -> its name for it."""
    members = _vizdoom().ScreenResolution.__members__
    sizes = {name: re.fullmatch(r"RES_(\d+)X(\d+)", name) for name in members}
    return {(int(size[1]), int(size[2])): members[name] for name, size in sizes.items() if size}


def drawn_size(size: Size, available: Iterable[Size]) -> Size:
    """The engine's size from which a frame of ``size`` (width, height) is made.

    The size itself or two, three or four times of it, if the engine draws one of those; else, among those at least as
    large, the smallest whose aspect ratio is as close to that of ``size`` as any (within a tenth).

    >>> drawn_size((84, 84), [(160, 120), (320, 240), (320, 200), (256, 144)])
    (160, 120)
    """
    sizes = sorted(available, key=lambda other: other[0] * other[1])
    for times in (1, 2, 3, 4):
        if (size[0] * times, size[1] * times) in sizes:
            return size[0] * times, size[1] * times
    enough = [other for other in sizes if other[0] >= size[0] and other[1] >= size[1]]
    if not enough:
        largest = ", ".join(f"{width}x{height}" for width, height in sizes[-3:])
        raise ValueError(f"the engine draws no picture as large as size={size} (width, height): its largest: {largest}")
    distortion = {other: abs(log(other[0] * size[1] / (other[1] * size[0]))) for other in enough}
    return next(other for other in enough if distortion[other] <= min(distortion.values()) + 0.1)


class AreaMean:
    """Shrinks pictures (height, width, 3): each pixel is the mean of the area it covers, rounded down.

    All in integers, so the same on every machine.
    """

    def __init__(self, large: Size, small: Size) -> None:
        self._weights = (*_weights(large[1], small[1]), *_weights(large[0], small[0]))
        self._shape, self._same = (small[1], small[0], 3), large == small

    def __call__(self, picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """A new picture."""
        if self._same:
            return picture.copy()
        out = np.empty(self._shape, np.uint8)
        _average(picture, *self._weights, out)
        return out


def _weights(large: int, small: int) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """(small, most): the large pixels that each small one covers, and how much of each, in 1 / ``small``."""
    ends = np.arange(small + 1) * large  # borders of small pixels; those of large ones lie at multiples of ``small``
    first = ends[:-1] // small
    covered = first[:, None] + np.arange((-(-ends[1:] // small) - first).max() + 1)
    parts = np.diff((covered * small).clip(ends[:-1, None], ends[1:, None]), axis=1)
    return covered[:, :-1].clip(max=large - 1), parts.astype(np.uint32)  # beyond the last one, parts are 0


@njit(cache=True)
def _average(picture: Any, rows: Any, heights: Any, columns: Any, widths: Any, out: Any) -> None:
    lines, area = picture.reshape(picture.shape[0], -1), np.uint32(picture.shape[0] * picture.shape[1])
    line = np.empty(lines.shape[1], np.uint32)  # one line of the small picture, still of full width
    for y in range(out.shape[0]):
        line[:] = 0
        for k in range(rows.shape[1]):
            part, above = heights[y, k], lines[rows[y, k]]
            for i in range(line.size):
                line[i] += np.uint32(part * above[i])
        for x in range(out.shape[1]):
            for channel in range(3):
                total = np.uint32(0)
                for k in range(columns.shape[1]):
                    total += np.uint32(widths[x, k] * line[3 * columns[x, k] + channel])
                out[y, x, channel] = total // area
