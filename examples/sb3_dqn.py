"""Stable-Baselines3's DQN with credit from smaller mazes, in mazes and a task it was not learned in.

python examples/sb3_dqn.py            # two minutes
python examples/sb3_dqn.py --quick    # seconds: shows that it runs, far too small for a verdict
"""

import argparse

from stable_baselines3 import DQN

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
    threshold = 0.0 if quick else 0.1  # a raw model tells no steps apart
    potential = srl.OnlineCredit(secret, threshold=threshold, observation=srl.views.CenteredView(3))

    # 4. Held-out 5x5 mazes, three switches. Credit is spent twice: as reward, and as replay priority. A quarter of each
    #    batch is drawn from transitions that raised the potential or were rewarded; unshaped, from the rewarded alone.
    steps = 400 if quick else 12_000
    options = {
        "gamma": 0.9, "learning_rate": 1e-3, "learning_starts": 100 if quick else 500, "gradient_steps": 2,
        "train_freq": 1, "target_update_interval": 500, "buffer_size": steps, "exploration_fraction": 0.5,
        "exploration_final_eps": 0.1, "device": "cpu", "evaluate_every": steps // 20,
        "replay_buffer_class": srl.sb3.ShapedReplayBuffer, "replay_buffer_kwargs": {"priority": 0.25},
    }  # fmt: skip
    returns: dict[str, list[float]] = {"unshaped": [], "credit": []}
    for layout in (7,) if quick else (7, 8, 9, 10):
        options["env_options"] = {"size": 5, "triggers": 3, "window": None, "layout_seed": layout}
        plain = srl.sb3.train(DQN, MAZES, steps, **options)
        credited = srl.sb3.train(DQN, MAZES, steps, shaping=srl.sb3.shape_with(potential), **options)  # the one line
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
