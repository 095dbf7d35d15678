"""Keys and doors: a puzzle of rooms seen in first person, on ViZDoom (paper, section 3; extra ``[doom]``)."""

from secret_rl.envs.keys_doors.env import KeysDoorsEnv
from secret_rl.envs.keys_doors.generator import generate
from secret_rl.envs.keys_doors.map_view import draw_map
from secret_rl.envs.keys_doors.options import PRESETS, PuzzleOptions, WorldOptions
from secret_rl.envs.keys_doors.planner import plan
from secret_rl.envs.keys_doors.policies import Random, Solver, Wanderer, play
from secret_rl.envs.keys_doors.puzzle import COLOURS, Door, Key, Puzzle
from secret_rl.envs.keys_doors.truth import door_causes

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
