"""The paper's example of a Triggers environment (section 3): the full grid and what the agent sees of it."""

from pathlib import Path

import gymnasium as gym
import numpy as np

import secret_rl as srl
from secret_rl.envs.triggers import MazeContents
from secret_rl.envs.triggers.render import draw
from secret_rl.report.figures import save_frames

RESULTS = Path(__file__).parent / "results"
OPTIONS = {"size": 8, "triggers": 3, "prizes": 1, "layout_seed": 2046}


def main(quick: bool, command: str, analyse_only: bool = False) -> list[str]:
    """Draw the maze and the 3x3 crop around the agent; there is no other size."""
    del quick, command, analyse_only
    assert srl.__version__  # importing registers the environment
    with gym.make("secret_rl/Triggers-v0", render_mode="rgb_array", **OPTIONS) as env:
        observation, _ = env.reset()
        frames = [env.render(), _crop(observation)]
    return [str(save_frames(frames, RESULTS / "maze.png"))]


def _crop(observation: np.ndarray) -> np.ndarray:
    """The observed window at the same scale: walls grey, switches red, prizes pink, the agent in the centre."""
    window = len(observation)
    here = (window // 2, window // 2)
    switches, prizes = (tuple(map(tuple, np.argwhere(observation[..., channel]))) for channel in (1, 2))
    picture = draw(MazeContents(window, here, switches, prizes))[32:-32, 32:-32]
    for row, column in np.argwhere(observation[..., 0]):
        picture[row * 32 : row * 32 + 32, column * 32 : column * 32 + 32] = (112, 112, 120)
    return picture
