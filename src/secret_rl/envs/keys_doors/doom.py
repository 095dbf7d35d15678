"""ViZDoom, the engine behind the keys-and-doors world; the only file that knows it."""

import os
import shlex
import shutil
import stat
import sys
import tempfile
import weakref
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from secret_rl.envs.keys_doors import guard
from secret_rl.envs.keys_doors.shrinking import AreaMean, drawn_size
from secret_rl.envs.keys_doors.wad import MAP, Wad

FORWARD_SPEED = 30.0
"""The engine's walking push; the steady pace is 10 units a tic, reached in some steps, and pushes slide out."""
TURN = 3.0
"""Degrees a tic."""
_WARM_UP = 10  # the first tics of a map take no input
_CLOSING = 5.0  # seconds that the engine has to end by itself
_STARTING = (
    5  # times as long as another call: ViZDoom 1.3 crashes, and Python with it, when an engine ends as it starts
)


@dataclass(frozen=True)
class Snapshot:
    """What the engine shows and knows after a step."""

    frame: NDArray[np.uint8]
    """(height, width, RGB)"""
    position: tuple[float, float]
    angle: float
    held: int
    """Colour of the held key, 0 for none."""
    opened: int
    taken: int
    """Doors opened and keys taken, as bit masks."""
    goal: bool
    held_key: int
    """Number of the held key, -1 for none."""


class Engine:
    """One engine, started with its first map, with its files in a folder of its own."""

    call_limit: ClassVar[float] = 60.0
    """Seconds that a call may take; the engine is then ended, and the call fails. On Linux only."""

    def __init__(self, size: tuple[int, int], capacity: int) -> None:
        drawn = drawn_size(size, _resolutions())
        self._resolution = _resolutions()[drawn]
        self._shrunk = AreaMean(drawn, size)
        self._capacity = capacity
        self._game: Any = None
        self._sound = False  # the latest call went well: no Ctrl-C in it, nor in the clearing up after it
        self._instance = ""
        self._folder: Path | None = None
        self._calls: memoryview | None = None
        self._wad: Wad | None = None

    def load(self, textmap: bytes) -> Snapshot:
        """Begin an episode on this map."""
        if not self._sound:
            self.close()
            self._start(textmap)
        else:
            self._guarded(self._replace, textmap)
        return self._snapshot()

    def step(self, push: float, turn: float, tics: int) -> Snapshot:
        """Hold an action for some tics: push forward (or back, if negative) and turn to the right."""
        self._guarded(self._game.make_action, [push, turn], tics)
        return self._snapshot()

    @property
    def traces(self) -> tuple[str, str]:
        """The name that the engine's process and its shared memory carry, and its folder."""
        assert self._folder is not None
        return self._instance, str(self._folder)

    def close(self) -> None:
        """End the engine and remove its files."""
        self._sound = False
        if self._game is not None:
            assert self._calls is not None
            try:
                _within(min(_CLOSING, self.call_limit), self._calls, self._game.close)
            finally:
                self._game = None
                guard.clear(self._instance)
        if self._folder is not None:
            self._end()
            self._folder = self._wad = self._calls = None

    def _start(self, textmap: bytes) -> None:
        vizdoom = _vizdoom()
        game = vizdoom.DoomGame()
        self._folder = folder = Path(tempfile.mkdtemp(prefix="secret-rl-doom-"))
        self._calls = guard.shared_calls(folder)
        self._end = weakref.finalize(self, _end, game, folder, self._calls, os.getpid())  # also without close()
        self._wad = Wad(folder / "keys_doors.wad", self._capacity)
        self._wad.put(textmap)
        game.set_vizdoom_path(_launcher(folder, str(Path(vizdoom.__file__).with_name("vizdoom"))))
        game.set_doom_config_path(str(folder / "vizdoom.ini"))
        game.set_doom_scenario_path(str(self._wad.path))
        game.set_doom_map(MAP)
        game.set_screen_resolution(self._resolution)
        game.set_screen_format(vizdoom.ScreenFormat.RGB24)
        for option in ("hud", "weapon", "crosshair", "decals", "particles", "messages", "corpses", "screen_flashes"):
            getattr(game, f"set_render_{option}")(False)
        game.set_available_buttons([vizdoom.Button.MOVE_FORWARD_BACKWARD_DELTA, vizdoom.Button.TURN_LEFT_RIGHT_DELTA])
        names = ("POSITION_X", "POSITION_Y", "ANGLE", "USER1", "USER2", "USER3", "USER4", "USER5")
        game.set_available_game_variables([getattr(vizdoom.GameVariable, name) for name in names])
        game.set_episode_timeout(0)
        game.set_episode_start_time(_WARM_UP)
        game.set_window_visible(False)
        game.set_sound_enabled(False)
        game.set_mode(vizdoom.Mode.PLAYER)
        game.set_seed(0)  # nothing in these maps is left to chance
        game.add_game_args("+movebob 0")
        self._game = game
        self._guarded(game.init, limit=_STARTING * self.call_limit)
        self._instance = str(game.get_instance_id())

    def _replace(self, textmap: bytes) -> None:
        assert self._wad is not None
        self._wad.put(textmap)
        self._game.set_doom_map(MAP)  # this loads the map, too

    def _snapshot(self) -> Snapshot:
        state = self._game.get_state()
        if state is None:
            self.close()
            raise RuntimeError("the engine ended its episode on its own: call reset() to begin another")
        x, y, angle, held, opened, taken, goal, key = state.game_variables.tolist()
        frame = self._shrunk(state.screen_buffer)  # a copy: the engine draws the next one into the same memory
        return Snapshot(frame, (x, y), angle, int(held), int(opened), int(taken), bool(goal), int(key) - 1)

    def _guarded(self, call: Any, *arguments: Any, limit: float | None = None) -> None:
        """Call the engine; if it fails or takes too long, clear up and say so."""
        limit = self.call_limit if limit is None else limit
        calls = self._calls
        assert calls is not None
        self._sound = False
        try:
            _within(limit, calls, call, *arguments)
            self._sound = True
        except BaseException as failed:
            late = calls[guard.OVERDUE]
            self.close()
            if not isinstance(failed, Exception):
                raise
            if late:
                raise RuntimeError(
                    f"the engine did not answer within {limit:g} s and was ended: call reset() to start it "
                    "again (where it is only slow, raise Engine.call_limit of secret_rl.envs.keys_doors.doom)"
                ) from failed
            raise RuntimeError(f"the engine failed ({failed}): call reset() to start it again") from failed


def _within(seconds: float, calls: memoryview, call: Any, *arguments: Any) -> None:
    """Call the engine, which the guard ends if that takes longer."""
    before = calls[guard.COUNT]
    calls[guard.LIMIT] = int(1000 * seconds)
    try:
        calls[guard.COUNT] = before + 1
        call(*arguments)
    finally:
        calls[guard.COUNT] = before + 2


def _vizdoom() -> Any:
    """The library, imported when a world is made: puzzles and maps do without."""
    try:
        import vizdoom
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            'secret_rl/KeysDoors-v0 needs ViZDoom: pip install "secret-rl[doom]"', name="vizdoom"
        ) from missing
    return vizdoom


@cache
def _resolutions() -> dict[tuple[int, int], Any]:
    vizdoom = _vizdoom()
    names = (name for name in dir(vizdoom.ScreenResolution) if name.startswith("RES_"))
    pairs = ((name, name[4:].split("X")) for name in names)
    return {(int(width), int(height)): getattr(vizdoom.ScreenResolution, name) for name, (width, height) in pairs}


def _end(game: Any, folder: Path, calls: memoryview, owner: int) -> None:
    """End the engine and remove its folder, unless this is a fork of the process that plays."""
    if os.getpid() == owner:
        _within(_CLOSING, calls, game.close)  # first: it writes into its folder as it ends
        shutil.rmtree(folder, ignore_errors=True)


def _launcher(folder: Path, engine: str) -> str:
    """A program to start in place of the engine, which watches over it (Linux; elsewhere the engine itself)."""
    if not sys.platform.startswith("linux") or not sys.executable:
        return engine
    words = [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), str(folder), engine]
    launcher = folder / "engine"
    launcher.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
    launcher.chmod(launcher.stat().st_mode | stat.S_IXUSR)
    return str(launcher) if os.access(launcher, os.X_OK) else engine  # some forbid programs in /tmp
