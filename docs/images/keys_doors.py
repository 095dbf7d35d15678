"""The picture of the 3D world, what the player sees and the map: ``python -m docs.images.keys_doors`` draws it."""

from pathlib import Path

import gymnasium as gym
import numpy as np
from paper.keys_doors_map import draw_map
from PIL import Image

import secret_rl  # noqa: F401  registers the environments
from secret_rl.envs.keys_doors import Solver

STEPS = 45


def main() -> None:
    """Walk the first steps of a solution, and save view and map side by side."""
    env = gym.make("secret_rl/KeysDoors-v0", preset="dmlab-like", size=(640, 480), layout_seed=7).unwrapped
    view, _ = env.reset(seed=0)
    solver, trail = Solver(env), [env.snapshot.position]
    solver.begin(0)
    for _ in range(STEPS):
        view, *_ = env.step(solver(view))
        trail.append(env.snapshot.position)
    now = env.snapshot
    plan = draw_map(env.puzzle, now.status, now.position, now.angle, pixels=40, trail=np.array(trail))
    env.close()
    rows = np.arange(480) * len(plan) // 480  # to the height of the view
    columns = np.arange(480 * plan.shape[1] // len(plan)) * len(plan) // 480
    picture = np.concatenate([view, np.full((480, 16, 3), 255, np.uint8), plan[rows][:, columns]], axis=1)
    Image.fromarray(picture).save(Path(__file__).parent / "keys_doors.png")


if __name__ == "__main__":
    main()
