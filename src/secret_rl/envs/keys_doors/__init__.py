"""Keys and doors: a puzzle of rooms seen in first person, on ViZDoom (paper, section 3; extra ``[doom]``)."""

from secret_rl.envs.keys_doors.env import KeysDoorsEnv, WorldOptions
from secret_rl.envs.keys_doors.generator import PRESETS, PuzzleOptions, generate
from secret_rl.envs.keys_doors.policies import Solver, Wanderer
from secret_rl.envs.keys_doors.puzzle import COLOURS, Door, Key, Puzzle, door_causes, plan

__all__ = ["COLOURS", "PRESETS", "Door", "Key", "KeysDoorsEnv", "Puzzle", "PuzzleOptions", "Solver", "Wanderer"]
__all__ += ["WorldOptions", "door_causes", "generate", "plan"]
