"""The paper's example of a Triggers environment (section 3): the full grid and what the agent sees of it."""

from pathlib import Path

import gymnasium as gym

import secret_rl as srl
from secret_rl.report import save_maze

RESULTS = Path(__file__).parent / "results"
OPTIONS = {"size": 8, "triggers": 3, "prizes": 1, "layout_seed": 2046}


def main(quick: bool, command: str, analyse_only: bool = False) -> list[str]:
    """Draw the maze and the 3x3 crop around the agent; there is no other size."""
    del quick, command, analyse_only
    assert srl.__version__  # importing registers the environment
    with gym.make("secret_rl/Triggers-v0", **OPTIONS) as env:
        observation, _ = env.reset()
        pictures = save_maze(env.unwrapped.contents, RESULTS / "maze", observation)
    return [str(picture) for picture in pictures]
