"""What an episode looked like: a maze that the page draws, frames of a replay or of the data, or plain numbers."""

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BytesIO
from math import ceil, sqrt
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from secret_rl.env_ids import known_id
from secret_rl.envs.keys_doors.env import ACTIONS, KeysDoorsEnv
from secret_rl.envs.keys_doors.puzzle import CELL, COLOURS, ROOM_HEIGHT, ROOM_WIDTH, Puzzle, centre, room_origin
from secret_rl.envs.triggers.env import TriggersEnv
from secret_rl.report.explorer.episode import observed_numbers, with_final
from secret_rl.trajectories import Episode, Trajectories
from secret_rl.trajectories.nested import arrays_of, map_arrays

try:
    from PIL import Image
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError('pictures need the report extra: pip install "secret-rl[report]"') from missing

EnvLike = str | Callable[[], gym.Env[Any, Any]]
_LARGEST = 256  # longest side of a frame in pixels
# (longest side, quality, share of frames), tried in this order; a quality of None is lossless.
_LEVELS = (
    (_LARGEST, None, 1.0), (192, 70, 1.0), (128, 50, 1.0), (96, 45, 1.0), (64, 30, 1.0), (64, 30, 0.4), (64, 30, 0.15),
    (64, 30, 0.05), (64, 30, 0.0),
)  # fmt: skip
_BLOCK = 16  # lossy pictures are made of such blocks: frames that share one would run into each other
_LARGEST_SHEET = 16_383  # pixels of a side, WebP's limit
_BASE64 = 0.75  # bytes of a picture in a byte of the page
_MOST_NOTES = 6


class Viewer:
    """Pictures of the episodes of one data set; ``notes`` say what could not be shown and why, each once."""

    def __init__(self, data: Trajectories, env: EnvLike | None, replay: bool) -> None:
        self._data = data
        self._env: gym.Env[Any, Any] | None = None
        self.notes: list[str] = []
        self._unsaid: set[str] = set()
        if replay:
            try:
                self._env = _make_env(env, data)
            except Exception as reason:  # environments may raise anything
                self.note(f"Episodes are not replayed: {_text(reason)}.")

    def close(self) -> None:
        """Close the environment."""
        if self._env is not None:
            self._env.close()

    def note(self, text: str) -> None:
        """Add a note, once."""
        if text not in self.notes:
            (self.notes.append if len(self.notes) < _MOST_NOTES else self._unsaid.add)(text)

    @property
    def all_notes(self) -> list[str]:
        """The notes, and how many more there are."""
        return [*self.notes, *([f"{len(self._unsaid):,} more notes are left out."] if self._unsaid else [])]

    @property
    def actions(self) -> list[str] | None:
        """Names of discrete actions, if the environment has them."""
        bare: Any = None if self._env is None else self._env.unwrapped
        if isinstance(bare, TriggersEnv):
            return ["up", "down", "left", "right"]
        if isinstance(bare, KeysDoorsEnv):
            return list(ACTIONS)
        if hasattr(bare, "get_action_meanings"):  # Atari
            return list(bare.get_action_meanings())
        return list(getattr(getattr(bare, "actions", None), "__members__", ())) or None  # MiniGrid

    def show(self, episode: Episode, limit: int, wanted: Sequence[int]) -> dict[str, Any]:
        """A maze, a map, frames or numbers.

        Frames take about ``limit`` bytes of the page; those at the step counts ``wanted`` are kept before others.
        """
        found: dict[str, Any] = {}
        try:
            found = self._replayed(episode, limit, wanted)
        except Exception as reason:
            self.note(f"Some episodes are not shown as the environment draws them: {_text(reason)}.")
        if not {"scene", "frames"} & found.keys():
            space = self._data.observation_space
            if is_picture(space):
                found["frames"] = sheet(as_rgb(space, with_final(episode)), limit, wanted)
            else:
                found["values"] = observed_numbers(episode)
        if found.get("frames", {}).get("left_out"):
            self.note(
                "Some frames are left out so that the page stays small; the nearest one is shown instead. Frames at "
                "rewards and at the steps they look at are kept: show fewer trajectories for more frames."
            )
        return found

    def _replayed(self, episode: Episode, limit: int, wanted: Sequence[int]) -> dict[str, Any]:
        """What the environment has to show; empty where it does not render."""
        if self._env is None:
            return {}
        bare: Any = self._env.unwrapped
        if isinstance(bare, TriggersEnv):
            return triggers_scene(bare, replay(self._env, self._data, episode))
        if isinstance(bare, KeysDoorsEnv):  # the map alone: the data has the frames, and a replay in 3D takes long
            bare.reset(seed=_seed(episode))
            return keys_doors_map(bare.puzzle, episode)
        if self._env.render_mode != "rgb_array":
            return {}
        frames, cells = [], []
        for _ in replay(self._env, self._data, episode):
            frames.append(np.asarray(self._env.render(), np.uint8))
            cells.append(getattr(bare, "agent_pos", None))
        found: dict[str, Any] = {"frames": sheet(frames, limit, wanted)}
        if hasattr(bare, "grid") and cells[0] is not None:  # frames of MiniGrid show the whole grid
            found["places"] = _places(np.array(cells) + 0.5, bare.grid.width, bare.grid.height)
        return found


def _make_env(env: EnvLike | None, data: Trajectories) -> gym.Env[Any, Any]:
    """The environment of some trajectories: the one given, or that of the id in the data."""
    name = data.meta.get("env_id") if env is None else env
    if name is None:
        raise ValueError("the data does not name its environment: give one with env")
    if not isinstance(name, str):
        return name()
    if env is None and ":" in name:  # it would import a module that the data names
        raise ValueError(f"the data names {name!r}, which would import a module: give the id yourself with env")
    with known_id(name):
        return gym.make(name, **{**(data.meta.get("env_options") or {}), "render_mode": "rgb_array"})


def replay(env: gym.Env[Any, Any], data: Trajectories, episode: Episode) -> Iterator[int]:
    """Replay an episode from its seed and actions: yields 0 after the reset, then the number of steps after each.

    Raises ``ValueError`` as soon as it differs from what is stored.
    """
    same_view = env.observation_space == data.observation_space
    observation, _ = env.reset(seed=_seed(episode))
    yield 0
    for t in range(len(episode)):
        stored, action = (map_arrays(lambda rows: rows[t], nest) for nest in (episode.observations, episode.actions))  # noqa: B023
        if same_view and not all(map(np.array_equal, arrays_of(stored), arrays_of(observation))):
            raise ValueError(f"the environment shows something else at step {t + 1} than was stored")
        observation, reward, terminated, truncated, _ = env.step(action)
        over = (terminated or truncated) and t + 1 < len(episode)
        if over or not np.isclose(float(reward), float(episode.rewards[t]), rtol=1e-5, atol=1e-6):
            raise ValueError(f"the environment pays something else at step {t + 1} than was stored, or ends there")
        yield t + 1


def _seed(episode: Episode) -> int:
    if "seed" not in episode.episode_annotations:
        raise ValueError("the data does not hold the seeds of its episodes")
    return int(episode.episode_annotations["seed"])


def _text(reason: Exception) -> str:
    return str(reason) if type(reason) is ValueError else f"{type(reason).__name__}: {reason}"


def triggers_scene(env: TriggersEnv, steps: Iterable[int]) -> dict[str, Any]:
    """A Triggers maze: its size, the agent's cell after each step, and when each switch and prize was taken.

    Cells are numbered row by row; ``places`` are shares of the picture, its boundary wall included.
    """
    cells: list[tuple[int, int]] = []
    taken: dict[str, dict[int, int]] = {"triggers": {}, "prizes": {}}  # cell -> step count, -1: never
    for t in steps:
        maze = env.contents
        cells.append(maze.agent)
        for kind, things in taken.items():
            there = {row * maze.size + column for row, column in getattr(maze, kind)}
            if t == 0:
                things.update(dict.fromkeys(sorted(there), -1))
            things.update({cell: t for cell, gone in things.items() if gone < 0 and cell not in there})
    size, agent = env.contents.size, np.array(cells)
    scene = {"kind": "triggers", "size": size, "agent": (agent @ [size, 1]).tolist()}
    scene |= {kind: [list(pair) for pair in things.items()] for kind, things in taken.items()}
    return {"scene": scene, "places": _places(agent[:, ::-1] + 1.5, size + 2, size + 2)}


def keys_doors_map(puzzle: Puzzle, episode: Episode) -> dict[str, Any]:
    """A keys-and-doors map from above and when keys and doors were used; an error if the episode is of another map.

    North is up. ``places`` are shares of the picture; before the first step the agent is at the start.
    """
    names, height = ("position", "key_picked", "door_opened"), puzzle.height
    if missing := [name for name in names if name not in episode.annotations]:
        raise ValueError(f"the data does not hold {' and '.join(missing)}")
    position, picked, opened = (episode.annotations[name] for name in names)
    positions = np.concatenate([[centre(puzzle.start)], position.astype(np.float64)]) / CELL
    if np.hypot(*(positions[1] - positions[0])) > 1:  # one step is at most half a cell
        raise ValueError("the episodes are of other maps")

    def used(things: Sequence[Any], colours: NDArray[Any]) -> list[list[Any]]:
        """Each key or door: column, row, colour, and the count of steps at which it was used, -1: never."""
        at, centres = [-1] * len(things), [np.array(thing.cell) + 0.5 for thing in things]
        for t in np.flatnonzero(colours).tolist():
            alike = [i for i, thing in enumerate(things) if thing.colour == colours[t] and at[i] < 0]
            if alike:  # the nearest of them
                at[min(alike, key=lambda i: float(np.hypot(*(centres[i] - positions[t + 1]))))] = t + 1
        return [[*up(thing.cell), COLOURS[thing.colour - 1], t] for thing, t in zip(things, at, strict=True)]

    def up(cell: tuple[int, int]) -> list[int]:
        return [cell[0], height - 1 - cell[1]]

    doors = used(puzzle.doors, opened)
    found = {
        "kind": "rooms",
        "width": puzzle.width,
        "height": height,
        "rooms": [[x, height - ROOM_HEIGHT - y, ROOM_WIDTH, ROOM_HEIGHT] for x, y in map(room_origin, puzzle.rooms)],
        "keys": used(puzzle.keys, picked),
        "doors": [[*door, thing.upright] for door, thing in zip(doors, puzzle.doors, strict=True)],
        "goal": up(puzzle.goal),
    }
    return {"map": found, "places": _places(positions * [1, -1] + [0, height], puzzle.width, height, 0.5)}


def _places(positions: NDArray[np.float64], width: int, height: int, cell: float = 1.0) -> dict[str, Any]:
    """Where the agent is before the first step and after each, in thousandths; and the grid of the heat map."""
    x, y = np.rint(1000 * positions / [width, height]).astype(int).T.tolist()
    return {"x": x, "y": y, "cells": [round(width / cell), round(height / cell)]}


def is_picture(space: gym.Space[Any]) -> bool:
    """Whether observations are pictures: rows, columns and one, three or, of bytes, four channels."""
    if not isinstance(space, gym.spaces.Box):
        return False
    shape, channels = space.shape, ((), (1,), (3,), *([(4,)] if float(np.max(space.high)) == 255 else []))
    return len(shape) in (2, 3) and min(shape[:2]) >= 3 and shape[2:] in channels


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


def sheet(frames: Iterable[NDArray[np.uint8]], limit: int, wanted: Sequence[int]) -> dict[str, Any]:
    """All frames as one picture within about ``limit`` bytes of text, each distinct one once.

    Smaller and coarser frames are tried first, then fewer; those at the step counts ``wanted`` are dropped last.
    """
    distinct: dict[bytes, int] = {}
    tiles: list[NDArray[np.uint8]] = []
    at: list[int] = []
    for frame in frames:
        number = distinct.setdefault(frame.tobytes(), len(tiles))
        if number == len(tiles):
            tiles.append(_reduced(frame, _LARGEST))
        at.append(number)
    for side, quality, share in _LEVELS:
        shown = at if share == 1 else _thinned(at, int(share * len(at)), wanted)
        places = {number: i for i, number in enumerate(dict.fromkeys(shown))}
        if ceil(sqrt(len(places))) * (side + _BLOCK) <= _LARGEST_SHEET:
            content, layout = _encode([tiles[number] for number in places], side, quality)
            if len(content) <= _BASE64 * limit:
                break
    picture = "data:image/webp;base64," + b64encode(content).decode()
    at = [places[number] for number in shown]
    return {"sheet": picture, **layout, "at": at, "left_out": len(tiles) - len(places)}


def _thinned(at: list[int], count: int, wanted: Sequence[int]) -> list[int]:
    """Frames at the ends, at the first ``count`` steps wanted and at ``count`` others; steps take the nearest kept."""
    last = len(at) - 1
    steps = np.unique([0, last, *wanted[:count], *np.linspace(0, last, count).astype(int)])
    nearest = steps[np.searchsorted((steps[1:] + steps[:-1]) / 2, np.arange(last + 1))]
    return [at[t] for t in nearest]


def _encode(frames: list[NDArray[np.uint8]], side: int, quality: int | None) -> tuple[bytes, dict[str, Any]]:
    """One WebP of all frames, and where they are in it: size of a frame, distance to the next, frames in a row."""
    tiles = [_reduced(frame, side) for frame in frames]
    height, width = tiles[0].shape[:2]
    right, below = -width % _BLOCK, -height % _BLOCK
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
