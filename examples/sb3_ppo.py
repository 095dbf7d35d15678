"""Stable-Baselines3's PPO with credit from smaller mazes. Read the verdict: a critic can cancel a potential.

python examples/sb3_ppo.py            # two minutes
python examples/sb3_ppo.py --quick    # seconds: shows that it runs, far too small for a verdict
"""

import argparse

from stable_baselines3 import PPO

import secret_rl as srl

MAZES = "secret_rl/Triggers-v0"


def main(quick: bool = False) -> dict[str, float]:
    """Print and return the mean unshaped return over training, without and with credit."""
    # 1. Source: random play in new 4x4 mazes, one switch each. Only the 3x3 cells around the player are seen.
    small = {"size": 4, "triggers": 1, "window": 3, "max_steps": 12 if quick else 50}
    source = srl.collect(MAZES, 300 if quick else 4_000, seed=0, success_share=0.3, env_options=small)

    # 2. Credit: which past steps earned a reward.
    raw = {"steps": 20, "units": 16, "warmup": 5}
    secret = srl.Secret(seed=0, batch_size=64, **(raw if quick else {"steps": 800})).fit(source)
    print(secret.report)

    # 3. The agent sees the whole maze; the view shows credit the cells around the player, as in the source.
    view, threshold = srl.views.CenteredView(3), 0.0 if quick else 0.1  # a raw model tells no steps apart
    potential = srl.OnlineCredit(secret, threshold=threshold, observation=view, scale=0.45)  # two switches: below 1

    # 4. Held-out 5x5 mazes, two switches.
    steps = 512 if quick else 24_000
    options = {
        "gamma": 0.99, "n_envs": 16, "n_steps": 16 if quick else 64, "batch_size": 128, "n_epochs": 4,
        "learning_rate": 1e-3, "ent_coef": 0.02, "device": "cpu", "evaluate_every": steps // 20,
    }  # fmt: skip
    returns: dict[str, list[float]] = {"unshaped": [], "credit": []}
    for layout in (7,) if quick else (7, 8, 9, 10):
        options["env_options"] = {"size": 5, "triggers": 2, "window": None, "layout_seed": layout}
        plain = srl.sb3.train(PPO, MAZES, steps, **options)
        credited = srl.sb3.train(PPO, MAZES, steps, shaping=srl.sb3.shape_with(potential), **options)  # the one line
        for name, trained in (("unshaped", plain), ("credit", credited)):
            returns[name].append(trained.curve.area())  # evaluations are unshaped, whatever the agent was paid
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
