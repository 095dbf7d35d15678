"""Mazes that the page draws itself, and where the agent is in what it shows: numbers instead of frames."""

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np

from secret_rl.envs.keys_doors.puzzle import CELL, COLOURS, ROOM_HEIGHT, ROOM_WIDTH, Puzzle, centre, room_origin
from secret_rl.trajectories import Episode

TRIGGERS_ACTIONS = ["up", "down", "left", "right"]


def triggers_scene(env: Any, steps: Iterator[int]) -> dict[str, Any]:
    """A Triggers maze: its size, the agent's cell after each step, and when each switch and prize went.

    Cells are numbered row by row; ``places`` are shares of the picture, its boundary wall included.
    """
    agent: list[int] = []
    things: dict[str, dict[int, int]] = {"triggers": {}, "prizes": {}}
    size = 0
    for t in steps:
        contents = env.unwrapped.contents
        size = contents.size
        agent.append(contents.agent[0] * size + contents.agent[1])
        for kind, gone in things.items():
            there = {row * size + column for row, column in getattr(contents, kind)}
            if t == 0:
                gone.update(dict.fromkeys(sorted(there), -1))
            for cell in gone:
                if gone[cell] < 0 and cell not in there:
                    gone[cell] = t
    side = size + 2
    return {
        "scene": {
            "kind": "triggers",
            "size": size,
            "agent": agent,
            **{kind: [list(pair) for pair in gone.items()] for kind, gone in things.items()},
        },
        "places": _places([cell % size + 1.5 for cell in agent], [cell // size + 1.5 for cell in agent], side, side),
    }


def grid_places(env: gym.Env[Any, Any], positions: list[tuple[int, int]]) -> dict[str, Any] | None:
    """Where the agent is in frames of a MiniGrid, which show the whole grid."""
    grid = getattr(env.unwrapped, "grid", None)
    width, height = getattr(grid, "width", 0), getattr(grid, "height", 0)
    if not positions or not width or not height:
        return None
    return _places([x + 0.5 for x, _ in positions], [y + 0.5 for _, y in positions], width, height)


def rooms_map(puzzle: Puzzle, episode: Episode) -> dict[str, Any] | None:
    """A keys-and-doors map from above with what was taken and opened when; None where the episode is of another map.

    North is up. ``places`` are shares of the picture; before the first step the agent is at the start.
    """
    told = {name: episode.annotations.get(name) for name in ("position", "key_picked", "door_opened")}
    if any(rows is None for rows in told.values()):
        return None
    positions = np.concatenate([[centre(puzzle.start)], np.asarray(told["position"], np.float64)]) / CELL
    if np.hypot(*(positions[1] - positions[0])) > 1:  # one step is at most half a cell
        return None
    keys = _when(puzzle.keys, np.asarray(told["key_picked"]), positions)
    doors = _when(puzzle.doors, np.asarray(told["door_opened"]), positions)
    height = puzzle.height

    def up(cell: tuple[int, int]) -> list[int]:
        return [cell[0], height - 1 - cell[1]]

    def corner(room: tuple[int, int]) -> list[int]:
        x, y = room_origin(room)
        return [x, height - ROOM_HEIGHT - y, ROOM_WIDTH, ROOM_HEIGHT]

    return {
        "map": {
            "kind": "rooms",
            "width": puzzle.width,
            "height": height,
            "rooms": [corner(room) for room in puzzle.rooms],
            "keys": [[*up(k.cell), COLOURS[k.colour - 1], t] for k, t in zip(puzzle.keys, keys, strict=True)],
            "doors": [
                [*up(d.cell), COLOURS[d.colour - 1], t, d.upright] for d, t in zip(puzzle.doors, doors, strict=True)
            ],
            "goal": up(puzzle.goal),
        },
        "places": _places(positions[:, 0].tolist(), (height - positions[:, 1]).tolist(), puzzle.width, height, 0.5),
    }


def _when(things: Any, colours: Any, positions: Any) -> list[int]:
    """The step count at which each thing went, -1: never. Of two of a colour it is the one nearest to the agent."""
    gone = [-1] * len(things)
    for t in np.flatnonzero(colours).tolist():
        alike = [i for i, thing in enumerate(things) if thing.colour == colours[t] and gone[i] < 0]
        if alike:
            here = positions[t + 1]
            nearest = min(alike, key=lambda i: np.hypot(*(np.array(things[i].cell) + 0.5 - here)))
            gone[nearest] = t + 1
    return gone


def _places(x: list[float], y: list[float], width: int, height: int, cell: float = 1.0) -> dict[str, Any]:
    """Where the agent is before the first step and after each, in thousandths; and the cells that heat is laid on."""
    return {
        "x": [round(1000 * value / width) for value in x],
        "y": [round(1000 * value / height) for value in y],
        "cells": [round(width / cell), round(height / cell)],
    }
