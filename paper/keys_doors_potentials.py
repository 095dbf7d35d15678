"""Trajectories on target maps of keys and doors, and the potentials that are made from them."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import secret_rl as srl
from paper.keys_doors_study import Condition, Files, Study, credit_of, target_of, target_settings
from paper.keys_doors_way import KnownWay, known_way
from secret_rl.atomic import replace_text
from secret_rl.envs import KEYS_DOORS_ID
from secret_rl.envs.keys_doors import Wanderer
from secret_rl.sb3 import load_weights, paper_ppo
from secret_rl.shaping import OnlineCredit, TablePotential

ASTRAY = 0.1  # a wanderer that keeps to its ways meets a third of the cells
TOLERANCE = 5  # steps by which a prediction may miss its reward (appendix A)


def make_potentials(study: Study, files: Files, number: int, workers: int = 1) -> str:
    """Play target trajectories on a map, and write every potential that is made from them; they are not kept."""
    data = target_trajectories(study, number, workers)
    wanted = {condition.potential: condition for condition in study.conditions if condition.needs_data}
    about: dict[str, Any] = {
        "steps": data.steps, "goals": float(_ends_in_goal(data).mean()),
        "rewarded": float(np.mean(data.successful)),
    }  # fmt: skip
    credited = any(condition.needs_credit for condition in wanted.values())
    credit = _attributed(files, data, number) if credited else None
    if credit is not None:
        about["coverage"] = credit.coverage
    for kind, condition in wanted.items():
        if kind == "way":
            potential: Any = known_way(data)
        elif kind == "learned":
            potential = srl.learn_potential(
                data, credit, delay_discount=study.discount, progress=False, **study.learning
            )
        else:
            assert kind is not None
            potential = srl.estimate_potential(data, credit, kind, rewards="positive", delay_discount=study.discount)
        potential.save(files.potential(condition, number))
    used = credit_of(files, number, needed=credited)
    content = {"settings": target_settings(study, number), "credit": used, "kinds": sorted(map(str, wanted)), **about}
    replace_text(files.target(number), json.dumps(content) + "\n")
    return f"map {number}: {len(data)} target trajectories, {about['goals']:.0%} to the goal"


def _attributed(files: Files, data: srl.Trajectories, number: int) -> srl.Attributions:
    return files.secret(number).attribute(data, rewards="positive", tolerance=TOLERANCE)


def target_trajectories(study: Study, number: int, workers: int = 1) -> srl.Trajectories:
    """Play on a map, all over it: a state that is not met has no potential."""
    env = study.env(number)
    policy: Any = partial(Wanderer, astray=ASTRAY) if study.policy is None else player(study, Path(study.policy))
    return srl.collect(
        KEYS_DOORS_ID, study.target_trajectories, policy, env["layout_seed"], env_options=env, workers=workers,
        progress=False,
    )  # fmt: skip


def _ends_in_goal(data: srl.Trajectories) -> Any:
    reached = np.asarray(data.annotations["goal_reached"])
    return reached[np.asarray(data.offsets[1:]) - 1]


def are_made(study: Study, files: Files, number: int) -> bool:
    """Whether the potentials of a map are there, made with this credit model."""
    found = target_of(study, files, number)
    wanted = [condition for condition in study.conditions if condition.needs_data]
    credited = any(condition.needs_credit for condition in wanted)
    return (
        found is not None
        and {str(condition.potential) for condition in wanted} <= set(found["kinds"])
        and found["credit"] == credit_of(files, number, needed=credited)
    )


def potential_of(files: Files, condition: Condition, number: int) -> Any:
    """The potential of a condition on a map; None is no shaping."""
    if condition.potential is None:
        return None
    if condition.potential == "OnlineCredit":
        # repeat: as OnlineCredit was when the committed results were made
        return OnlineCredit(files.secret(number), repeat=True, **condition.options)
    path = files.potential(condition, number)
    kinds: dict[str, Any] = {"learned": srl.LearnedPotential, "way": KnownWay}
    return kinds.get(condition.potential, TablePotential).load(path)


def player(study: Study, weights: Path) -> "Player":
    """The agent that ``train_player`` wrote, as a policy that can be sent to other processes."""
    from stable_baselines3 import PPO

    options = paper_ppo(**study.ppo)
    envs = srl.sb3.sb3_envs(KEYS_DOORS_ID, 1, env_options=study.world)
    model = PPO(options["policy"], envs, n_steps=2, batch_size=2, policy_kwargs=options["policy_kwargs"], device="cpu")
    load_weights(model, weights)
    close_engines(model)
    return Player(model.policy)


class Player:
    """Draws actions as a PPO agent does, from pictures; most of the time that its ``predict`` takes is not needed."""

    def __init__(self, policy: Any) -> None:
        parts = policy.pi_features_extractor, policy.mlp_extractor.policy_net, policy.action_net
        self._network = torch.nn.Sequential(*parts).eval()

    def __call__(self, observation: NDArray[np.uint8], rng: np.random.Generator) -> int:
        """The next action."""
        logits = self.logits(observation)
        return int(np.argmax(logits + rng.gumbel(size=len(logits))))

    def logits(self, observation: NDArray[np.uint8]) -> NDArray[np.float32]:
        """(actions,) whose differences are those of the logarithms of the chances."""
        with torch.inference_mode():
            picture = torch.from_numpy(observation.transpose(2, 0, 1)[None].astype(np.float32) / 255)
            return np.asarray(self._network(picture)[0])


def close_engines(model: Any) -> None:
    """End the engines of an agent, which goes on without."""
    model.get_env().close()
    model.env = None
