"""Credit for a loop of your own: Q-learning by hand, in a wrapped Gymnasium environment.

python examples/plain_loop.py            # a minute
python examples/plain_loop.py --quick    # seconds: shows that it runs, far too small for a verdict
"""

import argparse

import gymnasium as gym
import numpy as np

import secret_rl as srl

MAZES, DISCOUNT = "secret_rl/Triggers-v0", 0.99


def learn(env: gym.Env, episodes: int) -> float:
    """Q-learning, nothing else; the mean unshaped return over training."""
    rng, total = np.random.default_rng(0), 0.0
    values = np.zeros((8 * 8 * 2**4, 4))  # (state, action): where the player is, which of four objects are gone
    for _ in range(episodes):
        state, ended = env.reset()[1]["state"], False
        while not ended:
            best = np.flatnonzero(values[state] == values[state].max())
            action = int(rng.integers(4) if rng.random() < 0.1 else rng.choice(best))
            _, reward, terminated, truncated, info = env.step(action)
            bootstrap = 0.0 if terminated else DISCOUNT * values[info["state"]].max()  # a time limit is no end
            values[state, action] += 0.1 * (reward + bootstrap - values[state, action])
            total += info.get("env_reward", reward)  # the wrapper tells what the environment itself paid
            state, ended = info["state"], terminated or truncated
    return total / episodes


def main(quick: bool = False) -> dict[str, float]:
    """Print and return the mean unshaped return over training, without and with credit."""
    # 1. Source: random play in new 4x4 mazes, one switch each. 2. Credit: which past steps earned a reward.
    small = {"size": 4, "triggers": 1, "window": 3, "max_steps": 12 if quick else 50}
    source = srl.collect(MAZES, 300 if quick else 4_000, seed=0, success_share=0.3, env_options=small)
    raw = {"steps": 20, "units": 16, "warmup": 5}
    secret = srl.Secret(seed=0, batch_size=64, **(raw if quick else {"steps": 800})).fit(source)
    print(secret.report)
    # 3. Held-out 8x8 mazes, three switches. The one line is the wrapper, with the discount of the loop.
    potential = srl.OnlineCredit(secret, threshold=0.0 if quick else 0.1)
    returns: dict[str, list[float]] = {"unshaped": [], "credit": []}
    for layout in (7,) if quick else (7, 8, 9, 10):
        maze = gym.make(MAZES, size=8, triggers=3, layout_seed=layout)
        for name, env in (("unshaped", maze), ("credit", srl.PotentialShaping(maze, potential, DISCOUNT))):
            returns[name].append(learn(env, episodes=20 if quick else 600))
            print(f"maze {layout}, {name:8}: mean return over training {returns[name][-1]:.2f}", flush=True)
    means = {name: sum(gained) / len(gained) for name, gained in returns.items()}
    better = [more > less for less, more in zip(*returns.values(), strict=True)]
    words = "credit helped" if all(better) else "no clear difference" if any(better) else "credit did not help"
    print(f"verdict: {'(too small to tell) ' * quick}{words}, {means['credit']:.2f} against {means['unshaped']:.2f}")
    return means


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes")
    main(**vars(parser.parse_args()))
