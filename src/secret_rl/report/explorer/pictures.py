"""What an episode looked like: a maze that the page draws, frames of a replay or of the data, or plain numbers."""

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from math import ceil, sqrt
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from secret_rl.envs.keys_doors.env import ACTIONS, KeysDoorsEnv
from secret_rl.envs.keys_doors.puzzle import CELL, COLOURS, ROOM_HEIGHT, ROOM_WIDTH, Puzzle, centre, room_origin
from secret_rl.envs.triggers.env import TriggersEnv
from secret_rl.report.explorer.episode import observed_numbers, with_final
from secret_rl.trajectories import Episode, Trajectories
from secret_rl.trajectories.nested import map_arrays, named_arrays

try:
    from PIL import Image
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError('pictures need the report extra: pip install "secret-rl[report]"') from missing

EnvLike = str | Callable[[], gym.Env[Any, Any]]
_BLOCK = 16  # lossy pictures are made of such blocks: frames that share one would run into each other
_LARGEST = 256  # longest side of a frame in pixels
# (longest side, quality) of frames, tried in this order; a quality of None is lossless.
LEVELS = ((_LARGEST, None), (192, None), (192, 70), (144, 55), (96, 45), (80, 35), (64, 30))
_SHARP = 32  # pixels from which stored pictures are shown rather than rendered ones
_MOST_NOTES = 5


class NoReplay(Exception):
    """Why an episode cannot be replayed."""


@contextmanager
def _trying(what: str) -> Iterator[None]:
    """Any error in the block becomes a ``NoReplay``: environments, and the engines behind them, may raise anything."""
    try:
        yield
    except NoReplay:
        raise
    except Exception as error:
        raise NoReplay(f"{what} ({type(error).__name__}: {error})") from error


class Viewer:
    """Pictures of the episodes of one data set; ``notes`` say what could not be shown and why, each once."""

    def __init__(self, data: Trajectories, env: EnvLike | None, replay: bool) -> None:
        self._data = data
        self._pictured = is_picture(data.observation_space)
        self.notes: list[str] = []
        self._env: gym.Env[Any, Any] | None = None
        self._level = 0
        if replay:
            try:
                self._env = make_env(env, data.meta)
            except NoReplay as reason:
                self._note("Episodes are not replayed", reason)

    def close(self) -> None:
        """Close the environment."""
        if self._env is not None:
            self._env.close()

    @property
    def actions(self) -> list[str] | None:
        """Names of discrete actions, if the environment has them."""
        space = self._data.action_space
        if self._env is None or not isinstance(space, gym.spaces.Discrete):
            return None
        bare: Any = self._env.unwrapped
        names: Any = getattr(bare, "ACTIONS", None)
        if isinstance(bare, TriggersEnv):
            names = ["up", "down", "left", "right"]
        elif isinstance(bare, KeysDoorsEnv):
            names = ACTIONS
        elif hasattr(bare, "get_action_meanings"):  # Atari
            names = bare.get_action_meanings()
        elif hasattr(getattr(bare, "actions", None), "__members__"):  # MiniGrid
            names = list(bare.actions.__members__)
        return [str(name) for name in names] if isinstance(names, list | tuple) and len(names) >= space.n else None

    def scene(self, episode: Episode) -> dict[str, Any]:
        """What takes next to no space: a maze, a map, or numbers; empty where frames are needed."""
        bare = None if self._env is None else self._env.unwrapped
        try:
            if self._env is not None and isinstance(bare, TriggersEnv):
                return triggers_scene(bare, replay(self._env, self._data, episode))
            if isinstance(bare, KeysDoorsEnv):  # the map alone: the data has the frames, and a replay in 3D takes long
                with _trying("the engine failed"):
                    bare.reset(seed=_seed(episode))
                return keys_doors_map(bare.puzzle, episode)
        except NoReplay as reason:
            self._note("Mazes are not drawn", reason)
        return {} if self._pictured or self._renders else {"values": observed_numbers(episode)}

    def frames(self, episode: Episode, limit: int, wanted: Sequence[int]) -> dict[str, Any]:
        """Frames within about ``limit`` bytes, those ``wanted`` (counts of steps) before others."""
        positions: list[tuple[int, int]] = []
        film: Film | None = None
        if self._renders and not (self._pictured and min(self._data.observation_space.shape[:2]) >= _SHARP):  # type: ignore[index]
            try:
                film = make_film(self._rendered(episode, positions))
            except NoReplay as reason:
                positions.clear()
                self._note("Some episodes are not shown as the environment draws them", reason)
        if film is None and self._pictured:
            film = make_film(as_rgb(self._data.observation_space, np.asarray(with_final(episode))))
        if film is None:
            return {"values": observed_numbers(episode)}
        found, self._level = sheet(film, limit, wanted, max(0, self._level - 1))
        return {"frames": found, **self._grid_places(positions)}

    @property
    def _renders(self) -> bool:
        return self._env is not None and self._env.render_mode == "rgb_array"

    def _rendered(self, episode: Episode, positions: list[tuple[int, int]]) -> Iterator[NDArray[np.uint8]]:
        assert self._env is not None
        for _ in replay(self._env, self._data, episode):
            frame = self._env.render()
            if not isinstance(frame, np.ndarray) or frame.ndim != 3 or frame.shape[2] != 3:
                raise NoReplay(f"render gave {type(frame).__name__}, expected an array of rows, columns and RGB")
            position = getattr(self._env.unwrapped, "agent_pos", None)
            if position is not None:
                positions.append((int(position[0]), int(position[1])))
            yield frame

    def _grid_places(self, positions: list[tuple[int, int]]) -> dict[str, Any]:
        """Where the agent is in frames of a MiniGrid, which show the whole grid."""
        grid = None if self._env is None else getattr(self._env.unwrapped, "grid", None)
        width, height = getattr(grid, "width", 0), getattr(grid, "height", 0)
        if not positions or not width or not height:
            return {}
        return {"places": _places([x + 0.5 for x, _ in positions], [y + 0.5 for _, y in positions], width, height)}

    def _note(self, what: str, reason: NoReplay) -> None:
        note = f"{what}: {reason}."
        if note not in self.notes and len(self.notes) < _MOST_NOTES:
            self.notes.append(note)


def make_env(env: EnvLike | None, meta: Mapping[str, Any]) -> gym.Env[Any, Any]:
    """The environment of some trajectories: the one given, or that of the id in the data."""
    name = meta.get("env_id") if env is None else env
    if name is None:
        raise NoReplay("the data does not name its environment: give one with env")
    if not isinstance(name, str):
        return name()
    if env is None and ":" in name:  # it would import a module that the data names
        raise NoReplay(f"the data names {name!r}, which would import a module: give the id yourself with env")
    with _trying(f"{name} cannot be made"):
        return gym.make(name, **{**(meta.get("env_options") or {}), "render_mode": "rgb_array"})


def replay(env: gym.Env[Any, Any], data: Trajectories, episode: Episode) -> Iterator[int]:
    """Replay an episode from its seed and actions: yields 0 after the reset, then the number of steps after each.

    Raises ``NoReplay`` as soon as it differs from what is stored.
    """
    same_view = env.observation_space == data.observation_space
    with _trying("the environment failed"):
        observation, _ = env.reset(seed=_seed(episode))
        yield 0
        for t in range(len(episode)):
            if same_view and not _is_row(observation, episode.observations, t):
                raise NoReplay(f"the environment shows something else at step {t + 1} than was stored")
            action = map_arrays(lambda rows, t=t: rows[t], episode.actions)
            observation, reward, terminated, truncated, _ = env.step(action)
            if not np.isclose(float(reward), float(episode.rewards[t]), rtol=1e-5, atol=1e-6):
                raise NoReplay(f"the environment pays {reward} at step {t + 1}, stored is {episode.rewards[t]}")
            if (terminated or truncated) and t + 1 < len(episode):
                raise NoReplay(f"the environment ends at step {t + 1}, stored are {len(episode)}")
            yield t + 1


def _seed(episode: Episode) -> int:
    if "seed" not in episode.episode_annotations:
        raise NoReplay("the data does not hold the seeds of its episodes")
    return int(episode.episode_annotations["seed"])


def _is_row(observation: Any, rows: Any, t: int) -> bool:
    equal = map_arrays(lambda part, seen: np.array_equal(part[t], seen), rows, observation)
    return all(same for _, same in named_arrays("", equal))


def triggers_scene(env: TriggersEnv, steps: Iterable[int]) -> dict[str, Any]:
    """A Triggers maze: its size, the agent's cell after each step, and when each switch and prize was taken.

    Cells are numbered row by row; ``places`` are shares of the picture, its boundary wall included.
    """
    agent: list[int] = []
    taken: dict[str, dict[int, int]] = {"triggers": {}, "prizes": {}}  # cell -> step count, -1: never
    for t in steps:
        maze = env.contents
        agent.append(maze.agent[0] * maze.size + maze.agent[1])
        for kind, things in taken.items():
            there = {row * maze.size + column for row, column in getattr(maze, kind)}
            if t == 0:
                things.update(dict.fromkeys(sorted(there), -1))
            things.update({cell: t for cell, gone in things.items() if gone < 0 and cell not in there})
    size = env.contents.size
    scene = {"kind": "triggers", "size": size, "agent": agent}
    scene |= {kind: [list(pair) for pair in things.items()] for kind, things in taken.items()}
    x, y = [cell % size + 1.5 for cell in agent], [cell // size + 1.5 for cell in agent]
    return {"scene": scene, "places": _places(x, y, size + 2, size + 2)}


def keys_doors_map(puzzle: Puzzle, episode: Episode) -> dict[str, Any]:
    """A keys-and-doors map from above and when keys and doors were used; ``NoReplay`` if the episode is of another map.

    North is up. ``places`` are shares of the picture; before the first step the agent is at the start.
    """
    names = ("position", "key_picked", "door_opened")
    if missing := [name for name in names if name not in episode.annotations]:
        raise NoReplay(f"the data does not hold {' and '.join(missing)}")
    position, picked, opened = (np.asarray(episode.annotations[name]) for name in names)
    positions = np.concatenate([[centre(puzzle.start)], position.astype(np.float64)]) / CELL
    if np.hypot(*(positions[1] - positions[0])) > 1:  # one step is at most half a cell
        raise NoReplay("the episodes are of other maps")
    keys, doors, height = _used(puzzle.keys, picked, positions), _used(puzzle.doors, opened, positions), puzzle.height

    def up(cell: tuple[int, int]) -> list[int]:
        return [cell[0], height - 1 - cell[1]]

    origins = [room_origin(room) for room in puzzle.rooms]
    found = {
        "kind": "rooms",
        "width": puzzle.width,
        "height": height,
        "rooms": [[x, height - ROOM_HEIGHT - y, ROOM_WIDTH, ROOM_HEIGHT] for x, y in origins],
        "keys": [[*up(k.cell), COLOURS[k.colour - 1], t] for k, t in zip(puzzle.keys, keys, strict=True)],
        "doors": [[*up(d.cell), COLOURS[d.colour - 1], t, d.upright] for d, t in zip(puzzle.doors, doors, strict=True)],
        "goal": up(puzzle.goal),
    }
    x, y = positions[:, 0].tolist(), (height - positions[:, 1]).tolist()
    return {"map": found, "places": _places(x, y, puzzle.width, height, 0.5)}


def _used(things: Any, colours: NDArray[Any], positions: NDArray[np.float64]) -> list[int]:
    """The step count at which each key or door was used, -1: never; of several of a colour, the nearest is."""
    used = [-1] * len(things)
    for t in np.flatnonzero(colours).tolist():
        alike = [i for i, thing in enumerate(things) if thing.colour == colours[t] and used[i] < 0]
        distance = {i: np.hypot(*(np.array(things[i].cell) + 0.5 - positions[t + 1])) for i in alike}
        if alike:
            used[min(distance, key=distance.__getitem__)] = t + 1
    return used


def _places(x: list[float], y: list[float], width: int, height: int, cell: float = 1.0) -> dict[str, Any]:
    """Where the agent is before the first step and after each, in thousandths; and the grid of the heat map."""
    return {
        "x": [round(1000 * value / width) for value in x],
        "y": [round(1000 * value / height) for value in y],
        "cells": [round(width / cell), round(height / cell)],
    }


class Film(NamedTuple):
    """The distinct frames of an episode, and which of them is seen before its first step and after each."""

    frames: list[NDArray[np.uint8]]
    """(height, width, 3) each, all of one size."""
    at: list[int]


def is_picture(space: gym.Space[Any]) -> bool:
    """Whether observations are pictures: rows, columns and one, three or four channels."""
    if not isinstance(space, gym.spaces.Box) or len(space.shape) not in (2, 3) or min(space.shape[:2]) < 3:
        return False
    return len(space.shape) == 2 or space.shape[2] in (1, 3, 4)


def as_rgb(space: gym.Space[Any], rows: NDArray[Any]) -> NDArray[np.uint8]:
    """(frames, height, width, 3) of pictures with any channels and range."""
    assert isinstance(space, gym.spaces.Box)
    low, high = float(np.min(space.low)), float(np.max(space.high))
    if not np.isfinite([low, high]).all() or high <= low:
        low, high = float(np.min(rows)), float(np.max(rows))
    if not (rows.dtype == np.uint8 and (low, high) == (0, 255)):
        rows = np.clip((rows.astype(np.float64) - low) / max(high - low, 1e-9) * 255, 0, 255).astype(np.uint8)
    if rows.ndim == 3:
        rows = rows[..., None]
    return rows[..., :3] if rows.shape[-1] >= 3 else np.repeat(rows[..., :1], 3, -1)


def make_film(frames: Iterable[NDArray[np.uint8]]) -> Film:
    """Frames as they come, each distinct one stored once, and reduced."""
    kept: list[NDArray[np.uint8]] = []
    places: dict[bytes, int] = {}
    at = []
    for frame in frames:
        frame = np.asarray(frame, np.uint8)
        key = frame.tobytes()
        if key not in places:
            places[key] = len(kept)
            kept.append(_reduced(frame, _LARGEST).copy())
        at.append(places[key])
    return Film(kept, at)


def sheet(film: Film, limit: int, wanted: Sequence[int], start: int = 0) -> tuple[dict[str, Any], int]:
    """All frames as one picture within about ``limit`` bytes, and the level it took; ``start`` is the first to try.

    Where even the last level is too large, frames are dropped, those at the step counts ``wanted`` last.
    """
    for level in range(min(start, len(LEVELS) - 1), len(LEVELS)):
        content, layout = _encode(film.frames, *LEVELS[level])
        if len(content) <= limit:
            break
    kept, share = film, limit / len(content)
    while len(content) > limit and len(kept.frames) > 1:
        kept = _thinned(film, max(1, int(0.95 * share * len(film.frames))), wanted)
        content, layout = _encode(kept.frames, *LEVELS[-1])
        share *= 0.8
    picture = "data:image/webp;base64," + b64encode(content).decode()
    return {"sheet": picture, **layout, "at": kept.at, "left_out": len(film.frames) - len(kept.frames)}, level


def _thinned(film: Film, count: int, wanted: Sequence[int]) -> Film:
    """A film of ``count`` frames: the ends, those wanted, and others evenly spaced; steps take the nearest kept."""
    last = len(film.at) - 1
    first = dict.fromkeys([0, last, *wanted])
    chosen = list(first)[:count]
    rest = [t for t in range(last + 1) if t not in first]
    if count > len(chosen) and rest:
        chosen += [rest[i] for i in np.linspace(0, len(rest) - 1, min(count - len(chosen), len(rest))).astype(int)]
    steps = np.array(sorted(set(chosen)))
    nearest = steps[np.abs(np.arange(last + 1)[:, None] - steps).argmin(1)]
    used = [film.at[t] for t in nearest]
    places = {frame: i for i, frame in enumerate(dict.fromkeys(used))}
    return Film([film.frames[frame] for frame in places], [places[frame] for frame in used])


def _encode(frames: list[NDArray[np.uint8]], side: int, quality: int | None) -> tuple[bytes, dict[str, Any]]:
    """One WebP of all frames, and where they are in it: size of a frame, distance to the next, frames in a row."""
    tiles = [_reduced(frame, side) for frame in frames]
    height, width = tiles[0].shape[:2]
    right, below = (0, 0) if quality is None else (-width % _BLOCK, -height % _BLOCK)
    columns, across, down = ceil(sqrt(len(tiles))), width + right, height + below
    canvas = np.zeros((ceil(len(tiles) / columns) * down, columns * across, 3), np.uint8)
    for i, tile in enumerate(tiles):
        top, left = i // columns * down, i % columns * across
        canvas[top : top + down, left : left + across] = np.pad(tile, ((0, below), (0, right), (0, 0)), "edge")
    content = BytesIO()
    how = {"lossless": True, "quality": 50} if quality is None else {"quality": quality}
    Image.fromarray(canvas).save(content, format="WEBP", method=4, **how)
    return content.getvalue(), {"size": (width, height), "pitch": (across, down), "columns": columns}


def _reduced(frame: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """A frame whose sides are at most ``side``: by a whole factor, which keeps straight edges straight."""
    factor = ceil(max(frame.shape[:2]) / side)
    return frame if factor <= 1 else np.asarray(Image.fromarray(frame).reduce(factor))
