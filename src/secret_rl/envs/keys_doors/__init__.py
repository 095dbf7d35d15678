"""Keys and doors: a puzzle of rooms seen in first person, on ViZDoom (paper, section 3; extra ``[doom]``)."""

from secret_rl.envs.keys_doors.env import KeysDoorsEnv, WorldOptions
from secret_rl.envs.keys_doors.generator import PRESETS, PuzzleOptions, generate
from secret_rl.envs.keys_doors.map_view import draw_map
from secret_rl.envs.keys_doors.policies import Random, Solver, Wanderer, play
from secret_rl.envs.keys_doors.puzzle import COLOURS, Door, Key, Puzzle, door_causes, plan

__all__ = [
    "COLOURS",
    "PRESETS",
    "Door",
    "Key",
    "KeysDoorsEnv",
    "Puzzle",
    "PuzzleOptions",
    "Random",
    "Solver",
    "Wanderer",
    "WorldOptions",
    "door_causes",
    "draw_map",
    "generate",
    "plan",
    "play",
]
